"""Members of a run, as the coordinator knows them."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from typing_extensions import override

from emu.emulation.network.clock import Alarm, PauseAwareClock, SilenceWatch
from emu.emulation.network.control import ControlConnection
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.network.rings import Rings
from emu.emulation.wire.messages import Message
from emu.errors import DeadlineExceeded, EmulatorError, MalformedFrame, RunError
from emu.host.this_host import this_host

# Root causes. A process that dies takes its peers down: within milliseconds they report
# broken connections, often before the agent reports the death. So reports are weighed.

#: Errors that a process reports when another one has gone.
_CONSEQUENCES = {"NodeLost", "TruncatedFrame"}
T = TypeVar("T")
#: Returns what has been said, waiting until a wall time at most: (who, what).
Events: TypeAlias = "Callable[[float], Awaitable[list[tuple[str, Message]]]]"
_LOOK = 0.25  # wall seconds between two looks at the deadline
_LISTED = 5


class Severity(IntEnum):
    """Rank of a report as the likely cause of an error: the lowest is taken."""

    KILLED = 0  #: a process was killed, as its parent saw
    FAILED = 1  #: a process failed by itself, or was silent
    GONE = 2  #: a connection ended; the report of why follows
    CONSEQUENCE = 3  #: a process misses another one

    @classmethod
    def of(cls, error: str) -> Severity:
        """Return the severity of an error that a process reports, by its class."""
        return cls.CONSEQUENCE if error in _CONSEQUENCES else cls.FAILED


@dataclass(frozen=True)
class Report:
    """One error that reached the coordinator."""

    severity: Severity
    error: EmulatorError
    seen: float = 0.0
    """When the first sign of it came, wall time."""


def cause(reports: Sequence[Report]) -> EmulatorError:
    """Return the likeliest cause; of equal ones, the first.

    The first sign of it is that of any report: it may have been a consequence.
    """
    error = min(reports, key=lambda report: report.severity).error
    if isinstance(error, RunError):
        error.seen = min(report.seen for report in reports)
    return error


# A coordinator that was stopped, or starved of the cores, sees all others as dead, and
# its agents give it up: a failure soon after has no other cause.
class Standstill:
    """Follows how much wall time passes between two looks at the clock."""

    def __init__(self, fatal: float) -> None:
        self._fatal = fatal
        self._looked = this_host.monotonic()
        self._pause = 0.0
        self._resumed = -math.inf

    def look(self) -> None:
        """Look at the clock."""
        now = this_host.monotonic()
        pause = now - self._looked
        self._looked = now
        if pause > self._fatal:
            self._pause = pause
            self._resumed = now

    def story(self) -> str:
        """Return the pause for which this process was just given up, else nothing."""
        self.look()
        if this_host.monotonic() - self._resumed > 2 * self._fatal:
            return ""
        return (
            f"the coordinator, this process, stood still for {self._pause:.1f} s of "
            f"wall time: agents give it up after {self._fatal:g} s"
        )


def agent_name(host_name: str) -> str:
    """Return the name of a host's agent: no process has a blank in its name."""
    return f"agent {host_name}"


@dataclass
class ClockRelation:
    """Relation of the coordinator's clock to that of a host that reads another."""

    readings: int = 0
    """Lines that its agent has sent; 0 where both read one clock."""
    offset: float = 0.0
    drift: float = 0.0
    last_uncertainty: float = 0.0
    """Uncertainty of the newest line, wall seconds."""
    uncertainty: float = 0.0
    """Wall seconds by which the offset may have been off during the run, at most."""

    def begin(self) -> None:
        """Count what is uncertain from now on: the clock was watched before."""
        self.uncertainty = self.last_uncertainty

    def note(self, line: list[Any]) -> None:
        """Take the clock's line of a beat; raises MalformedFrame when it is none."""
        if not line:
            return
        if len(line) != 3 or not all(map(_is_finite, line)):
            raise MalformedFrame("a beat's clock is no line")
        self.offset, self.drift, self.last_uncertainty = line
        self.uncertainty = max(self.uncertainty, self.last_uncertainty)
        self.readings += 1


def _is_finite(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


@dataclass(eq=False)
class JoinedAgent:
    """An agent that has joined, with the rate board of its host."""

    host_name: str
    address: str
    """Address of its host, also when the connection has ended."""
    connection: ControlConnection
    host: dict[str, Any]
    """Description of its host, which the agent gave, and the host's name in the run."""
    watch: SilenceWatch
    board: RateBoard | None = None
    clock: ClockRelation = field(default_factory=ClockRelation)
    gone: bool = False

    @property
    def name(self) -> str:
        """Its name in messages."""
        return agent_name(self.host_name)

    @property
    def cores(self) -> int:
        """Processor cores that its host says it has, at least 1."""
        cpus = self.host.get("cpus")
        return cpus if isinstance(cpus, int) and cpus > 0 else 1

    @override
    def __str__(self) -> str:
        return f"{self.name} at {self.address}"


@dataclass(eq=False)
class Process:
    """A node process that has joined."""

    name: str
    pid: int
    lead: str
    """Process over whose connection it reports and is ordered, itself maybe."""
    connection: ControlConnection
    rings: Rings | None = None
    """Rings by which it is ordered, where it speaks for a process of this host."""
    failed: bool = False
    done: bool = False
    gone: bool = False


class Mailbox(Generic[T]):
    """Takes one thing at a time, gives all that have come; one waiter.

    An `asyncio.Queue` under `asyncio.wait_for` would make a task for every wait, and
    wake its waiter a turn of the loop later; uvloop's timers are off by up to half a
    millisecond. What has come is settled in one compiled call, which takes 10 to 20 us
    to enter, and goes out once: a line per edge, a message per process.
    """

    def __init__(self) -> None:
        self._waiting: list[T] = []
        self._waiter: asyncio.Future[None] | None = None
        self._alarm: Alarm | None = None
        self._rings_at = math.nan

    def put(self, thing: T) -> None:
        """Add something, and wake who waits."""
        self._waiting.append(thing)
        self.wake()

    async def everything(self, wake: float) -> list[T]:
        """Return what has come since, in order; [] if nothing by a wall time."""
        if not self._waiting:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            if self._alarm is None:
                self._alarm = Alarm(loop, self._ring)
            if wake != self._rings_at:  # what is set already takes no system call
                self._rings_at = wake
                self._alarm.set(wake)
            await self._waiter
        things = self._waiting
        self._waiting = []
        return things

    def _ring(self) -> None:
        self._rings_at = math.nan
        self.wake()

    def close(self) -> None:
        """Give the timer back; no call may wait afterwards."""
        if self._alarm is not None:
            self._alarm.close()
            self._alarm = None

    def wake(self) -> None:
        """Have who waits see that nothing has come, or what has."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class RunLog:
    """A file that agents and their processes write as well.

    Who stays for a further run goes on writing where the first run began to: `settle`
    moves what a later one has left into ``path``.
    """

    def __init__(self, path: Path, shared: Path | None = None) -> None:
        self.path = path
        self._file = shared or path
        self._start = 0
        if shared is not None:
            with contextlib.suppress(OSError):
                self._start = shared.stat().st_size

    def of_next_run(self, path: Path) -> RunLog:
        """Return the log of a further run, which is to end up at a path."""
        return RunLog(path, self._file)

    def note(self, line: str) -> None:
        """Write what happened here."""
        with (
            contextlib.suppress(OSError),
            self._file.open("a", encoding="utf-8") as log,
        ):
            log.write(f"emu run: {line}\n")

    def last_words(self) -> str:
        """Return the last line of all, for a message about who died."""
        try:
            text = self._file.read_bytes()[self._start :].decode(errors="replace")
        except OSError as error:
            return f"its output is lost: {error}"
        lines = text.strip().splitlines()
        text = f"it said: {lines[-1]}" if lines else "it said nothing"
        return f"{text} (the log is {self.path})"

    def settle(self) -> None:
        """Have what a further run has written in its own file, and there alone."""
        if self._file == self.path:
            return
        with (
            contextlib.suppress(OSError),
            self._file.open("r+b") as shared_log,
            self.path.open("ab") as log,
        ):
            shared_log.seek(self._start)
            log.write(shared_log.read())
            # Whoever has it open appends: the next line goes to its new end.
            shared_log.truncate(self._start)


class Barrier:
    """Waits of the coordinator outside the run itself."""

    def __init__(self, events: Events, deadline: float, log: Path) -> None:
        self._events = events
        self._deadline = deadline
        self._log = log
        self._early: list[tuple[str, Message]] = []

    async def messages(
        self,
        missing: Collection[str],
        purpose: str,
        kind: type[Message],
    ) -> dict[str, Any]:
        """Return what each of ``missing`` says of one kind, once all have.

        Messages of other kinds are kept for the next call: the processes of one host
        may be up before another host has its rate board. Raises DeadlineExceeded as
        `until`.
        """
        replies: dict[str, Any] = {}
        awaited = {*missing}

        def on_message(name: str, message: Message) -> None:
            if isinstance(message, kind) and name in awaited:
                awaited.remove(name)
                replies[name] = message
            else:
                self._early.append((name, message))

        early = self._early
        self._early = []
        for name, message in early:
            on_message(name, message)
        await self.until(lambda: awaited, purpose, on_message)
        return replies

    async def until(
        self,
        missing: Callable[[], Collection[str]],
        purpose: str,
        received: Callable[[str, Message], None],
        *,
        patience: float = 0.0,
        deadline: float | None = None,
    ) -> None:
        """Hand over messages until none is missing.

        Waits ``deadline`` wall seconds, by default that of the run, or ``patience``
        where those are more. Raises DeadlineExceeded when one is missing then: names
        whom it waits for.
        """
        awake = PauseAwareClock(_LOOK, this_host.monotonic())
        if deadline is None:
            deadline = max(self._deadline, patience)
        end = this_host.monotonic() + deadline

        while names := missing():
            if awake.read(this_host.monotonic()) > end:
                names = sorted(names)
                listing = ", ".join(names[:_LISTED])
                count = len(names) - _LISTED
                if count > 0:
                    listing = f"{listing} and {count} more"
                # Nothing is in it where no process began, and no agent was refused.
                remark = f" (the log is {self._log})" if self._log.exists() else ""
                raise DeadlineExceeded(
                    f"the coordinator waited {deadline:g} s of wall time: {listing} "
                    f"did not {purpose}{remark}"
                )
            events = await self._events(this_host.monotonic() + _LOOK)
            for name, message in events:
                received(name, message)
