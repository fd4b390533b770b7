"""Real processes and sockets: the golden runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from emu.simulation import simulate
from emu.trust.audit import audit
from tests.coordinator.emulated import golden, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.leftovers import Leftovers

pytestmark = [pytest.mark.emulation, pytest.mark.timeout(180)]


@pytest.mark.parametrize(
    ("options", "expected", "tls"),
    [
        ({}, 38.0, "all"),
        ({"second_nic": 5.0}, 71.0, "control"),
        ({"credit": 1}, 47.0, "control"),
    ],
    ids=["golden, under TLS", "slow NIC", "credit window"],
)
def test_makespan_is_the_simulated_one(
    options: dict[str, Any],
    expected: float,
    tls: str,
    tmp_path: Path,
    leftovers: Leftovers,
) -> None:
    problem, realization = golden(3, **options)
    assert simulate(problem, realization).makespan == expected
    apart: list[float] = []
    while not apart or (apart[-1] > 0.02 and len(apart) < 3):  # a busy host: once more
        emulated = run(problem, realization, tmp_path, time_scale=0.05, tls=tls)
        apart.append(abs(emulated.schedule.makespan / expected - 1))
        assert emulated.statistics.keys() == problem.job.processes.keys()
        # An end may be late, and what follows from it: a few ms of wall time.
        found = audit(emulated.schedule, tolerance=0.5, relative=1e-6)
        assert found.violations == []
    leftovers.note()

    assert apart[-1] < 0.02
