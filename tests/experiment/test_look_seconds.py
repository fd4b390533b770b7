"""Seconds of a look at the accuracy, by hand, on machines that differ in each rate."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emu.errors import ScenarioError
from emu.experiment.look_seconds import delay_looks, look_seconds
from emu.graph_data import open_for
from emu.scenario import Experiment, prepare
from emu.scenario.scenario_file import loads

#: Seconds of an operation: c collects from memory of the host, b from its device, and
#: the device of a multiplies in a quarter of the time.
RATES = {
    "aggregate": "20 ps",
    "multiply": {"default": "0.4 ps", "quick": "0.1 ps"},
    "sample": "30 ns",
    "collect": "200 ps",
    "collect_device": "3 ps",
    "step": "0.5 ns",
    "launch": "50 us",
}


def experiment(**job: Any) -> Experiment:
    """Return one of three machines with a worker each, the slowest in the middle."""
    machines = [
        {"name": "a", "nic": "1 Gbit/s", "device": "quick"},
        {"name": "c", "nic": "1 Gbit/s"},
        {"name": "b", "nic": "2 Gbit/s"},
    ]
    document = {
        "cluster": {"machines": machines},
        "job": {
            "system": "data_parallel",
            "dataset": {"name": "products-like", "scale": 0.002},
            "model": {"kind": "gcn", "hidden": 8, "layers": 2},
            "fanouts": [3, 4],
            "batch_size": 16,
            "iterations": 3,
            "rates": RATES,
            "features": {"default": "host", "b": "device"},
            **job,
        },
    }
    return prepare(loads(json.dumps(document)))


def seconds_by_hand(vertices: int, edges: int, collect: float) -> float:
    """Return the seconds of a look on one machine alone that multiplies slowly."""
    collected = 4 * 100 * vertices * collect
    aggregated = (8 + 8) * edges * 20e-12  # the shorter rows of either layer
    multiplied = (100 * 8 + 8 * 47) * vertices * 0.4e-12
    return collected + aggregated + multiplied + 2 * 50e-6


@pytest.mark.parametrize(
    ("features", "collect"),
    [({"default": "host", "b": "device"}, 200e-12), ("device", 3e-12)],
)
def test_a_look_takes_what_the_slowest_machine_does_of_it(
    features: Any, collect: float
) -> None:
    found = experiment(features=features)
    dataset = open_for(found.problem.job.settings)
    whole = seconds_by_hand(dataset.vertices, dataset.edges, collect)
    assert look_seconds(found) == pytest.approx(whole / 3)


def test_machines_that_train_share_a_look_and_whole_graphs_need_none() -> None:
    """One worker looks at all of it, whatever machines have stores beside it."""
    keys = {"system": "dgtp", "workers": 1, "features": "host", "iterations": 2}
    alone = experiment(**keys)
    dataset = open_for(alone.problem.job.settings)
    (home,) = {alone.tasks[name] for name in alone.tasks if name.startswith("w")}
    whole = seconds_by_hand(dataset.vertices, dataset.edges, 200e-12)
    if home == "a":  # which multiplies in a quarter of the time
        multiplied = (100 * 8 + 8 * 47) * dataset.vertices * 0.4e-12
        whole -= 0.75 * multiplied
    assert look_seconds(alone) == pytest.approx(whole)

    none = {"fanouts": None, "batch_size": None, "iterations": None}
    full = experiment(system="dgcl", epochs=2, features=None, **none)
    assert look_seconds(full) == 0.0


def test_looks_without_rates_are_refused_and_show_at_their_end() -> None:
    times = {"sampler": "1 ms", "worker": "1 ms", "graph_store": "1 ms"}
    stated = experiment(rates=None, times=times, features=None)
    with pytest.raises(ScenarioError, match="by rates of operations") as error:
        look_seconds(stated)
    assert error.value.key == "job.times"

    curve = ((1.0, 0.5), (2.0, 0.6), (4.0, 0.7))
    assert delay_looks(curve, 0.5) == ((1.5, 0.5), (3.0, 0.6), (5.5, 0.7))
