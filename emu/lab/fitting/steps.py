"""Cut what processes send each other into steps, the same in every iteration.

The bytes that one process sends another in an iteration are cut where it fell silent,
and behind packets that are not full. What is cut at the same byte in many iterations
ends a step in all: packets wait here and there, programs where they always do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from emu.lab.fitting.conversations import Packets, Process, Unfittable
from emu.prediction.analysis.traffic import Traffic

#: A number per iteration, or per packet.
Row: TypeAlias = NDArray[np.float64]
#: Seconds at which iterations began, by the process whose they are.
Marks: TypeAlias = Mapping[Process, Row]
_Rows: TypeAlias = tuple[Row, Row, Row, Row]
#: Stands for the process where iterations are those of all.
ALL: Process = (-1, -1)
#: Bytes by which a process lets another send, as gloo does. Without them in a ring a
#: chunk came early, in the way of answers: epochs of DistDGL were 1 to 3 % too long.
NOTE = 48
#: Bytes of a full packet; the last one of a message is shorter.
FULL = 1448
#: Bytes that a full packet has at the least, by the smallest MTU of a lab.
_SMALL = 524
#: Packets of the slower NIC, and seconds, of silence that part two steps.
_SILENT = 24
_SILENCE = 0.002
#: Share of the iterations in which steps are parted at the same byte: a note of gloo's
#: before its data was parted from it in 2 of 12, and came out +5.4 % without.
_OFTEN = 0.1
#: Share of the bytes of an iteration, and bytes, by which places are the same.
_NEAR = 0.005
_BYTES = 32
#: Full packets of an iteration beyond which one more or less is the same.
_MANY = 20
#: Share of the iterations that must be of as many bytes, or of as many steps.
MOST = 0.8
#: Share of all bytes that may cross in less than half of the iterations, or that
#: vary between two processes, as one step then.
_RARE = 0.01
#: Parts of an iteration that are tried for the quiet time of two processes.
_PHASES = 64


@dataclass(frozen=True, eq=False)
class Crossed:
    """Packets of one process to another, by time."""

    time: Row
    before: NDArray[np.int64]
    """Bytes before each of them, and of all."""

    def when(self, byte: Row) -> Row:
        """Return the seconds at which so many bytes had come."""
        place = np.searchsorted(self.before[1:], byte, "left")
        times = self.time[np.minimum(place, len(self.time) - 1)]
        return np.where(np.isnan(byte), np.nan, times)


@dataclass(frozen=True, eq=False)
class Step:
    """Bytes that a process sends another as one, by iteration; NaN where none were."""

    source: Process
    destination: Process
    number: int
    """Among the steps of the two, in an iteration."""
    clock: Process
    """Whose iterations it is part of, `ALL` or one's."""
    first: Row
    last: Row
    """Seconds of the first and the last packet."""
    sizes: Row
    """Bytes."""
    until: Row
    """Bytes of all that crossed when it had."""
    crossed: Crossed

    def part(self, some: slice) -> Step:
        """Return the step in some of the iterations."""
        rows = (getattr(self, name)[some] for name in _BY_ITERATION)
        return replace(self, **dict(zip(_BY_ITERATION, rows, strict=True)))

    def roll(self, by: int) -> Step:
        """Return the step with its parts so many iterations later."""
        rows = {name: np.roll(getattr(self, name), by) for name in _BY_ITERATION}
        for row in rows.values():
            row[slice(0, by) if by >= 0 else slice(by, None)] = np.nan
        return replace(self, **rows)


#: Fields of a step that have a value per iteration.
_BY_ITERATION = ("first", "last", "sizes", "until")


def steps_between(packets: Packets, traffic: Traffic, marks: Marks) -> list[Step]:
    """Return all steps of the iterations between marks.

    Raises Unfittable as `_parts`, and when two processes both have iterations of their
    own, or none has and there are several.
    """
    steps: list[Step] = []
    count = len(packets.processes)
    pair = packets.source * count + packets.destination
    for way in np.unique(pair).tolist():
        source, destination = divmod(way, count)
        ends = packets.processes[source], packets.processes[destination]
        slower = min(traffic.nics[0, ends[0][0]], traffic.nics[1, ends[1][0]])
        silence = max(_SILENCE, _SILENT * FULL / float(slower))
        some = packets.some(pair == way)
        # Something ended behind a silence, and behind a packet that is not full.
        over = (np.diff(some.time) > silence) | _short(some.bytes[:-1])
        curve = Crossed(some.time, np.append(0, np.cumsum(some.bytes)))
        total = float(packets.bytes.sum())
        who = describe_ends(ends, traffic)
        own = [*marks] if len(marks) == 1 else [end for end in ends if end in marks]
        if len(own) != 1:
            lengths = {one: np.median(np.diff(marks[one])) for one in own or marks}
            periods = ", ".join(
                f"{describe_ends([one], traffic)} {seconds:.4g} s"
                for one, seconds in lengths.items()
            )
            raise Unfittable(
                f"{who}: iterations of processes do not go together ({periods}), and "
                "it is not clear of which these are part: --mark LINE that one program "
                "prints says it"
            )
        clock = own[0]
        starts = marks[own[0]]
        parts = _parts(curve, np.append(True, over), starts, who, total)
        for number, rows in enumerate(parts):
            step = Step(*ends, number, clock, *rows, crossed=curve)
            places = np.flatnonzero(~np.isnan(step.first))
            late = np.searchsorted(starts, step.first[places], "right") - 1 - places
            steps.append(step.roll(int(np.median(late))))
    return steps


def _short(sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which packets are not full, as the last of a message."""
    values, places = np.unique(sizes, return_inverse=True)
    usual = int(values[np.bincount(places, sizes).argmax()]) if len(sizes) else FULL
    other = usual if usual >= _SMALL else FULL  # of another MTU
    return np.asarray((sizes % FULL != 0) & (sizes % other != 0))


def _parts(
    crossed: Crossed, ended: NDArray[np.bool_], marks: Row, who: str, total: float
) -> Iterator[_Rows]:
    """Yield the rows `_BY_ITERATION` of every step.

    ``ended``: per packet, if what came before it was over. Raises Unfittable where
    ``who`` sends neither as many bytes in every iteration, nor as often.
    """
    time = crossed.time
    before = crossed.before
    edges = np.searchsorted(time, marks + _quiet(time, marks))
    volumes = np.diff(before[edges])
    if np.mean(volumes > 0) < 0.5:
        if volumes.sum() > _RARE * total:
            raise Unfittable(
                f"{who} sent {volumes.sum():,} bytes in "
                f"{np.mean(volumes > 0):.0%} of the iterations: they have no part in "
                "common; --mark LINE states others, --skip leaves the first ones out"
            )
        return
    joints = [
        before[first + np.flatnonzero(ended[first:last])] - before[first]
        for first, last in pairwise(edges.tolist())
    ]
    bounds = _bounds([each[each > 0] for each in joints], volumes)
    # So little varies in what Ray's processes say beside their objects.
    if bounds is None and volumes.sum() <= _RARE * total:
        bounds = [np.zeros(len(volumes)), volumes * 1.0]
    if bounds is None:
        raise Unfittable(
            f"{who} sent {np.quantile(volumes, 0.1):,.0f} to "
            f"{np.quantile(volumes, 0.9):,.0f} bytes in an iteration, in "
            f"{min(map(len, joints))} to {max(map(len, joints))} pieces: these are no "
            "iterations that repeat; --mark LINE states others"
        )
    for begin, end in pairwise(bounds):
        sizes = end - begin
        until = before[edges[:-1]] + end
        at = np.searchsorted(before[1:], before[edges[:-1]] + begin, "right")
        to = np.searchsorted(before[1:], until, "left")
        first, last = (time[np.minimum(place, len(time) - 1)] for place in (at, to))
        there = (volumes > 0) & ~np.isnan(sizes)
        rows = first, np.maximum(first, last), sizes, until
        first, last, sizes, until = (np.where(there, row, np.nan) for row in rows)
        yield first, last, sizes, until


def describe_ends(ends: Sequence[Process], traffic: Traffic) -> str:
    """Return processes in words, the first of them to the second."""
    return " to ".join(
        f"{traffic.programs[program]} on {traffic.machines[machine]}"
        for machine, program in ends
    )


def _quiet(time: Row, marks: Row) -> float:
    """Return the seconds after a mark in which least often something is on its way."""
    length = float(np.median(np.diff(marks)))
    tries = length * (np.arange(_PHASES) / _PHASES - 0.5)
    tries = tries[np.argsort(np.abs(tries), kind="stable")]
    at = tries[:, None] + marks
    place = np.searchsorted(time, at)
    times = np.concatenate([[-np.inf], time, [np.inf]])
    quiet = np.minimum(times[place + 1] - at, at - times[place])
    usual = np.quantile(quiet, 0.1, axis=1)
    return float(tries[np.flatnonzero(usual >= 0.5 * usual.max())[0]])


def _bounds(
    joints: list[NDArray[np.int64]], sent: NDArray[np.int64]
) -> list[Row] | None:
    """Return where steps begin and end, by step the bytes before in each iteration.

    None where neither bytes nor the number of joints are usually the same.
    """
    nothing = np.zeros(len(sent))
    usual = float(np.median(sent))
    twice = FULL if usual > _MANY * FULL else 0  # a last packet that came again
    near = max(_BYTES + twice, _NEAR * usual)
    if np.mean(np.abs(sent - usual) <= near) >= MOST:
        places = _places(np.concatenate(joints), near, usual, len(sent))
        inner = (np.array([_nearest(each, at) for each in joints]) for at in places)
        return [nothing, *(np.minimum(one, sent) for one in inner), sent * 1.0]
    counts = [len(each) for each in joints]
    most = int(np.median(counts))
    if np.mean(np.array(counts) == most) < MOST:
        return None
    usual_joints = [
        np.array([each[k] if len(each) == most else np.nan for each in joints])
        for k in range(most)
    ]
    return [nothing, *usual_joints, sent * 1.0]


def _places(
    joints: NDArray[np.int64], near: float, usual: float, iterations: int
) -> list[float]:
    """Return the bytes at which many iterations are cut.

    At the end it must be most of them: the last packet may come twice now and then.
    """
    values, counts = np.unique(joints, return_counts=True)
    same = values[counts >= _OFTEN * iterations]  # however close to one another
    near_same = [np.any(np.abs(same - cut) <= _BYTES) for cut in joints.tolist()]
    points = np.sort(joints[~np.array(near_same, bool)].astype(float))
    groups = [np.repeat(values[values == v], counts[values == v]) for v in same]
    groups += np.split(points, np.flatnonzero(np.diff(points) > _BYTES) + 1)
    places: list[float] = []
    for group in groups:
        place = float(np.median(group)) if len(group) else usual
        share = _OFTEN if place < usual - near else MOST
        if len(group) >= share * iterations:
            places.append(place)
    return sorted(places)


def _nearest(joints: NDArray[np.int64], place: float) -> float:
    """Return the cut of one iteration at a place, the usual one where it has none."""
    off = np.abs(joints - place)
    return float(joints[off.argmin()]) if off.min(initial=np.inf) <= _BYTES else place
