"""One rank's trace of torch.profiler (Kineto): its steps, computing and exchanges.

Kineto writes Chrome's trace events: ranges (``"ph": "X"``) have a category, begin and
length in microseconds, and ``args``. With a GPU its kernels are what computes; without
one, operators that call no other do. Exchanges are NCCL's kernels, with what
``record_param_comms`` says of them, or the ranges ``gloo:...`` of the profiler.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from emu.host.input_file import MOST_TEXT, one_error, read_json
from emu.host.limits import limit
from emu.interchange.accounted import Account, Reading, read_mapping
from emu.interchange.kineto_ranges import (
    ALL_TO_ALL_CALL,
    Range,
    calls_of,
    divide,
    find_splits,
    kind_of,
    numbers_of,
    parse_list,
    splits_text,
)
from emu.interchange.workload import Data
from emu.names import printable

#: Keys of the file that change no number.
_ABOUT = (
    "schemaVersion",
    "deviceProperties",
    "trace_id",
    "host_name",
    "displayTimeUnit",
    "traceName",
    "record_shapes",
    "with_stack",
    "with_flops",
    "with_modules",
    "profile_memory",
    "cuda_runtime_version",
    "cuda_driver_version",
    "cupti_version",
    "hip_runtime_version",
    "hip_driver_version",
    "roctracer_version",
)
#: Keys of a range, and arguments of an exchange, that are read or change no number.
_OF_RANGES = ("ph", "cat", "pid", "tid", "args", "id", "bp")
_OF_EXCHANGES = {
    "Collective name",
    "In msg nelems",
    "Out msg nelems",
    "dtype",
    "Group size",
    "Rank",
    "Src Rank",
    "Dst Rank",
    "Process Group Name",
    "Process Group Description",
    "Process Group Ranks",
    "Seq",
    "In split size",
    "Out split size",
    "Comms Id",
    "Input Tensors start",
    "Output Tensors start",
    "External id",
    "correlation",
    "Input Dims",
    "Input type",
    "Input Strides",
    "Concrete Inputs",
    "Ev Idx",
    "Record function id",
    "Is asynchronized op",
    "device",
    "context",
    "stream",
    "grid",
    "block",
    "registers per thread",
    "shared memory",
    "blocks per SM",
    "warps per SM",
    "queued",
    "priority",
    "est. achieved occupancy %",
    "Global rank start",
    "Global rank stride",
    "Sequence number",
    "Fwd thread id",
}
#: Categories of what keeps a GPU busy; copies do so as kernels do.
_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver")
_STEP = "ProfilerStep#"
#: Operators that stand for an exchange, or wait for one: they do not compute.
_CALLS = ("c10d::", "c10d_functional::", "_c10d_functional::", "record_param_comms")
MESSAGES = ("SEND", "RECV")
_ROOTED = ("BROADCAST", "REDUCE", "GATHER", "SCATTER", *MESSAGES)
#: Bytes of a number by its type, as torch and as C++ call it.
_WIDTHS = {
    "double": 8,
    "long": 8,
    "long int": 8,
    "float": 4,
    "int": 4,
    "half": 2,
    "short": 2,
    "short int": 2,
    "bfloat16": 2,
    "byte": 1,
    "unsigned char": 1,
    "char": 1,
    "signed char": 1,
    "bool": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}
#: More would take their memory before the first missing file is named.
_MOST_RANKS = 1_000_000


class Exchange(NamedTuple):
    """Part of a rank in a collective, or one end of a message."""

    post: float
    """When the rank was ready for it."""
    end: float
    kind: str
    """One of `COLLECTIVES` of Chakra, or of `MESSAGES`."""
    size: float
    """Bytes that the rank brings."""
    group: str
    ranks: tuple[int, ...]
    """Ranks of the group; of a message, who sends and who receives."""
    root: int = 0
    """Place of the root in the group; of a message, its tag."""
    shares: tuple[float, ...] = ()
    """Bytes for each rank of the group, where they differ."""


class RankTrace(Account):
    """Steps, computing and exchanges of one rank.

    ``rank`` is taken where the file states none. Raises DataError when the file is
    damaged, or does not say what an exchange moved, and between whom.
    """

    def __init__(self, path: Path, rank: int | None = None) -> None:
        super().__init__(str(path))
        self.rank = rank
        with one_error(path):
            # Tracers write some arguments twice, of which none is read.
            document = read_json(path, limit(MOST_TEXT), unique_keys=False)
            content = read_mapping(document, "trace")
            content.ignore(*_ABOUT)
            nanoseconds = content.number("baseTimeNanoseconds", 0)
            #: Where its clock's zero is on the clock of the host, in seconds.
            self.zero = nanoseconds / 1e9
            events = content["traceEvents"]
            ranges = self._read_ranges(events)
            # All below goes by time, in whichever order the file has them.
            self._ranges = sorted(ranges, key=lambda row: row.begin)
            self.uses_gpu = any(row.category in _ON_GPU for row in self._ranges)
            exchanges = [row for row in self._ranges if row.is_exchange]
            # Not by `uses_gpu`: gloo may exchange what a GPU has computed.
            self.by_nccl = any(row.category == "kernel" for row in exchanges)
            distributed = content.part("distributedInfo")
            self._read_about(distributed)

            #: Number of a step -> its begin and end; of a whole trace, step 0.
            self.steps: dict[int, tuple[float, float]] = {}
            #: Begin and end of what surely computed, in order, apart from each other.
            self.busy = self._merge_busy()
            #: In the order of their posts.
            self.exchanges: list[Exchange]
            if self.by_nccl:
                self.exchanges = sorted(self._kernel_exchanges())
            else:
                self.exchanges = [*self._gloo_exchanges()]
            self._take_steps()
            self._check_calls()
            self._count_unused()
            self.left_out.update(content.left_out())

    def _read_ranges(self, events: list[Data]) -> Iterator[Range]:
        for event in events:
            phase = event.get("ph")
            if phase != "X":
                self.leave_out(f"event of phase {phase}")
                continue
            reading = Reading(event, "range")
            reading.ignore(*_OF_RANGES)
            begin = reading.number("ts") / 1e6
            seconds = reading.number("dur") / 1e6
            if seconds < 0:
                name = event.get("name")
                raise ValueError(f"range {name} takes {seconds} s")

            process = event.get("pid")
            thread = event.get("tid")
            yield Range(
                begin=begin,
                end=begin + seconds,
                name=reading.text("name"),
                category=str(event.get("cat", "none")),
                thread=f"{process}/{thread}",
                args=event.get("args", {}),
            )
            self.left_out.update(reading.left_out())

    def _read_about(self, distributed: Reading) -> None:
        distributed.ignore("pg_count", "nccl_version", "rccl_version")
        if "rank" in distributed:
            self.rank = distributed.count("rank")
        #: Number of ranks; 0 where the file does not say.
        self.world = distributed.count("world_size", 0)
        if self.world > _MOST_RANKS:
            raise self.error(f"announces {self.world:,} ranks")

        self._groups: dict[str, tuple[int, ...]] = {}
        for row in distributed.parts("pg_config", "group"):
            row.ignore("pg_desc", "backend_config", "pg_size")
            name = row.text("pg_name")
            members = parse_list(row.get("ranks"))
            self._groups[name] = tuple(map(int, members))
        #: Name of the library that exchanged, or of several.
        self._backend = distributed.text("backend", "")

    def _take_steps(self) -> None:
        marks = [row for row in self._ranges if row.name.startswith(_STEP)]
        # Kernels of a step come later than what launched them.
        on_gpu = [row for row in marks if row.category == "gpu_user_annotation"]
        on_cpu = [row for row in marks if row.category == "user_annotation"]
        for row in on_cpu:
            number = int(row.name.removeprefix(_STEP))
            if number in self.steps:
                raise self.error(f"has step {number} twice: export every cycle apart")
            same = [mark for mark in on_gpu if mark.name == row.name]
            if not same:
                same = [row]
            begin = min(mark.begin for mark in same)
            end = max(mark.end for mark in same)
            self.steps[number] = (begin, end)

        if not self.busy:
            raise self.error("holds no range that computes")
        #: True where no step is marked.
        self.is_whole = not self.steps
        if self.is_whole:
            exchange_ends = [exchange.end for exchange in self.exchanges]
            _, busy_end = self.busy[-1]
            last = max(busy_end, *exchange_ends, 0)
            # A range that goes on beyond it, as of a whole program, begins nothing.
            begins = [row.begin for row in self._ranges if row.end <= last]
            first = min(begins)
            self.leave_out("mark of a step: the trace is taken whole")
            self.steps[0] = (first, last)

    def _check_calls(self) -> None:
        """Refuse a trace that calls exchanges and has no range of any."""
        calls = [row for row in self._ranges if row.name.startswith(_CALLS)]
        # Ranges of MPI are not read, and of NCCL the kernels may not have been traced:
        # as one that exchanges nothing the job would be too fast.
        if calls and self.world > 1 and not self.exchanges:
            backend = self._backend or "some library"
            raise self.error(
                f"calls {calls[0].name} by {backend}, and has "
                "no kernel of NCCL nor range of gloo: trace with activities=[CPU, CUDA]"
            )

    def _count_unused(self) -> None:
        categories: tuple[str, ...] = ("cpu_op",)
        if self.uses_gpu:
            categories = (*_ON_GPU, *_LAUNCHES)

        for row in self._ranges:
            is_call = row.name.startswith(_CALLS)
            is_known = is_call or row.name.startswith(_STEP)
            is_used = is_known or row.category in categories
            if not is_used and not row.is_exchange:
                self.leave_out(f"range of category {row.category}")
            if is_call or row.is_exchange:
                unknown = row.args.keys() - _OF_EXCHANGES
                for key in unknown:
                    self.left_out[f"{key} of an exchange"] += 1
            elif row.args:
                kind = "argument of a range that exchanges nothing"
                self.leave_out(kind, len(row.args))

    def _merge_busy(self) -> list[tuple[float, float]]:
        spans: list[tuple[float, float]] = []
        rows = self._operators()
        if self.uses_gpu:
            rows = self._kernels()
        for row in sorted(rows, key=lambda row: row.begin):
            # Streams of a GPU, and threads, compute side by side.
            if spans and row.begin <= spans[-1][1]:
                begin, end = spans[-1]
                spans[-1] = (begin, max(row.end, end))
            else:
                spans.append((row.begin, row.end))
        return spans

    def _kernels(self) -> Iterator[Range]:
        for row in self._ranges:
            if row.category in _ON_GPU and not row.is_exchange:
                yield row

    def _operators(self) -> Iterator[Range]:
        """Yield operators that call no other, and are part of no exchange.

        One that calls others may wait between them.
        """
        by_thread = defaultdict[str, list[Range]](list)
        for row in self._ranges:
            if row.category == "cpu_op" or row.is_exchange:
                by_thread[row.thread].append(row)

        for rows in by_thread.values():
            # Of two that begin together the longer one called the other.
            rows.sort(key=lambda row: (row.begin, -row.end))
            # Operators within an exchange stand for it, and compute nothing.
            exchange_end = -math.inf
            # The last is followed by none: the first stands in and is told apart below.
            followers = [*rows[1:], rows[0]]
            for row, following in zip(rows, followers, strict=True):
                if row.is_exchange:
                    exchange_end = row.end
                calls_others = row.begin <= following.begin < row.end
                calls_others &= following is not rows[0]
                is_part = row.begin < exchange_end or row.name.startswith(_CALLS)
                if not calls_others and not is_part:
                    yield row

    def _gloo_exchanges(self) -> Iterator[Exchange]:
        """Yield the ranges of gloo's workers, with what was called for each."""
        rows = [row for row in self._ranges if row.is_exchange]
        calls = [row for row in self._ranges if row.name.startswith("c10d::")]
        ranks = self._gloo_ranks(rows)
        own_place = [place for place, rank in enumerate(ranks) if rank == self.rank]
        ends: list[float] = []
        post = -math.inf
        are_paired = len(calls) == len(rows)
        calls_of_rows = calls_of(rows, calls)
        for place, (row, own_calls) in enumerate(zip(rows, calls_of_rows, strict=True)):
            # Calls and ranges go together by place only where both are as many.
            # A worker that was not free took up later what had been posted.
            call_time = calls[place].begin if are_paired else row.begin
            was_queued = any(call_time < end <= row.begin for end in ends)
            ends.append(row.end)

            kind = self._kind_of(row.name)
            numbers = numbers_of(own_calls)
            # Who gets a part of a scatter has no input, as a barrier has none.
            is_given = kind == "SCATTER" and numbers[:1] != own_place
            brings = kind != "BARRIER" and not is_given
            root = numbers[0] if numbers else None
            tag = numbers[1] if len(numbers) > 1 else 0
            # What was called first is posted first, however late it was taken up.
            post = max(call_time, post) if was_queued else row.begin
            size = self._bytes_of(row) if brings else 0.0
            shares: tuple[float, ...] = ()
            if kind == "ALL_TO_ALL":
                shares = self._gloo_shares(row, own_calls, size, len(ranks))
            exchange = Exchange(
                post=post,
                end=row.end,
                kind=kind,
                size=size,
                group="gloo",
                ranks=ranks,
                shares=shares,
            )
            yield self._exchange(kind, root, exchange, tag=tag)

    def _gloo_ranks(self, rows: list[Range]) -> tuple[int, ...]:
        groups = {tuple(sorted(ranks)) for ranks in self._groups.values()}
        if rows and len(groups) > 1:
            raise self.error(
                f"has {len(groups)} groups of ranks, and gloo does not say whose its "
                "ranges are"
            )
        every_rank = tuple(range(self.world))
        return next(iter(groups), every_rank)

    def _gloo_shares(
        self, row: Range, calls: list[Range], size: float, members: int
    ) -> tuple[float, ...]:
        shapes = row.args["Input Dims"]
        if not shapes or not shapes[0]:
            raise self.error(f"{row.name:.40} has Input Dims {shapes}, without rows")
        text = find_splits(calls, shapes[0][0])
        if text is None:
            self.leave_out("call of an all-to-all, not found: taken as equal")
            return ()
        if any(splits_text(call) != text for call in calls):
            self.leave_out("call of an all-to-all, not clear: the last of its rows")
        key = f"Concrete Inputs of {ALL_TO_ALL_CALL}"
        return self._shares_of(key, text, size, members)

    def _shares_of(
        self, key: str, stated: Any, size: float, members: int
    ) -> tuple[float, ...]:
        """Return the bytes for each of so many ranks; none where they are equal."""
        if stated in (None, [], "[]"):
            return ()
        splits = parse_list(stated)
        # Of more than 30 torch writes nothing, or the first ones and dots.
        if not splits:
            kind = "splits of an all-to-all, not stated in full: taken as equal"
            self.leave_out(kind)
            return ()
        if len(splits) != members:
            count = len(splits)
            raise self.error(f"has {count} splits for {members} ranks in {key}")
        if not all(0 <= split < math.inf for split in splits):
            raise self.error(f"has splits {stated!s:.40} in {key}, write rows")
        return divide(size, splits)

    def _kernel_exchanges(self) -> Iterator[Exchange]:
        """Yield NCCL's kernels, with what was recorded at their calls."""
        records = self._records()
        ready_time = self._ready_times()
        for row in self._ranges:
            if not row.is_exchange:
                continue
            # What the kernel itself states goes before what its call does.
            call_number = row.args.get("External id")
            call_record = records.get(call_number, {})
            record = call_record | row.args
            if "Collective name" not in record:
                raise self.error(
                    f"{row.name:.40} states no bytes: trace CPU and CUDA, by torch 2.3 "
                    "or later"
                )
            name = str(record["Collective name"])
            kind = self._kind_of(name)
            number_type = str(record.get("dtype"))
            width = self._width_of(number_type)
            size = 0.0
            if kind != "BARRIER":
                size = float(record["In msg nelems"]) * width

            ranks = self._ranks_of(record)
            shares: tuple[float, ...] = ()
            if kind == "ALL_TO_ALL":
                splits = record.get("In split size")
                shares = self._shares_of("In split size", splits, size, len(ranks))

            ready = ready_time(row)
            exchange = Exchange(
                # At the latest it was ready when it began.
                post=min(row.begin, ready),
                end=row.end,
                kind=kind,
                size=size,
                group=str(record.get("Process Group Name", "")),
                ranks=ranks,
                shares=shares,
            )
            root = self._root_of(kind, record, ranks)
            yield self._exchange(kind, root, exchange)

    def _records(self) -> dict[Any, Data]:
        """Return what was recorded at calls of NCCL, by the number of the call."""
        records = {}
        unused_count = 0
        for row in self._ranges:
            number = row.args.get("External id")
            if row.name == "record_param_comms" and "Collective name" in row.args:
                records[number] = row.args
                unused_count += 1
            elif row.is_exchange:
                unused_count -= number in records
        if unused_count > 0:
            self.leave_out("record of an exchange without a kernel", unused_count)
        return records

    def _ready_times(self) -> Callable[[Range], float]:
        """Return a function that says when a kernel of NCCL could have begun.

        It was launched, and what its caller had launched before had ended: NCCL's
        stream waits for that, and for the exchange ahead.
        """
        launches = {}
        for row in self._ranges:
            if row.category in _LAUNCHES:
                number = row.args.get("correlation")
                launches[number] = row.begin

        def launch_of(row: Range) -> float:
            number = row.args.get("correlation")
            if number not in launches:
                self.leave_out("kernel whose launch is not there")
            return launches.get(number, row.begin)

        spans = [(launch_of(row), row.end) for row in self._kernels()]
        launch_ends = sorted(spans)
        ends = [end for _, end in launch_ends]
        latest = [*accumulate(ends, max, initial=-math.inf)]  # of those launched so far

        def ready_time(row: Range) -> float:
            launch = launch_of(row)
            # The tuple of one sorts before all that were launched at the same time.
            earlier = bisect_left(launch_ends, (launch,))
            return max(launch, latest[earlier])

        return ready_time

    def _exchange(
        self, kind: str, root: Any, exchange: Exchange, tag: int = 0
    ) -> Exchange:
        """Return an exchange with its root, a place in the group, or as a message."""
        if not 0 <= exchange.size < math.inf:
            raise self.error(f"has {kind} of {exchange.size:g} bytes")
        if kind not in _ROOTED:
            return exchange
        if root is None:
            raise self.error(f"does not say the root or peer of a {kind}")
        place = int(root)
        members = len(exchange.ranks)
        if not 0 <= place < members:
            raise self.error(f"has {kind} of rank {place} in a group of {members}")
        if kind not in MESSAGES:
            return exchange._replace(root=place)
        own_rank = self.rank or 0
        peer = exchange.ranks[place]
        ends = (own_rank, peer) if kind == "SEND" else (peer, own_rank)
        return exchange._replace(ranks=ends, root=tag)

    def _kind_of(self, name: str) -> str:
        kind = kind_of(name)
        if kind is None:
            raise self.error(f"has an exchange {name!r:.40}, which is not read")
        return kind

    def _width_of(self, dtype: str) -> int:
        _, _, name = dtype.rpartition("::")
        word = name.lower()
        if word not in _WIDTHS:
            raise self.error(f"exchanges numbers of unknown type {dtype!r:.40}")
        return _WIDTHS[word]

    def _bytes_of(self, row: Range) -> float:
        if "Input Dims" not in row.args:
            raise self.error(
                f"{row.name:.40} states no bytes: trace with torch.profiler."
                "profile(record_shapes=True)"
            )

        types = row.args["Input type"]
        shapes = row.args["Input Dims"]
        sizes = []
        for shape, dtype in zip(shapes, types, strict=True):
            count = math.prod(shape)
            width = self._width_of(dtype)
            sizes.append(float(count * width))
        return sum(sizes)

    def _ranks_of(self, record: Data) -> tuple[int, ...]:
        group = str(record.get("Process Group Name", ""))
        stated_members = record.get("Process Group Ranks")
        members = parse_list(stated_members)
        ranks = tuple(map(int, members))
        if not ranks:
            ranks = self._groups.get(group, ())

        stated_size = record.get("Group size", len(ranks))
        size = int(stated_size)
        # Without a list only the group of all ranks can be told.
        if not ranks and size == self.world:
            return tuple(range(size))
        if len(ranks) != size:
            raise self.error(f"names {len(ranks)} of {size} ranks of group {group!r}")
        return ranks

    def _root_of(self, kind: str, record: Data, ranks: tuple[int, ...]) -> Any:
        """Return the place of the root or peer in a group, None where none is stated.

        ``Rank`` is a place already, where the others are among the ranks of all.
        """
        key = "Dst Rank" if kind == "SEND" else "Src Rank"
        rank = record.get(key)
        if kind not in _ROOTED or rank is None:
            return record.get("Rank")
        if int(rank) not in ranks:
            group = printable(str(ranks), limit=60)
            raise self.error(f"has {key} {rank}, which is not in its group {group}")
        return ranks.index(int(rank))
