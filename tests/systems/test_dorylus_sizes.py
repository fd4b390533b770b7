"""Times and operations of Dorylus' tasks by hand, where no two intervals are alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emu.graph_data.intervals import IntervalCounts
from emu.problem import Job
from emu.problem.workloads.operations import OPERATIONS
from emu.systems.dorylus.deaths import IDLE
from emu.systems.dorylus.section import DorylusJobSection
from emu.systems.dorylus.volumes import (
    attention_bytes,
    count_step,
    count_steps,
    dorylus_times,
    dorylus_volumes,
    step_bytes,
)
from tests.systems.sections import context_of, section_of

#: Of two intervals on each of two servers; means are 5, 30 and 5, with loops 35.
COUNTS = IntervalCounts(
    vertices=np.array([3, 4, 5, 8]),
    edges=np.array([10, 20, 30, 60]),
    ghosts=np.array([[0, 2], [0, 4], [6, 0], [8, 0]]),
    sources=np.array([[0, 1], [0, 3], [5, 0], [7, 0]]),
)
#: Numbers of a row: features, hidden, classes.
WIDTHS = (7, 5, 3)
TIMES = {
    "gather": 9.0,
    "gather_back": 3.0,
    "apply": 10.0,
    "apply_back": 20.0,
    "scatter": 5.0,
    "scatter_back": 10.0,
    "edge_apply": 70.0,
    "edge_apply_back": 140.0,
    "call": 0.25,
    "answer": 0.5,
    "ghosts": 0.125,
    "stash": 0.75,
    "gradient_sum": 0.375,
    "weight_update": 7.0,
}


def job_of(kind: str = "gcn", **keys: Any) -> tuple[DorylusJobSection, Job]:
    stated = {
        "machines": ["g0", "g1"],
        "parameter_servers": ["p"],
        "intervals": 2,
        "epochs": 3,
        "model": {"kind": kind, "hidden": 5, "layers": 2},
        **keys,
    }
    section = section_of("dorylus", **stated)
    return section, section.build(context_of([]))


def seconds_of(
    section: DorylusJobSection, job: Job, **options: Any
) -> dict[str, list[float]]:
    """Return the times of every task by its name."""
    options = {"times": TIMES, "seed": 7, **options}
    seconds = dorylus_times(section, job, COUNTS, **options)
    names = [task.name for task in job.tasks]
    return dict(zip(names, seconds.tolist(), strict=True))


def test_times_are_in_proportion_to_what_an_interval_has_of_each() -> None:
    """Gathers go by edges, applies by vertices, scatters by ghosts."""
    expected = {
        "ga0_0": 9 * 10 / 30,
        "ga1_3": 9 * 60 / 30,
        "dga_1": 3 * 20 / 30,
        "av0_0": 10 * 3 / 5,
        "av1_3": 10 * 8 / 5,
        "dav_2": 20 * 5 / 5,
        "sc_0": 5 * 2 / 5,
        "dsc_3": 10 * 8 / 5,
        "call0_3": 0.25,
        "back2_0": 0.5,
        "in_0_1": 0.125,
        "wu1": 7.0,
        "done": 0.0,
    }
    found = seconds_of(*job_of())
    for name, time in expected.items():
        assert found[name] == pytest.approx([time] * 3), name

    of_edges = seconds_of(*job_of("gat"))
    assert of_edges["ae0_0"] == pytest.approx([70 * 13 / 35] * 3)
    assert of_edges["dae1_3"] == pytest.approx([140 * 68 / 35] * 3)
    assert of_edges["stash_ae0_0"] == [0.75] * 3


def test_the_first_launch_of_an_interval_alone_is_cold() -> None:
    launch = {"cold": "2 s", "warm": "0.5 s"}
    found = seconds_of(*job_of(launch=launch))

    for interval in range(4):
        assert found[f"launch0_{interval}"] == [2.0, 0.5, 0.5]
        assert found[f"launch1_{interval}"] == [0.5, 0.5, 0.5]
    assert found["begin0_0"] == [0.0] * 3


def test_parts_of_a_lambda_share_its_rows_whether_timed_or_counted() -> None:
    """Two of 3 rows go first, and 4 of 8; rates know an interval's size by itself."""
    section, job = job_of(stream=2)
    timed = seconds_of(section, job)
    assert timed["av0_0.first"] == pytest.approx([4.0] * 3)
    assert timed["av0_0"] == pytest.approx([2.0] * 3)
    assert timed["av0_3.first"] == timed["av0_3"] == pytest.approx([8.0] * 3)

    counted = np.arange(3.0 * len(job.tasks)).reshape(-1, 3) + 1
    rated = seconds_of(section, job, rated=counted)
    shares = {"av0_0.first": 2 / 3, "av0_0": 1 / 3, "ga0_3": 1.0, "sc_0": 1.0}
    for name, share in shares.items():
        of_task = counted[job.index(name)]
        assert rated[name] == pytest.approx(of_task * share), name
    # On servers themselves tasks have no parts.
    alone = seconds_of(*job_of(backend="cpu"))
    assert alone["av0_0"] == pytest.approx([6.0] * 3)


def test_one_server_scatters_to_nobody_as_long_as_it_is_stated() -> None:
    section, job = job_of(machines=["g0"], intervals=4)
    no_ghosts = np.zeros((4, 1), np.int64)
    counts = IntervalCounts(COUNTS.vertices, COUNTS.edges, no_ghosts, no_ghosts)
    seconds = dorylus_times(section, job, counts, TIMES, seed=1)
    assert seconds[job.index("sc_3")].tolist() == [5.0] * 3


#: Kinds of task between which bytes are sent, of a GCN that is not fused.
SENDING = {
    ("call", "apply"),
    ("call", "apply_back"),
    ("apply", "answer"),
    ("apply", "stash"),
    ("apply_back", "answer"),
    ("apply_back", "weight_update"),
    ("scatter", "ghosts"),
    ("scatter_back", "ghosts"),
    ("stash", "apply_back"),
    ("weight_update", "apply"),
}


@pytest.mark.parametrize("mode", ["pipe", "no_pipe", "async"])
def test_bytes_go_between_processes_and_none_beside_orders(mode: str) -> None:
    section, job = job_of(mode=mode, fuse=False, launch={"cold": "1 s"})
    volumes = dorylus_volumes(section, job, COUNTS, WIDTHS, 4)
    found = set()
    for name, edge, size in zip(job.edge_names, job.edges, volumes, strict=True):
        source, to = job.tasks[edge.source], job.tasks[edge.destination]
        pair = (source.kind, to.kind)
        is_sent = source.process_name != to.process_name and pair in SENDING
        # Of the first layer's features nobody needs a gradient.
        is_sent &= pair != ("apply_back", "answer") or source.settings["layer"] > 0
        assert (size > 0) == is_sent, name
        found |= {pair} if size else set()
    assert found == SENDING


def test_what_a_server_has_summed_goes_to_the_other_ones_alone() -> None:
    """Gradients of 7 x 5 and 5 x 3 numbers of 4 bytes; a server keeps its own."""
    section, job = job_of(parameter_servers=["p", "q"])
    volumes = dorylus_volumes(section, job, COUNTS, WIDTHS, 4)
    sizes = dict(zip(job.edge_names, volumes.tolist(), strict=True))
    found = {name: size for name, size in sizes.items() if name.startswith("sum")}
    assert found == {
        "sum0_0->wu0_0": 0,
        "sum0_0->wu0_1": 140,
        "sum0_1->wu0_0": 140,
        "sum0_1->wu0_1": 0,
        "sum1_0->wu1_0": 0,
        "sum1_0->wu1_1": 60,
        "sum1_1->wu1_0": 60,
        "sum1_1->wu1_1": 0,
    }


def test_tasks_of_attention_run_programs_of_their_own() -> None:
    """Sums and tasks that receive ghosts run the same program for both models."""
    keys: dict[str, Any] = {"fuse": False, "launch": {"cold": "1 s"}}
    of_gcn, of_gat = (
        {task.kind: task.program for task in job_of(kind, **keys)[1].tasks}
        for kind in ("gcn", "gat")
    )
    own = {kind for kind, program in of_gat.items() if program != of_gcn.get(kind)}
    assert own == {
        *("apply", "apply_back", "edge_apply", "edge_apply_back"),
        *("launch", "call", "gather", "gather_back", "scatter_back"),
    }
    assert of_gat["apply"] == "emu_nodes.dorylus.attention:Apply"
    assert of_gcn["apply"] == "emu_nodes.dorylus.programs:Apply"


def test_a_kind_without_a_time_is_named() -> None:
    times = {kind: time for kind, time in TIMES.items() if kind != "scatter_back"}
    with pytest.raises(ValueError, match="no time for scatter_back"):
        seconds_of(*job_of(), times=times)


@pytest.mark.parametrize("rated", [False, True])
def test_a_lambda_called_again_waits_launches_and_calls(*, rated: bool) -> None:
    """The first epoch's timeout is the least one; rates say nothing of calls."""
    dying = {"share": 0.3, "late": 1, "timeout": "4 s", "ratio": 1e-9, "attempts": 60}
    launch = {"cold": "2 s", "warm": "0.5 s"}
    section, job = job_of(dying_lambdas=dying, launch=launch)
    options = {"rated": np.ones((len(job.tasks), 3))} if rated else {}
    found = seconds_of(section, job, **options)

    recalls = [task for task in job.tasks if task.kind == "recall"]
    assert recalls
    length = 2 + 4 + (0 if rated else 0.25)
    for task in recalls:
        idle = np.array(task.settings["ends"]) == IDLE
        expected = np.where(idle, 0.0, length)
        assert found[task.name] == pytest.approx(expected.tolist())


@pytest.mark.parametrize(
    ("keys", "kind", "layer", "aggregate", "multiply", "launches"),
    [
        ({}, "gather", 0, 13 * 7, 0, 1),
        ({}, "gather", 1, 13 * 5, 0, 1),
        ({}, "gather_back", 1, 13 * 5, 0, 1),
        ({}, "apply", 0, 0, 3 * 35, 1),
        ({}, "apply_back", 0, 0, 3 * 35, 1),
        # Fused with its backward pass, which has two products of its own.
        ({}, "apply", 1, 0, 3 * (3 * 15), 2),
        ({"fuse": False}, "apply", 1, 0, 3 * 15, 1),
        ({"fuse": False}, "apply_back", 1, 0, 3 * 2 * 15, 1),
        # Computed again, a backward pass has the products of the forward one as well.
        ({"rematerialize": True}, "apply_back", 0, 0, 3 * 2 * 35, 2),
        ({"rematerialize": True}, "apply", 0, 0, 3 * 35, 1),
        ({"kind": "gat"}, "gather", 0, 13 * 5, 0, 1),
        ({"kind": "gat"}, "gather_back", 1, 13 * 3, 0, 1),
        ({"kind": "gat"}, "edge_apply", 0, 0, 13 * 2 * 5, 1),
        ({"kind": "gat"}, "edge_apply", 1, 0, 13 * 2 * 3, 1),
        ({"kind": "gat"}, "edge_apply_back", 0, 0, 13 * 4 * 5, 1),
        ({"kind": "gat"}, "apply", 1, 0, 3 * 15, 1),
        ({"kind": "gat"}, "apply_back", 1, 0, 3 * 2 * 15, 1),
    ],
)
def test_operations_of_a_step_by_hand(
    keys: dict[str, Any],
    kind: str,
    layer: int,
    aggregate: float,
    multiply: float,
    launches: float,
) -> None:
    """The step has 3 vertices and 13 edges with loops; rows have 7, 5, 3 numbers."""
    section, _ = job_of(**keys)
    amounts = count_step(section, kind, layer, WIDTHS, sizes=(3.0, 13.0))
    expected = {"aggregate": aggregate, "multiply": multiply, "launch": launches}
    assert amounts == expected


def test_operations_of_a_job_are_of_each_intervals_sizes() -> None:
    section, job = job_of("gat")
    volumes = np.zeros((len(job.edges), 1))
    operations = count_steps(section, job, COUNTS, WIDTHS, volumes)
    counts = dict(zip(OPERATIONS, operations.counts, strict=True))

    gathers = [job.index(f"ga0_{interval}") for interval in range(4)]
    sums = [5 * edges for edges in (13, 24, 35, 68)]
    assert counts["aggregate"][gathers, 0].tolist() == sums
    applies = [job.index(f"av1_{interval}") for interval in range(4)]
    products = [15 * vertices for vertices in (3, 4, 5, 8)]
    assert counts["multiply"][applies, 2].tolist() == products
    # A matrix, and two vectors of attention.
    assert counts["step"][job.index("wu0"), 0] == 7 * 5 + 2 * 5
    assert counts["step"][job.index("wu1"), 0] == 5 * 3 + 2 * 3


@pytest.mark.parametrize(
    ("keys", "kind", "layer", "pulled", "returned"),
    [
        ({}, "apply", 0, 7, 2 * 5),
        ({}, "apply", 1, 5 + 3, 5),
        ({"fuse": False}, "apply", 0, 7, 2 * 5),
        ({"fuse": False}, "apply", 1, 5, 3),
        ({"rematerialize": True, "fuse": False}, "apply", 0, 7, 5),
        ({}, "apply_back", 0, 7 + 2 * 5, 0),
        ({"fuse": False}, "apply_back", 1, 5 + 2 * 3, 5),
        ({"rematerialize": True}, "apply_back", 0, 7 + 5, 0),
    ],
)
def test_numbers_of_a_row_that_a_lambda_pulls_and_returns(
    keys: dict[str, Any], kind: str, layer: int, pulled: int, returned: int
) -> None:
    """Numbers are float64; a layer that is the last and first returns no gradient."""
    section, _ = job_of(**keys)
    found = step_bytes(kind, layer, section, WIDTHS, 8)
    assert found == (8 * pulled, 8 * returned)

    model = {"kind": "gcn", "hidden": 5, "layers": 1}
    alone, _ = job_of(model=model)
    assert step_bytes("apply", 0, alone, (7, 3), 8) == (8 * (7 + 3), 0)


@pytest.mark.parametrize(
    ("kind", "layer", "pulled", "returned"),
    [
        ("apply", 0, 8 * 3 * 7, 8 * 3 * 5),
        ("apply", 1, 8 * 3 * 5, 8 * 3 * 3),
        ("apply_back", 0, 8 * 3 * (7 + 5), 0),
        ("apply_back", 1, 8 * 3 * (5 + 3), 8 * 3 * 5),
        ("edge_apply", 0, 13 * (2 * 8 * 5 + 4), 8 * 13),
        ("edge_apply_back", 0, 13 * (2 * 8 * 5 + 4) + 8 * 3 * 5, 8 * 5 * (13 + 3)),
        ("edge_apply_back", 1, 13 * (2 * 8 * 3 + 4) + 2 * 8 * 3 * 3, 8 * 3 * (13 + 3)),
    ],
)
def test_bytes_of_attention_of_an_interval(
    kind: str, layer: int, pulled: int, returned: int
) -> None:
    """The interval has 3 vertices and 13 edges, in float64."""
    assert attention_bytes(kind, layer, WIDTHS, 8, (3, 13)) == (pulled, returned)
