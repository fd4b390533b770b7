"""Who connects is a stranger until it shows the token of the run."""

from __future__ import annotations

import hmac
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Rejection:
    """A connection that was dropped: who, why, and when (wall seconds)."""

    peer: str
    reason: str
    wall: float


class Rejections(deque[Rejection]):
    """The last hundred strangers that a port has dropped, and how many in all."""

    def __init__(self) -> None:
        super().__init__(maxlen=100)
        self.total = 0

    def note(self, peer: str, reason: str) -> None:
        """Remember one more."""
        self.total += 1
        self.append(Rejection(peer, reason, time.monotonic()))


def shows_token(given: Any, token: str) -> bool:
    """Return whether a value from a stranger is the token, in constant time."""
    return isinstance(given, str) and hmac.compare_digest(
        given.encode(errors="replace"), token.encode()
    )


def name_of(address: Sequence[Any] | None) -> str:
    """Return host:port of a peer's address."""
    return f"{address[0]}:{address[1]}" if address else "unknown"
