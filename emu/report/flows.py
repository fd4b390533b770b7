"""Where the bytes of a schedule went, and how busy the NICs were."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.report.terminal import plain_table
from emu.units import format_duration, format_rate, format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.table import Table

    from emu.problem import Schedule


def flow_table(schedule: Schedule) -> Table:
    """Return one row per pair of task kinds: flows between machines, bytes, times."""
    table = plain_table(
        "Flows between machines",
        "from",
        "to",
        ">flows",
        ">bytes",
        ">waiting",
        ">moving",
    )
    job = schedule.problem.job
    groups: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for edge, iteration in schedule.flows().tolist():
        ends = job.edges[edge]
        kinds = job.tasks[ends.source].kind, job.tasks[ends.destination].kind
        groups.setdefault(kinds, []).append((edge, iteration))
    for (source, destination), flows in groups.items():
        at = tuple(np.array(flows).T)
        started, ended = schedule.flow_start[at], schedule.flow_end[at]
        table.add_row(
            source,
            destination,
            f"{len(flows):,}",
            format_size(float(schedule.flow_bytes[at].sum())),
            format_duration(float(np.mean(started - schedule.flow_ready[at]))),
            format_duration(float(np.mean(ended - started))),
        )
    return table


def port_bytes(schedule: Schedule) -> NDArray[np.float64]:
    """Return the bytes over every link, as in `Problem.links`."""
    problem = schedule.problem
    total = np.zeros_like(problem.capacities)
    sent = np.nansum(schedule.flow_bytes, axis=1)
    for hops, volume in zip(problem.hops, sent.tolist(), strict=True):
        total[list(hops)] += volume
    return total


def port_table(schedule: Schedule) -> Table:
    """Return one row per machine and shared link: bytes and mean use.

    Of a NIC in both directions.
    """
    links = schedule.problem.links
    table = plain_table(
        "NICs and links" if links.shared else "NICs",
        "link" if links.shared else "machine",
        *(">out", ">sent", ">used", ">in", ">received", ">used"),
    )
    through = port_bytes(schedule)
    used = through / links.capacities / (schedule.makespan or np.inf)

    def cells(ports: tuple[int, ...]) -> list[str]:
        return [
            text
            for port in ports
            for text in (
                format_rate(links[port].capacity),
                format_size(float(through[port])),
                f"{used[port]:.0%}",
            )
        ]

    for m, machine in enumerate(schedule.problem.cluster.machines):
        table.add_row(machine.name, *cells(links.of_machine(m)))
    for port in links.shared:
        table.add_row(links[port].name, *cells((port,)))
    return table
