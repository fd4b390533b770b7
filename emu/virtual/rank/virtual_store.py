"""torch's store, kept by who keeps the clocks."""

from __future__ import annotations

from collections.abc import Sequence
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
    if isinstance(value, str):
        return value.encode()
    return bytes(value)


class VirtualStore(_Store):  # type: ignore[misc]
    """A store that all ranks share, and that costs no time.

    Its methods are those of torch's stores. They raise DistStoreError where keys did
    not come before the timeout.
    """

    def __init__(self, end: RankEnd, timeout: timedelta) -> None:
        super().__init__()
        self._end = end
        # Kept by torch: a prefix before this store sets it there, and asks for it.
        self.set_timeout(timeout)

    def ask(self, request: str, key: str, *values: Any) -> Any:
        """Return the answer to a request about one key; raises as `ask_about`."""
        return self.ask_about([key], request, values)

    def ask_about(
        self,
        keys: Keys,
        request: str,
        values: Sequence[Any] = (),
    ) -> Any:
        """Return the answer to a request; raises DistStoreError after the timeout.

        ``values``: for each key, or all for the only one.
        """
        contents = [_to_bytes(value) for value in values]
        seconds = self.timeout.total_seconds()
        return self._end.ask_store(request, keys, contents, seconds)

    def set(self, key: str, value: Any) -> None:
        """Set the value of a key."""
        self.ask("set", key, value)

    def get(self, key: str) -> Any:
        """Return the value of a key, once it is there."""
        return self.ask("get", key)

    def add(self, key: str, amount: int) -> Any:
        """Add to the number that a key has, 0 at first; return the sum."""
        return self.ask("add", key, amount)

    def append(self, key: str, value: Any) -> None:
        """Append to the value of a key."""
        self.ask("append", key, value)

    def compare_set(
        self,
        key: str,
        expected: Any,
        desired: Any,
    ) -> Any:
        """Set the value of a key that has the expected one; return what it has then."""
        return self.ask("compare_set", key, expected, desired)

    def delete_key(self, key: str) -> Any:
        """Delete a key; return whether it was there."""
        return self.ask("delete_key", key)

    def check(self, keys: Keys) -> Any:
        """Return True where all keys are there."""
        return self.ask_about(keys, "check")

    def num_keys(self) -> Any:
        """Return the number of keys."""
        return self.ask_about([], "num_keys")

    def multi_get(self, keys: Keys) -> Any:
        """Return the values of keys, once all are there."""
        return self.ask_about(keys, "multi_get")

    def multi_set(self, keys: Keys, values: Sequence[Any]) -> None:
        """Set the values of keys."""
        self.ask_about(keys, "multi_set", values)

    def has_extended_api(self) -> bool:
        """Return True: append and several keys work."""
        return True

    def clone(self) -> VirtualStore:
        """Return the store: it has no connection of which there could be another."""
        return self

    # By these names a prefix before this store asks for them.
    deleteKey = delete_key  # noqa: N815
    getNumKeys = num_keys  # noqa: N815

    def wait(
        self,
        keys: Keys,
        timeout: timedelta | None = None,
    ) -> None:
        """Wait until keys are there; raises DistStoreError after a timeout."""
        limit = self.timeout if timeout is None else timeout
        self._end.ask_store("wait", keys, [], limit.total_seconds())
