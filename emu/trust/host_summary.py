"""Combine the counts of a run's processes for the verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    Statistics = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class HostFigures:
    """Lags, delays and CPU use of the hosts in a run; wall seconds, and shares of 1."""

    loop_lag_mean: float = 0.0
    loop_lag_max: float = 0.0
    """Lag of the event loops' timers; mean over all, and the worst."""
    pacer_lag_mean: float = 0.0
    pacer_lag_max: float = 0.0
    """Lag of the pacers' alarms, likewise."""
    late_sends: int = 0
    max_behind: float = 0.0
    """Shaped frames that left over 1 ms after their fluid, and the worst."""
    max_stale: float = 0.0
    """The longest that a sender did not know of a new rate."""
    cpu_busy: float = 0.0
    cpu_steal: float = 0.0
    """Shares of the busiest host's cores during the run."""
    cpu_wait: float = 0.0
    """Share of the run for which the worst event loop was ready and had no core."""

    @property
    def stall(self) -> float:
        """The longest that anything may have stood still and caught up, wall seconds.

        What is notified late, is sent late, and is read late adds up.
        """
        return (
            self.max_stale
            + max(self.pacer_lag_max, self.max_behind)
            + self.loop_lag_max
        )

    def to_json(self) -> dict[str, float]:
        """Return the figures by name."""
        return asdict(self)


def host_figures(statistics: Statistics) -> HostFigures:
    """Return the figures of a run.

    Parameters
    ----------
    statistics
        Of every node process, as `emu_nodes.runtime` counts them.
    """
    host_metrics = [counted["host_metrics"] for counted in statistics.values()]
    pacers = [counted["pacer"] for counted in statistics.values()]
    sent = [edge for counted in statistics.values() for edge in counted["sent"]]
    wakes = sum(pacer["wakes"] for pacer in pacers)
    return HostFigures(
        loop_lag_mean=float(np.mean([v["loop_lag_mean"] for v in host_metrics])),
        loop_lag_max=max(v["loop_lag_max"] for v in host_metrics),
        pacer_lag_mean=sum(p["mean_lag"] * p["wakes"] for p in pacers) / max(wakes, 1),
        pacer_lag_max=max(p["max_lag"] for p in pacers),
        late_sends=sum(edge["late_sends"] for edge in sent),
        max_behind=max((edge["max_behind"] for edge in sent), default=0.0),
        max_stale=max((edge["max_stale"] for edge in sent), default=0.0),
        cpu_busy=max(_share(v["host"], "busy") for v in host_metrics),
        cpu_steal=max(_share(v["host"], "steal") for v in host_metrics),
        cpu_wait=max(v["waited"] / max(v["seconds"], 1e-9) for v in host_metrics),
    )


def _share(host: Mapping[str, float], use: str) -> float:
    total = sum(host.values())
    return host[use] / total if total > 0 else 0.0
