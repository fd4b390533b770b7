"""What a training takes at the least, as its stated times say."""

from __future__ import annotations

from typing import Any

import pytest

from emu.experiment.least_time import least_seconds
from emu.experiment.systems import as_variant
from emu.scenario import Scenario, load, prepare
from emu.scenario.virtual_training import seeds_seen
from tests.experiment.test_target import FILE, scenario_of

TIMES = {
    "graph_store": "10 ms",
    "sampler": "30 ms",
    "worker": "20 ms",
    "parameter_server": "1 ms",
}
DEVICE = {"cluster.machines[1].device": "a100"}


def timed() -> Scenario:
    """Return a training of stated times."""
    return load(scenario_of(rates=None, times=TIMES), DEVICE)


@pytest.mark.parametrize(
    "row", ["data_parallel", "whole_graph", "salient_plus_plus", "apt", "p3.A", "dgtp"]
)
def test_no_row_is_faster_than_its_times(row: str) -> None:
    """The bound is near: flows are short. P3 goes by columns, and dgtp is placed."""
    scenario = as_variant(timed(), row)
    least = least_seconds(scenario)
    ready = prepare(scenario)
    seeds = seeds_seen(ready.problem.job) or 1
    seconds = ready.simulate().makespan / seeds
    assert least <= seconds
    is_known = row not in {"p3.A", "dgtp"}
    assert (least > 0.8 * seconds) == is_known


@pytest.mark.parametrize(
    "edit",
    [
        {"checkpoint": {"every": "2 iterations", "to": "disk", "takes": "1 s"}},
        {"job.times": {**TIMES, "worker": {"default": "20 ms", "a100": "1 ms"}}},
        {"job.times": None, "job.rates": FILE["job"]["rates"]},
    ],
)
def test_what_else_decides_leaves_no_bound(edit: dict[str, Any]) -> None:
    """Checkpoints, faster devices and operations say more than a kind's time."""
    scenario = as_variant(timed(), "data_parallel")
    assert least_seconds(load(scenario, edit)) == 0.0
