"""The DGTP job: names, edge order, volumes."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from emu.problem import Job
from emu.problem.workloads import SampleCounts, parameter_count, shard_sizes
from emu.scenario.scenario_file import loads
from emu.systems.device_memory import ROWS
from emu.systems.dgtp import section
from emu.systems.dgtp.section import DgtpJobSection
from emu.systems.dgtp.volumes import dgtp_volumes
from emu.systems.training_section import repeat_times
from emu.systems.translation import roomy_machines
from tests.integration.scenarios import tiny_training
from tests.systems.sections import context_of, job_of, section_of

DEMANDS = {"graph_store": {"memory": "14 B"}, "sampler": {"cpu": 2}}


def small(window: int | None = None, machines: str = "ab", **keys: Any) -> Job:
    """Return a small job with other keys."""
    stated = {"workers": 2, "demands": DEMANDS, **keys}
    return job_of("dgtp", machines, window, **stated)


def multiround(window: int | None = None) -> Job:
    return small(window, sampling="multiround")


def _names(job: Job) -> list[str]:
    return [*job.edge_names]


def test_one_shot_tasks_edges_and_their_order() -> None:
    job = small(4)

    names = [task.name for task in job.tasks]
    assert names == ["g0", "g1", "s0", "s1", "w0", "w1", "ps0"]
    assert _names(job) == [
        "g0->s0", "g0->s1", "g1->s0", "g1->s1",
        "s0->w0", "s1->w1",
        "w0->ps0", "w1->ps0",
        "ps0->w0", "ps0->w1",
        "w0->g0", "w0->g1", "w1->g0", "w1->g1",
    ]  # fmt: skip
    assert [edge.lag for edge in job.edges] == [0] * 8 + [1] * 2 + [4] * 4
    assert [edge.credit for edge in job.edges] == [False] * 10 + [True] * 4
    assert job.settings["seed"] == 7


def test_stores_are_pinned_and_programs_are_told_their_place() -> None:
    job = small(samplers_per_worker=2)

    assert [task.pinned for task in job.tasks[:3]] == ["a", "b", None]
    assert job.tasks[0].demands == {"memory": 14.0}
    assert job.tasks[job.index("g1")].settings == {"store": 1}
    assert job.tasks[job.index("s1")].settings == {"sampler": 1, "worker": 0}
    assert job.tasks[job.index("s3")].settings == {"sampler": 3, "worker": 1}
    assert job.tasks[job.index("s3")].program == "emu_nodes.dgtp.programs:Sampler"
    assert job.tasks[job.index("w1")].settings == {"worker": 1}
    assert job.tasks[job.index("ps0")].settings == {"server": 0}


def test_parameter_server_edges_with_two_servers() -> None:
    names = _names(small(parameter_servers=2))

    assert names[6:] == [
        "w0->ps0", "w0->ps1", "w1->ps0", "w1->ps1",
        "ps0->w0", "ps0->w1", "ps1->w0", "ps1->w1",
    ]  # fmt: skip


def test_multiround_adds_the_hops_to_the_processes() -> None:
    job = multiround()

    members = {
        process: [job.tasks[t].name for t in tasks]
        for process, tasks in job.processes.items()
    }
    assert members["g0"] == ["g0", "g0.hop1", "g0.hop2"]
    assert members["s1"] == ["s1", "s1.hop1", "s1.hop2", "s1.fetch"]
    assert len(members) == 7
    hop = job.tasks[job.index("s1.hop2")]
    assert (hop.kind, hop.demands, hop.settings["hop"]) == ("sampler_hop", {}, 2)
    assert job.tasks[job.index("s1")].demands == {"cpu": 2.0}


def test_multiround_edges() -> None:
    names = _names(multiround())

    assert names[10:] == [
        "s0.hop1->g0.hop1", "s0.hop1->g1.hop1", "s1.hop1->g0.hop1", "s1.hop1->g1.hop1",
        "g0.hop1->s0.hop2", "g0.hop1->s1.hop2", "g1.hop1->s0.hop2", "g1.hop1->s1.hop2",
        "s0.hop2->g0.hop2", "s0.hop2->g1.hop2", "s1.hop2->g0.hop2", "s1.hop2->g1.hop2",
        "g0.hop2->s0.fetch", "g0.hop2->s1.fetch",
        "g1.hop2->s0.fetch", "g1.hop2->s1.fetch",
        "s0.fetch->g0", "s0.fetch->g1", "s1.fetch->g0", "s1.fetch->g1",
    ]  # fmt: skip


def test_multiround_credits_hold_back_the_first_hop() -> None:
    """Samplers start an iteration there, so they are what may not run ahead."""
    job = multiround(2)

    credits_ = [
        name
        for name, edge in zip(job.edge_names, job.edges, strict=True)
        if edge.credit
    ]
    assert credits_ == ["w0->s0.hop1", "w0->s1.hop1", "w1->s0.hop1", "w1->s1.hop1"]


def test_the_testbed_has_23_processes() -> None:
    testbed = small(machines="abcd", workers=6, samplers_per_worker=2)

    assert len(testbed.processes) == 23


def test_times_are_those_of_the_kind() -> None:
    times = {"graph_store": 1.0, "sampler": 2.0, "worker": 3.0, "parameter_server": 4.0}
    job = small()

    assert repeat_times(job, times)[:, 0].tolist() == [1, 1, 2, 2, 3, 3, 4]


def test_parameter_count_is_the_published_one() -> None:
    """ogbn-products, 3 layers of 256: 206,895 parameters (specs)."""
    assert parameter_count({"hidden": 256, "layers": 3}, 100, 47) == 206_895


def test_shards_are_cut_evenly() -> None:
    assert shard_sizes(10, 3) == (4, 3, 3)
    assert sum(shard_sizes(206_895, 7)) == 206_895


COUNTS = SampleCounts(
    owned=(3, 5),
    edges=20,
    seeds=2,
    frontier_owned=((1, 1), (2, 4)),
    answered=((6, 4), (7, 3)),
)


def test_one_shot_volumes() -> None:
    job = small(1)
    volumes = dgtp_volumes(job, [[COUNTS] * 2] * 2, feature_length=10, parameters=100)

    by_name = dict(zip(_names(job), volumes[:, 0].tolist(), strict=True))
    assert by_name["g0->s1"] == 4 * 10 * 3
    assert by_name["g1->s1"] == 4 * 10 * 5
    assert by_name["s1->w1"] == 4 * 10 * 8 + 8 * 20 + 4 * 2
    assert by_name["w0->ps0"] == by_name["ps0->w0"] == 4 * 100
    assert by_name["w0->g0"] == 0


def test_double_precision_doubles_features_and_parameters_only() -> None:
    job = small(parameter_servers=2)
    volumes = dgtp_volumes(
        job, [[COUNTS] * 2] * 2, feature_length=10, parameters=101, itemsize=8
    )

    by_name = dict(zip(_names(job), volumes[:, 1].tolist(), strict=True))
    assert by_name["g0->s1"] == 8 * 10 * 3
    assert by_name["s1->w1"] == 8 * 10 * 8 + 8 * 20 + 4 * 2
    assert (by_name["w0->ps0"], by_name["w0->ps1"]) == (8 * 51, 8 * 50)


def test_multiround_volumes() -> None:
    job = multiround()
    volumes = dgtp_volumes(job, [[COUNTS] * 2] * 2, feature_length=10, parameters=100)

    by_name = dict(zip(_names(job), volumes[:, 0].tolist(), strict=True))
    assert by_name["s0.hop2->g1.hop2"] == 8 * 4
    assert by_name["g1.hop1->s0.hop2"] == 16 * 4
    assert by_name["g1.hop2->s0.fetch"] == 16 * 3
    assert by_name["s0.fetch->g1"] == 8 * 5
    assert by_name["g1->s0"] == 4 * 10 * 5


@pytest.mark.parametrize("workers", [1, 2])
def test_replicas_stand_where_most_comes_in(workers: int) -> None:
    """A replica takes features in: of NICs with two directions that one decides."""
    nics = {"a": ("10", "30"), "b": ("30", "10"), "c": ("20", "20")}
    document = tiny_training() | {
        "cluster": {
            "machines": [
                {"name": name, "nic": {"in": f"{i} Mbit/s", "out": f"{o} Mbit/s"}}
                for name, (i, o) in nics.items()
            ]
        }
    }
    scenario = loads(json.dumps(document))
    job = cast("DgtpJobSection", scenario.job)
    best = roomy_machines(job, scenario.cluster, {}, workers, {*nics})
    assert best == ("b", "c")[:workers]


def test_numbers_of_features_may_be_of_another_size_than_parameters() -> None:
    job = small()
    volumes = dgtp_volumes(
        job,
        [[COUNTS] * 2] * 2,
        feature_length=10,
        parameters=100,
        itemsize=8,
        row_itemsize=2,
    )
    by_name = dict(zip(_names(job), volumes[:, 0].tolist(), strict=True))
    assert by_name["g1->s0"] == 2 * 10 * 5
    assert by_name["s0->w0"] == 2 * 10 * 8 + 8 * 20 + 4 * 2
    assert by_name["w0->ps0"] == 8 * 100


def test_ids_are_of_rows_that_a_sampler_lacks_and_of_those_for_its_next_window() -> (
    None
):
    """A sampler has 1 of 3 and 2 of 5 rows; ids of 7 and 9 more come ahead at first."""
    job = multiround()
    first = replace(COUNTS, hits=(1, 2), ahead=(7, 9))
    later = replace(COUNTS, hits=(1, 2))
    volumes = dgtp_volumes(job, [[first, later]] * 2, feature_length=10, parameters=100)

    by_name = dict(zip(_names(job), volumes[:, :2].tolist(), strict=True))
    assert by_name["s0.fetch->g0"] == [8 * (3 - 1 + 7), 8 * (3 - 1)]
    assert by_name["s0.fetch->g1"] == [8 * (5 - 2 + 9), 8 * (5 - 2)]
    assert by_name["g1->s0"] == [4 * 10 * (5 - 2)] * 2


#: Of two stores and two samplers: a window of a cache begins with the second batch.
CACHED = [
    [
        SampleCounts((7, 5), edges=20, seeds=2, hits=(2, 1)),
        SampleCounts((9, 6), edges=30, seeds=3, hits=(0, 4), ahead=(8, 3)),
    ],
    [
        SampleCounts((1, 2), edges=4, seeds=1),
        SampleCounts((3, 4), edges=5, seeds=1),
    ],
]


def test_rows_of_a_cache_are_sent_once_and_those_of_its_next_window_ahead() -> None:
    """A row is 3 float64; a question has 8 bytes for each row."""
    cache = {"policy": "hot", "share": 0.5, "window": 1}
    job = job_of("rapid_gnn", "ab", cache=cache, iterations=2)
    volumes = dgtp_volumes(
        job, CACHED, feature_length=3, parameters=10, itemsize=4, row_itemsize=8
    )
    sizes = {
        (name, edge.lag): row.tolist()
        for name, edge, row in zip(job.edge_names, job.edges, volumes, strict=True)
    }
    assert sizes["g0->s0", 0] == [24 * (7 - 2), 24 * 9]
    assert sizes["g1->s0", 0] == [24 * (5 - 1), 24 * (6 - 4)]
    assert sizes["g0->s0#2", 1] == [0, 24 * 8]
    assert sizes["g1->s0#2", 1] == [0, 24 * 3]
    # Nothing is kept of what is not counted at all.
    assert sizes["g1->s1", 0] == [24 * 2, 24 * 4]
    assert sizes["g1->s1#2", 1] == [0, 0]
    assert sizes["s0.fetch->g0", 0] == [8 * (7 - 2), 8 * (9 + 8)]
    assert sizes["s0.fetch->g1", 0] == [8 * (5 - 1), 8 * (6 - 4 + 3)]
    # What a sampler gives its worker is the whole batch, with edges and labels.
    assert sizes["s0->w0", 0] == [24 * 12 + 8 * 20 + 4 * 2, 24 * 15 + 8 * 30 + 4 * 3]
    # An all-reduce of two ranks: halves of 10 parameters.
    assert sizes["w0.ring0->w1.got0", 0] == [4 * 5, 4 * 5]


def test_a_number_of_ids_may_come_before_them() -> None:
    """Samplers of Salient++ send 4 bytes for the number and 8 bytes for each row."""
    job = job_of("salient_plus_plus", "ab", cache=None, iterations=2)
    volumes = dgtp_volumes(job, CACHED, feature_length=3, parameters=10)
    row = volumes[job.edge_positions["s0.fetch->g1"]].tolist()
    assert row == [4 + 8 * (5 - 1), 4 + 8 * (6 - 4 + 3)]


@pytest.mark.parametrize(("sync", "vectors"), [("parameter_server", 2), ("ring", 4)])
def test_a_device_has_the_fullest_batch_of_a_worker_and_rows_of_its_store(
    sync: str, vectors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samplers 0 and 1 are of the first worker; rows are 3 float32, layers 4 and 2."""
    sizes = [[10, 40], [30, 5], [1, 2], [3, 41]]
    counts = [
        [SampleCounts((size,), edges=0, seeds=1) for size in of_sampler]
        for of_sampler in sizes
    ]
    owner = np.array([0, 1, 1, 1, 0, 1, 1])
    dataset = SimpleNamespace(feature_length=3, classes=2, owner=owner, parts=2)
    monkeypatch.setattr(section, "open_for", lambda _: dataset)
    monkeypatch.setattr(section, "count_samples", lambda *_: counts)
    monkeypatch.setattr(SampleCounts, "block_vertices", (0, 0, 0))
    keys: dict[str, Any] = {
        "workers": 2,
        "samplers_per_worker": 2,
        "sync": sync,
        "features": {"default": "host", "b": "device"},
        "model": {"kind": "gcn", "hidden": 4, "layers": 2},
    }
    job = job_of("dgtp", "ab", **keys)
    found = section_of("dgtp", **keys).device_memory(job, context_of("ab"))

    parameters = 3 * 4 + 4 + 4 * 2 + 2
    # Of both samplers together: 40 and 45 inputs of the first, 43 of the second.
    worker = {"weights": vectors * 4.0 * parameters, "a mini-batch": 45 * 12.0}
    assert found == {"w0": worker, "w1": worker, "g1": {ROWS: 5 * 12.0}}
