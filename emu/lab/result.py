"""The content of ``lab.json``: how programs ended, what crossed, and the host."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.analysis.traffic import (
    CONNECTION,
    OWNER,
    Traffic,
    meetings,
    messages,
    named_matrix,
    nic_rates,
    nic_use,
    sent_matrix,
)
from emu.machines import leaf_of, leaves_among

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from emu.machines import LabMachine

#: Share of their computing that programs may wait for a core in a ``trusted`` lab.
MOST_WAITS = 0.05
#: Parts of the time of a lab for which lab.json says how much of a NIC was used.
BINS = 60


@dataclass
class ProgramRun:
    """A program on a machine: seconds of its start and end, and how it ended."""

    program: str
    machine: str
    start: float
    end: float | None = None
    code: int | None = None
    """Exit code, negative for a signal; None while it runs."""
    told: bool = False
    """True where the lab ended it, at the lab's own end."""


@dataclass(frozen=True)
class NicChange:
    """A NIC as it became: seconds, machine, bytes of payload per second."""

    time: float
    machine: str
    nic_out: float
    nic_in: float


def summary(
    machines: Sequence[LabMachine],
    programs: Sequence[ProgramRun],
    samples: Mapping[str, NDArray[Any]],
) -> dict[str, Any]:
    """Return ends of programs, their waits for this computer, and drops of queues."""
    ran, waited = float(samples["ran"][-1]), float(samples["waited"][-1])
    share = waited / (ran + waited) if ran + waited > 0 else 0.0
    own = [run for run in programs if run.code and not run.told]
    first = min(own, key=lambda run: run.end or 0.0, default=None)
    return {
        "programs": [vars(run) for run in programs],
        "failed": first
        and {"program": first.program, "machine": first.machine, "code": first.code},
        "computed_seconds": ran,
        "waited_seconds": waited,
        "waited_share": share,
        "trust": "trusted" if share <= MOST_WAITS else "degraded",
        "dropped": {
            machine.name: {"out": int(out), "in": int(into)}
            for machine, out, into in zip(
                machines, *samples["dropped"][-1], strict=True
            )
        },
    }


def traffic_of(
    machines: Sequence[LabMachine],
    packets: NDArray[np.void],
    owners: Mapping[tuple[str, int], str],
) -> Traffic:
    """Return the captured packets, with names as numbers."""
    names = tuple(machine.name for machine in machines)
    programs = tuple(sorted(set(owners.values())))
    rows = [
        (names.index(machine), port, programs.index(program))
        for (machine, port), program in owners.items()
    ]
    return Traffic(
        packets,
        names,
        np.array([[m.nic_out for m in machines], [m.nic_in for m in machines]]),
        programs,
        np.array(rows, OWNER),
    )


def what_crossed(
    traffic: Traffic, seconds: float, changes: Sequence[NicChange], *, fair: bool
) -> dict[str, Any]:
    """Return the key ``crossed`` of lab.json: payload by pair, NICs over time.

    Parameters
    ----------
    fair
        Whether connections are to have queues of their own: those that shared one are
        counted.
    """
    packets, names = traffic.packets, traffic.machines
    leaf = functools.partial(leaf_of, leaves=leaves_among(len(names)))
    told = [
        (one.time, names.index(one.machine), one.nic_out, one.nic_in) for one in changes
    ]
    used = nic_use(packets, nic_rates(traffic.nics, told, seconds, BINS), seconds)
    return {
        "packets": len(packets),
        "connections": len(np.unique(packets[CONNECTION])),
        "messages": len(messages(packets)),
        "shared_queues": len(meetings(packets, leaf)) if fair else 0,
        "bytes": named_matrix(sent_matrix(packets, len(names)), names),
        "bin_seconds": seconds / BINS,
        "nic_use": {
            name: {"out": used[0, number].tolist(), "in": used[1, number].tolist()}
            for number, name in enumerate(names)
        },
    }
