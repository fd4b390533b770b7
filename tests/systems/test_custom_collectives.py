"""Collectives of custom jobs: tasks, bytes, lags and channels, rank by rank."""

from __future__ import annotations

from typing import Any

import pytest

from emu.problem import Task
from emu.problem.workloads.all_reduce import ALL_REDUCE, NamedEdge
from emu.systems.custom.job import (
    AllReduceSection,
    CollectiveSection,
    CustomFlow,
    CustomTask,
    custom_job,
    custom_realization,
    with_collectives,
)

TASKS = [
    CustomTask(Task("a", "worker", {"cpu": 2.0}, "m0", process="p", takes="gpu"), 1.0),
    CustomTask(Task("b", "worker", pinned="m1"), 2.0),
    CustomTask(Task("c", "worker", pinned="m2"), 3.0),
    CustomTask(Task("x", "task"), 4.0),
    CustomTask(Task("y", "task"), 5.0),
    CustomTask(Task("z", "task"), 6.0),
]


def collective_of(kind: str, **keys: Any) -> CollectiveSection:
    stated = {"among": ["a", "b", "c"], "volume": "12 B", **keys}
    return CollectiveSection.model_validate({kind: stated})


def sent(flows: list[CustomFlow]) -> dict[tuple[str, str], Any]:
    """Return the bytes of every flow that has some, by the names of its ends."""
    pairs = {}
    for flow in flows:
        if flow.volume:
            pairs[flow.edge.source, flow.edge.destination] = flow.volume
    return pairs


@pytest.mark.parametrize(
    ("kind", "keys", "each", "count"),
    [
        # Three ranks in a ring: two steps that sum and two that gather, thirds of 12.
        ("allreduce", {"segments": 1}, 4.0, 3 * 4),
        ("allreduce", {}, 2.0, 3 * 4 * 2),
        ("reduce_scatter", {}, 4.0, 3 * 2),
        ("allgather", {}, 12.0, 3 * 2),
        ("alltoall", {}, 4.0, 3 * 2),
        ("alltoall", {"segments": 3}, 4 / 3, 3 * 2 * 3),
    ],
)
def test_each_flow_has_its_chunks_of_what_a_rank_brings(
    kind: str, keys: dict[str, Any], each: float, count: int
) -> None:
    collective = collective_of(kind, **keys)
    _, flows = with_collectives(TASKS, [], [collective])
    sizes = sent(flows)
    assert list(sizes.values()) == pytest.approx([each] * count)
    # Beside those that begin and end a rank's way through a segment.
    ends = 2 * 3 * collective.exchange.segments
    assert len(flows) == collective.edges + ends


def test_a_broadcast_is_of_all_that_the_first_has() -> None:
    _, flows = with_collectives(TASKS, [], [collective_of("broadcast")])
    received = {name.partition(".")[0]: size for (_, name), size in sent(flows).items()}
    assert received == {"b": 12.0, "c": 12.0}


def test_bytes_of_iterations_are_parted_one_by_one() -> None:
    collective = collective_of("allreduce", volume=["12 B", "30 B"], segments=1)
    _, flows = with_collectives(TASKS, [], [collective])
    assert set(sent(flows).values()) == {(4.0, 10.0)}


def test_steps_are_tasks_in_the_processes_of_their_ranks() -> None:
    """The second collective has number 1; a step demands and holds nothing."""
    collectives = [collective_of("allreduce"), collective_of("alltoall")]
    tasks, flows = with_collectives(TASKS, [], collectives)
    steps = {task.name: task for task, time in tasks[len(TASKS) :] if not time}
    assert len(steps) == len(tasks) - len(TASKS) == 3 * 5 * 2 + 3 * 2
    first, second = steps["a.allreduce0.1.4"], steps["a.alltoall1.0.1"]
    assert (first.kind, second.kind) == (ALL_REDUCE, "alltoall")
    for step in (first, second):
        assert (step.process, step.pinned) == ("p", "m0")
        assert (step.demands, step.takes, step.frees) == ({}, "", None)

    for source, to in sent(flows):
        sending = steps[source].settings["exchange"]
        receiving = steps[to].settings["exchange"]
        assert sending["to"][to] == receiving["rank"]
        assert receiving["from"][source] == sending["rank"]
        assert receiving["step"] == sending["step"] + 1
        assert receiving["key"] == sending["key"]
    # Nothing has come before the first step, and nothing goes on from the last.
    for step in steps.values():
        exchange = step.settings["exchange"]
        last = 4 if step.kind == ALL_REDUCE else 1
        assert bool(exchange["from"]) == (exchange["step"] > 0)
        assert bool(exchange["to"]) == (exchange["step"] < last)
        assert exchange["ranks"] == 3
    assert first.settings["exchange"]["key"] == [0, 1]
    assert first.settings["exchange"]["chunk"] == 2.0
    assert second.settings["exchange"]["algorithm"] == "direct"


@pytest.mark.parametrize(
    ("keys", "readers", "lag"),
    [
        ({}, "abc", 1),
        ({"lag": 3}, "abc", 3),
        ({"then": ["z", "x", "y"]}, "zxy", 0),
        ({"then": ["z", "x", "y"], "lag": 2}, "zxy", 2),
    ],
)
def test_the_outcome_is_waited_for_by_the_rank_itself_or_another_task(
    keys: dict[str, Any], readers: str, lag: int
) -> None:
    collective = collective_of("allgather", **keys)
    _, flows = with_collectives(TASKS, [], [collective])
    names = {task.name for task, _ in TASKS}
    outcomes = [flow.edge for flow in flows if flow.edge.destination in names]
    expected = [
        NamedEdge(f"{rank}.allgather0.0.2", reader, lag)
        for rank, reader in zip("abc", readers, strict=True)
    ]
    assert outcomes == expected


@pytest.mark.parametrize(
    ("kind", "keys", "is_direct"),
    [
        ("allgather", {}, True),
        ("alltoall", {}, True),
        ("broadcast", {}, False),
        ("allreduce", {"algorithm": "halving_doubling", "among": ["a", "b"]}, False),
    ],
)
def test_a_rank_sends_to_one_after_the_other_but_where_all_goes_at_once(
    kind: str, keys: dict[str, Any], *, is_direct: bool
) -> None:
    _, flows = with_collectives(TASKS, [], [collective_of(kind, **keys)])
    for flow in flows:
        if flow.volume:
            sender, receiver = flow.edge.source[0], flow.edge.destination[0]
            channel = f"{sender}->{receiver}" if is_direct else f"{sender}->"
            assert flow.edge.channel == channel


def test_a_shuffle_sends_from_each_to_each() -> None:
    stated = {
        "from": ["a", "b", "c"],
        "to": ["x", "y"],
        "volume": ["1 B", "3 B"],
        "coflow": "k",
    }
    collective = CollectiveSection.model_validate({"shuffle": stated})
    tasks, flows = with_collectives(TASKS, [], [collective])
    assert tasks == TASKS
    assert collective.edges == len(flows) == 6
    sizes = {"x": 1.0, "y": 3.0}
    assert sent(flows) == {(source, to): sizes[to] for to in "xy" for source in "abc"}
    assert {flow.edge.coflow for flow in flows} == {"k"}


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ([], "found none, write one: allreduce, allgather"),
        (["broadcast", "alltoall"], "found alltoall and broadcast, write one"),
    ],
)
def test_a_collective_is_of_one_kind(kinds: list[str], words: str) -> None:
    stated = {kind: {"among": ["a", "b"], "volume": "8 B"} for kind in kinds}
    with pytest.raises(ValueError, match=words):
        CollectiveSection.model_validate(stated)


def test_an_algorithm_that_ranks_cannot_run_has_no_edges() -> None:
    """It is refused elsewhere; to count its edges is no error."""
    collective = collective_of("allreduce", algorithm="halving_doubling")
    assert collective.edges == 0
    stated = {"among": ["a", "b"], "volume": "8 B"}
    assert AllReduceSection.model_validate(stated).segments == 2


def test_tasks_that_run_fewer_times_have_no_times_behind() -> None:
    tasks = [
        CustomTask(Task("a", "task", iterations=2), (1.0, 2.0, 3.0)),
        CustomTask(Task("b", "task"), 5.0),
        CustomTask(Task("g", "barrier", gate=True), 0.0),
    ]
    flows = [
        CustomFlow(NamedEdge("a", "b"), 2.5),
        CustomFlow(NamedEdge("b", "g"), 0.0),
        CustomFlow(NamedEdge("b", "a", lag=1), (4.0, 1e30, 6.0)),
    ]
    job = custom_job(tasks, flows, 3, byte_scale=0.5)
    assert [task.iterations for task in job.tasks] == [2, None, None]
    realization = custom_realization(job, tasks, flows)
    assert realization.times.tolist() == [[1, 2, 0], [5, 5, 5], [0, 0, 0]]
    assert realization.volumes.tolist() == [[2.5, 2.5, 0], [0, 0, 0], [4, 1e30, 6]]
    # Halves of bytes go to the even number; what fits no number is cut.
    payloads = [task.settings["payload_bytes"] for task in job.tasks]
    assert payloads == [[[1, 1, 0]], [[2, 2**62, 3]], []]
    assert all("byte_scale" not in task.settings for task in job.tasks)


def test_steps_of_collectives_scale_their_own_bytes() -> None:
    tasks, flows = with_collectives(TASKS, [], [collective_of("alltoall")])
    job = custom_job(tasks, flows, 2, byte_scale=0.25)
    step = job.tasks[job.index("a.alltoall0.0.0")]
    assert step.settings["byte_scale"] == 0.25
    assert "byte_scale" not in job.tasks[0].settings
    assert custom_job(tasks, flows, 2).tasks[0].settings == {}
