"""Members of a run: who may join, what their words mean, how they are let go."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from typing_extensions import override

from emu.emulation.coordinator import RunSettings
from emu.emulation.coordinator import membership as membership_module
from emu.emulation.coordinator.membership import Membership
from emu.emulation.coordinator.peers import Process, Report, Severity
from emu.emulation.network.authentication import Identity
from emu.emulation.wire.messages import (
    Again,
    AgentHello,
    Beat,
    BoardReady,
    Failed,
    Finish,
    Kill,
    Message,
    ProcessDied,
    ProcessHello,
    Stop,
    pack,
    unpack,
)
from emu.errors import MalformedFrame, NodeLost, NodeMisbehaved, RunError

WORDS: Any = SimpleNamespace(doing=lambda name: f"{name} works", story=lambda: "story")


class Connection:
    """Notes what is sent."""

    peer_address = "10.0.0.1"

    def __init__(self, *heard: Message) -> None:
        self.sent: list[Message] = []
        self.heard = heard

    def send(self, fields: Any) -> None:
        """Note a message."""
        self.sent.append(unpack(fields))

    async def receive(self, _within: float) -> Any:
        """Return the first message."""
        return pack(self.heard[0])


def members(folder: Path, settings: RunSettings | None = None, **launcher: Any) -> Any:
    """Return the members of a run that a launcher with these fields has started."""
    found: Any = Membership(settings or RunSettings(), folder / "log", WORDS)
    stated = {"hosts": (), "count": 1, "embedded": True, "patience": 0.0}
    found.launcher = SimpleNamespace(**stated | {"deadline": None} | launcher)
    found.agents = []
    return found


def agent(name: str, **known: Any) -> Any:
    """Return an agent that has joined."""
    fields: dict[str, Any] = {
        "host_name": name,
        "name": f"agent {name}",
        "connection": Connection(),
        "gone": False,
        "board": None,
    }
    return SimpleNamespace(**fields | known)


def process(name: str, **known: Any) -> Process:
    """Return a process that has joined, which speaks for itself."""
    fields: dict[str, Any] = {"pid": 1, "lead": name, "connection": Connection()}
    return Process(name, **fields | known)


async def reports_of(found: Any) -> list[Report]:
    """Return what has been reported."""
    return cast("list[Report]", await found._mail.everything(0.0))


@pytest.mark.parametrize(
    ("hosts", "present", "name", "objection"),
    [
        ((), [], "x", ""),
        ((), ["x"], "x", "agent x has joined already: give each a --name"),
        ((), ["x", "y"], "z", "every agent of this run has joined already"),
        (("x", "y"), ["x"], "z", "no host of this run is called z"),
        (("x", "y"), ["x"], "y", ""),
    ],
)
def test_an_agent_joins_where_the_run_waits_for_it(
    hosts: tuple[str, ...],
    present: list[str],
    name: str,
    objection: str,
    tmp_path: Path,
) -> None:
    """Hosts x and y are expected by name, or any two agents by count."""
    found = members(tmp_path, hosts=hosts, count=2)
    found.agents = [agent(each) for each in present]
    assert found._objection_to(name) == objection


async def test_an_agent_is_taken_in_with_what_its_host_is(tmp_path: Path) -> None:
    """A second one is told why it is not, and the log has it too."""
    settings = RunSettings(heartbeat_timeout=6.5)
    found = members(tmp_path, settings)
    followed: list[Any] = []

    async def follow(joined: Any) -> None:
        followed.append(joined)

    found._follow_agent = follow
    hello = AgentHello({"cpus": 4, "host": "another"})
    first, second = Connection(hello), Connection(hello)
    await found._take_in(first, Identity("agent", "a", b""))
    await found._take_in(second, Identity("agent", "b", b""))

    (joined,) = followed
    assert found.agents == [joined]
    assert (joined.host_name, joined.address) == ("a", "10.0.0.1")
    assert joined.host == {"cpus": 4, "host": "a"}
    assert joined.watch.limit == 6.5
    assert await found._mail.everything(0.0) == [("agent a", hello)]
    assert first.sent == []
    refusal = "every agent of this run has joined already"
    assert second.sent == [Failed("NotWanted", refusal, "")]
    said = (tmp_path / "log").read_text()
    assert said == f"emu run: refused an agent from 10.0.0.1: {refusal}\n"


@pytest.mark.parametrize(
    ("role", "hello", "joins"),
    [
        ("process", ProcessHello(7, "lead"), ("w0", 7, "lead")),
        ("process", ProcessHello(7), ("w0", 7, "w0")),
        ("agent", ProcessHello(7), None),
        ("process", AgentHello({}), None),
        ("process", Finish(), None),
    ],
)
async def test_who_joins_is_what_it_has_proved_to_be(
    role: str, hello: Message, joins: tuple[Any, ...] | None, tmp_path: Path
) -> None:
    found = members(tmp_path)
    followed: list[Any] = []

    async def follow(joined: Process) -> None:
        followed.append((joined.name, joined.pid, joined.lead))

    found._follow_process = follow
    await found._take_in(Connection(hello), Identity(cast("Any", role), "w0", b""))
    assert followed == ([joins] if joins else [])
    assert found.agents == []


@pytest.mark.parametrize(
    ("code", "known", "severity"),
    [
        (-9, {}, Severity.KILLED),
        (1, {}, Severity.FAILED),
        (0, {}, Severity.FAILED),
        (-9, {"done": True}, None),
        (1, {"failed": True}, None),
    ],
)
async def test_a_process_that_ends_is_lost_but_after_its_last_word(
    code: int, known: Mapping[str, bool], severity: Severity | None, tmp_path: Path
) -> None:
    """A signal has killed it; what it ends with by itself is a failure."""
    found = members(tmp_path)
    found.processes = {"w0": process("w0", **known)}
    heard: list[float] = []
    speaker = agent("a", watch=SimpleNamespace(on_message=heard.append))
    found._hear(speaker, ProcessDied("w0", code))
    found._hear(speaker, ProcessDied("stranger", code))
    reports = await reports_of(found)

    severities = [report.severity for report in reports]
    of_stranger = Severity.KILLED if code < 0 else Severity.FAILED
    assert severities == [*([] if severity is None else [severity]), of_stranger]
    assert str(reports[-1].error).startswith("process stranger ")
    assert str(reports[-1].error).endswith("(stranger works)")
    assert len(heard) == 2


async def test_other_words_of_agents_are_failures_beats_or_for_who_waits(
    tmp_path: Path,
) -> None:
    found = members(tmp_path)
    lines: list[Any] = []

    class Speaker(SimpleNamespace):
        @override
        def __str__(self) -> str:
            return "agent a at h"

    speaker = Speaker(
        name="agent a",
        watch=SimpleNamespace(on_message=lambda _: None),
        clock=SimpleNamespace(note=lines.append),
    )
    found._hear(speaker, Beat(0.0, [1.0, 2.0, 3.0]))
    found._hear(speaker, Beat(4.25, []))
    found._hear(speaker, BoardReady("path"))
    found._hear(speaker, Failed("OSError", "no room", ""))
    mail: list[Any] = await found._mail.everything(0.0)
    waiting, failure = mail

    assert lines == [[1.0, 2.0, 3.0], []]
    assert (tmp_path / "log").read_text() == (
        "emu run: agent a at h stood still for 4.2 s\n"
    )
    assert waiting == ("agent a", BoardReady("path"))
    assert failure.severity is Severity.KILLED
    assert isinstance(failure.error, NodeLost)
    assert str(failure.error) == "agent a at h: no room (story)"


@pytest.mark.parametrize(
    ("error", "doing", "text", "kind", "severity"),
    [
        ("ValueError", "task w0", "(task w0): ValueError: why", RunError, 1),
        ("ValueError", "", "(w0 works): ValueError: why", RunError, 1),
        ("NodeLost", "", "(w0 works): NodeLost: why", NodeLost, 3),
    ],
)
async def test_who_misses_another_process_is_told_as_a_loss(
    error: str, doing: str, text: str, kind: type, severity: int, tmp_path: Path
) -> None:
    """The coordinator says what a process did where the process does not say it."""
    found = members(tmp_path)
    found._report_failure("w0", Failed(error, "why", doing))
    (report,) = await reports_of(found)
    assert str(report.error) == f"process w0 {text}"
    assert type(report.error) is kind
    assert report.severity == severity


async def test_a_process_that_breaks_the_protocol_is_named_with_what_it_did(
    tmp_path: Path,
) -> None:
    """One that joins twice is no member again, and its rings are closed."""
    found = members(tmp_path)
    closed: list[str] = []

    async def follow(_hear: object) -> None:
        raise MalformedFrame("no frame")

    rings: Any = SimpleNamespace(close=lambda: closed.append("rings"))
    connection: Any = SimpleNamespace(follow=follow)
    found.on_rings_closed = closed.append
    first = process("w0", connection=connection, rings=rings)
    await found._follow_process(first)
    assert closed == ["w0", "rings"]
    second = process("w0", connection=connection, rings=rings)
    await found._follow_process(second)
    assert closed == ["w0", "rings", "rings"]
    assert found.processes == {"w0": first}
    broken, twice = await reports_of(found)

    assert str(broken.error) == "process w0: no frame (w0 works)"
    assert str(twice.error) == "process w0 joins twice"
    for report in (broken, twice):
        assert report.severity is Severity.FAILED
        assert isinstance(report.error, NodeMisbehaved)


def test_who_speaks_for_others_speaks_for_itself(tmp_path: Path) -> None:
    found = members(tmp_path)
    leads = {"a": "a", "b": "a", "c": "b", "d": "gone"}
    found.processes = {name: process(name, lead=lead) for name, lead in leads.items()}
    assert found.lead_of("a") == found.lead_of("b") == "a"
    with pytest.raises(NodeMisbehaved, match="b cannot speak for c"):
        found.lead_of("c")
    with pytest.raises(NodeMisbehaved, match="gone cannot speak for d"):
        found.lead_of("d")


def test_memory_is_counted_once_for_each_process_of_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three share one; of other hosts nothing is known."""

    class Counted:
        def __init__(self, pid: int) -> None:
            self._pid = pid

        def memory_full_info(self) -> Any:
            if self._pid == 0:
                raise psutil.NoSuchProcess(0)
            return SimpleNamespace(pss=100 * self._pid, rss=9)

    monkeypatch.setattr(psutil, "Process", Counted)
    found = members(tmp_path)
    pids = {"a": 3, "b": 3, "c": 4}
    found.processes = {name: process(name, pid=pid) for name, pid in pids.items()}
    assert found.memory() == 700
    found.processes["d"] = process("d", pid=0)
    assert found.memory() == 0
    found.launcher.embedded = False
    del found.processes["d"]
    assert found.memory() == 0


@pytest.mark.parametrize(
    ("hosts", "count", "present", "missing"),
    [
        (("a", "b"), 2, [], ["agent a", "agent b"]),
        (("a", "b"), 2, ["b"], ["agent a"]),
        (("a", "b"), 2, ["b", "a"], []),
        ((), 3, ["b"], ["2 of 3 agents"]),
        ((), 2, ["b", "a"], []),
    ],
)
async def test_agents_are_waited_for_and_put_in_order(
    hosts: tuple[str, ...],
    count: int,
    present: list[str],
    missing: list[str],
    tmp_path: Path,
) -> None:
    found = members(tmp_path, hosts=hosts, count=count, patience=3.0, deadline=8.0)
    found.agents = [agent(name) for name in present]
    asked: list[Any] = []

    async def until(who: Any, purpose: str, _take: Any, **limits: float) -> None:
        asked.append((who(), purpose, limits))

    found.barrier = SimpleNamespace(until=until)
    await found.gather_agents()
    assert asked == [(missing, "join", {"patience": 3.0, "deadline": 8.0})]
    assert [each.name for each in found.agents] == sorted(
        f"agent {name}" for name in present
    )


async def test_boards_are_cleared_before_processes_begin_again(tmp_path: Path) -> None:
    found = members(tmp_path)
    first, second = agent("a"), agent("b")
    found.agents = [first, second]
    found.processes = {"w0": process("w0")}
    asked: list[Any] = []

    async def messages(names: list[str], purpose: str, kind: type) -> None:
        asked.append((names, purpose, kind, len(first.connection.sent)))
        assert found.processes["w0"].connection.sent == []

    found.barrier = SimpleNamespace(messages=messages)
    await found.begin_again()
    assert asked == [(["agent a", "agent b"], "clear its rate board", BoardReady, 1)]
    for member in (first, second, found.processes["w0"]):
        assert member.connection.sent == [Again()]


@pytest.mark.parametrize(
    ("embedded", "nics", "opened"),
    [
        (True, False, ["/a", "/b"]),
        (False, False, []),
        (False, True, ["in a: /a", "in b: /b"]),
    ],
)
async def test_boards_in_reach_are_opened_to_write(
    opened: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    embedded: bool,
    nics: bool,
) -> None:
    """Those of machines of the kernel lie elsewhere for this process."""
    kernel: Any = SimpleNamespace(path_in=lambda host, path: f"in {host}: {path}")
    settings = RunSettings(kernel_nics=kernel if nics else None)
    found = members(tmp_path, settings, embedded=embedded)
    found.agents = [agent("a"), agent("b")]

    async def messages(names: list[str], *_: object) -> dict[str, BoardReady]:
        return {name: BoardReady(f"/{name[-1]}") for name in names}

    def open_board(path: str, *, writable: bool) -> str:
        assert writable
        if path == opened[-1]:
            raise FileNotFoundError(2, "gone", path)
        return path

    found.barrier = SimpleNamespace(messages=messages)
    board = SimpleNamespace(open=open_board)
    monkeypatch.setattr(membership_module, "RateBoard", board)
    await found.open_boards()

    boards = [each.board for each in found.agents]
    assert boards == ([opened[0], None] if opened else [None, None])
    if opened:
        (report,) = await reports_of(found)
        assert report.severity is Severity.GONE
        assert str(report.error).startswith("cannot open the rate board: ")


def test_members_stay_for_a_further_run_where_all_are_there(tmp_path: Path) -> None:
    found = members(tmp_path)
    found.agents = [agent("a", clock=SimpleNamespace(readings=7))]
    found.processes = {"w0": process("w0", done=True)}
    assert not found.is_whole
    found.stays = True
    assert found.is_whole
    for member in (found.agents[0], found.processes["w0"]):
        member.gone = True
        assert not found.is_whole
        member.gone = False

    words: Any = SimpleNamespace(doing=lambda _: "other", story=lambda: "other story")
    found.serve_next(tmp_path / "next", words)
    assert not found.processes["w0"].done
    assert found.agents[0].clock.readings == 0
    assert (found._doing("w0"), found._story()) == ("other", "other story")
    assert found._log.path == tmp_path / "next"
    assert str(found._lose("w0", "ended")) == "process w0 ended (other)"


@pytest.mark.parametrize(
    ("error", "company", "stays", "reason"),
    [
        (None, True, True, ""),
        (None, False, False, "the run is over"),
        (RunError("broken"), True, False, "broken"),
        (KeyboardInterrupt(), False, False, "interrupted"),
    ],
)
async def test_all_are_told_to_stop_before_they_are_ended(
    error: BaseException | None,
    reason: str,
    tmp_path: Path,
    *,
    company: bool,
    stays: bool,
) -> None:
    """Members stay where a company keeps them, but not after an error."""
    kept: Any = object() if company else None
    ended: list[Any] = []
    found = members(tmp_path, RunSettings(company=kept))
    board = SimpleNamespace(close=lambda: ended.append("board"))
    found.agents = [agent("a", gone=True, board=board), agent("b", gone=True)]
    found.processes = {"w0": process("w0")}

    async def end(within: float) -> None:
        assert all(len(each.connection.sent) == 1 for each in found.agents)
        ended.append(within)

    async def close() -> None:
        ended.append("server")

    found.launcher.aclose = end
    found._server = SimpleNamespace(aclose=close)
    watching = found._watching = asyncio.get_running_loop().create_future()
    await found.__aexit__(type(error), error, None)

    assert found.stays is stays
    assert watching.cancelled() is not stays
    told = [] if stays else [Stop(reason, failed=error is not None)]
    for member in (*found.agents, found.processes["w0"]):
        assert member.connection.sent == told
    assert ended == ([] if stays else [2.0, "board", "server"])


def test_a_kill_is_told_to_all_agents_and_the_log(tmp_path: Path) -> None:
    found = members(tmp_path)
    found.agents = [agent("a"), agent("b")]
    found.kill(["w0", "w1"])
    for each in found.agents:
        assert each.connection.sent == [Kill(["w0", "w1"])]
    said = "emu run: the scenario kills w0, w1\n"
    assert (tmp_path / "log").read_text() == said


@pytest.mark.parametrize(
    ("listen", "port", "ports", "error", "words"),
    [
        ("h", 0, (5, 7), OSError(98, "all taken"), "h: all taken"),
        ("h", 9, (5, 7), OSError(98, "x"), "h:9: Address already in use"),
        ("h", 9, None, OSError(98, "x"), "h:9: Address already in use"),
        ("h", 0, None, OSError(-2, "not known"), "h:0: not known"),
        ("h", 0, None, OSError("odd"), "h:0: odd"),
    ],
)
def test_where_it_cannot_listen_is_told_with_the_reason(
    listen: str,
    port: int,
    ports: tuple[int, int] | None,
    error: OSError,
    words: str,
    tmp_path: Path,
) -> None:
    settings = RunSettings(listen=listen, port=port, ports=ports)
    assert members(tmp_path, settings)._refusal(error) == words


async def test_a_pause_of_the_coordinator_is_the_cause_of_what_it_misses(
    tmp_path: Path,
) -> None:
    found = members(tmp_path)
    for pause, words in (("it slept", r"^it slept \(story\)$"), ("", "^lost$")):
        found._standstill = SimpleNamespace(story=lambda pause=pause: pause)
        found._report(Severity.KILLED, NodeLost("lost"))
        with pytest.raises(RunError, match=words):
            await found.events(0.0)


@pytest.mark.parametrize("joined", [True, False])
async def test_the_end_of_an_agent_has_the_last_words_of_the_log(
    tmp_path: Path, *, joined: bool
) -> None:
    found = members(tmp_path)
    found._log.note("goodbye")
    found.agents = [agent("a")] if joined else []

    async def wait_for_end() -> str:
        return "the agent was killed"

    found.launcher.wait_for_end = wait_for_end
    await found._await_end()
    (report,) = await reports_of(found)
    place = "story" if joined else "before it had joined"
    said = f"the agent was killed ({place}); it said: emu run: goodbye"
    assert str(report.error).startswith(said)
    assert report.severity is Severity.KILLED
    await asyncio.sleep(0)
