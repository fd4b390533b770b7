"""The cache of host profiles: kept, and measured again whenever it is no good."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from emu.calibration import HostProfile, cached_profile, profile_path
from emu.calibration.cache import read_profile
from emu.cli import app
from emu.errors import DataError

GOLDEN = str(Path(__file__).parents[2] / "scenarios" / "golden.yaml")
HOST = HostProfile(
    "h", "then", 2, 24e9, 5e9, 2e-10, 6e-5, 5e-5, (3e-5, 1e-4), (1e-4, 5e-4),
    (6e-5, 3e-4), (8e-5, 4e-4), 0.015, 12e6, {"root": "no"},
)  # fmt: skip


class Measure:
    """Counts how often the host is measured."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> HostProfile:
        """Return the same host every time."""
        self.times += 1
        return HOST


def test_a_host_is_measured_once(tmp_path: Path) -> None:
    measure, path = Measure(), tmp_path / "deep" / "host.json"

    found = [cached_profile(path=path, measure=measure) for _ in range(3)]

    assert found == [HOST] * 3
    assert measure.times == 1
    assert cached_profile(path=path, measure=measure, fresh=True) == HOST
    assert measure.times == 2


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[1]",
        '{"version": 0}',
        '{"version": 1}',
        json.dumps(HOST.to_json() | {"cores": 0}),
        json.dumps(HOST.to_json() | {"round_trip": [1]}),
        json.dumps(HOST.to_json() | {"throughput": "fast"}),
        json.dumps(HOST.to_json() | {"memory": float("nan")}),
        json.dumps(HOST.to_json() | {"unknown": 1}),
    ],
)
def test_a_damaged_cache_is_measured_again(tmp_path: Path, content: str) -> None:
    measure, path = Measure(), tmp_path / "host.json"
    path.write_text(content)

    with pytest.raises(DataError, match=r"host[.]json"):
        read_profile(path)
    assert cached_profile(path=path, measure=measure) == HOST
    assert measure.times == 1
    assert read_profile(path) == HOST


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    assert cached_profile(path=tmp_path / "file" / "x.json", measure=Measure()) == HOST


def test_the_doctor_shows_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cached_profile(path=profile_path(), measure=Measure())

    shown = CliRunner().invoke(app, ["doctor", "--cached"])

    assert shown.exit_code == 0
    assert "Up to 20 Gbit/s of emulated traffic" in shown.stdout
    assert "About 40 processes can send at a time" in shown.stdout
    assert profile_path().parent == tmp_path / "emu"


def test_a_dry_run_predicts_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cached_profile(path=profile_path(), measure=Measure())
    options = [
        "--set",
        "emulation.time_scale=auto",
        "--set",
        "emulation.byte_scale=auto",
    ]

    found = CliRunner().invoke(
        app,
        ["run", GOLDEN, "--dry-run", "--json", "-", *options,
         "--runs", str(tmp_path / "runs")],
    )  # fmt: skip
    prediction = json.loads(found.stdout)

    assert prediction["byte_scale"] == 25_000
    assert 0 < prediction["error"] <= 0.006
    assert prediction["wall"] == pytest.approx(38 * prediction["time_scale"])
    assert not (tmp_path / "runs").exists()
