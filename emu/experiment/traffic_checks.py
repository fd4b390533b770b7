"""Bytes that kernels counted, held against the payloads that their machines carried."""

from __future__ import annotations

import numpy as np

from emu.emulation.coordinator.outcome import EmulatedRun
from emu.trust.violation import Findings, disagreement


def check_traffic(run: EmulatedRun) -> dict[str, Findings]:
    """Return where a kernel's NIC counted fewer bytes than came through it, by a name.

    Two processes made these records: a receiver counts payloads, the kernel whole
    packets, with those of others. So a count may be larger, and never smaller. Nothing
    on networks that are no kernel's.
    """
    payloads = _count_payloads(run)
    checked = 0
    sentences = []
    for host in run.hosts:
        machine = host["name"]
        if "traffic" not in host or machine not in payloads:
            continue
        for direction, payload in payloads[machine].items():
            counted = host["traffic"][f"{direction}_bytes"]
            checked += 1
            if counted < payload:
                sentences.append(
                    f"the kernel of {machine} counted {counted:,.0f} bytes "
                    f"{direction}, payloads alone are {payload:,.0f}"
                )

    if not checked:
        return {}
    violations = [disagreement("traffic", sentence) for sentence in sentences]
    return {"traffic": (checked, violations)}


def _count_payloads(run: EmulatedRun) -> dict[str, dict[str, float]]:
    """Return the bytes of frames that left and reached every machine."""
    problem = run.schedule.problem
    edges = problem.job.edges
    numbers = run.received["edge"].astype(np.int64)
    sizes = np.bincount(numbers, run.received["bytes"], minlength=len(edges))
    machines = problem.cluster.names
    payloads = {name: {"out": 0.0, "in": 0.0} for name in machines}
    home = problem.placement.machine_of
    for position, edge in enumerate(edges):
        # What stays on a machine passes no NIC.
        if not problem.hops[position]:
            continue
        sender = machines[home[edge.source]]
        receiver = machines[home[edge.destination]]
        size = float(sizes[position])
        payloads[sender]["out"] += size
        payloads[receiver]["in"] += size

    return payloads
