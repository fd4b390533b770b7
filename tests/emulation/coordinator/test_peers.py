"""Processes and hosts of a run: who is waited for, what they say, what ended one."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from emu.emulation.coordinator import peers
from emu.emulation.coordinator.peers import (
    Barrier,
    ClockRelation,
    JoinedAgent,
    Mailbox,
    Report,
    RunLog,
    Severity,
    Standstill,
    cause,
)
from emu.emulation.wire.messages import BoardReady, Listening, Message, Ready
from emu.errors import (
    DeadlineExceeded,
    EmulatorError,
    MalformedFrame,
    NodeLost,
    RunError,
)

PROCESSES = [f"p{n}" for n in range(7)]


class Silence:
    """A clock that goes on by so much with every wait, in which little is said."""

    def __init__(self, *steps: float, heard: list[tuple[str, Message]]) -> None:
        self._steps, self.heard = itertools.chain(steps, itertools.repeat(0.24)), heard
        self.now, self.waits = 100.0, 0

    def monotonic(self) -> float:
        """Return the time."""
        return self.now

    async def events(self, _until: float) -> list[tuple[str, Message]]:
        """Wait."""
        self.now += next(self._steps)
        self.waits += 1
        heard, self.heard = self.heard, []
        return heard


async def waits(silence: Silence, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return after how many waits of 0.24 s a deadline of 1 s was over."""
    monkeypatch.setattr(peers, "this_host", silence)
    waiting = Barrier(silence.events, 1.0, Path("agent.log"))
    with pytest.raises(
        DeadlineExceeded,
        match=r"the coordinator waited 1 s of wall time: p1, p2, p3, p4, p5 and 1 more "
        r"did not come up$",
    ):
        await waiting.messages(PROCESSES, "come up", Listening)
    return silence.waits


async def test_who_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[str, Message]] = [("p0", Listening("h", 1))]

    assert await waits(Silence(heard=heard), monkeypatch) == 5


@pytest.mark.parametrize("written", [True, False])
async def test_who_is_missing_is_told_with_the_log_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, written: bool
) -> None:
    """Agents that others start leave no log: a file that was not there was named."""
    silence = Silence(heard=[])
    monkeypatch.setattr(peers, "this_host", silence)
    log = tmp_path / "agent.log"
    if written:
        log.write_text("emu run: refused an agent\n")
    waiting = Barrier(silence.events, 1.0, log)
    with pytest.raises(DeadlineExceeded) as caught:
        await waiting.until(lambda: ["one"], "join", print)
    assert str(caught.value).endswith(f"did not join (the log is {log})") is written


async def test_pause_of_ones_own_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[str, Message]] = [("p0", Listening("h", 1))]

    assert await waits(Silence(0.24, 3600.0, heard=heard), monkeypatch) == 5


async def test_what_one_host_says_before_another_is_ready_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its processes were up before the other's rate board: the run hung for ever."""
    first: list[tuple[str, Message]] = [
        ("host0", BoardReady("/0")),
        ("p0", Listening("h", 1)),
        ("host1", BoardReady("/1")),
    ]
    silence = Silence(heard=first)
    monkeypatch.setattr(peers, "this_host", silence)
    waiting = Barrier(silence.events, 1.0, Path("agent.log"))

    boards = await waiting.messages(["host0", "host1"], "open", BoardReady)
    assert boards["host1"].path == "/1"
    up = await waiting.messages(["p0"], "come up", Listening)
    assert up == {"p0": Listening("h", 1)}
    assert silence.waits == 1


async def test_another_word_of_who_is_awaited_is_kept_for_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process says two things before the one that is waited for."""
    said = [Ready({"a": "b"}), Listening("h", 1), Listening("h", 2)]
    silence = Silence(heard=[("p0", message) for message in said])
    monkeypatch.setattr(peers, "this_host", silence)
    waiting = Barrier(silence.events, 1.0, Path("agent.log"))

    assert await waiting.messages(["p0"], "come up", Listening) == {"p0": said[1]}
    assert await waiting.messages(["p0"], "be ready", Ready) == {"p0": said[0]}
    assert silence.waits == 1


async def test_a_deadline_is_over_after_its_last_instant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Waits of 0.25 s reach a deadline of 1 s in the fourth; a fifth is past it."""
    silence = Silence(*[0.25] * 9, heard=[])
    assert await waits_for_one(silence, monkeypatch) == 5


async def waits_for_one(silence: Silence, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return after how many waits a deadline of 1 s was over."""
    monkeypatch.setattr(peers, "this_host", silence)
    waiting = Barrier(silence.events, 9.0, Path("agent.log"))
    with pytest.raises(DeadlineExceeded, match="waited 1 s of wall time: p0 did not"):
        await waiting.until(lambda: ["p0"], "join", print, deadline=1.0)
    return silence.waits


async def test_patience_beyond_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    silence = Silence(heard=[])
    monkeypatch.setattr(peers, "this_host", silence)
    waiting = Barrier(silence.events, 1.0, Path("agent.log"))
    with pytest.raises(DeadlineExceeded, match=r"waited 600 s .*: 2 of 2 did not join"):
        await waiting.until(lambda: ["2 of 2"], "join", print, patience=600.0)

    assert silence.waits == pytest.approx(600 / 0.24, rel=0.01)


async def test_who_has_said_it_is_returned() -> None:
    silence = Silence(heard=[(name, Listening(name, 1)) for name in PROCESSES])
    waiting = Barrier(silence.events, 1.0, Path("agent.log"))

    said = await waiting.messages(PROCESSES, "come up", Listening)

    assert {name: at.host for name, at in said.items()} == {p: p for p in PROCESSES}


async def test_all_that_has_come_is_given_once_and_in_order() -> None:
    with closing(Mailbox[int]()) as mail:
        for n in range(5):
            mail.put(n)

        assert await mail.everything(math.inf) == [0, 1, 2, 3, 4]
        assert await mail.everything(0.0) == []


async def test_who_waits_is_woken_and_gets_what_comes_in_the_same_turn() -> None:
    with closing(Mailbox[str]()) as mail:
        waiting = asyncio.ensure_future(mail.everything(math.inf))
        await asyncio.sleep(0)
        mail.put("a")
        mail.put("b")

        assert await waiting == ["a", "b"]


class CountedAlarm:
    """An alarm that rings when a test wants it."""

    def __init__(self, _loop: object, ring: Callable[[], None]) -> None:
        self.ring = ring
        self.settings = list[float]()

    def set(self, wall: float) -> None:
        """Note when it is to ring."""
        self.settings.append(wall)

    def close(self) -> None:
        """Do without."""


async def test_an_alarm_is_set_once_for_a_time_until_it_has_rung(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A time that is set takes no further system call; after the ring it does."""
    alarms: list[CountedAlarm] = []

    def alarm(loop: object, ring: Callable[[], None]) -> CountedAlarm:
        alarms.append(CountedAlarm(loop, ring))
        return alarms[-1]

    monkeypatch.setattr(peers, "Alarm", alarm)
    with closing(Mailbox[int]()) as mail:

        async def waits(end: Callable[[], None]) -> list[int]:
            waiting = asyncio.ensure_future(mail.everything(5.0))
            await asyncio.sleep(0)
            end()
            return await waiting

        assert await waits(lambda: mail.put(1)) == [1]
        assert await waits(lambda: mail.put(2)) == [2]
        assert alarms[0].settings == [5.0]
        assert await waits(alarms[0].ring) == []
        assert await waits(alarms[0].ring) == []
        assert alarms[0].settings == [5.0, 5.0]


async def test_a_waiter_that_gave_up_loses_nothing() -> None:
    with closing(Mailbox[int]()) as mail:
        waiting = asyncio.ensure_future(mail.everything(math.inf))
        await asyncio.sleep(0)
        waiting.cancel()
        mail.put(1)

        assert await mail.everything(math.inf) == [1]


def test_a_clock_is_as_unsure_as_it_was_at_most_during_the_run() -> None:
    """A reading of 9 ms before the run is not counted, and one of 5 ms in it is.

    An agent on the coordinator's own clock sends no reading.
    """
    clock = ClockRelation()
    clock.note([])
    assert clock == ClockRelation()
    for line in ([1.0, 2e-6, 9e-3], [1.5, 3e-6, 2e-3]):
        clock.note(line)
    clock.begin()
    assert clock.uncertainty == 2e-3

    clock.note([1.75, 4e-6, 5e-3])
    clock.note([2.0, 5e-6, 1e-3])
    assert clock == ClockRelation(4, 2.0, 5e-6, 1e-3, 5e-3)


@pytest.mark.parametrize(
    "line",
    [
        [1.0],
        [1.0, 0.0, 0.0, 0.0],
        [1.0, math.nan, 0.0],
        [1.0, 0.0, math.inf],
        [1, 2, 3],
    ],
)
def test_what_is_no_line_of_a_clock_is_refused(line: list[float]) -> None:
    with pytest.raises(MalformedFrame, match="clock is no line"):
        ClockRelation().note(line)


@pytest.mark.parametrize(
    ("cpus", "cores"), [(3, 3), (1, 1), (0, 1), (-2, 1), ("4", 1), (None, 1)]
)
def test_a_host_has_a_core_at_least(cpus: object, cores: int) -> None:
    agent = JoinedAgent("h", "", None, {"cpus": cpus}, None)  # type: ignore[arg-type]

    assert agent.cores == cores


def test_a_pause_of_the_coordinator_explains_what_follows_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pause of 3 s, longer than the 2 s of patience, is named for 4 s after it."""
    clock = SimpleNamespace(now=10.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(peers, "this_host", clock)
    standstill = Standstill(2.0)
    stories = []
    for now in (12.0, 15.0, 16.5, 18.0, 19.0, 20.5):
        clock.now = now
        stories.append(standstill.story())

    assert stories[0] == stories[5] == ""
    assert all("still for 3.0 s of wall time" in story for story in stories[1:5])


def test_a_further_run_takes_its_own_lines_out_of_the_log(tmp_path: Path) -> None:
    first = RunLog(tmp_path / "first")
    first.note("of the first")
    further = first.of_next_run(tmp_path / "second")
    assert further.last_words().startswith("it said nothing (the log is ")
    further.note("of the second")
    assert "it said: emu run: of the second (" in further.last_words()
    further.settle()
    first.settle()

    assert (tmp_path / "first").read_text() == "emu run: of the first\n"
    assert (tmp_path / "second").read_text() == "emu run: of the second\n"
    lost = RunLog(tmp_path / "none" / "log")
    lost.note("nowhere")
    assert lost.last_words().startswith("its output is lost: ")


KILLED = Report(Severity.KILLED, NodeLost("s1 was killed"))
FAILED = Report(Severity.FAILED, RunError("w0 raised"))
GONE = Report(Severity.GONE, NodeLost("s1 closed its connection"))
MISSED = Report(Severity.CONSEQUENCE, NodeLost("w0 misses s1"))


@pytest.mark.parametrize("order", list(itertools.permutations([KILLED, GONE, MISSED])))
def test_death_explains_all(order: tuple[Report, ...]) -> None:
    assert cause(order) is KILLED.error


@pytest.mark.parametrize("order", list(itertools.permutations([FAILED, GONE, MISSED])))
def test_failure_explains_lost_connections(order: tuple[Report, ...]) -> None:
    assert cause(order) is FAILED.error


def test_first_of_equals() -> None:
    second = Report(Severity.FAILED, RunError("w1 raised, too"))

    assert cause([FAILED, second]) is FAILED.error


@pytest.mark.parametrize(
    ("error", "severity"),
    [
        ("NodeLost", Severity.CONSEQUENCE),
        ("TruncatedFrame", Severity.CONSEQUENCE),
        ("MalformedFrame", Severity.FAILED),
        ("ZeroDivisionError", Severity.FAILED),
    ],
)
def test_what_a_process_says_of_itself(error: str, severity: Severity) -> None:
    assert Severity.of(error) is severity


def test_an_error_was_seen_with_the_first_of_its_consequences() -> None:
    failure = Report(Severity.FAILED, RunError("s1 raised"), seen=5.0)
    consequence = Report(Severity.CONSEQUENCE, NodeLost("w0 misses s1"), seen=3.0)
    late = Report(Severity.GONE, NodeLost("s1 has gone"), seen=8.0)

    misuse = Report(Severity.KILLED, EmulatorError("of no run"))
    assert cause([late, misuse]) is misuse.error
    assert not hasattr(misuse.error, "seen")
    error = cause([late, failure, consequence])
    assert isinstance(error, RunError)
    assert error.seen == 3.0
