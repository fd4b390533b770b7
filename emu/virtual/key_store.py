"""The store of a virtual cluster, in place of a TCPStore: it costs no time.

Requests are carried out in the order of virtual time. Who asks for a key that is not
there waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

#: Requests that wait until their keys are there.
WAITS = {"get", "wait", "multi_get"}
#: Requests after which keys may be there.
_WRITES = {"set", "multi_set", "add", "append", "compare_set"}


class KeyStore:
    """Keys and values, bytes, and who waits for them."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._waiting: list[tuple[Sequence[str], Callable[[], None]]] = []
        self._methods: dict[str, Callable[[Sequence[str], Sequence[Any]], Any]] = {
            "set": self._set,
            "multi_set": self._set,
            "get": self._get,
            "multi_get": self._get_all,
            "add": self._add,
            "append": self._append,
            "compare_set": self._compare_and_set,
            "delete_key": self._delete,
            "check": lambda keys, _: self.has(keys),
            "num_keys": lambda *_: len(self._values),
            "wait": lambda *_: None,
        }

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
        """Carry a request out, a method of torch's store; return its answer.

        Raises KeyError where a key is missing, or there is no such request.
        """
        answer = self._methods[request](keys, values)
        if request in _WRITES:
            self._tell()
        return answer

    def _set(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        self._values.update(zip(keys, values, strict=True))

    def _get(self, keys: Sequence[str], _: Sequence[Any]) -> bytes:
        return self._values[keys[0]]

    def _get_all(self, keys: Sequence[str], _: Sequence[Any]) -> list[bytes]:
        return [self._values[key] for key in keys]

    def _add(self, keys: Sequence[str], values: Sequence[Any]) -> int:
        total = int(self._values.get(keys[0], b"0")) + int(values[0])
        self._values[keys[0]] = str(total).encode()
        return total

    def _append(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        self._values[keys[0]] = self._values.get(keys[0], b"") + values[0]

    def _compare_and_set(self, keys: Sequence[str], values: Sequence[Any]) -> bytes:
        """Set a key that is as expected, or missing where nothing is; return it."""
        expected, desired = values
        # Of a key that is not there TCPStore says what was expected.
        found = self._values.get(keys[0], expected)
        if self._values.get(keys[0], b"") != expected:
            return bytes(found)
        self._values[keys[0]] = desired
        return bytes(desired)

    def _delete(self, keys: Sequence[str], _: Sequence[Any]) -> bool:
        return self._values.pop(keys[0], None) is not None

    def _tell(self) -> None:
        """Call those whose keys are there by now."""
        waiting = self._waiting
        self._waiting = []
        for keys, action in waiting:
            self.call_when_there(keys, action)
