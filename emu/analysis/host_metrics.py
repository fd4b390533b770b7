"""What the processes of a run counted, put together for the verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from emu.problem import Problem

    Statistics = Mapping[str, Mapping[str, Any]]

#: A window counts as over-used above this share of what its port may carry.
_OVER = 1.01


@dataclass(frozen=True)
class HostFigures:
    """How well the hosts served a run; wall seconds, and shares of 1.

    Parameters
    ----------
    loop_lag_mean, loop_lag_max
        Of the event loops' timers; mean over all, and the worst.
    pacer_lag_mean, pacer_lag_max
        Of the pacers' alarms.
    late_sends, max_behind
        Shaped frames that left over 1 ms after their fluid, and the worst.
    cpu_busy, cpu_steal
        Of the busiest host's cores during the run.
    cpu_wait
        Share of the run for which the worst event loop was ready and had no core.
    overused_windows, worst_overuse
        Share of the windows in which a port carried over 1 % more than its bandwidth
        and the lead of the senders, and the largest excess over the bandwidth alone.
    """

    loop_lag_mean: float = 0.0
    loop_lag_max: float = 0.0
    pacer_lag_mean: float = 0.0
    pacer_lag_max: float = 0.0
    late_sends: int = 0
    max_behind: float = 0.0
    cpu_busy: float = 0.0
    cpu_steal: float = 0.0
    cpu_wait: float = 0.0
    overused_windows: float = 0.0
    worst_overuse: float = 0.0

    def to_json(self) -> dict[str, float]:
        """Return the figures by name."""
        return asdict(self)


def host_figures(
    problem: Problem,
    statistics: Statistics,
    *,
    time_scale: float,
    byte_scale: float,
    lead_time: float,
    lead_bytes: int = 16384,
) -> HostFigures:
    """Return the figures of a run.

    Parameters
    ----------
    statistics
        Of every node process, as `emu_nodes.runtime` counts them.
    time_scale, byte_scale
        Wall seconds per emulated second, real bytes per emulated byte.
    lead_time, lead_bytes
        How far senders may lead (`emu.shaping.Depth`): wall seconds, real bytes.
    """
    host_metrics = [counted["host_metrics"] for counted in statistics.values()]
    pacers = [counted["pacer"] for counted in statistics.values()]
    sent = [edge for counted in statistics.values() for edge in counted["sent"]]
    wakes = sum(pacer["wakes"] for pacer in pacers)
    rates = problem.capacities * byte_scale / time_scale
    overused, worst = _overuse(problem, statistics, rates, lead_time, lead_bytes)
    return HostFigures(
        loop_lag_mean=float(np.mean([v["loop_lag_mean"] for v in host_metrics])),
        loop_lag_max=max(v["loop_lag_max"] for v in host_metrics),
        pacer_lag_mean=sum(p["mean_lag"] * p["wakes"] for p in pacers) / max(wakes, 1),
        pacer_lag_max=max(p["max_lag"] for p in pacers),
        late_sends=sum(edge["late_sends"] for edge in sent),
        max_behind=max((edge["max_behind"] for edge in sent), default=0.0),
        cpu_busy=max(_share(v["host"], "busy") for v in host_metrics),
        cpu_steal=max(_share(v["host"], "steal") for v in host_metrics),
        cpu_wait=max(v["waited"] / max(v["seconds"], 1e-9) for v in host_metrics),
        overused_windows=overused,
        worst_overuse=worst,
    )


def _share(host: Mapping[str, float], use: str) -> float:
    total = sum(host.values())
    return host[use] / total if total > 0 else 0.0


def port_windows(
    problem: Problem, statistics: Statistics
) -> tuple[float, dict[int, NDArray[np.float64]]]:
    """Return wall seconds per window, and real bytes per window of every port used.

    Out ports count what was sent, in ports what arrived.
    """
    counted: list[tuple[int, Mapping[str, Any]]] = []
    for process, members in problem.job.processes.items():
        machine = problem.placement.machine_of[members[0]]
        for direction, traffic in enumerate(statistics[process]["traffic"]):
            if traffic["index"]:
                counted.append((int(problem.links.nic[machine, direction]), traffic))
    width = max((traffic["width"] for _, traffic in counted), default=0.0)
    ports: dict[int, NDArray[np.float64]] = {}
    for port, traffic in counted:
        index = np.array(traffic["index"]) // round(width / traffic["width"])
        longest = max(int(index.max()) + 1, len(ports.get(port, ())))
        total = np.zeros(longest)
        total[: len(ports.get(port, ()))] = ports.get(port, np.zeros(0))
        np.add.at(total, index, np.array(traffic["bytes"], dtype=np.float64))
        ports[port] = total
    return width, ports


def _overuse(
    problem: Problem,
    statistics: Statistics,
    rates: NDArray[np.float64],
    lead_time: float,
    lead_bytes: int,
) -> tuple[float, float]:
    width, ports = port_windows(problem, statistics)
    flows = np.bincount(
        [p for hops in problem.hops for p in hops], minlength=len(rates)
    )
    over, windows, worst = 0, 0, 0.0
    for port, carried in ports.items():
        room = rates[port] * width
        # Both edges of a window may cut a lead; few of a port's flows are small ones.
        lead = max(rates[port] * lead_time, float(lead_bytes)) + lead_bytes * min(
            flows[port], 4
        )
        over += int((carried > _OVER * (room + lead)).sum())
        windows += len(carried)
        worst = max(worst, float(carried.max() / room) - 1)
    return over / max(windows, 1), worst
