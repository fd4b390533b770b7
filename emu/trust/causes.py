"""Causes of a difference between a run and its simulation, each from what was observed.

A cause has a parameter that something else than the difference shows: a kernel's count,
a clock, a stated time. It is simulated from that parameter alone, and again with half
of it. It is named where it explains at least half of the difference and half of the
parameter moves the end the same way, by less. Of several it is the one that comes
nearest to the whole; where two come as near, none is named: a wrong name costs more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from emu.array_types import Floats, Mask
from emu.prediction.analysis import error_budget
from emu.prediction.analysis.flow_counts import FlowCounts
from emu.prediction.analysis.link_load import fluid_ends
from emu.problem import Schedule
from emu.trust import link_shares
from emu.trust.changed_simulation import KEPT, Change, ChangedSimulation
from emu.trust.delays import Delays, measure_delays
from emu.trust.observed import Observations
from emu.units import format_duration, format_rate, format_size

#: Share of a difference that a cause must explain to be named, and the most: what
#: would have moved the end by twice as much did not do so alone.
LEAST = 0.5
_MOST = 1.6
#: Reasons where none does.
NO_REASON = ("cause not found",)
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


class Cause(NamedTuple):
    """Cause that may be, and what it changes."""

    sentence: str
    change: Change
    is_symptom: bool = False
    """True where it may have a cause of its own, which is named if it is found."""


def name_cause(
    causes: Iterable[Cause],
    simulation: ChangedSimulation,
    off: float,
) -> tuple[str, ...]:
    """Return the cause that explains a difference, and `LEAST` of it, in words.

    ``off``: the difference, seconds. A symptom is named where no cause is.
    """
    named: list[_Named] = []
    symptoms: list[_Named] = []
    for sentence, change, is_symptom in causes:
        seconds = simulation.move(change)
        if not LEAST <= seconds / off <= _MOST:
            continue

        half = simulation.move(change, 0.5)
        if 0 < half / off < seconds / off:
            found = _Named(seconds / off, sentence)
            if is_symptom:
                symptoms.append(found)
            else:
                named.append(found)

    candidates = named or symptoms
    candidates.sort(key=_Named.distance)
    if not candidates:
        return NO_REASON
    nearest = candidates[0]
    if len(candidates) > 1:
        lead = candidates[1].distance() - nearest.distance()
        if lead < _NEARER:
            return NO_REASON
    return (f"{nearest.sentence}: {100 * nearest.share:.0f} % of the difference",)


class _Named(NamedTuple):
    """Cause that may be named, and the share of a difference that it explains."""

    share: float
    sentence: str

    def distance(self) -> float:
        """Return how far it is from explaining the whole."""
        return abs(self.share - 1.0)


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
    delays = measure_delays(
        emulated,
        simulation,
        pauses=pauses,
        observed=observed,
    )
    of_flows = list(_list_flow_causes(emulated, simulation, observed))
    yield from of_flows
    yield from _list_computed_causes(simulation, observed)
    yield from _list_task_causes(
        emulated,
        simulation,
        delays=delays,
        observed=observed,
    )
    yield from _list_process_causes(emulated, delays, observed)
    yield from _list_clock_causes(emulated, observed)

    stalls = delays.stalls
    for cause in of_flows:
        change = cause.change
        idle = np.maximum(change.delays, change.waits)
        idle = np.maximum(idle, 0.0)
        stalls = np.maximum(stalls, idle)
    yield from _list_link_causes(
        emulated,
        links,
        late,
        stalls=stalls,
        observed=observed,
    )


def _list_flow_causes(
    emulated: Schedule,
    simulation: Schedule,
    observed: Observations,
) -> Iterator[Cause]:
    """Yield what kernels and senders noted of flows."""
    yield from _list_sender_causes(emulated, observed)
    counts = observed.counts
    if counts is None:
        return

    waits_for_timer = counts.timeouts * counts.timer
    wall_seconds = np.maximum(counts.hole, waits_for_timer)
    loss = wall_seconds / observed.time_scale
    # What is beyond a small buffer is thrown away, and sent again.
    loss[_has_small_buffer(counts)] = 0.0
    if loss.any():
        number = int(counts.retransmitted.sum())
        longest = format_duration(float(loss.max()))
        text = (
            f"segments were lost: {number:,} were sent again, and what came behind "
            f"waited for up to {longest}"
        )
        yield Cause(text, Change(waits=loss))

    yield from _list_window_causes(
        emulated,
        simulation,
        observed=observed,
        counts=counts,
    )


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


def _has_small_buffer(counts: FlowCounts) -> Mask:
    """Return where a receiver's window is less than what any sender begins with.

    And where that held the sender up for most of its time.
    """
    is_known = counts.allowed > 0
    allowed = np.where(is_known, counts.allowed, np.inf)
    first = allowed.min(axis=1, keepdims=True)
    is_small: Mask = counts.window < first
    is_small &= _is_window_limited(counts)
    return is_small


def _is_window_limited(counts: FlowCounts) -> Mask:
    """Return where a receiver's window held the sender up for most of its time."""
    least_seconds = _LIMITED * counts.busy
    is_limited = counts.receiver_limited > least_seconds
    is_limited &= counts.window > 0
    return is_limited


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
    flow_bytes = np.nan_to_num(simulation.flow_bytes)
    volumes = flow_bytes * observed.byte_scale
    turns = np.zeros_like(volumes)
    np.divide(
        volumes,
        counts.window,
        out=turns,
        where=_is_window_limited(counts),
    )
    # The least round trip: in others bytes wait behind those of the same window.
    least = turns * counts.least_round_trip
    is_small = _has_small_buffer(counts)
    limited = np.where(is_small, counts.receiver_limited, least)
    longer = limited / scale - seconds
    longer[longer < _ROUGH * seconds] = 0.0
    names = emulated.problem.job.edge_names
    if longer.any():
        edge, number = _place_of_largest(longer)
        window = format_size(counts.window[edge, number])
        more = format_duration(float(longer.max()))
        text = (
            f"small window: {names[edge]} may have {window} on its way, "
            f"and took {more} longer for it"
        )
        yield Cause(text, Change(delays=longer))

    idle = slow_start(counts, volumes, seconds * scale) / scale
    if idle.any():
        edge, number = _place_of_largest(idle)
        window = format_size(counts.allowed[edge, number])
        round_trip = format_duration(counts.least_round_trip[edge, number])
        text = (
            f"slow start: {names[edge]} begins with {window}, "
            f"and a round trip takes {round_trip} of wall time"
        )
        yield Cause(text, Change(delays=idle))


def _place_of_largest(values: Floats) -> tuple[int, int]:
    """Return row and column of the largest value, the first of equal ones."""
    largest = np.argmax(values)
    row, column = np.unravel_index(largest, values.shape)
    return int(row), int(column)


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
        round_trip = counts.least_round_trip[is_waiting]
        sending = window[is_waiting] / rates[is_waiting]
        idle[is_waiting] += round_trip - sending
        left[is_waiting] -= window[is_waiting]
        window[is_waiting] *= 2.0


#: Words for what delays a paced flow, of those that are measured.
_OF_SENDERS = {
    error_budget.DelayCause.CPU: "payloads were ready after their flows should end",
    error_budget.DelayCause.CONTROL: "late coordinator: rates reached senders late",
    error_budget.DelayCause.LOOP_LAG: "alarms of senders rang late",
}


def _list_sender_causes(emulated: Schedule, observed: Observations) -> Iterator[Cause]:
    """Yield what senders noted: when an order came, and when first bytes went."""
    if emulated.rates is None:
        return
    start = emulated.flow_start
    due = fluid_ends(emulated)
    by_cause = {cause: np.zeros_like(start) for cause in _OF_SENDERS}
    for flow, row in observed.sends.items():
        delays = error_budget.divide(
            float(due[flow]),
            float(emulated.flow_end[flow]),
            row,
        )
        for cause, grid in by_cause.items():
            grid[flow] = delays.get(cause, 0.0)

    for cause, grid in by_cause.items():
        if grid.any():
            longest = format_duration(float(grid.max()))
            text = f"{_OF_SENDERS[cause]}, by up to {longest}"
            yield Cause(text, Change(delays=grid))


def _list_task_causes(
    emulated: Schedule,
    simulation: Schedule,
    delays: Delays,
    observed: Observations,
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
        if total > 0:
            share = min(waits.disk / total, 1.0)
            disks[tasks] = late * share
            is_clear[tasks] &= waits.disk < _OF_DISK * total
    if disks.any():
        per_task = disks.sum(axis=1)
        slowest = job.tasks[int(np.argmax(per_task))]
        longest = max(waits.disk for waits in observed.processes.values())
        waited = format_duration(longest)
        text = f"slow disk: {slowest.name} most waited for one, {waited} in all"
        yield Cause(text, Change(work=disks))

    # Of tasks whose process may have waited for something nothing is said.
    is_told = is_clear | (excess < 0)
    excess = np.where(is_told, excess, 0.0)
    if excess.any():
        per_task = excess.mean(axis=1)
        task = int(np.argmax(np.abs(per_task)))
        name = job.tasks[task].name
        mean_work = _format_mean(emulated.work[task])
        simulated_work = _format_mean(simulation.work[task])
        text = (
            f"tasks took other times than predicted, {name} most: "
            f"{mean_work} for {simulated_work} on average"
        )
        yield Cause(text, Change(work=excess), is_symptom=True)

    more = np.nan_to_num(emulated.flow_bytes - simulation.flow_bytes)
    if more.any():
        total = float(more.sum())
        size = format_size(abs(total))
        direction = "more" if total > 0 else "less"
        text = f"flows had {size} {direction} than predicted"
        yield Cause(text, Change(volumes=more), is_symptom=True)


def _format_mean(seconds: Floats) -> str:
    mean = float(seconds.mean())
    return format_duration(mean)


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
    measured = _format_mean(observed.measured[task])
    profiled = _format_mean(simulation.work[task])
    name = simulation.problem.job.tasks[task].name

    text = (
        f"real work took other CPU time than predicted, {name} most: {measured} for "
        f"{profiled} on average (profile and run on a quiet host, or state "
        "emulation.compute: padded to keep predicted times)"
    )
    yield Cause(text, Change(work=excess))


def _list_process_causes(
    emulated: Schedule,
    delays: Delays,
    observed: Observations,
) -> Iterator[Cause]:
    """Yield waits for cores, late orders and receivers that pause."""
    core = delays.core
    if core.longest > 0:
        waited = {name: waits.core for name, waits in observed.processes.items()}
        own_waits = observed.turns[:, 2:]
        waited["the coordinator"] = float(own_waits.sum())
        most = max(waited, key=waited.__getitem__)
        seconds = format_duration(waited[most])
        text = f"waits for a core: {most} most was ready and had none for {seconds}"
        change = Change(work=core.work, delays=core.flows)
        yield Cause(text, change)

    held = delays.held
    if held.longest > 0:
        longest = format_duration(held.longest)
        text = f"late coordinator: orders waited for it up to {longest}"
        change = Change(work=held.work, delays=held.flows)
        yield Cause(text, change)

    pauses = delays.pauses
    if pauses.any():
        edge, _ = _place_of_largest(pauses)
        name = emulated.problem.job.edge_names[edge]
        longest = format_duration(float(pauses.max()))
        text = (
            "receivers pause: bytes waited to be read for up to "
            f"{longest} of one flow ({name})"
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

    between = []
    for edge in job.edges:
        distance = offsets[edge.destination] - offsets[edge.source]
        between.append(distance)
    # Apart by nothing at the barrier, and by all of it at the end.
    part = emulated.flow_end / emulated.length
    edge_offsets = np.array(between).reshape(-1, 1)
    delays = edge_offsets * part / observed.time_scale
    work = np.nan_to_num(emulated.task_end - emulated.task_start)
    task_offsets = offsets.reshape(-1, 1)
    work *= -task_offsets / observed.time_scale / emulated.length

    most = max(off_by_process, key=off_by_process.__getitem__)
    longest = format_duration(off_by_process[most])
    text = f"clock of {most}: off by {longest} at the end"
    change = Change(work=work, delays=np.nan_to_num(delays))
    yield Cause(text, change)


def _list_foreign_causes(
    emulated: Schedule,
    observed: Observations,
) -> Iterator[Cause]:
    """Yield the traffic of other programs, on all links at once.

    The same bytes may cross several of them.
    """
    foreign = observed.foreign
    if not foreign:
        return

    most = max(foreign, key=lambda name: foreign[name])
    rate = format_rate(foreign[most])
    rates = {}
    for link in emulated.problem.links:
        if link.name in foreign:
            foreign_share = foreign[link.name] / link.capacity
            rates[link.name] = max(1.0 - foreign_share, KEPT)
    text = f"another program's traffic: {rate} over {most}"
    yield Cause(text, Change(rates=rates))


def _list_link_causes(
    emulated: Schedule,
    links: list[str],
    late: list[tuple[int, int]],
    stalls: Floats,
    observed: Observations,
) -> Iterator[Cause]:
    """Yield traffic of others, capacities that are others, and unequal shares."""
    yield from _list_foreign_causes(emulated, observed)
    cluster = emulated.problem.links
    nics = observed.nics
    counts = observed.counts
    if counts is not None:
        # A queue that stands shows that the link is what limits them, whatever it
        # carried before the run.
        stands = counts.round_trip > _STANDING * counts.least_round_trip
        standing = np.count_nonzero(stands)
        if 2 * standing > np.count_nonzero(counts.round_trip):
            nics = {}

    shares = link_shares.max_min_shares(emulated, late, stalls)
    slow_links = link_shares.slow_links(
        emulated,
        links,
        shares=shares,
        stalls=stalls,
        nics=nics,
    )
    for slow in slow_links:
        rates = {cluster[port].name: slow.share for port in slow.ports}
        yield Cause(slow.sentence, Change(rates=rates), is_symptom=True)

    unequal_shares = link_shares.unequal_shares(
        emulated,
        links,
        late=late,
        shares=shares,
    )
    for unequal in unequal_shares:
        volumes = np.zeros_like(emulated.flow_end)
        for flow, lost in unequal.lost.items():
            volumes[flow] = lost
        yield Cause(unequal.sentence, Change(volumes=volumes), is_symptom=True)
