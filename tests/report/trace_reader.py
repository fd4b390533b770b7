"""A reader of the Trace Event Format, written from Google's document and not from emu.

It refuses what the document does not allow, and binds arrows to slices as viewers do.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

#: Fields that each phase needs beside ph, pid and tid.
NEEDED = {
    "X": {"name", "cat", "ts", "dur"},
    "M": {"name", "args"},
    "C": {"name", "ts", "args"},
    "s": {"name", "cat", "ts", "id"},
    "f": {"name", "cat", "ts", "id"},
}
METADATA = {
    "process_name": ("name", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}
Track = tuple[int, int]


@dataclass
class Trace:
    """What a viewer shows.

    ``slices`` are (start, end, name, args) in microseconds, ``arrows`` pairs of slice
    names, ``counters`` (time, value) by process and name.
    """

    processes: dict[int, str] = field(default_factory=dict)
    threads: dict[Track, str] = field(default_factory=dict)
    slices: dict[Track, list[tuple[float, float, str, dict[str, Any]]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    counters: dict[tuple[int, str], list[tuple[float, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    arrows: list[tuple[str, str]] = field(default_factory=list)


def read(path: Path) -> Trace:
    """Return the content of a trace file."""
    content = json.loads(path.read_text(), parse_constant=_refused)
    assert isinstance(content["traceEvents"], list)
    assert content.get("displayTimeUnit", "ms") in {"ms", "ns"}
    trace = Trace()
    ends: dict[Any, dict[str, dict[str, Any]]] = defaultdict(dict)
    for event in content["traceEvents"]:
        _check(event)
        _take(trace, event, ends)
    for slices in trace.slices.values():
        _check_nesting(slices)
    for arrow in ends.values():
        assert set(arrow) == {"s", "f"}
        assert arrow["s"]["ts"] <= arrow["f"]["ts"] + 1e-3
        trace.arrows.append((_bound(trace, arrow["s"]), _bound(trace, arrow["f"])))
    tracks = {pid for pid, _ in trace.slices} | {pid for pid, _ in trace.counters}
    assert tracks <= set(trace.processes), "a process without a name"
    assert set(trace.slices) <= set(trace.threads), "a lane without a name"
    return trace


def _refused(word: str) -> float:
    raise AssertionError(f"{word} is not JSON")


def _check(event: dict[str, Any]) -> None:
    assert event["ph"] in NEEDED, event
    assert NEEDED[event["ph"]] <= set(event), event
    for name in ("pid", "tid"):
        assert type(event[name]) is int
        assert 0 <= event[name] < 2**31
    for name in {"ts", "dur"} & set(event):
        assert math.isfinite(event[name])
        assert event[name] >= 0
    if event["ph"] == "M":
        key, kind = METADATA[event["name"]]
        assert type(event["args"][key]) is kind
        # What a process is called is said of none of its lanes.
        assert event["tid"] == 0 or event["name"].startswith("thread")


def _take(trace: Trace, event: dict[str, Any], ends: dict[Any, Any]) -> None:
    track = event["pid"], event["tid"]
    match event["ph"]:
        case "X":
            end = event["ts"] + event["dur"]
            item = event["ts"], end, event["name"], event.get("args", {})
            trace.slices[track].append(item)
        case "C":
            for value in event["args"].values():
                assert math.isfinite(value)
                key = event["pid"], event["name"]
                trace.counters[key].append((event["ts"], value))
        case "M" if event["name"] == "process_name":
            trace.processes[event["pid"]] = event["args"]["name"]
        case "M" if event["name"] == "thread_name":
            trace.threads[track] = event["args"]["name"]
        case "s" | "f":
            assert event["ph"] not in ends[event["cat"], event["id"]]
            ends[event["cat"], event["id"]][event["ph"]] = event
        case _:  # sort indices
            pass


def _check_nesting(slices: list[tuple[float, float, str, dict[str, Any]]]) -> None:
    """Slices of a lane may follow each other or nest; ours must only follow."""
    ordered = sorted(slices, key=lambda item: item[:2])
    for before, after in pairwise(ordered):
        assert before[1] <= after[0] + 1e-3, (before, after)


def _bound(trace: Trace, event: dict[str, Any]) -> str:
    """Return the slice that encloses the end of an arrow."""
    if event["ph"] == "f":
        assert event.get("bp") == "e", "else it binds to the next slice"
    found = [
        name
        for start, end, name, _ in trace.slices[event["pid"], event["tid"]]
        if start - 1e-6 <= event["ts"] <= end + 1e-6
    ]
    assert found, event
    # Of slices that touch, the one that begins here is meant.
    return found[-1] if event["ph"] == "f" else found[0]


def names(trace: Trace) -> Counter[str]:
    """Return how often each slice name occurs."""
    return Counter(name for slices in trace.slices.values() for _, _, name, _ in slices)
