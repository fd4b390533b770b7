"""Parts of what processes run, each with what it is given and tells stated by hand."""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.emulation.wire.messages import FlowEnded, TaskEnded
from emu.errors import DeadlineExceeded, NodeMisbehaved
from emu.host.this_host import this_host
from emu.problem.job import TIMED
from emu_nodes import host_metrics, runtime
from emu_nodes.apt.machine import AptMachine
from emu_nodes.line import may_have_rings
from emu_nodes.partition.programs import Part, PartTask
from emu_nodes.program import Copy
from emu_nodes.task_runner import EdgeEnds, NewestInputs, TaskRunner, _Work
from emu_nodes.timed_process import TimedProcess
from emu_nodes.timed_selector import may_be_timed


def spec_of(tls: str, *tasks: tuple[str, int]) -> Any:
    """Return a process by its TLS, and its tasks by program and iterations of a cut."""
    rows = [SimpleNamespace(program=program, every=every) for program, every in tasks]
    return SimpleNamespace(tasks=rows, settings=SimpleNamespace(tls=tls))


def test_processes_speak_by_rings_without_tls_and_states_on_linux(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that sends its state, or is encrypted, keeps all from it."""
    plain = spec_of("control", ("x:X", 0), ("x:Y", 0))
    assert may_have_rings([plain, plain])
    assert not may_have_rings([plain, spec_of("control", ("x:X", 0), ("x:Y", 3))])
    assert not may_have_rings([plain, spec_of("all", ("x:X", 0))])
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not may_have_rings([plain])


def test_one_process_of_timed_tasks_alone_may_do_without_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unless its sockets are of TLS; the others may be what they like."""
    timed = spec_of("control", (TIMED, 0), (TIMED, 0))
    mixed = spec_of("control", (TIMED, 0), ("x:X", 0))
    assert may_be_timed([mixed, timed])
    assert not may_be_timed([mixed])
    assert not may_be_timed([spec_of("all", (TIMED, 0)), mixed])
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not may_be_timed([timed])


class Arrival:
    """A payload that came, and whether it was given back."""

    def __init__(self, edge: int, iteration: int) -> None:
        self.edge = edge
        self.iteration = iteration
        self.payload = {"x": edge}
        self.arrived = 10.0 * edge + iteration
        self.released = 0

    def release(self) -> None:
        """Count."""
        self.released += 1


async def test_newest_inputs_give_back_all_older_ones() -> None:
    """Inputs that were read stay for the next order, which may name them again."""
    came: list[Arrival] = []

    async def arrive(edge: int, iteration: int) -> Any:
        came.append(Arrival(edge, iteration))
        return came[-1]

    newest = NewestInputs(arrive)
    held: Any = await newest.take([(4, 1), (5, 0)])
    assert [(a.edge, a.iteration) for a in came] == [(4, 0), (4, 1), (5, 0)]
    assert [a.released for a in came] == [1, 0, 0]
    assert held == {4: came[1], 5: came[2]}
    assert await newest.take([(4, 1)]) == held
    assert len(came) == 3
    held = await newest.take([(4, 2)])
    assert held == {4: came[3], 5: came[2]}
    assert [a.released for a in came] == [1, 1, 0, 0]
    newest.release()
    newest.release()
    assert [a.released for a in came] == [1, 1, 1, 1]


def test_arrivals_are_told_in_emulated_seconds_and_bytes() -> None:
    """Unshaped ones are counted alone, as are those before the run."""
    told: list[FlowEnded] = []
    ends: Any = SimpleNamespace(
        _expected={4: 3},
        clock=SimpleNamespace(to_emulated=lambda wall: 4 * wall),
        _settings=SimpleNamespace(byte_scale=0.5),
        _report=told.append,
    )
    EdgeEnds._on_arrival(ends, 4, 0, 1.5, 100, shaped=True)
    EdgeEnds._on_arrival(ends, 4, 1, 1.5, 100, shaped=False)
    ends.clock = None
    EdgeEnds._on_arrival(ends, 4, 2, 1.5, 100, shaped=True)
    assert told == [FlowEnded(4, 0, 6.0, 200.0)]
    assert ends._expected == {4: 0}


@pytest.mark.parametrize(("received", "fails"), [(1, True), (2, False), (3, False)])
def test_a_connection_that_ends_early_has_failed(received: int, *, fails: bool) -> None:
    """Two frames were expected of edge 4; someone else has received some of them."""
    failures: list[Exception] = []
    ends: Any = SimpleNamespace(
        _expected={4: 2},
        _names={4: "a->b"},
        count_frames=lambda edge: received if edge == 4 else 0,
        _fail=failures.append,
    )
    EdgeEnds._broke(ends, 4, NodeMisbehaved("ended"))
    assert [str(f) for f in failures] == ["flow a->b: ended"] * fails
    assert all(type(f) is NodeMisbehaved for f in failures)


def runner(**fields: Any) -> Any:
    """Return a runner of task 7 with these fields."""
    return SimpleNamespace(task=7, name="w0", **fields)


@pytest.mark.parametrize(
    ("times", "now", "end", "late"),
    [
        ([9.0, 0.5], 3.0, 5.0, 0.0),  # it may be yet to come
        ([9.0, 0.5], 6.0, 6.0, 1.0),
        (None, 3.0, 4.5, 0.0),  # 0.5 s of CPU on a machine of speed 2
    ],
)
def test_an_end_is_due_behind_the_time_of_the_task_on_its_machine(
    times: list[float] | None, now: float, end: float, late: float
) -> None:
    """A task that starts at 4 s runs at half speed, and its sizes are emulated."""
    told: list[TaskEnded] = []
    queued: list[Any] = []

    def output(edge: int) -> Any:
        def send(iteration: int, payload: Any, *, shaped: bool) -> None:
            queued.append(
                (edge, iteration, sum(t.nbytes for t in payload.values()), shaped)
            )

        return SimpleNamespace(send=send)

    ends = {
        4: SimpleNamespace(sent=2, shaped=True),
        5: SimpleNamespace(sent=2, shaped=True),
        6: SimpleNamespace(sent=2, shaped=False),
        8: SimpleNamespace(sent=1, shaped=True),
    }
    tensors = {4: [3, 2], 5: [], 6: [1], 8: [1]}
    payloads = {
        edge: {str(n): np.zeros(size, np.int64) for n, size in enumerate(sizes)}
        for edge, sizes in tensors.items()
    }
    context = SimpleNamespace(
        clock=SimpleNamespace(now=lambda: now, to_emulated=lambda wall: wall / 4),
        settings=SimpleNamespace(byte_scale=0.5),
        report=told.append,
        outputs={edge: output(edge) for edge in ends},
    )
    spec = SimpleNamespace(
        times=times, speed=2.0, speed_times=[0.0], speed_shares=[0.5]
    )
    task = runner(
        _context=context,
        _spec=spec,
        _outputs=ends,
        program=SimpleNamespace(report=lambda: {"loss": 1.5}),
    )
    order: Any = SimpleNamespace(iteration=1, start=4.0)
    work = _Work(payloads=payloads, began=18.0, cpu=0.5, states={})

    TaskRunner._hand_over(task, order, work)

    (ended,) = told
    assert (ended.task, ended.iteration, ended.start) == (7, 1, 4.0)
    assert (ended.end, ended.late) == (end, late)
    assert (ended.edges, ended.volumes) == ([4, 5, 6], [80.0, 0.0, 16.0])
    assert (ended.began, ended.cpu, ended.report) == (4.5, 0.5, {"loss": 1.5})
    assert queued == [(4, 1, 40, True), (5, 1, 0, False), (6, 1, 8, False)]


async def test_an_input_lands_its_latency_behind_its_last_byte() -> None:
    """It came at 43 wall seconds, 10.75 emulated ones: 0.25 s later is 44 s."""
    waited: list[float] = []

    async def until(wall: float) -> None:
        waited.append(wall)

    async def get(edge: int, iteration: int, *, within: float) -> Any:
        assert within == 9.0
        if edge == 6:
            raise DeadlineExceeded("nothing came")
        return Arrival(edge, iteration)

    ends = {
        4: SimpleNamespace(latency=0.25, peer="g0"),
        5: SimpleNamespace(latency=0.0, peer="g1"),
        6: SimpleNamespace(latency=0.0, peer="g2"),
    }
    context = SimpleNamespace(
        settings=SimpleNamespace(deadline=9.0),
        inbox=SimpleNamespace(get=get),
        clock=SimpleNamespace(
            to_emulated=lambda wall: wall / 4, to_wall=lambda time: time * 4
        ),
        timer=SimpleNamespace(until=until),
        first=20,
    )
    task = runner(_context=context, _inputs=ends)
    delivery = await TaskRunner._arrival(task, 4, 3)
    assert (delivery.iteration, waited) == (3, [44.0])
    await TaskRunner._arrival(task, 5, 3)
    assert waited == [44.0]
    with pytest.raises(DeadlineExceeded, match="w0 waited 9 s for iteration 23 of g2"):
        await TaskRunner._arrival(task, 6, 3)


@pytest.mark.parametrize(
    ("every", "first", "copy", "missed", "begun", "kept"),
    [
        # Cuts each 4 iterations; what begins with one copies it where it is sent on.
        (4, 0, None, 0, [4, 8], {4: "4", 8: "8"}),
        (4, 4, None, 0, [8], {8: "8"}),
        (4, 4, 9, 0, [4, 8], {4: "4", 8: "8"}),
        (0, 0, None, 0, [], {}),
        # One update is on its way at a cut: it is whole an iteration later.
        (4, 0, None, 1, [4, 8], {5: "4+5", 9: "8+9"}),
    ],
)
def test_cuts_are_whole_when_updates_on_their_way_have_come(
    every: int,
    first: int,
    copy: int | None,
    missed: int,
    begun: list[int],
    kept: dict[int, str],
) -> None:
    """Iterations 0 to 9 of the job, or from ``first`` on."""
    asked: list[int] = []

    def state(number: int) -> dict[str, str]:
        asked.append(number)
        return {"state": str(number)}

    program = SimpleNamespace(
        state=state, late_updates=lambda number: {"late": str(number)}, missed=missed
    )
    task = runner(
        program=program,
        _spec=SimpleNamespace(every=every),
        _copy=copy,
        _context=SimpleNamespace(first=first),
        _begun={},
    )
    found = {}
    for number in range(first, 10):
        states: Any = TaskRunner._finish_cut(task, number)
        for cut, content in states.items():
            assert cut == number - missed
            found[number] = "+".join(content.values())
    assert asked == begun
    assert found == kept


def test_edges_of_a_program_are_named_up_to_eight() -> None:
    """A program with nine edges has eight of them named and one counted."""
    ends = {n: SimpleNamespace(edge=n, peer=f"p{n}", sent=2) for n in range(9)}

    def listed(count: int) -> str:
        some = {n: ends[n] for n in range(count)}
        return TaskRunner._list_outputs(runner(_outputs=some))

    assert listed(0) == "it has none"
    assert listed(2) == "it has 0 to p0, 1 to p1"
    assert listed(8).endswith("6 to p6, 7 to p7")
    assert listed(9).endswith("7 to p7, 1 others")


@pytest.mark.parametrize(
    ("iteration", "payloads", "problem"),
    [
        (1, {4: {}}, ""),
        (2, {}, ""),  # all has been sent
        (1, {}, "the program has nothing for w1"),
        (1, {4: {}, 5: {}}, "the program sends over 5, no edge of it: it has 4 to w1"),
    ],
)
def test_a_program_has_something_for_its_edges_and_for_no_others(
    iteration: int,
    payloads: dict[int, Any],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is told the number of the iteration in the job, and what it reads anew."""
    cpu = iter([2.0, 5.5, 0.0, 0.0])
    monkeypatch.setattr(this_host, "thread_time", lambda: next(cpu))
    seen: list[Any] = []
    given: dict[int, Any] = dict(payloads)

    def run(number: int, inputs: Any) -> dict[int, Any]:
        seen.append((number, inputs))
        return given

    program = SimpleNamespace(run=run, read=seen.append)
    task = runner(
        program=program,
        _context=SimpleNamespace(first=10),
        _finish_cut=lambda _: {3: {"s": 1}},
        _copy=None,
        _outputs={4: SimpleNamespace(edge=4, peer="w1", sent=2)},
    )
    task._list_outputs = lambda: TaskRunner._list_outputs(task)
    order: Any = SimpleNamespace(iteration=iteration, reads=[(5, 2)])
    if problem:
        with pytest.raises(NodeMisbehaved, match=problem):
            TaskRunner._compute(task, order, {9: {}})
        return
    work: Any = TaskRunner._compute(task, order, {9: {}})
    assert seen == [{5: 2}, (10 + iteration, {9: {}})]
    assert (work.payloads, work.states) == (payloads, {3: {"s": 1}})
    assert work.cpu == 3.5
    # A copy on another machine takes the state over its edge, and reports none here.
    task._copy = 4
    order.reads = []
    work = TaskRunner._compute(task, order, {})
    assert (work.payloads[4], work.states) == ({"s": 1}, {})


def test_a_copy_reports_what_it_has_kept() -> None:
    """It has no state of its own."""
    copy = object.__new__(Copy)
    given: Any = copy
    given.kept = {8: {"s": 2}}
    given.run = lambda _number, _inputs: {}
    task = runner(
        program=copy,
        _context=SimpleNamespace(first=0),
        _finish_cut=lambda _: {},
        _copy=None,
        _outputs={},
    )
    order: Any = SimpleNamespace(iteration=1, reads=[])
    work: Any = TaskRunner._compute(task, order, {})
    assert work.states == {8: {"s": 2}}


def test_figures_of_a_part_are_its_share_times_the_parts() -> None:
    """So that their mean over four parts is that of the graph."""
    scored = SimpleNamespace(loss=0.25, accuracy=0.125)
    part: Any = SimpleNamespace(trained=SimpleNamespace(scored=scored, ranks=4))
    assert Part.figures(part) == {"loss": 1.0, "accuracy": 0.5}


@pytest.mark.parametrize(
    ("peer", "rank"), [("d3.f1", 3), ("d12.b0", 12), ("d2.f1", None), ("ps0", None)]
)
def test_peers_of_a_part_are_other_parts_by_their_rank(
    peer: str, rank: int | None
) -> None:
    """One of part 2 has none within it."""
    task: Any = SimpleNamespace(_shared=SimpleNamespace(rank=2))
    edge: Any = SimpleNamespace(peer=peer)
    assert PartTask._peer(task, edge) == rank


def test_samplers_are_numbered_machine_by_machine() -> None:
    """Four machines have three each."""
    machine: Any = SimpleNamespace(ranks=4, _each=3)
    assert AptMachine.samplers_of(machine, 2) == range(6, 9)
    assert AptMachine.samplers.fget(machine) == range(12)  # type: ignore[attr-defined]


async def test_lags_of_a_loop_are_those_behind_a_tenth_of_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three looks: 0.5 s late, early, and 0.1 s late; figures are of the first call."""
    now = [50.0]
    looks: list[Any] = []
    clock = SimpleNamespace(monotonic=lambda: now[0])
    counts = {"waited": 1.0, "disk": 2.0, "blocks": 3, "busy": 4.0}
    monkeypatch.setattr(host_metrics, "this_host", clock)
    monkeypatch.setattr(host_metrics, "host_cpu", lambda: {"busy": counts["busy"]})
    monkeypatch.setattr(host_metrics, "seconds_without_core", lambda: counts["waited"])
    monkeypatch.setattr(host_metrics, "seconds_of_disks", lambda: counts["disk"])
    monkeypatch.setattr(host_metrics, "count_blocks", lambda: counts["blocks"])

    def call_later(span: float, look: Any) -> Any:
        assert span == 0.1
        looks.append(look)
        return SimpleNamespace(cancel=lambda: looks.append("cancelled"))

    monkeypatch.setattr(
        asyncio, "get_running_loop", lambda: SimpleNamespace(call_later=call_later)
    )
    metrics = host_metrics.HostMetrics()
    for instant in (50.6, 50.65, 50.85):
        now[0] = instant
        looks[-1]()
    now[0] = 52.0
    counts.update(waited=1.5, disk=4.0, blocks=9, busy=14.0)
    use = metrics.use()
    assert (use.seconds, use.waited, use.disk, use.blocks) == (2.0, 0.5, 2.0, 6)
    assert use.loop_lag_max == pytest.approx(0.5)
    assert use.loop_lag_mean == pytest.approx(0.2)
    assert use.host == {"busy": 10.0}
    now[0] = 99.0
    assert metrics.use() is use
    metrics.close()
    assert (metrics.closed, looks[-1]) == (True, "cancelled")


def test_the_coordinator_s_clock_is_ahead_by_its_line() -> None:
    """The offset is 2.5 s by a line, and 0 on the coordinator's own host."""
    alone: Any = SimpleNamespace(clock=lambda: None)
    assert runtime.offset_now(alone) == 0.0
    line = SimpleNamespace(ahead=lambda wall: 2.5 if wall > 0 else 0.0)
    board: Any = SimpleNamespace(clock=lambda: line)
    assert runtime.offset_now(board) == 2.5


def test_a_task_that_waits_names_the_input_that_lacks() -> None:
    """The third of three inputs lacks: the first is not needed, the second came."""
    inlets = [
        SimpleNamespace(needed=-1, arrived=[np.nan, np.nan]),
        SimpleNamespace(needed=0, arrived=[1.0, np.nan]),
        SimpleNamespace(needed=1, arrived=[1.0, np.nan]),
    ]
    task = SimpleNamespace(
        name="w0",
        inputs=[SimpleNamespace(edge=4 + n, peer=f"g{n}") for n in range(3)],
    )
    process: Any = SimpleNamespace(
        _spec=SimpleNamespace(
            tasks=[task], first=10, settings=SimpleNamespace(deadline=9.0)
        ),
        _layout=SimpleNamespace(inlets=inlets, inlet_place={4: 0, 5: 1, 6: 2}),
    )
    late = TimedProcess._lateness(process, 0)
    assert str(late) == "task w0 waited 9 s for iteration 11 of g2"
    inlets[2].arrived[1] = 2.0
    late = TimedProcess._lateness(process, 0)
    assert str(late) == "task w0 waited 9 s for its inputs to land"
