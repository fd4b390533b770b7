"""Beginning of processes: what they share, make and say before their first order."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typing_extensions import override

from emu.emulation.wire.messages import (
    Listening,
    Peers,
    ProcessHello,
    unpack,
)
from emu.emulation.wire.process_spec import ProcessSpec
from emu.errors import MalformedFrame, NodeLost
from emu.host.this_host import this_host
from emu_nodes import runtime
from emu_nodes.line import Line
from emu_nodes.program import TaskProgram
from tests.emulation.launch.specs import process_spec, process_task
from tests.nodes.test_course_of_a_process import HOST, Closed, process_of


@pytest.mark.parametrize(
    ("bound", "told"),
    [("10.1.2.3", "10.1.2.3"), ("0.0.0.0", "10.0.0.7"), ("::", "10.0.0.7")],  # noqa: S104
)
async def test_peers_connect_to_the_address_that_the_coordinator_sees(
    bound: str, told: str
) -> None:
    """A process that listens at every address tells the address that is seen."""
    process = process_of(process_task("x:X"))
    process._compute = None  # the loop's own threads
    asked: list[Any] = []
    met: list[Any] = []

    async def start(bind: str, *, ports: object) -> tuple[str, int]:
        asked.append((bind, ports))
        return bound, 4321

    async def meet(addresses: object, pacer: object) -> None:
        met.append((addresses, pacer))

    async def receive(kind: type, content: str) -> Peers:
        assert kind is Peers
        assert content == "the addresses of its peers"
        return Peers({"p0": ["h", 1]})

    process._spec = replace(process._spec, host=replace(HOST, bind="bind"))
    process._ends = SimpleNamespace(server=SimpleNamespace(start=start), meet=meet)
    process._pacer = "pacer"
    process._next = receive
    process._make_programs = lambda: {0: "program"}

    assert await process._come_up() == {0: "program"}
    assert process.said == [Listening(told, 4321)]
    assert asked == [("bind", process._settings.ports)]
    assert met == [({"p0": ["h", 1]}, "pacer")]


async def test_a_rate_board_that_is_gone_ends_a_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(path: str) -> None:
        raise FileNotFoundError(2, "No such file", path)

    monkeypatch.setattr(runtime, "RateBoard", SimpleNamespace(open=refuse))
    process = process_of(process_task("x:X"))
    with pytest.raises(
        NodeLost, match=r"the rate board has gone with its agent: .*'board'"
    ):
        await process._serve()


@pytest.mark.parametrize(("lead", "numbers"), [("w0", [8, 9]), ("other", [])])
async def test_the_lead_alone_brings_rings_and_each_forgets_a_run_that_is_over(
    lead: str, numbers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs follow the first one, then the connection is closed."""
    process = process_of(process_task("x:X"), has_rings=True)
    calls: list[Any] = []
    connection = Closed(calls, "closed")
    given: dict[str, Any] = {}
    cast("Any", connection).send = lambda fields: calls.append(unpack(fields))

    async def connect(address: object, **options: Any) -> Any:
        given.update(options, address=address)
        return connection

    runs = iter([True, True, False])

    async def serve() -> bool:
        calls.append("run")
        return next(runs)

    monkeypatch.setattr(runtime, "connect_control", connect)
    process._line = SimpleNamespace(
        lead=lead,
        connect=lambda _: calls.append("line"),
        make_rings=lambda: [8, 9],
        forget=lambda name: calls.append(f"forgot {name}"),
    )
    process._serve = serve

    assert await process.exit_status() == 0
    hello = ProcessHello(this_host.process_id(), lead, numbers)
    forgot = ["run", "forgot w0", "run", "forgot w0", "run"]
    assert calls == [*["line"] * (lead == "w0"), hello, *forgot, "closed"]
    assert given["address"] == ("there", 1)
    identity = given["identity"]
    assert (identity.role, identity.name, identity.key) == ("process", "w0", b"k")
    assert given["within"] == process._settings.deadline


@pytest.mark.parametrize(
    ("count", "statuses", "status"), [(1, [0], 0), (2, [1, 0], 1), (3, [0, 1, 0], 1)]
)
def test_processes_of_one_loop_share_what_is_slow_once(
    count: int, statuses: list[int], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They warm up once and look at the loop together, anew in a further run."""
    warmed: list[Any] = []
    looks: list[Any] = []
    made: list[Any] = []

    async def warm_up(compute: object) -> None:
        warmed.append(compute)

    class Metrics:
        closed = False

        def __init__(self) -> None:
            looks.append(self)

    class Process:
        def __init__(self, spec: ProcessSpec, around: Any, line: Line) -> None:
            self.number = len(made)
            self.around = around
            made.append((spec.process, around.members, dict(around.tuning), line.lead))

        async def exit_status(self) -> int:
            await self.around.warm_up(f"thread of {self.number}")
            for _ in range(2):
                self.around.metrics()
            if self.number == count - 1:
                looks[-1].closed = True
                assert self.around.metrics() is looks[-1]
            return statuses[self.number]

    monkeypatch.setattr(runtime, "NodeProcess", Process)
    monkeypatch.setattr(runtime, "HostMetrics", Metrics)
    monkeypatch.setattr(runtime, "warm_up_process", warm_up)
    monkeypatch.setattr(runtime, "tune_process", lambda: {"priority": "high"})
    specs = [process_spec(f"w{n}", process_task("x:X", task=n)) for n in range(count)]
    monkeypatch.setattr(
        ProcessSpec, "from_map", classmethod(lambda _, number: specs[number])
    )
    assert runtime.main(cast("Any", range(count))) == status
    tuning = {"priority": "high"} | ({"processes": "machine"} if count > 1 else {})
    assert made == [(f"w{n}", count, tuning, "w0") for n in range(count)]
    assert warmed == ["thread of 0"]
    assert len(looks) == 2


def test_what_is_wrong_with_a_process_is_left_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pools that processes share are made before they fork, for all together."""
    prepared: list[Any] = []
    monkeypatch.setattr(runtime, "prepare_pools", prepared.append)
    monkeypatch.setattr(
        ProcessSpec, "from_map", classmethod(lambda _, fields: fields["name"])
    )
    runtime.prepare([{"name": "a"}, {"name": "b"}])
    assert prepared == [["a", "b"]]
    for error in (MemoryError, MalformedFrame, AttributeError, TypeError, ValueError):

        def refuse(_: object, error: type[Exception] = error) -> None:
            raise error

        monkeypatch.setattr(runtime, "prepare_pools", refuse)
        runtime.prepare([{"name": "a"}])


class Sinking(TaskProgram):
    """A program that takes frames of an edge as they come."""

    @override
    def sinks(self) -> dict[int, Any]:
        """Return its sink."""
        return {self._brief.settings["edge"]: self}


def test_programs_are_made_with_room_and_sinks_for_what_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of three programs take frames themselves; all share what they make."""
    settings = [{"edge": 5}, {"edge": 8}, {}]
    tasks = [
        process_task(f"x:{number}", task=10 + number, settings=setting)
        for number, setting in enumerate(settings)
    ]
    process = process_of(*tasks)
    shared: list[Any] = []

    def load(path: str) -> Any:
        def make(brief: Any, common: Any) -> Any:
            shared.append(common)
            return SimpleNamespace() if path == "x:2" else Sinking(brief, common)

        return make

    monkeypatch.setattr(runtime, "load_program", load)
    reserved: list[int] = []
    sinks: dict[int, Any] = {}
    process._ends = SimpleNamespace(
        pool=SimpleNamespace(reserve=reserved.append),
        server=SimpleNamespace(sinks=sinks),
    )
    process._spec = replace(process._spec, reserved=[300, 20])
    programs = process._make_programs()

    assert [*programs] == [10, 11, 12]
    assert sinks == {5: programs[10], 8: programs[11]}
    assert reserved == [300, 20]
    assert shared[0] is shared[1] is shared[2]


@pytest.mark.parametrize("selector", [False, True])
@pytest.mark.parametrize("timed", [False, True])
async def test_the_core_runs_timed_tasks_where_the_loop_gives_it_turns(
    monkeypatch: pytest.MonkeyPatch, *, selector: bool, timed: bool
) -> None:
    """Python runs all others, and is told of their frames by nobody else."""
    chosen = object() if selector else None
    process = process_of(process_task("x:X", task=4), selector=chosen)
    process._ends = SimpleNamespace(inbox="inbox", outputs={}, count_frames=None)
    process._clock, process._pacer = "clock", "pacer"
    started: list[Any] = []

    class Timed:
        def __init__(self, *given: Any) -> None:
            self.given = given

        def start(self) -> None:
            started.append(self)

        def carry_out(self) -> None:
            """Do nothing."""

        def count_frames(self) -> None:
            """Do nothing."""

    monkeypatch.setattr(runtime, "TimedProcess", Timed)
    monkeypatch.setattr(runtime, "find_timed_programs", lambda *given: given)
    found = process._find_timed("programs")
    given = (process._spec, "programs", process._ends, "pacer")
    assert found == (given if selector else {})

    programs: Any = {4: object()}
    carry_out = process._take_up(programs, {4: "timed"} if timed else {})
    if timed and selector:
        assert carry_out == process._timed.carry_out
        assert process._ends.count_frames == process._timed.count_frames
        assert started == [process._timed]
        assert process._timed.given[4:6] == ("clock", chosen)
        assert process._runners == {}
    else:
        assert carry_out == process._carry_out
        assert process._ends.count_frames is None
        assert started == []
        process._timer.close()


async def test_an_error_of_no_kind_of_emu_is_traced_and_fails_a_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def connect(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(runtime, "connect_control", connect)
    process = process_of(process_task("x:X"))
    process.stopped = True  # no excuse for it
    assert await process.exit_status() == 1
    assert "ZeroDivisionError: by nothing" in capsys.readouterr().err
