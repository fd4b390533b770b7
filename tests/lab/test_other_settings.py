"""A fit is frozen before other settings are measured, and is not made twice."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.lab import other_settings
from emu.lab.other_settings import predict_others

#: Two messages of 10 MB, one after the other, from m0 to m1.
FITTED = """
cluster:
  machines: [{name: m0, nic: 80 Mbit/s}, {name: m1, nic: 80 Mbit/s}]
job:
  system: custom
  iterations: 2
  tasks: [{name: a, time: 0 s}, {name: b, time: 0 s}]
  flows: [{from: a, to: b, volume: 10 MB}]
placement: {policy: explicit, tasks: {a: m0, b: m1}}
"""


class Labs:
    """Labs that take a tenth longer than their NICs say."""

    def __init__(self, home: Path) -> None:
        self.home, self.run, self.frozen = home, list[str](), dict[str, float]()

    def measure(self, _folder: Path, setting: str, _home: Path) -> Path:
        """Run one; note what was predicted by then."""
        if setting not in self.run:
            self.run.append(setting)
            file = self.home / "predictions.json"
            self.frozen = json.loads(file.read_text()) if file.exists() else {}
        return Path(setting)

    def fit(self, run: Path, *, skip: int, mark: str) -> Any:
        """Return a fit of a run."""
        assert (run.name, skip, mark) == ("80,80", 1, "step ")
        return SimpleNamespace(text=lambda _name: FITTED, iterations=2)

    def seconds(self, run: Path, skip: int, mark: str) -> float:
        """Return the seconds of an iteration of a run."""
        assert (skip, mark) == (1, "step ")
        return 1.1 * 80 / min(float(nic) for nic in run.name.split(","))


def test_what_is_predicted_is_written_down_before_it_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    labs = Labs(tmp_path / "runs" / "some")
    monkeypatch.setattr(other_settings, "_lab_run", labs.measure)
    monkeypatch.setattr(other_settings, "fit_run", labs.fit)
    monkeypatch.setattr(other_settings, "_seconds", labs.seconds)

    settings = ["80,80", "40,80", "80,20"]
    predict_others(tmp_path / "some", settings, skip=1, mark="step ")

    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["40,80", "2.2000", "s", "2.0000", "s", "-9.09%"]
    assert lines[2].split() == ["80,20", "4.4000", "s", "4.0000", "s", "-9.09%"]
    assert lines[3] == "median 9.09%, worst 9.09%"
    assert labs.run == settings
    assert labs.frozen == pytest.approx({"40,80": 2.0, "80,20": 4.0})

    # A second call keeps what was predicted, whatever a fit would say today.
    file = labs.home / "predictions.json"
    file.write_text(json.dumps({"40,80": 3.0, "80,20": 4.0}))
    predict_others(tmp_path / "some", settings, skip=1, mark="step ")
    assert "+36.36%" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [([0.0, 5.0, 6.0, 8.0], 1.5), ([0.0, 5.0, 7.0], 2.0), ([1, 2], 0)],
)
def test_seconds_are_those_between_lines(
    lines: list[float], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first iterations warm up; too few lines are an error and no figure."""
    marks = {(0, 0): np.array(lines), (1, 0): np.array(lines) + 0.2}
    for name in ("read_lab", "read_traffic"):
        monkeypatch.setattr(other_settings, name, lambda _: {"programs": []})
    monkeypatch.setattr(other_settings, "marks_of", lambda *_: marks)

    def measure() -> float:
        return other_settings._seconds(Path("run"), 1, "step ")

    if seconds:
        assert measure() == pytest.approx(seconds)
    else:
        with pytest.raises(DataError, match="2 lines with 'step ', 3 are due"):
            measure()


def test_the_program_that_printed_the_fewest_lines_decides_and_means_are_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The programs take 1 s and 2 s an iteration; then the second prints two lines."""
    marks = {(0, 0): np.arange(9.0), (1, 0): 2 * np.arange(3.0)}
    for name in ("read_lab", "read_traffic"):
        monkeypatch.setattr(other_settings, name, lambda _: {"programs": []})
    monkeypatch.setattr(other_settings, "marks_of", lambda *_: marks)
    assert other_settings._seconds(Path("run"), 1, "step ") == 1.5
    marks[1, 0] = np.arange(2.0)
    with pytest.raises(DataError, match="2 lines with 'step ', 3 are due"):
        other_settings._seconds(Path("run"), 1, "step ")
