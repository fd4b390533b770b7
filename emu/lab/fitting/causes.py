"""Find what every step waits for, by order in time over all iterations.

A step's causes are what always came before it in its process: steps that it received,
steps that it sent. One whose answer follows a request at the steadiest distance waits
for that request alone. Gaps behind the last cause are the processes' own time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from emu.array_types import Mask
from emu.lab.fitting.conversations import Measured, Process, Unfittable
from emu.lab.fitting.steps import NOTE, Marks, Row, Step

#: Moments of a step: when its first byte came, when its last did, and when all came but
#: what the kernel holds: a program that waits in ``send()`` goes on then.
BEGUN = 0
GOT = 1
DRAINED = 2
#: Share of the iterations in which a cause comes before its effect.
ALWAYS = 0.95
#: Seconds within which steps begin together, and an answer follows its request.
TOGETHER = 0.001
#: Bytes of a connection that a kernel holds when its program goes on, where that does
#: not show. It was 70 to 200 kB at 12 to 40 Mbit/s, more at faster NICs.
HELD = 100_000
#: Seconds by which gaps must be steadier to say more than others.
STEADIER = 5e-5
#: Share by which spreads of gaps are alike: those of 22 iterations are no better known.
_ALIKE = 0.85
#: Share of the gaps by which their spread is told: one program may have been late.
_NEAREST = 0.9


class Cause(NamedTuple):
    """Moment of a step, by the step's number, some iterations before its effect."""

    step: int
    moment: int
    lag: int


Causes: TypeAlias = tuple[tuple[Cause, ...], ...]
_Rows: TypeAlias = Sequence[Sequence[Cause]]  # causes of every step


@dataclass(frozen=True, eq=False)
class Own:
    """Computing of a thread before it is ready to receive what a step waits for."""

    cause: Cause
    """The step before it in the thread."""
    seconds: Row
    """By iteration, behind that."""


@dataclass(frozen=True, eq=False)
class FittedSteps(Measured):
    """Steps of every iteration with their causes, and the gaps behind them."""

    steps: tuple[Step, ...]
    causes: Causes
    """Per step."""
    held: tuple[float, ...]
    """Bytes of a step that the kernel holds when its sender goes on; 0 if all."""
    computing: dict[int, Own] = field(default_factory=dict)
    """By step, where its thread computed before it was ready."""

    def part(self, first: int, last: int) -> FittedSteps:
        """Return the iterations from ``first`` until before ``last``."""
        span = slice(first, last)
        steps = [step.part(span) for step in self.steps]
        computing = {}
        for number, part in self.computing.items():
            seconds = part.seconds[span]
            computing[number] = replace(part, seconds=seconds)

        return replace(
            self,
            steps=tuple(steps),
            computing=computing,
            starts=self.starts[span],
            ends=self.ends[span],
            first=self.first + first,
        )

    @cached_property
    def gaps(self) -> Row:
        """Seconds of every step behind the last of its causes, by iteration.

        Of a first iteration, whose causes are before the fit, since its beginning.
        """
        times = Times(self.steps, self.held)
        began = float(self.starts[0])
        gaps = []
        for number, causes in enumerate(self.causes):
            gap = times.gap(number, causes, began)
            part = self.computing.get(number)
            if part is not None:
                own_gap = times.gap_behind_own(number, part)
                gap = np.minimum(gap, own_gap)
            gaps.append(gap)
        rows = np.array(gaps)
        return np.maximum(rows, 0.0)


def overtaken(found: FittedSteps) -> list[Step]:
    """Return large steps that were on their way when their process sent the next one.

    Their senders did not wait for all of it in ``send()``, since the kernel held the
    rest. How much it holds depends on the NIC.
    """
    large: list[Step] = []
    for step, causes in zip(found.steps, found.causes, strict=True):
        for cause in causes:
            if cause.moment == GOT or cause.lag:
                continue
            earlier = found.steps[cause.step]
            usual_size = np.median(earlier.sizes)
            is_large = usual_size >= HELD
            was_coming = earlier.last > step.first
            share = np.mean(was_coming)
            is_overtaken = share >= ALWAYS
            if is_large and is_overtaken and earlier not in large:
                large.append(earlier)
    return large


def find_causes(
    steps: Sequence[Step],
    marks: Marks,
    skip: int,
) -> FittedSteps:
    """Return the steps with their causes, in iterations with all, behind ``skip`` more.

    Raises Unfittable when there are too few.
    """
    count = _count_iterations(steps)
    span = longest(steps)
    length = span.stop - span.start
    if length < 4:
        raise Unfittable(
            f"{length} iterations of {count} follow one another with "
            "all of their parts, a fit needs 4"
        )

    parts = tuple(step.part(span) for step in steps)
    starts = {}
    marks_of_all = []
    edges = count + 1
    for clock, times in marks.items():
        starts[clock] = times[span]
        marks_of_all.append(times[:edges])

    order = _Order(parts, starts)
    preceding = order.causes()
    causes, holds = _behind_senders(parts, preceding)
    # Where each process has iterations of its own, one is over with the last of them.
    latest = np.max(marks_of_all, axis=0)
    all_starts = latest[:-1]
    all_ends = latest[1:]
    return FittedSteps(
        starts=all_starts[span],
        ends=all_ends[span],
        first=span.start + skip,
        steps=parts,
        causes=causes,
        held=holds,
    )


def longest(steps: Sequence[Step]) -> slice:
    """Return the longest stretch of iterations that have all steps."""
    count = _count_iterations(steps)
    firsts = np.array([step.first[:count] for step in steps])
    is_unknown = np.isnan(firsts)
    is_missing = is_unknown.any(axis=0)
    return longest_run(~is_missing)


def _count_iterations(steps: Sequence[Step]) -> int:
    """Return of how many iterations all steps say something."""
    return min(len(step.first) for step in steps)


def longest_run(good: Mask) -> slice:
    """Return where the longest row of True stands, the first of as long ones."""
    longest_start = 0
    longest_length = 0
    start = 0
    states = good.tolist()
    for end, is_good in enumerate(states, 1):
        if not is_good:
            start = end
            continue
        length = end - start
        if length > longest_length:
            longest_start = start
            longest_length = length
    longest_end = longest_start + longest_length
    return slice(longest_start, longest_end)


class Times:
    """Moments of steps by iteration."""

    def __init__(
        self,
        steps: Sequence[Step],
        held: Sequence[float] = (),
    ) -> None:
        self._moments = [[step.first, step.last] for step in steps]
        for number, hold in enumerate(held):
            step = steps[number]
            held_bytes = np.minimum(hold, step.sizes)
            bytes_come = step.until - held_bytes
            drained = step.crossed.when(bytes_come)
            self._moments[number].append(drained)

    def of(self, cause: Cause) -> Row:
        """Return the seconds of a cause by the iteration of its effect."""
        moments = self._moments[cause.step]
        times = moments[cause.moment]
        lag = cause.lag
        unknown = np.full(lag, np.nan)
        known_count = len(times) - lag
        known = times[:known_count]
        return np.concatenate([unknown, known])

    def gap(
        self,
        number: int,
        causes: Sequence[Cause],
        began: float = np.nan,
    ) -> Row:
        """Return the seconds of a step behind the last of its causes.

        Where none is in these iterations, since they ``began``.
        """
        first = self._moments[number][BEGUN]
        if not causes:
            return first - began

        times = np.array([self.of(cause) for cause in causes])
        times = np.nan_to_num(times, nan=-np.inf)
        last = np.max(times, axis=0)
        is_unknown = np.isinf(last)
        last = np.where(is_unknown, began, last)
        return first - last

    def gap_behind_own(self, number: int, part: Own) -> Row:
        """Return the seconds of a step behind its thread's computing, where known."""
        first = self._moments[number][BEGUN]
        ended = self.of(part.cause)
        ready = ended + part.seconds
        gap = first - ready
        is_unknown = np.isnan(gap)
        return np.where(is_unknown, np.inf, gap)

    def gap_behind(self, number: int, cause: Cause) -> Row:
        """Return the seconds of a step behind one cause, in iterations that have it."""
        gap = self.gap(number, [cause])
        return gap[cause.lag :]


class _Order(Times):
    """Order of the moments of steps: what came first, and what each waits for."""

    def __init__(self, steps: Sequence[Step], starts: Marks) -> None:
        super().__init__(steps)
        self._steps = steps
        self._numbers = range(len(steps))
        #: Seconds of a moment since its iteration began, median.
        self._phase: dict[tuple[int, int], float] = {}
        for number, step in enumerate(steps):
            start = starts[step.clock]
            for moment in (BEGUN, GOT):
                times = self._moments[number][moment]
                phase = np.median(times - start)
                self._phase[number, moment] = float(phase)

        self._before = list(map(self._precede, self._numbers))
        waits = list(map(self._await, self._numbers))
        self._least = [self._reduce(row, waits) for row in waits]

    def causes(self) -> Causes:
        """Return the causes of every step."""
        choices = list(map(self._choose, self._numbers))
        causes = []
        for number, row in enumerate(choices):
            known = row
            if self._has_peers(number, choices):
                known = self._least[number]
            causes.append(tuple(known))
        return tuple(causes)

    def _choose(self, number: int) -> list[Cause]:
        """Return the causes of a step: its request, where that says as much as all."""
        step = self._steps[number]
        least = self._least[number]
        preceding = self._before[number]
        requests = []
        for cause in preceding:
            sender = self._steps[cause.step].source
            if sender == step.destination:
                requests.append(cause)
        if not requests:
            return least

        request = max(requests, key=self._when)
        # An answer is as steady behind its request as behind all causes.
        gap = self.gap_behind(number, request)
        least_gap = self.gap(number, least)
        is_known = ~np.isnan(least_gap)
        spread_of_all = _spread(least_gap[is_known])
        limit = spread_of_all + STEADIER
        is_steady = _spread(gap) <= limit
        if not is_steady:
            return least

        _, source_program = step.source
        _, destination_program = step.destination
        if source_program != destination_program:
            return [request]
        # Between peers only what follows at once is an answer.
        if float(np.median(gap)) >= TOGETHER:
            return least
        begun = [cause for cause in preceding if cause.moment == BEGUN]
        sends = [cause for cause in begun if cause.lag == 0]
        return [request, *sends]

    def _when(self, cause: Cause) -> tuple[int, float]:
        phase = self._phase[cause.step, GOT]
        return -cause.lag, phase

    def _precede(self, number: int) -> list[Cause]:
        """Return what always came before a step in its process, the latest of each."""
        causes = []
        for k, moment in self._moments_beside(number):
            cause = self._newest_before(number, k, moment)
            if cause is not None:
                causes.append(cause)
        return causes

    def _moments_beside(self, number: int) -> list[tuple[int, int]]:
        """Return what a step's process sends and then what it receives.

        As numbers of steps and their moments.
        """
        process = self._steps[number].source
        sends = []
        receipts = []
        for k in self._steps_beside(number):
            step = self._steps[k]
            if step.source == process:
                sends.append((k, BEGUN))
            if step.destination == process:
                receipts.append((k, GOT))
        return [*sends, *receipts]

    def _steps_beside(self, number: int) -> list[int]:
        """Return the steps that were noted by the clock of a step."""
        clock = self._steps[number].clock
        return [k for k in self._numbers if self._steps[k].clock == clock]

    def _newest_before(self, number: int, k: int, moment: int) -> Cause | None:
        """Return the newest moment of step ``k`` that always came before a step.

        Of the same iteration or one of two before; None where none did.
        """
        phase = self._phase[k, moment]
        phase_of_step = self._phase[number, BEGUN]
        is_earlier = (phase, k) < (phase_of_step, number)
        # What comes later in an iteration may be a cause in the next.
        first_lag = 0 if is_earlier else 1

        for lag in range(first_lag, 3):
            cause = Cause(k, moment, lag)
            gap = self.gap_behind(number, cause)
            is_before = gap >= 0
            if np.mean(is_before) >= ALWAYS:
                return cause
        return None

    def _await(self, number: int) -> list[Cause]:
        """Return what a step may wait for, without notes that came while it computed.

        A note lets a process send to its sender. The time of computing is steadier than
        the one since a note that came meanwhile, whose sender has a time of its own.
        """
        preceding = self._before[number]
        notes = []
        certain = []
        for cause in preceding:
            if self._is_note(cause):
                notes.append(cause)
            else:
                certain.append(cause)
        notes.sort(key=self._when)

        spreads = []
        for count in range(len(notes) + 1):
            causes = [*certain, *notes[:count]]
            spread = np.inf
            if causes:
                gap = self.gap(number, causes)
                # Causes are up to two iterations before.
                spread = _spread(gap[2:])
            spreads.append(spread)
        least = min(spreads) + STEADIER
        alike = [n for n, spread in enumerate(spreads) if _ALIKE * spread <= least]
        most = alike[-1]
        return [*certain, *notes[:most]]

    def _is_note(self, cause: Cause) -> bool:
        if cause.moment != GOT:
            return False
        sizes = self._steps[cause.step].sizes
        usual = np.median(sizes)
        return bool(usual <= NOTE)

    def _reduce(
        self,
        causes: Sequence[Cause],
        waits: _Rows,
    ) -> list[Cause]:
        """Return the causes that no other of them has for a cause."""
        indirect: set[Cause] = set()
        for cause in causes:
            for further in waits[cause.step]:
                lag = cause.lag + further.lag
                known = further._replace(lag=lag)
                indirect.add(known)

        sends = []
        latest: dict[Process, Cause] = {}
        for cause in causes:
            lags = range(cause.lag + 1)
            moments = {cause._replace(lag=lag) for lag in lags}
            if not moments.isdisjoint(indirect):
                continue
            if cause.moment == BEGUN:
                sends.append(cause)
                continue
            peer = self._steps[cause.step].source
            rival = latest.get(peer, cause)
            later = max(rival, cause, key=self._when)
            latest[peer] = later
        return [*sends, *latest.values()]

    def _has_peers(self, number: int, chosen: _Rows) -> bool:
        """Return True if a step, or one beside it, waits for more than its request.

        A server answers all whom it has received from: nothing comes between them.
        """
        arrivals = []
        peers = []
        for k, moment in self._moments_beside(number):
            if moment == GOT:
                arrivals.append(self._phase[k, GOT])
            else:
                peers.append(k)

        began = self._phase[number, BEGUN]
        for k in peers:
            waits_for_all = chosen[k] == self._least[k]
            if not waits_for_all:
                continue
            peer_began = self._phase[k, BEGUN]
            low = min(began, peer_began)
            high = max(began, peer_began)
            if not any(low < arrived < high for arrived in arrivals):
                return True
        return False


def _behind_senders(
    steps: tuple[Step, ...],
    causes: Causes,
) -> tuple[Causes, tuple[float, ...]]:
    """Return the causes with senders that wait in ``send()``, and `FittedSteps.held`.

    A step that begins behind a large one of its process, and not with it, began when
    the kernel had taken that one, if it is as steady so: less of it was on its way
    then than the kernel holds. With the beginnings as causes programs at slower NICs
    sent too early, in the way of what was still to go: +6 to +10 %.
    """
    medians = [float(np.median(step.sizes)) for step in steps]
    holds = [HELD if median > HELD else 0.0 for median in medians]
    waiting = _waits_for_large(steps, causes, holds)

    times = Times(steps, holds)
    final = [[*row] for row in causes]
    final_holds = [0.0] * len(steps)
    for number, begun in waiting:
        k = begun.step
        drained = begun._replace(moment=DRAINED)
        drained_gap = times.gap_behind(number, drained)
        begun_gap = times.gap_behind(number, begun)
        limit = _spread(begun_gap) + STEADIER
        is_steady = _spread(drained_gap) <= limit
        is_part = holds[k] < medians[k]
        if is_steady and is_part:
            place = final[number].index(begun)
            final[number][place] = drained
            final_holds[k] = holds[k]

    final_causes = tuple(tuple(row) for row in final)
    return final_causes, tuple(final_holds)


def _waits_for_large(
    steps: Sequence[Step],
    causes: Causes,
    holds: list[float],
) -> list[tuple[int, Cause]]:
    """Return steps that begin behind a large one and not with it, and that cause.

    ``holds``, the bytes that the kernel holds of each step, grow to what was still on
    its way when such a step began.
    """
    times = Times(steps)
    waiting = []
    for number, row in enumerate(causes):
        for cause in row:
            k = cause.step
            is_begun = cause.moment == BEGUN
            if not is_begun or not holds[k]:
                continue

            gap = times.gap_behind(number, cause)
            if np.median(gap) < TOGETHER:
                continue
            wait = (number, cause)
            waiting.append(wait)

            first = steps[number].first
            began = first[cause.lag :]
            rest = on_its_way(steps[k], began)
            hold = float(np.quantile(rest, ALWAYS))
            holds[k] = max(holds[k], hold)
    return waiting


def on_its_way(step: Step, instants: Row) -> Row:
    """Return the bytes of a step that had not crossed, by iteration at an instant."""
    packets = step.crossed
    counts = np.searchsorted(packets.time, instants, "right")
    crossed_bytes = packets.before[counts]
    iterations = len(instants)
    total = step.until[:iterations]
    return np.maximum(total - crossed_bytes, 0.0)


def _spread(gaps: Row) -> float:
    """Return how far gaps are from the one in the middle, without the farthest."""
    middle = np.median(gaps)
    deviations = np.abs(gaps - middle)
    nearest_first = np.sort(deviations)
    count = max(1, int(_NEAREST * len(deviations)))
    nearest = nearest_first[:count]
    return float(np.mean(nearest))
