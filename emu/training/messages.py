"""Messages of an `Exchange`: rows that are drawn, quantised, sent and read again.

Draws follow from seed, epoch and the two parts, so that both ends know them; so does
the rounding. Quantised rows are those of AdaQP (Wan et al., MLSys 2023).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from emu.problem.workloads.exchange import GRADIENTS, ROWS, Exchange
from emu.training.layers import Array

#: Tensor name -> array, as a flow carries it.
Message: TypeAlias = dict[str, Array]
Positions: TypeAlias = NDArray[np.int64]

#: Tensor of a message that is sent as computed, by what it is.
_NAMES = {ROWS: "rows", GRADIENTS: "gradient"}
#: Streams of the job's seed.
_DRAWS = 6
_ROUNDING = 7


def draw_rows(
    exchange: Exchange, seed: int, epoch: int, owner: int, reader: int, shared: int
) -> Positions:
    """Return which of the rows that two parts share an epoch sends, ascending."""
    if exchange.share == 1:
        return np.arange(shared)
    count = exchange.count_rows(shared)
    # Neither layer nor direction: an epoch has one draw between two parts.
    rng = np.random.default_rng([seed, _DRAWS, epoch, owner, reader])
    return np.sort(rng.choice(shared, count, replace=False))


def encode(
    exchange: Exchange, rows: Array, seed: int, epoch: int, sender: int, receiver: int
) -> Message:
    """Return the message of rows, quantised where the exchange says so."""
    if exchange.bits is None:
        return {_NAMES[exchange.content]: np.ascontiguousarray(rows)}
    is_gradient = int(exchange.content == GRADIENTS)
    place = [epoch, is_gradient, exchange.layer, sender, receiver]
    rng = np.random.default_rng([seed, _ROUNDING, *place])
    shifts = rng.random(rows.shape) - 0.5

    scales, lows = _scale_rows(exchange.bits, rows)
    most = 2**exchange.bits - 1
    # Half below to half above, and then to the nearest: right in the mean.
    steps = (rows - lows) * scales + shifts
    steps = np.clip(steps, 0, most)
    codes = np.rint(steps).astype(np.uint8)
    wire_scales = np.concatenate([scales, lows], axis=1)
    return {
        "codes": _pack(codes, exchange.bits),
        "scales": to_bfloat16(wire_scales),
    }


def _scale_rows(bits: int, rows: Array) -> tuple[Array, Array]:
    """Return steps per unit and the least number of each row, shape (rows, 1)."""
    if not rows.size:
        empty = np.zeros((len(rows), 1), rows.dtype)
        return empty, empty
    most = 2**bits - 1
    lows = rows.min(axis=1, keepdims=True)
    highs = rows.max(axis=1, keepdims=True)
    spans = highs - lows

    # Of a constant row no step is taken: 0 says so. A scale has to be a float32.
    scales = np.zeros_like(spans)
    least = 2 * most / np.finfo(np.float32).max
    is_varied = spans > least
    np.divide(most, spans, out=scales, where=is_varied)
    return scales, lows


def decode(
    exchange: Exchange, message: Message, count: int, width: int, dtype: np.dtype[Any]
) -> Array:
    """Return the rows of a message, shape (count, width); ValueError of another one."""
    if exchange.bits is None:
        rows = message[_NAMES[exchange.content]]
        if rows.shape != (count, width):
            raise ValueError(f"rows of shape {rows.shape}, not {(count, width)}")
        return rows
    scales = from_bfloat16(message["scales"])
    scales = scales.astype(dtype)
    if scales.shape != (count, 2):
        raise ValueError(f"scales of shape {scales.shape}, not {(count, 2)}")
    codes = _unpack(message["codes"], exchange.bits, count, width)
    steps = scales[:, :1]
    lows = scales[:, 1:]

    levels = np.zeros((count, width), dtype)
    np.divide(codes, steps, out=levels, where=steps > 0)
    return np.asarray(levels + lows)


def _pack(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
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


def _unpack(packed: Array, bits: int, count: int, width: int) -> NDArray[np.uint8]:
    """Return the codes of `_pack`, shape (count, width); ValueError of another size."""
    per_byte = 8 // bits
    groups = -(-count // per_byte)
    grouped = packed[:-1].reshape(groups, width)
    codes = np.zeros((groups * per_byte, width), np.uint8)
    mask = 2**bits - 1
    for place in range(per_byte):
        shift = np.uint8(place * bits)
        codes[place::per_byte] = grouped >> shift & mask
    return codes[:count]


def to_bfloat16(values: Array) -> NDArray[np.uint16]:
    """Return the bits of numbers of bfloat16: the nearest ones, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    halves = bits >> np.uint32(16)
    # A half of what is cut off, and as much as makes ties even.
    is_odd = halves & np.uint32(1)
    half = np.uint32(0x7FFF)
    rounded = bits + half + is_odd >> np.uint32(16)
    return rounded.astype(np.uint16)


def from_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return the numbers of bits of bfloat16."""
    wide = bits.astype(np.uint32)
    shifted = wide << np.uint32(16)
    return shifted.view(np.float32)


class Reader:
    """Rows that a part reads of one exchange with one other part, epoch by epoch."""

    def __init__(
        self, exchange: Exchange, shared: int, width: int, dtype: np.dtype[Any]
    ) -> None:
        self._smoothing = exchange.smoothing
        self.rows = np.zeros((shared, width), dtype)
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
