"""Bytes before time 0 of training, against counts vertex by vertex."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.graph_data import open_for, open_layers
from emu.graph_data.sampling import Structure
from emu.graph_data.whole_graph import Aggregation, split_graph
from emu.problem import Job
from emu.problem.workloads import parameter_count
from emu.scenario import Scenario
from emu.scenario.realize import build_job, realize
from emu.scenario.scenario_file import loads
from emu.systems.setup import ghost_features
from emu.systems.system import list_transfers

TIMES = {
    "dgcl": "{forward: 1 ms, backward: 1 ms}",
    "dorylus": "{gather: 1 ms, apply: 1 ms, scatter: 1 ms, edge_apply: 1 ms}",
    "p3": "{sampler: 1 ms, worker: 1 ms, model_forward: 1 ms, data_forward: 1 ms, "
    "data_backward: 1 ms, model_backward: 1 ms}",
    "dgtp": "{sampler: 1 ms, worker: 1 ms, graph_store: 1 ms, parameter_server: 1 ms}",
    "data_parallel": "{sampler: 1 ms, worker: 1 ms}",
}


def scenario(system: str, count: int = 3, model: str = "", **job: Any) -> Scenario:
    """Return a scenario of 1,225 vertices of 100 features, width 8, two layers."""
    whole = system in {"dgcl", "dorylus"}
    length = (
        "epochs: 2" if whole else "iterations: 4\n  fanouts: [2, 2]\n  batch_size: 4"
    )
    keys = "\n".join(f"  {key}: {value}" for key, value in job.items())
    times = TIMES[system]
    if system == "dorylus" and "gat" not in model:
        times = times.replace(", edge_apply: 1 ms", "")
    return loads(f"""
cluster: {{machines: [{{name: m, count: {count}, nic: 1 Gbit/s}}]}}
job:
  system: {system}
  dataset: {{name: products-like, scale: 0.0005}}
  model: {{hidden: 8, layers: 2{model}}}
  times: {times}
  {length}
{keys}
placement: {{policy: ifs}}
""")


def sent(one: Scenario) -> tuple[Job, dict[str, Counter[tuple[str, str]]]]:
    """Return the job, and by cause the real bytes between each two of its tasks."""
    job = build_job(one)
    sizes: dict[str, Counter[tuple[str, str]]] = {}
    for cause, source, to, size in list_transfers(job):
        if source != to:
            sizes.setdefault(cause, Counter())[source, to] += int(size)
    return job, sizes


@given(
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=40),
    st.lists(st.integers(0, 3), min_size=8, max_size=8),
    st.integers(1, 9),
)
def test_ghosts_are_the_neighbours_that_others_own(
    pairs: list[tuple[int, int]], owners: list[int], row: int
) -> None:
    owner = np.array([0, 1, 2, 3, *owners], np.int32)
    edges = {(u, v) for a, b in pairs if a != b for u, v in ((a, b), (b, a))}
    into = [sorted(u for u, v in edges if v == vertex) for vertex in range(12)]
    indptr = np.cumsum([0, *map(len, into)])
    indices = np.array([u for some in into for u in some], np.int32)
    structure = Structure(indptr, indices)
    parts = split_graph(structure, owner, 4, Aggregation("mean", loops=True))
    reads = [part.remote for part in parts]

    sizes: Counter[tuple[str, str]] = Counter()
    for cause, source, to, size in ghost_features("abcd", reads, owner, row):
        assert cause == "ghost features"
        sizes[source, to] += int(size)

    # A copy for each part that reads it, as each part is a process of its own.
    needs = {(u, owner[v]) for u, v in edges if owner[u] != owner[v]}
    expected = Counter(("abcd"[owner[u]], "abcd"[reader]) for u, reader in needs)
    assert +sizes == Counter({ends: row * n for ends, n in expected.items()})


def neighbours_of_parts(job: Job, hops: int) -> list[set[int]]:
    """Return, walking edge by edge, the vertices within so many hops of each part."""
    dataset = open_for(job.settings)
    reaches = []
    for part in range(dataset.parts):
        here = {v for v in range(dataset.vertices) if dataset.owner[v] == part}
        for _ in range(hops):
            _, around = dataset.structure.neighbours(np.array(sorted(here)))
            here |= set(around.tolist())
        reaches.append(here)
    return reaches


@pytest.mark.parametrize(
    ("keys", "hops"),
    [
        ({}, 1),
        ({"precision": "float64"}, 1),
        ({"cache_features": "false"}, 0),
        ({"plan": "peer_to_peer"}, 1),
        ({"plan": "replication"}, 2),
    ],
)
def test_devices_of_dgcl_fetch_what_their_layers_read(
    keys: dict[str, Any], hops: int
) -> None:
    job, sizes = sent(scenario("dgcl", 3, ", kind: sage", **keys))
    owner, b = open_for(job.settings).owner, 8 if "precision" in keys else 4

    expected: Counter[tuple[str, str]] = Counter()
    for reader, vertices in enumerate(neighbours_of_parts(job, hops)):
        for vertex in vertices:
            if owner[vertex] != reader:
                expected[f"d{owner[vertex]}.layer1", f"d{reader}.layer1"] += 100 * b
    assert +sizes.get("ghost features", Counter()) == expected
    count = parameter_count(job.settings["model"], 100, 47)
    others = {("d0.layer1", f"d{rank}.layer1"): b * count for rank in (1, 2)}
    assert sizes["weights"] == others


def test_boxes_of_dgcl_fetch_replicas_even_where_nothing_is_kept() -> None:
    keys = {"plan": "dgcl_r", "partitioner": "hierarchical", "boxes": "[2, 1]"}
    both = [
        scenario("dgcl", 3, ", kind: sage", cache_features=kept, **keys)
        for kept in ("true", "false")
    ]
    totals = [sum(sent(one)[1]["ghost features"].values()) for one in both]
    _, graphs = open_layers(build_job(both[0]).settings)
    remote = sum(len(graphs[0].part(rank).remote) for rank in range(3))

    assert totals[0] - totals[1] == 400 * remote > 0
    assert totals[1] > 0


def test_ghosts_are_the_bytes_of_the_gather_that_they_save() -> None:
    """Straight from owners, the gather before layer 1 brings the same every epoch."""
    keys = {"plan": "peer_to_peer", "cache_features": "false"}
    one = scenario("dgcl", 4, ", kind: sage", **keys)
    job = build_job(one)
    volumes = realize(one, job).volumes[:, 0]
    gathers = Counter[tuple[str, str]]()
    for edge, volume in zip(job.edges, volumes, strict=True):
        to = job.tasks[edge.destination]
        if to.kind == "gathered" and to.settings["layer"] == 1:
            ends = job.tasks[edge.source].settings["rank"], to.settings["rank"]
            gathers[f"d{ends[0]}.layer1", f"d{ends[1]}.layer1"] += int(volume)

    _, sizes = sent(scenario("dgcl", 4, ", kind: sage", plan="peer_to_peer"))

    assert sizes["ghost features"] == gathers


@settings(max_examples=12)
@given(
    st.integers(1, 2),
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=3).filter(any),
)
def test_machines_of_p3_fetch_their_columns_of_every_vertex(
    groups: int, shares: list[float]
) -> None:
    members, machines = len(shares), len(shares) * groups
    keys: dict[str, Any] = {"columns": shares, "cache": members, "pipeline": "none"}
    job, sizes = sent(scenario("p3", machines, **keys))
    dataset = open_for(job.settings)

    ends = np.rint(np.cumsum(shares) / sum(shares) * 100).astype(int)
    blocks = np.diff(ends, prepend=0)
    expected: Counter[tuple[str, str]] = Counter()
    for vertex in range(dataset.vertices):
        for rank in range(machines):
            if (holder := int(dataset.owner[vertex])) != rank:
                columns = int(blocks[rank % members])
                expected[f"Mf{holder}", f"Mf{rank}"] += 4 * columns
    assert +sizes.get("columns", Counter()) == +expected
    # All that a machine holds of weights: its columns' rows of layer 1, and the rest.
    upper = parameter_count(job.settings["model"], 100, 47) - 2 * 8 * 100
    weights = {
        ("Mf0", f"Mf{rank}"): 4 * (upper + 2 * 8 * int(blocks[rank % members]))
        for rank in range(1, machines)
    }
    assert sizes.get("weights", {}) == weights


def test_servers_of_dorylus_fetch_features_of_ghosts_and_their_first_weights() -> None:
    keys = {"machines": "[m0, m1, m2]", "parameter_servers": "[m3, m4]"}
    one = scenario("dorylus", 5, ", kind: gcn", intervals=2, backend="cpu", **keys)
    job, sizes = sent(one)
    owner = open_for(job.settings).owner

    server_of = {
        task.name: task.settings["interval"] // 2
        for task in job.tasks
        if task.kind == "gather"
    }
    expected: Counter[tuple[int, int]] = Counter()
    for reader, vertices in enumerate(neighbours_of_parts(job, 1)):
        for vertex in vertices:
            if owner[vertex] != reader:
                expected[owner[vertex], reader] += 400
    found: Counter[tuple[int, int]] = Counter()
    for (source, to), size in sizes["ghost features"].items():
        found[server_of[source], server_of[to]] += size
    assert found == expected
    # Interval i asks parameter server i % 2; the second has its weights of the first.
    layers = (4 * 100 * 8, 4 * 8 * 47)
    weights = {
        (f"wu{layer}_{i % 2}", f"av{layer}_{i}"): layers[layer]
        for layer in range(2)
        for i in range(6)
    }
    weights |= {(f"wu{n}_0", f"wu{n}_1"): layers[n] for n in range(2)}
    assert sizes["weights"] == weights


def test_a_gat_of_dorylus_reads_no_features_of_ghosts() -> None:
    keys = {"machines": "[m0, m1]", "parameter_servers": "[m2]", "backend": "cpu"}
    _, sizes = sent(scenario("dorylus", 3, ", kind: gat", intervals=1, **keys))

    assert sizes.keys() == {"weights"}
    assert {*sizes["weights"].values()} == {4 * 100 * 8, 4 * 8 * 47}


def test_workers_begin_with_the_weights_of_servers_or_of_the_first() -> None:
    own: dict[str, Any] = {"workers": 3, "samplers_per_worker": 1}
    job, sizes = sent(scenario("dgtp", 3, parameter_servers=2, **own))
    count = parameter_count(job.settings["model"], 100, 47)
    parts = (count - count // 2, count // 2)
    assert parts[0] != parts[1]
    shards = {
        (f"ps{server}", f"w{worker}"): 4 * parts[server]
        for server in range(2)
        for worker in range(3)
    }
    assert sizes == {"weights": shards}

    for one in (scenario("dgtp", 3, sync="ring", **own), scenario("data_parallel", 3)):
        _, sizes = sent(one)
        assert sizes == {"weights": {("w0", "w1"): 4 * count, ("w0", "w2"): 4 * count}}
