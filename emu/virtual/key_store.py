"""The store of a virtual cluster, in place of a TCPStore: it costs no time.

Requests are carried out in the order of virtual time. Who asks for a key that is not
there waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Keys: TypeAlias = Sequence[str]
#: Requests that wait until their keys are there.
WAITS = {"get", "wait", "multi_get"}
#: Requests that change nothing.
_READS = WAITS | {"check", "num_keys"}


class KeyStore:
    """Keys and values, bytes, and those who wait for them."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._waiting: list[tuple[Keys, Callable[[], None]]] = []

    def has(self, keys: Keys) -> bool:
        """Return True where all keys are there."""
        return all(key in self._values for key in keys)

    def call_when_there(self, keys: Keys, action: Callable[[], None]) -> None:
        """Have something done as soon as all keys are there, or now if they are."""
        if self.has(keys):
            action()
            return
        waiter = (keys, action)
        self._waiting.append(waiter)

    def carry_out(
        self,
        request: str,
        keys: Keys,
        values: Sequence[Any],
    ) -> Any:
        """Carry a request out, a method of torch's store; return its answer.

        Raises KeyError where a key is missing, or there is no such request.
        """
        if request in _READS:
            return self._read(request, keys)

        answer = self._write(request, keys, values)
        waiting = self._waiting
        self._waiting = []
        for awaited, action in waiting:
            self.call_when_there(awaited, action)
        return answer

    def _read(self, request: str, keys: Keys) -> Any:
        answer: Any = None
        match request:
            case "get":
                answer = self._values[keys[0]]
            case "multi_get":
                answer = [self._values[key] for key in keys]
            case "check":
                answer = self.has(keys)
            case "num_keys":
                answer = len(self._values)
            case _:
                pass  # of a wait nothing is told but that it is over
        return answer

    def _write(self, request: str, keys: Keys, values: Sequence[Any]) -> Any:
        answer: Any = None
        match request:
            case "set" | "multi_set":
                pairs = zip(keys, values, strict=True)
                self._values.update(pairs)
            case "add":
                (key,) = keys
                former = int(self._values.get(key, b"0"))
                answer = former + values[0]
                self._values[key] = str(answer).encode()
            case "append":
                (key,) = keys
                former_value = self._values.get(key, b"")
                self._values[key] = former_value + values[0]
            case "compare_set":
                (key,) = keys
                answer = self._compare_and_set(key, *values)
            case "delete_key":
                (key,) = keys
                answer = key in self._values
                self._values.pop(key, None)
            case _:
                raise KeyError(request)
        return answer

    def _compare_and_set(
        self,
        key: str,
        expected: bytes,
        desired: bytes,
    ) -> bytes:
        """Set a key that is as expected, or missing where nothing is; return it."""
        if self._values.get(key, b"") == expected:
            self._values[key] = desired
        # Of a key that is not there TCPStore says what was expected.
        return self._values.get(key, expected)
