"""Fits without all-reduces: known jobs of drawn times come out again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import emu
from emu.lab.fitting.calls import Sent
from emu.lab.fitting.causes import DRAINED, FittedSteps, find_causes, overtaken
from emu.lab.fitting.conversations import Unfittable
from emu.lab.fitting.fitted_job import write_fit
from emu.lab.fitting.iterations import _common_clock, fit_traffic
from emu.lab.fitting.steps import ALL, FULL, Crossed, Step, _Iterations, _silence
from emu.scenario.scenario_file import loads
from tests import draws
from tests.lab.fitting.crossed import crossed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.lab.fitting.conversations import Process
    from emu.lab.fitting.steps import Marks
    from emu.prediction.analysis.traffic import Traffic
    from emu.problem import Schedule

    Ends = tuple[Process, Process]
    Row = NDArray[np.float64]

PROGRAMS = ("server", "worker")
ITERATIONS = 12
Document = dict[str, Any]


class Build:
    """A job on machines of its own, by tasks named ``program-machine.part``."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.tasks: list[Document] = []
        self.flows: list[Document] = []

    def task(self, name: str, low: float, high: float) -> None:
        """Add a task of a drawn time, a little other in every iteration."""
        times = self._rng.uniform(low, high) * self._rng.uniform(0.95, 1.05, ITERATIONS)
        self.tasks.append({"name": name, "time": [f"{each:.6f} s" for each in times]})

    def flow(self, source: str, to: str, size: int = 0, lag: int = 0) -> None:
        """Add a flow."""
        flow = {"from": source, "to": to, "volume": f"{size} B", "lag": lag}
        self.flows.append(flow)

    def scenario(self) -> Document:
        """Return the job, each task on the machine of its name."""
        names = [task["name"] for task in self.tasks]
        where = {name: name.split("-")[1].split(".")[0] for name in names}
        machines = [{"name": m, "nic": "10 Mbit/s"} for m in sorted({*where.values()})]
        return {
            "cluster": {"machines": machines},
            "job": {
                "system": "custom",
                "iterations": ITERATIONS,
                "tasks": self.tasks,
                "flows": self.flows,
                "credit_window": "unlimited",
            },
            "placement": {"policy": "explicit", "tasks": where},
            "schedule": {"policy": "maxmin"},
        }


def averaging(seed: int) -> Document:
    """Return workers that all send to a server, which answers all of them."""
    build = Build(seed)
    build.task("server-m0.sum", 0.004, 0.006)
    for i in (1, 2, 3):
        build.task(f"worker-m{i}.think", 0.03, 0.03 + 0.01 * i)
        build.flow(f"worker-m{i}.think", "server-m0.sum", 9000 + 1000 * i)
        build.flow("server-m0.sum", f"worker-m{i}.think", 12000, lag=1)
    return build.scenario()


def asking(seed: int) -> Document:
    """Return workers that ask a server twice, each in its own time."""
    build = Build(seed)
    for i in (1, 2, 3):
        for part in ("pull", "push"):
            build.task(f"worker-m{i}.{part}", 0.02 + 0.004 * i, 0.03 + 0.004 * i)
            build.task(f"server-m0.{part}{i}", 0.002, 0.003)
        build.flow(f"worker-m{i}.pull", f"server-m0.pull{i}", 150)
        build.flow(f"server-m0.pull{i}", f"worker-m{i}.push", 8000)
        build.flow(f"worker-m{i}.push", f"server-m0.push{i}", 8000)
        build.flow(f"server-m0.push{i}", f"worker-m{i}.pull", 70, lag=1)
    return build.scenario()


def gathering(seed: int) -> Document:
    """Return peers of which one sends to all others, and gets their answers."""
    build = Build(seed)
    build.task("worker-m0.root", 0.03, 0.04)
    for i in (1, 2, 3):
        build.task(f"worker-m{i}.answer", 0.01, 0.01 + 0.01 * i)
        build.flow("worker-m0.root", f"worker-m{i}.answer", 7000)
        build.flow(f"worker-m{i}.answer", "worker-m0.root", 5000, lag=1)
    return build.scenario()


def simulated(document: Document, **nics: object) -> Schedule:
    overrides = {f"cluster.machines[{at[1:]}].nic": nic for at, nic in nics.items()}
    return emu.simulate(loads(json.dumps(document), overrides, name="drawn.json"))


def per_iteration(schedule: Schedule) -> float:
    """Return the seconds of an iteration of the slowest, without the first ones."""
    ends = schedule.task_end[:, 2:]
    return float((ends[:, -1] - ends[:, 0]).max() / (ends.shape[1] - 1))


def marks_of(schedule: Schedule, *tasks: str) -> Marks:
    """Return the beginnings of tasks, by process, as a program would print them."""
    names = [task.name for task in schedule.problem.job.tasks]
    found = {}
    for task in tasks:
        program, rest = task.split("-")
        process = int(rest[1]), PROGRAMS.index(program)
        found[process] = schedule.task_start[names.index(task)]
    return found


KINDS: dict[Callable[[int], Document], list[str]] = {
    averaging: ["worker-m1.think"],
    asking: [f"worker-m{i}.pull" for i in (1, 2, 3)],
    gathering: ["worker-m0.root"],
}
#: Machines and NICs that a fit at 10 Mbit/s is asked about. Who asks in a time of its
#: own meets others at m0 or not by when it began: a slow one says nothing of the fit.
OTHERS = (
    {"m0": "3 Mbit/s"},
    {"m1": {"out": "2 Mbit/s", "in": "20 Mbit/s"}, "m3": "5 Mbit/s"},
)


def fitted(document: Document, marks: list[str]) -> tuple[FittedSteps, Document]:
    schedule = simulated(document)
    programs = tuple(
        each
        for each in PROGRAMS
        if any(t.name.startswith(each) for t in schedule.problem.job.tasks)
    )
    traffic = crossed(schedule, programs, FULL)
    at = marks_of(schedule, *marks)
    if programs != PROGRAMS:
        at = {(machine, 0): times for (machine, _), times in at.items()}
    found = fit_traffic(traffic, marks=at)
    assert isinstance(found, FittedSteps)
    return found, write_fit("fitted", found, traffic)


@pytest.mark.parametrize(
    ("apart", "more", "go_together"),
    [
        *((0.1, 0, True), (0.4, 0, True), (0.49, 0, True)),
        *((0.51, 0, False), (0.9, 0, False), (0.1, 1, False)),
    ],
)
def test_processes_within_half_an_iteration_go_by_the_clock_of_the_first(
    apart: float, more: int, *, go_together: bool
) -> None:
    """Have the last of three processes begin later, or make an iteration more."""
    counts = (20, 20, 20 + more)
    shifts = (0.0, apart / 2, apart)
    marks = {
        (machine, 0): np.linspace(5.0 + shift, 4.0 + shift + count, count)
        for machine, (count, shift) in enumerate(zip(counts, shifts, strict=True))
    }

    found = _common_clock(marks)

    if go_together:
        assert [*found] == [ALL]
        assert np.array_equal(found[ALL], marks[0, 0])
    else:
        assert found is marks


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_at_some_nics_answers_for_others(
    kind: Callable[[int], Document],
) -> None:
    """Drawn jobs are within 4 %, but 6 of 100 of workers in their own time."""
    off = []
    for seed in draws.some(range(24)):
        document = kind(seed)
        found, document_again = fitted(document, KINDS[kind])
        assert found.count >= ITERATIONS - 3
        for nics in ({}, *OTHERS[kind is asking :]):
            truth = per_iteration(simulated(document, **nics))
            again = per_iteration(simulated(document_again, **nics))
            off.append(abs(again / truth - 1))
    assert np.median(off) < 0.02
    assert np.mean(np.array(off) > 0.04) <= (0.1 if kind is asking else 0.0)


def received(found: FittedSteps, number: int) -> set[tuple[int, int]]:
    """Return the steps that one waits for, and iterations before, by others sent."""
    came = set()
    for step, end, lag in found.causes[number]:
        if end:
            came.add((step, lag))
        elif lag == 0:
            came |= received(found, step)
    return came


def test_causes_are_what_a_step_waits_for() -> None:
    found, _ = fitted(averaging(1), KINDS[averaging])

    ends = [(step.source[0], step.destination[0]) for step in found.steps]
    assert sorted(ends) == [(0, 1), (0, 2), (0, 3), (1, 0), (2, 0), (3, 0)]
    for number, (_, to) in enumerate(ends):
        came = {(ends[step][0], lag) for step, lag in received(found, number)}
        assert came >= ({(0, 1)} if to == 0 else {(1, 0), (2, 0), (3, 0)})
    found, _ = fitted(asking(1), KINDS[asking])
    for step, causes in zip(found.steps, found.causes, strict=True):
        if step.source[0] == 0:  # an answer waits for its request alone
            ((request, end, _),) = causes
            assert (found.steps[request].source, end) == (step.destination, True)


def one_mark(text: str, count: int, **also: object) -> str:
    """Return the error of a fit with so many marks."""
    schedule = simulated(averaging(2))
    at = marks_of(schedule, *KINDS[averaging])
    few: Marks = {one: times[:count] for one, times in at.items()}
    with pytest.raises(Unfittable, match=text) as error:
        fit_traffic(crossed(schedule, PROGRAMS, FULL), marks=few, **also)  # type: ignore[arg-type]
    return str(error.value)


def test_too_few_iterations_are_refused() -> None:
    one_mark("1 marks were printed, which begin 0 whole iterations", 1)
    one_mark("4 marks were printed, which begin 3 whole iterations", 4)
    one_mark("3 marks were printed, which begin 2 whole iterations", 9, skip=6)


def test_processes_of_different_periods_that_talk_are_refused() -> None:
    schedule = simulated(gathering(3))
    times = next(iter(marks_of(schedule, "worker-m0.root").values()))
    marks = {(0, 0): times, (1, 0): times[::2]}

    with pytest.raises(Unfittable, match=r"do not go together .*--mark LINE"):
        fit_traffic(crossed(schedule, ("worker",), FULL), marks=marks)


@pytest.mark.parametrize("slow", [(0, 0), (1, 1)], ids=["out of m0", "into m1"])
def test_steps_are_parted_by_the_slower_nic_on_their_way(slow: tuple[int, int]) -> None:
    """24 full packets; the other directions of these NICs are slower, and not on it."""
    traffic = crossed(simulated(averaging(2)), PROGRAMS)
    nics = np.full_like(traffic.nics, 1e3)
    nics[0, 0] = nics[1, 1] = 4e6
    nics[slow] = 2e6
    traffic = replace(traffic, nics=nics)
    assert _silence((0, 0), (1, 0), traffic) == pytest.approx(24 * FULL / 2e6)


def test_a_port_of_two_programs_is_refused() -> None:
    schedule = simulated(averaging(4))
    traffic = crossed(schedule, PROGRAMS, FULL)
    also = traffic.owners[:1].copy()
    also["program"] = 1 - also["program"]
    traffic = replace(traffic, owners=np.append(traffic.owners, also))

    with pytest.raises(Unfittable, match="was of programs server and worker"):
        fit_traffic(traffic, marks=marks_of(schedule, *KINDS[averaging]))


def irregular(schedule: Schedule, most: int) -> Traffic:
    """Return what crossed, with up to so many bytes in some of m1's packets."""
    traffic = crossed(schedule, PROGRAMS, FULL)
    rng = np.random.default_rng(5)
    rows = traffic.packets
    rows = rows[(rows["source"] != 1) | (rng.random(len(rows)) < 0.5)]
    own = rows["source"] == 1
    rows["bytes"][own] = rng.integers(1, most, own.sum())
    rows["time"][own] += rng.exponential(0.01, own.sum())
    return replace(traffic, packets=np.sort(rows, order="time"))


def test_what_does_not_repeat_is_refused() -> None:
    schedule = simulated(averaging(5))
    traffic = irregular(schedule, 9000)

    with pytest.raises(
        Unfittable, match=r"worker on m1 to server on m0 sent .* pieces"
    ):
        fit_traffic(traffic, marks=marks_of(schedule, *KINDS[averaging]))


def test_little_that_does_not_repeat_is_one_step() -> None:
    """Ray's processes tell each other of objects that are a hundred times as large."""
    schedule = simulated(averaging(5))
    traffic = irregular(schedule, 9)
    rows = traffic.packets
    own = rows["source"] == 1
    assert rows["bytes"][own].sum() < 0.01 * rows["bytes"].sum()

    found = fit_traffic(traffic, marks=marks_of(schedule, *KINDS[averaging]))

    assert isinstance(found, FittedSteps)
    (step,) = [one for one in found.steps if one.source[0] == 1]
    first, last = found.first, found.first + found.count
    assert len(step.sizes) == last - first
    assert 0 < step.sizes.sum() <= rows["bytes"][own].sum()


def test_a_note_is_a_step_of_its_own() -> None:
    """A peer that answers a note does not wait for what comes behind the note."""
    build = Build(6)
    build.task("worker-m0.call", 0.03, 0.04)
    build.task("worker-m1.answer", 0.0001, 0.0002)
    build.task("worker-m1.all", 0.0, 0.0)
    build.flow("worker-m0.call", "worker-m1.answer", 48)
    build.flow("worker-m0.call", "worker-m1.all", 30 * FULL)
    build.flow("worker-m1.answer", "worker-m0.call", 20 * FULL, lag=1)
    build.flow("worker-m1.all", "worker-m0.call", lag=1)
    build.flow("worker-m1.all", "worker-m1.answer", lag=1)
    document = build.scenario()

    found, _ = fitted(document, ["worker-m0.call"])

    sizes = {(s.source[0], s.number): np.median(s.sizes) for s in found.steps}
    assert sizes == {(0, 0): 48, (0, 1): 30 * FULL, (1, 0): 20 * FULL}
    answer = [step.source[0] for step in found.steps].index(1)
    assert {found.steps[k].number for k, end, _ in found.causes[answer] if end} == {0}


def test_what_a_sender_did_not_wait_for_is_found() -> None:
    """A kernel takes all of a message at some NICs, and a part of it at others."""
    cases = (
        (100 * FULL, 0.001, True),
        (10 * FULL, 0.001, False),
        (100 * FULL, 0.2, False),
    )
    for size, later, there in cases:
        build = Build(7)
        build.task("worker-m0.one", 0.03, 0.04)
        build.task("worker-m0.two", later, 2 * later)
        build.task("worker-m1.got", 0.001, 0.002)
        build.flow("worker-m0.one", "worker-m1.got", size)
        build.flow("worker-m0.one", "worker-m0.two")
        build.flow("worker-m0.two", "worker-m2.got", 2 * FULL)
        build.task("worker-m2.got", 0.001, 0.002)
        for other in ("m1", "m2"):
            build.flow(f"worker-{other}.got", "worker-m0.one", 48, lag=1)
        found, _ = fitted(build.scenario(), ["worker-m0.one"])

        large = [(step.source[0], step.destination[0]) for step in overtaken(found)]
        assert large == [(0, 1)] * there


def test_a_sender_waits_until_the_kernel_has_taken_what_it_sends() -> None:
    """With a slower NIC it goes on later, else what it sends next is in the way."""
    build = Build(8)
    build.task("worker-m0.one", 0.03, 0.04)
    build.task("worker-m0.two", 0.05, 0.06)
    for part, size in (("a", 200 * FULL), ("b", 70 * FULL)):
        build.task(f"worker-m1.{part}", 0.0, 0.0)
        build.flow("worker-m0.one", f"worker-m1.{part}", size)
        build.flows[-1]["channel"] = "long"
    build.flow("worker-m1.a", "worker-m0.two")
    build.task("worker-m2.got", 0.001, 0.002)
    build.flow("worker-m0.two", "worker-m2.got", 60 * FULL)
    build.task("worker-m1.reply", 0.1, 0.12)
    build.flow("worker-m1.b", "worker-m1.reply")
    build.flow("worker-m1.reply", "worker-m0.one", 48, lag=1)
    document = build.scenario()

    found, again = fitted(document, ["worker-m0.one"])

    assert DRAINED in {moment for own in found.causes for _, moment, _ in own}
    for nics in ({}, {"m0": "5 Mbit/s"}, {"m1": "4 Mbit/s"}):
        truth = per_iteration(simulated(document, **nics))
        assert per_iteration(simulated(again, **nics)) == pytest.approx(truth, rel=0.02)


def test_a_kernel_holds_what_was_on_its_way() -> None:
    """The next step begins when 150 of 300 kB are there: so much was held."""
    begin = np.linspace(0.0, 23 * 0.4, 24)
    sizes = np.full(24, 3e5)
    time = (begin[:, None] + 0.05 + np.linspace(0, 0.1, 100)).ravel()
    crossed = Crossed(time, np.arange(2401) * 3000)
    a, b, c = (0, 0), (1, 0), (2, 0)
    first, last = begin + 0.05, begin + 0.15
    until = np.cumsum(sizes)
    steps = [Step(a, b, 0, ALL, first, last, sizes, until, crossed)]
    own = first + 0.0501
    steps.append(Step(a, c, 0, ALL, own, own + 0.1, sizes, until, crossed))

    found = find_causes(steps, {ALL: np.append(begin, 24 * 0.4)}, skip=0)

    assert found.causes[1] == ((0, DRAINED, 0),)
    assert found.held[0] == pytest.approx(1.5e5, abs=6000)
    np.testing.assert_allclose(found.gaps[1], 0.0, atol=0.002)


def test_a_request_is_the_last_one_of_most_iterations() -> None:
    """Answer the second of two notes; once the first stood still for 3 s."""
    rng = np.random.default_rng(2)
    a, b = (0, 0), (1, 0)
    begin = np.linspace(0.0, 23 * 0.4, 24)
    second = begin + 0.1 + rng.uniform(0, 0.05, 24)
    stood_still = np.where(np.arange(24) == 23, 2.9, 0.0)
    few = np.full(24, 48.0)

    def step(ends: Ends, number: int, first: Row) -> Step:
        until = np.cumsum(few)
        crossed = Crossed(first, np.append(0, until).astype(np.int64))
        return Step(*ends, number, ALL, first, first + 1e-4, few, until, crossed)

    steps = [
        step((a, b), 0, begin + 0.05 + stood_still),
        step((a, b), 1, second),
        step((b, a), 0, second + 0.1),
    ]
    found = find_causes(steps, {ALL: np.append(begin, 24 * 0.4)}, skip=0)

    assert (1, True, 0) in found.causes[2]
    assert (0, True, 0) not in found.causes[2]


def test_a_message_begins_amid_the_last_packet_of_the_one_before() -> None:
    """Six packets: the second has 30 bytes of the first call, the fifth 60."""
    time = np.array([0.0, 0.001, 0.002, 1.0, 1.001, 2.0])
    sent = Sent(
        call=np.array([0, 0, 1, 2, 2, 3]),
        called=time,
        next_call=np.array([0, 1, 1, 2, 3, 3]),
        next_called=time,
        split=np.array([100, 30, 100, 100, 60, 100]),
        taken=time,
    )
    packets: Any = SimpleNamespace(time=time, bytes=np.full(6, 100))

    found = _Iterations.between(packets, sent, np.array([0.0, 0.9, 1.9]), 0.5)

    assert (found.starts.tolist(), found.volumes.tolist()) == ([0, 300], [300, 200])
    assert [joint.tolist() for joint in found.joints] == [[0, 130], [0, 160]]


def test_a_note_that_comes_while_a_process_computes_starts_nothing() -> None:
    """Data comes, 0.1 s of computing follow; a note of the other comes meanwhile."""
    rng = np.random.default_rng(1)
    a, b = (0, 0), (1, 0)
    begin = np.linspace(0.0, 23 * 0.4, 24)
    data = np.add(begin, 0.05, dtype=np.float64)
    note = begin + 0.08 + rng.uniform(0, 0.02, 24)
    own = data + 0.1 + rng.uniform(0, 0.005, 24)
    many, few = np.full(24, 9e4), np.full(24, 48.0)

    def step(ends: Ends, number: int, first: Row, last: Row, sizes: Row) -> Step:
        until = np.cumsum(sizes)
        crossed = Crossed(last, np.append(0, until).astype(np.int64))
        return Step(*ends, number, ALL, first, last, sizes, until, crossed)

    steps = [
        step((a, b), 0, begin + 0.01, data, many),
        step((a, b), 1, note, note, few),
        step((b, a), 0, own, own, few),
        step((b, a), 1, own + 1e-4, own + 0.04, many),
    ]

    found = find_causes(steps, {ALL: np.append(begin, 24 * 0.4)}, skip=0)

    assert (0, True, 0) in found.causes[2]
    assert (1, True, 0) not in found.causes[2]
    assert (1, True, 0) in found.causes[3]  # what it lets go
    np.testing.assert_allclose(found.gaps[2], own - data)
