"""Fluids whose rates change, as a scheduler may draw them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hypothesis import strategies as st

from emu.emulation.shaping import RateSegment
from tests.emulation.shaping.core_rules import fluid_end


@dataclass(frozen=True)
class Piece:
    """A rate, for a while; seen by the sender ``delay`` seconds late."""

    rate: float
    duration: float
    delay: float


pieces_strategy = st.lists(
    st.builds(
        Piece,
        rate=st.one_of(st.just(0.0), st.floats(1e3, 2e9)),
        duration=st.floats(0.001, 0.05),
        delay=st.floats(0.0, 0.003),
    ),
    max_size=8,
)


def lines_of(pieces: list[Piece]) -> list[tuple[float, RateSegment]]:
    """Return (time seen, line), the last one with a rate that finishes anything."""
    served, since, found = 0.0, 0.0, []
    for piece in [*pieces, Piece(1e8, 1.0, 0.0)]:
        found.append((since + piece.delay, RateSegment(0, served, piece.rate, since)))
        served += piece.rate * piece.duration
        since += piece.duration
    return found


def true_end(lines: list[RateSegment], volume: int) -> float:
    """Return when a fluid of these lines reaches the volume, whoever has seen them."""
    for line, following in pairwise(lines):
        if (end := fluid_end(line, volume)) <= following.since:
            return end
    return fluid_end(lines[-1], volume)
