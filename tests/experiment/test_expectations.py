"""What is expected, as one value or as a range, against what came."""

from __future__ import annotations

from typing import Any

import pytest

from emu.errors import ScenarioError
from emu.experiment.expectations import missed_by_simulation, missed_expectations
from emu.scenario.scenario_file import loads

FILE = """
cluster: {machines: [{name: m, nic: 1 GB/s}]}
job: {system: custom, iterations: 1, tasks: [{name: t, time: 1 s}]}
"""


def expecting(line: str) -> Any:
    return loads(f"{FILE}expect: {{{line}}}\n")


@pytest.mark.parametrize(
    ("line", "missed"),
    [
        ("makespan: 4 s", ""),
        ("makespan: 4.1 s, tolerance: 5 %", ""),
        ("makespan: 4.1 s", "simulated makespan is 4 s, expected 4.1 s"),
        ("makespan: 3 s .. 4 s", ""),
        ("makespan: .. 3900 ms", "simulated makespan is 4 s, expected at most 3.9 s"),
        (
            "makespan: 4001 ms ..",
            "simulated makespan is 4 s, expected at least 4.001 s",
        ),
        ("gap: 2 %", "the gap is 3 %, expected at most 2 %"),
        ("gap: 3 %", ""),
        ("gap: 1 % .. 2 %", "the gap is 3 %, expected at least 1 % and at most 2 %"),
        ("bytes: 1 MB .. 2 MB", ""),
        ("bytes: 1 MB", "bytes between machines is 1.5 MB, expected 1 MB"),
    ],
)
def test_a_simulation_meets_what_is_expected(line: str, missed: str) -> None:
    found = "; ".join(missed_by_simulation(expecting(line), 4.0, 0.03, 1.5e6))

    assert found.startswith(missed)
    assert bool(found) == bool(missed)


@pytest.mark.parametrize(
    ("loss", "missed"),
    [
        ("2.5", ""),
        ("2", "training loss is 2.3000, expected at most 2.0000"),
        ("2 .. 2.5", ""),
        ("2.4 ..", "training loss is 2.3000, expected at least 2.4000"),
    ],
)
def test_a_run_meets_the_loss_that_is_expected(loss: str, missed: str) -> None:
    text = (
        FILE.replace("custom, iterations: 1, tasks: [{name: t, time: 1 s}]", "dgtp, ")
        .replace("dgtp, }", "dgtp, dataset: products-like, fanouts: [2], TAIL}")
        .replace(
            "TAIL", "model: {hidden: 2, layers: 1}, batch_size: 2, iterations: 1, TIMES"
        )
        .replace(
            "TIMES",
            "times: {graph_store: 1 s, sampler: 1 s, worker: 1 s, "
            "parameter_server: 1 s}",
        )
    )
    scenario = loads(f"{text}expect: {{loss: {loss}}}\n")
    result = {"training": [{"loss": 2.3}], "edges": [], "gap": None}

    assert missed_expectations(scenario, result) == ([missed] if missed else [])


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("makespan: 5 s .. 4 s", "write the lower limit first"),
        ("makespan: ..", "found no limit, write one on a side of .."),
        ("makespan: 4 .. 5 s", r"a bare number \(4\) does not say its unit"),
        ("gap: fast", "found 'fast' for a share"),
        ("bytes: 1 .. 2 s", "a bare number"),
    ],
)
def test_a_range_that_is_none_is_named(line: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        expecting(line)


def test_ranges_are_written_back() -> None:
    scenario = expecting("makespan: 4 s ..,gap: .. 5 %, bytes: 1 MB .. 2 MB")

    assert loads(str(scenario.to_json()).replace("'", '"')) == scenario
