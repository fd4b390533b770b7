"""The command line: files, JSON and every exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import words_of
from tests.integration.scenarios import GOLDEN, emu, tiny_training, written

pytestmark = [pytest.mark.emulation, pytest.mark.untimed]


def options(*overrides: str) -> list[str]:
    return [word for override in overrides for word in ("--set", override)]


#: One iteration of the golden job in 0.34 wall seconds; how exact it is is not asked.
QUICK = options(
    "job.iterations=1",
    "emulation.time_scale=0.02",
    "emulation.byte_scale=5000",
    "expect={makespan_error: 50 %}",
)


def test_a_run_is_written_told_and_audited(tmp_path: Path) -> None:
    """In a process of its own; the other commands are carried out in this one."""
    words = ["-m", "emu", "run", str(GOLDEN), *QUICK, "--json", "out.json"]
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert "emulated makespan" in done.stdout
    (run,) = (tmp_path / "runs").iterdir()
    assert f"written to runs/{run.name}" in done.stderr
    told = json.loads((tmp_path / "out.json").read_text())
    assert told == json.loads((run / "result.json").read_text())
    assert told["replayed_makespan"] == 17.0
    documented = words_of("docs/results.md")
    names = ("verdict", "prediction", "transport", "memory", "startup", "theorem1")
    sections = [told[name] for name in names]
    for keys in (told, told["verdict"]["host"], *sections, *told["flows"][:1]):
        assert keys.keys() - documented == set()

    audited = emu("audit", run, "--tolerance", "5 s", cwd=tmp_path)
    assert audited.returncode == 0, audited.stderr
    assert "keeps (5)-(15)" in audited.stdout

    for task in told["tasks"]:
        if task["task"] == "w0":
            task["start"] = 0.5
    (run / "result.json").write_text(json.dumps(told))
    audited = emu("audit", run, "--tolerance", "5 s", cwd=tmp_path)

    assert audited.returncode == 6
    assert "(6) w0[0] takes" in audited.stderr  # it started too early for its end


@pytest.mark.parametrize(
    ("overrides", "code", "told"),
    [
        (["seed=none at all"], 2, "seed: found 'none at all'"),
        (
            ["expect.makespan_error=0.0000001 %", "emulation.compute=real"],
            6,
            "the makespan error is",
        ),
        (["emulation.memory_limit=100 kB"], 5, "limit (emulation.memory_limit) is"),
    ],
    ids=["bad scenario", "missed makespan", "failed run"],
)
def test_exit_codes(overrides: list[str], code: int, told: str, tmp_path: Path) -> None:
    done = emu("run", GOLDEN, *QUICK, *options(*overrides), cwd=tmp_path)

    assert done.returncode == code, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("emu:")]
    assert len(errors) == 1
    # A run that is over is whole, whatever was expected of it; no other looks so.
    results = list((tmp_path / "runs").glob("*/result.json"))
    assert len(results) == (1 if code == 6 else 0)
    assert not list(tmp_path.rglob("*.partial*"))


def test_a_run_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file, not a directory")
    done = emu("run", GOLDEN, *QUICK, cwd=tmp_path)

    assert done.returncode == 3
    assert "choose another with --runs" in done.stderr


def test_a_profile_is_measured_and_used(tmp_path: Path) -> None:
    file = written(tiny_training(4), tmp_path)
    measured = emu("profile", file, "profile.json", "--iterations", "4", cwd=tmp_path)
    assert measured.returncode == 0, measured.stderr

    use = options("profile=profile.json", "job.times=null", "emulation.compute=timed")
    simulated = emu("simulate", file, *use, "--json", "-", cwd=tmp_path)
    assert simulated.returncode == 0, simulated.stderr
    predicted = json.loads(simulated.stdout)["makespan"]
    assert predicted > 0

    slowly = options("emulation.time_scale=10", "job.credit_window=unlimited")
    never = options("expect.makespan_error=0.0000001 %")
    done = emu("run", file, *use, *slowly, *never, "--json", "-", cwd=tmp_path)
    assert done.returncode == 6
    assert "the makespan error is" in done.stderr
    result = json.loads(done.stdout)
    assert result["predicted_makespan"] == pytest.approx(predicted)
    assert result["makespan_error"] == pytest.approx(result["makespan"] / predicted - 1)
