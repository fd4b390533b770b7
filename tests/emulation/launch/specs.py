"""Specifications of processes, as small as they can be."""

from __future__ import annotations

from typing import Any

from emu.emulation.shaping import EmulationSettings
from emu.emulation.wire.process_spec import EdgeEnd, ProcessSpec, ProcessTask


def edge_end(edge: int, **known: Any) -> EdgeEnd:
    """Return an end of an edge with the task ``p0`` of another process."""
    stated: dict[str, Any] = {
        "edge": edge,
        "name": f"edge {edge}",
        "peer": "p0",
        "peer_kind": "parameter_server",
        "peer_process": "p0",
        "lag": 0,
        "latest": False,
        "sent": 3,
        "shaped": True,
        "capacity": 1.0,
    }
    return EdgeEnd(**stated | known)


def process_task(program: str, **known: Any) -> ProcessTask:
    """Return the task ``w0`` of three iterations, without edges or times."""
    stated: dict[str, Any] = {
        "task": 0,
        "name": "w0",
        "kind": "worker",
        "settings": {},
        "iterations": 3,
        "speed": 1.0,
        "times": None,
        "inputs": (),
        "outputs": (),
    }
    return ProcessTask(program=program, **stated | known)


def process_spec(
    name: str, *tasks: ProcessTask, job_settings: dict[str, Any] | None = None
) -> ProcessSpec:
    """Return the specification of a process, as the coordinator sends it."""
    return ProcessSpec(
        process=name,
        machine=0,
        job_settings=job_settings or {},
        settings=EmulationSettings(),
        source_port=None,
        reserved=[],
        tasks=tasks,
    )
