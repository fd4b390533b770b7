"""Messages between coordinator, agents and node processes.

A message is a dataclass; on the wire it is a msgpack map of its fields with its
``kind``. Ends and orders, which come thousands of times, are packed (`notes`), many in
a message, or go through rings (`emu.emulation.network.rings`). The life of a run, in
the order of the messages:

    agent        AgentHello ─►  coordinator  ─► Graphs         on other hosts
    agent        GraphWanted ─►              ─► GraphPiece     of graphs that it lacks
    agent        GraphsKept ─►               ─► Launch         agent forks the processes
    agent        BoardReady ─►                                 its rate board is there
    process      ProcessHello, Listening ─►  ─► Peers          everybody connects
    process      Ready ─►                    ─► Begin          the barrier; time 0
    process      StatePart ─►                ─► StatePart      a cut; before Ready again
    process                                  ◄─ Orders         tasks start, flows go
    process      Ends ─►                     ─► RateUpdate (agents on other hosts)
    process      Frames, Outcome ─►          ◄─ Finish         results and statistics
    anybody                                  ◄─ Again          BoardReady, Listening ...
    agent                                    ◄─ Kill           what a scenario kills
    anybody      Failed, ProcessDied ─►      ─► Stop           one error ends the run
"""

from __future__ import annotations

import typing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from emu.emulation.wire.frame_layout import Fields
from emu.errors import MalformedFrame


class Message:
    """Base of all messages."""


@dataclass(frozen=True)
class AgentHello(Message):
    """An agent joins: what its host is, for the manifest."""

    host: dict[str, Any]


@dataclass(frozen=True)
class Graphs(Message):
    """The job trains on these graphs: (``dataset`` of its settings, fingerprint)."""

    graphs: list[Any]


@dataclass(frozen=True)
class GraphWanted(Message):
    """The host lacks this graph from a byte on, counted over all of its files."""

    name: str
    position: int


@dataclass(frozen=True)
class GraphPiece(Message):
    """The bytes of a file that were wanted; ``last`` of the graph's last file."""

    name: str
    file: str
    data: bytes
    last: bool


@dataclass(frozen=True)
class GraphsKept(Message):
    """The host has every graph of the job."""


@dataclass(frozen=True)
class Launch(Message):
    """Fork these processes; each map is a whole process description.

    For ``heartbeat_timeout`` wall seconds the coordinator may say nothing; the clock
    that it reads is named ``clock`` (`this_host.name_of_clock`).
    """

    edges: int
    processes: list[Any]
    heartbeat_timeout: float
    clock: str = ""


@dataclass(frozen=True)
class BoardReady(Message):
    """The agent's rate board can be opened at ``path`` on its host."""

    path: str


@dataclass(frozen=True)
class RateUpdate(Message):
    """Rate segments for the rate board of another host; little-endian array bytes.

    ``edges``, ``iterations`` and ``numbers`` (of an edge's segments) are int64,
    ``served``, ``rates`` and ``since`` (run time, seconds) float64, all of one length.
    """

    edges: bytes
    iterations: bytes
    served: bytes
    rates: bytes
    since: bytes
    numbers: bytes


@dataclass(frozen=True)
class ProcessDied(Message):
    """A node process of this agent ended; ``code`` as `multiprocessing` gives it."""

    process: str
    code: int


@dataclass(frozen=True)
class Beat(Message):
    """I am alive. Agent and coordinator send one a second to each other.

    ``stood_still``: wall seconds since the last one in which I could not run;
    ``clock``: what an agent knows of the coordinator's (offset, drift, uncertainty).
    """

    stood_still: float = 0.0
    clock: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class ProcessHello(Message):
    """A node process joins, of the name that it has proved.

    Its ends come, and its orders go, over the connection of the process ``lead``, which
    shares a process of the system with it; its own where that is empty. ``rings``:
    numbers by which the coordinator joins its rings (`network.rings`), if it has any.
    """

    pid: int
    lead: str = ""
    rings: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Listening(Message):
    """Address at which a process accepts its in-edges."""

    host: str
    port: int


@dataclass(frozen=True)
class Peers(Message):
    """Address [host, port] of every process, by name."""

    addresses: dict[str, Any]


@dataclass(frozen=True)
class Ready(Message):
    """Data loaded, every edge of this process connected."""

    tuning: dict[str, Any]


@dataclass(frozen=True)
class Begin(Message):
    """The barrier: run time 0 is ``start_wall``, coordinator's monotonic clock.

    ``rings``: whether ends and orders go through the rings of the process.
    """

    start_wall: float
    rings: bool = False


@dataclass
class RunTask:
    """(task, iteration) starts at run time ``start``.

    ``reads``: [edge, iteration] of every in-edge that reads the newest: which to read,
    -1 for none.
    """

    task: int
    iteration: int
    start: float
    reads: list[Any] = field(default_factory=list)


@dataclass
class WakeSender:
    """The flow of an edge may go, or much faster, from run time ``since`` on."""

    edge: int
    since: float


@dataclass
class TaskEnded:
    """(task, iteration) ended at run time ``end``, or will: sent when its work is done.

    ``edges``, ``volumes``: the out-edges that send, and their emulated bytes;
    ``began``: run time at which it began to compute, by the clock of its process;
    ``cpu``: CPU seconds of that; ``late``: how long after its profiled time the task
    ended, run seconds; ``report``: figures of the program.
    """

    task: int
    iteration: int
    start: float
    end: float
    edges: list[int]
    volumes: list[float]
    began: float
    cpu: float
    late: float
    report: dict[str, float]


@dataclass
class FlowEnded:
    """The last byte of (edge, iteration) arrived, or for observers the flow ended."""

    edge: int
    iteration: int
    time: float
    volume: float


@dataclass(frozen=True)
class Ends(Message):
    """Ends of tasks and flows, of all who share a process of the system (`notes`)."""

    notes: bytes


@dataclass(frozen=True)
class Orders(Message):
    """Orders to all who share a process of the system (`notes`)."""

    notes: bytes


@dataclass(frozen=True)
class Finish(Message):
    """Every task ended: hand over results and statistics."""


@dataclass(frozen=True)
class ResultPart(Message):
    """A piece, in order, of one array of a task's result, which has ``total`` bytes."""

    task: int
    name: str
    dtype: str
    shape: list[int]
    total: int
    data: bytes


@dataclass(frozen=True)
class StatePart(Message):
    """A piece of one array of the state that a task has before an iteration.

    Fields are those of `ResultPart`, but for ``task``, a name, since the state may be
    of an earlier attempt; ``last`` is true of the last piece of the task's last array.
    To a process that begins with this state comes one of no task in the end.
    """

    task: str
    iteration: int
    name: str
    dtype: str
    shape: list[int]
    total: int
    data: bytes
    last: bool


@dataclass(frozen=True)
class Frames(Message):
    """Some rows of a process (`frame_layout`).

    Frames that it sent and received; its connections, and waits of what came.
    """

    sent: bytes
    received: bytes
    connections: bytes = b""
    waits: bytes = b""


@dataclass(frozen=True)
class Outcome(Message):
    """Statistics of a process, the last thing that it says."""

    statistics: dict[str, Any]


@dataclass(frozen=True)
class Failed(Message):
    """A process or agent cannot go on; ``doing`` names task and iteration if any."""

    error: str
    text: str
    doing: str
    trace: str = ""


@dataclass(frozen=True)
class Kill(Message):
    """Kill these processes by SIGKILL, as a lost machine; others' are passed over."""

    processes: list[str]


@dataclass(frozen=True)
class Again(Message):
    """A further run of the same job follows; nothing of this one is to be left."""


@dataclass(frozen=True)
class Stop(Message):
    """End at once; ``reason`` is for the log, and ``failed`` for the exit status."""

    reason: str
    failed: bool = False


_KINDS = {kind.__name__: kind for kind in Message.__subclasses__()}
T = TypeVar("T")


def _types_of_fields(kind: type[Message]) -> dict[str, type]:
    """Return the class of every field, of a list or dict without that of its items."""
    hints = typing.get_type_hints(kind)
    return {key: typing.get_origin(hint) or hint for key, hint in hints.items()}


_FIELD_TYPES = {name: _types_of_fields(kind) for name, kind in _KINDS.items()}


def pack(message: Message) -> Fields:
    """Return the msgpack-able map of ``message``."""
    return {"kind": type(message).__name__, **vars(message)}


def unpack(fields: Fields) -> Message:
    """Return the message that a map from the wire stands for.

    Raises MalformedFrame when the kind is unknown, a field is missing, unknown or of
    another type.
    """
    values = dict(fields)
    name = values.pop("kind", None)
    if not isinstance(name, str) or name not in _KINDS:
        raise MalformedFrame(f"a message of unknown kind {name!r:.80}")

    types = _FIELD_TYPES[name]
    for key, value in values.items():
        if key not in types:
            raise MalformedFrame(f"{name} has no field {key!r:.80}")
        field_type = types[key]
        if field_type is float and type(value) is int:
            values[key] = float(value)
        elif not isinstance(value, field_type):
            type_name = type(value).__name__
            raise MalformedFrame(
                f"{name}.{key} is a {type_name}, not a {field_type.__name__}"
            )

    try:
        return _KINDS[name](**values)
    except TypeError as error:
        raise MalformedFrame(f"{name} is incomplete: {error}") from error


def expect(message: Message, kind: type[T]) -> T:
    """Return a message of this kind; raises MalformedFrame when it is of another."""
    if not isinstance(message, kind):
        name = type(message).__name__
        raise MalformedFrame(f"{name} came where {kind.__name__} was due")
    return message
