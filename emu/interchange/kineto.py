"""Traces of torch.profiler (Kineto), one per rank, as one job.

A rank computes from one cut of its trace to the next: where it posts an exchange, and
where it waits for one. It waits where nothing computed when the exchange ended; the
wait's length is for the network to say. What computed while an exchange ended did not
wait for it; what waits for a later one of the group has this one, too, and at the
latest the end of its step has. An exchange begins when its last rank has posted it.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from emu.errors import DataError
from emu.interchange.kineto_trace import MESSAGES, Exchange, RankTrace
from emu.interchange.workload import Data, Workload

#: Seconds that a wait has at least: gaps between two kernels are shorter.
_SHORTEST_WAIT = 10e-6
#: An end is noted late by this part of the wait at most.
_LATE = 0.1
#: Segments of an all-reduce that gloo has on their way, and collectives that it runs.
_GLOO_AT_ONCE = 2

Window: TypeAlias = tuple[float, float]


class Wait(NamedTuple):
    """A rank waits for exchanges, in seconds of its trace's clock."""

    begin: float
    end: float
    exchanges: list[int]
    """Places among those of the rank."""


class _Part(NamedTuple):
    """Part of a rank in an exchange."""

    task: str
    """The task that begins it; ``TASK.done`` has the outcome."""
    rank: int
    exchange: Exchange
    awaited: list[str]
    """Tasks that it waits for."""


def read_traces(
    paths: Sequence[Path], *, in_order: bool = False, time_scale: float = 1.0
) -> Workload:
    """Return the traces of all ranks as one job: a machine and a process per rank.

    Parameters
    ----------
    paths
        A file per rank.
    in_order
        Ranks are in the order of the files, where these do not say it.
    time_scale
        Seconds of the traces per second of the job.

    Raises DataError when a file is damaged, a rank is missing or there twice, or what
    ranks did together differs.
    """
    traces = []
    for place, path in enumerate(paths):
        stated_rank = place if in_order else None
        trace = RankTrace(path, stated_rank)
        traces.append(trace)
    traces = _by_rank(traces, in_order=in_order)

    ranks = range(len(traces))
    machines: list[Data] = [{"name": f"m{rank}"} for rank in ranks]
    workload = Workload(str(paths[0]), machines)
    job = _Job(workload, traces, time_scale)
    for rank, window in enumerate(job.common_steps()):
        job.add_rank(rank, window)
    job.check_clocks()
    job.join()
    job.describe()
    return job.workload


def _by_rank(traces: list[RankTrace], *, in_order: bool) -> list[RankTrace]:
    """Return the traces of rank 0, 1, ...

    Raises DataError as `read_traces`.
    """
    by_rank = dict[int, RankTrace]()
    for place, trace in enumerate(traces):
        rank = place if trace.rank is None else trace.rank
        problem = ""
        if trace.rank is None and len(traces) > 1:
            problem = "does not say its rank: --in-order takes the order of the files"
        elif in_order and rank != place:
            problem = f"is of rank {rank}, and file {place} of --in-order"
        elif rank in by_rank:
            problem = f"is of rank {rank}, as {by_rank[rank].origin} is"
        if problem:
            raise DataError(problem, path=trace.origin)
        by_rank[rank] = trace

    worlds = [trace.world for trace in traces]
    # A file may not say the number of ranks: then the highest rank does.
    highest = max(by_rank)
    world = max(*worlds, highest + 1)
    for rank in range(world):
        if rank not in by_rank:
            raise traces[0].error(
                f"is of a job of {world} ranks, and rank {rank} is missing: name "
                "the files of all"
            )
    return [by_rank[rank] for rank in range(world)]


def find_waits(
    busy: Sequence[Window],
    exchanges: Sequence[Exchange],
    step_ends: Sequence[float],
    begin: float,
) -> list[Wait]:
    """Return where a rank waited, in order.

    Parameters
    ----------
    busy
        When it computed, in order.
    exchanges
        Its exchanges, in the order of their posts.
    step_ends
        Where what nobody is seen to wait for is waited for; the last is the end.
    begin
        Where the trace begins.
    """
    posts = [exchange.post for exchange in exchanges]
    unseen = list[int]()
    waits = list[Wait]()
    # A group ends its exchanges in order: who has a later one has the earlier, too.
    numbers = range(len(exchanges))
    by_end = sorted(numbers, key=lambda number: exchanges[number].end)
    for number in by_end:
        exchange = exchanges[number]
        last_end = waits[-1].end if waits else begin
        idle = _idle_at_end(
            exchange,
            busy=busy,
            posts=posts,
            last_end=last_end,
        )
        if idle is not None:
            group = exchange.group
            had = [place for place in unseen if exchanges[place].group == group]
            unseen = [place for place in unseen if place not in had]
            seen = [*had, number]
            waits.append(Wait(*idle, seen))
        elif exchange.kind != "SEND":  # what was sent needs no wait
            unseen.append(number)

    # Nobody was seen to wait for these: the end of their step does.
    last_step = len(step_ends) - 1
    for number in unseen:
        end = exchanges[number].end
        place = bisect_left(step_ends, end)
        step = min(place, last_step)
        step_end = step_ends[step]
        wait = Wait(step_end, step_end, [number])
        waits.append(wait)
    return sorted(waits)


def _idle_at_end(
    exchange: Exchange,
    busy: Sequence[Window],
    posts: Sequence[float],
    last_end: float,
) -> Window | None:
    """Return when a rank waited for an exchange, None where it computed at its end.

    A thread may go on before gloo's worker has noted the end: on an eighth of a core
    10 ms before, after 2.5 s of waiting.
    """
    place = bisect_right(busy, exchange.end, key=lambda span: span[0])
    idle_end = exchange.end
    length = exchange.end - exchange.post
    earliest = exchange.end - _LATE * length
    longest: Window | None = None
    shortest = _SHORTEST_WAIT

    # Back from gap to gap, as far as the end may have been noted too late.
    while idle_end >= max(earliest, last_end):
        # There is one: `earliest` is not before the exchange's own post.
        post = bisect_right(posts, idle_end) - 1
        last_post = posts[post]
        last_busy = last_end
        if place:
            _, last_busy = busy[place - 1]
        # Whoever posts is not waiting, nor is one wait part of two.
        idle_begin = max(last_busy, last_post, last_end)
        late = exchange.end - idle_end
        # An end that is noted late takes a wait that is long beside the delay.
        idle = idle_end - idle_begin
        if idle >= max(shortest, late / _LATE):
            longest = (idle_begin, idle_end)
            shortest = idle
        if not place:
            break
        place -= 1
        idle_end, _ = busy[place]
    return longest


def count_repeats(exchanges: Sequence[Exchange]) -> int:
    """Return how often the shortest sequence comes that all exchanges repeat."""
    rows = [(row.kind, row.size, row.group) for row in exchanges]
    total = len(rows)
    for length in range(1, total + 1):
        count, rest = divmod(total, length)
        if not rest and rows[:length] * count == rows:
            return count
    return 0


class _Job:
    """The ranks so far, and what they do together."""

    def __init__(
        self,
        workload: Workload,
        traces: Sequence[RankTrace],
        time_scale: float,
    ) -> None:
        self.workload = workload
        self._traces = traces
        self._scale = time_scale
        self._by_gloo = not traces[0].by_nccl

        #: Of each group the parts of each rank, in the order of their posts.
        self._groups = defaultdict[tuple[str, tuple[int, ...]], dict[int, list[_Part]]](
            dict
        )
        #: By sender, receiver and tag: sends, receives.
        self._messages = {
            kind: defaultdict[tuple[int, ...], list[_Part]](list) for kind in MESSAGES
        }
        self._waited_sends = set[str]()
        self._computing = 0.0
        self._waiting = 0.0
        self._unseen = 0
        for trace in traces:
            workload.left_out.update(trace.left_out)

    def common_steps(self) -> list[Window]:
        """Return from when to when each trace is taken: the steps that all have.

        Raises DataError when they have none in common.
        """
        steps = [set(trace.steps) for trace in self._traces]
        common = set.intersection(*steps)
        if not common:
            first_steps = steps[0]
            others = (
                rank for rank, numbers in enumerate(steps) if numbers != first_steps
            )
            rank = next(others)
            other_steps = steps[rank]
            raise self.workload.error(
                f"has steps from {min(first_steps)} to {max(first_steps)}, rank {rank} "
                f"from {min(other_steps)} to {max(other_steps)}: none is of all"
            )
        for numbers in steps:
            if numbers != common:
                surplus = len(numbers - common)
                self.workload.leave_out("step that not every rank has", surplus)

        first = min(common)
        last = max(common)
        self.workload.notes.append(f"steps {first} to {last}")
        windows = []
        for trace in self._traces:
            # What lies between two steps is part of the time, too.
            begin, _ = trace.steps[first]
            _, end = trace.steps[last]
            windows.append((begin, end))
        return windows

    def add_rank(self, rank: int, window: Window) -> None:
        """Add what a rank did within a window of its trace."""
        begin, end = window
        trace = self._traces[rank]
        exchanges = [row for row in trace.exchanges if begin <= row.post <= end]
        outside = len(trace.exchanges) - len(exchanges)
        if outside:
            self.workload.leave_out("exchange outside the steps", outside)

        parts = []
        for number, exchange in enumerate(exchanges):
            name = f"r{rank}.x{number}"
            part = self._add_part(name, rank, exchange)
            parts.append(part)

        steps = trace.steps.values()
        step_ends = [stop for _, stop in steps if begin < stop < end]
        step_ends.sort()
        step_ends.append(end)
        waits = find_waits(trace.busy, exchanges, step_ends, begin=begin)
        self._add_computing(
            rank,
            parts=parts,
            waits=waits,
            window=window,
        )
        self.workload.places[f"r{rank}"] = f"m{rank}"

    def _add_part(self, task: str, rank: int, exchange: Exchange) -> _Part:
        """Add the tasks of an exchange on a rank, behind those of its group."""
        part = _Part(
            task=task,
            rank=rank,
            exchange=exchange,
            awaited=[],
        )
        end = f"{task}.done"
        self._add_task(task, seconds=0, kind=exchange.kind, rank=rank)
        self._add_task(end, seconds=0, kind=exchange.kind, rank=rank)
        self.workload.add_flow(task, end)
        if exchange.kind in MESSAGES:
            messages = self._messages[exchange.kind]
            messages[*exchange.ranks, exchange.root].append(part)
            return part

        if rank not in exchange.ranks:
            raise self.workload.error(
                f"rank {rank} takes part in {exchange.kind} of ranks {exchange.ranks}"
            )
        parts_of_rank = self._groups[exchange.group, exchange.ranks]
        earlier = parts_of_rank.setdefault(rank, [])
        at_once = _GLOO_AT_ONCE if self._by_gloo else 1
        # NCCL runs a group's collectives one after the other, gloo two at once.
        if len(earlier) >= at_once:
            awaited_part = earlier[-at_once]
            part.awaited.append(f"{awaited_part.task}.done")
        earlier.append(part)
        return part

    def _add_computing(
        self,
        rank: int,
        parts: Sequence[_Part],
        waits: Sequence[Wait],
        window: Window,
    ) -> None:
        """Add the tasks between the cuts of a rank: its posts and waits."""
        cuts: list[tuple[float, int, _Part | Wait]] = []
        cuts += [(part.exchange.post, 0, part) for part in parts]
        cuts += [(wait.begin, 1, wait) for wait in waits]
        # A post goes before a wait of the same time, which may be for it.
        cuts.sort(key=lambda cut: cut[:2])

        now, end = window
        predecessors = list[str]()
        for number, (time, _, cut) in enumerate(cuts):
            task = self._compute(
                rank,
                number=number,
                seconds=time - now,
                awaited=predecessors,
            )
            now = max(now, time)
            predecessors = [task]
            if isinstance(cut, _Part):
                cut.awaited.append(task)
                continue
            exchanges = [parts[place].task for place in cut.exchanges]
            predecessors += [f"{name}.done" for name in exchanges]
            self._waited_sends.update(exchanges)
            self._waiting += cut.end - cut.begin
            # `find_waits` gives no length to a wait that nobody was seen to have.
            self._unseen += cut.end == cut.begin
            now = max(now, cut.end)
        self._compute(
            rank,
            number=len(cuts),
            seconds=end - now,
            awaited=predecessors,
        )

    def _compute(
        self,
        rank: int,
        number: int,
        seconds: float,
        awaited: Sequence[str],
    ) -> str:
        task = f"r{rank}.{number}"
        # A post may lie within a wait: then nothing is computed up to it.
        seconds = max(0.0, seconds)
        self._computing += seconds
        self._add_task(task, seconds=seconds, kind="compute", rank=rank)
        for name in awaited:
            self.workload.add_flow(name, task)
        return task

    def _add_task(
        self,
        name: str,
        seconds: float,
        kind: str,
        rank: int,
    ) -> None:
        # Traces may come from a lab that computes slower than the job's machines.
        self.workload.add_task(
            name,
            seconds / self._scale,
            kind=kind.lower(),
            process=f"r{rank}",
        )

    def check_clocks(self) -> None:
        """Say how far clocks are apart, by the ends of collectives.

        Raises DataError when these differ between ranks as in two runs.
        """
        widest = 0.0
        for (_, ranks), parts in self._groups.items():
            ends: dict[int, list[float]] = {}
            for rank in ranks:
                rank_parts = parts.get(rank, ())
                if len(rank_parts) > 2:  # of fewer nothing is seen to drift
                    zero = self._traces[rank].zero
                    ends[rank] = [part.exchange.end + zero for part in rank_parts]

            first_rank = ranks[0]
            first = ends.get(first_rank, [])
            for rank, rank_ends in ends.items():
                pairs = zip(first, rank_ends, strict=False)
                offsets = [later - earlier for earlier, later in pairs]
                if not offsets:
                    continue
                # Medians, so that a single late end is not taken for another run.
                offset = statistics.median(offsets)
                deviations = [abs(value - offset) for value in offsets]
                drift = statistics.median(deviations)
                widest = max(widest, abs(offset))
                # Ends of one run differ by less than the time between two of them.
                length = rank_ends[-1] - rank_ends[0]
                distance = length / len(rank_ends)
                if drift > distance / 4:
                    raise self.workload.error(
                        f"and that of rank {rank} are of two runs: their collectives "
                        f"end {drift:.3g} s apart, and by turns"
                    )

        if widest:
            self.workload.notes.append(
                f"clocks are {widest:.3g} s apart, by the ends of collectives: no time "
                "of one rank is compared with that of another"
            )

    def join(self) -> None:
        """Join the parts of collectives and messages.

        Raises DataError when they differ between ranks.
        """
        for (_, ranks), parts in self._groups.items():
            parts_of_ranks = [parts.get(rank, ()) for rank in ranks]
            counts = [len(rank_parts) for rank_parts in parts_of_ranks]
            first_count = counts[0]
            for rank, count in zip(ranks, counts, strict=True):
                if count != first_count:
                    raise self.workload.error(
                        f"rank {ranks[0]} takes part in {first_count} collectives, "
                        f"rank {rank} of its group in {count}"
                    )
            parts_by_rank = [parts[rank] for rank in ranks]
            for companions in zip(*parts_by_rank, strict=True):
                self._join_collective(companions)

        sends, receives = (self._messages[kind] for kind in MESSAGES)
        for key in {**sends, **receives}:
            self._join_messages(sends[key], receives[key], key)

    def _join_collective(self, companions: Sequence[_Part]) -> None:
        first = companions[0]
        workload = self.workload
        for part in companions[1:]:
            self._check_same(first, part)
        # Without the gate early ranks ran ahead in the ring, and segments overtook each
        # other: 4.9 % too slow on a lab with one NIC of 50 Mbit/s, 0.2 % with it.
        start = workload.add_gate(first.task, "start")
        for part in companions:
            for name in part.awaited:
                workload.add_flow(name, start)
            workload.add_flow(start, part.task)

        kind = first.exchange.kind
        root = first.exchange.root
        # Of a scatter the root alone brings bytes; of the others all bring as many.
        size = companions[root].exchange.size
        if any(part.exchange.shares for part in companions):
            for part in companions:
                self._send_shares(part, companions)
        elif size and len(companions) > 1:
            workload.add_collective(
                kind,
                size,
                ranks=[part.task for part in companions],
                root=root,
                segments=_GLOO_AT_ONCE if self._by_gloo else 1,
            )

    def _check_same(self, first: _Part, part: _Part) -> None:
        reference = first.exchange
        exchange = part.exchange
        has_other_kind = exchange.kind != reference.kind
        has_other_root = exchange.root != reference.root
        may_differ = exchange.kind == "SCATTER"  # only the root brings something

        # Of an uneven all-to-all each rank brings a sum of its own.
        may_differ |= bool(reference.shares or exchange.shares)
        has_other_size = exchange.size != reference.size and not may_differ
        if has_other_kind or has_other_root or has_other_size:
            raise self.workload.error(
                f"{first.task} is {reference.kind} of {reference.size:g} "
                f"bytes, {part.task} beside it {exchange.kind} of "
                f"{exchange.size:g}"
            )

    def _send_shares(self, part: _Part, companions: Sequence[_Part]) -> None:
        # A rank that sends as much to everybody states no shares.
        equal_share = part.exchange.size / len(companions)
        equal_shares = (equal_share,) * len(companions)
        shares = part.exchange.shares or equal_shares
        for receiver, size in zip(companions, shares, strict=True):
            if receiver is not part:
                outcome = f"{receiver.task}.done"
                self.workload.add_flow(part.task, outcome, size)

    def _join_messages(
        self,
        sends: list[_Part],
        receives: list[_Part],
        key: tuple[int, ...],
    ) -> None:
        source, destination, _ = key
        pairs = self.workload.pair_messages(sends, receives, key)
        for send, receive in pairs:
            for part in (send, receive):
                for name in part.awaited:
                    self.workload.add_flow(name, part.task)
            size = send.exchange.size
            received = receive.exchange.size
            if received != size:
                raise self.workload.error(
                    f"{receive.task} receives {received:g} bytes of "
                    f"{size:g} of {send.task}"
                )

            receive_end = f"{receive.task}.done"
            self.workload.add_flow(send.task, receive_end, size)
            # Messages of two ranks go one after the other, on one connection.
            last_flow = self.workload.flows[-1]
            last_flow["channel"] = f"{source}-{destination}"
            if send.task in self._waited_sends:  # it has ended when all has come
                self.workload.add_flow(receive_end, f"{send.task}.done")

    def describe(self) -> None:
        """Say what was found."""
        ranks = len(self._traces)
        collectives = 0
        for (_, members), parts in self._groups.items():
            first_member = members[0]
            collectives += len(parts[first_member])
        sends = self._messages["SEND"]
        messages = sum(map(len, sends.values()))
        computing = self._computing / self._scale / ranks
        waiting = self._waiting / self._scale / ranks
        notes = self.workload.notes
        notes.append(
            f"{ranks} ranks, {collectives:,} collectives, {messages:,} messages; each "
            f"rank computes {computing:.4g} s and waits {waiting:.4g} s, which the "
            "network has to say"
        )
        first = self._traces[0]
        repeats = count_repeats(first.exchanges)
        # Without marks of steps only repetition hints at how many iterations there are.
        if first.is_whole and repeats > 1:
            notes.append(f"exchanges repeat {repeats:,} times, as iterations may do")

        if self._unseen:
            notes.append(
                f"{self._unseen:,} times an exchange ended while its rank computed: "
                "the end of its step waits for it"
            )
