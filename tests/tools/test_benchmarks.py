"""The pure parts of the benchmark."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from emu.testing import two_machine_example
from tools.benches.figures import (
    Figure,
    amount,
    as_json,
    interleaved,
    stolen_seconds,
)
from tools.benches.pacing import window_errors
from tools.benches.simulator import compiled_peer, write_workload


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0000674, "67.4 us"), (0.0111, "11.1 ms"), (3.5, "3.5 s"), (5e-9, "5 ns")],
)
def test_amounts_have_three_digits(seconds: float, text: str) -> None:
    assert amount(seconds) == text


def test_calls_take_turns_after_one_warm_up_each() -> None:
    order: list[str] = []
    calls = {name: lambda name=name: order.append(name) for name in "ab"}

    medians = interleaved(calls, budget=0.0, most=50)

    assert order == ["a", "b"] * 4
    assert all(seconds >= 0 for seconds in medians.values())


def test_a_peer_that_is_not_there_is_skipped_with_a_word(tmp_path: Path) -> None:
    assert compiled_peer(tmp_path / "peer.cpp", tmp_path) == (
        "no peer.cpp beside the workloads"
    )


def test_the_peer_reads_the_workload_as_documented(tmp_path: Path) -> None:
    problem, realization = two_machine_example(3)
    path = tmp_path / "golden.txt"

    write_workload(path, problem, realization)

    lines = [line.split() for line in path.read_text().splitlines()]
    tasks, edges = len(problem.job.tasks), len(problem.job.edges)
    assert lines[0] == ["2", str(tasks), str(edges), "3"]
    assert [float(word) for word in lines[1]] == [10.0, 10.0]
    assert len(lines) == 1 + 2 + tasks + edges
    assert {len(line) for line in lines[3 + tasks :]} == {3 + 3}


@pytest.mark.parametrize(
    ("value", "at_least", "met"),
    [(0.9, False, True), (1.1, False, False), (1.1, True, True), (0.9, True, False)],
)
def test_an_aim_is_met_from_the_right_side(
    value: float,
    at_least: bool,  # noqa: FBT001 -- a parameter of the cases
    met: bool,  # noqa: FBT001 -- a parameter of the cases
) -> None:
    figure = Figure("x", value, "ms", 1.0, at_least=at_least)

    assert figure.met is met
    assert as_json([figure])[0]["met"] is met


def test_what_was_not_measured_meets_no_aim() -> None:
    assert Figure("x", math.nan, "ms", 1.0).met is False
    assert Figure("x", math.nan, "ms", 1.0, at_least=True).met is False
    assert Figure("x", 1.0, "ms").met is None


def test_even_chunks_at_the_rate_are_off_by_nothing() -> None:
    times = np.arange(0.0005, 0.1, 0.001)

    off = window_errors(
        times,
        np.full(100, 7),
        rate=7e3,
        span=(0.0, 0.095),
        width=0.01,
        step=0.005,
        spread=0.001,
    )

    assert off[1:] == pytest.approx(np.zeros(17), abs=1e-12)


def test_portions_that_straddle_a_window_count_by_halves() -> None:
    """A sender collects for 2.04 ms: a window of 50 ms holds 24 or 25 of its portions.

    Whole portions were 2 % off at every rate.
    """
    times = 0.00204 * np.arange(1, 500, dtype=np.float64)
    sizes = np.full(times.size, 2040)

    off = window_errors(
        times,
        sizes,
        rate=1e6,
        span=(0.02, 0.9),
        width=0.05,
        step=0.01,
        spread=0.002,
    )

    assert np.abs(off).max() < 1e-3


def test_a_burst_after_a_pause_is_no_even_rate() -> None:
    """Nothing for 20 ms, then all of it at once: 28 bytes in 10 ms that carry 10."""
    times = np.delete(0.002 * np.arange(1.0, 100.0), slice(50, 59))
    sizes = np.full(times.size, 2)
    sizes[50] = 20

    off = window_errors(
        times,
        sizes,
        rate=1e3,
        span=(0.01, 0.19),
        width=0.01,
        step=0.002,
        spread=0.002,
    )

    assert off.min() == pytest.approx(-1.0)
    assert off.max() == pytest.approx(1.8)


def test_a_window_counts_what_came_within_it() -> None:
    times, sizes = np.array([0.1, 0.9, 1.1, 2.5]), np.array([5, 5, 20, 3])

    off = window_errors(
        times,
        sizes,
        rate=10.0,
        span=(0.0, 3.0),
        width=1.0,
        step=1.0,
        spread=0.2,
    )

    # Half of the 20 came before 1 s, and half of the 5 before 0 s.
    assert off == pytest.approx([0.75, 0.0, -0.7])


def test_a_span_shorter_than_the_window_has_none() -> None:
    none = np.zeros(0, dtype=np.int64)

    off = window_errors(
        np.zeros(0),
        none,
        rate=1.0,
        span=(0.0, 0.5),
        width=1.0,
        step=0.1,
        spread=0.1,
    )

    assert off.size == 0


@pytest.mark.parametrize(
    ("unit", "aim", "at_least", "bound"),
    [
        ("s", 1.5e-4, False, "<= 150 us"),
        ("ms", 0.2, False, "<= 0.2 ms"),
        ("", 5, True, ">= 5"),
        ("s", None, False, ""),
    ],
)
def test_an_aim_is_printed_in_the_unit_of_its_figure(
    unit: str,
    aim: float | None,
    at_least: bool,  # noqa: FBT001 -- a parameter of the cases
    bound: str,
) -> None:
    assert Figure("x", 1.0, unit, aim, at_least=at_least).bound == bound


def test_what_the_hypervisor_kept_is_the_eighth_figure_of_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are user, nice, system, idle, iowait, irq, softirq, steal, guest."""
    text = (
        "cpu  1 20 300 4000 50000 600000 7000000 800 90 9\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
    )
    monkeypatch.setattr(Path, "read_text", lambda path: {"/proc/stat": text}[str(path)])
    monkeypatch.setattr("os.sysconf", {"SC_CLK_TCK": 400}.__getitem__)

    assert stolen_seconds() == 2.0


def test_where_no_kernel_counts_it_nothing_was_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(path: Path) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", refuse)
    assert stolen_seconds() == 0.0
