"""Causes of steps by what threads did: what each had sent, received and waited for.

Where every call of a step was noted, it waits for the step that its thread had sent
before, for what the thread received or was woken by since, and for its own computing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from emu.array_types import Array
from emu.lab.fitting.calls import Pause, Threads
from emu.lab.fitting.causes import (
    ALWAYS,
    BEGUN,
    DRAINED,
    GOT,
    STEADIER,
    TOGETHER,
    Cause,
    FittedSteps,
    Own,
    Times,
    on_its_way,
)
from emu.lab.fitting.conversations import Process
from emu.lab.fitting.steps import Step
from emu.prediction.analysis.traffic import Traffic

#: Step and iteration by the call that begins it.
_Begins: TypeAlias = Mapping[int, tuple[int, int]]
_Steps: TypeAlias = Sequence[Step]
_Pauses: TypeAlias = Sequence[Pause]
_Row: TypeAlias = Sequence[Cause]
#: Share of the iterations in which a thread was woken by what may be a cause.
_OFTEN = 0.3
#: Iterations before its effect in which a receipt is looked for.
_LAGS = 3


def follow_threads(found: FittedSteps, traffic: Traffic) -> FittedSteps:
    """Return the steps with causes by the calls that were noted.

    Steps of which some were not keep what order in time says.
    """
    steps = found.steps
    threads = Threads(traffic)
    begins = _list_begins(steps)
    holds = []
    for step, held in zip(steps, found.held, strict=True):
        hold = _hold(step, held)
        holds.append(hold)
    sends = _Sends(steps, holds)

    rows = []
    computing = {}
    for number, step in enumerate(steps):
        row = found.causes[number]
        causes = sends.behind(row, number)
        if step.is_noted:
            calls = step.call.astype(int)
            pauses = [threads.pause(call, begins) for call in calls]
            sent_earlier = _sent_earlier(pauses, begins)
            earlier = sends.behind(sent_earlier, number)
            receipts = _find_receipts(pauses, number, steps)
            causes = _join(causes, earlier, receipts)

            part = None
            if receipts:
                part = sends.compute(pauses, earlier)
            if part is not None:
                computing[number] = part
                causes.remove(part.cause)
        rows.append(tuple(causes))

    waited = _list_waited(rows, computing, holds)
    return replace(
        found,
        causes=tuple(rows),
        held=waited,
        computing=computing,
    )


def _list_begins(steps: _Steps) -> _Begins:
    begins = {}
    for number, step in enumerate(steps):
        calls = step.call.tolist()
        for iteration, value in enumerate(calls):
            if value >= 0:
                call = int(value)
                begins[call] = (number, iteration)
    return begins


def _list_waited(
    rows: Sequence[_Row],
    computing: Mapping[int, Own],
    holds: Sequence[float],
) -> tuple[float, ...]:
    """Return what the kernel held of steps that a cause waits for; 0 of the others."""
    awaited = [part.cause for part in computing.values()]
    for row in rows:
        awaited.extend(row)

    waited = [0.0] * len(holds)
    for cause in awaited:
        if cause.moment == DRAINED:
            number = cause.step
            waited[number] = holds[number]
    return tuple(waited)


def _join(
    causes: _Row,
    earlier: _Row,
    receipts: _Row,
) -> list[Cause]:
    """Return all causes once; receipts that order tells only where there are none."""
    if receipts:
        causes = [cause for cause in causes if cause.moment != GOT]
    joined = [*causes, *earlier, *receipts]
    return list(dict.fromkeys(joined))


def _hold(step: Step, held: float) -> float:
    """Return the bytes that the kernel held when a sender had waited; 0 if it did not.

    As they were estimated, where calls were not noted.
    """
    if not step.is_noted:
        return held
    waits = step.taken - step.first
    usual_wait = np.median(waits)
    if usual_wait < TOGETHER:
        return 0.0

    rest = on_its_way(step, step.taken)
    usual = float(np.median(rest))
    if usual >= np.median(step.sizes):
        return 0.0
    return max(usual, 1.0)


class _Sends:
    """Steps with what the kernel held of each when its sender went on."""

    def __init__(self, steps: _Steps, held: Sequence[float]) -> None:
        self._steps = steps
        self._held = held
        self._times = Times(steps, held)

    def behind(self, causes: _Row, number: int) -> list[Cause]:
        """Return the causes that come first, sends with what their calls waited for."""
        chosen = []
        for cause in causes:
            step = self._steps[cause.step]
            known = cause
            if cause.moment != GOT and step.is_noted:
                moment = BEGUN
                if self._waits(cause, number):
                    moment = DRAINED
                known = cause._replace(moment=moment)
            if _is_earlier(known, number, self._steps):
                chosen.append(known)
        return chosen

    def _waits(self, cause: Cause, number: int) -> bool:
        """Return True if a step begins when the kernel has taken all of its cause."""
        lag = cause.lag
        first = self._steps[number].first
        taken = self._steps[cause.step].taken
        count = len(first) - lag
        limits = taken[:count] - STEADIER
        is_over = first[lag:] >= limits
        share = float(np.mean(is_over))
        held = self._held[cause.step]
        return held > 0 and share >= ALWAYS

    def compute(self, pauses: _Pauses, earlier: _Row) -> Own | None:
        """Return what a thread computes until it is ready, where it received once."""
        is_one = _row(pauses, "groups") == 1
        receives_once = np.mean(is_one) >= ALWAYS
        if not earlier or not receives_once:
            return None

        (cause,) = earlier
        ready = _row(pauses, "ready")
        seconds = ready - self._times.of(cause)
        seconds = np.maximum(seconds, 0.0)
        is_known = ~np.isnan(seconds)
        if not is_known.any():
            return None

        known_seconds = seconds[is_known]
        usual = float(np.median(known_seconds))
        if usual < TOGETHER:
            return None
        seconds = np.where(is_known, seconds, usual)
        return Own(cause, seconds)


def _is_earlier(
    cause: Cause,
    number: int,
    steps: _Steps,
) -> bool:
    """Return True if a cause usually comes first: there are no cycles then."""
    if cause.lag > 0:
        return True

    step = steps[cause.step]
    instants = step.first
    if cause.moment == GOT:
        instants = step.last
    moment = float(np.median(instants))
    effects = steps[number].first
    effect = float(np.median(effects))
    # Of equals the numbers decide.
    return (moment, cause.step) < (effect, number)


def _sent_earlier(pauses: _Pauses, begins: _Begins) -> list[Cause]:
    """Return the step that a thread always had sent last; empty if there is none."""
    counts: Counter[Cause] = Counter()
    for iteration, pause in enumerate(pauses):
        if pause.before < 0:
            continue
        number, begun = begins[pause.before]
        lag = iteration - begun
        cause = Cause(number, BEGUN, lag)
        counts[cause] += 1

    # The first iterations have theirs outside the fit.
    inside = len(pauses) - 2
    least = ALWAYS * inside
    usual = counts.most_common(1)
    return [cause for cause, count in usual if count >= least]


def _find_receipts(
    pauses: _Pauses,
    number: int,
    steps: _Steps,
) -> list[Cause]:
    """Return what had come when a thread had received, or was woken, by its source.

    Only from those that it read itself; another thread may wake it for anybody's.
    """
    counts: Counter[Cause] = Counter()
    latest = _Latest(pauses)
    receiver = steps[number].source
    sources: dict[Process, list[int]] = defaultdict(list)
    for place, step in enumerate(steps):
        if step.destination == receiver:
            sources[step.source].append(place)
    for places in sources.values():
        receipts = latest.receipts(places, steps)
        counts.update(receipts)

    least = _OFTEN * len(pauses)
    causes = []
    for cause, count in counts.items():
        is_often = count >= least
        if is_often and _is_earlier(cause, number, steps):
            causes.append(cause)
    return causes


def _row(pauses: _Pauses, name: str) -> Array:
    """Return one field of all pauses."""
    values = [getattr(pause, name) for pause in pauses]
    return np.array(values)


class _Latest:
    """Receipts that a thread knew at the ends of its pauses."""

    def __init__(self, pauses: _Pauses) -> None:
        self._pauses = pauses
        self._begun = _row(pauses, "begun")
        self._over = _row(pauses, "over")
        self._is_woken = _row(pauses, "is_woken")

    def receipts(self, places: list[int], steps: _Steps) -> list[Cause]:
        """Return the newest receipt of one source in every pause that has one.

        ``places`` are the numbers of its steps.
        """
        first = steps[places[0]]
        machine, _ = first.source
        count = len(self._pauses)
        newest = self._begun.copy()
        reads = [machine in pause.sources for pause in self._pauses]
        is_read = np.array(reads)
        is_read |= self._is_woken
        limits = self._over + STEADIER

        by_iteration: dict[int, Cause] = {}
        for place in places:
            last = steps[place].last
            for lag in range(_LAGS):
                known = count - lag
                arrivals = np.full(count, np.nan)
                arrivals[lag:] = last[:known]
                is_newer = arrivals >= newest
                is_newer &= arrivals <= limits
                is_newer &= is_read
                newest[is_newer] = arrivals[is_newer]

                receipt = Cause(place, GOT, lag)
                iterations = np.flatnonzero(is_newer)
                for iteration in iterations.tolist():
                    by_iteration[iteration] = receipt
        return [by_iteration[iteration] for iteration in sorted(by_iteration)]
