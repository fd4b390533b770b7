"""Find what every step waits for, by order in time over all iterations.

A step's causes are what always came before it in its process: steps that it received,
steps that it sent. One whose answer follows a request at the steadiest distance waits
for that request alone. Gaps behind the last cause are the processes' own time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from emu.lab.fitting.conversations import Measured, Process, Unfittable
from emu.lab.fitting.steps import NOTE, Marks, Step

#: Number of a step, which of its moments, iterations before.
Cause: TypeAlias = tuple[int, int, int]
#: Moments of a step: when its first byte came, when its last did, and when all came but
#: what the kernel holds: a program that waits in ``send()`` goes on then.
BEGUN, GOT, DRAINED = range(3)
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


@dataclass(frozen=True, eq=False)
class FittedSteps(Measured):
    """Steps of every iteration with their causes, and the gaps behind them."""

    steps: tuple[Step, ...]
    causes: tuple[tuple[Cause, ...], ...]
    """Per step."""
    held: tuple[float, ...]
    """Bytes of a step that the kernel holds when its sender goes on; 0 if all."""

    def part(self, first: int, last: int) -> FittedSteps:
        """Return the iterations from ``first`` until before ``last``."""
        some = slice(first, last)
        return replace(
            self,
            steps=tuple(step.part(some) for step in self.steps),
            starts=self.starts[some],
            ends=self.ends[some],
            first=self.first + first,
        )

    @cached_property
    def gaps(self) -> NDArray[np.float64]:
        """Seconds of every step behind the last of its causes, by iteration.

        Of a first iteration, whose causes are before the fit, since its beginning.
        """
        times = _Times(self.steps, self.held)
        began = float(self.starts[0])
        gaps = [times.gap(number, own, began) for number, own in enumerate(self.causes)]
        return np.maximum(np.array(gaps), 0.0)


def overtaken(found: FittedSteps) -> list[Step]:
    """Return large steps that were on their way when their process sent the next one.

    Their senders did not wait for all of it in ``send()``, since the kernel held the
    rest. How much it holds depends on the NIC.
    """
    large = []
    for step, causes in zip(found.steps, found.causes, strict=True):
        for number, moment, lag in causes:
            before = found.steps[number]
            if moment == GOT or lag or np.median(before.sizes) < HELD:
                continue
            if np.mean(before.last > step.first) >= ALWAYS and before not in large:
                large.append(before)
    return large


def find_causes(steps: Sequence[Step], marks: Marks, skip: int) -> FittedSteps:
    """Return the steps with their causes, in iterations with all, behind ``skip`` more.

    Raises Unfittable when there are too few.
    """
    count = min(len(step.first) for step in steps)
    span = longest(steps)
    if span.stop - span.start < 4:
        raise Unfittable(
            f"{span.stop - span.start} iterations of {count} follow one another with "
            "all of their parts, a fit needs 4"
        )
    some = tuple(step.part(span) for step in steps)
    begins = {clock: times[: count + 1] for clock, times in marks.items()}
    phases = {clock: times[:-1][span] for clock, times in begins.items()}
    latest = np.max([*begins.values()], axis=0)
    starts = latest[:-1][span]
    ends = latest[1:][span]
    causes, holds = _behind_senders(some, _Order(some, phases).causes())
    return FittedSteps(starts, ends, span.start + skip, some, causes, holds)


def longest(steps: Sequence[Step]) -> slice:
    """Return the longest stretch of iterations that have all steps."""
    count = min(len(step.first) for step in steps)
    firsts = np.array([step.first[:count] for step in steps])
    return longest_run(~np.isnan(firsts).any(axis=0))


def longest_run(good: NDArray[np.bool_]) -> slice:
    """Return where the longest row of True stands, the first of as long ones."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], good, [False]])))
    stretches = edges.reshape(-1, 2).tolist()
    return slice(*max(stretches, key=lambda one: one[1] - one[0], default=(0, 0)))


class _Times:
    """Moments of steps by iteration."""

    def __init__(self, steps: Sequence[Step], held: Sequence[float] = ()) -> None:
        self._ends = [[step.first, step.last] for step in steps]
        for moments, step, some in zip(self._ends, steps, held, strict=False):
            bytes_come = step.until - np.minimum(some, step.sizes)
            moments.append(step.crossed.when(bytes_come))

    def of(self, cause: Cause) -> NDArray[np.float64]:
        """Return the seconds of a cause by the iteration of its effect."""
        number, end, lag = cause
        times = self._ends[number][end]
        before = np.full(lag, np.nan)
        return np.concatenate([before, times[: len(times) - lag]])

    def gap(
        self, number: int, causes: Sequence[Cause], began: float
    ) -> NDArray[np.float64]:
        """Return the seconds of a step behind the last of its causes."""
        first = self._ends[number][0]
        if not causes:
            return first - began
        before = np.max(
            [np.nan_to_num(self.of(c), nan=-np.inf) for c in causes], axis=0
        )
        return first - np.where(np.isinf(before), began, before)


class _Order(_Times):
    """Order of the moments of steps: what came first, and what each waits for."""

    def __init__(self, steps: Sequence[Step], starts: Marks) -> None:
        super().__init__(steps)
        self._steps = steps
        numbers = range(len(steps))
        #: Seconds of a moment since its iteration began, median.
        self._phase = {
            (n, end): float(np.median(self.of((n, end, 0)) - starts[steps[n].clock]))
            for n in numbers
            for end in (BEGUN, GOT)
        }
        self._before = [self._precede(number) for number in numbers]
        waits = [self._await(number) for number in numbers]
        self._least = [self._reduce(own, waits) for own in waits]

    def causes(self) -> tuple[tuple[Cause, ...], ...]:
        """Return the causes of every step."""
        causes = []
        for number, step in enumerate(self._steps):
            alone = self._least[number]
            before = self._before[number]
            # What last came from the process that the step goes to.
            requests = [
                c
                for c in before
                if c[1] and self._steps[c[0]].source == step.destination
            ]
            if requests:
                request = max(requests, key=self._when)
                gap = self.gap(number, [request], np.nan)[request[2] :]
                others = self.gap(number, alone, np.nan)
                others = others[~np.isnan(others)]
                peers = step.source[1] == step.destination[1]
                # An answer is as steady behind its request as behind all causes.
                if _spread(gap) <= _spread(others) + STEADIER and (
                    not peers or float(np.median(gap)) < TOGETHER
                ):
                    alone = [request]
                    if peers:
                        alone += [c for c in before if not c[1] and c[2] == 0]
            causes.append(alone)
        return tuple(
            tuple(self._least[number] if self._has_peers(number, causes) else one)
            for number, one in enumerate(causes)
        )

    def _when(self, cause: Cause) -> tuple[int, float]:
        return -cause[2], self._phase[cause[0], GOT]

    def _precede(self, number: int) -> list[Cause]:
        """Return what always came before a step in its process, the latest of each."""
        step = self._steps[number]
        causes = list[Cause]()
        moments = [
            (k, BEGUN) for k, s in enumerate(self._steps) if s.source == step.source
        ]
        moments += [
            (k, GOT) for k, s in enumerate(self._steps) if s.destination == step.source
        ]
        mine = self._phase[number, BEGUN], number
        for k, end in moments:
            if self._steps[k].clock != step.clock:
                continue
            for lag in (0, 1, 2):
                if lag == 0 and (self._phase[k, end], k) >= mine:
                    continue
                gap = self.gap(number, [(k, end, lag)], np.nan)[lag:]
                if np.mean(gap >= 0) >= ALWAYS:
                    causes.append((k, end, lag))
                    break
        return causes

    def _await(self, number: int) -> list[Cause]:
        """Return what a step may wait for, without notes that came while it computed.

        A note lets a process send to its sender. The time of computing is steadier than
        the one since a note that came meanwhile, whose sender has a time of its own.
        """
        own = self._before[number]
        notes = [c for c in own if c[1] and np.median(self._steps[c[0]].sizes) <= NOTE]
        notes.sort(key=self._when)
        others = [cause for cause in own if cause not in notes]
        spreads = []
        for last in range(len(notes) + 1):
            gap = self.gap(number, [*others, *notes[:last]], np.nan)[2:]
            spreads.append(_spread(gap) if others or last else np.inf)
        least = min(spreads) + STEADIER
        count = max(n for n, each in enumerate(spreads) if _ALIKE * each <= least)
        return [*others, *notes[:count]]

    def _reduce(
        self, own: Sequence[Cause], waits: Sequence[Sequence[Cause]]
    ) -> list[Cause]:
        """Return the causes that no other of them has for a cause."""
        redundant = {
            (j, e, lag + further)
            for k, end, lag in own
            if not end
            for j, e, further in waits[k]
        }
        latest: dict[Process, Cause] = {}
        causes = []
        for cause in own:
            k, end, lag = cause
            if any((k, end, lag - less) in redundant for less in range(lag + 1)):
                continue
            peer = self._steps[k].source
            if not end:
                causes.append(cause)
            elif peer not in latest or self._when(latest[peer]) < self._when(cause):
                latest[peer] = cause
        return [*causes, *latest.values()]

    def _has_peers(self, number: int, chosen: Sequence[Sequence[Cause]]) -> bool:
        """Return True if a step is one of several that wait for more than its request.

        A server answers all whom it has received from: nothing comes between them.
        """
        if chosen[number] == self._least[number]:
            return False
        step = self._steps[number]
        phase = self._phase
        arrivals = [
            phase[k, GOT]
            for k, other in enumerate(self._steps)
            if (other.destination, other.clock) == (step.source, step.clock)
        ]
        for k, other in enumerate(self._steps):
            if k == number or (other.source, other.clock) != (step.source, step.clock):
                continue
            low, high = sorted((phase[number, BEGUN], phase[k, BEGUN]))
            is_free = not any(low < when < high for when in arrivals)
            if chosen[k] == self._least[k] and is_free:
                return True
        return False


def _behind_senders(
    steps: tuple[Step, ...], causes: tuple[tuple[Cause, ...], ...]
) -> tuple[tuple[tuple[Cause, ...], ...], tuple[float, ...]]:
    """Return the causes with senders that wait in ``send()``, and `FittedSteps.held`.

    A step that begins behind a large one of its process, and not with it, began when
    the kernel had taken that one, if it is as steady so: less of it was on its way
    then than the kernel holds. With the beginnings as causes programs at slower NICs
    sent too early, in the way of what was still to go: +6 to +10 %.
    """
    times = _Times(steps)
    holds = [0.0 if np.median(step.sizes) <= HELD else HELD for step in steps]
    behind = []
    for number, own in enumerate(causes):
        for k, moment, lag in own:
            gap = times.gap(number, [(k, moment, lag)], np.nan)[lag:]
            if moment == BEGUN and holds[k] and np.median(gap) >= TOGETHER:
                behind.append((number, k, lag))
                until = steps[k].until[: len(gap)]
                packets = steps[k].crossed
                began = steps[number].first[lag:]
                total = packets.before[np.searchsorted(packets.time, began, "right")]
                rest = np.maximum(until - total, 0.0)
                holds[k] = max(holds[k], float(np.quantile(rest, ALWAYS)))
    drain_times = _Times(steps, holds)
    all_causes: list[list[Cause]] = [list(own) for own in causes]
    for number, k, lag in behind:
        at = all_causes[number].index((k, BEGUN, lag))
        gaps = [
            drain_times.gap(number, [(k, moment, lag)], np.nan)[lag:]
            for moment in (BEGUN, DRAINED)
        ]
        if holds[k] < np.median(steps[k].sizes) and (
            _spread(gaps[1]) <= _spread(gaps[0]) + STEADIER
        ):
            all_causes[number][at] = (k, DRAINED, lag)
    drains = {k for own in all_causes for k, moment, _ in own if moment == DRAINED}
    return (
        tuple(tuple(own) for own in all_causes),
        tuple(some if k in drains else 0.0 for k, some in enumerate(holds)),
    )


def _spread(gaps: NDArray[np.float64]) -> float:
    """Return how far gaps are from the one in the middle, without the farthest."""
    off = np.sort(np.abs(gaps - np.median(gaps)))
    return float(np.mean(off[: max(1, int(0.9 * len(off)))]))
