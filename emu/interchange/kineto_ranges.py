"""Ranges of a torch.profiler trace, and the lists that their arguments state."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

from emu.host.input_file import parse_json
from emu.interchange.workload import Data

#: Of torch's all-to-all the argument with the rows for each rank.
_INPUT_SPLITS = 4


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


def splits_of(exchange: Range, calls: Sequence[Range]) -> list[float]:
    """Return the rows for each rank of an all-to-all of gloo; none of equal ones.

    ``calls`` are those of torch.distributed, in order.
    """
    rows = exchange.args["Input Dims"][0][0]
    place = bisect_left(calls, exchange.begin, key=lambda call: call.begin)
    for call in reversed(calls[:place]):
        inputs = call.args.get("Concrete Inputs", ())
        if call.name != "c10d::alltoall_base_" or len(inputs) <= _INPUT_SPLITS:
            continue
        splits = parse_list(inputs[_INPUT_SPLITS])
        # A later call may have begun before a worker took this one up.
        if not splits or sum(splits) == rows:
            return splits
    return []


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
