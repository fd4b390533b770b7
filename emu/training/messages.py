"""Messages of an `Exchange`: rows that are drawn, quantised, sent and read again.

Draws follow from seed, epoch and the two parts, so that both ends know them; so does
the rounding. Quantised rows are those of AdaQP (Wan et al., MLSys 2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from emu.array_types import Array
from emu.problem.workloads.exchange import GRADIENTS, ROWS, Exchange

#: Tensor name -> array, as a flow carries it.
Message: TypeAlias = dict[str, Array]
Positions: TypeAlias = NDArray[np.int64]
#: Quantised numbers, one per element, or several packed in a byte.
Codes: TypeAlias = NDArray[np.uint8]
#: Bits of numbers of bfloat16.
Halves: TypeAlias = NDArray[np.uint16]

#: Tensor of a message that is sent as computed, by what it is.
_NAMES = {ROWS: "rows", GRADIENTS: "gradient"}
#: Bits of a float32 that bfloat16 lacks.
_LACKING = np.uint32(16)
#: Streams of the job's seed.
_DRAWS = 6
_ROUNDING = 7


@dataclass(frozen=True)
class Passage:
    """Passage of one message from a part to another one."""

    seed: int
    """Seed of the job."""
    epoch: int
    """Epoch that sends it, from 0."""
    sender: int
    """Rank of the part that sends it."""
    receiver: int
    """Rank of the part that reads it."""


def draw_rows(exchange: Exchange, passage: Passage, shared: int) -> Positions:
    """Return which of the rows that two parts share a message has, ascending."""
    if exchange.share == 1:
        return np.arange(shared)

    owner = passage.sender
    reader = passage.receiver
    if exchange.content == GRADIENTS:
        # They go back by the draw of their rows.
        owner = passage.receiver
        reader = passage.sender
    # Neither layer nor direction: an epoch has one draw between two parts.
    stream = [
        passage.seed,
        _DRAWS,
        passage.epoch,
        owner,
        reader,
    ]
    rng = np.random.default_rng(stream)
    count = exchange.count_rows(shared)
    drawn = rng.choice(shared, count, replace=False)
    return np.sort(drawn)


def encode(exchange: Exchange, rows: Array, passage: Passage) -> Message:
    """Return the message of rows, quantised where the exchange says so."""
    bits = exchange.bits
    if bits is None:
        name = _NAMES[exchange.content]
        return {name: np.ascontiguousarray(rows)}

    scales, lows = _scale_rows(bits, rows)
    # Half below to half above, and then to the nearest: right in the mean.
    steps = (rows - lows) * scales
    shifts = _draw_shifts(exchange, passage, rows.shape)
    steps = steps + shifts
    steps = np.clip(steps, 0, _last_code(bits))
    codes = np.rint(steps)
    whole_codes = codes.astype(np.uint8)
    scales_and_lows = np.concatenate([scales, lows], axis=1)
    return {
        "codes": _pack(whole_codes, bits),
        "scales": to_bfloat16(scales_and_lows),
    }


def _draw_shifts(
    exchange: Exchange,
    passage: Passage,
    shape: tuple[int, ...],
) -> Array:
    """Return numbers from -0.5 to 0.5, new ones for each message."""
    is_backward = exchange.content == GRADIENTS
    stream = [
        passage.seed,
        _ROUNDING,
        passage.epoch,
        int(is_backward),
        exchange.layer,
        passage.sender,
        passage.receiver,
    ]
    rng = np.random.default_rng(stream)
    return rng.random(shape) - 0.5


def _last_code(bits: int) -> int:
    return (1 << bits) - 1


def _scale_rows(bits: int, rows: Array) -> tuple[Array, Array]:
    """Return steps per unit and the least number of each row, shape (rows, 1)."""
    if not rows.size:
        shape = (len(rows), 1)
        empty = np.zeros(shape, rows.dtype)
        return empty, empty
    last = _last_code(bits)

    lows = rows.min(axis=1, keepdims=True)
    highs = rows.max(axis=1, keepdims=True)
    spans = highs - lows

    # Of a constant row no step is taken: 0 says so. A scale has to be a float32.
    scales = np.zeros_like(spans)
    largest = np.finfo(np.float32).max
    least = 2 * last / largest
    has_steps = spans > least
    np.divide(last, spans, out=scales, where=has_steps)
    return scales, lows


def decode(
    exchange: Exchange,
    message: Message,
    shape: tuple[int, int],
    dtype: np.dtype[Any],
) -> Array:
    """Return the rows of a message, in this shape; ValueError of another one."""
    if exchange.bits is None:
        name = _NAMES[exchange.content]
        rows = message[name]
        if rows.shape != shape:
            raise ValueError(f"rows of shape {rows.shape}, not {shape}")
        return rows

    count, _ = shape
    scales_and_lows = from_bfloat16(message["scales"])
    if scales_and_lows.shape != (count, 2):
        problem = f"scales of shape {scales_and_lows.shape}, not {(count, 2)}"
        raise ValueError(problem)
    scales_and_lows = scales_and_lows.astype(dtype)
    scales = scales_and_lows[:, :1]
    lows = scales_and_lows[:, 1:]

    codes = _unpack(message["codes"], exchange.bits, shape)
    levels = np.zeros(shape, dtype)
    np.divide(codes, scales, out=levels, where=scales > 0)
    return np.asarray(levels + lows)


def _pack(codes: Codes, bits: int) -> Codes:
    """Return codes of several rows in one byte, column by column, and a byte more."""
    count, width = codes.shape
    per_byte = 8 // bits
    groups = -(-count // per_byte)
    padded = np.zeros((groups * per_byte, width), np.uint8)
    padded[:count] = codes

    packed = np.zeros((groups, width), np.uint8)
    for place in range(per_byte):
        shift = np.uint8(place * bits)
        packed |= padded[place::per_byte] << shift
    flat = packed.ravel()
    return np.append(flat, np.uint8(0))


def _unpack(packed: Array, bits: int, shape: tuple[int, int]) -> Codes:
    """Return the codes of `_pack`, in their shape; ValueError of another size."""
    count, width = shape
    per_byte = 8 // bits
    groups = -(-count // per_byte)
    grouped = packed[:-1].reshape(groups, width)

    codes = np.zeros((groups * per_byte, width), np.uint8)
    for place in range(per_byte):
        shift = np.uint8(place * bits)
        codes[place::per_byte] = grouped >> shift & _last_code(bits)
    return codes[:count]


def to_bfloat16(values: Array) -> Halves:
    """Return the bits of numbers of bfloat16: the nearest ones, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    is_odd = bits >> _LACKING & np.uint32(1)
    # A half of what is cut off, and as much as makes ties even.
    half = np.uint32(0x7FFF)
    rounded = bits + half + is_odd
    halves = rounded >> _LACKING
    return halves.astype(np.uint16)


def from_bfloat16(halves: Halves) -> NDArray[np.float32]:
    """Return the numbers of bits of bfloat16."""
    bits = halves.astype(np.uint32)
    bits <<= _LACKING
    return bits.view(np.float32)


class Reader:
    """Rows that a part reads of one exchange with one other part, epoch by epoch."""

    def __init__(self, exchange: Exchange, zeros: Array) -> None:
        self._smoothing = exchange.smoothing
        self.rows = zeros
        """Rows that are read, 0 before the first message."""

    def take(self, positions: Positions, rows: Array) -> None:
        """Take in the rows of a message: those of other positions are 0."""
        found = np.zeros_like(self.rows)
        found[positions] = rows
        if self._smoothing:
            # PipeGCN, section 3.4; no correction for what it began with.
            found *= 1 - self._smoothing
            found += self._smoothing * self.rows
        self.rows = found
