"""The types of what a run directory's JSON files hold, as far as anybody reads it."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

#: Seconds, bytes or bytes per second: beyond it products of two are soon no numbers.
MOST = 1e18
_Count = Annotated[int, Field(ge=0, lt=1 << 62)]
_Amount = Annotated[float, Field(ge=0, lt=MOST, allow_inf_nan=False)]
_Number = Annotated[float, Field(gt=-MOST, lt=MOST, allow_inf_nan=False)]
_Scale = Annotated[float, Field(gt=0, lt=MOST, allow_inf_nan=False)]
_Name = Annotated[str, Field(min_length=1)]


class TaskShape(TypedDict):
    """Fields of `emu.problem.Task` that a file holds."""

    name: _Name
    kind: str
    process: str
    demands: dict[str, _Amount]
    pinned: str | None
    iterations: _Count | None
    takes: str
    frees: str | None
    gate: bool
    slowness: dict[str, _Number]


class EdgeShape(TypedDict):
    """Fields of `emu.problem.Edge`."""

    source: _Count
    destination: _Count
    lag: _Count
    credit: bool
    channel: str
    latest: bool


class MachineShape(TypedDict):
    """Fields of `emu.problem.Machine`."""

    name: _Name
    bandwidth_in: _Number
    bandwidth_out: _Number
    resources: dict[str, _Amount]
    slots: dict[str, _Count]
    speed: _Scale


class LinkShape(TypedDict):
    """Fields of `emu.problem.Link` of a link that is no NIC."""

    name: _Name
    capacity: _Scale


class RouteShape(TypedDict):
    """Fields of `emu.problem.Route`."""

    sources: list[_Count]
    destinations: list[_Count]
    through: list[str]


class ChangeShape(TypedDict):
    """Fields of `emu.problem.CapacityChange`."""

    time: _Amount
    link: str
    capacity: _Amount


class SpeedShape(TypedDict):
    """Fields of `emu.problem.SpeedChange`."""

    time: _Amount
    machine: str
    share: _Amount


class TunerShape(TypedDict):
    """Fields of `emu.problem.Tuner`."""

    machine: _Count
    pool: _Name
    watched: _Name
    most: _Count
    period: _Scale


class ProblemShape(TypedDict):
    """problem.json; what fits together, the classes of `emu.problem` check."""

    iterations: _Count
    tasks: list[TaskShape]
    edges: list[EdgeShape]
    machines: list[MachineShape]
    links: list[LinkShape]
    routes: list[RouteShape]
    changes: list[ChangeShape]
    tuners: NotRequired[list[TunerShape]]
    speed_changes: NotRequired[list[SpeedShape]]
    placement: list[_Count]


class _Payload(TypedDict):
    edge: _Count
    kind: str
    bytes: _Count


class _Received(TypedDict):
    payloads: NotRequired[list[_Payload]]


class _Sent(TypedDict):
    late_sends: _Count
    max_behind: _Number
    max_stale: _Number


class _Pacer(TypedDict):
    wakes: _Count
    max_lag: _Number
    mean_lag: _Number


class _Use(TypedDict):
    busy: _Number
    idle: _Number
    steal: _Number


class _HostMetrics(TypedDict):
    seconds: _Number
    loop_lag_mean: _Number
    loop_lag_max: _Number
    waited: _Number
    host: _Use


_Pair = Annotated[list[_Number], Field(min_length=2, max_length=2)]


class _Statistics(TypedDict):
    received: NotRequired[_Received]
    sent: list[_Sent]
    pacer: _Pacer
    host_metrics: _HostMetrics
    clock: NotRequired[_Pair]
    answered: NotRequired[_Pair]


class ProcessesShape(TypedDict):
    """processes.json."""

    statistics: Annotated[dict[str, _Statistics], Field(min_length=1)]


class _Emulation(TypedDict):
    time_scale: NotRequired[_Scale]
    byte_scale: NotRequired[_Scale]
    compute: NotRequired[str]
    flow_ends: NotRequired[Literal["arrival", "fluid"]]
    burst: NotRequired[_Pair]
    catch_up: NotRequired[_Amount | None]


class _Policy(TypedDict):
    policy: NotRequired[str]


class _Schedule(_Policy):
    source: NotRequired[str]


class _Scenario(TypedDict):
    name: NotRequired[str]
    schedule: NotRequired[_Schedule]
    placement: NotRequired[_Policy]


class _Attempt(TypedDict):
    first_iteration: _Count
    next_iteration: _Count
    began: NotRequired[_Amount]
    ran: _Amount
    again: _Amount
    detection: _Amount
    recovery: _Amount
    error: str
    killed: NotRequired[bool]
    took: NotRequired[_Amount]


class ManifestShape(TypedDict):
    """manifest.json."""

    scenario: NotRequired[_Scenario]
    emulation: NotRequired[_Emulation]
    first_iteration: NotRequired[_Count]
    began: NotRequired[_Amount]
    attempts: NotRequired[list[_Attempt]]


class _Verdict(TypedDict):
    trust: NotRequired[str]


class ResultShape(TypedDict):
    """result.json, without the rows of its schedule."""

    policy: NotRequired[str | None]
    predicted_makespan: NotRequired[_Amount]
    verdict: NotRequired[_Verdict]
