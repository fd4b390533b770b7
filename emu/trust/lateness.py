"""Lateness of an emulated run, and its effect on the makespan.

A flow is due when the rates that it was assigned have carried its bytes; a task when
its profiled time is over. What comes after that, and what passes between the parts of
the critical path, is not of the schedule. Along the chain it sums to what the makespan
would have been shorter by, had the rates been the same.

A flow that is late takes nothing from the others: when its bytes have been served, its
rate is given to them (`emu.emulation.coordinator.scheduler_driver`).

Its effect is the simulation, repeated with ends that are late. The scheduler of the
simulator is that of the run: the order that changed, the flow that waited behind a late
one, and the slack that took it up are all in it. What comes late is a longer task to
it, since a late flow delays only the tasks that need it. The repetition is exact but
for flows that wait for a late one on their edge.

The lateness summed along the critical path is no substitute. Of 121 runs beside hogs
(drawn scenarios, 1.2 s of wall time each) it was short of the error by over a tenth in
35 and beyond it by over a tenth in 32: 7 % where a stopped process had cost 18 % under
``mrtf``, 40 % where one had cost 11 % under ``maxmin``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from emu.array_types import Floats
from emu.prediction.analysis.critical_path import Cause, CriticalPath, critical_path
from emu.prediction.analysis.link_load import fluid_ends
from emu.prediction.simulation import makespan
from emu.problem import Outages, Problem, Profile, Realization, Schedule


@dataclass(frozen=True)
class Lateness:
    """Seconds by which the critical path is longer than its schedule."""

    flows: float
    """Last bytes that arrived after their fluid."""
    tasks: float
    """Computation that took longer than its profiled time."""
    gaps: float
    """Between one part and the next."""

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.flows + self.tasks + self.gaps


def chain_lateness(schedule: Schedule, late: Floats) -> Lateness:
    """Return the lateness of an emulated run's critical path, by cause.

    ``schedule``: with its rates; without any, no flow is late. ``late``: seconds of
    (task, iteration) after the profiled end.
    """
    chain = critical_path(schedule)
    due = schedule.flow_end
    if schedule.rates is not None:
        due = fluid_ends(schedule)
    seconds_after = np.maximum(schedule.flow_end - due, 0.0)
    # Flows that were never sent have no time.
    flow_late = np.nan_to_num(seconds_after)

    # A flow over several links is several links of the chain, and late once.
    parts = {
        (link.task, link.edge, link.iteration)
        for link in chain.links
        if link.cause is not Cause.GAP
    }
    late_flows = 0.0
    late_tasks = 0.0
    for task, edge, iteration in parts:
        if edge >= 0:
            late_flows += flow_late[edge, iteration]
        else:
            late_tasks += late[task, iteration]

    seconds_by_cause = chain.sums(lambda link: link.cause)
    return Lateness(
        flows=float(late_flows),
        tasks=float(late_tasks),
        gaps=seconds_by_cause.get(Cause.GAP, 0.0),
    )


#: Wall seconds of a flow in which waits for a core delay it. Later the kernel's queues
#: and buffers have 20 ms and more of it. Flows of 50 to 100 ms of a drawn job made runs
#: up to 16 % longer at a load of 20; flows of a second did not (golden, load of 6).
YOUNG = 0.1


def seconds_of_waits(
    schedule: Schedule,
    waited: Mapping[str, float],
    time_scale: float,
    chain: CriticalPath,
    *,
    works: bool = False,
) -> float:
    """Return seconds that waits for a core may have added to young flows of the path.

    A process's waits are taken as even over the time in which it could have any.

    ``waited``: wall seconds by process for which it was ready and had no core.
    ``works``: whether tasks compute, and wait then, too; else only flows keep a process
    busy.
    """
    job = schedule.problem.job
    shares = shares_of_waits(
        schedule,
        waited,
        time_scale=time_scale,
        works=works,
    )
    lengths: defaultdict[tuple[int, int], float] = defaultdict(float)
    for link in chain.links:
        if link.edge >= 0:
            # A flow may be several links of the chain: only all of it says how young it
            # was.
            lengths[link.edge, link.iteration] += link.seconds

    waits = []
    for (position, _), seconds in lengths.items():
        edge = job.edges[position]
        # A flow needs a core at either end.
        share_of_sender = shares.get(edge.source, 0.0)
        share_of_reader = shares.get(edge.destination, 0.0)
        share = share_of_sender + share_of_reader
        # YOUNG is of wall time, the chain of emulated time.
        young = min(seconds, YOUNG / time_scale)
        waits.append(young * share)
    return math.fsum(waits)


def shares_of_waits(
    schedule: Schedule,
    waited: Mapping[str, float],
    time_scale: float,
    *,
    works: bool = False,
) -> dict[int, float]:
    """Return the share of its busy time that every task's process waited for a core.

    Parameters are those of `seconds_of_waits`.
    """
    job = schedule.problem.job
    spans_of_tasks = _busy_spans(schedule, works=works)
    shares: dict[int, float] = {}
    for process, tasks in job.processes.items():
        spans: list[_Span] = []
        for task in tasks:
            spans += spans_of_tasks[task]
        # Flows side by side keep one process busy once.
        busy = _length_of_union(spans) * time_scale
        share = 0.0
        if busy:
            seconds = waited.get(process, 0.0)
            # Waits are counted over the whole run: no share of them is more than all.
            share = min(seconds / busy, 1.0)
        shares |= dict.fromkeys(tasks, share)
    return shares


_Span: TypeAlias = tuple[float, float]


def _busy_spans(schedule: Schedule, *, works: bool) -> defaultdict[int, list[_Span]]:
    """Return begin and end of all that every task sends, receives, and computes."""
    edges = schedule.problem.job.edges
    spans: defaultdict[int, list[_Span]] = defaultdict(list)
    for position, n in schedule.flows().tolist():
        edge = edges[position]
        start = schedule.flow_start[position, n]
        end = schedule.flow_end[position, n]
        spans[edge.source].append((start, end))
        spans[edge.destination].append((start, end))
    if works:
        starts = schedule.task_start.tolist()
        ends = schedule.task_end.tolist()
        for task, task_starts in enumerate(starts):
            spans[task] += zip(task_starts, ends[task], strict=True)
    return spans


def _length_of_union(spans: list[_Span]) -> float:
    """Return the seconds in which at least one span lasts."""
    total = 0.0
    latest = -math.inf
    for start, end in sorted(spans):
        seconds = end - max(start, latest)
        total += max(0.0, seconds)
        latest = max(latest, end)
    return total


#: Tolerance of a flow: a share of its length, or so many wall seconds if longer.
SHARE = 0.01
WALL = 0.002


@dataclass(frozen=True, eq=False)
class FlowCompletion:
    """Flows between machines, in wall seconds."""

    error: Floats
    """End at the receiver less the end of the fluid, shape (flows,)."""
    length: Floats
    """From the start of the flow to the end of its fluid, same shape."""

    @property
    def excess(self) -> Floats:
        """Error over what is allowed: max(1 % of the length, 2 ms of wall time)."""
        allowed = np.maximum(SHARE * self.length, WALL)
        return np.abs(self.error) / allowed

    @property
    def share(self) -> Floats:
        """Error over the length; infinite for a flow that had none."""
        error = np.abs(self.error)
        shares = np.full_like(error, np.inf)
        has_length = self.length > 0
        np.divide(error, self.length, out=shares, where=has_length)
        return shares


def flow_completion(schedule: Schedule, time_scale: float) -> FlowCompletion:
    """Return the finish of every flow that was assigned rates.

    ``schedule``: emulated, with its rates. ``time_scale``: wall seconds per emulated
    second.

    Raises ValueError when the schedule holds no rates.
    """
    flows = tuple(schedule.flows().T)
    due = fluid_ends(schedule)[flows]
    error = schedule.flow_end[flows] - due
    length = due - schedule.flow_start[flows]
    is_known = ~np.isnan(due)
    return FlowCompletion(
        error=error[is_known] * time_scale,
        length=length[is_known] * time_scale,
    )


def clock_uncertainty(
    chain: CriticalPath,
    problem: Problem,
    hosts: Sequence[Mapping[str, Any]],
) -> float:
    """Return wall seconds by which the end may be off, since clocks are not known.

    A flow between two hosts leaves by the one's clock and arrives by the other's; what
    waits for it begins by its arrival. So along the critical path every such flow adds
    what is not known of both, and the last task what is not known of its own. Within a
    host nothing is unknown: its processes read one clock.

    ``hosts``: what is known of each: its ``machines``, and the ``uncertainty`` of its
    ``clock``, wall seconds.
    """
    host_of: dict[str, int] = {}
    uncertainty_of: defaultdict[str, float] = defaultdict(float)
    for number, host in enumerate(hosts):
        clock = host.get("clock", {})
        uncertainty = float(clock.get("uncertainty", 0.0))
        for name in host.get("machines", ()):
            host_of[name] = number
            uncertainty_of[name] = uncertainty

    machines = problem.cluster.machines
    names = [machines[position].name for position in problem.placement.machine_of]
    links = chain.links
    parts = []
    # The end of the run is read by the clock of the last task's host.
    if links and links[-1].task >= 0:
        last_task = links[-1].task
        last_machine = names[last_task]
        parts.append(uncertainty_of[last_machine])
    for link in links:
        takes_time = link.start < link.end
        if link.edge < 0 or not takes_time:
            continue
        edge = problem.job.edges[link.edge]
        sender = names[edge.source]
        receiver = names[edge.destination]
        # Machines of which nothing is known are of one host.
        if host_of.get(sender, -1) != host_of.get(receiver, -1):
            of_sender = uncertainty_of[sender]
            of_receiver = uncertainty_of[receiver]
            parts.append(of_sender + of_receiver)
    return math.fsum(parts)


#: Draws of `effect_of_slight_delays`, and the share of an iteration by which ends are
#: late there on average. Along a chain of ten parts per iteration it adds up to 0.1 %.
_DRAWS = 8
_SLIGHT = 1e-4


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
    recovery: float = 0.0
    """Seconds of each in which the job is down, as stated: no share is of them."""

    @property
    def explained(self) -> float:
        """Shift of the end by all that came late; negative when it made it sooner."""
        return self.repeated - self.punctual

    @property
    def unexplained(self) -> float:
        """Seconds that no lateness accounts for, of either simulation the larger."""
        distance = self.emulated - self.simulated
        # Lateness may have moved the end so far; what is beyond it has no reason.
        rest = abs(distance) - abs(self.explained)
        beyond = math.copysign(max(rest, 0.0), distance)
        distance_repeated = self.emulated - self.repeated
        return max(distance_repeated, beyond, key=abs)

    @property
    def error(self) -> float:
        """Share of the punctual makespan by which lateness moved the end.

        The run's own distance from its simulation enters `uncertainty`, where lateness
        does not account for it.
        """
        return self._share(self.explained)

    @property
    def uncertainty(self) -> float:
        """Share of the punctual makespan that no lateness accounts for."""
        return self._share(self.unexplained) + self.unsure

    @property
    def shift(self) -> float:
        """Share of the punctual makespan by which the end may be off, by all of this.

        What takes one flow's last byte long, the next one on its edge waits for, and no
        repetition shows that: a run of such flows (`testbed_products` at time scale 1)
        was 0.23 % late, 0.83 % off for no reason, and each was less than 1 %.

        Parts add up by their amounts. A run that ends in time although what came late
        should have moved its end was pulled back by something that nobody found, or was
        repeated wrongly: that two unknowns cancel is chance, and the next run's may
        not.
        """
        return self.error + self.uncertainty

    @property
    def unsure(self) -> float:
        """Share of the punctual makespan that clocks leave open."""
        return self._share(self.clocks)

    def _share(self, seconds: float) -> float:
        if self.up <= 0:
            return 0.0
        return abs(seconds) / self.up

    @property
    def up(self) -> float:
        """Seconds of the punctual makespan in which the job is not down."""
        return self.punctual - self.recovery

    def after(self, ended: Outages, expected: Outages) -> HostEffect:
        """Return the effect on the whole job.

        ``ended`` and ``expected``: seconds of the attempts that deaths ended, in the
        run and simulated.
        """
        return replace(
            self,
            emulated=self.emulated + ended.seconds,
            repeated=self.repeated + ended.seconds,
            punctual=self.punctual + expected.seconds,
            simulated=self.simulated + expected.seconds,
            recovery=expected.recovery,
        )


def host_effect(
    problem: Problem,
    policy: str,
    profile: Profile | None,
    *,
    emulated: float,
    simulated: float,
    measured: Realization,
    perturbed: Realization,
    late: Floats,
    clocks: float = 0.0,
) -> HostEffect:
    """Return the effect of a host's lateness on a run.

    ``profile``: what the policy expects, None for ``measured``. ``measured`` and
    ``perturbed``: times and volumes, without and with what came after them; ``late``:
    seconds of ``measured`` (task, iteration) after the profiled end. The others are
    fields of the effect.
    """
    # Rounding may leave less than nothing of a task that was all late.
    punctual_times = np.maximum(measured.times - late, 0.0)
    punctual = Realization(punctual_times, measured.volumes)
    simulate_end = partial(makespan, problem, policy=policy, profile=profile)
    return HostEffect(
        emulated=emulated,
        repeated=simulate_end(perturbed),
        punctual=simulate_end(punctual),
        simulated=simulated,
        clocks=clocks,
    )


def late_times(schedule: Schedule) -> Floats:
    """Return times of tasks that have what came late of a run in them.

    A task lasts from when it could have started, had every flow ended with its fluid,
    until its end was settled. The scheduler of the simulation is that of the run, so
    these make it repeat the run, but for flows that waited for the late arrival of the
    one before on their edge.

    Seconds, shape (tasks, iterations).

    Raises ValueError when the schedule holds no rates, or not when ends were settled.
    """
    problem = schedule.problem
    job = problem.job
    settled = schedule.task_settled
    if settled is None or schedule.flow_settled is None:
        raise ValueError("the schedule does not hold when ends were settled")

    flow_edge, flow_iteration = schedule.flows().T
    has_bytes = np.zeros(schedule.flow_end.shape, dtype=bool)
    has_bytes[flow_edge, flow_iteration] = True
    has_bytes &= schedule.flow_bytes > 0
    # What was settled before its fluid ended let the task start then.
    due = np.fmin(fluid_ends(schedule), schedule.flow_settled)
    could_start = np.zeros_like(settled)
    could_start[:, 1:] = settled[:, :-1]
    for position, edge in enumerate(job.edges):
        count = job.flow_counts[position]
        flow = (position, slice(count))
        # One without bytes waits, too: for the flows before it on its channel or edge.
        handovers = np.fmax(
            settled[edge.source, :count],
            schedule.flow_start[flow],
        )
        ends = np.where(has_bytes[flow], due[flow], handovers)
        landed = ends + problem.latencies[position]
        turns = slice(edge.lag, edge.lag + count)
        # A view: the maximum is written into `could_start`.
        inputs = could_start[edge.destination, turns]
        np.maximum(inputs, landed, out=inputs)
    for pool in problem.pools:  # the wait for a slot is no work
        takers = list(pool.takers)
        starts = schedule.task_start[takers]
        could_start[takers] = np.fmax(could_start[takers], starts)

    work = problem.work(could_start, settled)
    return np.maximum(np.nan_to_num(work), 0.0)


def delay(
    realization: Realization,
    schedule: Schedule,
    *,
    tasks: Floats,
    flows: Floats,
) -> Realization:
    """Return times and volumes whose simulation has these ends late.

    ``schedule``: the simulation of ``realization``: what slack it leaves takes lateness
    up. ``tasks`` and ``flows``: seconds by which (task, iteration) and (edge,
    iteration) end late, 0 or more.
    """
    job = schedule.problem.job
    waits = np.zeros_like(tasks)
    # What slack takes up moves nothing: only the rest is a longer wait of the task.
    for position, edge in enumerate(job.edges):
        # What the last iterations send, nobody reads.
        count = max(job.iterations - edge.lag, 0)
        flow = (position, slice(count))
        reader = (edge.destination, slice(edge.lag, None))
        slack = schedule.task_start[reader] - schedule.flow_end[flow]
        slack -= schedule.problem.latencies[position]
        beyond_slack = flows[flow] - slack
        # A view: the maximum is written into `waits`.
        wait = waits[reader]
        np.fmax(wait, beyond_slack, out=wait)

    times = realization.times + tasks + waits
    return Realization(times, realization.volumes)


def effect_of_slight_delays(
    realization: Realization,
    policy: str,
    profile: Profile | None,
    schedule: Schedule,
) -> float:
    """Return the largest share by which ends that are ever so slightly late move it.

    What moves by percents, chance decides: which of two coflows is the shorter, say. No
    host and no time scale emulates such a makespan.

    ``realization`` and ``policy`` and ``profile``: as for
    `emu.prediction.simulation.simulate`. ``schedule``: what that returned.
    """
    if schedule.length <= 0:
        return 0.0
    problem = schedule.problem
    rng = np.random.default_rng(0)  # a verdict has no chance of its own
    mean_delay = _SLIGHT * schedule.length / problem.job.iterations
    edge, iteration = schedule.flows().T
    has_bytes = schedule.flow_bytes[edge, iteration] > 0
    cells = (edge[has_bytes], iteration[has_bytes])
    count = np.count_nonzero(has_bytes)

    worst = 0.0
    for _ in range(_DRAWS):
        flows = np.zeros_like(schedule.flow_end)
        # Exponential: many small delays and few large ones, as of a busy host.
        flows[cells] = rng.exponential(mean_delay, count)
        # Ends of tasks are as late as those of flows: either may change an order.
        tasks = rng.exponential(mean_delay, schedule.task_end.shape)
        late = delay(realization, schedule, tasks=tasks, flows=flows)
        end = makespan(
            problem,
            late,
            policy=policy,
            profile=profile,
        )
        shift = abs(end / schedule.length - 1)
        worst = max(worst, shift)
    return worst
