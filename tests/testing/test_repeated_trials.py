"""Runs that share their processes: the third is as a run alone, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from emu.emulation.coordinator import EmulatedRun, Observer
from emu.emulation.network.rate_board import RateBoard
from emu.host.this_host import this_host
from emu.testing.trials import Case, run_trial, trial
from emu_nodes.runtime import NodeProcess
from tests import draws
from tests.testing.trial_cases import CASES, experiment

#: Seconds by which times may differ: those of a third run begin with a later reading.
ROUNDING = 1e-6
#: Of starting up, of the host, and when the coordinator looked at the clock.
APART = {"startup", "wall", "hosts", "turns"}


def ran(case: Case, repeats: int, observer: Observer | None = None) -> EmulatedRun:
    def busy(_: object) -> tuple[float, int]:
        return this_host.monotonic(), 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial._NoMetrics, "usage", busy)
        done = run_trial(case, observer=observer, repeats=repeats)
    assert (done.complaints, done.error) == ([], None)
    assert done.run is not None
    return done.run


def differences(  # noqa: C901 -- a case per kind of value
    alone: Any, repeated: Any, place: str = ""
) -> Iterator[str]:
    """Yield where two runs differ: in all but the order of what came at one instant."""
    if isinstance(alone, Mapping):
        if alone.keys() != repeated.keys():
            yield f"{place}: {alone.keys() ^ repeated.keys()}"
            return
        for key in alone.keys() - APART:
            yield from differences(alone[key], repeated[key], f"{place}.{key}")
    elif isinstance(alone, list | tuple):
        if len(alone) != len(repeated):
            yield f"{place}: {len(alone)} and {len(repeated)}"
            return
        for number, pair in enumerate(zip(alone, repeated, strict=True)):
            yield from differences(*pair, f"{place}[{number}]")
    elif isinstance(alone, np.ndarray):
        yield from array_differences(alone, repeated, place)
    elif isinstance(alone, float):
        # What a run took of the CPU may be less: it has started up before.
        is_less = place.endswith(".cpu_seconds") and 0 <= repeated <= alone
        if not is_less and abs(alone - repeated) > ROUNDING:
            yield f"{place}: {alone} and {repeated}"
    elif alone != repeated:
        yield f"{place}: {alone} and {repeated}"


def array_differences(alone: Any, repeated: Any, place: str) -> Iterator[str]:
    if (alone.shape, alone.dtype) != (repeated.shape, repeated.dtype):
        yield f"{place}: shapes {alone.shape} and {repeated.shape}"
    elif alone.dtype.names:
        by_flow = [name for name in alone.dtype.names if name in ("edge", "iteration")]
        alone = np.sort(alone, order=by_flow)
        repeated = np.sort(repeated, order=by_flow)
        for name in alone.dtype.names:
            yield from array_differences(alone[name], repeated[name], name)
    elif alone.dtype.kind == "f":
        same = np.isclose(alone, repeated, rtol=0, atol=ROUNDING, equal_nan=True)
        if not same.all():
            yield f"{place}: {alone[~same][:3]} and {repeated[~same][:3]}"
    elif not np.array_equal(alone, repeated):
        yield f"{place}: {alone} and {repeated}"


def contents(run: EmulatedRun) -> dict[str, Any]:
    """Return all that a run has left, in an order that no instant decides."""
    content = {field.name: getattr(run, field.name) for field in fields(run)}
    for name in ("schedule", "realization", "perturbed"):
        content[name] = {**vars(content[name]), "problem": None}
    content["schedule"]["rates"] = None  # below: of one instant in any order
    content["reports"] = sorted(run.reports, key=lambda row: row[1:3])
    content["statistics"] = {}
    for process, counts in run.statistics.items():
        payloads = counts["received"]["payloads"]
        payloads.sort(key=lambda row: (row["edge"], str(row)))
        log = np.frombuffer(counts["flows"], "<f8")
        content["statistics"][process] = {**counts, "flows": np.sort(log)}
    return content


@cache
def case_of(name: str, hosts: int = 1) -> Case:
    computes = {} if name == "disturbed" else {"compute": "padded"}
    return Case.of(experiment(name), hosts=hosts, **computes)


@cache
def alone(name: str, hosts: int = 1) -> dict[str, Any]:
    return contents(ran(case_of(name, hosts), repeats=1))


@pytest.mark.parametrize(
    ("name", "hosts"),
    [
        *draws.rarely_but(3, ((name, 1) for name in CASES), several=True),
        ("p3", 2),
    ],
)
def test_the_third_run_is_what_a_run_alone_is(name: str, hosts: int) -> None:
    """Losses, bytes, times and counts; weights to the bit."""
    first = alone(name, hosts)
    third = contents(ran(case_of(name, hosts), repeats=3))
    assert [*differences(first, third)] == []
    for task, arrays in first["results"].items():
        for key, array in arrays.items():
            np.testing.assert_array_equal(third["results"][task][key], array)


def keep_count(process: NodeProcess) -> None:
    process._counted_cpu = 0.0


def keep_programs(process: NodeProcess) -> dict[int, Any]:
    """Make the programs of the first run alone: weights go on from there."""
    kept: dict[int, Any] = vars(process).setdefault("kept", ORIGINAL(process))
    return kept


ORIGINAL = NodeProcess._make_programs
PLANTED = {
    "a count of CPU goes on": (NodeProcess, "_forget", keep_count),
    "weights go on": (NodeProcess, "_make_programs", keep_programs),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_what_a_run_leaves_to_the_next_is_noticed(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, planted = PLANTED[fault]
    first = alone("dgtp")
    monkeypatch.setattr(owner, name, planted)
    third = contents(ran(case_of("dgtp"), repeats=3))
    assert [*differences(first, third)] != []


def test_no_board_shows_rates_of_the_run_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    boards: list[RateBoard] = []
    create = RateBoard.create

    def note(edges: int) -> RateBoard:
        boards.append(create(edges))
        return boards[-1]

    monkeypatch.setattr(RateBoard, "create", note)
    counts = []

    class Look(Observer):
        @override
        def on_zero(self, start: float) -> None:
            for board in boards:
                lines = [board.read(edge) for edge in range(board.edges)]
                counts.append((int(board.counts.sum()), lines.count(None)))

    ran(case_of("dgtp", hosts=2), repeats=2, observer=Look())
    edges = boards[0].edges
    assert counts == [(0, edges)] * 4  # two boards, two runs
