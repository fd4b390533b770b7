"""P3 and data parallel jobs: tasks, edges, lags and bytes."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import pytest

from emu.prediction.simulation import simulate
from emu.problem import Cluster, Job, Machine, Placement, Problem, Realization
from emu.problem.workloads import SampleCounts
from emu.report.explanation_tables import job_line
from emu.systems.dgtp.volumes import dgtp_volumes
from emu.systems.p3.builder import P3Builder
from emu.systems.p3.job import PIPELINES, Pipeline
from emu.systems.p3.volumes import SplitModel, p3_realization
from emu.systems.training_section import repeat_times
from tests.golden.cases import Case, cases, exactly
from tests.systems.sections import context_of, job_of, section_of

Push: TypeAlias = Literal["derived", "shipped"]
TIMES = {
    "sampler": 1.0,
    "model_forward": 2.0,
    "data_forward": 1.0,
    "data_backward": 1.0,
    "model_backward": 2.0,
    "sampler_hop": 0.5,
    "graph_store_hop": 0.5,
}
GOLDEN = {str(case): case for case in cases("p3")}


def builder_of(
    machines: tuple[str, ...], batches: int, window: int | None = None, **keys: Any
) -> P3Builder:
    section = section_of("p3", iterations=batches, **keys)
    return P3Builder(section, context_of(machines, window))


def placed(job: Job, bandwidths: tuple[float, ...]) -> Problem:
    cluster = Cluster(tuple(Machine(f"m{m}", b, b) for m, b in enumerate(bandwidths)))
    machines = tuple(cluster.index(str(task.pinned)) for task in job.tasks)
    return Problem(cluster, job, Placement(machines))


def check_golden(case: Case, problem: Problem, realization: Realization) -> None:
    """Eight bytes for each of the golden job's, over links that are as much faster."""
    job, expected = problem.job, case.results["oes"]
    schedule = simulate(problem, realization, "oes")
    own_names = {"samp": "s", "train": "w", "store": "g"}

    def own(name: str) -> str:
        for theirs, ours in own_names.items():
            name = name.replace(theirs, ours)
        return name

    assert schedule.makespan == pytest.approx(exactly([expected["makespan"]])[0])
    for name, ends in expected["task_ends"].items():
        found = schedule.task_end[job.index(own(name))]
        np.testing.assert_allclose(found, exactly(ends), err_msg=name)
    for name, ends in expected["flow_ends"].items():
        found = schedule.flow_end[job.edge_positions[own(name)]]
        np.testing.assert_allclose(found[~np.isnan(found)], exactly(ends), err_msg=name)


@pytest.mark.parametrize(
    ("name", "pipeline", "other"),
    [
        ("unpipelined_equal", "none", 80.0),
        ("pipelined_equal", "A", 80.0),
        ("pipelined_one_slow", "A", 40.0),
    ],
)
def test_golden(name: str, pipeline: str, other: float) -> None:
    builder = builder_of(("m0", "m1"), 4, pipeline=pipeline)
    counts = SampleCounts((1, 1), edges=9, seeds=1, outputs=5, first_edges=8)
    model = SplitModel(4, 8, upper=10, pulled_width=4, itemsize=8)
    realization = p3_realization(builder, TIMES, [[counts] * 4] * 2, model)

    check_golden(GOLDEN[name], placed(builder.job({}), (80.0, other)), realization)


def test_golden_data_parallel() -> None:
    counts = SampleCounts((6, 6), edges=9, seeds=1)
    job = job_of("data_parallel", ("m0", "m1"), iterations=4)
    times = {"graph_store": 0.0, "sampler": 1.0, "worker": 6.0, "all_reduce": 0.0}
    bytes_ = dgtp_volumes(
        job, [[counts] * 4] * 2, feature_length=10, parameters=14, itemsize=8
    )
    realization = Realization(repeat_times(job, times), bytes_)

    check_golden(GOLDEN["data_parallel_equal"], placed(job, (80.0, 80.0)), realization)


#: Products, batch 1000, fanouts 25 and 10, as the paper states it, on N machines.
INPUTS = 188_339


def sent(realization: Realization, job: Job) -> float:
    """Return all bytes between machines but those of the ring."""
    pins = [task.pinned for task in job.tasks]
    crosses = [pins[edge.source] != pins[edge.destination] for edge in job.edges]
    chosen = [
        far and ".ring" not in name
        for far, name in zip(crosses, job.edge_names, strict=True)
    ]
    return float(realization.volumes[chosen].sum())


def p3_bytes(machines: int, hidden: int, push: Push = "derived") -> float:
    """Return what crosses for one mini-batch of each machine, the ring apart."""
    names = tuple(f"m{m}" for m in range(machines))
    builder = builder_of(names, 1, pipeline="none", push=push)
    counts = SampleCounts(
        (INPUTS,), edges=0, seeds=1000, outputs=24_703, first_edges=247_030
    )
    model = SplitModel(100, 2 * hidden, upper=0, pulled_width=hidden)
    realization = p3_realization(builder, TIMES, [[counts]] * machines, model)
    return sent(realization, builder.job({})) / machines


def test_the_papers_arithmetic() -> None:
    """71.84 MiB of features, all counted as remote, against 4.52 MiB pulled."""
    pulled = p3_bytes(4, 16) / 2  # the gradients are as large

    assert pytest.approx(71.84, abs=0.01) == INPUTS * 100 * 4 / 2**20
    assert pulled / 2**20 == pytest.approx(4.52, abs=0.005)


CROSSOVERS: dict[Push, dict[int, int]] = {
    "derived": {2: 191, 4: 95, 8: 48},
    "shipped": {2: 173, 4: 78, 8: 30},
}


@pytest.mark.parametrize(
    ("machines", "push", "hidden"),
    [
        (machines, push, hidden)
        for push, found in CROSSOVERS.items()
        for machines, hidden in found.items()
    ],
)
def test_crossover_by_bytes(machines: int, push: Push, hidden: int) -> None:
    """Of the features 1/N are local under a hash partition."""
    features = INPUTS * 100 * 4 * (machines - 1) / machines

    # h* is stated as the nearest whole number
    assert p3_bytes(machines, hidden - 1, push) < features
    assert p3_bytes(machines, hidden + 1, push) > features


def volumes(builder: P3Builder) -> dict[str, float]:
    """Return edge -> bytes of the first mini-batch on it, layer 1 being 7 x (2 * 3)."""
    counts = SampleCounts(
        (6,), edges=9, seeds=1, outputs=5, first_edges=4,
        frontier_owned=((1, 0, 0, 0), (2, 3, 0, 0)),
        answered=((4, 0, 0, 0), (1, 3, 0, 0)),
    )  # fmt: skip
    model = SplitModel(7, 6, upper=11, pulled_width=3)
    realization = p3_realization(builder, TIMES, [[counts]] * 8, model)
    sizes = realization.volumes.max(axis=1)
    return dict(zip(builder.job({}).edge_names, sizes.tolist(), strict=True))


FOUR = ("m0", "m1", "m2", "m3")


def test_groups_pull_within_and_sum_layer_1_across() -> None:
    """Half of 7 columns is 4 or 3: 24 or 18 weights, two chunks of each."""
    sizes = volumes(builder_of(FOUR, 1, pipeline="none", cache=2))
    pulled = {name for name in sizes if name.startswith("Mf") and "Df" in name}

    assert {"Mf1->Df0", "Mf0->Df1", "Mf3->Df2", "Mf2->Df3"} < pulled
    assert "Mf2->Df0" not in pulled
    assert sizes["Mf1->Df0"] == sizes["Db0->Mb1"] == 4 * 5 * 3
    assert sizes["s0->Mf1"] == 8 * 6 + 8 * 4
    assert sizes["v0.ring0->v2.got0"] == 4 * 12
    assert sizes["v1.ring0->v3.got0"] == 4 * 9
    assert sizes["w0.ring0->w1.got0"] == 4 * 3


def test_samplers_share_a_batch_and_their_machine_gets_all_of_it() -> None:
    """Ids and edges stay on the machine; peers get those of layer 1 from each."""
    sizes = volumes(builder_of(FOUR, 1, pipeline="none", samplers_per_worker=2))

    assert sizes["s2->Mf1"] == sizes["s3->Mf1"] == 8 * 6 + 8 * 9
    assert sizes["s3->Mf0"] == 8 * 6 + 8 * 4
    assert "s1->Df0" not in sizes
    assert sizes["Mf1->Df0"] == sizes["Db0->Mb1"] == 2 * 4 * 5 * 3


def test_columns_of_the_host_are_collected_before_the_phases() -> None:
    builder = builder_of(FOUR, 1, 2, pipeline="none", features="host")
    sizes, job = volumes(builder), builder.job({})

    assert sizes["s0->g0"] == 8 * 6 + 8 * 9
    assert sizes["s0->g1"] == 8 * 6 + 8 * 4
    assert sizes["g1->Mf1"] == 0
    assert "s0->Mf1" not in sizes
    assert [job.tasks[job.index(name)].takes for name in ("g0", "Mf0")] == [
        "cpu",
        "gpu",
    ]


def test_nothing_travels_to_who_holds_no_columns() -> None:
    builder = builder_of(FOUR, 1, pipeline="none", columns=(1.0, 1.0, 0.0, 0.0))
    sizes = volumes(builder)

    assert builder.blocks(7) == (4, 3, 0, 0)
    assert [builder.share(rank) for rank in range(4)] == [2.0, 2.0, 0.0, 0.0]
    for name in ("s0->Mf2", "Mf2->Df0", "Db0->Mb2"):
        assert sizes[name] == 0.0
    assert min(sizes[name] for name in ("s2->Mf0", "Mf0->Df2", "Db2->Mb0")) > 0.0


def test_owners_of_vertices_are_asked_hop_by_hop() -> None:
    builder = builder_of(FOUR, 1, 3, structure="hashed")
    sizes = volumes(builder)
    job = builder.job({})

    assert sizes["s3.hop1->g0.hop1"] == 8 * 1
    assert sizes["g0.hop1->s3.hop2"] == 16 * 4
    assert sizes["s0.hop2->g1.hop2"] == 8 * 3
    assert sizes["g1.hop2->s0"] == 16 * 3
    assert sizes["s0->Mf1"] == 8 * 6 + 8 * 4
    assert {job.rounds[job.index(name)] for name in ("s0.hop1", "g3.hop2")} == {1}
    assert job.rounds[job.index("s0")] == 3  # cycles
    credit = job.edges[job.edge_positions["Mb1->s0.hop1"]]
    assert (credit.credit, credit.lag) == (True, 3)


def test_updates_missed() -> None:
    missed = {name: pipeline.missed for name, pipeline in PIPELINES.items()}

    assert missed == {"none": 0, "A": 2, "B": 3}
    assert Pipeline(("Mb", "Mf", "Df", "Db"), (0, 0, 0, 1)).missed == 0


@pytest.mark.parametrize(("pipeline", "upper"), [("none", 1), ("A", 2), ("B", 2)])
def test_sums_are_waited_for_by_the_forward_pass_that_needs_them(
    pipeline: str, upper: int
) -> None:
    """Upper ones after ``Db``, those of the first layer, by groups, after ``Mb``."""
    job = job_of("p3", FOUR, iterations=4, pipeline=pipeline, cache=2)
    lags = dict(zip(job.edge_names, (edge.lag for edge in job.edges), strict=True))

    assert (lags["w0.ring6->Mf0"], lags["v0.ring2->Mf0"]) == (upper, 1)


@pytest.mark.parametrize(
    ("pipeline", "line"),
    [
        ("none", "4 iterations"),
        ("A", "4 mini-batches in 6 iterations"),
        ("B", "4 mini-batches in 7 iterations"),
    ],
)
def test_the_line_of_a_job_counts_mini_batches(pipeline: str, line: str) -> None:
    job = job_of("p3", ("m0", "m1"), iterations=4, pipeline=pipeline)

    assert job_line(job).startswith(f"{line}, credit window")


def test_a_share_of_columns_is_of_an_even_one_within_the_group() -> None:
    builder = builder_of(FOUR, 1, cache=2, columns=(3.0, 1.0))
    assert [builder.share(rank) for rank in range(4)] == [1.5, 0.5, 1.5, 0.5]
