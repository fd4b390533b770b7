"""Whether links carry more than they can, by the bytes that came in a whole run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emu.analysis.guards.bucket import Overflow, of_flows, of_windows
from emu.analysis.guards.evidence import CLOCKS
from emu.analysis.violation import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from emu.analysis.guards.evidence import Evidence
    from emu.problem import Problem

    Floats = NDArray[np.float64]

NAME = "link bytes"


def link_bytes(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for every link that carried more than it can.

    Each is a leaky bucket that drains at the link's capacity. Its depth is what may be
    ahead, once in a run. Two are filled: by whole flows, from when their task ended
    until their last byte was there, which is true however late anything is; and by all
    bytes as they came or left, which sees between the ends of flows too, but must let
    what stood still catch up.
    """
    problem, scale = evidence.schedule.problem, evidence.time_scale
    ahead = (evidence.lead + evidence.stale + CLOCKS) / scale
    stall = evidence.stall / scale
    flows = _flows(evidence)
    width, windows = port_windows(problem, evidence.statistics)
    for port, capacity in enumerate(problem.capacities):
        crossing = [port in hops for hops in problem.hops]
        edge, ready, there, sent = flows
        over = np.array(crossing, dtype=bool)[edge]
        depth = capacity * ahead
        found = of_flows(ready[over], there[over], sent[over], capacity, depth)
        if found is None and port in windows:
            depth += capacity * stall
            depth += sum(crossing) * evidence.lead_bytes / evidence.byte_scale
            carried = windows[port] / evidence.byte_scale
            found = of_windows(carried, width / scale, capacity, depth)
        if found is not None:
            yield _finding(problem.links[port].name, capacity, found)


def _finding(link: str, capacity: float, found: Overflow) -> Finding:
    length = found.until - found.since
    carried = found.most + capacity * length
    return Finding(
        NAME,
        found.at,
        f"link {link} of {capacity:g} B/s carried {carried:.4g} bytes from "
        f"{found.since:.6g} to {found.until:.6g} s, {capacity * length:.4g} fit",
    )


def _flows(evidence: Evidence) -> tuple[NDArray[np.int64], Floats, Floats, Floats]:
    """Return edge, end of the task before, arrival and bytes of every flow seen."""
    schedule = evidence.schedule
    source = np.array([e.source for e in schedule.problem.job.edges], dtype=np.int64)
    edge, iteration = schedule.flows().T
    there = evidence.grid(evidence.received, "last")[edge, iteration]
    sent = evidence.grid(evidence.received, "bytes")[edge, iteration]
    ready = schedule.task_end[source[edge], iteration]
    seen = np.isfinite(ready) & np.isfinite(there) & (sent > 0)
    return edge[seen], ready[seen], there[seen], sent[seen] / evidence.byte_scale


def port_windows(
    problem: Problem, statistics: Mapping[str, Mapping[str, Any]]
) -> tuple[float, dict[int, Floats]]:
    """Return wall seconds per window, and real bytes per window of every NIC used.

    Out directions count what was sent, in directions what arrived. A NIC that some
    flow of its machine goes around is left out: processes count all that they shape.
    """
    around = set()
    for edge, hops in zip(problem.job.edges, problem.hops, strict=True):
        ends = (edge.source, edge.destination)
        for direction, task in enumerate(ends if hops else ()):
            nic = int(problem.links.nic[problem.placement.machine_of[task], direction])
            if nic not in hops:
                around.add(nic)
    counted: list[tuple[int, Mapping[str, Any]]] = []
    for process, members in problem.job.processes.items():
        machine = problem.placement.machine_of[members[0]]
        for direction, traffic in enumerate(statistics[process]["traffic"]):
            nic = int(problem.links.nic[machine, direction])
            if traffic["index"] and nic >= 0 and nic not in around:
                counted.append((nic, traffic))
    width = max((traffic["width"] for _, traffic in counted), default=0.0)
    ports: dict[int, Floats] = {}
    for port, traffic in counted:
        index = np.array(traffic["index"]) // round(width / traffic["width"])
        longest = max(int(index.max()) + 1, len(ports.get(port, ())))
        total = np.zeros(longest)
        total[: len(ports.get(port, ()))] = ports.get(port, np.zeros(0))
        np.add.at(total, index, np.array(traffic["bytes"], dtype=np.float64))
        ports[port] = total
    return width, ports
