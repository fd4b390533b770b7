"""Bytes, work and memory of parts that exchange rows, by hand and way by way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emu.graph_data import open_parts
from emu.problem import Job
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.workloads.operations import OPERATIONS, Operations
from emu.systems.job_section import BuildContext
from tests.systems.sections import _RATES, section_of

#: Emulated bytes are twice the real ones.
CONTEXT = BuildContext(("a", "b", "c"), None, seed=5, byte_scale=0.5)
PAIRS = [(0, 1), (1, 0), (2, 1), (0, 2)]


def job_of(system: str = "partition_parallel", **keys: Any) -> tuple[Any, Job, Any]:
    """Return section, job and parts: rows of 100, 7 and 7 numbers, 47 classes."""
    stated = {
        "dataset": {"name": "products-like", "scale": 0.0003},
        "model": {"kind": "gcn", "hidden": 7, "layers": 3},
        "partitioner": "metis",
        "epochs": 4,
        **keys,
    }
    section = section_of(system, **stated)
    job = section.build(CONTEXT)
    _, graph = open_parts(job.settings)
    return section, job, graph


def bytes_of(section: Any, job: Job) -> dict[str, list[float]]:
    """Return the real bytes of every edge by epoch, by its name."""
    volumes = section.realize(job, CONTEXT, None, {}).volumes
    sizes = (volumes * CONTEXT.byte_scale).tolist()
    return dict(zip(job.edge_names, sizes, strict=True))


def test_rows_go_to_their_readers_and_gradients_back_to_the_owners() -> None:
    """Rows of features and layers go every second epoch, a byte says so between."""
    section, job, graph = job_of(
        cache_features=False,
        rows={"every": 2, "bits": 8},
        gradients={"age": 1},
        precision="float64",
    )
    sizes = bytes_of(section, job)
    shared = {pair: len(graph.ghosts_of(*pair)) for pair in PAIRS}
    assert shared[0, 1] != shared[1, 0]
    for sender, reader in PAIRS:
        there, back = f"d{sender}", f"d{reader}"
        rows = shared[sender, reader]
        # A byte for each number, one more, and scale and minimum of each row.
        for layer, width in ((1, 100), (2, 7), (3, 7)):
            size = rows * width + 1 + 4 * rows
            name = f"{there}.layer{layer - 1}->{back}.layer{layer}"
            assert sizes[name] == [size, 1, size, 1]
        last = f"{back}.layer3->{there}.gradient2"
        inner = f"{back}.gradient2->{there}.gradient1"
        assert sizes[last] == sizes[inner] == [8 * 7 * rows] * 4
        lags = {name: job.edges[job.edge_positions[name]].lag for name in (last, inner)}
        assert set(lags.values()) == {1}

    parameters = 100 * 7 + 7 + 7 * 7 + 7 + 7 * 47 + 47
    thirds = {8 * (parameters // 3), 8 * (-(-parameters // 3))}
    ring = [size for name, row in sizes.items() if ".ring" in name for size in row]
    assert {size for size in ring if size} == thirds


def test_a_broadcast_is_as_long_as_the_largest_part() -> None:
    section, job, graph = job_of(rows={"whole": True}, partitioner="hash")
    largest = max(len(graph.part(rank).local) for rank in range(3))
    assert largest > min(len(graph.part(rank).local) for rank in range(3))
    sizes = bytes_of(section, job)
    for sender, reader in PAIRS:
        name = f"d{sender}.layer1->d{reader}.layer2"
        assert sizes[name] == [4 * 7 * largest] * 4
        assert f"d{sender}.layer0->d{reader}.layer1" not in sizes


def test_numbers_of_drawn_rows_go_with_the_first_of_them_alone() -> None:
    section, job, graph = job_of("bns_gcn", rate=0.5)
    sizes = bytes_of(section, job)
    for sender, reader in PAIRS:
        rows = len(graph.ghosts_of(sender, reader)) // 2
        ends = f"d{sender}.{{}}->d{reader}.{{}}"
        assert sizes[ends.format("layer1", "layer2")] == [(4 * 7 + 8) * rows] * 4
        assert sizes[ends.format("layer2", "layer3")] == [4 * 7 * rows] * 4


def of_rows(section: Any, job: Job) -> dict[str, dict[str, list[float]]]:
    """Return operation -> task -> counts by epoch, of rows that are exchanged."""
    operations = Operations(job)
    section._count_rows(job, operations)
    names = [task.name for task in job.tasks]
    return {
        operation: dict(zip(names, counts.tolist(), strict=True))
        for operation, counts in zip(OPERATIONS, operations.counts, strict=True)
    }


@pytest.mark.parametrize("bits", [None, 8])
def test_rows_are_collected_quantised_read_and_added(bits: int | None) -> None:
    """Numbers that are quantised, read again or added count as work of an edge."""
    terms = {"every": 2} if bits is None else {"every": 2, "bits": bits}
    section, job, graph = job_of(rows=terms, gradients={"bits": bits} if bits else {})
    counts = of_rows(section, job)
    for rank in range(3):
        others = [other for other in range(3) if other != rank]
        given = sum(len(graph.ghosts_of(rank, other)) for other in others)
        taken = sum(len(graph.ghosts_of(other, rank)) for other in others)
        assert given != taken
        quantised = int(bits is not None)
        d = f"d{rank}"
        sent = [7 * given, 0, 7 * given, 0]
        read = [7 * taken, 0, 7 * taken, 0]
        # Layer 2 reads rows and sends some, layer 3 reads rows and sends gradients.
        assert counts["collect"][f"{d}.layer1"] == [4 * size for size in sent]
        assert counts["collect"][f"{d}.layer2"] == [4 * size for size in sent]
        assert counts["collect"][f"{d}.layer3"] == [4 * 7 * taken] * 4
        assert counts["collect"][f"{d}.gradient2"] == [4 * 7 * taken] * 4
        assert counts["collect"][f"{d}.gradient1"] == [0] * 4
        aggregate = counts["aggregate"]
        assert aggregate[f"{d}.layer1"] == [quantised * size for size in sent]
        both = [quantised * (out + come) for out, come in zip(sent, read, strict=True)]
        assert aggregate[f"{d}.layer2"] == both
        back = [quantised * (7 * taken + come) for come in read]
        assert aggregate[f"{d}.layer3"] == back
        came = (1 + quantised) * 7 * given
        assert aggregate[f"{d}.gradient1"] == [came] * 4
        assert aggregate[f"{d}.gradient2"] == [came + quantised * 7 * taken] * 4


def test_layers_work_on_the_rows_and_edges_that_are_drawn() -> None:
    """A quarter of the rows of others; those of 100 numbers are multiplied first."""
    section, job, graph = job_of("bns_gcn", rate=0.25)
    dataset, _ = open_parts(job.settings)
    owner = np.asarray(dataset.owner)
    operations = Operations(job)
    section._count_layers(job, operations)
    rows = dict(zip(OPERATIONS, operations.counts, strict=True))

    def count(operation: str, task: str) -> float:
        found = rows[operation][job.index(task)]
        assert len(set(found.tolist())) == 1
        return float(found[0])

    for rank in range(3):
        local = np.flatnonzero(owner == rank)
        ends = [
            dataset.structure.indices[
                dataset.structure.indptr[v] : dataset.structure.indptr[v + 1]
            ]
            for v in local.tolist()
        ]
        neighbours = np.concatenate(ends)
        crossing = int((owner[neighbours] != rank).sum())
        # A vertex is a neighbour of its own.
        within = len(neighbours) - crossing + len(local)
        remote = len(graph.part(rank).remote)
        d, n = f"d{rank}", len(local)
        # Features are there, all of them.
        assert count("multiply", f"{d}.layer1") == (n + remote) * 700
        assert count("aggregate", f"{d}.layer1") == (within + crossing) * 7
        assert count("multiply", f"{d}.gradient1") == (n + remote) * 700
        assert count("multiply", f"{d}.layer2") == n * 49
        drawn = within + crossing / 4
        assert count("aggregate", f"{d}.layer2") == pytest.approx(drawn * 7)
        assert count("multiply", f"{d}.gradient2") == 2 * n * 49
        # The last layer goes on to its own backward pass.
        assert count("multiply", f"{d}.layer3") == 3 * n * 7 * 47
        assert count("aggregate", f"{d}.layer3") == pytest.approx(2 * drawn * 7)
        parameters = 100 * 7 + 7 + 7 * 7 + 7 + 7 * 47 + 47
        assert count("step", f"{d}.layer1") == parameters
        assert count("step", f"{d}.layer2") == 0


def test_memory_has_features_layers_and_rows_of_others() -> None:
    """Rows that are read later have a second copy; numbers are float32."""
    terms: dict[str, Any] = {"gradients": {"age": 1}, "optimizer": "sgd"}
    section, job, graph = job_of(**terms)
    found = section.device_memory(job, CONTEXT)
    parameters = 100 * 7 + 7 + 7 * 7 + 7 + 7 * 47 + 47
    for rank in range(3):
        part = graph.part(rank)
        local, remote = len(part.local), len(part.remote)
        # Two exchanges of rows, and two of gradients that are kept twice.
        numbers = 2 * local * (7 + 7 + 47) + 2 * remote * 7 + 2 * 2 * remote * 7
        assert found[f"d{rank}.layer1"] == {
            "features": 4.0 * 100 * (local + remote),
            "rows of layers": 4.0 * numbers,
            "weights": 2 * 4.0 * parameters,
        }


def test_columns_and_rows_of_tensor_parallel_parts() -> None:
    """Classes are padded by one column for each part at the least: 47 to 48, by 3."""
    section, job, _ = job_of("neutron_tp", rates=_RATES, partitioner="hash")
    dataset, _ = open_parts(job.settings)
    rows = np.bincount(dataset.owner, minlength=3).tolist()
    assert len(set(rows)) == 3
    sizes = bytes_of(section, job)
    width = 48 // 3
    stages = [task.kind for task in job.tasks if task.name.startswith("d0.")]
    # Beside the order of the stages of each part.
    orders = 3 * (len(stages) - 1)
    assert section.least_edges("abc") == len(job.edges) - orders
    assert section.least_edges("a") == 1
    names = [f"d1.{stages[0]}->d2.{stages[1]}", f"d1.{stages[1]}->d2.{stages[2]}"]
    # Of its own rows what others' columns are, then of its columns others' rows.
    assert sizes[names[0]] == [4 * rows[1] * width] * 4
    assert sizes[names[1]] == [4 * rows[2] * width] * 4

    operations = section.count_operations(
        job, CONTEXT, np.zeros((len(job.edges), 4))
    ).counts
    counts = dict(zip(OPERATIONS, operations, strict=True))
    products = [100 * 7, 7 * 7, 7 * 47]
    for rank in range(3):
        dense, propagate, *_ = (job.index(f"d{rank}.{stage}") for stage in stages)
        assert counts["multiply"][dense, 0] == rows[rank] * sum(products)
        edges = int(dataset.structure.indptr[-1]) + dataset.vertices
        assert counts["aggregate"][propagate, 0] == 3 * edges * width
        assert counts["launch"][dense, 0] == counts["launch"][propagate, 0] == 3
        last = job.index(f"d{rank}.{stages[-1]}")
        backward = rows[rank] * (2 * sum(products) - products[0])
        assert counts["multiply"][last, 0] == backward
        parameters = sum(products) + 7 + 7 + 47
        assert counts["step"][dense, 0] == parameters
        memory = section.device_memory(job, CONTEXT)[f"d{rank}.{stages[0]}"]
        assert memory["features"] == 4 * rows[rank] * 100
        assert memory["rows of layers"] == 4 * 2 * rows[rank] * (7 + 7 + 47)
        assert memory["columns of all rows"] == 2 * 4 * dataset.vertices * width
        assert memory["weights"] == 4 * 4 * parameters


@pytest.mark.parametrize(
    ("machines", "keys", "flows"),
    [
        # Rows before layers 2 and 3, and their gradients, between 6 pairs.
        ("abc", {}, 4 * 6),
        ("abc", {"cache_features": False}, 5 * 6),
        ("ab", {}, 4 * 2),
    ],
)
def test_edges_are_at_least_those_of_exchanges_and_of_the_ring(
    machines: str, keys: dict[str, Any], flows: int
) -> None:
    section, _, _ = job_of(**keys)
    context = BuildContext(tuple(machines), None, seed=5)
    job = section.build(context)
    kinds = [
        (job.tasks[e.source].kind, job.tasks[e.destination].kind) for e in job.edges
    ]
    between = [
        number
        for number, edge in enumerate(job.edges)
        if job.tasks[edge.source].process_name
        != job.tasks[edge.destination].process_name
    ]
    in_ring = [number for number in between if "all_reduce" in kinds[number]]
    assert len(between) - len(in_ring) == flows
    least = section.least_edges(machines)
    # Beside them each part has its order, of layers forward and back.
    parts = len(machines)
    passes = [task for task in job.tasks if task.name.startswith("d0.")]
    orders = parts * (len(passes) - 1)
    assert least == len(job.edges) - orders
    assert section.least_edges("a") == 1
    starts = "layer0" if keys else "layer1"
    assert passes[0].kind == starts


@pytest.mark.parametrize(
    ("keys", "epochs", "fits"),
    [
        # One layer exchanges nothing: there is no age.
        ({"model": {"hidden": 7, "layers": 1}}, 1, True),
        ({"rows": {"age": 2}}, 3, True),
        ({"rows": {"age": 2}}, 2, False),
        ({"gradients": {"age": 3}, "rows": {"age": 1}}, 3, False),
    ],
)
def test_an_epoch_reads_no_rows_from_before_the_first(
    keys: dict[str, Any], epochs: int, *, fits: bool
) -> None:
    section, _, _ = job_of(epochs=epochs, rates=_RATES, **keys)
    machines = [{"name": name, "nic": "1 Gbit/s"} for name in "abc"]
    cluster = ClusterSection.model_validate({"machines": machines})
    assert ([*section.problems(cluster)] == []) is fits
    kept = any("age" in terms for terms in keys.values())
    assert bool(section.uncut) is kept
