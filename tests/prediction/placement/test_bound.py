"""The bound by ports, where every placement but one is excluded: exact by hand."""

from __future__ import annotations

import numpy as np
import pytest

from emu.prediction.placement.bound import placement_bound
from emu.prediction.simulation import simulate
from emu.problem import (
    CapacityChange,
    Cluster,
    Edge,
    Job,
    Link,
    Machine,
    Placement,
    Problem,
    Realization,
    Route,
    Task,
)

#: Bytes per second of each NIC: no two are alike.
NICS = {"m0 in": 10.0, "m0 out": 40.0, "m1 in": 20.0, "m1 out": 5.0}


def task(name: str, machine: str, *, pinned: bool) -> Task:
    """Return a task that stands on a machine: pinned, or by what it demands."""
    return Task(name, "task", {machine: 1.0}, pinned=machine if pinned else None)


@pytest.mark.parametrize("there", ["m0", "m1"])
@pytest.mark.parametrize("pinned", [(True, False), (False, True), (False, False)])
@pytest.mark.parametrize("risen", ["", "m0 in", "m0 out", "m1 in", "m1 out"])
def test_the_bound_is_exact_where_there_is_one_placement(
    there: str, pinned: tuple[bool, bool], risen: str
) -> None:
    """200 B after 1 s, needed for 2 s, and 1 B beside them with longer times."""
    here = "m1" if there == "m0" else "m0"
    machines = tuple(
        Machine(m, NICS[f"{m} in"], NICS[f"{m} out"], {m: 3.0, o: 0.0})
        for m, o in (("m0", "m1"), ("m1", "m0"))
    )
    rising = [CapacityChange(0.5, risen, 100.0)] if risen else []
    cluster = Cluster(machines, changes=tuple(rising))
    tasks = (
        task("a", here, pinned=pinned[0]),
        task("b", there, pinned=pinned[1]),
        task("c", here, pinned=True),
        task("d", there, pinned=False),
    )
    job = Job(tasks, (Edge(0, 1), Edge(2, 3)), 1)
    run = Realization(
        np.array([[1.0], [2.0], [1.5], [2.5]]), np.array([[200.0], [1.0]])
    )
    most = NICS | ({risen: 100.0} if risen else {})
    narrow = min(most[f"{here} out"], most[f"{there} in"])

    bound = placement_bound(job, cluster, run)

    assert bound == pytest.approx(3.0 + 201.0 / narrow, rel=1e-5)
    machine_of = tuple(int(name[1]) for name in (here, there, here, there))
    problem = Problem(cluster, job, Placement(machine_of))
    assert bound <= simulate(problem, run).makespan


def test_the_bound_counts_what_stands_still_and_room_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both ends pinned, and a task that may stand anywhere but beside them."""
    room = {"cpu": 2.0}
    machines = (Machine("m0", 10.0, 40.0, room), Machine("m1", 20.0, 5.0, room))
    tasks = (
        Task("a", "task", {"cpu": 2.0}, pinned="m0"),
        Task("b", "task", {"cpu": 1.0}, pinned="m1"),
        Task("c", "task", {"cpu": 1.0}),
    )
    job = Job(tasks, (Edge(0, 1), Edge(1, 2)), 1)
    run = Realization(np.array([[1.0], [2.0], [4.0]]), np.array([[200.0], [300.0]]))

    # c stands beside b: no room is left beside a, to which b would send for 60 s.
    bound = placement_bound(job, Cluster(machines), run)

    assert bound == pytest.approx(1.0 + 200.0 / 20.0 + 4.0, rel=1e-5)
    monkeypatch.setattr("emu.prediction.placement.bound.LARGEST", 1)
    alone = placement_bound(job, Cluster(machines), run)  # no transfer takes any time
    assert alone == pytest.approx(1.0 + 2.0 + 4.0)


def test_a_nic_that_a_route_leaves_out_one_way_bounds_only_the_other() -> None:
    """200 B over a link of 100 B/s, past NICs of 1 B/s that would take 200 s."""
    machines = tuple(Machine(name, 1.0, 1.0) for name in ("m0", "m1", "m2"))
    past = Route((0,), (1,), ("beside",))
    cluster = Cluster(machines, (Link("beside", 100.0),), (past,))
    tasks = (
        Task("a", "task", pinned="m0"),
        Task("b", "task", pinned="m1"),
        Task("c", "task"),
    )
    job = Job(tasks, (Edge(0, 1),), 1)
    run = Realization(np.array([[1.0], [2.0], [0.5]]), np.array([[200.0]]))

    bound = placement_bound(job, cluster, run)

    problem = Problem(cluster, job, Placement((0, 1, 2)))
    assert simulate(problem, run).makespan == pytest.approx(5.0)
    assert 3.0 - 1e-5 <= bound <= 5.0


def test_units_have_room_where_their_sum_is_above_it_by_rounding_alone() -> None:
    """A tenth and two tenths fill three tenths; all bytes stay where they are made."""
    machines = (
        Machine("m0", 1.0, 1.0, {"cpu": 0.3}),
        Machine("m1", 1.0, 1.0, {"cpu": 0.0}),
    )
    assert 0.1 + 0.2 > 0.3
    tasks = (Task("a", "t", {"cpu": 0.1}), Task("b", "t", {"cpu": 0.2}))
    job = Job(tasks, (Edge(0, 1),), 1)
    run = Realization(np.array([[1.0], [2.0]]), np.array([[5.0]]))
    assert placement_bound(job, Cluster(machines), run) == 3.0
