"""Who is told: senders of flows that may go, or go much faster, and nobody else."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from emu.emulation.network.rate_board import CoreSegments
from emu.emulation.shaping import Pace
from emu.prediction.core import lib, pointer
from tests.emulation.shaping.core_rules import fluid_end, next_look
from tests.emulation.shaping.fluids import Piece, lines_of, pieces_strategy, true_end


class Awakening:
    """Follows what the sender of one edge knows of its rates."""

    def __init__(self) -> None:
        self._told = np.full(1, -1)
        self._rate = np.zeros(1)

    def due(self, iteration: int, rate: float, since: float) -> bool:
        """Return whether it is told of a new line."""
        segments = CoreSegments(0, iteration, 0.0, rate, since)
        rises = np.zeros(1, np.int64)
        told, known = pointer(self._told), pointer(self._rate)
        return bool(lib.find_rises(segments.core, told, known, pointer(rises)))


def test_who_gets_a_rate_is_told_once() -> None:
    awakening = Awakening()

    assert not awakening.due(0, 0.0, 3.0)
    assert awakening.due(0, 5.0, 4.0)
    assert not awakening.due(0, 7.0, 5.0)
    assert awakening.due(1, 7.0, 6.0)


def test_who_was_stopped_is_told_when_it_goes_on() -> None:
    awakening = Awakening()

    assert awakening.due(0, 5.0, 3.0)
    assert not awakening.due(0, 0.0, 4.0)
    assert awakening.due(0, 5.0, 5.0)


def test_a_rate_counts_against_the_lowest_that_may_have_been_seen() -> None:
    awakening = Awakening()
    rates = [8.0, 4.0, 6.0, 7.9, 8.0, 15.0]

    told = [awakening.due(0, rate, n) for n, rate in enumerate(rates)]

    assert told == [True, False, False, False, True, False]


#: A sender with a lead ends sooner, and hides what is looked for here.
NO_LEAD = Pace(lead_time=0.0)


@given(pieces=pieces_strategy, volume=st.integers(1, 3_000_000), sending=st.booleans())
def test_who_is_told_of_what_rises_ends_late_by_a_shortest_look_at_most(
    *, pieces: list[Piece], volume: int, sending: bool
) -> None:
    awakening, lines = Awakening(), [x for _, x in lines_of(pieces)]
    tells = [awakening.due(0, x.rate, x.since) for x in lines]
    told = [x.since for x, tell in zip(lines, tells, strict=True) if tell]
    now, looked = lines[0].since, 0
    while fluid_end(seen := [x for x in lines if x.since <= now][-1], volume) > now:
        due = next_look(
            seen,
            now,
            volume,
            notified=False,
            sending=sending,
            pace=NO_LEAD,
        )
        now = min([due, *(since for since in told if since > now)])
        looked += 1

    late = now - true_end(lines, volume)
    assert -1e-9 <= late <= NO_LEAD.shortest * (1 + 1e-9)
    assert looked <= 20 * len(lines) + now / NO_LEAD.longest
