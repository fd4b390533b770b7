"""The pure parts of the benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emu.testing import two_machine_example
from tools.benches.figures import amount, interleaved
from tools.benches.simulator import compiled_peer, write_workload

if TYPE_CHECKING:
    from pathlib import Path


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
