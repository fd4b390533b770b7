"""A time scale for a job on kernel NICs: by what these cost, without a trial.

No flow has a time to keep to there, so no trial could be late. What passes before a
flow's first bytes, and the cores' work, are of wall time: a run that takes longer has
less of both.
"""

from __future__ import annotations

import math

import numpy as np

from emu.errors import ScenarioError
from emu.experiment.scale_search import SHORTEST, KernelForecast
from emu.lab.machines.nic import FASTEST, SLOWEST, Sharing, plan_nic
from emu.prediction.analysis.critical_path import critical_path
from emu.problem import Schedule
from emu.trust.verdict import round_up

#: Wall seconds from an end to the first bytes of the flow that waited for it: in the
#: mean of four scenarios 0.9 to 2.9 ms, on two cores that others kept busy.
HOP = 2.5e-3
#: CPU seconds of an end of a task or flow (0.91 ms of 2,000 in rings), and of a segment
#: from kernel to kernel: 8.6 s per GB where NICs of 12.5 MB/s make them 6.2 kB long.
END, SEGMENT = 1e-3, 5.4e-5
#: Share of ``max_error`` that delay before first bytes may be, and of the cores that
#: may be busy: in the mean of the run, and while the fastest NIC is.
MARGIN, CORES = 0.5, 0.5


class KernelCosts:
    """Cost of a simulated schedule on kernel NICs, by time scale.

    Its makespan is more than 0; ``byte_scale`` is real bytes per emulated byte; this
    host may use so many cores.
    """

    def __init__(
        self, schedule: Schedule, *, byte_scale: float, cores: int, sharing: Sharing
    ) -> None:
        problem, flows = schedule.problem, schedule.flows()
        self.makespan, self._cores, self._sharing = schedule.makespan, cores, sharing
        chain = critical_path(schedule).links
        self.hops = len({(p.edge, p.iteration) for p in chain if p.edge >= 0})
        self._ends = schedule.task_end.size + len(flows)
        nics = np.array(problem.capacities) * byte_scale
        self._nics: list[float] = sorted({*nics.tolist()})
        sizes: dict[float, float] = {}
        for edge, n in flows.tolist():
            narrowest = float(nics[list(problem.hops[edge])].min())
            nbytes = byte_scale * float(schedule.flow_bytes[edge, n])
            sizes[narrowest] = sizes.get(narrowest, 0.0) + nbytes
        self._sent = sizes

    def least(self, max_error: float) -> float:
        """Return a scale that no rule lets a run go below, before the cores' one."""
        delay = self.hops * HOP / (MARGIN * max_error)
        return max(max(delay, SHORTEST) / self.makespan, self._nics[-1] / FASTEST)

    @property
    def most(self) -> float:
        """Return the scale above which the slowest NIC is none of the kernel's."""
        return self._nics[0] / SLOWEST

    def holds(self, scale: float) -> bool:
        """Return True where the cores have time enough, in the mean and at most."""
        fastest = self._nics[-1]
        peak = SEGMENT * fastest / scale / self._segment(fastest, scale)
        return self.busy(scale) <= CORES and peak <= CORES * self._cores

    def busy(self, scale: float) -> float:
        """Return the share of the cores that a run keeps busy."""
        sent = self._sent.items()
        segments = math.fsum(size / self._segment(nic, scale) for nic, size in sent)
        work = self._ends * END + segments * SEGMENT
        return work / (self.makespan * scale * self._cores)

    def _segment(self, nic: float, scale: float) -> float:
        return plan_nic(nic / scale, self._sharing).segment

    def forecast(self, scale: float) -> KernelForecast:
        """Return what a scale makes of it."""
        delay = self.hops * HOP / (self.makespan * scale)
        return KernelForecast(self.hops, delay, self.busy(scale))


def kernel_time_scale(costs: KernelCosts, max_error: float) -> float:
    """Return the least scale of two digits at which kernel NICs cost little enough.

    Raises ScenarioError when the slowest NIC would carry less than the kernel's least.
    """
    scale = round_up(costs.least(max_error))
    while scale <= costs.most and not costs.holds(scale):
        scale = round_up(scale * (1 + 1e-6))
    if scale > costs.most:
        raise ScenarioError(
            f"auto needs {scale:g} or more, where the slowest NIC would carry less "
            f"than the kernel's least, {SLOWEST:g} B/s: state a number, or an "
            f"emulation.byte_scale {scale / costs.most:.2g} times as large",
            key="emulation.time_scale",
        )
    return scale
