"""torch's store, kept by who keeps the clocks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from typing_extensions import override

from emu.virtual.rank.rank_end import RankEnd


def _to_bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


class VirtualStore(dist.Store):
    """A store that all ranks share, and that costs no time."""

    def __init__(self, end: RankEnd, timeout: timedelta) -> None:
        super().__init__()
        self._end = end
        self._seconds = timeout.total_seconds()

    def _ask(self, request: str, keys: Sequence[str], *values: Any) -> Any:
        return self._end.ask_store(request, keys, values, self._seconds)

    @override
    def set(self, key: str, value: Any) -> None:
        self._ask("set", [key], _to_bytes(value))

    @override
    def get(self, key: str) -> bytes:
        found: bytes = self._ask("get", [key])
        return found

    @override
    def add(self, key: str, amount: int) -> int:
        total: int = self._ask("add", [key], amount)
        return total

    @override
    def append(self, key: str, value: Any) -> None:
        self._ask("append", [key], _to_bytes(value))

    @override
    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        values = (_to_bytes(expected), _to_bytes(desired))
        found: bytes = self._ask("compare_set", [key], *values)
        return found

    @override
    def delete_key(self, key: str) -> bool:
        return bool(self._ask("delete_key", [key]))

    @override
    def check(self, keys: Sequence[str]) -> bool:
        return bool(self._ask("check", keys))

    @override
    def num_keys(self) -> int:
        count: int = self._ask("num_keys", [])
        return count

    @override
    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        found: list[bytes] = self._ask("multi_get", keys)
        return found

    @override
    def multi_set(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        self._ask("multi_set", keys, *map(_to_bytes, values))

    @override
    def has_extended_api(self) -> bool:
        return True

    @override
    def set_timeout(self, timeout: timedelta) -> None:
        self._seconds = timeout.total_seconds()

    @override
    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        seconds = self._seconds if timeout is None else timeout.total_seconds()
        self._end.ask_store("wait", keys, [], seconds)
