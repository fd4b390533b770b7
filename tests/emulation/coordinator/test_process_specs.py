"""Process descriptions: complete, msgpack-able, and on the right host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import msgpack
import numpy as np
import pytest

from emu.emulation.coordinator import RunSettings
from emu.emulation.coordinator import process_specs as process_specs_module
from emu.emulation.coordinator.cuts import CutPlan
from emu.emulation.coordinator.process_specs import (
    _machine_weights,
    check_ports,
    edge_end,
    process_specs,
    receive_sizes,
)
from emu.emulation.wire.frame_layout import Kind
from emu.emulation.wire.process_spec import ProcessSpec
from emu.errors import EmulatorError, ScenarioError
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Task,
)
from emu.problem.changes import SpeedChange
from emu.problem.job import TIMED, Cut
from emu.testing import two_machine_example


def test_description_of_a_task() -> None:
    problem, realization = two_machine_example(3, credit=2)
    settings = RunSettings(time_scale=0.1, deadline=7.0)
    described = process_specs(problem, settings, realization)
    worker = next(spec for spec in described if spec.process == "w0")
    task = worker.tasks[0]

    sent = [msgpack.unpackb(msgpack.packb(s, default=vars)) for s in described]
    assert [ProcessSpec.from_map(fields) for fields in sent] == described
    assert [spec.process for spec in described] == ["g0", "g1", "s0", "s1", "w0", "p0"]
    assert worker.settings.deadline == 7.0
    assert task.times == [3.0, 3.0, 3.0]
    assert [(end.peer, end.lag, end.shaped) for end in task.inputs] == [
        ("s0", 0, False),
        ("s1", 0, True),
        ("p0", 1, True),
    ]
    assert [end.peer for end in task.outputs] == ["p0"]  # credit is no connection


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (np.int64(4), r"is .*4.* \(int64\)"),
        ({4}, r"is \{4\} \(set\)"),
        (1 << 64, r"is 18446744073709551616 \(int\)"),
    ],
)
@pytest.mark.parametrize("owner", ["the job", "task w0"])
def test_a_setting_that_cannot_be_sent_names_its_system(
    value: object, found: str, owner: str
) -> None:
    problem, realization = two_machine_example(3)
    job_settings: dict[str, Any] = {"system": "mine"}
    settings = {"page": value}
    tasks = list(problem.job.tasks)
    if owner == "the job":
        job_settings |= settings
    else:
        place = [task.name for task in tasks].index("w0")
        tasks[place] = replace(tasks[place], settings=settings)
    job = replace(problem.job, tasks=tuple(tasks), settings=job_settings)
    problem = replace(problem, job=job)

    words = f"system mine: setting page of {owner} {found}"
    with pytest.raises(EmulatorError, match=words):
        process_specs(problem, RunSettings(), realization)


@pytest.mark.parametrize("wrong_job", ["one", "other"])
def test_settings_of_every_one_of_several_jobs_are_looked_at(wrong_job: str) -> None:
    problem, realization = two_machine_example(3)
    job_names = ["one", "other"] * 3
    tasks = []
    for task, job_name in zip(problem.job.tasks, job_names, strict=True):
        tasks.append(replace(task, name=f"{job_name}/{task.name}"))
    jobs: dict[str, dict[str, Any]] = {
        "one": {"system": "mine"},
        "other": {"system": "mine"},
    }
    jobs[wrong_job]["page"] = {4}
    job = replace(problem.job, tasks=tuple(tasks), settings={"jobs": jobs})
    problem = replace(problem, job=job)

    with pytest.raises(EmulatorError, match="system mine: setting page of the job"):
        process_specs(problem, RunSettings(), realization)


def test_settings_of_a_job_are_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check a job's settings once, though each of 1,000 processes gets them."""
    problem, realization = two_machine_example(3)
    job = replace(problem.job, settings={"system": "mine", "page": 4})
    problem = replace(problem, job=job)
    keys: list[str] = []

    def note(_kind: Kind, content: dict[str, Any]) -> None:
        keys.extend(content)

    monkeypatch.setattr(process_specs_module, "encode_message", note)
    specs = process_specs(problem, RunSettings(), realization)

    assert len(specs) == 6
    assert keys == ["system", "page"]


def test_a_process_knows_when_its_machine_is_slower() -> None:
    """Only m1 is, from 2 s on and once more from 5 s on."""
    problem, realization = two_machine_example(3)
    changes = (SpeedChange(2.0, "m1", 0.5), SpeedChange(5.0, "m1", 0.25))
    cluster = replace(problem.cluster, speed_changes=changes)
    problem = replace(problem, cluster=cluster)
    specs = process_specs(problem, RunSettings(), realization)
    first_tasks = {spec.process: spec.tasks[0] for spec in specs}

    assert first_tasks["g1"].speed_times == [0.0, 2.0, 5.0]
    assert first_tasks["g1"].speed_shares == [1.0, 0.5, 0.25]
    assert first_tasks["g0"].speed_shares == [1.0]


@pytest.mark.parametrize(("program", "rounds"), [(TIMED, 0), ("own:Computes", 2)])
def test_a_process_reserves_what_its_first_iterations_bring(
    program: str, rounds: int
) -> None:
    """Stores send 10 or 30 B per sampler, scaled to megabytes; no process has room."""
    problem, realization = two_machine_example(3, credit=2)
    tasks = tuple(replace(task, program=program) for task in problem.job.tasks)
    problem = replace(problem, job=replace(problem.job, tasks=tasks))
    job, volumes = problem.job, realization.volumes * [1.0, 2.0, 4.0]
    sampler = job.processes["s0"]

    sizes = receive_sizes(problem, sampler, volumes, RunSettings(byte_scale=1e6))
    tight = receive_sizes(
        problem, sampler, volumes, RunSettings(byte_scale=1e6, memory_limit=5e7)
    )

    edges = [e for e in job.in_edges(sampler[0]) if not job.edges[e].credit]
    expected = [int(volumes[e, n] * 1e6) for n in range(rounds) for e in edges]
    assert sizes == expected
    assert len({*expected}) == rounds
    assert tight == expected[: len(tight)]
    assert sum(tight) < 2.5e7


@pytest.mark.parametrize(("inward", "outward"), [(3.0, 20.0), (20.0, 3.0)])
def test_an_edge_has_the_capacity_of_its_narrowest_link(
    inward: float, outward: float
) -> None:
    problem, _ = two_machine_example(1)
    machines = [
        replace(machine, bandwidth_in=inward, bandwidth_out=outward)
        for machine in problem.cluster.machines
    ]
    cluster = replace(problem.cluster, machines=tuple(machines))
    problem = replace(problem, cluster=cluster)
    edges = [edge for edge, hops in enumerate(problem.hops) if hops]
    ends = [edge_end(problem, edge, incoming=True) for edge in edges]

    assert {end.capacity for end in ends} == {3.0}


def test_an_end_of_an_edge_has_every_field_of_it() -> None:
    """Edge 1 lands 0.25 s later at a machine, and is the only one that may be old."""
    machines = (
        Machine("m0", 10.0, 10.0, latency_out=0.0625),
        Machine("m1", 10.0, 10.0, latency_in=0.1875),
    )
    tasks = (Task("a", "x", process="p"), Task("b", "y", process="q"))
    edges = (Edge(0, 1), Edge(0, 1, 2, latest=True))
    problem = Problem(Cluster(machines), Job(tasks, edges, 5), Placement((0, 1)))

    source, destination = (
        edge_end(problem, 1, incoming=incoming) for incoming in (False, True)
    )
    assert (source.peer, source.peer_kind, source.peer_process) == ("b", "y", "q")
    peer = (destination.peer, destination.peer_kind, destination.peer_process)
    assert peer == ("a", "x", "p")
    for end in (source, destination):
        assert (end.edge, end.name) == (1, problem.job.edge_names[1])
        assert (end.lag, end.latest, end.shaped) == (2, True, True)
        assert (end.sent, end.latency, end.capacity) == (3, 0.25, 10.0)
    assert edge_end(problem, 0, incoming=True).sent == 5


def test_a_task_has_as_many_iterations_as_its_own_job() -> None:
    tasks = (Task("a", "x"), Task("b", "x", iterations=2))
    cluster = Cluster((Machine("m0", 1.0, 1.0),))
    problem = Problem(cluster, Job(tasks, (), 5), Placement((0, 0)))
    realization = Realization(np.ones((2, 5)), np.zeros((0, 5)))
    specs = process_specs(problem, RunSettings(), realization)

    assert [spec.tasks[0].iterations for spec in specs] == [5, 2]


def test_tasks_that_make_cuts_know_when_and_who_begins_with_which() -> None:
    """Two servers keep state, and the worker begins with both."""
    tasks = (Task("ps0", "ps"), Task("ps1", "ps"), Task("w0", "w"))
    problem = Problem(
        Cluster((Machine("m0", 1.0, 1.0),)), Job(tasks, (), 9), Placement((0, 0, 0))
    )
    begins = {"ps0": ("ps0",), "w0": ("ps0", "ps1")}
    for first, restores in (
        (0, [(), (), ()]),
        (4, [("ps0",), (), ("ps0", "ps1")]),
    ):
        plan = CutPlan(begins, every=2, keep=lambda _: None, start=Cut(first, {}))
        settings = RunSettings(cuts=plan)
        times = Realization(np.ones((3, 9)), np.zeros((0, 9)))
        specs = process_specs(problem, settings, times)
        found = [spec.tasks[0] for spec in specs]
        assert [task.every for task in found] == [2, 2, 0]
        assert [task.restores for task in found] == restores
        assert {spec.first for spec in specs} == {first}


@pytest.mark.parametrize(
    ("ports", "hosts", "extra", "needs"),
    [
        (None, ["a"] * 9, 1, 0),
        ((5, 7), [], 1, 0),
        ((5, 7), ["b", "a", "a", "a"], 0, 0),
        ((5, 7), ["b", "a", "a", "a"], 1, 4),
        ((5, 6), ["b", "a", "a", "a"], 0, 3),
    ],
)
def test_a_host_has_a_port_for_each_of_its_processes(
    ports: tuple[int, int] | None, hosts: list[str], extra: int, needs: int
) -> None:
    if not needs:
        check_ports(ports, hosts, extra=extra)
        return
    command = " and one for this command" if extra else ""
    with pytest.raises(ScenarioError, match=f"a needs {needs} ports.*{command}"):
        check_ports(ports, hosts, extra=extra)


def test_processes_share_what_is_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six tasks in two processes: each may take half of what there is."""
    problem, realization = two_machine_example(1)
    machine_of = problem.placement.machine_of
    tasks = [
        replace(task, program="own:Computes", process=f"of{machine_of[number]}")
        for number, task in enumerate(problem.job.tasks)
    ]
    problem = replace(problem, job=replace(problem.job, tasks=tuple(tasks)))
    members = problem.job.processes["of1"]
    settings = RunSettings(byte_scale=1.0)
    monkeypatch.setattr(process_specs_module, "_RESERVED", 1e9)
    all_sizes = receive_sizes(problem, members, realization.volumes, settings)
    assert len(all_sizes) > 1

    monkeypatch.setattr(process_specs_module, "_RESERVED", 2 * sum(all_sizes) + 1)
    sizes = receive_sizes(problem, members, realization.volumes, settings)
    assert sizes == all_sizes


@pytest.mark.parametrize(("limit", "taken"), [(80, []), (81, [40]), (141, [40, 30])])
def test_buffers_take_less_than_half_of_the_memory(
    limit: float, taken: list[int]
) -> None:
    """Iterations bring 40 B, then 30 B; the third is not thought of."""
    problem = Problem(
        Cluster((Machine("m0", 9.0, 9.0), Machine("m1", 9.0, 9.0))),
        Job((Task("a", "x"), Task("b", "x", program="own:Computes")), (Edge(0, 1),), 3),
        Placement((0, 1)),
    )
    volumes = np.array([[40.0, 30.0, 1.0]])
    settings = RunSettings(memory_limit=limit)
    assert receive_sizes(problem, [1], volumes, settings) == taken


def test_edges_have_ports_of_their_own_where_nics_are_of_the_kernel() -> None:
    problem, realization = two_machine_example(1)
    nics = cast("Any", object())
    for settings, port in (
        (RunSettings(), None),
        (RunSettings(kernel_nics=nics), 8192),
    ):
        specs = process_specs(problem, settings, realization)
        assert {spec.source_port for spec in specs} == {port}


def test_real_computation_has_no_times() -> None:
    problem, realization = two_machine_example(1)
    settings = RunSettings(compute="real")
    described = process_specs(problem, settings, realization)

    assert described[0].tasks[0].times is None


@pytest.mark.parametrize(
    "wrong",
    [{"time_scale": 0.0}, {"byte_scale": -1.0}, {"deadline": float("nan")}],
)
def test_settings_that_cannot_be(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RunSettings(**wrong)  # type: ignore[arg-type]


def test_a_machine_weighs_what_it_sends_and_receives_and_its_processes() -> None:
    """30 B go from m0 to m1 and 10 B to m2; handoffs within a machine are nothing."""
    machines = tuple(Machine(f"m{number}", 10.0, 10.0) for number in range(3))
    tasks = tuple(Task(name, "x") for name in "abcd")
    job = Job(tasks, (Edge(0, 1), Edge(0, 2), Edge(0, 3)), 2)
    problem = Problem(Cluster(machines), job, Placement((0, 1, 2, 0)))
    volumes = np.array([[10.0, 20.0], [10.0, 0.0], [99.0, 99.0]])

    weights = _machine_weights(problem, volumes)

    assert weights[:, 0].tolist() == pytest.approx([40 / 80, 30 / 80, 10 / 80])
    assert weights[:, 1].tolist() == pytest.approx([2 / 4, 1 / 4, 1 / 4])
