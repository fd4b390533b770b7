"""Ranges of a torch.profiler trace, the calls for them, and lists in arguments."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from emu.host.input_file import parse_json
from emu.interchange.workload import Data

#: Torch's all-to-all, and its arguments with what it sends and the rows for each rank.
ALL_TO_ALL_CALL = "c10d::alltoall_base_"
_INPUT = 1
_INPUT_SPLITS = 4
#: Kinds of exchanges by their names in torch, without `_WORDS`.
_KINDS = {
    "allreduce": "ALL_REDUCE",
    "allgather": "ALL_GATHER",
    "broadcast": "BROADCAST",
    "reducescatter": "REDUCE_SCATTER",
    "alltoall": "ALL_TO_ALL",
    "reduce": "REDUCE",
    "alltoallv": "ALL_TO_ALL",
    "gather": "GATHER",
    "scatter": "SCATTER",
    "barrier": "BARRIER",
    "allreducebarrier": "BARRIER",
    "send": "SEND",
    "recv": "RECV",
}
#: Parts of names that say how torch was called, and not what is exchanged:
#: gloo:all_reduce, _allgather_base, all_gather_into_tensor_coalesced.
_WORDS = re.compile(r"^(nccl:|gloo:|c10d::)|_|base|coalesced|into|tensor|single|oop")


class Range(NamedTuple):
    """Something that took time."""

    begin: float
    end: float
    """Seconds of the trace's clock."""
    name: str
    category: str
    thread: str
    args: Data

    @property
    def is_exchange(self) -> bool:
        """True of a kernel of NCCL and a range of gloo."""
        if self.category == "kernel":
            return self.name.lower().startswith("nccl")
        is_range = self.category == "user_annotation"
        return is_range and self.name.startswith("gloo:")


def kind_of(name: str) -> str | None:
    """Return the kind of an exchange, or of a call for one; None of an unknown name."""
    word = _WORDS.sub("", name.lower())
    return _KINDS.get(word)


def calls_of(
    exchanges: Sequence[Range], calls: Sequence[Range]
) -> Iterator[list[Range]]:
    """Yield for each exchange of gloo the calls that may be its own, likely first.

    Both are in order.
    """
    pairs_by_kind = {}
    for kind in {kind_of(row.name) for row in exchanges}:
        pairs_by_kind[kind] = _pair(
            [row for row in exchanges if kind_of(row.name) == kind],
            [call for call in calls if kind_of(call.name) == kind],
        )
    for row in exchanges:
        kind = kind_of(row.name)
        yield next(pairs_by_kind[kind])


def _pair(exchanges: Sequence[Range], calls: Sequence[Range]) -> Iterator[list[Range]]:
    # A worker that was not free takes up later what is queued, so that the last call
    # before an exchange may be of a later one: where both are as many, places tell.
    pairs = zip(exchanges, calls, strict=False)
    are_paired = len(exchanges) == len(calls)
    # A trace may begin between a call and its exchange, and end so.
    are_paired &= all(call.begin <= exchange.begin for exchange, call in pairs)
    for place, exchange in enumerate(exchanges):
        if are_paired:
            yield [calls[place]]
            continue
        count = bisect_left(calls, exchange.begin, key=lambda call: call.begin)
        yield [*reversed(calls[:count])]


def numbers_of(calls: Sequence[Range]) -> list[int]:
    """Return the whole numbers of the likely call of an exchange: root or peer, tag."""
    for call in calls[:1]:
        inputs = call.args.get("Concrete Inputs", ())
        words = map(str, inputs)
        return [int(word) for word in words if word.isdecimal()]
    return []


def splits_text(call: Range) -> Any:
    """Return what a call states of each rank's rows; None where it is no all-to-all."""
    inputs = call.args.get("Concrete Inputs", ())
    is_stated = call.name == ALL_TO_ALL_CALL and len(inputs) > _INPUT_SPLITS
    return inputs[_INPUT_SPLITS] if is_stated else None


def find_splits(calls: Sequence[Range], rows: float) -> Any:
    """Return the text of the likely call with so many rows; None without any."""
    for call in calls:
        text = splits_text(call)
        if text is not None and _rows_of(call, text) in (rows, None):
            return text
    return None


def _rows_of(call: Range, splits_text: Any) -> float | None:
    """Return the rows that a rank brings to an all-to-all; None where none are said."""
    splits = parse_list(splits_text)
    if splits:
        return sum(splits)
    shapes = call.args.get("Input Dims", ())
    if len(shapes) > _INPUT and shapes[_INPUT]:
        return float(shapes[_INPUT][0])
    return None


def divide(size: float, splits: Sequence[float]) -> tuple[float, ...]:
    """Return the bytes for each rank by its part of the rows; none of equal parts."""
    if len({*splits}) < 2:
        return ()
    total = sum(splits)
    return tuple(size * split / total for split in splits)


def parse_list(stated: Any) -> list[float]:
    """Return a list that is stated as such or as text; none where it is cut short."""
    try:
        # torch ends a long list in dots, which are no JSON.
        values = stated
        if isinstance(stated, str):
            values = parse_json(stated)
        return [*map(float, values)]
    except (ValueError, TypeError):
        return []
