"""One rank's trace of torch.profiler (Kineto): its steps, computing and exchanges.

Kineto writes Chrome's trace events: ranges (``"ph": "X"``) have a category, begin and
length in microseconds, and ``args``. With a GPU its kernels are what computes; without
one, operators that call no other do. Exchanges are NCCL's kernels, with what
``record_param_comms`` says of them, or the ranges ``gloo:...`` of the profiler.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from emu.errors import DataError
from emu.host.input_file import MOST_TEXT, one_error, read_json
from emu.host.limits import limit
from emu.interchange.accounted import Reading, read_mapping
from emu.interchange.workload import Data

#: Keys of the file that change no number.
_ABOUT = (
    "schemaVersion", "deviceProperties", "trace_id", "host_name", "displayTimeUnit",
    "traceName", "record_shapes", "with_stack", "with_flops", "with_modules",
    "profile_memory", "cuda_runtime_version", "cuda_driver_version", "cupti_version",
    "hip_runtime_version", "hip_driver_version", "roctracer_version",
)  # fmt: skip
_ABOUT_GROUPS = ("pg_count", "nccl_version", "rccl_version")
_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver")
_STEP = "ProfilerStep#"
#: Operators that stand for an exchange, or wait for one: they do not compute.
_CALLS = ("c10d::", "c10d_functional::", "_c10d_functional::", "record_param_comms")
#: Kinds of exchanges by their names in torch, without what `_WORDS` takes off.
_KINDS = {
    "allreduce": "ALL_REDUCE", "allgather": "ALL_GATHER", "broadcast": "BROADCAST",
    "reducescatter": "REDUCE_SCATTER", "alltoall": "ALL_TO_ALL", "reduce": "REDUCE",
    "alltoallv": "ALL_TO_ALL", "gather": "GATHER", "scatter": "SCATTER",
    "barrier": "BARRIER", "allreducebarrier": "BARRIER", "send": "SEND",
    "recv": "RECV",
}  # fmt: skip
_WORDS = re.compile(r"^(nccl|gloo):|_|base|coalesced|into|tensor|single|oop")
#: Bytes of a number by its type, as torch and as C++ call it.
_WIDTHS = {
    "double": 8, "long": 8, "long int": 8, "float": 4, "int": 4, "half": 2, "short": 2,
    "short int": 2, "bfloat16": 2, "byte": 1, "unsigned char": 1, "char": 1,
    "signed char": 1, "bool": 1,
}  # fmt: skip
_ROOTED = ("BROADCAST", "REDUCE", "GATHER", "SCATTER")
#: Exchanges of a group that gloo runs at once: it has two workers.
_AT_ONCE = {"gloo": 2, "nccl": 1}


class Range(NamedTuple):
    """Something that took time."""

    name: str
    category: str
    thread: str
    begin: float
    end: float
    """Seconds of the trace's clock."""
    args: Data


class Exchange(NamedTuple):
    """Part of a rank in a collective, or one end of a message."""

    kind: str
    """One of `COLLECTIVES`, or SEND, RECV."""
    size: float
    """Bytes that the rank brings."""
    group: str
    ranks: tuple[int, ...]
    """Ranks of the group; of a message, who sends and who receives."""
    post: float
    """When the rank was ready for it."""
    end: float
    root: int
    """Place of the root in the group; of a message, its tag."""
    shares: tuple[float, ...]
    """Bytes for each rank of the group, where they differ."""


@dataclass
class RankTrace:
    """What one rank did."""

    origin: str
    rank: int | None
    world: int
    """Number of ranks; 0 where the file does not say."""
    backend: str
    """``nccl`` or ``gloo``, which its exchanges went by."""
    steps: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Number of a step -> its begin and end."""
    busy: list[tuple[float, float]] = field(default_factory=list)
    """Begin and end of what surely computed, in order, apart from each other."""
    exchanges: list[Exchange] = field(default_factory=list)
    """In the order of their posts."""
    left_out: Counter[str] = field(default_factory=Counter)
    zero: float = 0.0
    """Where its clock's zero is on the clock of the host, in seconds."""

    @property
    def at_once(self) -> int:
        """Exchanges of a group that run at the same time."""
        return _AT_ONCE[self.backend]


def read_rank(path: Path) -> RankTrace:
    """Return the trace of one rank.

    Raises DataError when it is damaged, or does not say what an exchange moved, and
    between whom.
    """
    with one_error(path):
        content = read_mapping(read_json(path, limit(MOST_TEXT)), "trace")
        content.ignore(*_ABOUT)
        about = content.part("distributedInfo")
        about.ignore(*_ABOUT_GROUPS)

        events = content["traceEvents"]
        left_out = Counter[str]()
        ranges = sorted(_ranges(events, left_out), key=lambda row: row.begin)
        uses_gpu = any(row.category in _ON_GPU for row in ranges)
        groups = _read_groups(about)

        trace = RankTrace(
            origin=str(path),
            rank=about.count("rank") if "rank" in about else None,
            world=about.count("world_size", 0),
            backend="nccl" if uses_gpu else "gloo",
            left_out=left_out,
            zero=content.number("baseTimeNanoseconds", 0) / 1e9,
        )
        if not uses_gpu and "nccl" in about.text("backend", ""):
            problem = "has no kernels of a job by nccl: trace with activities=[CPU, "
            raise DataError(f"{problem}CUDA] of ProfilerActivity", path=path)

        _take_steps(trace, ranges)
        found = _Exchanges(trace, ranges, groups)
        moves = found.of_kernels() if uses_gpu else found.of_gloo()
        trace.exchanges = sorted(moves, key=lambda exchange: exchange.post)
        spans = _kernels(ranges) if uses_gpu else _operators(ranges)
        trace.busy = _merge(spans)
        _count_unused(trace, ranges, uses_gpu=uses_gpu)
        trace.left_out.update(content.left_out())
    return trace


def _ranges(events: Iterable[Data], left_out: Counter[str]) -> Iterator[Range]:
    """Yield the events that took time; others are counted.

    Raises ValueError when one lacks a key, or its times cannot be.
    """
    for event in events:
        if event.get("ph") != "X":
            left_out[f"event of phase {event.get('ph')}"] += 1
            continue
        reading = Reading(event, "range")
        begin = reading.number("ts") / 1e6
        seconds = reading.number("dur") / 1e6
        if seconds < 0:
            raise ValueError(f"range {event.get('name')} takes {seconds} s")
        yield Range(
            name=reading.text("name"),
            category=str(event.get("cat", "none")),
            thread=f"{event.get('pid')}/{event.get('tid')}",
            begin=begin,
            end=begin + seconds,
            args=event.get("args", {}),
        )


def _read_groups(about: Reading) -> dict[str, tuple[int, ...]]:
    """Return the ranks of every process group that the file lists, by its name."""
    groups = {}
    for row in about.parts("pg_config", "group"):
        row.ignore("pg_desc", "backend_config", "pg_size")
        groups[row.text("pg_name")] = tuple(row.get("ranks", ()))
    return groups


def _take_steps(trace: RankTrace, ranges: Sequence[Range]) -> None:
    for row in ranges:
        number = row.name.removeprefix(_STEP)
        is_step = row.category == "user_annotation" and number != row.name
        if is_step and number.isdecimal():
            if int(number) in trace.steps:
                problem = f"has step {number} twice: export a trace of each cycle"
                raise DataError(problem, path=trace.origin)
            trace.steps[int(number)] = (row.begin, row.end)


def _is_exchange(row: Range) -> bool:
    if row.category == "kernel":
        return row.name.lower().startswith("nccl")
    return row.category == "user_annotation" and row.name.startswith("gloo:")


def _kernels(ranges: Iterable[Range]) -> Iterator[tuple[float, float]]:
    for row in ranges:
        if row.category in _ON_GPU and not _is_exchange(row):
            yield row.begin, row.end


def _operators(ranges: Iterable[Range]) -> Iterator[tuple[float, float]]:
    """Yield when operators computed that call no other, and are part of no exchange.

    One that calls others may wait between them.
    """
    by_thread = defaultdict[str, list[Range]](list)
    for row in ranges:
        if row.category == "cpu_op" or _is_exchange(row):
            by_thread[row.thread].append(row)

    for rows in by_thread.values():
        rows.sort(key=lambda row: (row.begin, -row.end))
        exchange_end = -math.inf
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            if _is_exchange(row):
                exchange_end = row.end
            calls_others = following is not None and following.begin < row.end
            is_part = row.begin < exchange_end
            if not (calls_others or is_part or row.name.startswith(_CALLS)):
                yield row.begin, row.end


def _merge(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _count_unused(trace: RankTrace, ranges: Iterable[Range], *, uses_gpu: bool) -> None:
    used = (*_ON_GPU, *_LAUNCHES) if uses_gpu else ("cpu_op",)
    for row in ranges:
        is_step = row.category == "user_annotation" and row.name.startswith(_STEP)
        is_call = row.name.startswith(_CALLS)
        if not (row.category in used or is_step or is_call or _is_exchange(row)):
            trace.left_out[f"range of category {row.category}"] += 1


class _Exchanges:
    """The exchanges among the ranges of a rank."""

    def __init__(
        self,
        trace: RankTrace,
        ranges: Sequence[Range],
        groups: dict[str, tuple[int, ...]],
    ) -> None:
        self._trace = trace
        self._ranges = ranges
        self._groups = groups
        self._rows = [row for row in ranges if _is_exchange(row)]
        self._calls = [row for row in ranges if row.name.startswith(_CALLS)]

    def of_gloo(self) -> Iterator[Exchange]:
        """Yield the ranges of gloo's workers; with what was called for each."""
        sets = {tuple(sorted(ranks)) for ranks in self._groups.values()}
        if self._rows and len(sets) > 1:
            problem = f"has {len(sets)} groups of ranks, and ranges of gloo do not say "
            raise DataError(f"{problem}whose they are", path=self._trace.origin)

        calls = [row for row in self._calls if row.name.startswith("c10d::")]
        are_paired = len(calls) == len(self._rows)
        ranks = next(iter(sets), tuple(range(self._trace.world)))
        ends: list[float] = []
        for place, row in enumerate(self._rows):
            kind = self._kind_of(row, row.name)
            call = self._call_of(row, kind)
            # A worker that was not free took up later what had been posted.
            called = calls[place].begin if are_paired else row.begin
            was_queued = any(called < end <= row.begin for end in ends)
            ends.append(row.end)

            numbers = self._numbers_of(call)
            yield self._exchange(
                row,
                kind,
                size=0.0 if kind == "BARRIER" else self._gloo_bytes(row),
                group="gloo",
                ranks=ranks,
                post=called if was_queued else row.begin,
                root=numbers[0] if numbers else None,
                tag=numbers[1] if len(numbers) > 1 else 0,
            )

    def of_kernels(self) -> Iterator[Exchange]:
        """Yield NCCL's kernels, with what was recorded at their calls."""
        records = {
            row.args.get("External id"): row
            for row in self._calls
            if "Collective name" in row.args
        }
        ready = self._ready_times()
        for row in self._rows:
            record = records.get(row.args.get("External id"), row)
            about = {**record.args, **row.args}
            if "Collective name" not in about:
                problem = f"{row.name:.40} states no bytes: trace the CPU beside the "
                problem += "GPU, by torch 2.3 or later"
                raise DataError(problem, path=self._trace.origin)
            name = str(about["Collective name"])
            kind = self._kind_of(row, name)

            width = self._width_of(row, str(about.get("dtype")))
            size = float(about["In msg nelems"]) * width
            group = str(about.get("Process Group Name", ""))
            is_sent = kind == "SEND"
            peer = about.get("Dst Rank" if is_sent else "Src Rank")
            yield self._exchange(
                row,
                kind,
                size=0.0 if kind == "BARRIER" else size,
                group=group,
                ranks=self._ranks_of(about, group),
                post=min(row.begin, ready(row)),
                root=about.get("Rank") if peer is None else peer,
                splits=_numbers(about.get("In split size", "[]")),
            )

    def _exchange(
        self,
        row: Range,
        kind: str,
        *,
        size: float,
        group: str,
        ranks: tuple[int, ...],
        post: float,
        root: Any,
        tag: int = 0,
        splits: Sequence[float] = (),
    ) -> Exchange:
        """Return an exchange; of a message, ``root`` is the other rank."""
        own = self._trace.rank or 0
        needs_root = kind in (*_ROOTED, "SEND", "RECV")
        if needs_root and root is None:
            problem = f"{row.name:.40} does not say which rank is its root or peer"
            raise DataError(problem, path=self._trace.origin)
        place = int(root) if needs_root else 0
        if kind in ("SEND", "RECV"):
            ranks = (own, place) if kind == "SEND" else (place, own)
            place = tag
        is_uneven = kind == "ALL_TO_ALL" and len({*splits}) > 1
        shares = [size * split / sum(splits) for split in splits if is_uneven]
        return Exchange(
            kind=kind,
            size=size,
            group=group,
            ranks=ranks,
            post=post,
            end=row.end,
            root=place,
            shares=tuple(shares),
        )

    def _kind_of(self, row: Range, name: str) -> str:
        word = _WORDS.sub("", name.lower())
        if word not in _KINDS:
            problem = f"{row.name:.60} is an exchange {name!r:.40}, which is not read"
            raise DataError(problem, path=self._trace.origin)
        return _KINDS[word]

    def _width_of(self, row: Range, dtype: str) -> int:
        word = dtype.rpartition("::")[2].lower()
        width = 1 if word.startswith("float8") else _WIDTHS.get(word)
        if width is None:
            problem = f"{row.name:.40} has numbers of unknown type {dtype!r:.40}"
            raise DataError(problem, path=self._trace.origin)
        return width

    def _gloo_bytes(self, row: Range) -> float:
        if "Input Dims" not in row.args:
            problem = f"{row.name:.40} states no bytes: trace with torch.profiler."
            raise DataError(
                f"{problem}profile(record_shapes=True)", path=self._trace.origin
            )
        shapes = row.args["Input Dims"]
        types = row.args["Input type"]
        return sum(
            math.prod(shape) * float(self._width_of(row, dtype))
            for shape, dtype in zip(shapes, types, strict=True)
        )

    def _call_of(self, row: Range, kind: str) -> Range | None:
        """Return the last call of such an exchange before its range."""
        place = bisect_left(self._calls, row.begin, key=lambda call: call.begin)
        for call in reversed(self._calls[:place]):
            word = _WORDS.sub("", call.name.rpartition("::")[2])
            if _KINDS.get(word) == kind:
                return call
        return None

    def _numbers_of(self, call: Range | None) -> list[int]:
        """Return the whole numbers that a call was given: root or peer, tag, ..."""
        words = call.args.get("Concrete Inputs", []) if call else []
        return [int(word) for word in words if str(word).isdecimal()]

    def _ranks_of(self, about: Data, group: str) -> tuple[int, ...]:
        ranks = tuple(map(int, _numbers(about.get("Process Group Ranks", "[]"))))
        ranks = ranks or self._groups.get(group, ())
        size = int(about.get("Group size", len(ranks)))
        if size == self._trace.world and not ranks:
            return tuple(range(size))
        if len(ranks) != size:
            problem = f"names {len(ranks)} of the {size} ranks of group {group!r:.40}"
            raise DataError(problem, path=self._trace.origin)
        return ranks

    def _ready_times(self) -> Callable[[Range], float]:
        """Return what says when a kernel could have begun, but for the one before.

        It was launched, and what had been launched before it had ended: NCCL's stream
        waits for that of its caller.
        """
        launched = {
            row.args.get("correlation"): row.begin
            for row in self._ranges
            if row.category in _LAUNCHES
        }
        kernels = sorted(
            (launched.get(row.args.get("correlation"), row.begin), row.end)
            for row in self._ranges
            if row.category in _ON_GPU and not _is_exchange(row)
        )
        ends = [*accumulate((end for _, end in kernels), max)]

        def ready(row: Range) -> float:
            launch: float = launched.get(row.args.get("correlation"), row.begin)
            place = bisect_left(kernels, (launch,))
            return max(launch, ends[place - 1]) if place else launch

        return ready


def _numbers(stated: Any) -> list[float]:
    """Return a list that is stated as such or as text; none where it is cut short."""
    try:
        values = json.loads(stated) if isinstance(stated, str) else stated
        return [*map(float, values)]
    except (ValueError, TypeError):
        return []
