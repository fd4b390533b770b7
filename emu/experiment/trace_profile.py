"""Times of tasks from the trace of a profiler: ranges that a program named itself."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from emu.array_types import Floats
from emu.errors import DataError, ScenarioError
from emu.host.confinement import confine
from emu.host.input_file import one_error, read_json
from emu.names import printable
from emu.problem import Profile
from emu.scenario import ProfileFile, Scenario, build_job, load
from emu.scenario.realize import realize
from emu.systems import Edit
from emu.systems.training_section import TimesSection, TrainingSection

#: Range of a trace -> seconds of each time that it was recorded.
Occurrences: TypeAlias = Mapping[str, Floats]

#: Name and category of a range -> its begins and seconds with the thread that had it,
#: and its processes.
Spans: TypeAlias = dict[tuple[str, str], list[tuple[float, float, str]]]
Processes: TypeAlias = dict[tuple[str, str], set[str]]

#: Kind of task -> names of the ranges that make up one iteration of it.
Ranges = Mapping[str, Sequence[str]]

#: Where a range was recorded, the one that counts first: work that a GPU does after its
#: range on the CPU has ended is part of the time.
_CATEGORIES = ("gpu_user_annotation", "user_annotation")
#: Microseconds by which sums of begins and lengths may differ.
_ROUNDING = 1e-3
#: Ranges that a refusal names at most: a trace of torch has thousands.
_TOLD = 12


def parse_ranges(texts: Iterable[str]) -> dict[str, list[str]]:
    """Return the ranges of each kind of ``KIND=NAME,...``.

    Raises ScenarioError where a text is written otherwise, or names a kind again, or
    twice a range of which a kind is the sum.
    """
    ranges = dict[str, list[str]]()
    for text in texts:
        kind, _, names = text.partition("=")
        option = f"--range {text}"
        if not names:
            problem = "write for example worker=forward,backward"
            raise ScenarioError(problem, file=option)
        parts = names.split(",")
        if kind in ranges:
            distinct = dict.fromkeys([*ranges[kind], *parts])
            both = ",".join(distinct)
            problem = f"is a second one of {kind}: write {kind}={both} for their sum"
            raise ScenarioError(problem, file=option)
        distinct = dict.fromkeys(parts)
        if len(distinct) < len(parts):
            once = ",".join(distinct)
            problem = f"counts a range twice: write {kind}={once}"
            raise ScenarioError(problem, file=option)
        ranges[kind] = parts
    return ranges


def list_stated(
    scenario: Scenario, occurrences: Occurrences, ranges: Ranges
) -> list[str]:
    """Return the kinds of task without a range whose times the scenario states."""
    section = scenario.job
    if not isinstance(section, TrainingSection) or section.rates is not None:
        return []

    tasks = build_job(scenario).tasks
    kinds = dict.fromkeys(task.kind for task in tasks)
    defaults = TimesSection().by_kind()
    stated_kinds = set()
    for kind, time in section.times.by_kind().items():
        if time != defaults.get(kind):
            stated_kinds.add(kind)
    measured_kinds = {*ranges, *occurrences}
    return [
        kind for kind in kinds if kind in stated_kinds and kind not in measured_kinds
    ]


def profile_from_trace(
    scenario: Scenario,
    trace: Path,
    ranges: Ranges,
    watch: Callable[[Occurrences], None] = lambda _: None,
) -> ProfileFile:
    """Return the profile of a DGTP job: times of a trace, volumes of its samples.

    The k-th occurrence of a range is iteration k of every task of the kind; of a
    sampler, as in ``times``, a whole mini-batch, of which each takes its share. A kind
    that is not in ``ranges`` is the range of its own name; kinds without one keep the
    scenario's ``times``. ``watch`` gets what `_occurrences` returns.

    Raises ScenarioError when the job is no DGTP job, or a kind has neither a range nor
    a time; DataError when the trace cannot be read, lacks a range that was named, or
    the data set cannot be opened.
    """
    section = scenario.job
    if not (section.traced and isinstance(section, TrainingSection)):
        problem = f"kinds of task of {section.system} are no ranges of a trace"
        raise ScenarioError(problem, key="job.system")
    tasks = build_job(scenario).tasks
    kinds = dict.fromkeys(task.kind for task in tasks)
    unknown = sorted(ranges.keys() - kinds.keys())
    if unknown:
        names = ", ".join(kinds)
        problem = f"no task of kind {unknown[0]!r}, known: {names}"
        raise ScenarioError(problem, file="--range")

    occurrences, processes, halves = _occurrences(trace)
    watch(occurrences)
    wanted = [name for kind in kinds for name in ranges.get(kind, (kind,))]
    _check_halves(wanted, halves, trace)
    try:
        seconds = _seconds_by_kind(occurrences, kinds, ranges)
    except KeyError as error:
        problem = _without(occurrences, error.args[0])
        raise DataError(problem, path=trace) from None
    for kind in seconds:
        for name in ranges.get(kind, (kind,)):
            _check_processes(name, processes[name], trace)

    # A trace may end within an iteration, of which some ranges were recorded then.
    iterations = min(map(len, seconds.values()))
    edit: Edit = {"job.iterations": iterations, "job.epochs": None}
    for kind, row in seconds.items():
        mean = float(row.mean())
        edit[f"job.times.{kind}"] = f"{mean!r} s"
    of_counts = load(scenario, {**edit, "profile": None})
    job = build_job(of_counts)
    realization = realize(of_counts, job)
    times = np.array(realization.times)
    for row, task in zip(times, job.tasks, strict=True):
        kind = task.kind
        if kind in seconds:
            share = section.share(kind)
            row[:] = share * seconds[kind][:iterations]
    scale = of_counts.emulation.stated_byte_scale
    profile = Profile(times, realization.volumes)
    return ProfileFile.of(job, profile, scale)


def _seconds_by_kind(
    occurrences: Occurrences,
    kinds: Iterable[str],
    ranges: Ranges,
) -> dict[str, Floats]:
    """Return the seconds of each iteration of every kind that the trace has.

    Raises KeyError with the range that it lacks: one that was named, or all.
    """
    seconds = {}
    for kind in kinds:
        if kind in ranges or kind in occurrences:
            names = ranges.get(kind, (kind,))
            rows = [occurrences[name] for name in names]
            # The last iteration of a trace may lack the later of its ranges.
            count = min(map(len, rows))
            whole_rows = [row[:count] for row in rows]
            seconds[kind] = np.sum(whole_rows, axis=0)

    if not seconds:
        first_kind = next(iter(kinds))
        raise KeyError(first_kind)
    return seconds


@confine
def _occurrences(
    trace: Path,
) -> tuple[dict[str, Floats], dict[str, int], set[str]]:
    """Return the seconds of every occurrence of each range, and its processes.

    One within another of its name and thread is a part of that, and no occurrence. The
    last are names of ranges that begin and end by two events, which have no row.

    Ranges that the program named itself come first, then those of torch, by their time;
    occurrences stand in their order.
    """
    with one_error(trace):
        # Tracers write some arguments twice, of which none is read.
        content = read_json(trace, unique_keys=False)
        events = content
        if isinstance(content, dict):
            events = content.get("traceEvents")
            if events is None:
                problem = "is no trace of torch.profiler: it has no traceEvents"
                raise DataError(problem, path=trace)
        spans, process_ids, halves = _read_spans(events)

    rank = {category: place for place, category in enumerate(_CATEGORIES)}
    last = len(rank)
    by_category = sorted(spans, key=lambda key: rank.get(key[1], last))
    rows = {}
    order = {}
    processes = {}
    for name, category in by_category:
        if name in rows:
            continue
        row = np.array(_list_seconds(spans[name, category]))
        rows[name] = row
        processes[name] = len(process_ids[name, category])
        order[name] = (category not in rank, -row.sum())
    names = sorted(rows, key=order.__getitem__)
    return {name: rows[name] for name in names}, processes, halves


def _list_seconds(spans: Iterable[tuple[float, float, str]]) -> list[float]:
    """Return the seconds of every span that lies in no other of its thread.

    What calls itself has a range within one of the same name: the outer one has its
    time, too.
    """
    ends = dict[str, float]()
    outermost = []
    # Of two that begin together the longer one is the outer one.
    for start, seconds, thread in sorted(spans, key=lambda span: (span[0], -span[1])):
        end = start + 1e6 * seconds
        # Times are rounded: what only begins before another ends lies behind it.
        last_end = ends.get(thread, -math.inf)
        if start < last_end and end <= last_end + _ROUNDING:
            continue
        ends[thread] = end
        outermost.append((start, seconds))
    # By their start: threads write events when they end, and not in order.
    return [seconds for _, seconds in sorted(outermost)]


def _read_spans(
    events: Iterable[dict[str, Any]],
) -> tuple[Spans, Processes, set[str]]:
    """Return start and seconds of every range by name and category, and who had it.

    The last are names of ranges that begin by an event of their own. Raises ValueError
    for impossible times.
    """
    spans: Spans = defaultdict(list)
    process_ids: Processes = defaultdict(set)
    halves = set()
    for event in events:
        phase = event.get("ph")
        if phase == "B":
            half = str(event.get("name"))
            halves.add(half)
        # Of the others complete events alone have a duration, in microseconds.
        if phase != "X":
            continue
        start = _microseconds(event, "ts")
        seconds = _microseconds(event, "dur") / 1e6
        has_length = 0 <= seconds < math.inf
        if not (math.isfinite(start) and has_length):
            fields = {key: event[key] for key in ("name", "ts", "dur")}
            raise ValueError(f"a range cannot have the times of {fields}")

        name = str(event["name"])
        category = str(event.get("cat", ""))
        thread = str(event.get("tid"))
        spans[name, category].append((start, seconds, thread))
        process = str(event.get("pid"))
        process_ids[name, category].add(process)
    return spans, process_ids, halves


def _microseconds(event: dict[str, Any], key: str) -> float:
    """Return a time of an event; ValueError without it."""
    if key not in event:
        name = event.get("name")
        raise ValueError(f"range {name} has no {key}")
    return float(event[key])


def _check_halves(names: Iterable[str], halves: Collection[str], trace: Path) -> None:
    """Raise DataError where a range begins and ends by two events."""
    for name in names:
        if name in halves:
            shown_name = printable(name, 40)
            problem = (
                f"begins and ends {shown_name!r} by two events, B and E: write one of "
                "phase X with its dur"
            )
            raise DataError(problem, path=trace)


def _check_processes(name: str, count: int, trace: Path) -> None:
    """Raise DataError where a range was recorded by several processes or GPUs."""
    # One after the other they would be iterations of one task.
    if count > 1:
        problem = (
            f"has the range {name!r} of {count} processes or GPUs: write a trace of one"
        )
        raise DataError(problem, path=trace)


def _without(found: Occurrences, name: str) -> str:
    """Return the sentence that a trace lacks a range, with those that it has."""
    ranges = []
    for found_name, seconds in [*found.items()][:_TOLD]:
        shown_name = printable(found_name, 40)
        ranges.append(f"{shown_name} ({len(seconds)})")
    names = ", ".join(ranges) or "none"
    return (
        f"holds no range {name!r}, write for example --range worker=forward,backward, "
        f"once per kind; there are: {names}"
    )
