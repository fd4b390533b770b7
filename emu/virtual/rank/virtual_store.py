"""torch's store, kept by who keeps the clocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from emu.virtual.key_store import Keys
from emu.virtual.rank.rank_end import RankEnd

#: torch is not declared where it is missing.
_Store: Any = vars(dist)["Store"]


def _to_bytes(value: Any) -> Any:
    """Return what goes into the store: numbers as they are, all else as bytes."""
    if isinstance(value, int):
        return value
    return value.encode() if isinstance(value, str) else bytes(value)


def _of_key(request: str) -> Callable[..., Any]:
    """Return the method of a request on one key, with the values that it takes."""

    def ask(self: VirtualStore, key: str, *values: Any) -> Any:
        return self.ask(request, [key], [*map(_to_bytes, values)])

    return ask


def _of_keys(request: str) -> Callable[..., Any]:
    """Return the method of a request on several keys, with a value for each or none."""

    def ask(self: VirtualStore, keys: Keys = (), values: Sequence[Any] = ()) -> Any:
        return self.ask(request, keys, [*map(_to_bytes, values)])

    return ask


class VirtualStore(_Store):  # type: ignore[misc]
    """A store that all ranks share, and that costs no time.

    Its methods are those of torch's stores. They raise DistStoreError where keys did
    not come before the timeout.
    """

    def __init__(self, end: RankEnd, timeout: timedelta) -> None:
        super().__init__()
        self._end = end
        self._seconds = timeout.total_seconds()

    def ask(self, request: str, keys: Keys, values: Sequence[Any] = ()) -> Any:
        """Return the answer to a request; raises DistStoreError after the timeout."""
        return self._end.ask_store(request, keys, values, self._seconds)

    set = _of_key("set")
    get = _of_key("get")
    add = _of_key("add")
    append = _of_key("append")
    compare_set = _of_key("compare_set")
    delete_key = _of_key("delete_key")
    check = _of_keys("check")
    num_keys = _of_keys("num_keys")
    multi_get = _of_keys("multi_get")
    multi_set = _of_keys("multi_set")

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
