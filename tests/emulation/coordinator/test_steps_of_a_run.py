"""Steps of a run from the coordinator's side, among doubles of members and clocks."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from emu.emulation.coordinator import RunSettings
from emu.emulation.coordinator import run as run_module
from emu.emulation.coordinator.peers import ClockRelation
from emu.emulation.coordinator.run import Coordinator
from emu.emulation.network.clock import PauseAwareClock, RunClock
from emu.emulation.wire.messages import (
    Ends,
    Finish,
    FlowEnded,
    Launch,
    Listening,
    Message,
    Outcome,
    Peers,
    Ready,
    StatePart,
    TaskEnded,
)
from emu.emulation.wire.notes import pack_end
from emu.errors import DeadlineExceeded, NodeLost, NodeMisbehaved, RunError
from emu.prediction.core import lib
from emu.testing import two_machine_example

#: Rows that processes hand over.
FRAMES = ("sent", "received", "connections", "waits")
PROBLEM, REALIZATION = two_machine_example(3)
STATE = StatePart("ps0", 2, "x", "<f8", [0], 0, b"", last=True)


class Steps(Coordinator):
    """A coordinator of which each test makes the parts that it needs."""

    def __init__(self, **parts: Any) -> None:
        self._problem = PROBLEM
        self._expected = REALIZATION
        self._settings = RunSettings()
        self.notices: list[str] = []
        self._observer = cast("Any", SimpleNamespace(on_notice=self.notices.append))
        for name, part in parts.items():
            setattr(self, f"_{name}", part)


def hand_set(monkeypatch: pytest.MonkeyPatch, *instants: float) -> None:
    """Let wall time be these instants, one after the other, then the last."""
    left = list(instants)

    def monotonic() -> float:
        return left.pop(0) if len(left) > 1 else left[0]

    host = SimpleNamespace(monotonic=monotonic, name_of_clock=lambda: "clock of here")
    monkeypatch.setattr(run_module, "this_host", host)


@pytest.mark.parametrize(
    ("next_end", "kill", "rings", "last_look", "wake"),
    [
        # An emulated second takes 2 s, from 100 s on: 3 s are at 106 s.
        (3.0, math.inf, False, 105.9, 105.975),  # half of 50 ms before it
        (2.5, math.inf, False, 105.0, 105.0003),  # of what is due, all are awaited
        (2.51, math.inf, False, 105.0, 105.0203),  # the half is over already
        (3.0, math.inf, False, 105.0, 105.25),  # a look at deadlines is sooner
        (math.inf, math.inf, False, 105.1, 105.35),
        (2.5, math.inf, True, 105.0, 105.25),  # the core wakes for what is due
        (3.0, 2.55, False, 105.0, 105.1),  # a kill
        (3.0, 2.55, True, 105.0, 105.1),
    ],
)
def test_the_coordinator_wakes_for_ends_kills_and_looks(
    next_end: float,
    kill: float,
    last_look: float,
    wake: float,
    monkeypatch: pytest.MonkeyPatch,
    *,
    rings: bool,
) -> None:
    hand_set(monkeypatch, 105.0)
    coordinator = Steps(
        membership=SimpleNamespace(rings={"w0": 1} if rings else {}),
        driver=SimpleNamespace(next_end=next_end),
        kills=SimpleNamespace(due=SimpleNamespace(time=kill)),
    )
    clock = RunClock(100.0, 2.0)
    assert coordinator._wake_time(clock, last_look) == pytest.approx(wake, abs=1e-9)


@pytest.mark.parametrize("kills", [False, True])
def test_ends_are_reported_and_states_kept_and_nothing_else_is_taken(
    *, kills: bool
) -> None:
    """Kills are by ends of tasks as they are told, and of flows as they settle."""
    reported: list[Any] = []
    noted: list[Any] = []
    seen: list[Any] = []
    settings = RunSettings(kills=cast("Any", ("kill",)) if kills else ())
    coordinator = Steps(
        driver=SimpleNamespace(report=lambda *given: reported.append(given)),
        kills=SimpleNamespace(note=noted.append),
        settings=settings,
        observer=SimpleNamespace(flow_ended=seen.append),
    )
    task = TaskEnded(2, 1, 2.0, 5.0, [], [], 0.5, 0.25, 0.125, {})
    flow = FlowEnded(3, 1, 4.0, 7.0)
    notes = pack_end(task) + pack_end(flow)
    states = coordinator._take_mail([("w0", Ends(notes)), ("s0", STATE)], 8.0)
    assert states == [("s0", STATE)]
    assert reported == [("w0", notes, 8.0)]
    assert noted == [task] * kills

    coordinator.flow_ended(flow)
    assert noted[kills:] == [flow] * kills
    assert seen == [flow]
    with pytest.raises(NodeMisbehaved, match="w1 sent Finish during the run"):
        coordinator._take_mail([("w1", Finish())], 8.0)


async def test_a_kill_is_for_all_that_are_due_at_once_and_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two kills share a process; a state that comes meanwhile is kept."""
    hand_set(monkeypatch, 50.0)
    killed: list[list[str]] = []
    waits: list[float] = []
    kept: list[Any] = []
    looks: list[Any] = []
    mail: list[list[tuple[str, Message]]] = [[("s0", STATE), ("w0", Finish())], []]

    async def events(wake: float) -> list[tuple[str, Message]]:
        waits.append(wake)
        if not mail:
            raise NodeLost("it was killed")
        return mail.pop(0)

    due = SimpleNamespace(
        now=[
            SimpleNamespace(processes=["b", "a"]),
            SimpleNamespace(processes=["a", "c"]),
        ]
    )
    shown: list[Any] = []
    coordinator: Any = Steps(
        kills=SimpleNamespace(due=due),
        observer=SimpleNamespace(killing=shown.append),
        membership=SimpleNamespace(kill=killed.append, events=events),
        cuts=SimpleNamespace(add=lambda *given: kept.append(given)),
    )
    coordinator._look = lambda *given: looks.append(given)
    with pytest.raises(NodeLost, match="it was killed"):
        await coordinator._kill("clock", "awake")

    assert shown == [due]
    assert killed == [["b", "a", "c"]]
    assert waits == [50.25] * 3
    assert kept == [("s0", STATE)]
    assert looks == [("clock", "awake")] * 2


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ([0, 0, 0], "late"),
        ([0, 1, 3], "4 rate.*{edge}.*; late"),
    ],
)
def test_what_is_overdue_is_told_with_the_rates_that_never_came(
    missing: list[int], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of three edges misses the most rates."""
    hand_set(monkeypatch, 50.0)
    progress: list[Any] = []
    checked: list[Any] = []

    def check(now: float, awake: float) -> None:
        checked.append((now, awake))
        raise DeadlineExceeded("late")

    coordinator = Steps(
        observer=SimpleNamespace(progressed=progress.append),
        driver=SimpleNamespace(progress=lambda now: ("progress", now)),
        cuts=SimpleNamespace(check=lambda: checked.append("cuts")),
        deadlines=SimpleNamespace(check=check),
        boards=SimpleNamespace(missing_rates=lambda: np.array(missing)),
    )
    clock: Any = SimpleNamespace(now=lambda: 7.0)
    awake = PauseAwareClock(1.0, 49.5)
    edge = PROBLEM.job.edge_names[2].replace("->", "-.")
    with pytest.raises(DeadlineExceeded, match=told.format(edge=edge)):
        coordinator._look(clock, awake)
    assert progress == [("progress", 7.0)]
    assert checked == ["cuts", (7.0, 50.0)]


async def test_answers_and_late_states_are_taken_after_the_last_iteration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each process answers between two run times in wall seconds: 30 s, and later."""
    hand_set(monkeypatch, 130.0, 131.0, 132.0, 133.0)
    job = PROBLEM.job
    sent: list[Message] = []
    kept: list[Any] = []
    asked: list[str] = []
    left: list[set[str]] = []

    async def until(missing: Any, purpose: str, take: Any) -> None:
        asked.append(purpose)
        take("s0", STATE)
        for process in ("g0", "w0"):
            left.append({*missing()})
            take(process, Outcome({"sent": [{"edge": 1, "missed": 1}]}))
        left.append({*missing()})

    missing = np.zeros(len(job.edges), np.int64)
    missing[1] = 4
    coordinator = Steps(
        membership=SimpleNamespace(
            send_to_processes=sent.append, barrier=SimpleNamespace(until=until)
        ),
        cuts=SimpleNamespace(add=lambda *given: kept.append(given)),
        boards=SimpleNamespace(missing_rates=lambda: missing),
    )
    answers = await coordinator._collect(100.0)

    assert sent == [Finish()]
    assert asked == ["hand over its results, after the last iteration"]
    assert kept == [("s0", STATE)]
    assert left[0] == {*job.processes}
    assert left[0] - left[1] == {"g0"}
    assert left[1] - left[2] == {"w0"}
    windows = [figures["answered"] for figures in answers.statistics.values()]
    assert windows == [[30.0, 31.0], [30.0, 32.0]]
    assert answers.statistics["g0"]["sent"] == [{"edge": 1, "missed": 4}]


def agent(host_name: str, **known: Any) -> Any:
    """Return an agent that has joined from a host."""
    return SimpleNamespace(host_name=host_name, host=known, cores=2)


def test_hosts_of_other_versions_are_refused_or_warned_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three agents: of this version, of another, and of one that told none."""
    monkeypatch.setattr(run_module, "version_of_emu", lambda: "2.0")
    agents = [agent("a", emu="2.0"), agent("b", emu="1.9\n"), agent("c")]
    coordinator = Steps(membership=SimpleNamespace(agents=agents))
    with pytest.raises(RunError, match=r"emu on host b is 1\.9.*, and 2\.0 here: inst"):
        coordinator._compare_versions()
    coordinator._settings = RunSettings(any_version=True)
    coordinator._compare_versions()
    assert len(coordinator.notices) == 2
    assert coordinator.notices[0].startswith("warning: emu on host b is 1.9")
    expected = "warning: emu on host c is of an older kind, and 2.0 here"
    assert coordinator.notices[1] == expected


@pytest.mark.parametrize(
    ("embedded", "port", "extra"),
    [(True, 0, True), (True, 9, False), (False, 0, False)],
)
def test_agents_start_the_processes_of_their_machines(
    port: int, monkeypatch: pytest.MonkeyPatch, *, embedded: bool, extra: bool
) -> None:
    """Machine m0 is on host b, m1 on host a; a port in the range is for the command."""
    hand_set(monkeypatch, 1.0)
    orders: list[Any] = []
    checked: list[Any] = []
    agents = [agent("a"), agent("b")]
    coordinator = Steps(
        settings=RunSettings(port=port, ports=(1000, 2000), heartbeat_timeout=6.0),
        membership=SimpleNamespace(
            launcher=SimpleNamespace(embedded=embedded),
            agents=agents,
            send_to_agent=lambda *given: orders.append(given),
        ),
    )
    monkeypatch.setattr(
        run_module,
        "check_ports",
        lambda ports, hosts, *, extra: checked.append((ports, hosts, extra)),
    )
    coordinator._launch(["b", "a"])

    machine_of = PROBLEM.placement.machine_of
    host_of = {
        process: "ba"[machine_of[members[0]]]
        for process, members in PROBLEM.job.processes.items()
    }
    assert checked == [((1000, 2000), [*host_of.values()], extra)]
    assert [receiver for receiver, _ in orders] == agents
    for one, machine in zip(agents, ("m1", "m0"), strict=True):
        assert one.host == {"machines": [machine]}
    for host, (_, order) in zip("ab", orders, strict=True):
        assert isinstance(order, Launch)
        names = [spec.process for spec in order.processes]
        assert names == [name for name, there in host_of.items() if there == host]
        assert (order.edges, order.clock) == (len(PROBLEM.job.edges), "clock of here")
        assert order.heartbeat_timeout == 6.0


@pytest.mark.parametrize("stays", [False, True])
async def test_all_are_told_of_their_peers_once_they_listen(*, stays: bool) -> None:
    """Members that stay begin again; the tuning is that of the first process."""
    order: list[Any] = []
    job = PROBLEM.job

    async def messages(names: Any, purpose: str, kind: Any) -> dict[str, Any]:
        assert names == job.processes
        assert "before iteration 0" in purpose
        order.append(kind)
        if kind is Listening:
            ports = enumerate(names, 7000)
            return {name: Listening(f"h{port}", port) for port, name in ports}
        return {name: Ready({"of": name}) for name in names}

    async def begin_again() -> None:
        order.append("again")

    async def start() -> None:
        order.append("started")

    coordinator: Any = Steps(
        membership=SimpleNamespace(
            stays=stays,
            begin_again=begin_again,
            barrier=SimpleNamespace(messages=messages),
            send_to_processes=order.append,
        ),
        settings=RunSettings(meanwhile=lambda: order.append("meanwhile")),
        observer=SimpleNamespace(on_join=order.append),
    )
    coordinator._start_processes = start
    await coordinator._assemble()

    begins = "again" if stays else "started"
    assert order[:3] == [begins, Listening, len(job.processes)]
    peers = order[3]
    assert isinstance(peers, Peers)
    assert [*peers.addresses] == [*job.processes]
    assert peers.addresses["s0"] == ["h7002", 7002]
    assert {*order[4:]} == {Ready, "meanwhile"}
    assert coordinator._tuning == {"of": "g0"}


def test_processes_get_the_states_of_their_tasks_where_a_run_goes_on() -> None:
    sent: list[Any] = []
    membership = SimpleNamespace(send=lambda *given: sent.append(given))
    coordinator = Steps(membership=membership)
    coordinator._send_states()
    assert sent == []
    cuts = SimpleNamespace(
        parts_for=lambda names: [f"{name}{part}" for name in names for part in "xy"]
    )
    coordinator._settings = cast("Any", SimpleNamespace(cuts=cuts))
    coordinator._send_states()
    processes = [process for process, _ in sent]
    assert processes == [name for name in PROBLEM.job.processes for _ in "xy"]
    assert [part for _, part in sent[:3]] == ["g0x", "g0y", "g1x"]


async def test_an_error_is_noticed_before_its_processes_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Note when an error was seen: at 60 s, unless it was seen earlier."""
    hand_set(monkeypatch, 50.0, 60.0)
    for seen in (math.nan, 55.0):
        left: list[float] = []
        error = RunError("broken")
        error.seen = seen

        class Members:
            async def __aenter__(self) -> None:
                """Begin."""

            async def __aexit__(
                self, *_: object, error: RunError = error, left: list[float] = left
            ) -> None:
                left.append(error.noticed)

        async def take_part(_began: float, error: RunError = error) -> None:
            raise error

        async def aclose(left: list[float] = left) -> None:
            left.append(-1.0)

        coordinator: Any = Steps(
            membership=Members(), cuts=SimpleNamespace(aclose=aclose)
        )
        coordinator._take_part = take_part
        with pytest.raises(RunError, match="broken"):
            await coordinator.run()
        assert left == [60.0, -1.0]
        assert error.seen == (60.0 if math.isnan(seen) else seen)


def test_a_story_has_what_is_under_way_while_a_run_runs() -> None:
    coordinator = Steps(deadlines=SimpleNamespace(story=lambda: "two tasks"))
    coordinator.phase = "starting"
    assert coordinator.story() == "starting"
    coordinator.phase = "running"
    assert coordinator.story() == "running: two tasks"


@pytest.mark.parametrize(
    ("left", "leaves_notes", "expected"),
    [
        ("NOTHING_LEFT", False, [("filed", "a", b"1", 9), ("filed", "b", b"2", 9)]),
        ("NOTHING_LEFT", True, [("taken", "a", b"1", 3.0), ("taken", "b", b"2", 3.0)]),
        ("TURN_LEFT", False, [("filed", "a", b"1", 9), ("filed", "b", b"2", 9)]),
        ("ENDS_LEFT", False, ["finished", ("filed", "a", b"1", 9)]),
        ("INSTANTS_LEFT", False, ["finished", ("filed", "a", b"1", 9)]),
    ],
)
def test_what_the_core_leaves_is_done_before_all_else(
    left: str, expected: list[Any], *, leaves_notes: bool
) -> None:
    done: list[Any] = []

    def file(speaker: str, notes: bytes, fault: int) -> None:
        done.append(("filed", speaker, notes, fault))

    def take(speaker: str, ends: Ends, now: float) -> None:
        done.append(("taken", speaker, ends.notes, now))

    number = getattr(lib, left)
    coordinator: Any = Steps(
        driver=SimpleNamespace(
            finish_turn=lambda *given: done.append(
                "finished" if given == (number, "outcome") else given
            ),
            file=file,
        )
    )
    coordinator._take_ends = take
    rings: Any = SimpleNamespace(
        left=number,
        core=SimpleNamespace(outcome="outcome", leaves_notes=leaves_notes, fault=9),
        notes=lambda now: [("a", b"1"), ("b", b"2")] if now == 5.0 else [],
    )
    coordinator._take_left(rings, 5.0, 3.0)
    assert done[: len(expected)] == expected
    assert len(done) == 2 + (expected[0] == "finished")


async def test_without_rings_nobody_takes_their_turns() -> None:
    coordinator = Steps(membership=SimpleNamespace(rings={}))
    with coordinator._turns_by_rings(RunClock(0.0, 1.0)) as turns:
        assert turns is None
    await asyncio.sleep(0)


@pytest.mark.parametrize(("waited", "wall"), [(5.0, 6.0), (7.5, 7.5)])
def test_an_outcome_has_everything_that_was_noted(
    waited: float, wall: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends settle ahead of their times: 3 emulated seconds take 6 s of wall or more."""
    schedule = SimpleNamespace(length=3.0, late=np.array([[4.0, 5.0]]))
    monkeypatch.setattr(run_module, "late_times", lambda schedule: schedule.late)
    measured = SimpleNamespace(volumes=np.array([[7.0, 8.0]]))
    names = ("arrivals", "reports", "late", "cpu", "began")
    recorder = SimpleNamespace(
        schedule=lambda: schedule,
        realization=lambda: measured,
        board=SimpleNamespace(rows=lambda: "board rows"),
        **{name: f"{name} noted" for name in names},
    )
    frames = {name: f"{name} rows" for name in FRAMES}
    answers: Any = SimpleNamespace(
        results=lambda: "results", statistics="statistics", frames=lambda: frames
    )
    clocks = [ClockRelation(readings=4, offset=0.5), ClockRelation()]
    agents = [
        SimpleNamespace(host={"host": name}, clock=clock)
        for name, clock in zip("ab", clocks, strict=True)
    ]
    coordinator = Steps(
        settings=RunSettings(time_scale=2.0),
        recorder=recorder,
        membership=SimpleNamespace(agents=agents),
        tuning="tuning",
    )
    turns: Any = "turns"
    run: Any = coordinator._outcome(answers, {"seconds": 1.5}, waited, turns)

    assert run.wall == wall
    assert (run.schedule, run.realization) == (schedule, measured)
    assert run.perturbed.times.tolist() == [[4.0, 5.0]]
    assert run.perturbed.volumes.tolist() == [[7.0, 8.0]]
    for name in names:
        assert getattr(run, name) == f"{name} noted"
    for name in FRAMES:
        assert getattr(run, name) == f"{name} rows"
    assert (run.results, run.statistics) == ("results", "statistics")
    assert (run.board, run.turns, run.tuning) == ("board rows", "turns", "tuning")
    assert run.startup == {"seconds": 1.5}
    assert [host["host"] for host in run.hosts] == ["a", "b"]
    assert [host["clock"]["readings"] for host in run.hosts] == [4, 0]


@pytest.mark.parametrize("nics", [False, True])
async def test_a_run_begins_a_tenth_of_a_second_after_all_are_ready(
    monkeypatch: pytest.MonkeyPatch, *, nics: bool
) -> None:
    """They came up from 50 to 53 s, it begins at 60.1 s and its last end is at 90 s."""
    hand_set(monkeypatch, 53.0, 60.0, 90.0)
    done: list[Any] = []

    def note(name: str) -> Any:
        return lambda *given: done.append((name, *given))

    def step(name: str, outcome: Any = None) -> Any:
        async def take(*_: object) -> Any:
            done.append(name)
            return outcome

        return take

    started = note("zero")
    kernel: Any = SimpleNamespace(
        begin=lambda clock: done.append(("nics", round(clock.to_wall(2.0), 6)))
    )
    watched = SimpleNamespace(clock=SimpleNamespace(begin=lambda: done.append("watch")))
    coordinator: Any = Steps(
        settings=RunSettings(time_scale=3.0, kernel_nics=kernel if nics else None),
        membership=SimpleNamespace(
            address=("here", 9),
            token="secret",  # noqa: S106
            memory=lambda: 1000,
            agents=[watched, watched],
            begin=note("begin"),
        ),
        observer=SimpleNamespace(
            listening=note("listening"), on_zero=started, began=note("began")
        ),
        turns=SimpleNamespace(
            close=lambda: done.append("closed"), rows=lambda _: "rows"
        ),
        cuts=SimpleNamespace(finish=step("kept")),
    )
    coordinator._assemble = step("assembled")
    coordinator._drive = step("driven")
    coordinator._collect = step("collected", "answers")
    coordinator._outcome = lambda *given: given

    answers, startup, wall, turns = await coordinator._take_part(50.0)

    assert (answers, turns) == ("answers", "rows")
    assert startup == {"seconds": 3.0, "memory": 1000.0}
    assert wall == pytest.approx(90.0 - 60.1)
    start = 60.0 + 0.1
    begun = [("begin", start), ("zero", start), ("began", 3.0)]
    kernel_begun = [("nics", 66.1)] * nics
    assert done == [
        ("listening", "here", 9, "secret"),
        *("assembled", "watch", "watch", *begun, *kernel_begun),
        *("driven", "closed", "collected", "kept"),
    ]
