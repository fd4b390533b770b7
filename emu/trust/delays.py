"""Delays of a run where some process is to act, and who was at work meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from emu.array_types import Floats, Mask
from emu.prediction.analysis import critical_path
from emu.problem import Schedule
from emu.trust.observed import Observations

#: Share of a run for which a process waits for a core where this may be why it is late,
#: if it waited for longer than it was late by (`emu.trust.verdict` trusts none such).
_STARVED = 0.1
#: Share of a process's delays up to which its waits are no cause of them. From there
#: nobody knows, unless it is starved: it may have waited when nothing was to be done.
_CLEAR = 0.5


@dataclass(frozen=True, eq=False)
class Part:
    """Part of the delays that somebody is known to have made, emulated seconds."""

    work: Floats
    """Seconds of (task, iteration)."""
    flows: Floats
    """Seconds of (edge, iteration)."""

    @property
    def longest(self) -> float:
        """The longest of all."""
        largest_work = float(self.work.max(initial=0))
        largest_flow = float(self.flows.max(initial=0))
        return max(largest_work, largest_flow)


class Delays(NamedTuple):
    """Delays of a run by who made them, emulated seconds."""

    held: Part
    """The coordinator was at work on something else, and had a core."""
    core: Part
    """The coordinator, or the process, was ready and had no core."""
    pauses: Floats
    """The receiver of (edge, iteration) had a core and left bytes unread."""
    stalls: Floats
    """All that held (edge, iteration) up."""
    is_clear: Mask
    """True where the process of a task waited for less than half of its delays."""


def measure_delays(
    emulated: Schedule,
    simulation: Schedule,
    pauses: Floats,
    observed: Observations,
) -> Delays:
    """Return the delays of a run, as coordinator and processes recorded them.

    ``simulation``: what it is compared with; ``pauses``: emulated seconds in which
    bytes of (edge, iteration) waited to be read.
    """
    expected_work = observed.expected_work(simulation)
    work = np.maximum(emulated.work - expected_work, 0.0)
    starts = np.zeros_like(work)
    if observed.began is not None:
        late = np.nan_to_num(observed.began - emulated.task_start)
        starts = np.clip(late, 0.0, work)
    orders = late_orders(emulated, observed)
    first = first_bytes(emulated, observed)
    gaps = gaps_of_path(emulated)
    until_start = Part(work=starts, flows=orders)
    held, core = _coordinator_parts(emulated, gaps, until_start, observed)

    until_first = np.maximum(first, orders)
    rest_work = gaps.work + work - held.work - core.work
    rest_flows = gaps.flows + until_first - held.flows - core.flows
    rest = Part(
        work=np.maximum(rest_work, 0.0),
        flows=np.maximum(rest_flows, 0.0),
    )
    lost, waited = losses_and_waits(
        emulated,
        delays=rest,
        pauses=pauses,
        observed=observed,
    )
    is_clear = waited <= _CLEAR * lost
    least_wait = np.maximum(lost, _STARVED * emulated.length)
    is_starved = waited >= least_wait

    edges = emulated.problem.job.edges
    sources = [edge.source for edge in edges]
    readers = [edge.destination for edge in edges]
    core_work = core.work + is_starved * rest.work
    core_flows = core.flows + is_starved[sources] * rest.flows
    core_flows += is_starved[readers] * pauses
    return Delays(
        held=held,
        core=Part(work=core_work, flows=core_flows),
        pauses=is_clear[readers] * pauses,
        stalls=until_first + pauses,
        is_clear=is_clear,
    )


def _coordinator_parts(
    emulated: Schedule,
    gaps: Part,
    until_start: Part,
    observed: Observations,
) -> tuple[Part, Part]:
    """Return what the coordinator held up, and what it did for want of a core.

    ``gaps``: seconds before its orders; ``until_start``: and after them.
    """
    ordered = emulated.task_start
    held_work, core_work = by_turns(
        begin=ordered - gaps.work,
        end=ordered + until_start.work,
        observed=observed,
    )
    ready = emulated.flow_start
    held_flows, core_flows = by_turns(
        begin=ready - gaps.flows,
        end=ready + until_start.flows,
        observed=observed,
    )

    held = Part(work=held_work, flows=held_flows)
    core = Part(work=core_work, flows=core_flows)
    return held, core


def first_bytes(emulated: Schedule, observed: Observations) -> Floats:
    """Return seconds until the kernel had the first bytes of (edge, iteration)."""
    start = emulated.flow_start
    first = np.zeros_like(start)
    if emulated.rates is None:
        for flow, instant in observed.first.items():
            seconds = instant - start[flow]
            first[flow] = max(seconds, 0.0)
    return np.nan_to_num(first)


def late_orders(emulated: Schedule, observed: Observations) -> Floats:
    """Return seconds until the sender of (edge, iteration) knew that it may send.

    A payload that was not there by then had nothing to wait for.
    """
    start = emulated.flow_start
    orders = np.zeros_like(start)
    if emulated.rates is None:
        for flow, row in observed.sends.items():
            _, queued, informed, _ = row.tolist()
            if queued < informed:
                seconds = informed - start[flow]
                orders[flow] = max(seconds, 0.0)
    return np.nan_to_num(orders)


def gaps_of_path(emulated: Schedule) -> Part:
    """Return what passed on the critical path between all inputs and a start."""
    work = np.zeros_like(emulated.task_end)
    flows = np.zeros_like(emulated.flow_end)
    path = critical_path.critical_path(emulated)
    for gap, link in pairwise(path.links):
        if gap.cause is not critical_path.Cause.GAP:
            continue
        if link.edge >= 0:
            flows[link.edge, link.iteration] = gap.seconds
        else:
            work[link.task, link.iteration] = gap.seconds
    return Part(work=work, flows=flows)


def by_turns(
    begin: Floats,
    end: Floats,
    observed: Observations,
) -> tuple[Floats, Floats]:
    """Return seconds of each span in which the coordinator worked, and had no core.

    Waits before a turn count as just before it; those in it as even over it.
    """
    turns = observed.turns
    if not len(turns):
        none = np.zeros_like(begin)
        return none, none.copy()

    start, stop, before, within = turns.T
    first_wait = start - before
    instants = np.column_stack([first_wait, start, stop]).ravel()
    nothing = np.zeros_like(start)
    at_work = stop - start - within
    worked = np.column_stack([nothing, nothing, at_work])
    waited = np.column_stack([nothing, before, within])

    def seconds(steps: Floats) -> Floats:
        total = np.cumsum(np.maximum(steps, 0.0))
        at_begin = np.interp(begin, instants, total)
        at_end = np.interp(end, instants, total)
        passed: Floats = np.nan_to_num(at_end - at_begin)
        return passed

    return seconds(worked), seconds(waited)


def losses_and_waits(
    emulated: Schedule,
    delays: Part,
    pauses: Floats,
    observed: Observations,
) -> tuple[Floats, Floats]:
    """Return what every task's process lost, and waited for a core: (task, 1) each."""
    job = emulated.problem.job
    sources = [edge.source for edge in job.edges]
    readers = [edge.destination for edge in job.edges]
    lost = np.zeros((len(job.tasks), 1))
    waited = np.zeros_like(lost)
    for process, tasks in job.processes.items():
        places = list(tasks)
        is_sent = np.isin(sources, tasks)
        is_read = np.isin(readers, tasks)
        lost[places] = delays.work[places].sum()
        lost[places] += delays.flows[is_sent].sum()
        lost[places] += pauses[is_read].sum()
        waits = observed.processes.get(process)
        if waits is not None:
            waited[places] = waits.core / observed.time_scale
    return lost, waited
