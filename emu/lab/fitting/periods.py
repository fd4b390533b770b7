"""Find iterations by the period in what crosses, where nothing else marks them.

Between two processes an iteration is a burst, as often and as large as the others: the
silence that parts bursts is not known and is tried out. Bursts of one pair are the
iterations of a run when all others send as much in each; else every process of one
program may have its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from emu.array_types import Ints, Mask
from emu.lab.fitting.causes import longest
from emu.lab.fitting.conversations import Packets, Unfittable
from emu.lab.fitting.repeats import count_turns
from emu.lab.fitting.steps import ALL, MOST, Marks, Row, steps_between
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


def find_marks(
    packets: Packets,
    traffic: Traffic,
    count: int | None = None,
) -> Marks:
    """Return the beginnings of iterations, of all processes or of each its own.

    A ``count`` of iterations decides where several periods may make one. Raises
    Unfittable when there is no period, and says what came nearest; and when it is not
    clear how many make an iteration.
    """
    try:
        times = _of_all(packets, traffic)
    except Unfittable as why:
        programs = len(traffic.programs)
        for program in range(programs):
            marks = _of_each(packets, traffic, program)
            if marks:
                return marks
        raise Unfittable(
            f"{why}; run more iterations, or state with --mark LINE what a program "
            "prints when one begins"
        ) from why

    began = times.tolist()
    numbers = range(len(began))
    turns = count_turns(began, numbers, count)
    return {ALL: times[::turns]}


def _of_all(packets: Packets, traffic: Traffic) -> Row:
    """Return beginnings of as many iterations as can be; Unfittable if aperiodic."""
    nearest = f"no two processes sent {FEWEST} bursts of as many bytes in a row"
    nearest_packets = 0
    best = 0
    choice = None
    trials: set[tuple[int, str]] = set()
    candidates = sorted(_candidates(packets), key=_rank)
    for times in candidates:
        length = len(times)
        usual_gap = np.median(np.diff(times))
        period = f"{usual_gap:.2g}"
        # Several pairs of processes tell the same period: one of them is tried.
        trial = (length, period)
        is_known = trial in trials
        if is_known or length <= best:
            continue
        trials.add(trial)

        try:
            iterations = _whole(packets, traffic, times)
        except Unfittable as why:
            is_within = _within(packets, times)
            count = int(np.count_nonzero(is_within))
            if count > nearest_packets:
                nearest_packets = count
                nearest = f"bursts come every {period} s, {length} times, but {why}"
            continue
        if iterations > best:
            best = iterations
            choice = times

    if choice is None:
        raise Unfittable(nearest)
    return choice


def _rank(times: Row) -> tuple[int, float]:
    """Return what orders candidates: the longest first, of these the steadiest."""
    return -len(times), _unsteadiness(times)


def _within(packets: Packets, times: Row) -> Mask:
    """Return which packets came from the first of some times until before the last."""
    is_past_first = packets.time >= times[0]
    is_before_last = packets.time < times[-1]
    return np.asarray(is_past_first & is_before_last)


def _unsteadiness(times: Row) -> float:
    """Return how far gaps are from the one in the middle, as a share of that."""
    gaps = np.diff(times)
    usual = np.median(gaps)
    distances = np.abs(gaps - usual)
    return float(np.median(distances) / usual)


def _whole(
    packets: Packets,
    traffic: Traffic,
    times: Row,
) -> int:
    """Return how many iterations in a row have all parts, if these begin some.

    Raises Unfittable when they are no iterations of the packets.
    """
    is_within = _within(packets, times)
    bytes_within = packets.bytes[is_within].sum()
    share = float(bytes_within / packets.bytes.sum())
    if share < _MOST:
        rest = 1 - share
        raise Unfittable(f"{rest:.0%} of all bytes crossed before and after")

    steps = steps_between(packets, traffic, {ALL: times})
    span = longest(steps)
    count = len(times[span])
    least = MOST * (len(times) - 1)
    if count < least:
        raise Unfittable(f"{count} in a row have all of their parts")
    return count


def _of_each(
    packets: Packets,
    traffic: Traffic,
    program: int,
) -> Marks:
    """Return the iterations of every process of one program; empty if one has none.

    Empty as well where two of them talk, or two others: those have no iterations.
    """
    marks = {}
    for number, process in enumerate(packets.processes):
        _, program_of_process = process
        if program_of_process != program:
            continue
        is_source = packets.source == number
        is_destination = packets.destination == number
        exchanged = packets.some(is_source | is_destination)
        try:
            marks[process] = _of_all(exchanged, traffic)
        except Unfittable:
            return {}

    ends = np.stack([packets.source, packets.destination])
    pairs = np.unique(ends, axis=1)
    for pair in pairs.T:
        processes = {packets.processes[number] for number in pair}
        with_marks = processes & marks.keys()
        if len(with_marks) != 1:
            return {}
    return marks


def _candidates(packets: Packets) -> Iterator[Row]:
    """Yield beginnings of bursts of the usual size, in the longest row of them.

    By pair of processes, and by the silence that parts bursts.
    """
    count = len(packets.processes)
    pairs = packets.source * count + packets.destination
    for pair in np.unique(pairs).tolist():
        stream = packets.some(pairs == pair)
        gaps = np.diff(stream.time)
        longest_gap = float(gaps.max(initial=0.0))
        if longest_gap <= _LEAST:
            continue

        counts = set()
        silences = np.geomspace(longest_gap, _LEAST, _TRIES)
        for silence in silences[1:].tolist():
            silent_places = np.flatnonzero(gaps > silence)
            first = np.append(0, silent_places + 1)
            count_of_bursts = len(first)
            # Another silence that parts it into as many bursts parts it alike.
            is_known = count_of_bursts in counts
            if is_known or count_of_bursts < FEWEST:
                continue
            counts.add(count_of_bursts)
            times = _longest_row(stream, first)
            if len(times) >= FEWEST:
                yield times


def _longest_row(sent: Packets, first: Ints) -> Row:
    """Return the beginnings of bursts of the usual size, as many as none is missing.

    ``first`` are the numbers of their first packets.
    """
    sizes = np.add.reduceat(sent.bytes, first)
    usual = usual_size(sizes)
    distance = np.abs(sizes - usual)
    tolerance = max(_BYTES, _ALIKE * usual)
    is_usual = distance <= tolerance
    usual_first = first[is_usual]
    began: Row = sent.time[usual_first]
    if len(began) < FEWEST:
        return began

    gaps = np.diff(began)
    longest_gap = _MISSING * np.median(gaps)
    last_before = np.flatnonzero(gaps > longest_gap)
    rows: list[Row] = np.split(began, last_before + 1)
    return max(rows, key=len)


def usual_size(sizes: Sequence[int] | Ints) -> int:
    """Return the size in the middle of all bytes: there may be many small ones."""
    ranks = np.sort(sizes)
    total = np.cumsum(ranks)
    half = total[-1] / 2
    middle = np.searchsorted(total, half)
    return int(ranks[middle])
