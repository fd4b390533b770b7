"""Cut what processes send each other into steps, the same in every iteration.

The bytes that one process sends another in an iteration are cut where it fell silent,
and behind packets that are not full. What is cut at the same byte in many iterations
ends a step in all: packets wait here and there, programs where they always do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from emu.array_types import Floats, Ints, Mask
from emu.lab.fitting.calls import Sent, find_senders
from emu.lab.fitting.conversations import Packets, Process, Unfittable
from emu.lab.fitting.repeats import settle
from emu.prediction.analysis.traffic import Traffic

#: A number per iteration, or per packet.
Row: TypeAlias = Floats
#: Seconds at which iterations began, by the process whose they are.
Marks: TypeAlias = Mapping[Process, Row]
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
#: Seconds between two calls that part steps.
_PAUSE = 2e-4
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
    before: Ints
    """Bytes before each of them, and of all."""

    def when(self, byte: Row) -> Row:
        """Return the seconds at which so many bytes had come."""
        bytes_after = self.before[1:]
        places = np.searchsorted(bytes_after, byte, "left")
        is_unknown = np.isnan(byte)
        seconds = self.packet(places)
        return np.where(is_unknown, np.nan, seconds)

    def packet(self, places: Ints) -> Row:
        """Return the seconds of packets, of the last one behind the end."""
        last = len(self.time) - 1
        present = np.minimum(places, last)
        return self.time[present]


def _nothing() -> Row:
    return np.empty(0)


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
    """Seconds at which it was called, else of the first packet, and of the last."""
    sizes: Row
    """Bytes."""
    until: Row
    """Bytes of all that crossed when it had."""
    crossed: Crossed
    call: Row = field(default_factory=_nothing)
    """Number of the call that sent its first byte; -1 where it was not noted."""
    taken: Row = field(default_factory=_nothing)
    """Seconds at which the kernel had taken its last byte, where that was noted."""

    @property
    def is_noted(self) -> bool:
        """True where the call is known in every iteration."""
        is_known = self.call >= 0
        return bool(len(self.call) and is_known.all())

    def part(self, span: slice) -> Step:
        """Return the step in some of the iterations."""
        rows = {}
        for name in _BY_ITERATION:
            values = getattr(self, name)
            rows[name] = values[span]
        return replace(self, **rows)

    def roll(self, iterations: int) -> Step:
        """Return the step with its parts so many iterations later."""
        rows = {}
        for name in _BY_ITERATION:
            values = getattr(self, name)
            rows[name] = np.roll(values, iterations)
        vacant = slice(0, iterations)
        if iterations < 0:
            vacant = slice(iterations, None)
        for row in rows.values():
            row[vacant] = np.nan
        return replace(self, **rows)


#: Fields of a step that have a value per iteration.
_BY_ITERATION = ("first", "last", "sizes", "until", "call", "taken")


def steps_between(
    packets: Packets,
    traffic: Traffic,
    marks: Marks,
) -> list[Step]:
    """Return all steps of the iterations between marks.

    Raises Unfittable where a process sends another neither as many bytes in every
    iteration, nor as often, and when two processes both have iterations of their own,
    or none has and there are several.
    """
    steps: list[Step] = []
    total = float(packets.bytes.sum())
    senders = find_senders(traffic)
    count = len(packets.processes)
    pairs = packets.source * count + packets.destination
    for pair in np.unique(pairs).tolist():
        sender, receiver = divmod(pair, count)
        source = packets.processes[sender]
        destination = packets.processes[receiver]
        clock = _clock_of(source, destination, marks, traffic)
        starts = marks[clock]
        silence = _silence(source, destination, traffic)
        stream = packets.some(pairs == pair)
        sent = senders.some(stream.rows)
        iterations = _Iterations.between(stream, sent, starts, silence)

        pair_name = describe_ends([source, destination], traffic)
        try:
            bounds = _cut(iterations, pair_name, total)
        except Unfittable:
            iterations = _Iterations.between(
                stream,
                sent,
                starts,
                silence,
                settled=True,
            )
            bounds = _cut(iterations, pair_name, total)

        for number, (begin, end) in enumerate(pairwise(bounds)):
            rows = iterations.rows(begin, end)
            step = Step(
                source=source,
                destination=destination,
                number=number,
                clock=clock,
                crossed=iterations.crossed,
                **rows,
            )
            lag = _lag_of(step, starts)
            steps.append(step.roll(lag))
    return steps


def _lag_of(step: Step, starts: Row) -> int:
    """Return how many iterations later than it was cut a step usually begins.

    Iterations were cut where all is quiet: a step is of the one that it begins in.
    """
    is_present = ~np.isnan(step.first)
    present = np.flatnonzero(is_present)
    began = step.first[present]
    numbers = np.searchsorted(starts, began, "right") - 1
    lags = numbers - present
    return int(np.median(lags))


def _silence(
    source: Process,
    destination: Process,
    traffic: Traffic,
) -> float:
    """Return the seconds of silence that part two steps, by the slower NIC."""
    source_machine, _ = source
    destination_machine, _ = destination
    nic_out = traffic.nics[0, source_machine]
    nic_in = traffic.nics[1, destination_machine]
    slower_rate = float(min(nic_out, nic_in))
    crossing = _SILENT * FULL / slower_rate
    return max(_SILENCE, crossing)


def _clock_of(
    source: Process,
    destination: Process,
    marks: Marks,
    traffic: Traffic,
) -> Process:
    """Return whose iterations those of two processes are; Unfittable if not clear."""
    if len(marks) == 1:
        (clock,) = marks
        return clock

    clocks = [end for end in (source, destination) if end in marks]
    if len(clocks) != 1:
        pair = describe_ends([source, destination], traffic)
        periods = []
        for process in clocks or marks:
            name = describe_ends([process], traffic)
            lengths = np.diff(marks[process])
            seconds = np.median(lengths)
            periods.append(f"{name} {seconds:.4g} s")
        listed = ", ".join(periods)
        raise Unfittable(
            f"{pair}: iterations of processes do not go together "
            f"({listed}), and it is not clear of which these are part: "
            "--mark LINE that one program prints says it"
        )
    return clocks[0]


def _short(sizes: Ints) -> Mask:
    """Return which packets are not full, as the last of a message."""
    full = FULL
    if len(sizes):
        # Most bytes go in full packets, which another MTU makes of another size.
        values, places = np.unique(sizes, return_inverse=True)
        totals = np.bincount(places, sizes)
        most = totals.argmax()
        usual = int(values[most])
        if usual >= _SMALL:
            full = usual
    is_short = sizes % full != 0
    is_short &= sizes % FULL != 0
    return np.asarray(is_short)


@dataclass(frozen=True, eq=False)
class _Iterations:
    """Bytes that one process sends another, by iteration."""

    crossed: Crossed
    starts: Ints
    """Bytes before each iteration."""
    volumes: Ints
    joints: list[Ints]
    """By iteration, bytes before the packets behind which something had ended."""

    sent: Sent

    @classmethod
    def between(
        cls,
        packets: Packets,
        sent: Sent,
        marks: Row,
        silence: float,
        *,
        settled: bool = False,
    ) -> _Iterations:
        """Return the iterations between marks, moved to where all is quiet.

        Or ``settled`` at the bytes that repeat beside them.
        """
        total = np.cumsum(packets.bytes)
        bytes_before_each = np.append(0, total)
        curve = Crossed(packets.time, bytes_before_each)
        is_silent = np.diff(packets.time) > silence
        is_over = _part(packets, sent, is_silent)
        is_start = np.append(True, is_over)

        # A mark is of what was called before it.
        called = np.maximum.accumulate(sent.called)
        cuts = marks + _quiet(called, marks)
        edges = np.searchsorted(called, cuts)
        bytes_before = curve.before
        if settled:
            inner_places = bytes_before[1:-1]
            silent_places = inner_places[is_silent]
            settled_places = settle(bytes_before[edges], silent_places)
            edges = np.searchsorted(bytes_before[:-1], settled_places)

        joints = []
        is_split = sent.is_split
        for first, last in pairwise(edges.tolist()):
            span = slice(first, last)
            starts = first + np.flatnonzero(is_start[span])
            splits = first + np.flatnonzero(is_split[span])
            # A message may begin amid the last packet of the one before it.
            amid = bytes_before[splits] + sent.split[splits]
            places = np.union1d(bytes_before[starts], amid)
            joints.append(places - bytes_before[first])

        places_of_edges = bytes_before[edges]
        return cls(
            crossed=curve,
            starts=places_of_edges[:-1],
            volumes=np.diff(places_of_edges),
            joints=joints,
            sent=sent,
        )

    def rows(self, begin: Row, end: Row) -> dict[str, Row]:
        """Return the rows `_BY_ITERATION` of a step from one byte until another."""
        sizes = end - begin
        until = self.starts + end
        curve = self.crossed
        begin_bytes = self.starts + begin
        most = len(curve.time) - 1
        bytes_after = curve.before[1:]
        first_places = np.searchsorted(bytes_after, begin_bytes, "right")
        last_places = np.searchsorted(bytes_after, until, "left")
        first_places = np.minimum(first_places, most)
        last_places = np.minimum(last_places, most)

        offsets = begin_bytes - curve.before[first_places]
        call, first = self.sent.begun(first_places, offsets)
        last = curve.time[last_places]
        rows = {
            "first": first,
            "last": np.maximum(first, last),
            "sizes": sizes,
            "until": until,
            "call": call,
            "taken": self.sent.taken[last_places],
        }
        is_sent = self.volumes > 0
        is_sent &= ~np.isnan(sizes)
        columns = {}
        for name, row in rows.items():
            columns[name] = np.where(is_sent, row, np.nan)
        return columns


def _part(
    packets: Packets,
    sent: Sent,
    is_silent: Mask,
) -> Mask:
    """Return behind which packets something has ended, for all but the last.

    Behind a silence, and a packet that is not full. Where calls are known, between two
    of these alone: and where a program paused, or had sent a note.
    """
    sizes = packets.bytes[:-1]
    is_end = is_silent | _short(sizes)
    pauses = sent.called[1:] - sent.taken[:-1]
    is_paused = pauses > _PAUSE
    is_note = sizes <= NOTE
    is_apart = is_end | is_paused | is_note
    next_calls = sent.call[1:]
    is_other = next_calls != sent.next_call[:-1]
    is_known = next_calls >= 0
    return np.where(is_known, is_apart & is_other, is_end)


def _cut(iterations: _Iterations, pair: str, total: float) -> list[Row]:
    """Return where steps begin and end, by step the bytes before in each iteration.

    None where too little is sent. Raises Unfittable as `steps_between`.
    """
    volumes = iterations.volumes
    volume = volumes.sum()
    share = np.mean(volumes > 0)
    is_rare = volume <= _RARE * total
    if share < 0.5:
        if is_rare:
            return []
        raise Unfittable(
            f"{pair} sent {volume:,} bytes in {share:.0%} of the iterations: "
            "they have no part in common; --mark LINE states others, --skip leaves the "
            "first ones out"
        )

    joints = iterations.joints
    cuts_within = [cuts[cuts > 0] for cuts in joints]
    bounds = _bounds(cuts_within, volumes)
    if bounds is not None:
        return bounds
    # So little varies in what Ray's processes say beside their objects.
    if is_rare:
        nothing = np.zeros(len(volumes))
        return [nothing, volumes.astype(np.float64)]

    pieces = [len(cuts) for cuts in joints]
    fewest = min(pieces)
    most = max(pieces)
    low, high = np.quantile(volumes, [0.1, 0.9])
    raise Unfittable(
        f"{pair} sent {low:,.0f} to {high:,.0f} bytes in an iteration, in "
        f"{fewest} to {most} pieces: these are no "
        "iterations that repeat; --mark LINE states others"
    )


def describe_ends(ends: Sequence[Process], traffic: Traffic) -> str:
    """Return processes in words, the first of them to the second."""
    names = []
    for machine, program in ends:
        machine_name = traffic.machines[machine]
        program_name = traffic.programs[program]
        names.append(f"{program_name} on {machine_name}")
    return " to ".join(names)


def _quiet(time: Row, marks: Row) -> float:
    """Return the seconds after a mark in which least often something is on its way."""
    lengths = np.diff(marks)
    length = float(np.median(lengths))
    shares = np.arange(_PHASES) / _PHASES - 0.5
    phases = length * shares
    # Of several as good, the one nearest to the mark is taken.
    distances = np.abs(phases)
    nearest_first = np.argsort(distances, kind="stable")
    phases = phases[nearest_first]

    instants = phases[:, None] + marks  # (phases, marks)
    place = np.searchsorted(time, instants)
    times = np.concatenate([[-np.inf], time, [np.inf]])
    since_last = instants - times[place]
    until_next = times[place + 1] - instants
    quiet = np.minimum(until_next, since_last)
    usual = np.quantile(quiet, 0.1, axis=1)
    is_good = usual >= 0.5 * usual.max()
    good_phases = phases[is_good]
    return float(good_phases[0])


def _bounds(joints: list[Ints], sent: Ints) -> list[Row] | None:
    """Return bounds as `_cut`.

    None where neither bytes nor the number of joints are usually the same.
    """
    nothing = np.zeros(len(sent))
    everything = sent.astype(np.float64)
    usual = float(np.median(sent))
    twice = FULL if usual > _MANY * FULL else 0  # a last packet that came again
    near_bytes = max(_BYTES + twice, _NEAR * usual)
    is_usual = np.abs(sent - usual) <= near_bytes
    if np.mean(is_usual) >= MOST:
        places = _places(
            np.concatenate(joints),
            near_bytes=near_bytes,
            usual=usual,
            iterations=len(sent),
        )
        bounds = [nothing]
        for place in places:
            cuts = [_nearest(row, place) for row in joints]
            bound = np.minimum(np.array(cuts), sent)
            bounds.append(bound)
        return [*bounds, everything]

    counts = np.array([len(row) for row in joints])
    most = int(np.median(counts))
    if np.mean(counts == most) < MOST:
        return None
    shape = (len(joints), most)
    usual_joints = np.full(shape, np.nan)
    for number, row in enumerate(joints):
        if len(row) == most:
            usual_joints[number] = row
    return [nothing, *usual_joints.T, everything]


def _places(
    joints: Ints,
    near_bytes: float,
    usual: float,
    iterations: int,
) -> list[float]:
    """Return the bytes at which many iterations are cut.

    At the end it must be most of them: the last packet may come twice now and then.
    """
    values, counts = np.unique(joints, return_counts=True)
    is_often = counts >= _OFTEN * iterations
    is_same = np.zeros(len(joints), bool)
    groups = []
    for value in values[is_often]:  # however close to one another
        distances = np.abs(joints - value)
        is_same |= distances <= _BYTES
        group = joints[joints == value]
        groups.append(group)

    other_joints = joints[~is_same].astype(float)
    points = np.sort(other_joints)
    gaps = np.diff(points)
    cuts = np.flatnonzero(gaps > _BYTES)
    groups += np.split(points, cuts + 1)

    places: list[float] = []
    end = usual - near_bytes
    for group in groups:
        place = float(np.median(group)) if len(group) else usual
        share = _OFTEN if place < end else MOST
        if len(group) >= share * iterations:
            places.append(place)
    return sorted(places)


def _nearest(joints: Ints, place: float) -> float:
    """Return the cut of one iteration at a place, the usual one where it has none."""
    distance = np.abs(joints - place)
    has_cut = distance.min(initial=np.inf) <= _BYTES
    if not has_cut:
        return place
    nearest = distance.argmin()
    return float(joints[nearest])
