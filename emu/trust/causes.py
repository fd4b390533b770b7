"""Causes of a difference between a run and its simulation, each from what was observed.

A cause has a parameter that something else than the difference shows: a kernel's count,
a clock, a stated time. It is simulated from that parameter alone, and again with half
of it. It is named where it explains at least half of the difference and half of the
parameter moves the end the same way, by less. Of several it is the one that comes
nearest to the whole; where two come as near, none is named: a wrong name costs more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from emu.prediction.analysis import critical_path
from emu.prediction.analysis.flow_counts import FlowCounts
from emu.prediction.analysis.link_load import fluid_ends
from emu.prediction.simulation import makespan
from emu.problem import Cluster, Problem, Realization, Schedule
from emu.trust import link_shares
from emu.trust.delays import Delays, measure_delays
from emu.trust.observed import Observations
from emu.trust.waiting_flows import let_flows_wait
from emu.units import format_duration, format_rate, format_size

Floats: TypeAlias = NDArray[np.float64]

#: Share of a difference that a cause must explain to be named, and the most: what
#: would have moved the end by twice as much did not do so alone.
LEAST = 0.5
_MOST = 1.6
#: Reasons where none does.
NO_REASON = ("cause not found",)
#: Share of a flow's bytes that a cause leaves it at least.
_KEPT = 0.1
#: Share of a sender's busy time from which a window counts as what limited it.
_LIMITED = 0.5
#: Share of the time of a closed window in which bytes must wait to be read, for the
#: reader to count as its cause.
_UNREAD = 0.25
#: Share of a difference by which one cause comes nearer to it than all others.
_NEARER = 0.2
#: Share of what a process lost from which waits for a disk may be why.
_OF_DISK = 0.1
#: Times the least round trip of one through a queue that stands.
_STANDING = 3.0
#: Share of its length by which a window must make a flow longer to count: round trips
#: are smoothed.
_ROUGH = 0.05


class Change(NamedTuple):
    """Change of a simulation's input: a cause with its parameter."""

    work: Floats | float = 0.0
    """Seconds that (task, iteration) takes longer."""
    delays: Floats | float = 0.0
    """Seconds that (edge, iteration) takes longer, at the rate that it has."""
    waits: Floats | float = 0.0
    """Seconds that (edge, iteration) sends nothing, and leaves its links to others."""
    volumes: Floats | float = 0.0
    """Bytes that (edge, iteration) has more."""
    rates: Mapping[str, float] = MappingProxyType({})
    """Shares of their capacity that links have."""


class Cause(NamedTuple):
    """Cause that may be, and what it changes."""

    sentence: str
    change: Change
    is_symptom: bool = False
    """True where it may have a cause of its own, which is named if it is found."""


class ChangedSimulation:
    """A simulation, and how changes of its input move its end.

    ``policy`` is the rule of its rates.
    """

    def __init__(self, simulation: Schedule, policy: str) -> None:
        # The quotas of the simulation: a tuner that chose anew would move the end, too.
        self._problem = simulation.problem.following(simulation)
        self._policy = policy
        self._work = simulation.work
        # What was never sent brings no bytes.
        self._volumes = np.nan_to_num(simulation.flow_bytes)
        seconds = simulation.flow_end - simulation.flow_start
        self._rates = np.zeros_like(self._volumes)
        np.divide(self._volumes, seconds, out=self._rates, where=seconds > 0)
        self._end = self._simulate(self._problem, self._work, self._volumes)

    def move(self, change: Change, scale: float = 1.0) -> float:
        """Return the seconds by which a change moves the end, scaled."""
        work = np.maximum(self._work + scale * change.work, 0.0)
        more = self._rates * change.delays + change.volumes
        volumes = self._volumes + scale * np.nan_to_num(more)
        volumes = np.maximum(volumes, _KEPT * self._volumes)

        problem = self._problem
        if change.rates:
            shares = {}
            for name, share in change.rates.items():
                loss = share - 1.0
                shares[name] = 1.0 + scale * loss
            problem = replace(problem, cluster=with_shares(problem.cluster, shares))

        waits = scale * np.nan_to_num(change.waits)
        return self._simulate(problem, work, volumes, waits) - self._end

    def _simulate(
        self,
        problem: Problem,
        work: Floats,
        volumes: Floats,
        waits: Floats | float = 0.0,
    ) -> float:
        realization = Realization(work, volumes)
        if np.any(waits):
            # Only what is sent can wait.
            sent_later = np.where(volumes > 0, waits, 0.0)
            problem, realization = let_flows_wait(problem, realization, sent_later)
        return makespan(problem, realization, self._policy)


def with_shares(cluster: Cluster, shares: Mapping[str, float]) -> Cluster:
    """Return a cluster whose links have shares of their capacities, by name."""

    def share(name: str) -> float:
        return shares.get(name, 1.0)

    machines = [
        replace(
            machine,
            bandwidth_in=machine.bandwidth_in * share(f"{machine.name} in"),
            bandwidth_out=machine.bandwidth_out * share(f"{machine.name} out"),
        )
        for machine in cluster.machines
    ]
    links = [
        replace(link, capacity=link.capacity * share(link.name))
        for link in cluster.shared_links
    ]
    changes = [
        replace(change, capacity=change.capacity * share(change.link))
        for change in cluster.changes
    ]
    return replace(
        cluster,
        machines=tuple(machines),
        shared_links=tuple(links),
        changes=tuple(changes),
    )


def name_cause(
    causes: Iterable[Cause], simulation: ChangedSimulation, off: float
) -> tuple[str, ...]:
    """Return the cause that explains a difference, and `LEAST` of it, in words.

    ``off``: the difference, seconds. A symptom is named where no cause is.
    """
    named: dict[bool, list[tuple[float, str]]] = {False: [], True: []}
    for sentence, change, is_symptom in causes:
        seconds = simulation.move(change)
        if not LEAST <= seconds / off <= _MOST:
            continue
        half = simulation.move(change, 0.5)
        if 0 < half / off < seconds / off:
            named[is_symptom].append((seconds / off, sentence))

    found = named[False] or named[True]
    found.sort(key=lambda candidate: abs(candidate[0] - 1.0))
    if not found:
        return NO_REASON
    nearest, *others = [abs(share - 1.0) for share, _ in found]
    if others and others[0] - nearest < _NEARER:
        return NO_REASON
    share, sentence = found[0]
    return (f"{sentence}: {100 * share:.0f} % of the difference",)


def list_causes(
    emulated: Schedule,
    simulation: Schedule,
    links: list[str],
    late: list[tuple[int, int]],
    observed: Observations,
) -> Iterator[Cause]:
    """Yield what may have moved the end of a run, with what was observed of it.

    ``simulation``: with the times and volumes that the run is compared with; ``links``
    and ``late``: links and flows that moved the end, the most first.
    """
    pauses = np.zeros_like(emulated.flow_start)
    if observed.counts is not None:
        pauses = _pauses(observed.counts) / observed.time_scale
    delays = measure_delays(emulated, simulation, pauses, observed)
    of_flows = [*_list_flow_causes(emulated, simulation, observed)]
    yield from of_flows
    yield from _list_computed_causes(simulation, observed)
    yield from _list_task_causes(emulated, simulation, delays, observed)
    yield from _list_process_causes(emulated, delays, observed)
    yield from _list_clock_causes(emulated, observed)

    stalls = delays.stalls
    for cause in of_flows:
        idle = np.maximum(cause.change.delays, cause.change.waits)
        stalls = np.maximum(stalls, np.maximum(idle, 0.0))
    yield from _list_link_causes(emulated, links, late, stalls, observed)


def _list_flow_causes(
    emulated: Schedule, simulation: Schedule, observed: Observations
) -> Iterator[Cause]:
    """Yield what kernels and senders noted of flows."""
    yield from _list_sender_causes(emulated, observed)
    counts = observed.counts
    if counts is None:
        return

    scale = observed.time_scale
    lost = np.maximum(counts.hole, counts.timeouts * counts.timer) / scale
    # What is beyond a small buffer is thrown away, and sent again.
    lost[_has_small_buffer(counts)] = 0.0
    if lost.any():
        number = int(counts.retransmitted.sum())
        text = (
            f"segments were lost: {number:,} were sent again, and what came behind "
            f"waited for up to {format_duration(float(lost.max()))}"
        )
        yield Cause(text, Change(waits=lost))

    yield from _list_window_causes(emulated, simulation, observed, counts)


def _pauses(counts: FlowCounts) -> Floats:
    """Return wall seconds for which receivers held a flow up: (edge, iteration).

    Bytes waited to be read; and where that is a good part of the time in which the
    sender's kernel found the receiver's window closed, all of this.
    """
    limited = counts.receiver_limited
    is_reader = counts.unread > _UNREAD * limited
    longer = np.maximum(counts.unread, limited)
    held_up = np.where(is_reader, longer, counts.unread)
    is_small = _has_small_buffer(counts)
    return np.where(is_small, 0.0, held_up)


def _has_small_buffer(counts: FlowCounts) -> NDArray[np.bool_]:
    """Return where a receiver's window is less than what any sender begins with.

    And where that held the sender up for most of its time.
    """
    allowed = np.where(counts.allowed > 0, counts.allowed, np.inf)
    first = allowed.min(axis=1)
    is_small: NDArray[np.bool_] = counts.window < first.reshape(-1, 1)
    is_small &= counts.window > 0
    is_small &= counts.receiver_limited > _LIMITED * counts.busy
    return is_small


def _list_window_causes(
    emulated: Schedule,
    simulation: Schedule,
    observed: Observations,
    counts: FlowCounts,
) -> Iterator[Cause]:
    """Yield windows that a round trip is too long for: the receiver's, and the first.

    Slow start (RFC 5681) doubles the window in each round trip, and the link is idle
    for what is left of that; until the window is what the link carries meanwhile.
    """
    scale = observed.time_scale
    seconds = np.nan_to_num(simulation.flow_end - simulation.flow_start)
    volumes = np.nan_to_num(simulation.flow_bytes) * observed.byte_scale
    is_limited = counts.receiver_limited > _LIMITED * counts.busy
    is_limited &= counts.window > 0
    turns = np.zeros_like(volumes)
    np.divide(volumes, counts.window, out=turns, where=is_limited)
    # The least round trip: in others bytes wait behind those of the same window.
    least = turns * counts.least_round_trip
    is_small = _has_small_buffer(counts)
    limited = np.where(is_small, counts.receiver_limited, least)
    longer = limited / scale - seconds
    longer[longer < _ROUGH * seconds] = 0.0
    names = emulated.problem.job.edge_names
    if longer.any():
        edge, number = np.unravel_index(np.argmax(longer), longer.shape)
        window = counts.window[edge, number]
        text = (
            f"small window: {names[int(edge)]} may have "
            f"{format_size(window)} on its way, and took "
            f"{format_duration(float(longer.max()))} longer for it"
        )
        yield Cause(text, Change(delays=longer))

    idle = slow_start(counts, volumes, seconds * scale) / scale
    if idle.any():
        edge, number = np.unravel_index(np.argmax(idle), idle.shape)
        first_window = counts.allowed[edge, number]
        round_trip = counts.least_round_trip[edge, number]
        text = (
            f"slow start: {names[int(edge)]} begins with "
            f"{format_size(first_window)}, and a round trip takes "
            f"{format_duration(round_trip)} of wall time"
        )
        yield Cause(text, Change(delays=idle))


def slow_start(counts: FlowCounts, volumes: Floats, seconds: Floats) -> Floats:
    """Return wall seconds in which slow start leaves each flow's way idle (RFC 5681).

    The window doubles in each round trip, and the way is idle for what is left of that,
    until the window is what the way carries meanwhile. ``volumes`` are real bytes that
    take so many wall ``seconds`` at full rate.
    """
    rates = np.zeros_like(volumes)
    np.divide(volumes, seconds, out=rates, where=seconds > 0)
    idle = np.zeros_like(volumes)
    window = counts.allowed.copy()
    left = volumes.copy()
    carried = rates * counts.least_round_trip
    while True:
        is_waiting = (window > 0) & (left > window) & (window < carried)
        if not is_waiting.any():
            return idle
        sending = window[is_waiting] / rates[is_waiting]
        idle[is_waiting] += counts.least_round_trip[is_waiting] - sending
        left[is_waiting] -= window[is_waiting]
        window[is_waiting] *= 2.0


#: Words for what delays a paced flow, of those that are measured.
_OF_SENDERS = {
    critical_path.DelayCause.CPU: "payloads were ready after their flows should end",
    critical_path.DelayCause.CONTROL: "late coordinator: rates reached senders late",
    critical_path.DelayCause.LOOP_LAG: "alarms of senders rang late",
}


def _list_sender_causes(emulated: Schedule, observed: Observations) -> Iterator[Cause]:
    """Yield what senders noted: when an order came, and when first bytes went."""
    start = emulated.flow_start
    if emulated.rates is not None:
        due = fluid_ends(emulated)
        by_cause = {cause: np.zeros_like(start) for cause in _OF_SENDERS}
        for flow, row in observed.sends.items():
            end = float(emulated.flow_end[flow])
            delays = critical_path.divide(float(due[flow]), end, row)
            for cause, grid in by_cause.items():
                grid[flow] = delays.get(cause, 0.0)
        for cause, grid in by_cause.items():
            if grid.any():
                longest = format_duration(float(grid.max()))
                text = f"{_OF_SENDERS[cause]}, by up to {longest}"
                yield Cause(text, Change(delays=grid))


def _list_task_causes(
    emulated: Schedule, simulation: Schedule, delays: Delays, observed: Observations
) -> Iterator[Cause]:
    """Yield times of tasks, and volumes, that are others than expected."""
    job = emulated.problem.job
    excess = emulated.work - observed.expected_work(simulation)
    disks = np.zeros_like(excess)
    is_clear = delays.is_clear.copy()
    for process, waits in observed.processes.items():
        tasks = list(job.processes.get(process, ()))
        late = np.maximum(excess[tasks], 0.0)
        total = float(late.sum()) * observed.time_scale
        if total > 0 and waits.disk > 0:
            disks[tasks] = late * min(waits.disk / total, 1.0)
            is_clear[tasks] &= waits.disk < _OF_DISK * total
    if disks.any():
        per_task = disks.sum(axis=1)
        name = job.tasks[int(np.argmax(per_task))].name
        waited = max(waits.disk for waits in observed.processes.values())
        text = (
            f"slow disk: {name} most waited for one, {format_duration(waited)} in all"
        )
        yield Cause(text, Change(work=disks))

    # Of tasks whose process may have waited for something nothing is said.
    excess = np.where(is_clear | (excess < 0), excess, 0.0)
    if excess.any():
        per_task = excess.mean(axis=1)
        task = int(np.argmax(np.abs(per_task)))
        emulated_mean = float(emulated.work[task].mean())
        simulated_mean = float(simulation.work[task].mean())
        text = (
            f"tasks took other times than predicted, {job.tasks[task].name} most: "
            f"{format_duration(emulated_mean)} for "
            f"{format_duration(simulated_mean)} on average"
        )
        yield Cause(text, Change(work=excess), is_symptom=True)

    more = np.nan_to_num(emulated.flow_bytes - simulation.flow_bytes)
    if more.any():
        total = float(more.sum())
        text = f"flows had {format_size(abs(total))} "
        text += "more than predicted" if total > 0 else "less than predicted"
        yield Cause(text, Change(volumes=more), is_symptom=True)


def _list_computed_causes(
    simulation: Schedule, observed: Observations
) -> Iterator[Cause]:
    """Yield the CPU time of real work, where it is another than a profile foresaw."""
    if observed.measured is None:
        return
    excess = observed.measured - simulation.work
    if not excess.any():
        return

    per_task = excess.mean(axis=1)
    task = int(np.argmax(np.abs(per_task)))
    measured = format_duration(float(observed.measured[task].mean()))
    profiled = format_duration(float(simulation.work[task].mean()))
    name = simulation.problem.job.tasks[task].name

    text = (
        f"real work took other CPU time than predicted, {name} most: {measured} for "
        f"{profiled} on average (profile and run on a quiet host, or state "
        "emulation.compute: padded to keep predicted times)"
    )
    yield Cause(text, Change(work=excess))


def _list_process_causes(
    emulated: Schedule, delays: Delays, observed: Observations
) -> Iterator[Cause]:
    """Yield waits for cores, late orders and receivers that pause."""
    core = delays.core
    if core.longest > 0:
        waited = {name: waits.core for name, waits in observed.processes.items()}
        waited["the coordinator"] = float(observed.turns[:, 2:].sum())
        most = max(waited, key=lambda name: waited[name])
        text = (
            f"waits for a core: {most} most was ready and had none for "
            f"{format_duration(waited[most])}"
        )
        yield Cause(text, Change(work=core.work, delays=core.flows))

    held = delays.held
    if held.longest > 0:
        longest = format_duration(held.longest)
        text = f"late coordinator: orders waited for it up to {longest}"
        yield Cause(text, Change(work=held.work, delays=held.flows))

    pauses = delays.pauses
    if pauses.any():
        edge, _ = np.unravel_index(np.argmax(pauses), pauses.shape)
        text = (
            "receivers pause: bytes waited to be read for up to "
            f"{format_duration(float(pauses.max()))} of one flow "
            f"({emulated.problem.job.edge_names[int(edge)]})"
        )
        yield Cause(text, Change(delays=pauses))


def _list_clock_causes(emulated: Schedule, observed: Observations) -> Iterator[Cause]:
    """Yield clocks that went apart: what is sent by one arrives by another."""
    job = emulated.problem.job
    offsets = np.zeros(len(job.tasks))
    off_by_process = {}
    for process, waits in observed.processes.items():
        tasks = list(job.processes.get(process, ()))
        offsets[tasks] = waits.clock
        off_by_process[process] = abs(waits.clock)
    if not offsets.any():
        return

    most = max(off_by_process, key=off_by_process.__getitem__)
    between = [offsets[edge.destination] - offsets[edge.source] for edge in job.edges]
    # Apart by nothing at the barrier, and by all of it at the end.
    part = emulated.flow_end / emulated.length
    delays = np.array(between).reshape(-1, 1) * part / observed.time_scale
    work = np.nan_to_num(emulated.task_end - emulated.task_start)
    work *= -offsets.reshape(-1, 1) / observed.time_scale / emulated.length
    longest = format_duration(off_by_process[most])
    text = f"clock of {most}: off by {longest} at the end"
    yield Cause(text, Change(work=work, delays=np.nan_to_num(delays)))


def _list_link_causes(
    emulated: Schedule,
    links: list[str],
    late: list[tuple[int, int]],
    stalls: Floats,
    observed: Observations,
) -> Iterator[Cause]:
    """Yield traffic of others, capacities that are others, and unequal shares."""
    cluster = emulated.problem.links
    if observed.foreign:
        # All at once: the same bytes may cross several links.
        most = max(observed.foreign, key=lambda name: observed.foreign[name])
        foreign = format_rate(observed.foreign[most])
        rates = {}
        for link in cluster:
            if link.name in observed.foreign:
                foreign_share = observed.foreign[link.name] / link.capacity
                rates[link.name] = max(1.0 - foreign_share, _KEPT)
        text = f"another program's traffic: {foreign} over {most}"
        yield Cause(text, Change(rates=rates))

    nics = observed.nics
    counts = observed.counts
    if counts is not None:
        # A queue that stands shows that the link is what limits them, whatever it
        # carried before the run.
        stands = counts.round_trip > _STANDING * counts.least_round_trip
        if 2 * np.count_nonzero(stands) > np.count_nonzero(counts.round_trip):
            nics = {}

    shares = link_shares.max_min_shares(emulated, late, stalls)
    for slow in link_shares.slow_links(emulated, links, shares, stalls, nics):
        rates = {cluster[port].name: slow.share for port in slow.ports}
        yield Cause(slow.sentence, Change(rates=rates), is_symptom=True)
    for unequal in link_shares.unequal_shares(emulated, links, late, shares):
        volumes = np.zeros_like(emulated.flow_end)
        for flow, lost in unequal.lost.items():
            volumes[flow] = lost
        yield Cause(unequal.sentence, Change(volumes=volumes), is_symptom=True)
