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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from emu.errors import DataError
from emu.interchange.kineto_trace import Exchange, RankTrace, read_rank
from emu.interchange.workload import Workload

#: Seconds that a wait has at least: gaps between two kernels are shorter.
_SHORTEST_WAIT = 10e-6
#: An end is noted late by this part of the wait at most.
_LATE = 0.1
#: Segments of an all-reduce that gloo has on their way at once.
_GLOO_SEGMENTS = 2

Window: TypeAlias = tuple[float, float]


class Wait(NamedTuple):
    """A rank waits for exchanges."""

    begin: float
    end: float
    """Seconds of its trace's clock."""
    exchanges: list[int]
    """Places among those of the rank."""


class _Part(NamedTuple):
    """Part of a rank in an exchange."""

    task: str
    """The task that posts it; ``TASK.done`` has the outcome."""
    rank: int
    exchange: Exchange


def read_traces(
    paths: Sequence[Path],
    *,
    copies: int = 0,
    in_order: bool = False,
    time_scale: float = 1.0,
) -> Workload:
    """Return the traces of all ranks as one job: a machine and a process per rank.

    Parameters
    ----------
    paths
        A file per rank.
    copies
        Ranks that have the one trace; 0 for a file each.
    in_order
        Ranks are in the order of the files, where these do not say it.
    time_scale
        Seconds of the traces per second of the job.

    Raises DataError when a file is damaged, a rank is missing or there twice, or what
    ranks did together differs.
    """
    traces = _by_rank([read_rank(path) for path in paths], copies, in_order=in_order)
    count = len(traces)
    machine = {"name": "m", "count": count} if count > 1 else {"name": "m0"}
    workload = Workload(str(paths[0]), [machine])
    for trace in traces[:1] if copies else traces:
        workload.left_out.update(trace.left_out)

    windows = _common_steps(traces, workload)
    job = _Job(workload, time_scale)
    for rank, trace in enumerate(traces):
        job.add_rank(rank, trace, windows[rank])
        workload.places[f"r{rank}"] = f"m{rank}"
    if not copies:
        job.check_clocks(traces)
    job.join()
    job.describe(count)
    return workload


def _by_rank(
    traces: list[RankTrace], copies: int, *, in_order: bool
) -> list[RankTrace]:
    """Return the traces of rank 0, 1, ...

    Raises DataError as `read_traces`.
    """
    first = traces[0]
    if copies:
        return _copy_ranks(traces, copies)
    if in_order:
        for place, trace in enumerate(traces):
            if trace.rank not in (None, place):
                problem = f"is of rank {trace.rank}, and file {place} of --in-order"
                raise DataError(problem, path=trace.origin)
            trace.rank = place
    by_rank = dict[int, RankTrace]()
    for trace in traces:
        if trace.rank is None and len(traces) > 1:
            problem = "does not say its rank (distributedInfo): --in-order takes the "
            raise DataError(f"{problem}order of the files", path=trace.origin)
        rank = trace.rank or 0
        if rank in by_rank:
            problem = f"is of rank {rank}, as {by_rank[rank].origin} is"
            raise DataError(problem, path=trace.origin)
        by_rank[rank] = trace

    world = max(trace.world for trace in traces) or len(traces)
    missing = [rank for rank in range(max(world, *by_rank)) if rank not in by_rank]
    if missing:
        problem = f"is of a job of {world} ranks, and rank {missing[0]} is missing: "
        problem += "name the files of all, or give this one to each by --copies"
        raise DataError(problem, path=first.origin)
    return [by_rank[rank] for rank in range(len(by_rank))]


def _copy_ranks(traces: list[RankTrace], copies: int) -> list[RankTrace]:
    """Return copies of one trace, whose groups are of all ranks.

    Raises DataError when there are several traces, messages, or other groups.
    """
    first = traces[0]
    if len(traces) > 1:
        problem = f"is one of {len(traces)}: --copies is for one trace"
        raise DataError(problem, path=first.origin)
    everybody = tuple(range(copies))
    exchanges = []
    for exchange in first.exchanges:
        is_whole = len(exchange.ranks) == first.world and not exchange.shares
        if exchange.kind in ("SEND", "RECV") or not is_whole:
            problem = f"has {exchange.kind} among ranks {exchange.ranks}: --copies is "
            raise DataError(f"{problem}for exchanges of all ranks", path=first.origin)
        exchanges.append(exchange._replace(ranks=everybody))
    first.exchanges = exchanges
    return [first] * copies


def _common_steps(traces: Sequence[RankTrace], workload: Workload) -> list[Window]:
    """Return from when to when each trace is taken: the steps that all of them have.

    Raises DataError when they have none in common.
    """
    steps = [set(trace.steps) for trace in traces]
    common = set.intersection(*steps)
    if not any(steps):
        workload.notes.append("no ProfilerStep is marked: the traces are taken whole")
        return [_whole(trace) for trace in traces]
    if not common:
        rank = next(rank for rank, own in enumerate(steps) if own != steps[0])
        found = [f"{min(own)} to {max(own)}" if own else "none" for own in steps]
        problem = f"has steps {found[0]}, and rank {rank} {found[rank]}: none is of all"
        raise DataError(problem, path=workload.origin)

    for own in steps:
        workload.left_out["step that not every rank has"] += len(own - common)
    first = min(common)
    last = max(common)
    workload.notes.append(f"steps {first} to {last} of ProfilerStep")
    return [(trace.steps[first][0], trace.steps[last][1]) for trace in traces]


def _whole(trace: RankTrace) -> Window:
    begins = [span[0] for span in trace.busy]
    begins += [exchange.post for exchange in trace.exchanges]
    ends = [span[1] for span in trace.busy]
    ends += [exchange.end for exchange in trace.exchanges]
    if not begins:
        raise DataError("holds no range that computes", path=trace.origin)
    return min(begins), max(ends)


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
    for number in sorted(range(len(exchanges)), key=lambda n: exchanges[n].end):
        exchange = exchanges[number]
        since = waits[-1].end if waits else begin
        idle = _idle_at_end(exchange, busy, posts, since)
        if idle is not None:
            had = [n for n in unseen if exchanges[n].group == exchange.group]
            unseen = [n for n in unseen if n not in had]
            waits.append(Wait(*idle, [*had, number]))
        elif exchange.kind != "SEND":  # what was sent needs no wait
            unseen.append(number)

    for number in unseen:
        place = bisect_left(step_ends, exchanges[number].end)
        step_end = step_ends[min(place, len(step_ends) - 1)]
        waits.append(Wait(step_end, step_end, [number]))
    return sorted(waits, key=lambda wait: wait.begin)


def _idle_at_end(
    exchange: Exchange,
    busy: Sequence[Window],
    posts: Sequence[float],
    since: float,
) -> Window | None:
    """Return when a rank waited for an exchange, None where it computed at its end.

    A thread may go on before gloo's worker has noted the end: on a quarter of a core
    10 ms before, after 2.5 s of waiting.
    """
    place = bisect_right(busy, exchange.end, key=lambda span: span[0])
    idle_end = exchange.end
    earliest = exchange.end - _LATE * (exchange.end - exchange.post)
    longest: Window | None = None
    shortest = _SHORTEST_WAIT
    while idle_end >= max(earliest, since):
        last_post = posts[bisect_right(posts, idle_end) - 1]
        last_busy = busy[place - 1][1] if place else since
        idle_begin = max(last_busy, last_post, since)
        late = exchange.end - idle_end
        if idle_end - idle_begin >= max(shortest, late / _LATE):
            longest = (idle_begin, idle_end)
            shortest = idle_end - idle_begin
        if not place:
            break
        place -= 1
        idle_end = busy[place][0]
    return longest


class _Job:
    """The ranks so far, and what they do together."""

    def __init__(self, workload: Workload, time_scale: float) -> None:
        self.workload = workload
        self._scale = time_scale
        self._segments = 1
        self._names = set[str]()
        #: Of each group the parts of each rank, in the order of their posts.
        self._groups = defaultdict[tuple[str, tuple[int, ...]], dict[int, list[_Part]]](
            dict
        )
        #: By sender, receiver and tag.
        self._sends = defaultdict[tuple[int, ...], list[_Part]](list)
        self._receives = defaultdict[tuple[int, ...], list[_Part]](list)
        self._computing = 0.0
        self._waiting = 0.0
        self._unseen = 0

    def add_rank(self, rank: int, trace: RankTrace, window: Window) -> None:
        """Add what a rank did within a window of its trace."""
        begin, end = window
        exchanges = [row for row in trace.exchanges if begin <= row.post < end]
        outside = len(trace.exchanges) - len(exchanges)
        self.workload.left_out["exchange outside the steps"] += outside
        if trace.backend == "gloo":
            self._segments = _GLOO_SEGMENTS

        parts = [
            _Part(f"r{rank}.x{number}", rank, exchange)
            for number, exchange in enumerate(exchanges)
        ]
        for part in parts:
            self._add_part(part, trace.at_once)
        step_ends = [stop for _, stop in trace.steps.values() if begin < stop < end]
        waits = find_waits(trace.busy, exchanges, [*sorted(step_ends), end], begin)
        self._add_computing(rank, parts, waits, window)

    def _add_part(self, part: _Part, at_once: int) -> None:
        """Add the tasks of an exchange on a rank, behind those that it waits for."""
        exchange = part.exchange
        self._add_task(part.task, 0, exchange.kind, part.rank)
        self._add_task(f"{part.task}.done", 0, exchange.kind, part.rank)
        self.workload.add_flow(part.task, f"{part.task}.done")
        if exchange.kind in ("SEND", "RECV"):
            ends = self._sends if exchange.kind == "SEND" else self._receives
            ends[*exchange.ranks, exchange.root].append(part)
            return
        if part.rank not in exchange.ranks:
            problem = f"rank {part.rank} takes part in {exchange.kind} of ranks "
            problem += ", ".join(map(str, exchange.ranks))
            raise DataError(problem, path=self.workload.origin)
        group = self._groups[exchange.group, exchange.ranks]
        before = group.setdefault(part.rank, [])
        if len(before) >= at_once:
            self.workload.add_flow(f"{before[-at_once].task}.done", part.task)
        before.append(part)

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
        cuts.sort(key=lambda cut: cut[:2])

        now, end = window
        before = list[str]()
        for number, (time, _, cut) in enumerate(cuts):
            task = f"r{rank}.{number}"
            self._compute(task, rank, time - now, before)
            now = max(now, time)
            before = [task]
            if isinstance(cut, Wait):
                before += [f"{parts[place].task}.done" for place in cut.exchanges]
                self._waiting += cut.end - cut.begin
                self._unseen += cut.end == cut.begin
                now = max(now, cut.end)
                self._wait_for_sends([parts[place] for place in cut.exchanges])
            else:
                self.workload.add_flow(task, cut.task)
        self._compute(f"r{rank}.{len(cuts)}", rank, end - now, before)

    def _compute(
        self, task: str, rank: int, seconds: float, before: Sequence[str]
    ) -> None:
        seconds = max(0.0, seconds)
        self._computing += seconds
        self._add_task(task, seconds, "compute", rank)
        for name in before:
            self.workload.add_flow(name, task)

    def _add_task(self, name: str, seconds: float, kind: str, rank: int) -> None:
        seconds /= self._scale
        self.workload.add_task(name, seconds, kind=kind.lower(), process=f"r{rank}")

    def _wait_for_sends(self, parts: Sequence[_Part]) -> None:
        self._names.update(part.task for part in parts if part.exchange.kind == "SEND")

    def check_clocks(self, traces: Sequence[RankTrace]) -> None:
        """Say how far clocks are apart, by the ends of collectives.

        Raises DataError when these differ between ranks as in two runs.
        """
        widest = 0.0
        for (_, ranks), parts in self._groups.items():
            first = parts.get(ranks[0], [])
            for rank in ranks[1:]:
                own = parts.get(rank, [])
                apart = [
                    (own_part.exchange.end + traces[rank].zero)
                    - (part.exchange.end + traces[ranks[0]].zero)
                    for part, own_part in zip(first, own, strict=False)
                ]
                if len(apart) < 3:
                    continue
                offset = statistics.median(apart)
                widest = max(widest, abs(offset))
                drift = statistics.median(abs(each - offset) for each in apart)
                ends = [part.exchange.end for part in first]
                if drift > (ends[-1] - ends[0]) / len(ends) / 2:
                    problem = f"and {traces[ranks[0]].origin} are of two runs: their "
                    problem += f"collectives end {drift:.3g} s apart, by turns"
                    raise DataError(problem, path=traces[rank].origin)
        if widest:
            self.workload.notes.append(
                f"clocks of ranks are up to {widest:.3g} s apart, by the ends of "
                "collectives: no time of one rank is compared with that of another"
            )

    def join(self) -> None:
        """Join the parts of collectives and messages.

        Raises DataError when they differ between ranks.
        """
        for (_, ranks), parts in self._groups.items():
            self._check_counts(
                ranks, {rank: len(parts.get(rank, [])) for rank in ranks}
            )
            for together in zip(*(parts[rank] for rank in ranks), strict=True):
                self._join_collective(together)
        for key in {**self._sends, **self._receives}:
            self._join_messages(key)

    def _check_counts(self, ranks: tuple[int, ...], counts: Mapping[int, int]) -> None:
        for rank in ranks[1:]:
            if counts[rank] != counts[ranks[0]]:
                problem = f"rank {ranks[0]} takes part in {counts[ranks[0]]} "
                problem += f"collectives, rank {rank} of its group in {counts[rank]}"
                raise DataError(problem, path=self.workload.origin)

    def _join_collective(self, together: Sequence[_Part]) -> None:
        first = together[0].exchange
        for part in together[1:]:
            own = part.exchange
            is_same = own.kind == first.kind and own.root == first.root
            if own.kind != "SCATTER" and not own.shares and not first.shares:
                is_same &= own.size == first.size
            if not is_same:
                problem = (
                    f"{together[0].task} is {first.kind} of {first.size:g} bytes, "
                )
                problem += f"{part.task} beside it {own.kind} of {own.size:g}"
                raise DataError(problem, path=self.workload.origin)
        if len(together) == 1:
            return
        if any(part.exchange.shares for part in together):
            self._exchange_unevenly(together)
            return
        size = together[first.root % len(together)].exchange.size
        self.workload.add_collective(
            first.kind if size else "BARRIER",  # nothing is sent, and all wait
            size,
            [part.task for part in together],
            root=first.root,
            segments=self._segments,
        )

    def _exchange_unevenly(self, together: Sequence[_Part]) -> None:
        for place, part in enumerate(together):
            even = part.exchange.size / len(together)
            for other, receiver in enumerate(together):
                shares = part.exchange.shares
                size = shares[other] if shares else even
                if other != place:
                    self.workload.add_flow(part.task, f"{receiver.task}.done", size)

    def _join_messages(self, key: tuple[int, ...]) -> None:
        sends = self._sends[key]
        receives = self._receives[key]
        if len(sends) != len(receives):
            source, destination, tag = key
            problem = f"rank {source} sends {len(sends)} messages of tag {tag} to rank "
            problem += f"{destination}, which receives {len(receives)}"
            raise DataError(problem, path=self.workload.origin)
        for send, receive in zip(sends, receives, strict=True):
            size = send.exchange.size
            if receive.exchange.size != size:
                problem = f"{receive.task} receives {receive.exchange.size:g} bytes of "
                problem += f"{size:g} of {send.task}"
                raise DataError(problem, path=self.workload.origin)
            self.workload.add_flow(send.task, f"{receive.task}.done", size)
            if send.task in self._names:  # who waits for a send, waits for its arrival
                self.workload.add_flow(f"{receive.task}.done", f"{send.task}.done")

    def describe(self, ranks: int) -> None:
        """Say what was found."""
        collectives = sum(
            len(parts[members[0]]) for (_, members), parts in self._groups.items()
        )
        messages = sum(map(len, self._sends.values()))
        computing = self._computing / self._scale / ranks
        waiting = self._waiting / self._scale / ranks
        notes = self.workload.notes
        notes.append(
            f"{ranks} ranks, {collectives:,} collectives, {messages:,} messages; each "
            f"rank computes {computing:.4g} s and waits {waiting:.4g} s, which the "
            "network has to say"
        )
        if self._unseen:
            notes.append(
                f"{self._unseen:,} times an exchange ended while its rank computed: "
                "the end of its step waits for it"
            )
