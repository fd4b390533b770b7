"""The pure parts of the fidelity tool: rows on disk, tables, what is compared."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from emu.errors import DataError
from tests.fidelity.corpus import draw_scenario
from tools.runner import Ledger, insist
from tools.studies.fidelity import band, by_system, single, spreads, system_names
from tools.trials.pairs import agreement, decisions, drawn_pair, pair_apart
from tools.trials.trial import Trial


def _row(
    replay_error: float,
    trust: str = "trusted",
    case: str = "drawn-0@wall/0",
    **more: Any,
) -> Trial:
    stated = {
        "policy": "oes", "processes": 8, "machines": 2,
        "time_scale": 1.0, "byte_scale": 1.0, "trust": trust,
        "replay_error": replay_error, "makespan_error": replay_error,
        "flow_error": 0.01, "bound": 0.002, "system": "custom", "shape": "graph",
        "expected": 1.0, "seconds": 5.0,
    }  # fmt: skip
    return Trial(case, **{**stated, **more})


ROWS = [
    _row(0.001, finishes=90, kept=90),
    _row(-0.003, case="drawn-0@wall/1", retries=2, finishes=10, kept=5),
    _row(0.05, "untrusted", "drawn-1@wall/0", machines=16, policy="fifo"),
    _row(
        0.004, "degraded", "drawn-2@wall/0",
        guards="carried", system="dgtp", shape="oneshot",
    ),
    _row(math.nan, "failed", "drawn-3@wall/0", problem="w0 died, alas"),
]  # fmt: skip


def _cells(lines: list[str], name: str) -> list[str]:
    """Return the cells of the first line that begins with ``name``."""
    line = next(line for line in lines if line.startswith(f"{name} "))
    return line[len(name) :].split()


def test_the_table_counts_runs_retries_and_flags() -> None:
    text = "\n".join(single(ROWS))

    assert "runs 5 of 4 scenarios, trusted 2, degraded 1, untrusted 1, failed 1" in text
    assert "retried 1 (2 runs more)" in text
    assert "off either simulation by > 3 %: 1, flagged 1, trusted 0" in text
    assert "within 1 % of both: 3, flagged all the same 1 (1 by a guard)" in text
    assert "2 ms wall): 95.00 % of 100" in text
    assert "oneshot: none of 0" in text


def test_systems_that_train_stand_beside_each_other() -> None:
    rows = [
        _row(0.001, case="a-1@wall/0", system="adaqp", received=2e6, weights=1e-15),
        _row(-0.004, case="a-2@wall/0", system="adaqp", received=4e6, weights=3e-14),
        _row(0.09, "untrusted", "a-3@wall/0", system="adaqp", received=9e6),
        _row(math.nan, "failed", "a-4@wall/0", system="adaqp"),
        _row(math.nan, "failed", "b-1@wall/0", system="sancus"),
        _row(0.5, case="drawn-1@wall/0"),
    ]

    lines = list(by_system(rows))

    assert _cells(lines, "adaqp") == ["4", "2", "0.250", "0.400", "4.00", "3.0e-14"]
    assert _cells(lines, "sancus") == ["1", "0", "nan", "nan", "nan", "nan"]
    assert len(lines) == 4  # one empty, one of heads
    assert list(by_system(rows[-1:])) == []


def test_a_system_that_no_job_is_drawn_of_is_named() -> None:
    assert system_names("pipegcn, adaqp") == ("pipegcn", "adaqp")
    with pytest.raises(ArgumentTypeError, match="found 'pipegnc', drawn are jobs of p"):
        system_names("pipegnc")


def test_a_flag_is_no_false_alarm_where_the_run_missed_what_was_predicted() -> None:
    """Late tasks moved it and the simulation of its own times alike."""
    moved = _row(0.0, "untrusted", "drawn-4@wall/0", makespan_error=-0.04)

    text = "\n".join(single([*ROWS, moved]))

    assert "off either simulation by > 3 %: 2, flagged 2, trusted 0" in text
    assert "within 1 % of both: 3, flagged all the same 1 (1 by a guard)" in text


def test_the_table_shows_whole_distributions_split_by_what_matters() -> None:
    lines = single(ROWS)

    every = _cells(lines, "all runs")
    assert (every[0], every[1], every[-1]) == ("4", "0.100", "5.000")
    assert len(every) == 1 + 9
    assert _cells(lines, "trusted")[:2] == ["2", "0.100"]
    assert _cells(lines, "custom graph")[0] == "3"
    assert _cells(lines, "dgtp oneshot")[:2] == ["1", "0.400"]
    assert _cells(lines, "machines 13-16")[:2] == ["1", "5.000"]
    assert _cells(lines, "fifo")[0] == "1"


def test_nothing_finished_is_a_table_too() -> None:
    text = "\n".join(single([ROWS[-1]]))

    assert "failed 1" in text
    assert "none of 0" in text


def test_bands_cover_the_corpus() -> None:
    assert [band(m) for m in (2, 4, 5, 8, 9, 13, 16)] == [
        "2-4", "2-4", "5-8", "5-8", "9-12", "13-16", "13-16",
    ]  # fmt: skip
    assert band(17) == "over 16"


def test_scales_are_shown_beside_each_other_and_by_pairs() -> None:
    rows = [
        _row(error * factor, case=f"drawn-{seed}@{scale}/0")
        for seed, error in enumerate((0.001, 0.002, 0.004, 0.008))
        for scale, factor in (("auto", 1.0), ("4", 1.0), ("1", 6.0))
    ]

    lines = single(rows)

    assert _cells(lines, "time scale auto")[:2] == ["4", "0.100"]
    assert _cells(lines, "time scale 1")[-1] == "4.800"
    (flags,) = [line for line in lines if line.startswith("time scale 1: off")]
    assert flags.endswith("by > 3 %: 1, flagged 0, trusted 1")
    same, _, apart = [line for line in lines if line.startswith("|makespan error| at")]
    assert "auto less that at 4: 0 %, 4 pairs" in same
    assert "4 less that at 1: tie (-1.9 ± 2.5 %), 4 pairs" in apart


def test_the_spread_is_that_of_a_scenarios_repeats() -> None:
    assert spreads(ROWS) == [pytest.approx(0.004)]


def test_rows_come_back_from_disk_and_are_not_missing_then(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "trials.csv", Trial)
    for row in ROWS:
        ledger.add([row])

    again = Ledger(tmp_path / "trials.csv", Trial)

    assert [str(asdict(row)) for row in again.rows] == [str(asdict(r)) for r in ROWS]
    assert "drawn-0@wall/1" in again
    assert "drawn-0@wall/2" not in again


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trials.csv"
    path.write_text("case,policy,fidelity\ndrawn-0,oes,x\n")

    with pytest.raises(DataError, match="name another"):
        Ledger(path, Trial)


def test_a_folder_keeps_to_its_settings(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    insist(path, {"wall": 1.5})
    insist(path, {"wall": 1.5})

    with pytest.raises(DataError, match="wall"):
        insist(path, {"wall": 5.0})


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_a_pair_is_a_scenario_and_a_variant_that_is_apart(seed: int) -> None:
    content = draw_scenario(seed)
    lengths = iter([1.0, 1.001, 1.009, 3.1, 0.98])
    pair = drawn_pair(content, seed, lambda _: next(lengths))

    assert pair is not None
    first, other = pair
    assert first == content
    changed = {key for key in first if first[key] != other[key]}
    assert changed == {"schedule" if seed % 2 else "placement"}
    assert next(lengths, None) is None  # the first that is apart was taken
    assert drawn_pair(content, seed, lambda _: 1.0) is None


@pytest.mark.parametrize(
    ("share", "place"), [(0.02, 1), (0.11, 3), (0.14, 5), (3.0, 6)]
)
def test_two_placements_are_about_as_far_apart_as_is_asked(
    share: float, place: int
) -> None:
    content = draw_scenario(4)
    lengths = [1.0, 1.04, 4.0, 0.9, 1.009, 1.12, *[2.0] * 11]
    seen: list[dict[str, Any]] = []

    def makespan(variant: dict[str, Any]) -> float:
        seen.append(variant)
        return lengths[len(seen) - 1]

    assert pair_apart(content, 4, share, makespan) == [content, seen[place]]
    tasks = content["placement"]["tasks"]
    there = [variant["placement"]["tasks"] for variant in seen]
    assert all(tasks.keys() == other.keys() for other in there)
    assert there[place] != tasks
    assert pair_apart(content, 4, share, lambda _: 1.0) is None


def _run(
    group: str, number: int, expected: float, emulated: float, **more: Any
) -> Trial:
    case, trust = f"{group}@/{number}", more.pop("trust", "trusted")
    return _row(0.0, trust, case, expected=expected, emulated=emulated, **more)


PAIRS = [
    _run("placement-0", 0, 1.0, 1.1),
    _run("placement-0", 1, 1.5, 1.6, retries=1),
    _run("policy-1", 0, 1.0, 1.04, trust="degraded"),
    _run("policy-1", 1, 1.03, 1.01),
    _run("policy-3", 0, 1.0, 1.0),
    _run("policy-3", 1, 2.0, math.nan, trust="failed"),
    _run("policy-5", 0, 1.0, 1.0),
    _run("policy-5", 1, 1.005, 0.9),
]


def test_agreement_is_counted_over_finished_pairs_that_are_apart() -> None:
    made = decisions(PAIRS)
    text = "\n".join(agreement(PAIRS))

    assert [(d.group, d.agreed) for d in made] == [
        ("placement-0", True), ("policy-1", False),
    ]  # fmt: skip
    assert "decisions 2, agreed 1 (50.0 %); runs 8, again 1, failed 1" in text
    assert "placement: 1, agreed 1" in text
    assert "2 to 5 % apart: 1, agreed 0" in text
    assert "policy-1 asked +3.00 %, found -2.88 % (degraded, trusted)" in text
