"""Effect of lateness on the makespan: the simulation, repeated with ends that are late.

The scheduler of the simulator is that of the run. Given the lateness of every task and
flow, it repeats the run: the order that changed, the flow that waited behind a late
one, and the slack that took it up are all in it. What comes late is a longer
task to it, since a late flow delays only the tasks that need it
(`emu.coordinator.scheduler_driver`). The repetition is exact but for flows that wait
for a late one on their edge.

The lateness summed along the critical path is no substitute. Of 121 runs beside hogs
(drawn scenarios, 1.2 s of wall time each) it was short of the error by over a tenth in
35 and beyond it by over a tenth in 32: 7 % where a stopped process had cost 18 % under
``mrtf``, 40 % where one had cost 11 % under ``maxmin``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emu.problem import Realization
from emu.simulation import makespan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.problem import Problem, Profile, Schedule

#: Draws of `sensitivity`, and how late ends are there on average: this share of an
#: iteration. Along a chain of ten parts per iteration it adds up to 0.1 %.
_DRAWS, _SLIGHT = 8, 1e-4


@dataclass(frozen=True)
class HostEffect:
    """Makespans of one run, emulated seconds."""

    emulated: float
    """Makespan of the run."""
    repeated: float
    """Makespan of its simulation with all that came late."""
    punctual: float
    """Makespan of its simulation with nothing that came late."""
    simulated: float
    """Makespan of its simulation with the times and volumes that were measured, late
    tasks among them: the run is compared with it."""
    clocks: float = 0.0
    """Seconds by which the end may be off, as hosts' clocks are known so far only."""

    @property
    def explained(self) -> float:
        """Shift of the end by all that came late; negative when it made it sooner."""
        return self.repeated - self.punctual

    @property
    def unexplained(self) -> float:
        """Seconds that no lateness accounts for, of either simulation the larger."""
        parted = self.emulated - self.simulated
        beyond = math.copysign(max(abs(parted) - abs(self.explained), 0.0), parted)
        return max(self.emulated - self.repeated, beyond, key=abs)

    @property
    def error(self) -> float:
        """Share of the punctual makespan by which lateness moved the end.

        The run's own distance from its simulation does not enter: a verdict that
        trusted only what agrees could not be used to measure agreement. It enters
        `uncertainty` where lateness does not account for it.
        """
        return self._share(self.explained)

    @property
    def uncertainty(self) -> float:
        """Share of the punctual makespan that no lateness accounts for."""
        return self._share(self.unexplained) + self.unsure

    @property
    def unsure(self) -> float:
        """Share of the punctual makespan that clocks leave open."""
        return self._share(self.clocks)

    def _share(self, seconds: float) -> float:
        return abs(seconds) / self.punctual if self.punctual > 0 else 0.0


def host_effect(
    problem: Problem,
    policy: str,
    profile: Profile | None,
    *,
    emulated: float,
    simulated: float,
    measured: Realization,
    perturbed: Realization,
    late: NDArray[np.float64],
    clocks: float = 0.0,
) -> HostEffect:
    """Return the effect of a host's lateness on a run.

    Parameters
    ----------
    profile
        What the policy expects; None for ``measured``.
    emulated, simulated
        Makespans of the run, and of its simulation with what was measured, seconds.
    measured, perturbed
        Times and volumes, without and with what came after them.
    late
        Seconds of (task, iteration) after the profiled end; of ``measured`` times.
    clocks
        Seconds by which the end may be off, since clocks are known so far only.
    """
    held = Realization(np.maximum(measured.times - late, 0.0), measured.volumes)
    return HostEffect(
        emulated=emulated,
        repeated=makespan(problem, perturbed, policy, profile=profile),
        punctual=makespan(problem, held, policy, profile=profile),
        simulated=simulated,
        clocks=clocks,
    )


def delayed(
    realization: Realization,
    schedule: Schedule,
    *,
    tasks: NDArray[np.float64],
    flows: NDArray[np.float64],
) -> Realization:
    """Return times and volumes whose simulation has these ends late.

    Parameters
    ----------
    schedule
        The simulation of ``realization``: what slack it leaves takes lateness up.
    tasks, flows
        Seconds by which (task, iteration) and (edge, iteration) end late, 0 or more.
    """
    job = schedule.problem.job
    waited = np.zeros_like(tasks)
    for position, edge in enumerate(job.edges):
        needed = slice(edge.lag, None), slice(max(job.iterations - edge.lag, 0))
        slack = (
            schedule.task_start[edge.destination, needed[0]]
            - schedule.flow_end[position, needed[1]]
        )
        into = waited[edge.destination, needed[0]]
        np.fmax(into, flows[position, needed[1]] - slack, out=into)
    return Realization(realization.times + tasks + waited, realization.volumes)


def sensitivity(
    realization: Realization,
    policy: str,
    profile: Profile | None,
    schedule: Schedule,
) -> float:
    """Return the largest share by which ends that are ever so slightly late move it.

    What moves by percents, chance decides: which of two coflows is the shorter, say. No
    host and no time scale emulates such a makespan.

    Parameters
    ----------
    realization, policy, profile
        As for `emu.simulation.simulate`.
    schedule
        What that returned.
    """
    if schedule.makespan <= 0:
        return 0.0
    rng = np.random.default_rng(0)
    slight = _SLIGHT * schedule.makespan / schedule.problem.job.iterations
    edge, iteration = schedule.flows().T
    sent = schedule.flow_bytes[edge, iteration] > 0
    at = edge[sent], iteration[sent]
    worst = 0.0
    for _ in range(_DRAWS):
        flows = np.zeros_like(schedule.flow_end)
        flows[at] = rng.exponential(slight, len(at[0]))
        tasks = rng.exponential(slight, schedule.task_end.shape)
        late = delayed(realization, schedule, tasks=tasks, flows=flows)
        moved = makespan(schedule.problem, late, policy, profile=profile)
        worst = max(worst, abs(moved / schedule.makespan - 1))
    return worst
