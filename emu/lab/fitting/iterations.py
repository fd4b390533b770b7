"""Iterations of what crossed: volumes, and the gaps between received and sent next.

An iteration of a process ends when it has the sum of an all-reduce. In it come rounds
of requests: one waits for all answers of the one before. Gaps are its own time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from operator import attrgetter
from typing import TypeAlias

import numpy as np

from emu.array_types import Ints
from emu.lab.fitting.bursts import MOST_PIECES, TOLERANCE, Burst, find_sums
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
from emu.lab.fitting.repeats import count_turns, find_chain
from emu.lab.fitting.steps import ALL, Marks, Row, steps_between
from emu.lab.fitting.threads import follow_threads
from emu.prediction.analysis.traffic import Traffic

#: Client, round within an iteration, server.
Asked: TypeAlias = "tuple[Process, int, Process]"
#: Exchanges of a process in an iteration, by round.
_Rounds: TypeAlias = list[list[Exchange]]
#: Seconds of the first and the last packet of an all-reduce.
_Span: TypeAlias = tuple[float, float]
#: Seconds without a packet of a ring that part two all-reduces without requests, and
#: those that part bursts of which a period is made.
SILENCE = 0.005
_SHORT_SILENCE = 0.002
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
    stages: dict[Process, Row]
    """Seconds by process of the ring, shape (rounds + 1, iterations): before the
    request of each round, and before the all-reduce."""
    asked: dict[Asked, Row]
    """Bytes of the request, of the answer, and seconds of the server without those in
    which it served others, shape (3, iterations); 0 where none was sent."""
    volume: float
    """Bytes that every process brings to an all-reduce."""
    overhead: float
    """Seconds that an all-reduce took beyond what the NICs need for it, median."""

    def part(self, first: int, last: int) -> FittedIterations:
        """Return the iterations from ``first`` until before ``last``."""
        span = slice(first, last)
        stages = {}
        for process, times in self.stages.items():
            stages[process] = times[:, span]
        asked = {}
        for key, rows in self.asked.items():
            asked[key] = rows[:, span]
        return replace(
            self,
            stages=stages,
            asked=asked,
            starts=self.starts[span],
            ends=self.ends[span],
            first=self.first + first,
        )


@dataclass(frozen=True)
class _Sums:
    """All-reduces by ring position and number: when each began, and had its sum."""

    began: Row
    summed: Row
    volume: float

    def part(self, first: int, last: int) -> _Sums:
        """Return those that end iterations, and the sum with which the first begins."""
        ending = slice(first + 1, last + 1)
        with_first = slice(first, last + 1)
        return replace(
            self,
            began=self.began[:, ending],
            summed=self.summed[:, with_first],
        )


def fit_traffic(
    traffic: Traffic,
    *,
    skip: int = 0,
    marks: Marks | None = None,
    ring: bool = True,
    count: int | None = None,
) -> FittedIterations | FittedSteps:
    """Return the iterations in what crossed: by marks, all-reduces, or the period.

    ``skip`` iterations at the beginning are left out; ``marks`` are seconds at which
    iterations began, by process. All-reduces are looked for round a ring, where
    ``ring``. A ``count`` of iterations decides where what repeats can be read as
    several. Raises Unfittable when nothing was sent, no iterations are found, two
    readings are as likely, or fewer than four are like one another.
    """
    packets = by_process(traffic)
    no_ring = ""
    if marks is None and ring:
        try:
            return fit_iterations(traffic, skip=skip, count=count)
        except Unfittable as error:
            no_ring = f"{error}; "
    if marks is None:
        try:
            marks = find_marks(packets, traffic, count)
        except Unfittable as error:
            raise Unfittable(f"{no_ring}{error}") from error

    clocks = {process: times[skip:] for process, times in marks.items()}
    numbers = [len(times) for times in clocks.values()]
    fewest = min(numbers)
    if fewest <= FEWEST:
        whole_iterations = max(fewest - 1, 0)
        raise Unfittable(
            f"{no_ring}{fewest} marks were printed, which begin {whole_iterations} "
            f"whole iterations: a fit needs {FEWEST}"
        )
    common = _common_clock(clocks)
    steps = steps_between(packets, traffic, common)
    found = find_causes(steps, common, skip)
    if not len(traffic.calls):
        return found
    return follow_threads(found, traffic)


def _common_clock(clocks: Marks) -> Marks:
    """Return the marks of one process for those of all, where all go together.

    Who only share a server may all begin one iteration before any begins the next, but
    mostly not within half of one.
    """
    rows = list(clocks.values())
    numbers = {len(times) for times in rows}
    if len(numbers) > 1:
        return clocks

    times = np.array(rows)  # (processes, iterations)
    lengths = np.diff(times)
    length = np.median(lengths)
    distances = np.ptp(times, axis=0)
    distance = np.median(distances)
    last = times.max(0)
    first = times.min(0)
    go_together = last[:-1] < first[1:]
    is_close = 2 * distance < length
    if is_close and np.mean(go_together) >= ALWAYS:
        return {ALL: times[0]}
    return clocks


def fit_iterations(
    traffic: Traffic,
    *,
    skip: int = 0,
    count: int | None = None,
) -> FittedIterations:
    """Return the longest stretch of iterations that all-reduces end.

    The first all-reduce only says when the first iteration begins. Raises Unfittable
    when nothing was sent, no all-reduce is found, its processes do not agree on their
    number, or fewer than four iterations are like one another.
    """
    packets = by_process(traffic)
    exchanges, ring = conversations(packets)
    by_client: dict[Process, list[Exchange]]
    by_client = {client: [] for client in ring.members}
    for exchange in exchanges:
        if exchange.client in by_client:
            by_client[exchange.client].append(exchange)

    sums = _sums(ring, by_client, count)
    rounds: dict[Process, list[_Rounds]] = {}
    for place, client in enumerate(ring.members):
        starts = sums.summed[place, :-1]
        ends = sums.began[place, 1:]
        spans = zip(starts.tolist(), ends.tolist(), strict=True)
        asked = by_client[client]
        rounds[client] = [_rounds(asked, start, end) for start, end in spans]
    alike = _find_alike(rounds)
    # Iterations are numbered from the second all-reduce on, `skip` from the first.
    first = max(alike.start, skip - 1)
    last = alike.stop
    length = max(0, last - first)
    if length < FEWEST:
        raise Unfittable(
            f"{length} iterations of the same kind follow one another, a fit "
            f"needs {FEWEST}"
        )
    alike_rounds = {}
    for client, row in rounds.items():
        alike_rounds[client] = row[first:last]
    return _fit_rounds(
        ring=ring,
        rounds=alike_rounds,
        sums=sums.part(first, last),
        services=_services(exchanges),
        nics=traffic.nics,
        first=first,
    )


def _find_alike(rounds: dict[Process, list[_Rounds]]) -> slice:
    """Return the longest stretch of iterations with about as many rounds as usual."""
    numbers = []
    for row in rounds.values():
        numbers_of_client = [len(turns) for turns in row]
        numbers.append(numbers_of_client)
    counts = np.array(numbers)
    usual = np.median(counts) if counts.size else 0
    most = usual + MORE_ROUNDS
    is_usual = np.all(counts <= most, axis=0)
    return longest_run(is_usual)


def _services(exchanges: Sequence[Exchange]) -> dict[Exchange, float]:
    """Return the seconds of every answer, without those before the one before."""
    services = {}
    free: dict[Process, float] = {}
    by_answer = sorted(exchanges, key=attrgetter("answered"))
    for exchange in by_answer:
        answer, _ = exchange.answered
        _, asked = exchange.asked
        # A server answers one after the other: what others took is not of this answer.
        began = max(asked, free.get(exchange.server, 0.0))
        services[exchange] = max(answer - began, 0.0)
        free[exchange.server] = answer
    return services


def _sums(
    ring: Ring,
    by_client: dict[Process, list[Exchange]],
    count: int | None,
) -> _Sums:
    """Return when the processes began every all-reduce, and when they had its sum."""
    sent_before = [_sum_before(sizes) for _, sizes in ring.sent]
    answers = []
    for client in ring.members:
        ends_of_answers = _ends_of_answers(by_client[client])
        answers.append(ends_of_answers)
    bursts = _bursts(ring, answers)
    burst_size = _usual_burst(bursts, sent_before)
    usual = float(burst_size)
    if not any(answers):
        usual = _iteration_size(ring, usual, count)

    bursts_of_sum = max(1, round(usual / burst_size))
    pieces = MOST_PIECES * bursts_of_sum

    spans: list[list[_Span]] = []
    for (times, _), counts, row in zip(ring.sent, sent_before, bursts, strict=True):
        sums = find_sums(row, times, counts, usual=usual, pieces=pieces)
        spans_of_member = [(times[first], times[last - 1]) for first, last in sums]
        spans.append(spans_of_member)
    _require_as_many(spans, usual)

    # A process has the sum with the last packet of the one before it in the ring.
    ends = [[last for _, last in row] for row in spans]
    ends_before = ends[-1:] + ends[:-1]
    sum_times = np.array(ends_before)
    began = []
    for place, bursts_of_member in enumerate(spans):
        answered = np.array([0.0, *answers[place]])
        firsts = _first_after(
            sent=ring.any_sent[place],
            answered=answered,
            summed=sum_times[place],
            bursts=bursts_of_member,
        )
        began.append(firsts)

    # In a ring of n each sends 2 (n - 1) pieces of an n-th.
    n = len(ring.members)
    pieces_sent = 2 * (n - 1)
    return _Sums(
        began=np.array(began),
        summed=sum_times,
        volume=usual * n / pieces_sent,
    )


def _require_as_many(spans: Sequence[Sequence[_Span]], usual: float) -> None:
    """Raise Unfittable where members of a ring sent different numbers of sums."""
    numbers = {len(row) for row in spans}
    if len(numbers) > 1:
        fewest = min(numbers)
        most = max(numbers)
        raise Unfittable(
            f"processes of the ring sent {fewest} to {most} all-reduces "
            f"of {usual:,.0f} bytes, as many of each are needed"
        )


def _ends_of_answers(exchanges: Sequence[Exchange]) -> list[float]:
    """Return when the last packets of answers came, ascending."""
    ends = []
    for exchange in exchanges:
        _, last = exchange.answered
        ends.append(last)
    return sorted(ends)


def _sum_before(sizes: Ints) -> Ints:
    """Return the bytes before each of some packets, and those of all."""
    return np.append(0, np.cumsum(sizes))


def _usual_burst(
    bursts: list[list[Burst]],
    sent_before: list[Ints],
) -> int:
    """Return the usual bytes of bursts, by what each member had sent before packets."""
    sizes = []
    for counts, row in zip(sent_before, bursts, strict=True):
        for first, last in row:
            size = counts[last] - counts[first]
            sizes.append(int(size))
    return usual_size(sizes)


def _iteration_size(
    ring: Ring,
    usual: float,
    count: int | None,
) -> float:
    """Return the bytes that a member sends in an iteration, of one or several sums.

    The ``usual`` bytes of a burst where nothing repeats, or that with these.
    """
    no_answers: list[list[float]] = [[] for _ in ring.members]
    bursts = _bursts(ring, no_answers, _SHORT_SILENCE)
    for (times, sizes), row in zip(ring.sent, bursts, strict=True):
        sent_before = _sum_before(sizes)
        firsts = np.array([first for first, _ in row])
        places = sent_before[firsts]
        total = int(sent_before[-1])
        chain = find_chain(places, total)
        if chain is None:
            continue

        beginnings = firsts[chain.bursts]
        began = times[beginnings]
        turns = count_turns(began.tolist(), chain.turns, count)
        size = chain.period * turns
        excess = size / usual - 1
        is_usual = abs(excess) <= TOLERANCE
        return usual if is_usual else size
    return usual


def _bursts(
    ring: Ring,
    answers: list[list[float]],
    silence: float = SILENCE,
) -> list[list[Burst]]:
    """Return by member of the ring where bursts of its packets begin and end.

    In each it sent one all-reduce at most: an answer parts them, or silence.
    """
    times = np.sort(np.concatenate(ring.any_sent))
    gaps = np.diff(times)
    quiet = np.flatnonzero(gaps > silence)
    begins = times[quiet]
    ends = times[quiet + 1]
    middles = (begins + ends) / 2
    bursts = []
    for (send_times, _), instants in zip(ring.sent, answers, strict=True):
        # Processes that ask no server have no answers: silence parts what they send.
        numbers = np.searchsorted(instants or middles, send_times)
        changes = np.flatnonzero(np.diff(numbers))
        cuts = changes + 1
        edges = [0, *cuts.tolist(), len(send_times)]
        bursts_of_member = list(pairwise(edges))
        bursts.append(bursts_of_member)
    return bursts


def _first_after(
    sent: Row,
    answered: Row,
    summed: Row,
    bursts: Sequence[_Span],
) -> list[float]:
    """Return when a process first spoke to another of its ring, by all-reduce.

    It says that it is ready before it may send: gloo waits for the receiver.
    """
    firsts = []
    over = 0.0
    for number, (first, last) in enumerate(bursts):
        last_answer = np.searchsorted(answered, first) - 1
        had = max(answered[last_answer], over)
        next_sent = np.searchsorted(sent, had, "right")
        ready = sent[next_sent]
        firsts.append(float(ready))
        over = max(summed[number], last)
    return firsts


def _rounds(
    exchanges: Sequence[Exchange],
    began: float,
    ended: float,
) -> _Rounds:
    """Return the exchanges of a process between two instants, by round."""
    rounds: _Rounds = []
    round_end = -np.inf
    for exchange in exchanges:
        request_start, _ = exchange.asked
        _, answer_end = exchange.answered
        if not began <= request_start < ended:
            continue
        # Who asks before the last answer has come did not wait for it.
        if request_start >= round_end:
            rounds.append([])
        rounds[-1].append(exchange)
        round_end = max(answer_end, round_end)
    return rounds


def _fit_rounds(
    *,
    ring: Ring,
    rounds: dict[Process, list[_Rounds]],
    sums: _Sums,
    services: dict[Exchange, float],
    nics: Row,
    first: int,
) -> FittedIterations:
    count = len(sums.began[0])
    most = 0
    for row in rounds.values():
        most = max(most, *map(len, row))
    shape = (most + 1, count)
    stages = {client: np.zeros(shape) for client in ring.members}
    requests: dict[Asked, Row] = {}
    for place, client in enumerate(ring.members):
        times = stages[client]
        for number, iteration in enumerate(rounds[client]):
            had = sums.summed[place, number]
            for turn, exchanges in enumerate(iteration):
                starts = [exchange.asked[0] for exchange in exchanges]
                ends = [exchange.answered[1] for exchange in exchanges]
                times[turn, number] = min(starts) - had
                had = max(ends)
                for exchange in exchanges:
                    key = (client, turn, exchange.server)
                    asked = requests.setdefault(key, np.zeros((3, count)))
                    seconds = services[exchange]
                    # A process may ask the same server more than once in a round.
                    asked[:, number] += (exchange.request, exchange.answer, seconds)
            computation = sums.began[place, number] - had
            times[-1, number] = max(computation, 0.0)

    last_began = sums.began.max(0)
    last_summed = sums.summed[:, 1:].max(0)
    lengths = last_summed - last_began
    took = float(np.median(lengths))
    overhead = took - _ring_seconds(ring, sums.volume, nics)
    mean = sums.summed.mean(0)
    return FittedIterations(
        starts=mean[:-1],
        ends=mean[1:],
        first=first + 1,
        ring=ring.members,
        stages=stages,
        asked=requests,
        volume=sums.volume,
        overhead=max(overhead, 0.0),
    )


def _ring_seconds(ring: Ring, volume: float, nics: Row) -> float:
    """Return the seconds that the slowest NIC needs for an all-reduce."""
    machines = [machine for machine, _ in ring.members]
    hops = 2 * (len(machines) - 1)
    sent_bytes = hops * volume / len(machines)
    rates = nics[:, machines]
    slowest_rate = float(rates.min())
    return sent_bytes / slowest_rate


class Template(StrEnum):
    """The kind of a job whose iterations are all the mean one: few numbers say it."""

    DISTDGL = "distdgl"
    """Rounds of requests to servers, then an all-reduce."""
    ALLREDUCE = "allreduce"
    """All-reduces, and nothing else between machines."""


def mean_iterations(
    found: FittedIterations | FittedSteps,
    template: Template,
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

    count = found.count
    stages = {}
    for process, times in found.stages.items():
        stages[process] = _mean(times, count)
    asked = {}
    for key, rows in found.asked.items():
        asked[key] = _mean(rows, count, byte_rows=2)
    return replace(found, stages=stages, asked=asked)


def _mean(rows: Row, count: int, byte_rows: int = 0) -> Row:
    """Return the mean of each row in all iterations, the first rows in bytes."""
    means = rows.mean(1, keepdims=True)
    means[:byte_rows] = np.rint(means[:byte_rows])
    return np.repeat(means, count, axis=1)
