"""APT: whatever the strategy, weights of one device; bytes as stated and as counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import NodeMisbehaved
from emu.graph_data import BatchPlan, open_for
from emu.problem import Job
from emu.systems.job_section import BuildContext
from emu.systems.system import systems
from emu.training import reference_training
from emu_nodes.apt.messages import read_share
from emu_nodes.dgtp.job_data import JobData
from tests.nodes.one_process import JobRun, brief_of, drive
from tests.systems.sections import section_of

KEYS: dict[str, Any] = {
    "dataset": {"name": "products-like", "scale": 0.0005, "seed": 3},
    "model": {"hidden": 5, "layers": 2},
    "fanouts": [3, 4],
    "batch_size": 4,
    "iterations": 4,
    "precision": "float64",
    "times": {"sampler": "0 s", "worker": "0 s"}
    | {
        f"{part}_{way}": "0 s"
        for part in ("model", "data")
        for way in ("forward", "backward")
    },
}
STRATEGIES = ["gdp", "nfp", "snp", "dnp"]


def run(machines: int = 3, compute: str = "real", **keys: Any) -> JobRun:
    """Run a job, and hold weights and bytes against what it states."""
    section = section_of("apt", **{**KEYS, **keys})
    names = tuple(f"m{rank}" for rank in range(machines))
    context = BuildContext(names, 3, seed=5, compute=compute)
    job = section.build(context)
    done = drive(job)
    stated = section.realize(job, context, None, {}).volumes
    for edge, row in enumerate(stated):
        sent = 0 if job.edges[edge].credit else job.flow_counts[edge]
        np.testing.assert_array_equal(done.volumes[edge, :sent], row[:sent])
    if compute == "real":
        expected, losses = reference_training(job.settings, job.iterations)
        found = parameters_of(done)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
        for step, loss in enumerate(losses):
            ranks = [f"Df{rank}" for rank in range(machines)]
            reported = [done.reports[rank, step]["loss"] for rank in ranks]
            assert np.mean(reported) == pytest.approx(loss, rel=1e-10)
    return done


def parameters_of(done: JobRun) -> Any:
    results = {name: program.result() for name, program in done.programs.items()}
    return systems()["apt"].trained(done.job, results)


@pytest.mark.dear
@given(
    strategy=st.sampled_from(STRATEGIES),
    machines=st.integers(1, 4),
    kind=st.sampled_from(["sage", "gcn", "gin"]),
    layers=st.integers(1, 3),
    partitioner=st.sampled_from(["metis", "hash"]),
    samplers=st.sampled_from([1, 2]),
    optimizer=st.sampled_from(["adam", "sgd"]),
)
def test_any_strategy_learns_as_one_device_and_weighs_as_stated(
    machines: int, kind: str, layers: int, samplers: int, **keys: Any
) -> None:
    model = {"kind": kind, "hidden": 5, "layers": layers}
    fanouts = [3, 4, 2][:layers]
    run(machines, model=model, fanouts=fanouts, samplers_per_worker=samplers, **keys)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_job_that_learns_nothing_sends_as_many_bytes(strategy: str) -> None:
    run(compute="timed", strategy=strategy)


def ends_of(job: Job, edge: int) -> tuple[str, str]:
    source, destination = job.edges[edge].source, job.edges[edge].destination
    return job.tasks[source].name, job.tasks[destination].name


Pairs = list[tuple[int, int]]


def share_by_hand(
    strategy: str, sampler: int, pairs: Pairs, outputs: set[int], owner: list[int]
) -> tuple[Pairs, set[int], set[int]]:
    """Return the edges, sums and own rows of machine 2's share, with sets."""
    own = {v for v in outputs if owner[v] == 2}
    if strategy == "snp":
        edges = [(u, v) for u, v in pairs if owner[u] == 2]
        return edges, {v for _, v in edges} | own, own
    if strategy == "dnp":
        return [(u, v) for u, v in pairs if owner[v] == 2], own, own
    if strategy == "gdp" and sampler != 2:
        return [], set(), set()
    return pairs, outputs, outputs


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_bytes_are_those_of_a_count_by_hand(strategy: str) -> None:
    """Edge by edge: machine 2's part of what machine 1 trains on, and its rows."""
    done = run(strategy=strategy, iterations=2)
    job = done.job
    data = open_for(job.settings)
    plan = BatchPlan.from_settings(job.settings)
    owner = np.asarray(data.owner).tolist()
    train = plan.walk(data)
    ends = {ends_of(job, edge): edge for edge in range(len(job.edges))}
    length = data.feature_length // 3 if strategy == "nfp" else data.feature_length
    for n in range(2):
        loads: set[int] = set()
        for sampler in range(3):
            batch = plan.batch(data.structure, train, sampler, n)
            ids = batch.vertices.tolist()
            pairs = [(ids[u], ids[v]) for u, v in zip(*batch.edges[0], strict=True)]
            outputs = set(ids[: batch.sizes[1]])
            edges, sums, own = share_by_hand(strategy, sampler, pairs, outputs, owner)
            loads |= {u for u, _ in edges} | own
            if sampler == 1 and strategy != "gdp":
                head = len(ids) if strategy == "nfp" else len(sums)
                drawn = 0 if strategy == "dnp" else len(edges)
                sent = done.volumes[ends["s1", "a2"], n]
                assert sent == 8 * head + 8 * drawn
                assert done.volumes[ends["Mf2", "Df1"], n] == 8 * 5 * len(sums)
                assert done.volumes[ends["Db1", "Mb2"], n] == 8 * 5 * len(sums)
        for store in range(3):
            rows = sum(owner[v] == store for v in loads)
            if strategy == "nfp":
                rows = len(loads)
            if ("g" + str(store), "Mf2") in ends:
                edge = ends["g" + str(store), "Mf2"]
                assert done.volumes[edge, n] == 8 * length * rows
    assert (("g0", "Mf2") in ends) == (strategy in {"gdp", "dnp"})
    assert (("s1", "a2") in ends) == (strategy != "gdp")


@pytest.mark.parametrize(
    ("strategy", "change", "problem"),
    [
        ("dnp", {"destinations": np.array([10**9])}, "not there"),
        ("snp", {"edges": np.array([-5])}, "not there"),
        ("snp", {"edges": np.array([1, 0])}, "out of order"),
        ("nfp", {"ends": np.array([10**6], np.int32)}, "not there"),
    ],
)
def test_a_share_that_names_what_is_not_there_is_refused(
    strategy: str, change: dict[str, Any], problem: str
) -> None:
    done = run(strategy=strategy, iterations=1)
    job = done.job
    names = [task.name for task in job.tasks]
    brief = brief_of(job, names.index("a2"))
    edge = next(edge for edge in brief.inputs if edge.peer == "s1")
    payload = {**done.payloads[edge.edge, 0], **change}
    if "edges" in change:
        payload["destinations"] = payload["destinations"][:2]
    with pytest.raises(NodeMisbehaved, match=problem):
        read_share(payload, edge, JobData(brief, {}), 2, (1, 0))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_left_after_a_cut_learns_what_the_whole_job_has(strategy: str) -> None:
    """A machine goes on with its own columns, or with what the first of all had."""
    job = run(strategy=strategy).job
    whole = drive(job, cut=1)
    rest = drive(job, cut=1, kept=whole)

    found, expected = parameters_of(rest), parameters_of(whole)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    for (name, iteration), figures in rest.reports.items():
        assert figures == pytest.approx(whole.reports[name, iteration], rel=1e-10)
