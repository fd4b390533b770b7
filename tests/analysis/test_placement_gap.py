"""What is left to gain by other placements: never a bound that the run disproves."""

from __future__ import annotations

import pytest

from emu.analysis.bounds import placement_gap
from emu.simulation import makespan
from emu.testing import two_machine_example


def test_the_bound_is_not_above_the_makespan() -> None:
    problem, realization = two_machine_example(2)
    length = makespan(problem, realization)
    gap = placement_gap(problem, realization, length, seconds=5.0)

    assert 0 < gap["placement_bound"] <= length
    assert gap["placement_gap"] == pytest.approx(1 - gap["placement_bound"] / length)


def test_a_bound_that_the_run_disproves_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It used to be cut to the makespan, so nobody saw that it was false."""
    problem, realization = two_machine_example(2)
    length = makespan(problem, realization)
    monkeypatch.setattr(
        "emu.analysis.bounds.placement_bound",
        lambda *_, **__: 1.01 * length,
    )

    with pytest.raises(ArithmeticError, match="is above"):
        placement_gap(problem, realization, length, seconds=0.0)
