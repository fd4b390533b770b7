"""Figures that a process hands over, what its programs begin with, and when."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from emu.emulation.network.clock import RunClock
from emu.emulation.network.inbox import Inbox
from emu.emulation.shaping import EmulationSettings
from emu.emulation.wire.array_parts import state_parts
from emu.emulation.wire.messages import (
    Begin,
    Finish,
    Message,
    RunTask,
    StatePart,
    Stop,
    pack,
)
from emu.errors import MalformedFrame, NodeLost
from emu.host.this_host import this_host
from emu_nodes import runtime
from emu_nodes.line import Line
from emu_nodes.program import Copy, task_brief
from emu_nodes.task_runner import TaskContext, TaskRunner, WallClockTimer
from tests.emulation.launch.specs import edge_end, process_spec, process_task


def process_of(*tasks: Any, members: int = 1) -> Any:
    """Return a process that shares its loop with so many, without any connection."""
    spec = process_spec("w0", *tasks)
    surroundings = runtime.Surroundings({}, members=members)
    return runtime.NodeProcess(spec, surroundings, Line([spec]))


def counted(process: Any) -> Any:
    """Let a process count by doubles, each of which returns its own name."""
    process._ends = SimpleNamespace(
        server=SimpleNamespace(statistics=lambda: "received"),
        pool=SimpleNamespace(statistics="memory"),
        inbox=SimpleNamespace(statistics="waiting"),
        connections={
            4: SimpleNamespace(statistics="of 4"),
            2: SimpleNamespace(statistics="of 2"),
        },
    )
    process._pacer = SimpleNamespace(
        statistics=lambda: "pacer",
        log=SimpleNamespace(pack=lambda clock: f"flows at {clock.now()}"),
    )
    process._clock = SimpleNamespace(now=lambda: 7.5)
    return process


@pytest.mark.parametrize(
    ("members", "timed", "cpu", "peak"),
    [
        (1, False, [10.0, 4.0], 900),  # all of the process of the system
        (3, False, [2.0 + 1.5, 0.0], 300),  # a third of its loop, and its own thread
        (3, True, [2.0, 0.0], 300),  # which it has not, where the core runs its tasks
    ],
)
async def test_figures_are_of_this_run_and_of_this_process_alone(
    members: int,
    peak: int,
    cpu: list[float],
    monkeypatch: pytest.MonkeyPatch,
    *,
    timed: bool,
) -> None:
    """A process took 10 s until its first run ended, and 4 s more in the second."""
    process = counted(process_of(process_task("x:X"), members=members))
    counts: list[str] = []
    if timed:
        process._timed = SimpleNamespace(count=lambda: counts.append("counted"))

    def thread_time() -> float:
        is_compute = threading.current_thread().name.startswith("compute")
        return 1.5 if is_compute else 6.0

    monkeypatch.setattr(this_host, "thread_time", thread_time)
    usage = iter([(10.0, 900), (14.0, 900)])
    metrics: Any = SimpleNamespace(usage=lambda: next(usage), use=lambda: "use")
    first = await process._count(metrics)
    second = await process._count(metrics)
    process._compute.shutdown()

    assert [first.cpu_seconds, second.cpu_seconds] == cpu
    assert first.peak_memory == peak
    assert counts == ["counted"] * 2 * timed
    assert (first.received, first.memory, first.waiting) == (
        "received",
        "memory",
        "waiting",
    )
    assert first.sent == ["of 4", "of 2"]
    assert (first.pacer, first.host_metrics) == ("pacer", "use")
    assert (first.clock, first.flows) == ([7.5], "flows at 7.5")


class Keeper:
    """Notes what it begins with."""

    begun: Any = None

    def restore(self, states: Any) -> None:
        """Begin with states."""
        self.begun = {name: state["x"].tolist() for name, state in states.items()}


def saying(process: Any, parts: list[StatePart]) -> Any:
    """Let the coordinator send parts, one after the other."""
    rest = iter(parts)

    async def next_part(_kind: object, _content: str) -> StatePart:
        return next(rest)

    process._next = next_part
    return process


async def test_programs_begin_with_the_states_of_their_own_tasks() -> None:
    """Three of four tasks begin with one or two of three states, which come once."""
    names = {1: ("a", "c"), 2: ("b",), 3: ("c",), 4: ()}
    tasks = [
        replace(process_task("x:X", task=number), restores=restores)
        for number, restores in names.items()
    ]
    parts: list[StatePart] = []
    for number, name in enumerate("cab"):
        parts += state_parts(name, 6, {"x": np.array([number, number + 10.0])})
    process = saying(process_of(*tasks), parts)
    programs: dict[int, Any] = {number: Keeper() for number in names}
    await process._restore(programs)
    process._compute.shutdown()

    assert programs[1].begun == {"a": [1.0, 11.0], "c": [0.0, 10.0]}
    assert programs[2].begun == {"b": [2.0, 12.0]}
    assert programs[3].begun == {"c": [0.0, 10.0]}
    assert programs[4].begun is None


async def test_a_state_that_was_not_asked_for_or_is_cut_short_is_refused() -> None:
    task = replace(process_task("x:X"), restores=("a",))
    state = {"x": np.arange(3.0)}
    (whole,) = state_parts("a", 6, state)
    short = replace(whole, total=whole.total + 8)
    for part, match in (
        (replace(whole, task="b"), "the state of b was not asked for"),
        (short, "state to begin with: "),
    ):
        process = saying(process_of(task), [part])
        with pytest.raises(MalformedFrame, match=match):
            await process._restore({0: Keeper()})
        process._compute.shutdown()


async def test_tasks_count_from_the_iteration_that_their_run_begins_with() -> None:
    process = process_of(process_task("x:X", task=4))
    process._spec = replace(process._spec, first=7)
    process._ends = SimpleNamespace(inbox="inbox", outputs={})
    process._clock = "clock"
    carry_out = process._take_up({4: Keeper()}, {})
    process._timer.close()
    process._compute.shutdown()

    assert carry_out == process._carry_out
    context = process._runners[4]._context
    assert (context.first, context.inbox, context.clock) == (7, "inbox", "clock")
    assert context.settings is process._settings


async def test_a_process_waits_for_the_coordinator_twice_as_long_as_others() -> None:
    """A process stops when it is told to, and takes no other message for the start."""
    process = process_of(process_task("x:X"))
    process._settings = EmulationSettings(deadline=4.0)
    said: list[Message] = [Begin(5.0, rings=False), Finish(), Stop("enough")]
    waits: list[tuple[float, str]] = []

    async def receive(patience: float, *, waiting_for: str) -> Any:
        waits.append((patience, waiting_for))
        return pack(said.pop(0))

    process._control = SimpleNamespace(receive=receive)
    begin = await process._next(Begin, "the start")
    assert begin.start_wall == 5.0
    assert waits == [(8.0, "the start")]
    with pytest.raises(MalformedFrame, match="Finish came where Begin was due"):
        await process._next(Begin, "the start")
    assert not process.stopped
    with pytest.raises(NodeLost, match="the run was stopped: enough"):
        await process._next(Begin, "the start")
    assert process.stopped
    process._compute.shutdown()


class Newest:
    """Runs and reads whatever comes."""

    def run(self, _iteration: int, _inputs: Any) -> dict[int, Any]:
        """Send nothing."""
        return {}

    def report(self) -> dict[str, float]:
        """Report nothing."""
        return {}

    def read(self, _reads: Any) -> None:
        """Read the newest."""


class Held:
    """A payload that is given back."""

    iteration = 0
    released = 0
    payload: dict[str, Any] = {}  # noqa: RUF012 -- it is only read

    def release(self) -> None:
        """Give it back."""
        self.released += 1


async def test_the_newest_payload_is_given_back_after_the_last_iteration() -> None:
    """A payload is held for three iterations, since the next may read it again."""
    inputs = (edge_end(3, latest=True),)
    task = process_task("x:X", task=5, times=[0.0] * 3, inputs=inputs)
    timer = WallClockTimer()
    told: list[Any] = []
    with ThreadPoolExecutor(1) as compute:
        context = TaskContext(
            inbox=Inbox("w0"),
            outputs={},
            compute=compute,
            timer=timer,
            clock=RunClock(0.0, 1.0),
            report=told.append,
            send=told.append,
            settings=EmulationSettings(),
        )
        runner = TaskRunner(task, cast("Any", Newest()), context)
        held = Held()
        runner._newest._held[3] = cast("Any", held)
        released = []
        for iteration in range(3):
            await runner.run(RunTask(5, iteration, 0.0, [[3, 0]]))
            released.append(held.released)
    timer.close()

    assert released == [0, 0, 1]
    assert len(told) == 3


@pytest.mark.parametrize(("is_copy", "owner"), [(True, "ps7"), (False, "w0")])
def test_a_copy_sends_the_state_of_its_owner(*, is_copy: bool, owner: str) -> None:
    settings = {"of": "ps7", "missed": 0}
    task = process_task("x:X", settings=settings)
    program = Copy(task_brief(task, {}, 0), {}) if is_copy else Newest()
    runner = TaskRunner(task, cast("Any", program), cast("Any", None))

    assert runner._owner == owner
