"""Studies run, skip and compare cases; nothing is emulated here."""

from __future__ import annotations

import itertools
import math
import subprocess
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from emu.errors import DataError, EmulatorError, NodeLost
from emu.scenario import Experiment
from tools.runner import Ledger, Study, Work, distribution
from tools.studies import fidelity, kernel
from tools.trials.trial import Trial


class Attempts:
    """Stands for `attempt`: notes what it is asked for, runs nothing."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float, str]] = []

    def __call__(self, case: str, experiment: Experiment, *_: Any, **__: Any) -> Trial:
        """Return a trial that came out as simulated."""
        emulation, span = experiment.scenario.emulation, experiment.simulate().makespan
        self.asked.append((case, emulation.stated_time_scale, emulation.flow_ends))
        return Trial(
            case, experiment.policy, 8, 2, emulation.stated_time_scale, 1.0,
            emulated=span, expected=span, replay_error=0.0, trust="trusted",
        )  # fmt: skip


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Attempts:
    found = Attempts()
    monkeypatch.setattr(fidelity, "attempt", found)
    return found


def _study(out: Path, scenarios: int, repeats: int = 1, **more: object) -> int:
    words = {"wall": 1.5, "processes": 8, "peak": 4.0} | more
    arguments = [str(out), "--scenarios", str(scenarios), "--repeats", str(repeats)]
    for name, value in words.items():
        arguments += [f"--{name.replace('_', '-')}", str(value)]
    return fidelity.STUDY.main("fidelity", "", arguments)


def _rows(out: Path) -> list[Trial]:
    return Ledger(out / "rows.csv", Trial).rows


def test_what_stands_on_disk_is_not_run_again(
    tmp_path: Path, attempts: Attempts
) -> None:
    assert _study(tmp_path, 3) == 0
    ran = [case for case, *_ in attempts.asked]
    assert ran == ["drawn-0@wall/0", "drawn-1@wall/0", "drawn-2@wall/0"]

    assert _study(tmp_path, 4, repeats=2) == 0

    assert len(attempts.asked) == 8
    assert len({case for case, *_ in attempts.asked}) == 8
    assert [row.case for row in _rows(tmp_path)] == [c for c, *_ in attempts.asked]
    assert "runs 8 of 4 scenarios" in (tmp_path / "table.txt").read_text()


def test_every_scenario_runs_at_every_scale_and_end(
    tmp_path: Path, attempts: Attempts
) -> None:
    _study(tmp_path, 2, scale="wall,2,0.5", flow_ends="arrival,fluid")

    variants = [row.variant for row in _rows(tmp_path)[:6]]
    words = ("wall", "2", "0.5")
    assert variants == [
        f"{scale} {end}" for scale in words for end in ("arrival", "fluid")
    ]
    assert [scale for _, scale, _ in attempts.asked[8:]] == [2.0, 2.0, 0.5, 0.5]
    assert [end for *_, end in attempts.asked] == ["arrival", "fluid"] * 6
    assert attempts.asked[0][1] == attempts.asked[1][1]


def test_a_budget_that_is_spent_starts_no_run_and_keeps_the_others(
    tmp_path: Path, attempts: Attempts
) -> None:
    _study(tmp_path, 2)
    _study(tmp_path, 3, budget=-1.0)

    assert len(attempts.asked) == 2
    assert len(_rows(tmp_path)) == 2


def test_other_settings_need_another_folder(tmp_path: Path) -> None:
    _study(tmp_path, 0)

    with pytest.raises(DataError, match="choose another"):
        _study(tmp_path, 0, wall=3.0)


def test_pairs_are_run_at_one_time_scale(tmp_path: Path, attempts: Attempts) -> None:
    _study(tmp_path, 0, pairs=3)

    rows = _rows(tmp_path)
    groups = {group: [r for r in rows if r.scenario == group] for group in
              dict.fromkeys(row.scenario for row in rows)}  # fmt: skip
    assert len(groups) == 3
    assert {group.split("-")[0] for group in groups} == {"placement", "policy"}
    for one, other in groups.values():
        assert one.time_scale == other.time_scale
        assert abs(one.expected / other.expected - 1) > 0.009
        shortest = min(one.expected, other.expected)
        assert shortest * one.time_scale == pytest.approx(1.5, rel=0.01)
    _study(tmp_path, 0, pairs=3)
    assert len(attempts.asked) == 6


@dataclass(frozen=True)
class Squared:
    """A row of the smallest study there is."""

    case: str
    value: float


def _squares(options: Namespace) -> Iterator[Work[Squared]]:
    for number in range(options.count):
        yield f"square {number}", partial(_square, options.broken, number)


def _square(broken: int, number: int) -> list[Squared]:
    if number == broken:
        raise NodeLost("w0 died")
    return [Squared(f"square {number}", number**2)]


def _options(parser: ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--broken", type=int, default=-1)


SQUARES = Study(
    row=Squared,
    work=_squares,
    table=lambda rows, _: [f"sum {sum(row.value for row in rows):g}"],
    options=_options,
)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_case_that_fails_does_not_stop_the_others(
    tmp_path: Path, jobs: int, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(tmp_path), "--jobs", str(jobs)]

    assert SQUARES.main("squares", "", [*arguments, "--broken", "3"]) == 1
    assert "square 3: w0 died" in capsys.readouterr().out
    assert (tmp_path / "table.txt").read_text() == "sum 21\n"
    assert SQUARES.main("squares", "", arguments) == 0
    assert (tmp_path / "table.txt").read_text() == "sum 30\n"


def test_cases_are_chosen_by_part_of_their_name(tmp_path: Path) -> None:
    SQUARES.main("squares", "", [str(tmp_path), "--only", " 2", "--only", " 4"])

    assert (tmp_path / "table.txt").read_text() == "sum 20\n"


def test_a_distribution_leaves_out_what_is_no_number() -> None:
    cells = distribution("x", [0.01, math.nan, math.inf, 0.03]).split()

    assert cells[:3] == ["x", "2", "1.000"]
    assert cells[-1] == "3.000"
    assert set(distribution("y", []).split()) == {"y", "0", "-"}


def test_seeds_are_of_the_date_of_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(*_: Any, **__: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 0, "20261125\n")

    monkeypatch.setattr(subprocess, "run", said)
    first = kernel.first_seed()
    assert first == 20261125000

    names = [name for name, *_ in itertools.islice(kernel.singles(2, 1.0, first), 3)]
    assert names[1:] == ["drawn-20261125000@{}/0", "drawn-20261125002@{}/0"]


def test_without_a_commit_seeds_are_to_be_stated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", fails)
    with pytest.raises(EmulatorError, match="state --first"):
        kernel.first_seed()
