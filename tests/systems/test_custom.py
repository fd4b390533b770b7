"""Custom jobs and credit windows."""

from __future__ import annotations

import numpy as np
import pytest

from emu.errors import ScenarioError
from emu.problem import Edge, Task
from emu.problem.workloads.all_reduce import NamedEdge, credit_edges
from emu.scenario import prepare
from emu.scenario.scenario_file import loads
from emu.systems.custom.job import (
    CustomFlow,
    CustomTask,
    custom_job,
    custom_realization,
)

TASKS = [
    CustomTask(Task("g0", "graph_store", {"memory": 5.0}, "m0"), 1.0),
    CustomTask(Task("s0", "sampler"), (1.0, 2.0, 1.0)),
    CustomTask(Task("w0", "worker"), 3.0),
]
FLOWS = [
    CustomFlow(NamedEdge("g0", "s0"), 40.0),
    CustomFlow(NamedEdge("s0", "w0"), (0.0, 2.5, 10.0)),
    CustomFlow(NamedEdge("w0", "w0", lag=1), 0.0),
]


def test_edges_follow_the_flows_and_credits_come_last() -> None:
    job = custom_job(TASKS, FLOWS, 3, window=2)

    assert [task.name for task in job.tasks] == ["g0", "s0", "w0"]
    assert job.tasks[0].pinned == "m0"
    assert job.tasks[0].demands == {"memory": 5.0}
    assert job.edges == (
        Edge(0, 1),
        Edge(1, 2),
        Edge(2, 2, lag=1),
        Edge(2, 0, lag=2, credit=True),
    )


def test_one_value_counts_for_every_iteration() -> None:
    job = custom_job(TASKS, FLOWS, 3, window=2)
    realization = custom_realization(job, TASKS, FLOWS)

    assert realization.times.tolist() == [[1, 1, 1], [1, 2, 1], [3, 3, 3]]
    assert realization.volumes.tolist() == [
        [40, 40, 40],
        [0, 2.5, 10],
        [0, 0, 0],
        [0, 0, 0],
    ]


def test_a_job_runs_as_long_as_the_task_that_runs_most_often() -> None:
    once = Task("once", "task", iterations=1)
    often = Task("often", "task", iterations=7)
    tasks = [CustomTask(task, 1.0) for task in (once, often, Task("else", "task"))]
    job = custom_job(tasks, [], 3)

    assert job.iterations == 7
    assert list(job.rounds) == [1, 7, 3]


def test_more_values_than_iterations_are_cut() -> None:
    short = custom_job(TASKS, FLOWS, 2)
    assert custom_realization(short, TASKS, FLOWS).times[1].tolist() == [1, 2]


def test_an_emulated_job_tells_every_task_its_payload_in_whole_real_bytes() -> None:
    job = custom_job(TASKS, FLOWS, 3, byte_scale=3.0)

    assert job.tasks[0].settings == {"payload_bytes": [[120, 120, 120]]}
    assert job.tasks[1].settings == {"payload_bytes": [[0, 8, 30]]}
    assert job.tasks[2].settings == {"payload_bytes": [[0, 0, 0]]}


def _tasks(*kinds: str) -> list[Task]:
    return [Task(f"{kind}{i}", kind) for i, kind in enumerate(kinds)]


def test_credits_go_from_every_reachable_worker_to_every_store() -> None:
    tasks = _tasks("graph_store", "graph_store", "worker", "worker", "parameter_server")
    edges = [Edge(0, 2), Edge(0, 3), Edge(1, 3), Edge(2, 4), Edge(4, 2, lag=1)]

    credits_ = credit_edges(tasks, edges, 1)

    assert [(e.source, e.destination) for e in credits_] == [(2, 0), (3, 0), (3, 1)]
    assert all(edge.lag == 1 and edge.credit for edge in credits_)


def test_without_stores_and_workers_the_ends_of_the_graph_count() -> None:
    """A diamond 0 -> {1, 2} -> 3: only 3 lets 0 go on."""
    edges = [Edge(0, 1), Edge(0, 2), Edge(1, 3), Edge(2, 3)]

    assert credit_edges(_tasks(*["task"] * 4), edges, 3) == (
        Edge(3, 0, lag=3, credit=True),
    )


def test_a_task_alone_needs_no_credit() -> None:
    assert credit_edges(_tasks("task"), [], 1) == ()


def test_unlimited_means_no_edges_and_nothing_less_than_one_is_a_window() -> None:
    tasks = _tasks("graph_store", "worker")

    assert credit_edges(tasks, [Edge(0, 1)], None) == ()
    with pytest.raises(ValueError, match="window of 0"):
        credit_edges(tasks, [Edge(0, 1)], 0)


def test_shapes_fit_the_job() -> None:
    job = custom_job(TASKS, FLOWS, 3, window=1)

    custom_realization(job, TASKS, FLOWS).check_shapes(job)
    assert np.isfinite(custom_realization(job, TASKS, FLOWS).volumes).all()


def test_a_window_that_no_iteration_reaches_makes_no_edges() -> None:
    tasks = [CustomTask(Task(name, "task"), 1.0) for name in "ab"]
    flows = [CustomFlow(NamedEdge("a", "b"), 1.0)]

    assert len(custom_job(tasks, flows, 3, window=3).edges) == 1
    assert custom_job(tasks, flows, 3, window=2).edges[1:] == (
        Edge(1, 0, lag=2, credit=True),
    )


FILE = """\
cluster: {machines: [{name: m, count: 2, nic: 1 MB/s}]}
job:
  system: custom
  iterations: 2
  tasks:
    - {name: a, time: 1 s, process: p}
    - {name: b, time: 2 s, server: q}
    - {name: c, time: 3 s}
    - {name: g, time: 4 s, gate: true}
  flows:
    - {from: a, to: b, volume: 10 B}
    - {from: b, to: c, volume: 20 B}
    - {from: g, to: a, volume: 0 B}
placement: {policy: explicit, tasks: {a: m0, b: m1, c: m1, g: m0}}
"""


def test_a_task_is_of_the_process_or_the_server_that_is_stated() -> None:
    """A server has a slot, of its name, that its tasks take by turns."""
    tasks = prepare(loads(FILE)).problem.job.tasks
    stated = [(task.name, task.process_name, task.takes, task.gate) for task in tasks]
    assert stated == [
        ("a", "p", "", False),
        ("b", "q", "q", False),
        ("c", "c", "", False),
        ("g", "g", "", True),
    ]


@pytest.mark.parametrize(
    ("flow", "words"),
    [
        ("{from: g, to: a, volume: 1 B}", "no bytes come to or leave the gate 'g'"),
        ("{from: c, to: g, volume: 1 B}", "no bytes come to or leave the gate 'g'"),
        ("{from: x, to: a, volume: 0 B}", "no task 'x'"),
        ("{from: g, to: y, volume: 0 B}", "no task 'y'"),
    ],
)
def test_flows_lead_from_task_to_task_and_none_with_bytes_to_a_gate(
    flow: str, words: str
) -> None:
    with pytest.raises(ScenarioError, match=words):
        prepare(loads(FILE.replace("{from: g, to: a, volume: 0 B}", flow)))


def test_ranks_of_an_exchange_run_as_often_as_each_other() -> None:
    exchange = "  collectives:\n    - allreduce: {among: [a, b], volume: 8 B}\n"
    text = FILE.replace("placement:", f"{exchange}placement:")
    assert prepare(loads(text)).problem.job.iterations == 2

    once = text.replace("process: p}", "process: p, iterations: 1}")
    with pytest.raises(ScenarioError, match=r"different numbers .*: a 1, b 2"):
        prepare(loads(once))


@pytest.mark.parametrize(
    ("stated", "key", "words"),
    [
        ("{among: [a, b], volume: 8 B, lag: 0}", "lag", "wait for the outcome later"),
        ("{among: [a, b], volume: 0 B}", "volume", "nothing to exchange"),
        ("{among: [a, b], volume: [0 B, 0 B]}", "volume", "nothing to exchange"),
        # Of two iterations the second has none stated.
        ("{among: [a, b], volume: [8 B]}", "volume", "1 value"),
        ("{among: [a, b, c], volume: 8 B, algorithm: halving_doubling}", "algorithm",
         "needs a power of two of ranks, not 3"),
        ("{among: [a], volume: 8 B}", "among", "name two or more$"),
    ],
)  # fmt: skip
def test_what_an_exchange_cannot_be(stated: str, key: str, words: str) -> None:
    text = FILE.replace(
        "placement:", f"  collectives: [allreduce: {stated}]\nplacement:"
    )
    with pytest.raises(ScenarioError, match=words) as error:
        loads(text)
    assert error.value.key == f"job.collectives[0].allreduce.{key}"


@pytest.mark.parametrize(
    "stated",
    [
        "{among: [a, b], volume: [0 B, 8 B]}",
        "{among: [a, b], then: [d, c], volume: 8 B, lag: 0}",
        "{among: [a, b], volume: 8 B, lag: 1}",
    ],
)
def test_what_an_exchange_may_be(stated: str) -> None:
    text = FILE.replace(
        "placement:", f"  collectives: [allreduce: {stated}]\nplacement:"
    )
    text = text.replace("  flows:", "    - {name: d, time: 1 s, pin: m0}\n  flows:")
    assert prepare(loads(text)).simulate().makespan > 0


@pytest.mark.parametrize(
    ("old", "new", "key", "words"),
    [
        (
            "placement:",
            "  collectives:\n    - allreduce: {among: [a, g], volume: 8 B}\nplacement:",
            "job.collectives[0].allreduce.among",
            "'g' is a gate, it brings nothing",
        ),
        (
            "process: p}",
            "process: z, slot: z}",
            "job.tasks[0].slot",
            "the process is called 'z' too, call one otherwise",
        ),
    ],
)
def test_what_a_gate_or_a_slot_cannot_be(
    old: str, new: str, key: str, words: str
) -> None:
    text = FILE.replace("nic: 1 MB/s", "nic: 1 MB/s, slots: {z: 1}")
    with pytest.raises(ScenarioError, match=words) as error:
        prepare(loads(text.replace(old, new)))
    assert error.value.key == key
