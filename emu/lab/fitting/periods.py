"""Find iterations by the period in what crosses, where nothing else marks them.

Between two processes an iteration is a burst, as often and as large as the others: the
silence that parts bursts is not known and is tried out. Bursts of one pair are the
iterations of a run when all others send as much in each; else every process of one
program may have its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from emu.lab.fitting.causes import longest
from emu.lab.fitting.conversations import Packets, Unfittable
from emu.lab.fitting.steps import ALL, MOST, Marks, steps_between
from emu.prediction.analysis.traffic import Traffic

#: Silences that are tried, and the least of them in seconds.
_TRIES = 48
_LEAST = 0.001
#: Bytes, and share of a burst, by which bursts are alike.
_BYTES = 64
_ALIKE = 0.02
#: Times of the usual period after which one is missing.
_MISSING = 1.8
#: Share of the bytes that iterations have to hold.
_MOST = 0.6
#: Bursts that make a period: fewer are none to be sure of.
FEWEST = 5


def find_marks(packets: Packets, traffic: Traffic) -> Marks:
    """Return the beginnings of iterations, of all processes or of each its own.

    Raises Unfittable when there is no period; says what came nearest.
    """
    try:
        return {ALL: _of_all(packets, traffic)}
    except Unfittable as why:
        for program in range(len(traffic.programs)):
            if own := _of_each(packets, traffic, program):
                return own
        raise Unfittable(
            f"{why}; run more iterations, or state with --mark LINE what a program "
            "prints when one begins"
        ) from why


def _of_all(packets: Packets, traffic: Traffic) -> NDArray[np.float64]:
    """Return beginnings of as many iterations as can be; Unfittable if aperiodic."""

    def unsteadiness(times: NDArray[np.float64]) -> float:
        apart = np.diff(times)
        return float(np.median(np.abs(apart - np.median(apart))) / np.median(apart))

    tries = _candidates(packets)
    candidates = sorted(tries, key=lambda one: (-len(one), unsteadiness(one)))
    nearest = f"no two processes sent {FEWEST} bursts of as many bytes in a row"
    most = 0
    best = 0
    choice = None
    trials: set[tuple[int, str]] = set()
    for times in candidates:
        every = f"{np.median(np.diff(times)):.2g}"
        if (len(times), every) in trials or len(times) <= best:
            continue
        trials.add((len(times), every))
        try:
            whole = _whole(packets, traffic, times)
        except Unfittable as why:
            within = np.sum((packets.time >= times[0]) & (packets.time < times[-1]))
            if within > most:
                nearest = f"bursts come every {every} s, {len(times)} times, but {why}"
                most = int(within)
            continue
        if whole > best:
            best = whole
            choice = times
    if choice is None:
        raise Unfittable(nearest)
    return choice


def _whole(packets: Packets, traffic: Traffic, times: NDArray[np.float64]) -> int:
    """Return how many iterations in a row have all parts, if these begin some.

    Raises Unfittable when they are no iterations of the packets.
    """
    when = (packets.time >= times[0]) & (packets.time < times[-1])
    share = float(packets.bytes[when].sum() / packets.bytes.sum())
    if share < _MOST:
        raise Unfittable(f"{1 - share:.0%} of all bytes crossed before and after")
    whole = len(times[longest(steps_between(packets, traffic, {ALL: times}))])
    if whole < MOST * (len(times) - 1):
        raise Unfittable(f"{whole} in a row have all of their parts")
    return whole


def _of_each(packets: Packets, traffic: Traffic, program: int) -> Marks:
    """Return the iterations of every process of one program; empty if one has none."""
    periods = {}
    for number, process in enumerate(packets.processes):
        if process[1] == program:
            mine = (packets.source == number) | (packets.destination == number)
            try:
                periods[process] = _of_all(packets.some(mine), traffic)
            except Unfittable:
                return {}
    pairs = np.unique(np.stack([packets.source, packets.destination]), axis=1).T
    own = [{packets.processes[end] for end in pair} & {*periods} for pair in pairs]
    ends = {len(each) for each in own}
    return periods if ends == {1} else {}


def _candidates(packets: Packets) -> Iterator[NDArray[np.float64]]:
    """Yield beginnings of bursts of the usual size, in the longest row of them.

    By pair of processes, and by the silence that parts bursts.
    """
    pair = packets.source * len(packets.processes) + packets.destination
    for way in np.unique(pair).tolist():
        some = packets.some(pair == way)
        gaps = np.diff(some.time)
        most = float(gaps.max(initial=0.0))
        if most <= _LEAST:
            continue
        keys = set()
        for silence in np.geomspace(most, _LEAST, _TRIES)[1:].tolist():
            first = np.append(0, np.flatnonzero(gaps > silence) + 1)
            if len(first) in keys or len(first) < FEWEST:
                continue
            keys.add(len(first))
            sizes = np.add.reduceat(some.bytes, first)
            usual = usual_size(sizes)
            good = np.abs(sizes - usual) <= max(_BYTES, _ALIKE * usual)
            if good.sum() < FEWEST:
                continue
            began = some.time[first[good]]
            apart = np.diff(began)
            missing = np.flatnonzero(apart > _MISSING * np.median(apart)) + 1
            times = max(np.split(began, missing), key=len)
            if len(times) >= FEWEST:
                yield times


def usual_size(sizes: Sequence[int] | NDArray[np.int64]) -> int:
    """Return the size in the middle of all bytes: there may be many small ones."""
    ranks = np.sort(sizes)
    total = np.cumsum(ranks)
    return int(ranks[np.searchsorted(total, total[-1] / 2)])
