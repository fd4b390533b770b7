"""A scenario without a placement: searched, with a gpu for every worker."""

from __future__ import annotations

from typing import Any

import pytest

from emu.errors import InfeasiblePlacement
from emu.scenario import load, prepare
from emu.scenario.scenario_file import loads

SCENARIO = """
cluster:
  machines:
    - {name: a, cpu: 8, gpu: 2, nic: 10 Gbit/s}
    - {name: b, cpu: 8, nic: 1 Gbit/s}
job:
  system: dgtp
  dataset: {name: products-like, scale: 0.002}
  model: {hidden: 8, layers: 1}
  fanouts: [3]
  batch_size: 10
  workers: 2
  iterations: 2
  times: {graph_store: 3 ms, sampler: 2 ms, worker: 9 ms, parameter_server: 1 ms}
"""

# The first call compiles: 40 s of processor time, more on a busy machine.
pytestmark = pytest.mark.timeout(300)


def test_workers_stand_where_gpus_are_and_the_search_is_named() -> None:
    placed = prepare(loads(SCENARIO))

    assert {placed.tasks["w0"], placed.tasks["w1"]} == {"a"}
    assert placed.placing["policy"] == "best"
    assert placed.placing["unclaimed"] == []
    for policy in ("ifs", "etp", "random", "round_robin", "distdgl"):
        other = prepare(loads(SCENARIO, {"placement.policy": policy}))
        assert {other.tasks["w0"], other.tasks["w1"]} == {"a"}
        assert placed.simulate().makespan <= other.simulate().makespan


@pytest.mark.parametrize("workers", [3, 4])
def test_too_few_gpus_say_what_to_write(workers: int) -> None:
    many = loads(SCENARIO, {"job.workers": workers})
    with pytest.raises(InfeasiblePlacement, match=r"job\.demands\.worker\.gpu: 0"):
        prepare(many)
    without = load(many, {"job.demands": {"worker": {"gpu": 0}}})
    placed = prepare(without)
    stores = len(placed.placing["machines"])  # one per machine that takes part
    assert len(placed.tasks) == stores + 2 * workers + 1


def test_without_gpus_nothing_is_asked() -> None:
    alone = loads(SCENARIO, {"cluster.machines[0].gpu": None, "job.workers": 5})
    assert all("gpu" not in task.demands for task in alone.to_job().tasks)
    assert prepare(alone).placing["unclaimed"] == []


#: What no search simulates: a proof of a search is none of the run.
UNSEEN: dict[str, dict[str, Any]] = {
    "deaths": {
        "events": [{"at": "3 ms", "kill": "b"}],
        "on_failure": "restart",
        "recovery": "1 ms",
    },
    "drawn deaths": {
        "failures": {"machine": {"every": "3 ms", "what": "kill"}},
        "on_failure": "restart",
        "recovery": "1 ms",
        "max_restarts": 1000,
    },
    "copies": {"checkpoint": {"every": "1 iterations", "to": "peer"}},
    "chosen rule": {"schedule": {"policy": "portfolio"}},
    "cache": {"job.cache": {"policy": "degree", "share": 0.5}},
    "ring": {"job.sync": "ring", "job.ring": "placed"},
}


def test_no_placement_is_better_where_searches_judge_the_run() -> None:
    edit: dict[str, Any] = {"job.machines": ["a", "b"]}
    assert prepare(loads(SCENARIO, edit)).placing["optimal"]
    edit["events"] = [{"at": "1 ms", "slow": "b", "by": 2}]
    assert prepare(loads(SCENARIO, edit)).placing["optimal"]


@pytest.mark.parametrize("kind", UNSEEN)
def test_no_proof_is_claimed_where_a_run_has_what_no_search_simulates(
    kind: str,
) -> None:
    edit = {"job.machines": ["a", "b"], **UNSEEN[kind]}
    placing = prepare(loads(SCENARIO, edit)).placing
    assert placing["candidates"] > 0
    assert not placing["optimal"]


def test_machines_whose_devices_hold_too_little_are_no_choice() -> None:
    """`best` refused the job where a on its own would have been the fastest."""
    small = {
        "cluster.machines[0].gpu_memory": "1 kB",
        "job.demands": {"worker": {"gpu": 0}},
    }
    placed = prepare(loads(SCENARIO, small))
    assert placed.simulate().makespan > 0.0
    assert {placed.tasks["w0"], placed.tasks["w1"]} == {"b"}
