"""What guards read of the scenario agrees with what everybody else reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given

from emu.testing.strategies import problems
from emu.trust.guards.evidence import fitting, most_stated, stated_capacities

if TYPE_CHECKING:
    from emu.problem import Problem, Realization


@given(drawn=problems(links=True, changes=True))
def test_capacities_over_time(drawn: tuple[Problem, Realization]) -> None:
    problem, _ = drawn
    times, steps = np.arange(0.0, 16.0, 0.25), problem.links.steps
    for port, link in enumerate(problem.links):
        of_guards = [stated_capacities(problem, t)[link.name] for t in times.tolist()]
        np.testing.assert_array_equal(steps.at(port, times), of_guards)
        np.testing.assert_allclose(
            steps.carried(port, times), fitting(problem, link.name, times), rtol=1e-12
        )
        assert steps.most[port] == most_stated(problem)[link.name]
