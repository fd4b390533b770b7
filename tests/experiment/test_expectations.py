"""What is expected, as one value or as a range, against what came."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import emu
from emu.errors import ScenarioError
from emu.experiment.expectations import (
    figures_of_simulation,
    find_misses,
    list_misses,
    list_unchecked,
    punctual,
)
from emu.problem import Outages
from emu.scenario import prepare
from emu.scenario.run_sections import ExpectSection
from emu.scenario.scenario_file import loads

FILE = """
cluster: {machines: [{name: m, nic: 1 GB/s}]}
job: {system: custom, iterations: 1, tasks: [{name: t, time: 1 s}]}
"""


def expecting(line: str) -> Any:
    return loads(f"{FILE}expect: {{{line}}}\n")


@pytest.mark.parametrize(
    ("line", "miss"),
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
def test_a_simulation_meets_what_is_expected(line: str, miss: str) -> None:
    figures = {"makespan": 4.0, "gap": 0.03, "bytes": 1.5e6}
    found = "; ".join(list_misses(expecting(line).expect, figures))

    assert found.startswith(miss)
    assert bool(found) == bool(miss)


def test_bytes_are_those_between_machines() -> None:
    """As the tables and a run count them, without what stays on a machine."""
    ready = prepare(emu.load("golden"))
    schedule = ready.simulate()
    crossed = sum(row["bytes"] for row in schedule.to_json()["flows"])

    assert figures_of_simulation(schedule, ready.realization)["bytes"] == crossed == 470


#: Of a run that took 4.1 s where 4 s were predicted, and was late by nothing.
RESULT: dict[str, Any] = {
    "makespan": 4.1,
    "predicted_makespan": 4.0,
    "makespan_error": 0.025,
    "replay_error": -0.02,
    "bound": 3.8,
    "gap": 4.1 / 3.8 - 1,
    "edges": [{"bytes": 1e6}, {"bytes": 5e5}],
    "accuracy": {"train": 1.0, "test": 0.75},
    "training": [{"loss": 9.0}, {"loss": 2.3}],
    "verdict": {"on_time_makespan": 4.1, "trust": "degraded"},
    "prediction": {"outcome": "agrees"},
}
#: Key -> values that the run meets, and values that it misses.
KEYS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "trust": (("degraded",), ("trusted", "untrusted")),
    "prediction": (("agrees",), ("differs",)),
    "makespan": (("4 s", "4 s .. 4.1 s"), ("3.9 s", "4.1 s", ".. 4.05 s", "4.05 s ..")),
    "tolerance": ((1e-9,), ()),
    "gap": (("8 %", "7 % .. 8 %"), ("7 %", "8 % ..", ".. 7 %", 0)),
    "bytes": (("1.5 MB", "1 MB .. 2 MB"), ("1 MB", "2 MB .. 3 MB")),
    "makespan_error": (("2.5 %", 0.03), ("2.4 %", 0)),
    "replay_error": (("2 %", 1), ("1.9 %", 0.001)),
    "accuracy": ((0.75, "75 %", "70 % .. 80 %"), (0.76, "76 %", ".. 74 %")),
    "loss": ((2.3, "2.2 .. 2.4"), (2.2, "2.4 ..", ".. 2.29")),
}


def of(**stated: Any) -> ExpectSection:
    return ExpectSection.model_validate(stated)


def test_every_key_is_looked_at() -> None:
    assert KEYS.keys() == ExpectSection.model_fields.keys()


@pytest.mark.parametrize("key", KEYS)
def test_a_run_meets_or_misses_every_key(key: str) -> None:
    met, misses = KEYS[key]
    for value in met:
        assert find_misses(of(**{key: value}), RESULT) == []
    for value in misses:
        assert find_misses(of(**{key: value}), RESULT)


def test_a_tolerance_widens_what_is_exact() -> None:
    for key, near in (("makespan", "4.04 s"), ("bytes", "1.51 MB")):
        assert find_misses(of(**{key: near}), RESULT)
        assert not find_misses(of(**{key: near, "tolerance": "1 %"}), RESULT)
        assert find_misses(of(**{key: near, "tolerance": "0.1 %"}), RESULT)


def test_what_a_run_does_not_report_is_missed() -> None:
    bare = {**RESULT, "gap": None, "accuracy": {}, "training": []}
    for key, value in (("gap", "1 %"), ("accuracy", 0), ("loss", 100)):
        (found,) = find_misses(of(**{key: value}), bare)
        assert "not reported" in found


def test_what_no_simulation_tells_is_named() -> None:
    assert (
        list_unchecked(of(makespan="4 s", gap="1 %", bytes="1 MB", tolerance=0.1)) == ""
    )
    for key in ("makespan_error", "replay_error", "accuracy", "loss"):
        assert list_unchecked(of(**{key: 0.5})).endswith(f"emu run does: expect.{key}")
        assert list_misses(of(**{key: 0.5}), {"makespan": 1.0}) == []


@pytest.mark.parametrize(
    ("stated", "host_alone"),
    [
        ({"makespan_error": "1 %"}, True),
        ({"makespan": ".. 4.05 s"}, True),
        ({"gap": "6 %"}, True),
        ({"gap": "1000 % .."}, False),
        ({"makespan": "5 s"}, False),
        ({"bytes": "1 MB"}, False),
        ({"makespan_error": "1 %", "accuracy": 0.9}, False),
    ],
)
def test_lateness_excuses_what_had_been_met_without(
    stated: dict[str, Any], *, host_alone: bool
) -> None:
    late = {**RESULT, "verdict": {"on_time_makespan": 4.0}}

    assert find_misses(of(**stated), late)
    assert (not find_misses(of(**stated), punctual(late))) == host_alone


def test_what_is_missed_on_time_is_no_share_of_recovery() -> None:
    """Of 12 s on time 2 are recovery: 10 s of work, 8 foreseen, and 5 at the least."""
    late = {
        "verdict": {"on_time_makespan": 12.0},
        "outages": {"recovery": 2.0},
        "predicted_makespan": 10.0,
        "bound": 7.0,
    }
    found = punctual(late)
    assert (found["makespan"], found["makespan_error"]) == (12.0, 0.25)
    assert (found["gap"], found["replay_error"]) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("makespan: 5 s .. 4 s", "write the lower limit first"),
        ("makespan: ..", "found no limit, write one on a side of .."),
        ("makespan: 4 .. 5 s", r"a bare number \(4\) does not say its unit"),
        ("gap: fast", "found 'fast' for a share"),
        ("bytes: 1 .. 2 s", "a bare number"),
        ("makespan_error: 5", "found 5 for a share, write 5 %"),
        ("gap: 0 .. 7", "found '7' for a share, write 7 %"),
        ("tolerance: 1.5", "found 1.5 for a share, write 1.5 %"),
        ("accuracy: 120 %", "found 120 %, write 100 % or less"),
    ],
)
def test_a_range_that_is_none_is_named(line: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        expecting(line)


def test_ranges_are_written_back() -> None:
    stated = "makespan: 4 s ..,gap: .. 5 %, bytes: 1 MB .. 2 MB"
    scenario = expecting(stated)

    assert loads(str(scenario.to_json()).replace("'", '"')) == scenario


def test_a_gap_is_of_a_job_that_takes_time_and_does_not_die() -> None:
    ready = prepare(expecting("gap: 1 %"))
    schedule = ready.simulate()
    found = figures_of_simulation(schedule, ready.realization)
    assert found == {"makespan": 1.0, "gap": 0.0, "bytes": 0.0}
    slower = prepare(loads(FILE.replace("1 s", "2 s")))
    late = slower.simulate()
    late.task_end[:] = 3.0
    found = figures_of_simulation(late, slower.realization)
    assert (found["makespan"], found["gap"]) == (3.0, 0.5)
    deaths = replace(schedule, outages=Outages(3.0, 2.0))
    found = figures_of_simulation(deaths, ready.realization)
    assert found == {"makespan": 4.0, "gap": None, "bytes": 0.0}

    nothing = prepare(loads(FILE.replace("1 s", "0 s")))
    schedule = nothing.simulate()
    found = figures_of_simulation(schedule, nothing.realization)
    assert found == {"makespan": 0.0, "gap": None, "bytes": 0.0}


def test_single_values_hold_for_what_is_exact_alone() -> None:
    figures = {"makespan": 4.0, "bytes": 1.5e6, "gap": 0.03}
    stated = of(makespan="3 s", bytes="1 MB", gap="1 %")
    assert len(list_misses(stated, figures)) == 3
    (miss,) = list_misses(stated, figures, exact=False)
    assert miss.startswith("the gap is 3 %")
    (miss,) = find_misses(of(makespan_error="1 %"), RESULT)
    assert miss.endswith("expected at most 1 % either way")


def test_on_time_nothing_is_held_against_a_bound_of_none() -> None:
    late = {"verdict": {"on_time_makespan": 12.0}, "predicted_makespan": 0.0}
    found = punctual(late)
    assert (found["makespan_error"], found["gap"]) == (0.0, None)


def test_the_loss_of_a_training_that_diverged_is_beyond_all_limits() -> None:
    diverged = {**RESULT, "diverged": 3}
    (miss,) = find_misses(of(loss=1e9), diverged)
    assert miss == "training loss is inf, expected at most 1000000000.0000"
