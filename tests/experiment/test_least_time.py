"""What a training takes at the least, as its stated times say."""

from __future__ import annotations

from typing import Any

import pytest

from emu.errors import ScenarioError
from emu.experiment.least_time import is_slower, least_seconds
from emu.experiment.row_machines import Row
from emu.experiment.systems import as_variant
from emu.scenario import Scenario, load, load_unbuilt, prepare
from emu.scenario.virtual_training import seeds_seen
from tests.experiment.test_target import FILE, scenario_of

TIMES = {
    "graph_store": "10 ms",
    "sampler": "30 ms",
    "worker": "20 ms",
    "parameter_server": "1 ms",
}
DEVICE = {"cluster.machines[1].device": "a100"}


#: Systems of replicas, whose rows are known before a job is built.
REPLICAS = [
    "data_parallel",
    "whole_graph",
    "salient_plus_plus",
    "rapid_gnn",
    "apt",
    "p3.A",
    "p3.none",
]


def timed() -> Scenario:
    """Return a training of stated times."""
    return load(scenario_of(rates=None, times=TIMES), DEVICE)


def seconds_per_seed(scenario: Scenario) -> float:
    """Return how long a training takes, over the seeds that it sees."""
    ready = prepare(scenario)
    seeds = seeds_seen(ready.problem.job) or 1
    return ready.simulate().makespan / seeds


@pytest.mark.parametrize(
    "row", ["data_parallel", "whole_graph", "salient_plus_plus", "apt", "p3.A", "dgtp"]
)
def test_no_row_is_faster_than_its_times(row: str) -> None:
    """The bound is near: flows are short. P3 goes by columns, and dgtp is placed."""
    scenario = as_variant(timed(), row)
    least = least_seconds(scenario)
    seconds = seconds_per_seed(scenario)
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
    scenario = load(as_variant(timed(), "data_parallel"), edit)
    assert least_seconds(scenario) == 0.0


#: Ways to state a training of which the slowest machine is known.
WAYS: list[dict[str, Any]] = [
    {},
    {"job.samplers_per_worker": 2, "job.epoch": "local", "job.partitioner": "metis"},
    {"emulation.byte_scale": 0.25, "job.epoch": "replicate", "job.batch_size": 64},
]


@pytest.mark.parametrize("row", REPLICAS)
@pytest.mark.parametrize("nic", ["10 Gbit/s", "100 Mbit/s", "3 Mbit/s"])
def test_no_row_is_faster_than_its_slowest_machine(row: str, nic: str) -> None:
    """A bound by rows alone is near where the network is slow, and never beyond."""
    edit: dict[str, Any] = {"cluster.machines[1].nic": nic}
    if row == "apt":
        edit["job.strategy"] = "gdp"
    for way in WAYS:
        variant = load(as_variant(timed(), row), edit)
        known = {key: value for key, value in way.items() if _is_known(variant, key)}
        scenario = load(variant, known)
        seconds = seconds_per_seed(scenario)
        assert is_slower(scenario, seconds) is False
        if nic == "3 Mbit/s":
            # What P3 pulls is less than what it pushes here.
            assert is_slower(scenario, (0.1 if "p3" in row else 0.4) * seconds)


@pytest.mark.parametrize("row", [row for row in REPLICAS if "p3" not in row])
def test_no_row_is_faster_than_the_last_sum_of_gradients(row: str) -> None:
    """A machine sends all of its parts of the sum behind its last mini-batch."""
    edit: dict[str, Any] = {
        "cluster.machines[1].nic": {"in": "1 Gbit/s", "out": "3 Mbit/s"},
        "job.model.hidden": 2048,
        "job.iterations": 1,
        "job.precision": "float64",
        "emulation.byte_scale": 0.5,
    }
    if row == "apt":
        edit["job.strategy"] = "gdp"
    scenario = load(as_variant(timed(), row), edit)
    seconds = seconds_per_seed(scenario)
    assert is_slower(scenario, seconds) is False
    # Of APT the sum of layer 1 alone is behind all else.
    assert is_slower(scenario, (0.6 if row == "apt" else 0.9) * seconds)


@pytest.mark.parametrize("row", REPLICAS)
def test_a_route_past_a_nic_is_no_bound_of_it(row: str) -> None:
    """Machines that a fast link joins are not as slow as their NICs."""
    names = ["a0", "a1", "b"]
    edit = {
        "cluster.machines[1].nic": "3 Mbit/s",
        "cluster.links": [{"name": "nv", "bandwidth": "100 Gbit/s"}],
        "cluster.routes": [{"from": names, "to": names, "through": ["nv"]}],
    }
    if row == "apt":
        edit["job.strategy"] = "gdp"
    scenario = load(as_variant(timed(), row), edit)
    seconds = seconds_per_seed(scenario)
    assert is_slower(scenario, seconds) is False


def _is_known(scenario: Scenario, key: str) -> bool:
    section, name = key.split(".")
    return name in type(getattr(scenario, section)).model_fields


def test_only_what_is_as_stated_has_a_slowest_machine() -> None:
    """Events, rates of devices and systems that are placed leave it open."""
    scenario = as_variant(timed(), "data_parallel")
    assert is_slower(scenario, 0.0)
    change = [{"at": "1 s", "machine": "a0", "nic": "9 Gbit/s"}]
    assert is_slower(load(scenario, {"events": change}), 0.0) is None
    assert is_slower(as_variant(timed(), "dgtp"), 0.0) is None


@pytest.mark.parametrize("row", REPLICAS)
def test_trials_that_are_left_out_change_no_choice(row: str) -> None:
    """Each row chooses as if all its sets were prepared."""
    edit = {"cluster.machines[1].nic": "3 Mbit/s"}
    of_row = Row(load(timed(), edit), row, {}, per_machine=True)
    every = [of_row.try_on(names) for names in of_row.machine_sets()]
    assert of_row.try_all() == of_row.choose(every)


def test_nothing_is_built_of_what_is_loaded_unbuilt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Errors of keys are found all the same; the scenario is that of `load`."""
    scenario = as_variant(timed(), "data_parallel")
    edit = {"cluster.machines[1].nic": "3 Mbit/s"}
    loaded = load(scenario, edit)

    def build(*_: object, **_named: object) -> None:
        raise AssertionError("a job was built")

    monkeypatch.setattr(Scenario, "to_job", build)
    assert load_unbuilt(scenario, edit) == loaded
    with pytest.raises(ScenarioError, match="batch_size"):
        load_unbuilt(scenario, {"job.batch_size": 0})
