"""What would have crossed if a simulated job had run in a lab."""

from __future__ import annotations

import numpy as np

from emu.prediction.analysis.traffic import OWNER, PACKET, Traffic
from emu.problem import Schedule

#: Packets of a flow: one when it begins, the others until it ends.
PACKETS = 5


def crossed(
    schedule: Schedule,
    programs: tuple[str, ...],
    full: int = 0,
    packets: int = PACKETS,
) -> Traffic:
    """Return the packets of all flows; a task's name begins with its program's.

    What one program sends another has a connection of its own, as in DGL.

    ``full``: bytes of every packet but the last; without it a flow has as many packets.
    """
    job, machines = schedule.problem.job, schedule.problem.cluster.machines
    rows, owners = [], set()
    for edge, iteration in schedule.flows().tolist():
        size = int(schedule.flow_bytes[edge, iteration])
        ends = (job.edges[edge].source, job.edges[edge].destination)
        at = [schedule.problem.placement.machine_of[task] for task in ends]
        whose = [programs.index(job.tasks[task].name.split("-")[0]) for task in ends]
        ports = [1000 + 100 * whose[0] + 10 * whose[1] + side for side in (0, 1)]
        owners |= set(zip(at, ports, whose, strict=True))
        packets = -(-size // full) if full else packets
        times = np.linspace(
            schedule.flow_start[edge, iteration],
            schedule.flow_end[edge, iteration],
            packets,
        )
        sizes = np.full(packets, full or size // packets)
        sizes[-1:] += size - sizes.sum()
        rows += [
            (time, *at, *ports, part)
            for time, part in zip(times, sizes, strict=True)
            if size
        ]
    all_rows = np.array(rows, PACKET)
    return Traffic(
        all_rows[np.argsort(all_rows["time"], kind="stable")],
        tuple(machine.name for machine in machines),
        np.array(
            [[m.bandwidth_out for m in machines], [m.bandwidth_in for m in machines]]
        ),
        programs,
        np.array(sorted(owners), OWNER),
    )
