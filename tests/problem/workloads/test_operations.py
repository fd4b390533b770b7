"""Operations of tasks and layers, counted by hand where no two sizes are equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emu.problem import Edge, Job, Task
from emu.problem.workloads.all_reduce import RECEIVE
from emu.problem.workloads.model_shapes import SampleCounts
from emu.problem.workloads.operations import (
    OPERATIONS,
    LayerWork,
    Operations,
    count_layer,
    count_layers,
)


def of(operations: Operations, name: str) -> Any:
    return operations.counts[OPERATIONS.index(name)].tolist()


def test_amounts_add_up_by_task_operation_and_iteration() -> None:
    operations = Operations(Job((Task("a", "x"), Task("b", "y")), (), 3))
    operations.add(1, {"sample": 2.0, "step": [1.0, 2.0, 3.0]})
    operations.add(1, {"sample": [5.0, 7.0]}, slice(1, 3))
    operations.add(0, {"launch": 4.0}, slice(0, 1))

    assert of(operations, "sample") == [[0.0, 0.0, 0.0], [2.0, 7.0, 9.0]]
    assert of(operations, "step") == [[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]]
    assert of(operations, "launch") == [[4.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert not operations.counts[OPERATIONS.index("collect")].any()


def test_each_task_takes_the_rates_of_its_device() -> None:
    """Two samples and three steps: 2 * 10 + 3 * 1 s of a, 2 * 5 + 3 * 7 s of b."""
    operations = Operations(Job((Task("a", "x"), Task("b", "y")), (), 1))
    for task in (0, 1):
        operations.add(task, {"sample": 2.0, "step": 3.0})
    slow = dict.fromkeys(OPERATIONS, 0.0) | {"sample": 10.0, "step": 1.0}
    fast = dict.fromkeys(OPERATIONS, 0.0) | {"sample": 5.0, "step": 7.0}

    assert operations.seconds([slow, fast]).tolist() == [[23.0], [31.0]]


def test_bytes_are_collected_by_who_sends_them() -> None:
    """Stores a and b send; what c, a sampler, sends on has been collected before."""
    tasks = (Task("a", "s"), Task("b", "t"), Task("c", "sampler"), Task("d", "w"))
    edges = (Edge(0, 2), Edge(0, 3), Edge(1, 2), Edge(2, 3))
    job = Job(tasks, edges, 2)
    volumes = np.array([[1.0, 2.0], [10.0, 20.0], [300.0, 400.0], [5e3, 6e3]])
    operations = Operations(job)
    operations.add_bytes(job, volumes, "s", "t")

    assert of(operations, "collect") == [[11, 22], [300, 400], [0, 0], [0, 0]]


def test_gradients_are_added_by_servers_and_the_first_half_of_a_ring() -> None:
    """A ring of three ranks has four steps, of which two add; a number has 4 bytes."""

    def receiver(step: int) -> Task:
        settings = {"algorithm": "ring", "ranks": 3, "step": step}
        name = f"r{step}"
        return Task(name, "all_reduce", program=RECEIVE, settings=settings)

    tasks = (
        Task("w", "worker"),
        Task("ps", "parameter_server"),
        *(receiver(step) for step in range(4)),
        Task("step", "all_reduce", settings={"algorithm": "ring", "ranks": 3}),
    )
    edges = (*(Edge(0, number) for number in range(1, 7)), Edge(1, 0, lag=1))
    job = Job(tasks, edges, 2)
    volumes = np.array([[4.0 * n, 8.0 * n] for n in range(1, 8)])
    operations = Operations(job)
    operations.add_gradients(job, volumes, 4, "parameter_server")

    nothing = [0.0, 0.0]
    sums = [nothing, [1.0, 2.0], [2.0, 4.0], [3.0, 6.0], nothing, nothing, nothing]
    assert of(operations, "step") == sums


#: Edges of a block, and vertices before and after it.
BLOCK = (7, 11, 2)


@pytest.mark.parametrize(
    ("kind", "widths", "shortens", "expected"),
    [
        ("sage", (5, 3), None, LayerWork(7 * 3, 11 * 15 + 2 * 15, narrows=True)),
        ("sage", (3, 5), None, LayerWork(7 * 3, 2 * 15 + 2 * 15, narrows=False)),
        ("sage", (4, 4), None, LayerWork(7 * 4, 2 * 16 + 2 * 16, narrows=False)),
        ("commnet", (5, 3), None, LayerWork(7 * 3, 11 * 15 + 2 * 15, narrows=True)),
        ("gcn", (5, 3), None, LayerWork(7 * 3, 11 * 15, narrows=True)),
        ("gcn", (3, 5), None, LayerWork(7 * 3, 2 * 15, narrows=False)),
        ("gcn", (3, 5), True, LayerWork(7 * 5, 11 * 15, narrows=True)),
        ("gcn", (5, 3), False, LayerWork(7 * 5, 2 * 15, narrows=False)),
        ("gat", (5, 3), None, LayerWork((7 + 2) * 3, 11 * 15, narrows=True)),
        ("gat", (3, 5), None, LayerWork((7 + 2) * 5, 11 * 15, narrows=True)),
        ("gin", (5, 3), None, LayerWork(7 * 5, 2 * 15, narrows=False, outer=2 * 9)),
        ("gin", (3, 5), None, LayerWork(7 * 3, 2 * 15, narrows=False, outer=2 * 25)),
    ],
)
def test_a_layer_multiplies_before_or_after_it_adds_up(
    *,
    kind: str,
    widths: tuple[int, int],
    shortens: bool | None,
    expected: LayerWork,
) -> None:
    assert count_layer(kind, widths, *BLOCK, shortens=shortens) == expected


@pytest.mark.parametrize(
    ("narrows", "first", "expected"),
    [
        (True, False, (3.0, 2 * 5.0 + 2 * 7.0)),
        (True, True, (3.0, 5.0 + 2 * 7.0)),
        (False, False, (3.0, 2 * 5.0 + 2 * 7.0)),
        (False, True, (0.0, 5.0 + 2 * 7.0)),
    ],
)
def test_a_backward_pass_has_no_gradients_of_features(
    *, narrows: bool, first: bool, expected: tuple[float, float]
) -> None:
    work = LayerWork(3.0, 5.0, narrows=narrows, outer=7.0)
    backward = work.backward(first=first)

    assert work.forward == {"aggregate": 3.0, "multiply": 12.0, "launch": 1.0}
    aggregate, multiply = expected
    assert backward == {"aggregate": aggregate, "multiply": multiply, "launch": 1.0}


#: Samples of two mini-batches over two hops and two stores.
SAMPLES = (
    SampleCounts(
        owned=(3, 4),
        edges=12,
        seeds=2,
        frontier_owned=((1, 1), (2, 3)),
        answered=((2, 1), (4, 5)),
    ),
    SampleCounts(
        owned=(1, 2),
        edges=5,
        seeds=1,
        frontier_owned=((1, 0), (2, 0)),
        answered=((1, 0), (2, 2)),
    ),
)


def test_layers_go_from_the_input_whose_blocks_were_drawn_last() -> None:
    """Widths are 5, 4 and 3; the first batch has 7, 5 and 2 vertices, 9 and 3 edges."""
    model = {"hidden": 4, "layers": 2}
    first, second = count_layers(model, 5, 3, SAMPLES)

    assert first.aggregate.tolist() == [9 * 4, 4 * 4]
    assert first.multiply.tolist() == [(7 + 5) * 20, (3 + 2) * 20]
    assert second.aggregate.tolist() == [3 * 3, 1 * 3]
    assert second.multiply.tolist() == [(5 + 2) * 12, (2 + 1) * 12]

    attention, _ = count_layers({**model, "kind": "gat"}, 5, 3, SAMPLES)
    assert attention.aggregate.tolist() == [(9 + 5) * 4, (4 + 2) * 4]
    (only,) = count_layers({"hidden": 4, "layers": 1, "kind": "gcn"}, 5, 3, SAMPLES)
    assert only.multiply.tolist() == [7 * 15, 3 * 15]
