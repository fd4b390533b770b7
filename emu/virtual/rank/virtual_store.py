"""torch's store, kept by who keeps the clocks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from emu.virtual.key_store import Keys
from emu.virtual.rank.rank_end import RankEnd


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return bytes(value)


#: torch is not declared where it is missing.
_Store: Any = vars(dist)["Store"]


class VirtualStore(_Store):  # type: ignore[misc]
    """A store that all ranks share, and that costs no time."""

    def __init__(self, end: RankEnd, timeout: timedelta) -> None:
        super().__init__()
        self._end = end
        self._seconds = timeout.total_seconds()

    def _ask(self, request: str, keys: Keys, values: Sequence[Any] = ()) -> Any:
        """Return the answer to a request; raises DistStoreError after the timeout."""
        return self._end.ask_store(request, keys, values, self._seconds)

    def set(self, key: str, value: Any) -> None:
        """Set a key."""
        content = _to_bytes(value)
        self._ask("set", [key], [content])

    def get(self, key: str) -> bytes:
        """Return the value of a key, once it is there."""
        found: bytes = self._ask("get", [key])
        return found

    def add(self, key: str, amount: int) -> int:
        """Add to a number; return the sum."""
        total: int = self._ask("add", [key], [amount])
        return total

    def append(self, key: str, value: Any) -> None:
        """Append to a value."""
        content = _to_bytes(value)
        self._ask("append", [key], [content])

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        """Set a key that has an expected value; return what it has."""
        former = _to_bytes(expected)
        content = _to_bytes(desired)
        found: bytes = self._ask("compare_set", [key], [former, content])
        return found

    def delete_key(self, key: str) -> bool:
        """Delete a key; return True where it was there."""
        was_there: bool = self._ask("delete_key", [key])
        return was_there

    def check(self, keys: Keys) -> bool:
        """Return True where all keys are there."""
        are_there: bool = self._ask("check", keys)
        return are_there

    def num_keys(self) -> int:
        """Return the number of keys."""
        count: int = self._ask("num_keys", [])
        return count

    def multi_get(self, keys: Keys) -> list[bytes]:
        """Return the values of keys, once all are there."""
        found: list[bytes] = self._ask("multi_get", keys)
        return found

    def multi_set(self, keys: Keys, values: list[Any]) -> None:
        """Set keys."""
        contents = [_to_bytes(value) for value in values]
        self._ask("multi_set", keys, contents)

    def has_extended_api(self) -> bool:
        """Return True: append and several keys work."""
        return True

    def set_timeout(self, timeout: timedelta) -> None:
        """Set how long to wait for keys."""
        self._seconds = timeout.total_seconds()

    def wait(self, keys: Keys, timeout: timedelta | None = None) -> None:
        """Wait until keys are there; raises DistStoreError after a timeout."""
        seconds = self._seconds
        if timeout is not None:
            seconds = timeout.total_seconds()
        self._end.ask_store("wait", keys, [], seconds)
