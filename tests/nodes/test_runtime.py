"""A task's iteration, and what the runtime makes of programs, without any process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from typing_extensions import override

from emu.emulation.network.clock import ClockLine, RunClock
from emu.emulation.network.inbox import Delivery, Inbox
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.shaping import EmulationSettings
from emu.emulation.wire.array_parts import parts_of
from emu.emulation.wire.messages import (
    FlowEnded,
    Message,
    Peers,
    ResultPart,
    RunTask,
    TaskEnded,
)
from emu.emulation.wire.process_spec import HostSide
from emu.errors import DeadlineExceeded, EmulatorError, NodeLost, NodeMisbehaved
from emu.problem.job import TIMED
from emu.problem.workloads import CHECKPOINT
from emu_nodes import runtime, task_runner, timed
from emu_nodes.line import Line
from emu_nodes.program import Payload
from emu_nodes.runtime import load_program, offset_now
from emu_nodes.task_runner import (
    EdgeEnds,
    NewestInputs,
    TaskContext,
    TaskRunner,
    WallClockTimer,
)
from tests.emulation.launch.specs import edge_end, process_spec, process_task

HOST = HostSide(certificate=b"", coordinator=("localhost", 1), bind="", board="")


class Doubles:
    """Sends twice what it gets; the first iteration starts from nothing."""

    def run(self, iteration: int, inputs: Mapping[int, Payload]) -> dict[int, Payload]:
        """Return the double of the input on edge 7."""
        if 3 not in inputs:
            return {7: {"x": np.zeros(4)}}
        return {7: {"x": inputs[3]["x"] * 2}} if iteration < 2 else {}

    def report(self) -> dict[str, float]:
        """Return a figure."""
        return {"loss": 0.5}

    def result(self) -> Payload:
        """Return an array with more bytes than fit one message, and an empty one."""
        return {"weights": np.arange(100_000, dtype="<f8"), "none": np.zeros((0, 3))}


class Edge:
    """Takes what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, dict[str, Any]]] = []

    def send(self, iteration: int, payload: Payload, **options: Any) -> asyncio.Future:  # type: ignore[type-arg]
        """Note one frame."""
        self.sent.append((iteration, {**payload, **options}))
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


SPEC = process_task(
    "doubles:Doubles",
    task=5,
    times=[0.02, 0.02, 0.02],
    inputs=(edge_end(3, lag=1, sent=2),),
    outputs=(edge_end(7),),
)


class Stage:
    """A task runner with everything around it in the test's hands."""

    def __init__(
        self, *, patience: float = 5.0, time_scale: float = 1.0, **changes: Any
    ) -> None:
        self.told: list[Message | TaskEnded] = []
        self.edge, self.inbox, self.timer = Edge(), Inbox("w0"), WallClockTimer()
        self.compute = ThreadPoolExecutor(1)
        self.clock = RunClock(time.monotonic(), time_scale=time_scale)
        around = TaskContext(
            inbox=self.inbox,
            outputs={7: self.edge},  # type: ignore[dict-item]
            compute=self.compute,
            timer=self.timer,
            clock=self.clock,
            report=self.told.append,
            send=self.told.append,
            settings=EmulationSettings(byte_scale=16.0, deadline=patience),
        )
        self.runner = TaskRunner(replace(SPEC, **changes), Doubles(), around)

    async def run(self, iteration: int, start: float) -> TaskEnded:
        """Run one iteration and return what the coordinator is told."""
        try:
            await self.runner.run(RunTask(5, iteration, start))
        finally:
            self.timer.close()
            self.compute.shutdown()
        (told,) = self.told
        assert isinstance(told, TaskEnded)
        return told

    def deliver(self, iteration: int) -> None:
        """Let an input arrive."""
        self.inbox.deliver(Delivery(3, iteration, {"x": np.full(4, 21.0)}, 0.0))


async def test_task_ends_at_its_profiled_end_and_says_so_when_it_is_done() -> None:
    stage = Stage(times=[600.0, 0.02, 0.02])
    told = await stage.run(0, start=60.0)

    assert (told.end, told.late) == (60.0 + 600.0, 0.0)
    assert 0.0 <= told.began <= stage.clock.now() < 60.0
    assert [iteration for iteration, _ in stage.edge.sent] == [0]
    assert (told.edges, told.volumes) == ([7], [32 / 16.0])
    assert told.report == {"loss": 0.5}


async def test_a_task_began_before_its_program_was_called() -> None:
    called: list[float] = []

    class Notes(Doubles):
        @override
        def run(
            self, iteration: int, inputs: Mapping[int, Payload]
        ) -> dict[int, Payload]:
            called.append(stage.clock.now())
            return super().run(iteration, inputs)

    stage = Stage()
    stage.runner.program = Notes()
    told = await stage.run(0, start=0.0)

    assert 0.0 <= told.began <= called[0]


async def test_late_task_says_so() -> None:
    told = await Stage().run(0, start=-10.0)

    assert told.late > 9.9
    assert told.end == pytest.approx(-10.0 + 0.02 + told.late)


@pytest.mark.parametrize("speed", [0.001, 1.0, 1000.0])
async def test_measured_work_takes_its_cpu_time_over_the_speed(speed: float) -> None:
    """However late or early the order came; with room it ends exactly then."""
    stage = Stage(times=None, speed=speed)
    told = await stage.run(0, start=0.05)

    assert told.cpu > 0
    assert told.end == pytest.approx(0.05 + told.cpu / speed + told.late)
    assert stage.clock.now() >= 0.05  # work done before its start would be free
    if speed < 1:
        assert told.late == 0.0


async def test_all_cpu_time_of_a_program_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No record of a run says how long its work was but this one."""
    took = 0.0

    def work(_: Doubles, *_args: object) -> dict[int, Payload]:
        nonlocal took
        since = time.thread_time()
        while (took := time.thread_time() - since) < 0.02:
            pass
        return {7: {}}

    monkeypatch.setattr(Doubles, "run", work)
    ended = await Stage(times=None).run(0, start=0.0)

    assert took <= ended.cpu < took + 0.01


async def test_measured_work_that_did_not_fit_is_late() -> None:
    told = await Stage(times=None).run(0, start=-10.0)

    assert told.late > 9.9
    assert told.end == pytest.approx(-10.0 + told.cpu + told.late)


async def test_input_of_the_lagged_iteration_is_used_and_sent_on() -> None:
    stage = Stage()
    stage.deliver(0)
    await stage.run(1, start=0.0)
    ((iteration, sent),) = stage.edge.sent

    assert iteration == 1
    assert sent["shaped"]
    np.testing.assert_array_equal(sent["x"], np.full(4, 42.0))
    assert stage.runner.doing == ""


async def test_an_input_is_held_back_for_its_latency_from_its_last_byte_on() -> None:
    """However early the order: who forgets a latency there makes tasks late."""
    (own,) = SPEC.inputs
    stage = Stage(inputs=(replace(own, latency=0.2),))
    came = stage.clock.now()
    arrived = time.monotonic()
    stage.inbox.deliver(Delivery(3, 0, {"x": np.full(4, 21.0)}, arrived))
    told = await stage.run(1, start=came - 1.0)

    assert told.end >= came + 0.2
    assert told.late >= 1.0 - 0.02 + 0.2 - 1e-9


async def test_an_input_that_landed_long_ago_waits_for_nothing_more() -> None:
    """It came 90 s of wall time before the order, and takes 3 emulated seconds."""
    (own,) = SPEC.inputs
    stage = Stage(time_scale=10.0, inputs=(replace(own, latency=3.0),))
    awaited: list[float] = []

    async def until(wall: float) -> None:
        awaited.append(wall)

    timer = cast("WallClockTimer", SimpleNamespace(until=until))
    stage.runner._context = replace(stage.runner._context, timer=timer)
    arrived = stage.clock.to_wall(-9.0)
    stage.inbox.deliver(Delivery(3, 0, {"x": np.full(4, 21.0)}, arrived))
    await stage.run(1, start=0.0)

    assert awaited[-1] == pytest.approx(arrived + 30.0, abs=1e-6)


async def test_a_latency_is_of_emulated_seconds() -> None:
    """An emulated second takes 10 on the wall: 0.02 take 0.2, and not 0.02."""
    (own,) = SPEC.inputs
    stage = Stage(time_scale=10.0, inputs=(replace(own, latency=0.02),))
    came = stage.clock.now()
    arrived = time.monotonic()
    stage.inbox.deliver(Delivery(3, 0, {"x": np.full(4, 21.0)}, arrived))
    told = await stage.run(1, start=came - 1.0)

    assert told.end >= came + 0.02


async def test_missing_input_is_named() -> None:
    stage = Stage(patience=0.05)
    with pytest.raises(
        DeadlineExceeded, match=r"task w0 waited 0\.05 s for iteration 0 of p0"
    ):
        await stage.run(1, start=0.0)
    assert stage.runner.doing == "task w0, iteration 1"
    # Counted as the whole job does, of which the first seven are done.
    stage = Stage(patience=0.05)
    stage.runner._context = replace(stage.runner._context, first=7)
    with pytest.raises(DeadlineExceeded, match=r"for iteration 7 of p0"):
        await stage.run(1, start=0.0)
    assert stage.runner.doing == "task w0, iteration 8"


async def test_program_that_forgets_an_edge_is_named() -> None:
    stage = Stage()
    stage.deliver(1)
    with pytest.raises(NodeMisbehaved, match="nothing for p0"):
        await stage.run(2, start=0.0)


@pytest.mark.parametrize("edge", [8, "w0->p0"])
async def test_what_a_program_sends_over_no_edge_of_its_task_is_named(
    edge: Any,
) -> None:
    class Strays(Doubles):
        @override
        def run(
            self, iteration: int, inputs: Mapping[int, Payload]
        ) -> dict[int, Payload]:
            return super().run(iteration, inputs) | {edge: {"y": np.zeros(2)}}

    stage = Stage()
    stage.runner.program = Strays()
    with pytest.raises(NodeMisbehaved) as caught:
        await stage.run(0, start=0.0)

    words = f"the program sends over {edge!r}, no edge of it: it has 7 to p0"
    assert str(caught.value).endswith(words)


@pytest.mark.parametrize(
    ("edges", "words"),
    [(0, "none"), (2, "0 to p0, 1 to p0"), (10, ", 7 to p0, 2 others")],
)
async def test_of_a_task_with_many_edges_the_first_are_named(
    edges: int, words: str
) -> None:
    stage = Stage(outputs=tuple(map(edge_end, range(edges))))
    payloads: dict[int, Payload] = {edge: {} for edge in (*range(edges), 99)}
    program: Any = SimpleNamespace(run=lambda *_: payloads)
    stage.runner.program = program
    with pytest.raises(NodeMisbehaved) as caught:
        await stage.run(0, start=0.0)

    assert str(caught.value).endswith(words)


async def test_last_iterations_of_a_lagged_edge_send_nothing() -> None:
    outputs = (edge_end(7, lag=1, sent=2),)
    stage = Stage(outputs=outputs)
    stage.deliver(1)
    told = await stage.run(2, start=0.0)

    assert told.edges == []
    assert stage.edge.sent == []


@pytest.mark.parametrize(
    ("shaped", "size", "expected"),
    [(True, 4, True), (False, 4, False), (True, 0, False)],
)
async def test_what_is_shaped_has_bytes_and_a_rate(
    *, shaped: bool, size: int, expected: bool
) -> None:
    stage = Stage(outputs=(edge_end(7, shaped=shaped),))
    stage.inbox.deliver(Delivery(3, 0, {"x": np.full(size, 21.0)}, 0.0))
    await stage.run(1, start=0.0)
    ((_, sent),) = stage.edge.sent
    assert sent["shaped"] == expected


class Keeper(Doubles):
    """Has its number as its state."""

    def state(self, number: int) -> Payload:
        """Return the state before an iteration."""
        return {"x": np.array([number])}


@pytest.mark.parametrize(
    ("every", "first", "cuts"),
    [(2, 0, [2, 4, 6]), (3, 0, [3, 6]), (2, 4, [6]), (0, 0, [])],
)
async def test_a_state_is_kept_at_every_cut_but_where_a_run_begins(
    every: int, first: int, cuts: list[int]
) -> None:
    """A process that begins at iteration 4 has read the cut before it."""
    stage = Stage()
    context = replace(stage.runner._context, first=first)
    runner = TaskRunner(replace(SPEC, every=every), Keeper(), context)
    kept = {number: runner._finish_cut(number) for number in range(first, 8)}
    stage.timer.close()
    stage.compute.shutdown()

    assert {number: [*states] for number, states in kept.items() if states} == {
        cut: [cut] for cut in cuts
    }
    assert all(kept[cut][cut]["x"] == cut for cut in cuts)


async def test_a_copy_of_a_state_goes_to_who_keeps_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also that which a run begins with: its holder may be the process that died."""
    checkpoint = edge_end(9, peer_kind=CHECKPOINT)
    spec = replace(SPEC, every=2, times=None, outputs=(edge_end(7), checkpoint))
    stage = Stage()
    runner = TaskRunner(spec, Keeper(), replace(stage.runner._context, first=4))
    seconds = iter([50.0, 50.25, 60.0, 60.5])
    host = SimpleNamespace(monotonic=lambda: 1.0, thread_time=lambda: next(seconds))
    monkeypatch.setattr(task_runner, "this_host", host)

    at_cut = runner._compute(RunTask(5, 0, 0.0), {})
    between = runner._compute(RunTask(5, 1, 0.0), {})
    stage.timer.close()
    stage.compute.shutdown()

    assert at_cut.payloads[9]["x"].tolist() == [4]
    assert between.payloads[9] == {}
    assert (at_cut.states, between.states) == ({}, {})
    assert (at_cut.cpu, between.cpu) == (0.25, 0.5)


class Misses(Keeper):
    """Has updates of two iterations on their way at a cut."""

    missed = 2

    def late_updates(self, number: int) -> Payload:
        """Return what has come by an iteration."""
        return {"late": np.array([number])}


async def test_a_cut_is_whole_when_its_updates_have_come() -> None:
    """That of iteration 3 before iteration 5, that of 6 before 8."""
    stage = Stage()
    runner = TaskRunner(replace(SPEC, every=3), Misses(), stage.runner._context)
    kept = {number: runner._finish_cut(number) for number in range(9)}
    stage.timer.close()
    stage.compute.shutdown()

    whole = {number: states for number, states in kept.items() if states}
    assert {number: [*states] for number, states in whole.items()} == {5: [3], 8: [6]}
    for number, states in whole.items():
        (state,) = states.values()
        assert state["x"].tolist() == [number - 2]
        assert state["late"].tolist() == [number]


async def test_an_arrival_is_reported_in_emulated_seconds_and_bytes() -> None:
    """20 real bytes at 106 s of wall time are 4 B at 3 s; unshaped flows say none."""
    task = process_task("doubles:Doubles", inputs=(edge_end(3, sent=2),))
    settings = EmulationSettings(time_scale=2.0, byte_scale=5.0)
    spec = replace(process_spec("w0", task), settings=settings, host=HOST)
    ends_reported: list[FlowEnded] = []
    ends = EdgeEnds(spec, ends_reported.append, lambda _: None)
    ends._on_arrival(3, 0, 106.0, 20, shaped=True)  # before run time is known
    ends.clock = RunClock(100.0, time_scale=2.0)

    ends._on_arrival(3, 1, 106.0, 20, shaped=False)
    ends._on_arrival(3, 1, 106.0, 20, shaped=True)

    assert ends_reported == [FlowEnded(3, 1, 3.0, 4.0)]


def test_an_edge_that_breaks_before_its_last_frame_is_named_with_what_it_was() -> None:
    task = process_task("doubles:Doubles", inputs=(edge_end(3, sent=2),))
    spec = replace(process_spec("w0", task), host=HOST)
    failures: list[EmulatorError] = []
    ends = EdgeEnds(spec, lambda _: None, failures.append)
    for received in (0, 1, 2):
        ends.count_frames = lambda _, count=received: count  # type: ignore[misc]
        ends._broke(3, NodeMisbehaved("it sent nonsense"))

    assert [type(failure) for failure in failures] == [NodeMisbehaved] * 2
    assert {str(failure) for failure in failures} == {"flow edge 3: it sent nonsense"}


@pytest.mark.parametrize(("first", "port"), [(5000, 5007), (0, 0), (None, 0)])
async def test_every_edge_leaves_by_a_port_of_its_own(
    first: int | None, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    async def open_edge(address: object, edge: int, **options: Any) -> Edge:
        asked.append({"address": address, "edge": edge, **options})
        return Edge()

    monkeypatch.setattr(task_runner, "open_edge", open_edge)
    spec = replace(process_spec("w0", SPEC), source_port=first, host=HOST)
    ends = EdgeEnds(spec, lambda _: None, lambda _: None)
    await ends._connect(edge_end(7, capacity=4.0), ("there", 9), pacer=object())  # type: ignore[arg-type]

    (options,) = asked
    assert (options["address"], options["edge"]) == (("there", 9), 7)
    assert (options["source_port"], options["capacity"]) == (port, 4.0)
    assert not options["encrypted"]


@pytest.mark.parametrize(
    ("programs_of_tasks", "threads"),
    [([TIMED], 0), (["x:X"], 1), ([TIMED, "x:X"], 1)],
)
async def test_programs_that_load_nothing_are_made_without_a_thread(
    programs_of_tasks: list[str], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = map(process_task, programs_of_tasks)
    spec = replace(process_spec("w0", *tasks), host=HOST)
    process = runtime.NodeProcess(spec, runtime.Surroundings({}), Line([spec]))
    made_in: list[str] = []

    def make_programs() -> dict[int, Any]:
        made_in.append(threading.current_thread().name)
        return {0: made_in}

    async def start(*_: object, **__: object) -> tuple[str, int]:
        return "127.0.0.1", 9

    async def meet(*_: object) -> None:
        return None

    async def receive(*_: object) -> Peers:
        return Peers({})

    ends = SimpleNamespace(server=SimpleNamespace(start=start), meet=meet)
    monkeypatch.setattr(process, "_ends", ends, raising=False)
    monkeypatch.setattr(process, "_pacer", None, raising=False)
    control = SimpleNamespace(send=lambda _: None)
    monkeypatch.setattr(process, "_control", control, raising=False)
    monkeypatch.setattr(process, "_next", receive)
    monkeypatch.setattr(process, "_make_programs", make_programs)

    programs: dict[int, Any] = await process._come_up()
    assert programs[0] is made_in
    assert [name.startswith("compute") for name in made_in] == [threads == 1]
    assert len(process._compute._threads) == threads
    process._compute.shutdown()


def test_a_payload_of_a_custom_job_has_bytes_and_nothing_else() -> None:
    sender: Any = SPEC.inputs[0]
    comparison = timed.Comparison(sender, 5, 0)
    comparison.finish({"bytes": 3})
    for sizes in ({"rows": 3}, {"bytes": 3, "rows": 3}, {}):
        with pytest.raises(NodeMisbehaved, match="not bytes"):
            comparison.finish(sizes)


def test_result_goes_in_parts_that_make_it_whole() -> None:
    parts = [ResultPart(task=5, **piece) for piece in parts_of(Doubles().result())]
    weights = [part for part in parts if part.name == "weights"]
    joined = np.frombuffer(b"".join(part.data for part in weights))

    assert len(weights) > 1
    assert {part.total for part in weights} == {800_000}
    np.testing.assert_array_equal(joined, np.arange(100_000.0))
    assert [part.shape for part in parts if part.name == "none"] == [[0, 3]]


async def test_holder_lets_many_wait_and_none_too_early() -> None:
    timer, woken = WallClockTimer(), []
    broken: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: broken.append(context))
    begun = time.monotonic()

    async def wait(seconds: float) -> None:
        await timer.until(begun + seconds)
        woken.append((seconds, time.monotonic() - begun))

    await asyncio.gather(*(wait(s) for s in (0.03, 0.01, 0.02, -1.0)))
    timer.close()

    assert broken == []
    # On a busy host several are over when the timer rings.
    assert sorted(seconds for seconds, _ in woken) == [-1.0, 0.01, 0.02, 0.03]
    assert all(after >= seconds for seconds, after in woken)


async def test_a_timer_rings_for_the_earliest_of_those_who_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here the wait that came last; once it is over, the earliest of the others."""
    set_to: list[float] = []
    now = 100.0
    alarm = SimpleNamespace(set=set_to.append, close=lambda: None)
    host = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(task_runner, "Alarm", lambda *_: alarm)
    monkeypatch.setattr(task_runner, "this_host", host)
    timer = WallClockTimer()

    waits = [asyncio.ensure_future(timer.until(wall)) for wall in (107.0, 109.0, 103.0)]
    await asyncio.sleep(0)
    now = 104.0
    timer._ring()
    await asyncio.sleep(0)

    assert set_to == [107.0, 107.0, 103.0, 107.0]
    assert [wait.done() for wait in waits] == [False, False, True]
    for wait in waits:
        wait.cancel()


def test_a_process_takes_the_clock_that_its_agent_has_put_on_the_board() -> None:
    with contextlib.closing(RateBoard.create(1)) as board:
        assert offset_now(board) == 0.0  # it reads the coordinator's own
        now = time.monotonic()
        board.publish_clock(ClockLine(now, 3.0, 0.5, 0.001))

        offset = offset_now(board)
        assert 3.0 <= offset <= 3.0 + 0.5 * (time.monotonic() - now)


async def test_older_versions_are_given_back_and_the_newest_in_the_end() -> None:
    released: list[int] = []

    class Held(Delivery):
        @override
        def release(self) -> None:
            released.append(self.iteration)

    async def arrival(edge: int, n: int) -> Delivery:
        return Held(edge, n, {}, 0.0)

    newest = NewestInputs(arrival)
    for read in (2, 2, 3):
        await newest.take([[7, read]])
    assert released == [0, 1, 2]
    newest.release()
    newest.release()
    assert released == [0, 1, 2, 3]


async def test_versions_that_are_not_read_are_taken_all_the_same() -> None:
    """Else they would lie in the inbox until the end."""
    taken = []

    async def arrival(edge: int, n: int) -> Delivery:
        taken.append((edge, n))
        return Delivery(edge, n, {}, 0.0)

    newest = NewestInputs(arrival)
    for iteration in (1, 1, 3):
        assert (await newest.take([[5, iteration]]))[5].iteration == iteration

    assert taken == [(5, n) for n in range(4)]


@pytest.mark.parametrize(
    "path", ["os:abort", "sys:exit", "emu.errors:NodeLost", "emu:no_such", "emu:load"]
)
def test_what_is_no_program_is_not_called(path: str) -> None:
    with pytest.raises(NodeMisbehaved, match="is no class with a method run"):
        load_program(path)
    assert load_program("emu_nodes.timed:Timed").__name__ == "Timed"


async def test_bursts_are_held_against_real_bytes_per_wall_second() -> None:
    """6 emulated bytes in an emulated second are 6 x 5 real ones in 2 on the wall."""
    task = process_task(
        "doubles:Doubles",
        inputs=(
            edge_end(3, capacity=6.0),
            edge_end(4, capacity=6.0, shaped=False),
        ),
    )
    settings = EmulationSettings(time_scale=2.0, byte_scale=5.0, catch_up=1.0)
    spec = replace(process_spec("w0", task), settings=settings, host=HOST)
    ends = EdgeEnds(spec, lambda _: None, lambda _: None)

    assert ends.server.rates == {3: 15.0}


@pytest.mark.parametrize(
    ("stopped", "status", "said"), [(False, 1, "process w0: gone\n"), (True, 0, "")]
)
async def test_a_process_fails_with_what_ended_it_unless_it_was_stopped(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    stopped: bool,
    status: int,
    said: str,
) -> None:
    async def lose(*_: Any, **__: Any) -> None:
        raise NodeLost("gone")

    monkeypatch.setattr(runtime, "connect_control", lose)
    spec = replace(process_spec("w0", process_task("x:X")), host=HOST)
    process = runtime.NodeProcess(spec, runtime.Surroundings({}), Line([spec]))
    process.stopped = stopped

    assert await process.exit_status() == status
    assert capsys.readouterr().err == said
    process._compute.shutdown()


def test_without_memory_for_rings_a_process_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It offers none then; nor does one that may have none."""

    def refuse() -> list[int]:
        raise OSError(28, "No space left on device")

    spec = process_spec("w0", process_task("x:X"))
    for has_rings in (True, False):
        surroundings = runtime.Surroundings(
            {},
            has_rings=has_rings,
            selector=cast("Any", SimpleNamespace(make_rings=refuse)),
        )
        process = runtime.NodeProcess(spec, surroundings, Line([spec]))
        assert process._make_rings() == []
        process._compute.shutdown()
    said = "process w0: reports over its connection, not by rings: [Errno 28]"
    assert capsys.readouterr().err == f"{said} No space left on device\n"


async def test_work_that_is_cancelled_fails_nothing_and_is_let_go() -> None:
    """Work that fails is said to, as an error of the process."""
    failures: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(context))
    process: Any = SimpleNamespace(_handles={}, _fail=failures.append)
    cancelled, broken = loop.create_future(), loop.create_future()
    for work in (cancelled, broken):
        runtime.NodeProcess._track(process, work)
    assert [*process._handles] == [cancelled, broken]

    error = ValueError("broken")
    cancelled.cancel()
    broken.set_exception(error)
    await asyncio.sleep(0)
    assert failures == [error]
    assert not process._handles
