"""Specification of a node process, from coordinator by agent and fork to the process.

On the wire it is a msgpack map of the fields, read back in full or refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from emu.emulation.shaping import EmulationSettings
from emu.errors import MalformedFrame


@dataclass(frozen=True)
class EdgeEnd:
    """One edge as the process at its destination or source sees it."""

    edge: int
    """Position in ``Job.edges``."""
    name: str
    peer: str
    peer_kind: str
    peer_process: str
    """Name, kind and process of the task at the other end."""
    lag: int
    latest: bool
    sent: int
    """Iterations of the source that it carries, from the first on."""
    shaped: bool
    """True where it crosses links, whose least capacity is ``capacity``, bytes/s."""
    capacity: float
    latency: float = 0.0
    """Run seconds after its last byte for which its destination does not see it."""
    key: bytes = b""
    """Secret of the two processes of its ends; the agent derives it."""


@dataclass(frozen=True)
class ProcessTask:
    """One task as its process runs it."""

    task: int
    """Position in ``Job.tasks``."""
    name: str
    kind: str
    program: str
    settings: Mapping[str, Any]
    iterations: int
    speed: float
    times: list[float] | None
    """Seconds per iteration, or None where tasks take what their work does."""
    inputs: tuple[EdgeEnd, ...]
    outputs: tuple[EdgeEnd, ...]
    speed_times: list[float] = field(default_factory=lambda: [0.0])
    speed_shares: list[float] = field(default_factory=lambda: [1.0])
    """Times, the first of them 0, from which its machine has which share of speed."""
    every: int = 0
    """Its state is sent to the coordinator every so many iterations of the whole job;
    0 for never."""
    restores: tuple[str, ...] = ()
    """Tasks whose state it begins with."""


@dataclass(frozen=True)
class HostSide:
    """Fields of a specification that only the agent of its host knows."""

    certificate: bytes
    """Certificate of this host's data connections; empty where they are plain."""
    coordinator: tuple[str, int]
    bind: str
    """Address at which the process listens."""
    board: str
    """Path of the rate board."""
    key: bytes = b""
    """Secret by which the process authenticates itself."""


@dataclass(frozen=True)
class ProcessSpec:
    """All that a node process has to know before it starts."""

    process: str
    machine: int
    """Position of its emulated machine in the cluster."""
    job_settings: Mapping[str, Any]
    settings: EmulationSettings
    source_port: int | None
    """Port that edge 0 would be sent from, edge e from it plus e; None for any."""
    reserved: list[int]
    """Real bytes of each buffer that is taken before the run."""
    tasks: tuple[ProcessTask, ...]
    first: int = 0
    """Number in the whole job of what is iteration 0 in this attempt: programs count
    from it, orders and frames from 0."""
    host: HostSide | None = None

    @property
    def here(self) -> HostSide:
        """The agent's part; raises MalformedFrame when no agent has filled it in."""
        if self.host is None:
            raise MalformedFrame(f"process {self.process} has nothing of its host")
        return self.host

    @classmethod
    def from_map(cls, fields: Mapping[str, Any]) -> ProcessSpec:
        """Return what a map stands for; raises MalformedFrame if a field cannot be."""
        try:
            host = fields.get("host")
            values = {
                **fields,
                "settings": EmulationSettings(**fields["settings"]),
                "tasks": tuple(_task_from_map(task) for task in fields["tasks"]),
                "host": _host_from_map(host) if host else None,
            }
            return cls(**values)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise MalformedFrame(
                f"no specification of a process: {type(error).__name__} {error}"
            ) from error


def _task_from_map(fields: Mapping[str, Any]) -> ProcessTask:
    values = {
        **fields,
        "inputs": tuple(EdgeEnd(**end) for end in fields["inputs"]),
        "outputs": tuple(EdgeEnd(**end) for end in fields["outputs"]),
        "restores": tuple(fields["restores"]),
    }
    return ProcessTask(**values)


def _host_from_map(fields: Mapping[str, Any]) -> HostSide:
    values = {**fields, "coordinator": tuple(fields["coordinator"])}
    return HostSide(**values)
