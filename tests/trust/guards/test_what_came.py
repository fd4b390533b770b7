"""Guards go by what came, and leave out what no flow has."""

from __future__ import annotations

import numpy as np
import pytest

from emu.trust.guards.traffic import link_bytes, of_flows
from tests.trust.guards.reported import TIME_SCALE, frames, reported
from tests.trust.guards.test_guards import _chosen, golden, said


def test_a_link_is_filled_by_what_came_and_not_by_what_was_sent() -> None:
    """Of the first flow three times its bytes came: a link of 10 B/s has no such."""
    schedule, _ = golden()
    rows = frames(schedule)
    assert [*link_bytes(reported(schedule, received=rows))] == []
    rows["bytes"][_chosen(rows)] *= 3

    assert [*link_bytes(reported(schedule, received=rows))]
    assert [*link_bytes(reported(schedule, sent=rows))] == []


def test_rows_of_no_flow_are_left_out() -> None:
    """Of 8 edges and 3 iterations, say: the first that are beyond them."""
    schedule, _ = golden()
    edges, iterations = schedule.flow_end.shape
    rows = frames(schedule)
    for column, value in (("edge", edges), ("iteration", iterations)):
        stray = rows[:1].copy()
        stray[column] = value
        received = np.concatenate([rows, stray])
        assert said(schedule, received=received, sent=received) == []


@pytest.mark.parametrize(("late", "fires"), [(0.0008, False), (0.0012, True)])
def test_a_last_byte_may_come_a_millisecond_after_its_end(
    late: float, *, fires: bool
) -> None:
    """Lateness in wall time, of a sender without a time of its notice."""
    schedule, _ = golden()
    rows = frames(schedule)
    rows["last"] += late / TIME_SCALE

    words = "counts as ended before its last byte came"
    assert any(words in text for text in said(schedule, received=rows)) == fires
    # What was notified is the end, but for rounding.
    rounded = schedule.flow_end * (1 + 5e-10)
    assert said(schedule, notified=rounded) == []


def test_rounding_is_of_what_an_interval_carries_however_late_it_is() -> None:
    """In 1 s behind a million 1 B/s carry 1 B; half a thousandth more is too much."""
    times = {"start": np.array([1e6]), "end": np.array([1e6 + 1])}
    more = of_flows(**times, sent=np.array([1 + 5e-4]), depth=0.0)
    assert more is not None
    assert more.most == pytest.approx(5e-4)


def test_a_clock_is_known_to_its_last_digits_only() -> None:
    """Behind a million bytes the next number is 1.2e-10 on: of 1e-4 a millionth."""
    end = 1e6 + 1e-4
    times = {"start": np.array([1e6]), "end": np.array([np.nextafter(end, 0.0)])}
    assert of_flows(**times, sent=np.array([1e-4]), depth=0.0) is None
    assert of_flows(**times, sent=np.array([1.1e-4]), depth=0.0) is not None
