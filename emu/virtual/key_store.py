"""The store of a virtual cluster, in place of a TCPStore: it costs no time.

Requests are carried out in the order of virtual time. Who asks for a key that is not
there waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

#: Requests that wait until their keys are there.
WAITS = {"get", "wait", "multi_get"}


class KeyStore:
    """Keys and values, bytes, and who waits for them."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._waiting: list[tuple[Sequence[str], Callable[[], None]]] = []

    def has(self, keys: Sequence[str]) -> bool:
        """Return True where all keys are there."""
        return all(key in self._values for key in keys)

    def call_when_there(self, keys: Sequence[str], action: Callable[[], None]) -> None:
        """Have something done as soon as all keys are there, or now if they are."""
        if self.has(keys):
            action()
        else:
            self._waiting.append((keys, action))

    def carry_out(
        self, request: str, keys: Sequence[str], values: Sequence[Any]
    ) -> Any:
        """Carry a request out; return its answer.

        Raises KeyError where a key is missing, or there is no such request.
        """
        match request:
            case "set" | "multi_set":
                self._values.update(zip(keys, values, strict=True))
            case "get":
                return self._values[keys[0]]
            case "multi_get":
                return [self._values[key] for key in keys]
            case "add":
                total = int(self._values.get(keys[0], b"0")) + values[0]
                self._values[keys[0]] = str(total).encode()
                self._tell()
                return total
            case "append":
                self._values[keys[0]] = self._values.get(keys[0], b"") + values[0]
            case "compare_set":
                return self._compare_and_set(keys[0], *values)
            case "delete_key":
                return self._values.pop(keys[0], None) is not None
            case "check":
                return self.has(keys)
            case "num_keys":
                return len(self._values)
            case "wait":
                return None
            case _:
                raise KeyError(request)
        self._tell()
        return None

    def _compare_and_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """Set a key that is as expected, or missing where nothing is; say what it is."""
        if self._values.get(key, b"") != expected:
            # What TCPStore says of a key that is not there.
            return self._values.get(key, expected)
        self._values[key] = desired
        self._tell()
        return desired

    def _tell(self) -> None:
        """Call those whose keys are there by now."""
        waiting = self._waiting
        self._waiting = []
        for keys, action in waiting:
            self.call_when_there(keys, action)
