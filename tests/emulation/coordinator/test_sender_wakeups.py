"""Who is told: senders of flows that may go, or go much faster, and nobody else."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from emu.emulation.coordinator.sender_wakeups import SenderWakeups
from emu.emulation.shaping import Pace
from emu.emulation.wire.messages import WakeSender
from emu.prediction.scheduling import RateSegments
from emu.testing import two_machine_example
from tests.emulation.shaping.core_rules import fluid_end, next_look
from tests.emulation.shaping.fluids import Piece, lines_of, pieces_strategy, true_end

PROBLEM, _ = two_machine_example(3)
EDGE = 0


def line(iteration: int, rate: float, since: float) -> RateSegments:
    """Return one new line of `EDGE`."""
    return RateSegments(*(np.array([x]) for x in (EDGE, iteration, 0.0, rate, since)))


def test_who_gets_a_rate_is_told_once() -> None:
    awakening = SenderWakeups(PROBLEM)

    assert awakening.due(line(0, 0.0, 3.0)) == []
    assert awakening.due(line(0, 5.0, 4.0)) == [WakeSender(EDGE, 4.0)]
    assert awakening.due(line(0, 7.0, 5.0)) == []
    assert awakening.due(line(1, 7.0, 6.0)) == [WakeSender(EDGE, 6.0)]


def test_who_was_stopped_is_told_when_it_goes_on() -> None:
    awakening = SenderWakeups(PROBLEM)

    assert awakening.due(line(0, 5.0, 3.0)) == [WakeSender(EDGE, 3.0)]
    assert awakening.due(line(0, 0.0, 4.0)) == []
    assert awakening.due(line(0, 5.0, 5.0)) == [WakeSender(EDGE, 5.0)]


def test_a_rate_counts_against_the_lowest_that_may_have_been_seen() -> None:
    awakening = SenderWakeups(PROBLEM)
    rates = [8.0, 4.0, 6.0, 7.9, 8.0, 15.0]

    told = [bool(awakening.due(line(0, rate, n))) for n, rate in enumerate(rates)]

    assert told == [True, False, False, False, True, False]


#: A sender with a lead ends sooner, and hides what is looked for here.
NO_LEAD = Pace(lead_time=0.0)


@given(pieces=pieces_strategy, volume=st.integers(1, 3_000_000), sending=st.booleans())
def test_who_is_told_of_what_rises_ends_late_by_a_shortest_look_at_most(
    *, pieces: list[Piece], volume: int, sending: bool
) -> None:
    awakening, lines = SenderWakeups(PROBLEM), [x for _, x in lines_of(pieces)]
    tells = [bool(awakening.due(line(0, x.rate, x.since))) for x in lines]
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
