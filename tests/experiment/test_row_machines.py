"""Machines of a row: what is not asked of trials that cannot be chosen."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from emu.errors import ScenarioError
from emu.experiment import row_machines
from emu.experiment.question import Question
from emu.experiment.row_machines import Contest, Machines, Row, Trial
from emu.experiment.system_rows import _Attempts
from tests.experiment.test_target import scenario_of

#: Lengths that are equal, shorter by less than `WORTHWHILE`, and by more.
LENGTHS = st.sampled_from([1.0, 0.9994, 0.9988, 0.9982, 0.98, 0.5])
SETS = st.lists(st.tuples(LENGTHS, st.booleans()), min_size=1, max_size=8)


class DrawnRow(Row):
    """A row whose trials have drawn lengths, and of which some do not fit."""

    def __init__(self, drawn: Sequence[tuple[float, bool]]) -> None:
        super().__init__(scenario_of(), "dgtp", {}, per_machine=False)
        self.sets = {(str(n),): trial for n, trial in enumerate(drawn)}
        self.checked: list[Machines] = []
        self.prepared: list[Machines] = []

    @override
    def on(self, machines: Sequence[str] | None, *, built: bool = True) -> Any:
        """Return the machines, for `prepare`."""
        return machines

    def prepare(self, machines: Any) -> Any:
        """Return what stands for the experiment on some machines."""
        seconds, _ = self.sets[machines]
        self.prepared.append(machines)
        schedule = SimpleNamespace(makespan=seconds)

        def simulate_within(limit: float) -> Any:
            return schedule if seconds <= limit else None

        return SimpleNamespace(
            problem=SimpleNamespace(job=None),
            simulate_within=simulate_within,
            names=machines,
        )

    def is_slower(self, machines: Any, limit: float) -> bool:
        """Return whether some less than it takes is beyond a limit."""
        seconds, _ = self.sets[machines]
        return 0.97 * seconds > limit

    def check_memory(self, ready: Any, _: object) -> None:
        """Note who is asked, and refuse what does not fit."""
        self.checked.append(ready.names)
        _, fits = self.sets[ready.names]
        if not fits:
            raise ScenarioError("no room")


@given(SETS, st.randoms(use_true_random=False))
def test_slower_trials_are_not_asked_for_their_memory(
    drawn: list[tuple[float, bool]], random: Any
) -> None:
    """The choice is as if all were asked, in whatever order they are tried."""
    row = DrawnRow(drawn)
    pieces = [(0, machines) for machines in row.sets]
    attempts = _Attempts([Question(row.scenario)], [row], pieces)
    tried: dict[Machines, Trial] = {}
    with (
        patch.object(row_machines, "prepare", row.prepare),
        patch.object(row_machines, "check_memory", row.check_memory),
        patch.object(row_machines, "seeds_seen", lambda _: 1),
        patch.object(row_machines, "is_slower", row.is_slower),
    ):
        for number, machines in random.sample(pieces, len(pieces)):
            tried[machines] = attempts.try_on(number, machines)
        every = [row.try_on(machines) for machines in row.sets]

    chosen = row.choose([tried[machines] for machines in row.sets])
    assert chosen == row.choose(every)
    if chosen is not None:
        assert chosen in row.checked


def test_only_what_is_faster_than_before_is_asked() -> None:
    """A set that is too slow by its times alone is not even prepared."""
    row = DrawnRow([(1.0, False), (0.9, True), (0.95, True), (0.9, True), (0.5, True)])
    pieces = [(0, machines) for machines in row.sets]
    attempts = _Attempts([Question(row.scenario)], [row], pieces)
    with (
        patch.object(row_machines, "prepare", row.prepare),
        patch.object(row_machines, "check_memory", row.check_memory),
        patch.object(row_machines, "seeds_seen", lambda _: 1),
        patch.object(row_machines, "is_slower", row.is_slower),
    ):
        for number, machines in pieces:
            attempts.try_on(number, machines)
    assert row.checked == [("0",), ("1",), ("4",)]
    assert row.prepared == [("0",), ("1",), ("3",), ("4",)]


def test_a_trial_is_left_out_for_later_ones_that_surely_follow_it() -> None:
    """A later one follows it as well as all between; one that is hardly faster not."""
    contest = Contest()
    for place, seconds in enumerate([1.0, 0.9995, 0.5], start=1):
        contest.note(place, Trial(("a",), seconds))
    half = Contest()
    half.note(1, Trial(("a",), 1.0))
    half.note(2, Trial(("a",), 0.9995))

    # Of 1.0008 it counts: the third follows it, and not the second.
    assert half.limit(0) == pytest.approx(1.0 / 0.999)
    assert contest.limit(0) == pytest.approx(0.5 / 0.999)
