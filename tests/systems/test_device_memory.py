"""Memory of devices by hand: batches of unequal layers, machines of unequal rooms."""

from __future__ import annotations

import pytest

from emu.errors import ScenarioError
from emu.problem import Cluster, Job, Machine, Task
from emu.problem.workloads.model_shapes import SampleCounts
from emu.systems.device_memory import (
    COLUMNS,
    RESOURCE,
    ROWS,
    batch_bytes,
    demand_devices,
    most_of_batches,
    weight_bytes,
)

#: 7 inputs, of which 4 vertices are computed in layer 1, and 2 in layer 2.
COUNTS = SampleCounts(
    owned=(3, 4),
    edges=9,
    seeds=2,
    frontier_owned=((2, 0), (1, 3)),
    answered=((3, 0), (2, 4)),
)


def test_a_batch_has_its_features_edges_and_what_every_layer_computes() -> None:
    """Layer 1 is 5 wide and layer 2 is 3; each number has a gradient beside it."""
    features = 10 * 7
    edges = 8 * 9
    numbers = 4 * 5 + 2 * 3
    model = {"hidden": 5, "layers": 2}
    assert batch_bytes(COUNTS, model, 3, 10, 4) == features + edges + 2 * 4 * numbers
    assert batch_bytes(COUNTS, {"program": "a.py"}, 3, 10, 4) == features + edges


def test_the_fullest_iteration_is_that_of_all_samplers_together() -> None:
    assert most_of_batches([[1, 9, 3], [5, 2, 7]]) == 11.0


@pytest.mark.parametrize(
    ("name", "steps", "vectors"),
    [("adam", True, 4), ("adam", False, 2), ("sgd", True, 2)],
)
def test_adam_keeps_two_moments(name: str, *, steps: bool, vectors: int) -> None:
    settings = {"optimizer": {"name": name}, "precision": "float64"}
    assert weight_bytes(settings, 6, steps=steps) == vectors * 6 * 8


#: Machine -> bytes of its device; the roomiest is neither the first nor the last.
ROOMS = {"m0": 50.0, "m1": 100.0, "m2": 70.0}


def devices(rooms: dict[str, float | None]) -> Cluster:
    machines = [
        Machine(name, 1.0, 1.0, resources={} if room is None else {RESOURCE: room})
        for name, room in rooms.items()
    ]
    return Cluster(tuple(machines))


def job_of(*tasks: Task) -> Job:
    return Job(tasks, (), 1)


def test_what_moves_has_to_fit_on_the_roomiest_machine() -> None:
    job = job_of(Task("a", "worker"), Task("b", "worker", {RESOURCE: 30.0}))
    parts = {"a": {"weights": 150.0, ROWS: 40.0}, "b": {"weights": 9e9}}
    found = demand_devices(job, devices({**ROOMS}), parts, 2.0)
    # Of a 190 real bytes are 95; what the file states of b holds.
    assert [task.demands for task in found.tasks] == [
        {RESOURCE: 95.0},
        {RESOURCE: 30.0},
    ]

    with pytest.raises(ScenarioError) as error:
        demand_devices(job, devices({**ROOMS}), parts, 1.0)
    assert error.value.problem == (
        "190 B of gpu_memory are needed on m1, 90 B more than there are: 150 B of "
        "weights, 40 B of rows of features"
    )
    # A machine that states no memory of its device has no bound.
    demand_devices(job, devices({**ROOMS, "m3": None}), parts, 1.0)


@pytest.mark.parametrize(
    ("cause", "is_movable"), [(ROWS, True), (COLUMNS, True), ("x", False)]
)
def test_features_may_lie_elsewhere_where_the_rest_fits(
    cause: str, *, is_movable: bool
) -> None:
    job = job_of(Task("a", "worker", pinned="m2"))
    parts = {"a": {cause: 60.0, "weights": 65.0}}
    with pytest.raises(ScenarioError, match="needed on m2, 55 B more") as error:
        demand_devices(job, devices({**ROOMS}), parts, 1.0)
    assert ("host keeps features elsewhere" in error.value.problem) is is_movable
    # To the last byte of its 70.
    for weights, fits in ((70.0, is_movable), (71.0, False)):
        parts["a"]["weights"] = weights
        with pytest.raises(ScenarioError, match=r"needed on m2, 6\d B more") as error:
            demand_devices(job, devices({**ROOMS}), parts, 1.0)
        assert ("elsewhere" in error.value.problem) is fits


def test_what_just_fits_is_demanded() -> None:
    job = job_of(Task("a", "worker", pinned="m2"))
    parts = {"a": {"weights": 70.0}}
    (task,) = demand_devices(job, devices({**ROOMS}), parts, 1.0).tasks
    assert task.demands == {RESOURCE: 70.0}
