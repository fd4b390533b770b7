"""Exchanges of the parts of a graph in training: how old, how much, how exact they are.

A system states one `Exchange` per layer and direction. Bytes, lags and the training
follow from these statements: simulator, node programs and the training in one process
read the same ones. What no exchange states is not sent, and counts as zeros.

Must not know: systems, data sets, arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

#: Content of an exchange: inputs of a layer from the parts that own them, and the
#: gradients of these inputs back to their owners.
ROWS = "rows"
GRADIENTS = "gradients"
#: Period of what is sent in the first epoch alone.
ONCE = 1 << 30
#: Bits of a quantised number.
BITS = (2, 4, 8)
#: Bytes of a drawn row's number.
ID_BYTES = 8
#: Bytes of the number that stands beside a row.
NUMBER_BYTES = 4
#: Bytes of a row's scale and minimum, two numbers of bfloat16.
SCALE_BYTES = 4
#: Bytes that say that nothing is sent.
SKIP_BYTES = 1


@dataclass(frozen=True)
class Exchange:
    """Rows that every two parts exchange at one layer, in one direction.

    Raises ValueError when a statement of it cannot be, with what would be right.
    """

    content: str
    """`ROWS` or `GRADIENTS`."""
    layer: int
    """Layer whose inputs, or their gradients, are sent, from 1: the features."""
    age: int = 0
    """Epochs between the one that sends and the one that reads; the first reads 0."""
    every: int = 1
    """Epochs from one sending to the next: between them the last rows are read."""
    share: float = 1.0
    """Share of the rows that two parts share, rounded down: drawn in every epoch, the
    same for all layers and both directions. Rows are divided by the share that is
    sent, and so are the gradients that come back; what is not drawn reads 0."""
    bits: int | None = None
    """Bits of a number, rounded at random to a step of its row; None: as computed."""
    whole: bool = False
    """True where parts send each other all rows of the owner, needed or not, as many as
    the largest part has: a broadcast of its block."""
    numbered: bool = False
    """True where the number of its vertex stands beside every row."""
    smoothing: float = 0.0
    """Weight of what was read before in the mean that is read; 0: no mean."""

    def __post_init__(self) -> None:
        if self.content not in (ROWS, GRADIENTS):
            raise ValueError(f"found {self.content!r}, write {ROWS} or {GRADIENTS}")
        if self.layer < 1:
            raise ValueError(f"found layer {self.layer}, layers are numbered from 1")
        if self.age < 0 or self.every < 1:
            problem = f"found age {self.age}, every {self.every}"
            raise ValueError(f"{problem}: write an age of 0 or more, every 1 or more")

        if not 0 < self.share <= 1:
            raise ValueError(
                f"found share {self.share:g}, write more than 0, at most 1"
            )
        if self.whole and self.share < 1:
            raise ValueError("found a share of whole parts, write one of the two")

        is_partial = self.share < 1 or self.bits is not None
        if self.numbered and (self.whole or is_partial):
            raise ValueError(
                "found numbers beside rows that are not all sent as they are"
            )

        if self.bits is not None and self.bits not in BITS:
            words = ", ".join(map(str, BITS))
            raise ValueError(f"found {self.bits} bits, write {words} or none")
        if not 0 <= self.smoothing < 1:
            problem = f"found smoothing {self.smoothing:g}"
            raise ValueError(f"{problem}, write 0 or more, less than 1")

    @property
    def remembers(self) -> bool:
        """True where an epoch reads what an earlier one has sent."""
        is_late = self.age > 0 or self.every > 1
        return is_late or self.smoothing > 0

    @property
    def is_exact(self) -> bool:
        """True where it gives a reader the values of its own epoch, all of them."""
        is_complete = self.share == 1 and self.bits is None
        return is_complete and not self.remembers

    def sends(self, epoch: int) -> bool:
        """Return True where the rows of an epoch are sent."""
        return epoch % self.every == 0

    def count_rows(self, shared: int) -> int:
        """Return how many rows are sent, of those that two parts share."""
        return int(self.share * shared)

    def message_bytes(self, shared: int, width: int, itemsize: int) -> int:
        """Return the bytes of a message between two parts, without numbers of rows.

        ``shared``, ``width``, ``itemsize``: rows that the parts share, numbers of a
        row, and bytes of a number as it is computed.
        """
        rows = self.count_rows(shared)
        if self.bits is None:
            row = width * itemsize
            if self.numbered:
                row += NUMBER_BYTES
            return rows * row
        # Rows share a byte column by column; a byte more is always sent (AdaQP).
        packed = -(-rows * self.bits // 8) * width + 1
        return packed + SCALE_BYTES * rows


def to_settings(exchanges: Iterable[Exchange]) -> list[dict[str, Any]]:
    """Return exchanges as ``Job.settings`` hold them."""
    return [asdict(exchange) for exchange in exchanges]


def read_exchanges(settings: Mapping[str, Any]) -> tuple[Exchange, ...]:
    """Return the exchanges of ``Job.settings``; none of a system that states none."""
    rows = settings.get("exchanges", ())
    return tuple(Exchange(**fields) for fields in rows)


def is_exact(settings: Mapping[str, Any]) -> bool:
    """Return True where all exchanges of ``Job.settings`` are exact, or of one part."""
    if settings.get("parts") == 1:
        return True
    exchanges = read_exchanges(settings)
    return all(exchange.is_exact for exchange in exchanges)


def carries_numbers(exchange: Exchange, exchanges: Iterable[Exchange]) -> bool:
    """Return True of the exchange that tells readers which rows an epoch has drawn.

    That is the first of its rows: the other ones go without.
    """
    drawn = [other for other in exchanges if other.content == ROWS and other.share < 1]
    first = min(drawn, key=lambda other: other.layer, default=None)
    return exchange == first
