"""The pure parts of the paper's simulation study."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.paper_figures.contest import Duel, Span
from tools.paper_figures.drawing import (
    draw_duels,
    draw_sweep,
    duel_table,
    verdict_table,
)
from tools.paper_figures.findings import (
    CLAIMS,
    by_series,
    interval,
    saving,
    verdicts,
    write_means,
    write_rows,
)
from tools.paper_figures.settings import (
    GB,
    GBIT,
    SETTINGS,
    draw_cluster,
    feasible_cluster,
    generator,
)
from tools.paper_figures.traffic import (
    BatchPool,
    at_published_size,
    peak_to_mean,
    profile_of,
    with_peak_to_mean,
)

if TYPE_CHECKING:
    from pathlib import Path

PRODUCTS = SETTINGS["products"]


@given(st.integers(0, 2**32), st.integers(1, 20))
def test_machines_are_drawn_within_the_papers_ranges(seed: int, count: int) -> None:
    cluster = draw_cluster(count, np.random.default_rng(seed))

    assert len(cluster.machines) == count
    for machine in cluster.machines:
        assert machine.bandwidth_in == machine.bandwidth_out
        assert machine.bandwidth_in / GBIT in {10, 20, 50}
        assert 32 * GB <= machine.resources["memory"] <= 128 * GB
        assert 4 <= machine.resources["cpu"] <= 16
        assert 1 <= machine.resources["gpu"] <= 4


def test_every_value_of_a_range_occurs() -> None:
    machines = draw_cluster(2000, np.random.default_rng(0)).machines

    assert {m.resources["cpu"] for m in machines} == set(range(4, 17))
    assert {m.resources["gpu"] for m in machines} == {1, 2, 3, 4}
    assert {m.bandwidth_in / GBIT for m in machines} == {10, 20, 50}


def test_machines_are_redrawn_until_the_job_fits() -> None:
    job = PRODUCTS.job(1, "logical")
    draws = []
    for number in range(4):
        cluster, drawn = feasible_cluster(job, generator(PRODUCTS, number, 0))
        draws.append(drawn)
        cores = sum(machine.resources["cpu"] for machine in cluster.machines)
        assert cores >= sum(task.demands.get("cpu", 0) for task in job.tasks) == 81
    assert max(draws) > 1


def test_a_core_is_two_logical_ones_unless_read_literally() -> None:
    cores = {
        reading: sum(
            task.demands.get("cpu", 0)
            for task in SETTINGS["papers100M"].job(1, reading).tasks
        )
        for reading in ("cores", "logical")
    }

    assert cores == {"cores": 90.5, "logical": 181}


def test_draws_are_reproducible_and_differ_by_setting_and_number() -> None:
    papers = SETTINGS["papers100M"]
    numbers = [
        generator(setting, number, 0).integers(2**62)
        for setting in (PRODUCTS, papers, PRODUCTS)
        for number in (0, 1)
    ]

    assert numbers[:2] == numbers[4:]
    assert len(set(numbers)) == 4


def test_whole_run_walks_the_training_set_once_per_epoch() -> None:
    assert PRODUCTS.whole_run(1000) == 5 * 197
    assert SETTINGS["papers100M"].whole_run(2000) == 25 * 604


def test_counts_at_published_size_keep_the_mean_and_shrink_the_scatter() -> None:
    rng = np.random.default_rng(1)
    small = rng.poisson(400, (5000, 3))

    grown = at_published_size(small, 25.0)

    assert grown.mean(axis=0) == pytest.approx(25 * small.mean(axis=0))
    assert grown.std(axis=0) == pytest.approx(5 * small.std(axis=0))


@given(
    st.integers(0, 2**32),
    st.floats(1.0, 4.0),
    st.floats(0.02, 0.3),
)
def test_flows_are_scaled_to_a_peak_to_mean_ratio(
    seed: int, ratio: float, scatter: float
) -> None:
    rng = np.random.default_rng(seed)
    flows = 1e6 * np.exp(rng.normal(0, scatter, (8, 50, 4)))

    scaled = with_peak_to_mean(flows, ratio)

    assert peak_to_mean(scaled) == pytest.approx(ratio, rel=1e-6)
    assert scaled.sum() == pytest.approx(flows.sum())
    assert (np.argsort(scaled, axis=None) == np.argsort(flows, axis=None)).all() or (
        ratio < 1 + 1e-6
    )


def test_equal_flows_have_no_other_ratio() -> None:
    with pytest.raises(ValueError, match="cannot have a peak-to-mean ratio of 2"):
        with_peak_to_mean(np.ones((2, 3)), 2.0)
    with pytest.raises(ValueError, match="at least 1"):
        with_peak_to_mean(np.ones((2, 3)), 0.5)


def pool_of(stores: int) -> BatchPool:
    rng = np.random.default_rng(3)
    return BatchPool(1000, 60_000 * rng.uniform(0.95, 1.05, (30, stores)), 850_000.0)


def test_a_sampler_sends_on_what_the_stores_sent_it() -> None:
    job = PRODUCTS.job(2)

    profile = profile_of(PRODUCTS, job, pool_of(8), np.random.default_rng(0), pmr=1.5)

    kinds = [job.tasks[edge.source].kind for edge in job.edges]
    stores = profile.volumes[[kind == "graph_store" for kind in kinds]]
    samplers = profile.volumes[[kind == "sampler" for kind in kinds]]
    blocks = 8 * 850_000 + 4 * 1000
    assert peak_to_mean(stores) == pytest.approx(1.5)
    assert samplers.sum() == pytest.approx(stores.sum() + 32 * 50 * blocks)
    first = [
        e
        for e, edge in enumerate(job.edges)
        if job.tasks[edge.destination].name == "s0"
    ]
    assert samplers[0] == pytest.approx(profile.volumes[first].sum(axis=0) + blocks)


def test_times_are_in_proportion_to_the_edges_sampled() -> None:
    job = PRODUCTS.job(2)
    full, half = (
        profile_of(PRODUCTS, job, pool, np.random.default_rng(0)).times[:, 0]
        for pool in (pool_of(8), replace(pool_of(8), edges=425_000.0))
    )

    kinds = [task.kind for task in job.tasks]
    assert full[kinds.index("worker")] == pytest.approx(0.060)
    assert half[kinds.index("worker")] == pytest.approx(0.030)
    assert half[kinds.index("parameter_server")] == full[-1] == pytest.approx(0.005)


def test_interval_of_the_textbook() -> None:
    # Student's t with 4 degrees of freedom: 2.776 * sqrt(2.5 / 5).
    found = interval([1.0, 2.0, 3.0, 4.0, 5.0])

    assert found.mean == pytest.approx(3.0)
    assert found.half == pytest.approx(1.963, abs=0.003)
    assert math.isinf(interval([1.0]).half)


def spans_of(times: dict[str, list[float]], x: float) -> list[Span]:
    return [
        Span(
            setting="products",
            draw=draw,
            sweep="batch",
            x=x,
            contender=contender,
            policy="oes",
            makespan=seconds / 10,
            training=seconds,
            gap=0.1,
        )
        for contender, column in times.items()
        for draw, seconds in enumerate(column)
    ]


SPANS = [
    *spans_of({"DGTP": [9.0, 8.0], "DistDGL": [10.0, 10.0], "ours": [5.0, 5.0]}, 250.0),
    *spans_of({"DGTP": [8.0, 8.0], "DistDGL": [10.0, 10.0], "ours": [6.0, 6.0]}, 500.0),
]


def test_claims_are_judged_at_the_best_point() -> None:
    (verdict,) = verdicts(by_series(SPANS))

    assert (verdict.claim.other, verdict.claim.reported) == ("DistDGL", 0.11)
    assert verdict.mean.mean == pytest.approx(0.2)
    assert (verdict.first, verdict.last) == pytest.approx((0.15, 0.2))
    assert verdict.most == pytest.approx(0.2)
    assert verdict.ours == pytest.approx(0.5)


def test_every_sentence_of_the_paper_is_a_claim() -> None:
    assert len(CLAIMS) == 12
    assert max(claim.reported for claim in CLAIMS) == 0.67
    assert saving([1.0], [4.0]) == [0.75]


def test_csv_carries_every_field_and_reads_back(tmp_path: Path) -> None:
    write_rows(tmp_path / "runs.csv", SPANS)
    write_means(tmp_path / "means.csv", by_series(SPANS))

    with (tmp_path / "runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(SPANS)
    assert float(rows[0]["training"]) == SPANS[0].training
    with (tmp_path / "means.csv").open(newline="") as file:
        means = list(csv.DictReader(file))
    assert len(means) == 6
    first = means[0]
    assert (first["contender"], first["x"], first["draws"]) == ("DGTP", "250.0", "2")
    assert float(first["mean_s"]) == pytest.approx(8.5)


def duel(draw: int) -> Duel:
    return Duel(
        setting="products",
        draw=draw,
        cluster_draws=1,
        distdgl=10.0,
        dgtp=9.5,
        etp=9.0,
        search=8.1,
        bound=6.0,
        seconds_etp=1.0,
        seconds_search=1.0,
        candidates_etp=100,
        candidates_search=50,
    )


def test_figures_are_drawn_as_svg_and_png(tmp_path: Path) -> None:
    paths = draw_sweep(6, by_series(SPANS), tmp_path)
    paths += draw_duels([duel(0), duel(1)], tmp_path)

    assert [path.name for path in paths] == [
        "figure_6.svg", "figure_6.png", "search.svg", "search.png",
    ]  # fmt: skip
    assert all(path.stat().st_size > 5000 for path in paths)


def test_tables_have_a_row_per_claim_and_what_a_duel_shows() -> None:
    assert verdict_table(verdicts(by_series(SPANS))).row_count == 1
    assert duel_table([duel(0), duel(1)]).row_count == 6
    assert duel(0).gain == pytest.approx(0.1)
