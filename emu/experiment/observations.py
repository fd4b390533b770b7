"""Records of a run by which causes of its difference are simulated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from emu.emulation.coordinator import EmulatedRun
from emu.experiment.run_result import PreparedRun
from emu.prediction.analysis.error_budget import send_rows
from emu.prediction.analysis.flow_counts import count_flows
from emu.trust.observed import Observations, ProcessWaits

#: Bytes on the wire of one of payload, at most, and of acknowledgements of one.
_WIRE = 1.1
_ACKNOWLEDGED = 0.07
#: Bytes of a packet that is sent again, and of all that opens and closes a connection.
_PACKET = 1514
_OPENING = 20_000


def observe(prepared: PreparedRun, run: EmulatedRun) -> Observations:
    """Return what was recorded of a run beside its times and volumes."""
    job = run.schedule.problem.job
    settings = prepared.settings
    nics = {}
    for host in run.hosts:
        if "nic" in host and "tcp" in host:  # other hosts name theirs
            for direction, share in host["nic"].items():
                name = f"{host['name']} {direction}"
                nics[name] = share

    processes = {}
    logs = []
    for process, figures in run.statistics.items():
        processes[process] = _waits_of(figures, settings.time_scale)
        logs.append(figures["flows"])
    counts = count_flows(
        len(job.edges),
        iterations=job.iterations,
        connections=run.connections,
        waits=run.waits,
    )
    measured = None
    if settings.compute == "real":
        speeds = run.schedule.problem.speeds
        measured = np.nan_to_num(run.cpu / speeds[:, None])
    return Observations(
        counts=counts,
        first=frame_starts(run),
        sends=send_rows(logs),
        processes=processes,
        began=run.began,
        turns=run.turns,
        nics=nics,
        foreign=foreign_rates(prepared, run),
        time_scale=settings.time_scale,
        byte_scale=settings.byte_scale,
        measured=measured,
    )


def frame_starts(run: EmulatedRun) -> dict[tuple[int, int], float]:
    """Return when the first byte of each frame left, by edge and iteration."""
    rows = run.sent[["edge", "iteration", "first"]].tolist()
    return {(edge, iteration): instant for edge, iteration, instant in rows}


def _waits_of(figures: Mapping[str, Any], time_scale: float) -> ProcessWaits:
    host = figures["host_metrics"]
    disk = 0.0
    if host.get("blocks", 0.0) > 0:
        disk = host.get("disk", 0.0)
    return ProcessWaits(
        core=host["waited"],
        disk=disk,
        clock=clock_offset(figures, time_scale),
    )


def clock_offset(figures: Mapping[str, Any], time_scale: float) -> float:
    """Return wall seconds by which a process's clock is beyond the coordinator's.

    At the end it was asked, and answered: the question left before, the answer came
    after. What fits between these counts for nothing.
    """
    if "clock" not in figures or "answered" not in figures:
        return 0.0
    question, answer = figures["clock"]
    least, most = figures["answered"]
    answered = time_scale * answer
    if answered > most:
        return float(answered - most)
    asked = time_scale * question
    return min(float(asked - least), 0.0)


def foreign_rates(prepared: PreparedRun, run: EmulatedRun) -> dict[str, float]:
    """Return bytes per second, emulated ones, of others than this run, by link.

    Links of machines whose NICs were counted, where that is more than nothing.
    """
    settings = prepared.settings
    per_second = settings.byte_scale / settings.time_scale
    problem = run.schedule.problem
    machines = problem.cluster.names
    ports = {link.name: port for port, link in enumerate(problem.links)}
    sizes = np.bincount(
        run.received["edge"].astype(np.int64),
        run.received["bytes"],
        minlength=len(problem.job.edges),
    )
    payload = np.zeros(len(problem.links))
    for edge, hops in enumerate(problem.hops):
        payload[list(hops)] += sizes[edge]

    rates = {}
    opposite = {"in": "out", "out": "in"}
    for host in run.hosts:
        if "traffic" not in host or host["name"] not in machines:
            continue
        traffic = host["traffic"]
        for direction, way_back in opposite.items():
            link = f"{host['name']} {direction}"
            link_back = f"{host['name']} {way_back}"
            retransmissions = [row["tcp"]["retransmitted"] for row in run.hosts]
            retransmitted = sum(retransmissions)
            port = ports[link]
            port_back = ports[link_back]
            run_bytes = _WIRE * payload[port]
            run_bytes += _ACKNOWLEDGED * payload[port_back]
            run_bytes += _OPENING * len(problem.job.edges)
            run_bytes += _PACKET * retransmitted
            foreign = traffic[f"{direction}_bytes"] - run_bytes
            if foreign > 0:
                wall_rate = float(foreign) / traffic["seconds"]
                rates[link] = wall_rate / per_second
    return rates
