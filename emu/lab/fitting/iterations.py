"""Iterations of what crossed: volumes, and the gaps between received and sent next.

An iteration of a process ends when it has the sum of an all-reduce. In it come rounds
of requests: one waits for all answers of the one before. Gaps are its own time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from emu.lab.fitting.causes import ALWAYS, FittedSteps, find_causes, longest_run
from emu.lab.fitting.conversations import (
    Exchange,
    Measured,
    Process,
    Ring,
    Unfittable,
    by_process,
    conversations,
)
from emu.lab.fitting.periods import find_marks, usual_size
from emu.lab.fitting.steps import ALL, Marks, steps_between
from emu.prediction.analysis.traffic import Traffic

#: Client, round within an iteration, server.
Asked: TypeAlias = "tuple[Process, int, Process]"
#: What an all-reduce may carry beside its mean share, by which barriers are recognised.
TOLERANCE = 0.05
#: Likewise with what is sent again: 30 % of an all-reduce into a slow NIC was seen.
AGAIN = 0.45
#: Seconds without a packet of a ring that part two all-reduces without requests.
SILENCE = 0.005
#: Bursts that are looked at for one all-reduce, or for some that ran together.
MOST_PIECES = 12
#: Rounds that an iteration may have beyond the median: others are no iterations.
MORE_ROUNDS = 2
#: Least number of iterations that a fit can be made of: half of them are held out.
FEWEST = 4


@dataclass(frozen=True, eq=False)
class FittedIterations(Measured):
    """Computing, requests, answers and all-reduces of every process, by iteration.

    The first is counted among all all-reduces of the run.
    """

    ring: tuple[Process, ...]
    """Processes of the all-reduce: each sends to the next."""
    stages: dict[Process, NDArray[np.float64]]
    """Seconds by process of the ring, shape (rounds + 1, iterations): before the
    request of each round, and before the all-reduce."""
    asked: dict[Asked, NDArray[np.float64]]
    """Bytes of the request, of the answer, and seconds of the server without those in
    which it served others, shape (3, iterations); 0 where none was sent."""
    volume: float
    """Bytes that every process brings to an all-reduce."""
    overhead: float
    """Seconds that an all-reduce took beyond what the NICs need for it, median."""

    def part(self, first: int, last: int) -> FittedIterations:
        """Return the iterations from ``first`` until before ``last``."""
        some = slice(first, last)
        return replace(
            self,
            stages={one: times[:, some] for one, times in self.stages.items()},
            asked={key: rows[:, some] for key, rows in self.asked.items()},
            starts=self.starts[some],
            ends=self.ends[some],
            first=self.first + first,
        )


@dataclass(frozen=True)
class _Sums:
    """All-reduces by ring position and number: when each began, and had its sum."""

    asked: NDArray[np.float64]
    summed: NDArray[np.float64]
    volume: float


def fit_traffic(
    traffic: Traffic, *, skip: int = 0, marks: Marks | None = None, ring: bool = True
) -> FittedIterations | FittedSteps:
    """Return the iterations in what crossed: by marks, all-reduces, or the period.

    ``skip`` iterations at the beginning are left out; ``marks`` are seconds at which
    iterations began, by process. All-reduces are looked for round a ring, where
    ``ring``. Raises Unfittable when nothing was sent, no iterations are found, or fewer
    than four that are like one another.
    """
    packets = by_process(traffic)
    why = ""
    if marks is None and ring:
        try:
            return fit_iterations(traffic, skip=skip)
        except Unfittable as error:
            why = f"{error}; "
    try:
        clocks = find_marks(packets, traffic) if marks is None else marks
    except Unfittable as error:
        raise Unfittable(f"{why}{error}") from error
    clocks = {one: times[skip:] for one, times in clocks.items()}
    lengths = [*map(len, clocks.values())]
    fewest = min(lengths)
    if fewest <= FEWEST:
        raise Unfittable(
            f"{why}{fewest} marks were printed, which begin {max(fewest - 1, 0)} whole "
            f"iterations: a fit needs {FEWEST}"
        )
    # Those of one process count where all go together: who only share a server may all
    # begin one before any begins the next, but mostly not within half of one.
    times = np.array([own[:fewest] for own in clocks.values()])
    together = times.max(0)[:-1] < times.min(0)[1:]
    near = 2 * np.median(np.ptp(times, axis=0)) < np.median(np.diff(times))
    if max(lengths) == fewest and near and np.mean(together) >= ALWAYS:
        clocks = {ALL: times[0]}
    return find_causes(steps_between(packets, traffic, clocks), clocks, skip)


def fit_iterations(traffic: Traffic, *, skip: int = 0) -> FittedIterations:
    """Return the longest stretch of iterations that all-reduces end.

    The first all-reduce only says when the first iteration begins. Raises Unfittable
    when nothing was sent, no all-reduce is found, its processes do not agree on their
    number, or fewer than four iterations are like one another.
    """
    exchanges, ring = conversations(by_process(traffic))
    own = {
        one: [exchange for exchange in exchanges if exchange.client == one]
        for one in ring.members
    }
    sums = _sums(ring, own)
    rounds = {
        one: [
            _rounds(own[one], *between)
            for between in zip(
                sums.summed[place, :-1], sums.asked[place, 1:], strict=True
            )
        ]
        for place, one in enumerate(ring.members)
    }
    counts = np.array([[len(each) for each in one] for one in rounds.values()])
    usual = np.median(counts) if counts.size else 0
    alike = longest_run(np.all(counts <= usual + MORE_ROUNDS, axis=0))
    first = max(alike.start, skip - 1)
    last = alike.stop
    if last - first < FEWEST:
        raise Unfittable(
            f"{last - first} iterations of the same kind follow one another, a fit "
            f"needs {FEWEST}"
        )
    rounds = {one: each[first:last] for one, each in rounds.items()}
    some = _Sums(sums.asked, sums.summed[:, first : last + 1], sums.volume)
    # Seconds of every answer, without those before the one before.
    services = {}
    free = dict[Process, float]()
    for exchange in sorted(exchanges, key=lambda one: one.answered):
        answer = exchange.answered[0]
        began = max(exchange.asked[1], free.get(exchange.server, 0.0))
        services[exchange] = max(answer - began, 0.0)
        free[exchange.server] = answer
    return _fit_rounds(ring, rounds, some, services, traffic.nics, first)


def _sums(ring: Ring, own: dict[Process, list[Exchange]]) -> _Sums:
    """Return when the processes began every all-reduce, and when they had its sum."""
    sizes_before = [np.append(0, np.cumsum(sizes)) for _, sizes in ring.sent]
    parts = []
    together = np.sort(np.concatenate(ring.any_sent))
    quiet = np.flatnonzero(np.diff(together) > SILENCE)
    silences = (together[quiet] + together[quiet + 1]) / 2
    for place, one in enumerate(ring.members):
        times = ring.sent[place][0]
        # Between two of these instants a process sent one all-reduce at most.
        answers = sorted(exchange.answered[1] for exchange in own[one])
        cuts = np.searchsorted(answers or silences, times)
        ends = np.flatnonzero(np.diff(cuts)) + 1
        parts.append(list(pairwise([0, *ends.tolist(), len(times)])))
    sizes = [
        int(before[last] - before[first])
        for before, part in zip(sizes_before, parts, strict=True)
        for first, last in part
    ]
    usual = float(usual_size(sizes))
    last_sizes = [
        [(times[first], times[last - 1]) for first, last in _whole(part, before, usual)]
        for part, before, (times, _) in zip(parts, sizes_before, ring.sent, strict=True)
    ]
    counts = {len(part) for part in last_sizes}
    if len(counts) > 1:
        raise Unfittable(
            f"processes of the ring sent {min(counts)} to {max(counts)} all-reduces of "
            f"{usual:,.0f} bytes, as many of each are needed"
        )
    befores = [last_sizes[place - 1] for place in range(len(last_sizes))]
    sums = np.array([[last for _, last in before] for before in befores])
    starts = []
    for place, one in enumerate(ring.members):
        answer_times = np.array([0.0, *sorted(e.answered[1] for e in own[one])])
        where = ring.any_sent[place], answer_times, sums[place], last_sizes[place]
        starts.append(_first_after(*where))
    members = len(ring.members)
    volume = usual * members / (2 * (members - 1))
    return _Sums(np.array(starts), sums, volume)


def _whole(
    bursts: Sequence[tuple[int, int]], sent: NDArray[np.int64], usual: float
) -> list[tuple[int, int]]:
    """Return the bursts that are all-reduces, put together and parted where need be.

    A process that has the sum may still have packets of its own in a queue: before a
    slow NIC, and after a loss, they come behind answers of the next iteration, or with
    the next all-reduce. As many as can be are found, and of as many bytes.
    """
    # By burst: all-reduces until its end, their bytes, where the last of them begin.
    best: list[tuple[int, int, int]] = [(0, 0, 0)]
    for end, (_, last) in enumerate(bursts, 1):
        choice = (*best[-1][:2], end)  # the burst is none, nor part of one
        for start in range(end - 1, max(end - 1 - MOST_PIECES, -1), -1):
            size = int(sent[last] - sent[bursts[start][0]])
            count = round(size / usual)
            if count and -TOLERANCE <= size / usual - count <= AGAIN:
                one = (best[start][0] + count, best[start][1] + size, start)
                choice = max(choice, one, key=lambda found: found[:2])
        best.append(choice)
    ranges: list[tuple[int, int]] = []
    end = len(bursts)
    while end:
        start = best[end][2]
        if start == end:
            end -= 1
            continue
        first = bursts[start][0]
        last = bursts[end - 1][1]
        marks = np.linspace(sent[first], sent[last], best[end][0] - best[start][0] + 1)
        between = np.searchsorted(sent, marks[1:-1]).tolist()
        ranges += reversed([*pairwise([first, *between, last])])
        end = start
    return ranges[::-1]


def _first_after(
    sent: NDArray[np.float64],
    answered: NDArray[np.float64],
    summed: NDArray[np.float64],
    bursts: Sequence[tuple[float, float]],
) -> list[float]:
    """Return when a process first spoke to another of its ring, by all-reduce.

    It says that it is ready before it may send: gloo waits for the receiver.
    """
    firsts = []
    before = 0.0
    for number, (first, last) in enumerate(bursts):
        last_answer = answered[np.searchsorted(answered, first) - 1]
        ready = sent[np.searchsorted(sent, max(last_answer, before), "right")]
        firsts.append(float(ready))
        before = max(summed[number], last)
    return firsts


def _rounds(
    exchanges: Sequence[Exchange], began: float, ended: float
) -> list[list[Exchange]]:
    """Return the exchanges of a process between two instants, by round."""
    rounds: list[list[Exchange]] = []
    until = -np.inf
    for exchange in exchanges:
        if not began <= exchange.asked[0] < ended:
            continue
        if exchange.asked[0] >= until:
            rounds.append([])
        rounds[-1].append(exchange)
        until = max(exchange.answered[1], until)
    return rounds


def _fit_rounds(
    ring: Ring,
    rounds: dict[Process, list[list[list[Exchange]]]],
    sums: _Sums,
    services: dict[Exchange, float],
    nics: NDArray[np.float64],
    first: int,
) -> FittedIterations:
    count = sums.summed.shape[1] - 1
    most = max(len(each) for one in rounds.values() for each in one)
    stages = {one: np.zeros((most + 1, count)) for one in ring.members}
    requests: dict[Asked, NDArray[np.float64]] = {}
    ready = sums.asked[:, first + 1 : first + 1 + count]
    for place, one in enumerate(ring.members):
        for number, iteration in enumerate(rounds[one]):
            in_bytes = sums.summed[place, number]
            for turn, exchanges in enumerate(iteration):
                start = min(exchange.asked[0] for exchange in exchanges)
                stages[one][turn, number] = start - in_bytes
                in_bytes = max(exchange.answered[1] for exchange in exchanges)
                for exchange in exchanges:
                    key = (one, turn, exchange.server)
                    rows = requests.setdefault(key, np.zeros((3, count)))
                    sizes = exchange.request, exchange.answer
                    rows[:, number] += *sizes, services[exchange]
            stages[one][-1, number] = max(ready[place, number] - in_bytes, 0.0)
    took = sums.summed[:, 1:].max(0) - ready.max(0)
    overhead = max(float(np.median(took)) - _ring_seconds(ring, sums.volume, nics), 0.0)
    mean = sums.summed.mean(0)
    ends = mean[:-1], mean[1:]
    return FittedIterations(
        *ends, first + 1, ring.members, stages, requests, sums.volume, overhead
    )


def _ring_seconds(ring: Ring, volume: float, nics: NDArray[np.float64]) -> float:
    """Return the seconds that the slowest NIC needs for an all-reduce."""
    machines = [machine for machine, _ in ring.members]
    hops = 2 * (len(machines) - 1)
    return hops * volume / len(machines) / float(nics[:, machines].min())


class Template(StrEnum):
    """The kind of a job whose iterations are all the mean one: few numbers say it."""

    DISTDGL = "distdgl"
    """Rounds of requests to servers, then an all-reduce."""
    ALLREDUCE = "allreduce"
    """All-reduces, and nothing else between machines."""


def mean_iterations(
    found: FittedIterations | FittedSteps, template: Template
) -> FittedIterations:
    """Return as many iterations, all like the mean of those that were found.

    Raises Unfittable when the run is none of the template's kind.
    """
    if isinstance(found, FittedSteps):
        raise Unfittable(
            f"template {template} is of iterations that end with all-reduces: it goes "
            "without --mark, in runs that have such"
        )
    if template is Template.ALLREDUCE and found.asked:
        raise Unfittable(
            "its processes ask those of another program, and template allreduce has "
            "none; distdgl has"
        )
    if template is Template.DISTDGL and not found.asked:
        raise Unfittable(
            "its processes ask no servers, as in template distdgl; allreduce is for "
            "such runs"
        )

    def mean(rows: NDArray[np.float64], whole: int = 0) -> NDArray[np.float64]:
        """Return the mean of each row in all iterations, the first rows in bytes."""
        means = rows.mean(1, keepdims=True)
        means[:whole] = np.rint(means[:whole])
        return np.repeat(means, found.count, axis=1)

    return replace(
        found,
        stages={one: mean(times) for one, times in found.stages.items()},
        asked={key: mean(rows, whole=2) for key, rows in found.asked.items()},
    )
