"""Course of a process from its hello to its last word, among doubles of the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from emu.emulation.wire.messages import (
    Again,
    Begin,
    Failed,
    Finish,
    Frames,
    Message,
    Orders,
    Outcome,
    Ready,
    ResultPart,
    RunTask,
    StatePart,
    Stop,
    WakeSender,
    pack,
    unpack,
)
from emu.emulation.wire.process_spec import HostSide
from emu.errors import MalformedFrame, NodeLost, NodeMisbehaved
from emu_nodes import runtime
from emu_nodes.line import Line
from emu_nodes.task_runner import TaskRunner, _Work
from tests.emulation.launch.specs import process_spec, process_task

HOST = HostSide(
    certificate=b"", coordinator=("there", 1), bind="", board="board", key=b"k"
)


def process_of(*tasks: Any, **surroundings: Any) -> Any:
    """Return a process whose messages are noted in ``said``."""
    spec = replace(process_spec("w0", *tasks), host=HOST)
    around = runtime.Surroundings(**({"tuning": {}} | surroundings))
    process: Any = runtime.NodeProcess(spec, around, Line([spec]))
    process.said = []
    process._control = SimpleNamespace(
        send=lambda fields: process.said.append(unpack(fields)),
        local_address="10.0.0.7",
    )
    process._compute.shutdown()
    return process


class Pieces:
    """A log whose pieces are counted by a clock, or by none."""

    def __init__(self, *pieces: bytes) -> None:
        self.rows = pieces
        self.clocks: list[Any] = []

    def pieces(self, *clock: Any) -> Sequence[bytes]:
        """Return the pieces."""
        self.clocks += clock
        return self.rows


async def test_rows_results_and_figures_are_handed_over_in_this_order() -> None:
    """Logs of 1, 3, 2 and no pieces make three messages; figures have both times."""
    process = process_of(process_task("x:X"))
    noted: list[int] = []
    connections = {
        edge: SimpleNamespace(note_connection=lambda edge=edge: noted.append(edge))
        for edge in (5, 2)
    }
    received = Pieces(b"r0", b"r1", b"r2")
    sent = Pieces(b"s0")
    server = SimpleNamespace(log=received, waits=Pieces())
    process._ends = SimpleNamespace(connections=connections, server=server)
    process._pacer = SimpleNamespace(departures=sent, connections=Pieces(b"c0", b"c1"))
    process._clock = SimpleNamespace(now=lambda: 9.5)
    results = {7: {"a": np.array([3.0])}, 4: {}, 6: {"b": np.array([4.0, 5.0])}}
    process._programs = {
        task: SimpleNamespace(result=lambda arrays=arrays: arrays)
        for task, arrays in results.items()
    }
    clock = [7.0]
    statistics: Any = SimpleNamespace(clock=clock, to_map=lambda: {"clock": [*clock]})

    process._hand_over(statistics)

    assert noted == [5, 2]
    assert process.said[:3] == [
        Frames(b"s0", b"r0", b"c0", b""),
        Frames(b"", b"r1", b"c1", b""),
        Frames(b"", b"r2", b"", b""),
    ]
    parts = process.said[3:-1]
    assert [(type(part), part.task, part.name, part.total) for part in parts] == [
        (ResultPart, 7, "a", 8),
        (ResultPart, 6, "b", 16),
    ]
    assert process.said[-1] == Outcome({"clock": [7.0, 9.5]})
    assert sent.clocks == received.clocks == [process._clock]


@pytest.mark.parametrize(
    ("answer", "goes_on"), [(Again(), True), (Finish(), False), (None, False)]
)
async def test_a_further_run_follows_where_the_coordinator_says_so(
    answer: Message | None, *, goes_on: bool
) -> None:
    """None: it has gone."""
    process = process_of(process_task("x:X"))

    async def receive() -> Any:
        if answer is None:
            raise NodeLost("the coordinator is gone")
        return pack(answer)

    process._control.receive = receive
    assert await process._goes_on() is goes_on


def test_orders_start_tasks_and_wake_the_senders_of_edges() -> None:
    process = process_of(process_task("x:X"))
    tracked: list[Any] = []
    woken: list[Any] = []

    def runner_of(task: int) -> Any:
        return SimpleNamespace(run=lambda order: (task, order))

    def connection_of(edge: int) -> Any:
        return SimpleNamespace(notify=lambda since: woken.append((edge, since)))

    process._runners = {task: runner_of(task) for task in (3, 5)}
    process._ends = SimpleNamespace(connections={e: connection_of(e) for e in (3, 5)})
    process._track = tracked.append
    start = RunTask(5, 2, 0.5)
    process._carry_out(start)
    process._carry_out(WakeSender(3, 1.5))

    assert tracked == [(5, start)]
    assert woken == [(3, 1.5)]


def test_a_process_obeys_until_it_is_to_finish_or_to_stop() -> None:
    process = process_of(process_task("x:X"))
    obeyed: list[Message] = []
    process._line = SimpleNamespace(obey=obeyed.append)
    orders = Orders(b"notes")

    assert process._obeys(orders) is True
    assert obeyed == [orders]
    assert process._obeys(Finish()) is False
    with pytest.raises(MalformedFrame, match="Begin came where Finish was due"):
        process._obeys(Begin(0.0))
    assert not process.stopped
    with pytest.raises(NodeLost, match="the run was stopped: enough"):
        process._obeys(Stop("enough"))
    assert process.stopped


@pytest.mark.parametrize("ends_by", ["finish", "order", "failure"])
async def test_what_fails_beside_the_orders_ends_a_process_as_well(
    ends_by: str,
) -> None:
    """A process follows orders no longer then, and lets later ones fall."""
    process = process_of(process_task("x:X"))
    process._failure = asyncio.get_running_loop().create_future()
    process._take_up = lambda programs, timed: (programs, timed)
    line: list[Any] = []
    process._line = SimpleNamespace(
        join=lambda *joined: line.append(joined), leave=line.append
    )
    cancelled: list[bool] = []

    async def follow(_obey: object) -> None:
        if ends_by == "order":
            raise MalformedFrame("no order")
        if ends_by == "failure":
            process._fail(NodeMisbehaved("the first"))
            process._fail(NodeMisbehaved("the second"))
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

    process._control.follow = follow
    if ends_by == "finish":
        await process._obey("programs", "timed")
    else:
        expected = MalformedFrame if ends_by == "order" else NodeMisbehaved
        with pytest.raises(expected, match=r"no order|the first"):
            await process._obey("programs", "timed")
    await asyncio.sleep(0)

    assert line == [("w0", ("programs", "timed")), "w0"]
    assert cancelled == [True] * (ends_by == "failure")


async def test_run_time_follows_the_line_of_each_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Run time follows two lines, one a second, and ends when no line is left."""
    lines = iter(["first", "second", None])
    calls: list[Any] = []

    async def sleep(seconds: float) -> None:
        calls.append(("slept", seconds))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(runtime, "this_host", SimpleNamespace(monotonic=lambda: 50.0))
    clock = SimpleNamespace(
        follow=lambda *given: calls.append(given),
        show=lambda core: calls.append(("shown", core)),
    )
    board = SimpleNamespace(clock=lambda: next(lines))
    pacer = SimpleNamespace(board=board, core="core")
    await runtime.follow_host_clock(cast("Any", clock), cast("Any", pacer))

    shown = [("shown", "core"), ("slept", 1.0)]
    assert calls == [("first", 50.0, 1.0), *shown, ("second", 50.0, 1.0), *shown]


class Closed:
    """Something that is given back in the end."""

    def __init__(self, closed: list[str], name: str) -> None:
        self._closed = closed
        self._name = name

    def close(self) -> None:
        """Note its name."""
        self._closed.append(self._name)

    async def aclose(self) -> None:
        """Note its name."""
        self.close()


@pytest.mark.parametrize("timed", [False, True])
async def test_what_a_process_did_when_it_failed_is_told_before_its_ends_close(
    monkeypatch: pytest.MonkeyPatch, *, timed: bool
) -> None:
    """One of three runners is idle; a timed process says itself what it does."""
    process = process_of(process_task("x:X"))
    closed: list[str] = []
    for name in ("RateBoard", "Pacer", "EdgeEnds"):
        made = Closed(closed, name)
        double: Any = lambda *_, made=made: made  # noqa: E731
        if name == "RateBoard":
            double = SimpleNamespace(open=double)
        monkeypatch.setattr(runtime, name, double)

    async def take_part() -> bool:
        doing = ("task a, iteration 1", "", "task b, iteration 2")
        process._runners = {
            task: SimpleNamespace(doing=words) for task, words in enumerate(doing)
        }
        process._timer = Closed(closed, "timer")
        if timed:
            process._timed = Closed(closed, "timed")
            process._timed.doing = lambda: ["task c, iteration 3"]
        raise NodeMisbehaved("nonsense")

    process._take_part = take_part

    def send(fields: Any) -> None:
        process.said.append(unpack(fields))
        closed.append("told")

    process._control.send = send
    with pytest.raises(NodeMisbehaved, match="nonsense"):
        await process._serve()

    (failed,) = process.said
    assert isinstance(failed, Failed)
    assert (failed.error, failed.text) == ("NodeMisbehaved", "nonsense")
    expected = "task a, iteration 1; task b, iteration 2"
    assert failed.doing == ("task c, iteration 3" if timed else expected)
    assert "take_part" in failed.trace
    timed_end = ["timed"] * timed
    assert closed == ["told", *timed_end, "EdgeEnds", "timer", "Pacer", "RateBoard"]
    assert process._timer is None


@pytest.mark.parametrize(
    ("lead", "selector", "rings", "expected"),
    [
        ("w0", True, True, ["selector"]),
        ("w0", False, True, ["line"]),
        ("w0", True, False, []),
        ("w0", False, False, []),
        ("w9", True, True, []),
        ("w9", False, True, []),
    ],
)
async def test_the_lead_alone_takes_orders_by_rings(
    lead: str, expected: list[str], *, selector: bool, rings: bool
) -> None:
    """A process is warm and ready before the start, and counts after its work."""
    spoken: list[str] = []
    order: list[str] = []

    async def warm_up(_compute: object) -> None:
        order.append("warm")

    chosen = SimpleNamespace(speak_by_rings=lambda *_: spoken.append("selector"))
    process = process_of(
        process_task("x:X"),
        tuning={"a": "b"},
        warm_up=warm_up,
        selector=chosen if selector else None,
        metrics=lambda: Closed(order, "metrics"),
    )

    def step(name: str, outcome: Any = None) -> Callable[..., Awaitable[Any]]:
        async def take(*_: object) -> Any:
            order.append(name)
            return outcome

        return take

    process._line = SimpleNamespace(
        lead=lead, speak_by_rings=lambda _: spoken.append("line")
    )
    process._come_up = step("up", {0: "program"})
    process._restore = step("restored")
    process._find_timed = lambda _: {}
    process._next = step("begin", Begin(100.0, rings=rings))
    process._obey = step("obeyed")
    process._count = step("counted", "figures")
    process._hand_over = order.append
    process._goes_on = step("asked", True)
    process._track = lambda work: work.close()
    process._ends = SimpleNamespace()
    process._board = SimpleNamespace(clock=lambda: None)
    process._pacer = SimpleNamespace(
        device="timerfd", start=lambda _: order.append("paced")
    )
    process._settings = replace(process._settings, time_scale=4.0)

    assert await process._take_part() is True
    assert spoken == expected
    before = ["up", "restored", "warm", "begin", "paced", "obeyed"]
    assert order == [*before, "counted", "metrics", "figures", "asked"]
    (ready,) = process.said
    assert isinstance(ready, Ready)
    assert {"a": "b", "pacer": "timerfd"}.items() <= ready.tuning.items()
    assert process._programs == {0: "program"}
    assert process._ends.clock is process._clock
    assert process._clock.to_wall(2.0) == 108.0


async def test_what_the_core_runs_needs_no_warming_up() -> None:
    process = process_of(process_task("x:X"))
    process._surroundings = replace(process._surroundings, warm_up=None)
    process._pacer = SimpleNamespace(device="timerfd")

    async def come_up() -> dict[int, str]:
        return {0: "program"}

    async def begin(*_: object) -> None:
        raise NodeLost("far enough")

    process._come_up = come_up
    process._find_timed = lambda programs: programs
    process._next = begin
    with pytest.raises(NodeLost, match="far enough"):
        await process._take_part()
    assert [type(message) for message in process.said] == [Ready]


async def test_states_of_cuts_are_sent_by_who_has_them() -> None:
    """An iteration hands over its end before the states of two cuts."""
    sent: list[Any] = []
    states = {4: {"x": np.array([1.0])}, 2: {"x": np.array([2.0, 3.0])}}
    work = _Work(payloads={}, began=0.0, cpu=0.0, states=states)

    async def until(_wall: float) -> None:
        return None

    context = SimpleNamespace(
        first=0,
        compute=None,
        timer=SimpleNamespace(until=until),
        clock=SimpleNamespace(to_wall=lambda time: time),
        send=sent.append,
    )
    task = replace(process_task("x:X", times=[0.0] * 3), every=2)
    runner: Any = TaskRunner(task, cast("Any", object()), cast("Any", context))
    runner._compute = lambda *_: work
    runner._hand_over = lambda *_: sent.append("end")
    await runner.run(RunTask(0, 1, 0.0))

    assert sent[0] == "end"
    assert all(isinstance(part, StatePart) for part in sent[1:])
    assert [(part.task, part.iteration, part.total) for part in sent[1:]] == [
        ("w0", 4, 8),
        ("w0", 2, 16),
    ]
