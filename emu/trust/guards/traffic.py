"""Guards of traffic: leaky buckets, bursts, and what must have crossed to judge at all.

A link that carries more than its capacity allows is found by a leaky bucket; a burst
over an edge by the depth of a token bucket.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from emu.array_types import Floats
from emu.prediction.analysis.busy_intervals import best_sums
from emu.problem import Job
from emu.trust.guards.evidence import CLOCKS, Evidence, fitting, list_hops, most_stated
from emu.trust.violation import Finding


class Overflow(NamedTuple):
    """A bucket that overflowed.

    ``at``: the first instant, seconds. ``most``, ``since``, ``until``: the most bytes
    beyond capacity times length of any interval, and that interval.
    """

    at: float
    most: float
    since: float
    until: float


def of_flows(
    start: Floats,
    end: Floats,
    sent: Floats,
    depth: float,
) -> Overflow | None:
    """Return the overflow of a link by flows, None when they fit.

    In every interval the flows that lie in it as a whole may bring no more bytes than
    the link carries in that time, and ``depth`` once. What is late never breaks this:
    every excess is certain. Times are of a clock that counts the bytes which fit.

    Parameters
    ----------
    start, end
        Of every flow: when it could begin, and when its last byte was there.
    sent
        Bytes of every flow.
    depth
        Bytes that may be ahead.
    """
    if not sent.size:
        return None
    # By their ends: each may be the last of an interval.
    order = np.argsort(end, kind="stable")
    start = start[order]
    end = end[order]
    sent = sent[order]

    # By falling starts: an interval that begins earlier takes in every flow that starts
    # later.
    latest_first = np.argsort(-start, kind="stable")
    place = np.empty(start.size, dtype=np.int64)
    place[latest_first] = np.arange(start.size)
    # Of all intervals that end with this flow, the one that is the most over.
    most_since_0 = best_sums(place, sent, sent + start)
    excess = most_since_0 - end
    # Sums of many volumes and products of large times are exact to some last bits only.
    carried = end - start
    rounding = 1e-9 * (sent + carried) + 1e-12 * end
    over = np.flatnonzero(excess > depth + rounding)
    if not over.size:
        return None

    worst = int(np.argmax(excess))
    # It begins where these flows, the latest first, overfill the most.
    latest = np.argsort(-start[: worst + 1], kind="stable")
    fill = np.cumsum(sent[latest]) + start[latest]
    first = latest[int(np.argmax(fill))]
    return Overflow(
        at=float(end[over[0]]),
        most=float(excess[worst]),
        since=float(start[first]),
        until=float(end[worst]),
    )


LINK_BYTES = "link bytes"


def link_bytes(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for every link that carried more than it can.

    Each is a leaky bucket that drains at the link's capacity: its clock is the bytes
    that fit by then. Its depth is what may be ahead, once in a run. It is filled by
    whole flows, from when their task ended until their last byte was there, so that
    what is late never fills it.

    Not by the bytes of short windows: a stalled sender catches up, and beside foreign
    load 262 bytes came where 252 fit, on a sound run (two of three golden runs were
    flagged at a load of 3 on two cores).
    """
    schedule = evidence.schedule
    problem = schedule.problem
    # In wall seconds here, emulated ones from the next line on.
    seconds_ahead = evidence.lead + evidence.stale + CLOCKS
    seconds_ahead /= evidence.time_scale
    sources = [edge.source for edge in problem.job.edges]
    source_of = np.array(sources, dtype=np.int64)
    edge, iteration = schedule.flows().T
    # The earliest that a byte could leave, whatever its rates were.
    ready = schedule.task_end[source_of[edge], iteration]
    arrivals = evidence.grid(evidence.received, "last")
    received = evidence.grid(evidence.received, "bytes")
    arrival = arrivals[edge, iteration]
    volumes = received[edge, iteration]
    is_known = np.isfinite(ready) & np.isfinite(arrival) & (volumes > 0)
    edge = edge[is_known]
    ready = ready[is_known]
    arrival = arrival[is_known]
    sizes = volumes[is_known] / evidence.byte_scale

    paths = list_hops(problem)
    for link, capacity in most_stated(problem).items():
        is_on_path = [link in hops for hops in paths]
        crosses = np.array(is_on_path, dtype=bool)[edge]
        depth = capacity * seconds_ahead + evidence.at_once(capacity)
        starts = fitting(problem, link, ready[crosses])
        ends = fitting(problem, link, arrival[crosses])
        burst = of_flows(starts, ends, sizes[crosses], depth=depth)
        if burst is not None:
            # The bucket's clock counts bytes: people are told seconds.
            start = _seconds_by_clock(starts, ready[crosses])
            end = _seconds_by_clock(ends, arrival[crosses])
            fit = burst.until - burst.since
            carried = burst.most + fit
            yield Finding(
                LINK_BYTES,
                end[burst.at],
                f"link {link} of {capacity:g} B/s carried {carried:.4g} bytes "
                f"from {start[burst.since]:.6g} to {end[burst.until]:.6g} s, "
                f"{fit:.4g} fit",
            )


def _seconds_by_clock(clock: Floats, seconds: Floats) -> dict[float, float]:
    pairs = zip(clock.tolist(), seconds.tolist(), strict=True)
    return dict(pairs)


BURSTS = "bursts"
#: Real bytes that a sender may be ahead of its rates at any time.
_CHUNK = 16384
#: Wall seconds that a receiver may stand still between two samples of its loop's lag.
_UNSEEN = 0.1


def bursts(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for every edge of which more came at once than it may catch up.

    In every interval no more may come than the narrowest link on the way carries in
    it, and what the sender may catch up once. By the notes of the receiver's kernel,
    which joins what waits while a receiver stands still.
    """
    problem = evidence.schedule.problem
    most = most_stated(problem)
    hops = list_hops(problem)
    names = problem.job.edge_names
    if evidence.catch_up is None:
        return

    for figures in evidence.statistics.values():
        metrics = figures.get("host_metrics", {})
        lag = float(metrics.get("loop_lag_max", 0.0))
        stall = evidence.lead + (lag + _UNSEEN) + CLOCKS
        seconds_ahead = evidence.catch_up + stall / evidence.time_scale
        received = figures.get("received", {})
        for row in received.get("bursts", ()):
            edge = int(row["edge"])
            size = row["bytes"] / evidence.byte_scale
            rate = min(most[link] for link in hops[edge])
            chunk = _CHUNK / evidence.byte_scale
            fits = rate * seconds_ahead + chunk
            if size > fits:
                yield Finding(
                    BURSTS,
                    evidence.schedule.length,
                    f"{size:.4g} bytes more than {rate:g} B/s carries came at once of "
                    f"{names[edge]}, {fits:.4g} may",
                )


ENOUGH = "enough carried"
#: Payload of a packet on Ethernet: 1500 bytes less the headers of IP and TCP.
PACKET = 1448
#: A flow of fewer packets is over before its rate can show.
FEW = 4


def enough_carried(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding when the flows between machines were a few packets each.

    Counted is what came, in the mean over the flows that stand for any bytes. A job
    without such flows is no evidence about a network and is not examined.
    """
    schedule = evidence.schedule
    edge, iteration = schedule.flows().T
    has_bytes = schedule.flow_bytes[edge, iteration] > 0
    if not has_bytes.any():
        return

    received = evidence.grid(evidence.received, "bytes")
    # What never came is counted as nothing carried.
    sizes = np.nan_to_num(received[edge, iteration])
    packets = float(sizes[has_bytes].mean()) / PACKET
    if packets < FEW:
        remedy = ""
        if is_trained(schedule.problem.job):
            # Its bytes are real: byte_scale says for how many emulated ones they stand.
            remedy = "train on a larger graph, batch or model"
        elif packets:
            # Powers of ten: a scale that people write.
            enough = math.log10(evidence.byte_scale * FEW / packets)
            remedy = f"raise byte_scale to {10.0 ** math.ceil(enough):g}"
        yield Finding(
            ENOUGH,
            math.nan,
            "nothing was carried: this run tests control, not the network "
            f"({packets:.2g} packets per flow, {sizes.sum():,.0f} real bytes in all)",
            remedy,
        )


def is_trained(job: Job) -> bool:
    """Return True where what a job sends follows from the graph on which it trains."""
    parts = job.settings.get("jobs") or {"": job.settings}
    return any("dataset" in settings for settings in parts.values())


RATES = "rates"
#: Problem of rates that never came to a board; also of a run that waits for flows.
LOST_RATES = (
    "{} rates that the coordinator decided never came to the rate board of their "
    "senders, the first of edge {}: its updates were lost"
)


def all_rates(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding where rates that were decided never came to their senders.

    The coordinator numbers the segments of an edge, and senders compare the number of
    the newest with how many came.
    """
    gaps = {}
    for figures in evidence.statistics.values():
        for row in figures.get("sent", ()):
            missing = row.get("missed", 0)
            if missing:
                gaps[row["edge"]] = missing
    if gaps:
        first = min(gaps)
        name = evidence.schedule.problem.job.edge_names[first]
        text = LOST_RATES.format(sum(gaps.values()), name)
        yield Finding(RATES, math.nan, text)


def board(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for every edge whose senders found rates that nobody decided.

    A board shows the newest rate of an edge alone, and every rate that it has shown
    stands in the history of the schedule: both in bytes per second, to the last bit.
    """
    shown = evidence.board
    history = evidence.schedule.rates
    if shown is None or history is None:
        return

    decided = np.empty(len(history.rate), shown.dtype)
    decided["since"] = history.time
    for name in ("edge", "iteration", "rate"):
        decided[name] = getattr(history, name)
    others = shown[~np.isin(shown, decided)]
    names = evidence.schedule.problem.job.edge_names
    edges, firsts, counts = np.unique(
        others["edge"],
        return_index=True,
        return_counts=True,
    )
    for edge, first, count in zip(edges, firsts, counts, strict=True):
        row = others[first]
        name = names[edge] if edge < len(names) else f"edge {edge}, which is not there"
        text = (
            f"senders of {name} found {count} rates that nobody decided, the first "
            f"{row['rate']:g} B/s from {row['since']:.6g} s on"
        )
        yield Finding(RATES, float(row["since"]), text)


CLOCKS_NAME = "clocks"


def clocks(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for every process whose clock has drifted in the run.

    At the end the coordinator asks, and each process answers: with the run time when it
    was asked and when it answered. By the coordinator's wall clock alone, the first
    reading comes after the question left, the second before the answer came; messages
    that take long hide a drift and never make one.
    """
    scale = evidence.time_scale
    for process, figures in evidence.statistics.items():
        if "clock" not in figures or "answered" not in figures:
            continue  # a run of an earlier emu

        question, answer = figures["clock"]
        least, most = figures["answered"]
        for reading, distance in (
            (question, least - scale * question),
            (answer, scale * answer - most),
        ):
            if distance > CLOCKS:
                yield Finding(
                    CLOCKS_NAME,
                    reading,
                    f"process {process} read {scale * reading:.6g} s of wall time "
                    f"between {least:.6g} and {most:.6g} s of the coordinator's: its "
                    f"clock is off by {distance:.3g} s",
                )
                # One finding per process: the second reading would tell the same drift.
                break


#: Wall seconds between the end of a run and the coordinator's question after it: it
#: knows of a task's end ahead of time.
_ASKED = 0.1


def end(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding where a run ends at another time by the coordinator's clock.

    Tasks and receivers report the ends of the schedule. The coordinator asks all of
    them for their records once the last has come, and notes when by its own clock.
    """
    makespan = evidence.schedule.length
    last = evidence.time_scale * makespan
    asked = []
    for figures in evidence.statistics.values():
        if "answered" in figures:
            least, _ = figures["answered"]
            asked.append(least)
    distance = abs(min(asked, default=last) - last)
    if distance > _ASKED + 2 * evidence.standstill:
        text = f"the coordinator asked {distance:.3g} s of wall time from the last end"
        yield Finding(CLOCKS_NAME, makespan, text)


def _last_answer(evidence: Evidence) -> float:
    """Return when all processes had told their records, no sooner than a run's end."""
    seconds = [evidence.schedule.makespan]
    for figures in evidence.statistics.values():
        if "answered" in figures:
            _, most = figures["answered"]
            seconds.append(most / evidence.time_scale)
    return max(seconds)


CONNECTIONS = "connections"
#: Counts of a connection that never fall.
_GROWING = (
    "retransmitted",
    "busy",
    "receiver_limited",
    "buffer_limited",
    "timeouts",
    "timeout_time",
)


def connections(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding where counts of a connection fall, or a flow waited too long.

    Bytes of a flow between machines wait behind a lost segment no longer than from its
    beginning to its end, and to be read no longer than from its beginning until all
    processes have told their records: a reader that is late on a busy host moves no
    arrival, and no end of a run. What stays on a machine takes no time, though sockets
    carry it.
    """
    states = evidence.connections
    waits = evidence.waits
    if states is None or waits is None:
        return

    names = evidence.schedule.problem.job.edge_names
    has_edge = states["edge"] < len(names)
    states = states[has_edge]
    by_edge = np.argsort(states["edge"], kind="stable")
    states = states[by_edge]
    edges = states["edge"]
    is_same = edges[1:] == edges[:-1]
    later_states = states[1:]
    for name in _GROWING:
        counts = states[name]
        falls = is_same & (counts[1:] < counts[:-1])
        for row in later_states[falls][:1]:
            text = f"{name} of the connection of {names[row['edge']]} falls"
            yield Finding(CONNECTIONS, math.nan, text)

    schedule = evidence.schedule
    flow_edge, flow_iteration = schedule.flows().T
    is_between_machines = np.zeros(schedule.flow_end.shape, np.bool_)
    is_between_machines[flow_edge, flow_iteration] = True
    last_reads = np.full_like(schedule.flow_end, _last_answer(evidence))
    latest_ends = {"hole": schedule.flow_end, "unread": last_reads}
    for name, latest in latest_ends.items():
        seconds = (latest - schedule.flow_start) * evidence.time_scale
        excess = evidence.grid(waits, name) - seconds
        with np.errstate(invalid="ignore"):
            is_longer = excess > CLOCKS + evidence.stall
        flows = np.argwhere(is_longer & is_between_machines)
        for edge, iteration in flows[:1].tolist():
            text = (
                f"bytes of {names[edge]} in iteration {iteration} waited "
                f"{excess[edge, iteration]:.3g} s longer than can be ({name})"
            )
            yield Finding(CONNECTIONS, schedule.flow_end[edge, iteration], text)
