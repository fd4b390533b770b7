"""Which task stands where, and the load on every resource."""

from __future__ import annotations

import math
import re
from itertools import groupby
from typing import TYPE_CHECKING

from emu.placement import resource_loads
from emu.report.terminal import plain_table
from emu.units import format_rate, format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from emu.placement import ResourceLoad
    from emu.problem import Problem


def placement_table(problem: Problem) -> Table:
    """Return one row per machine: NIC, used/capacity of every resource, processes."""
    job, cluster = problem.job, problem.cluster
    loads = resource_loads(job, cluster, problem.placement)
    resources = sorted({load.resource for load in loads})
    table = plain_table(
        "Placement", "machine", ">NIC", *(f">{name}" for name in resources), "processes"
    )
    for position, machine in enumerate(cluster.machines):
        of_machine = {
            load.resource: _load(load) for load in loads if load.machine == machine.name
        }
        nic = format_rate(machine.bandwidth_out) if machine.has_nic else "none"
        if machine.bandwidth_in != machine.bandwidth_out:
            nic = f"{format_rate(machine.bandwidth_in)} in, {nic} out"
        names = [
            process
            for process, members in job.units.items()
            if problem.placement.machine_of[members[0]] == position
        ]
        loads_shown = (of_machine[name] for name in resources)
        table.add_row(machine.name, nic, *loads_shown, " ".join(ranges(names)))
    return table


def _load(load: ResourceLoad) -> str:
    amount = format_size if load.resource == "memory" else "{:g}".format
    if math.isinf(load.capacity):
        return amount(load.used)
    return f"{amount(load.used)}/{amount(load.capacity)}"


def ranges(names: Sequence[str]) -> list[str]:
    """Return ``names`` with runs of numbers joined: s0 s1 s2 w1 -> s0-2 w1."""
    shown: list[str] = []

    def run(item: tuple[int, str]) -> tuple[str, int]:
        match = re.fullmatch(r"(.*?)(\d+)", item[1])
        if match is None:
            return item[1], 0
        return match[1], int(match[2]) - item[0]

    for _, members in groupby(enumerate(names), key=run):
        first, *rest = [name for _, name in members]
        number = re.search(r"\d+$", rest[-1]) if rest else None
        shown.append(f"{first}-{number[0]}" if number else first)
    return shown
