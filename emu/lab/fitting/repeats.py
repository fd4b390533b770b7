"""Periods of a run: of how many bytes one is, and how many of it make an iteration.

Programs that repeat send the same bytes, while their times vary. So the period is
looked for in the bytes at which bursts begin. Several alike within an iteration, as the
sums of DDP's buckets, are told from iterations by their times, which come in turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from emu.array_types import Floats, Ints
from emu.lab.fitting.conversations import Unfittable

Row: TypeAlias = Floats
#: Bytes that crossed before something.
Places: TypeAlias = Ints
#: Bytes, and share of the period, by which bursts may begin beside their place.
_BYTES = 256
_BESIDE = 0.002
#: Bursts from which a period is followed, and periods that are tried.
_STARTS = 8
_MOST_TRIES = 48
#: Share of the best cover from which a shorter period is as good.
_AS_GOOD = 0.8
#: Least share of the run in which bursts begin at their places.
_COVERED = 0.4
#: Periods that an iteration may have, and iterations that show it.
_MOST_TURNS = 32
_FEWEST = 4
#: Share of the bytes of an iteration by which periods make up another, and bursts that
#: are looked at.
_SETTLED = 0.05
_MOST_PLACES = 4000
#: Periods longer than the third longest count as long as it. A start, an end or a
#: pause makes one or two, which say nothing of turns; a turn that is long makes three
#: at least, in the fewest iterations without those that warm up.
_FEWEST_LONG = 3
#: Share of the median by which times of alike periods vary for no reason.
_ALIKE = 0.02
#: Share of their variation that turns explain: iterations for sure, and perhaps. A
#: multiple explains a little more by chance.
_SURE = 0.7
_PERHAPS = 0.45
_MULTIPLE = 0.75


@dataclass(frozen=True)
class Chain:
    """Bursts that begin whole periods apart."""

    period: float
    """Bytes."""
    bursts: list[int]
    """Numbers of the bursts."""
    turns: list[int]
    """Number of the period with which each begins."""

    def cover(self, total: int) -> float:
        """Return the share of the periods of all bytes that begin with a burst."""
        # A whole number of periods begins with one burst more than it has.
        periods = total / self.period + 1
        return len(self.bursts) / periods


def find_chain(places: Places, total: int) -> Chain | None:
    """Return the shortest period in bytes with which bursts repeat; None without one.

    ``places`` are the bytes before each burst, ascending; ``total`` those of all.
    """
    count = len(places)
    step = 1 + count // (2 * _STARTS)
    starts = range(0, count // 2, step)
    chains = []
    for period in _find_periods(places, total):
        candidates = [_follow(places, start, period) for start in starts]
        longest = max(candidates, key=_count_bursts)
        chains.append(longest)

    covers = [chain.cover(total) for chain in chains]
    best = max(covers, default=0.0)
    least = max(_COVERED, _AS_GOOD * best)
    for chain, cover in zip(chains, covers, strict=True):
        is_often = len(chain.bursts) > _FEWEST
        if is_often and cover >= least:
            return chain
    return None


def _count_bursts(chain: Chain) -> int:
    return len(chain.bursts)


def _find_periods(places: Places, total: int) -> list[int]:
    """Return the distances that most bursts have, ascending."""
    step = 1 + len(places) // _MOST_TRIES
    earlier = places[::step, None]
    differences = places - earlier
    distances = np.sort(differences.ravel())
    longest = total // _FEWEST
    first = np.searchsorted(distances, _BYTES, "right")
    last = np.searchsorted(distances, longest, "right")
    distances = distances[first:last]
    if not len(distances):
        return []

    # Alike distances are of one period: the one in the middle stands for it.
    shares = _BESIDE * distances[1:]
    tolerance = np.maximum(_BYTES, shares)
    is_new = np.diff(distances) > tolerance / 2
    cuts = np.flatnonzero(is_new)
    groups = np.split(distances, cuts + 1)
    groups.sort(key=len, reverse=True)
    periods = []
    for group in groups[:_MOST_TRIES]:
        usual = np.median(group)
        periods.append(int(usual))
    return sorted(periods)


def _follow(places: Places, start: int, period: float) -> Chain:
    """Return the bursts whole periods behind one; some may have run together."""
    tolerance = max(_BYTES, _BESIDE * period)
    bursts = [start]
    turns = [0]
    turn = 0
    last_place = places[start]
    for burst in range(start + 1, len(places)):
        place = places[burst]
        distance = place - last_place
        count = round(distance / period)
        offset = abs(distance - count * period)
        if count and offset <= count * tolerance:
            turn += count
            bursts.append(burst)
            turns.append(turn)
            last_place = place
    return Chain(period, bursts, turns)


def count_turns(
    times: Sequence[float],
    turns: Sequence[int],
    iterations: int | None = None,
) -> int:
    """Return how many periods make an iteration, by the times at which they began.

    ``turns`` are the numbers of the periods. A stated number of ``iterations`` decides.
    Raises Unfittable when it does not fit, and where two readings are as likely.
    """
    first = turns[0]
    last = turns[-1]
    count = last - first + 1
    if iterations is not None:
        return _turns_of(count, iterations)

    began = np.asarray(times)
    positions = np.asarray(turns)
    largest = min(_MOST_TURNS, count // _FEWEST)
    shares = {1: 0.0}
    for number in range(2, largest + 1):
        shares[number] = _explain(began, positions, number)
    largest_share = max(shares.values())
    likely = max(_PERHAPS, _MULTIPLE * largest_share)
    numbers = [number for number, share in shares.items() if share >= likely]
    number = numbers[0] if numbers else 1
    if number == 1 or shares[number] >= _SURE:
        return number

    length = times[-1] - times[0]
    seconds = length / max(1, count - 1)
    longer = number * seconds
    fewer = count // number
    raise Unfittable(
        f"what crossed reads as {count} iterations of {seconds:.3g} s, or as "
        f"{fewer} of {longer:.3g} s with {number} alike parts: "
        f"--iterations {count} or --iterations {fewer} decides"
    )


def _turns_of(count: int, iterations: int) -> int:
    """Return how many of the periods make one of a stated number of iterations."""
    number = max(1, round(count / iterations))
    difference = abs(count / number - iterations)
    # What a program sends before and after may look like one more.
    if difference > 1 + 0.1 * iterations:
        raise Unfittable(
            f"{count} periods repeat, which are no {iterations} iterations"
        )
    return number


def _explain(times: Row, turns: Ints, number: int) -> float:
    """Return the share of the variation of periods that their turns explain."""
    is_next = np.diff(turns) == 1
    lengths = np.diff(times)[is_next]
    earlier_turns = turns[:-1][is_next]
    residues = earlier_turns % number
    # Programs warm up.
    warm = len(lengths) // 4
    lengths = lengths[warm:]
    residues = residues[warm:]
    least = number * (_FEWEST - 1)
    if len(lengths) < least:
        return 0.0

    ascending = np.sort(lengths)
    longest = ascending[-_FEWEST_LONG]
    lengths = np.minimum(lengths, longest)
    usual = np.median(lengths)
    variation = np.abs(lengths - usual)
    if variation.mean() <= _ALIKE * usual:
        return 0.0

    rest = 0.0
    for residue in range(number):
        part = lengths[residues == residue]
        if len(part):
            middle = np.median(part)
            distances = np.abs(part - middle)
            rest += distances.sum()
    unexplained = rest / variation.sum()
    return float(1 - unexplained)


def settle(edges: Places, places: Places) -> Places:
    """Return the bytes before each iteration, where marks fell into what was sent.

    A mark is of what was called before it, of which some crosses behind it. So an
    iteration begins at one of the ``places`` that repeat as often as the marks.
    """
    volumes = np.diff(edges)
    usual = float(np.median(volumes))
    chain = None
    is_clear = _FEWEST < len(places) <= _MOST_PLACES
    if usual and is_clear:
        total = int(places[-1])
        chain = find_chain(places, total)
    if chain is None:
        return edges

    periods = round(usual / chain.period)
    count = max(1, periods)
    volume = count * chain.period
    difference = abs(volume / usual - 1)
    if difference > _SETTLED:
        return edges

    known = places[chain.bursts].astype(np.float64)
    turns = np.array(chain.turns, dtype=np.float64)
    positions = _convert(edges, known, turns)
    # Iterations begin with the same one of their periods, the nearest to most marks.
    distances = []
    for residue in range(count):
        iterations = (positions - residue) / count
        offsets = np.abs(iterations - np.rint(iterations))
        distance = np.median(offsets)
        distances.append(float(distance))
    residue = int(np.argmin(distances))

    nearest = (positions - residue) / count
    iterations = np.rint(nearest)
    steps = np.diff(iterations)
    if np.any(steps != 1):
        return edges
    begun = residue + count * iterations
    settled = _convert(begun, turns, known)
    return np.rint(settled).astype(np.int64)


def _convert(
    values: Row | Places,
    known: Row,
    results: Row,
) -> Row:
    """Return what belongs to values between known pairs, and beyond them as far on."""
    first = known[0]
    last = known[-1]
    rise = results[-1] - results[0]
    slope = rise / (last - first)
    short = np.minimum(values - first, 0.0)
    excess = np.maximum(values - last, 0.0)
    between = np.interp(values, known, results)
    beyond = slope * (short + excess)
    return np.asarray(between + beyond)
