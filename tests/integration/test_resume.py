"""Runs that were killed as a whole go on, to the same weights."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from emu.runs.array_files import read_weights
from emu.runs.run_directory import RunDirectory
from tests.integration.scenarios import emu as emu_in
from tests.integration.scenarios import tiny_training, written
from tests.warm_commands import WarmCommands

pytestmark = [pytest.mark.emulation, pytest.mark.untimed]

ITERATIONS = 40
emu = partial(emu_in, cwd=Path(__file__).parent)


def weights(run: Path) -> NDArray[Any]:
    return np.concatenate([part.ravel() for part in read_weights(run).values()])


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    document = tiny_training(ITERATIONS)
    document["checkpoint"] = {"every": "5 iterations"}
    document["emulation"] = {"compute": "padded", "setup": True}
    document["placement"]["tasks"] = {"w1": "slow", "ps0": "fast"}
    return written(document, tmp_path_factory.mktemp("scenario"))


@cache
def learnt(scenario: Path) -> NDArray[Any]:
    """Return the weights of a run of which nothing was killed."""
    runs = scenario.parent / "undisturbed"
    done = emu("run", scenario, "--runs", runs)
    assert done.returncode == 0, done.stderr
    return weights(*runs.iterdir())


@pytest.fixture
def undisturbed(scenario: Path) -> NDArray[Any]:
    """Return these weights; of each test, so that the agent is forked as in tests."""
    return learnt(scenario)


@pytest.fixture(scope="module")
def killed(
    scenario: Path,
    tmp_path_factory: pytest.TempPathFactory,
    warm_commands: WarmCommands,
) -> Path:
    """Return the directory of a run of which everything was killed at once."""
    runs = tmp_path_factory.mktemp("runs")
    run = warm_commands.start("run", str(scenario), "--runs", str(runs))
    while len([*runs.glob("*/checkpoints/*/commit.json")]) < 2:
        assert run.poll() is None, "it has ended"
        time.sleep(0.01)
    everything = psutil.Process(run.pid)
    for process in [everything, *everything.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # gone with its parent
            process.kill()
    run.wait_here()
    (path,) = runs.iterdir()
    assert not (path / "result.json").exists()
    return path


@pytest.fixture
def run(killed: Path, tmp_path: Path) -> Path:
    """Return a copy of it."""
    shutil.copytree(killed, tmp_path / "run")
    return tmp_path / "run"


def test_it_goes_on_to_the_same_weights(run: Path, undisturbed: Any) -> None:
    kept = sorted(path.parent.name for path in run.glob("checkpoints/*/commit.json"))
    done = emu("run", "--resume", run)
    assert done.returncode == 0, done.stderr
    first = int(kept[-1])
    assert f"goes on at iteration {first} of {ITERATIONS}" in done.stderr
    np.testing.assert_array_equal(weights(run), undisturbed)
    result = json.loads((run / "result.json").read_text())
    assert result["first_iteration"] == first
    assert result["iterations"] == ITERATIONS - first
    setup = result["setup"]  # sent before what was cut off, and not again
    assert setup["measured"]["bytes"] == setup["bytes"] > 0
    checked = emu("audit", run, "--training")
    assert checked.returncode == 0, checked.stdout + checked.stderr

    again = emu("run", "--resume", run)
    assert again.returncode == 3
    assert "this run has ended" in again.stderr


def test_a_damaged_checkpoint_is_passed_over(
    run: Path, scenario: Path, undisturbed: Any
) -> None:
    older, newest = sorted((run / "checkpoints").iterdir())
    part = newest / "ps0.npz"
    part.write_bytes(part.read_bytes()[:-1])
    done = emu("run", scenario, "--resume", run)
    assert done.returncode == 0, done.stderr
    assert "passed over a checkpoint" in done.stderr
    assert "its digest differs" in done.stderr
    assert f"goes on at iteration {int(older.name)} of" in done.stderr
    np.testing.assert_array_equal(weights(run), undisturbed)


def test_another_scenario_is_refused_by_its_key(run: Path, scenario: Path) -> None:
    for key, value in {"job.optimizer.lr": "0.02", "seed": "8"}.items():
        done = emu("run", scenario, "--set", f"{key}={value}", "--resume", run)
        assert done.returncode == 2
        assert f"cannot go on with another scenario: {key} is" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_what_cannot_go_on_is_one_error(run: Path, scenario: Path) -> None:
    def refused(code: int, *words: str | Path) -> str:
        done = emu("run", *words)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr.splitlines()[-1]

    assert "names no scenario" in refused(2)
    assert "with its own scenario" in refused(2, "--set", "seed=1", "--resume", run)
    assert "is not a run" in refused(3, "--resume", run / "nothing")
    with RunDirectory(run).claim():
        assert "another emu is writing here" in refused(3, "--resume", run)
    manifest = run / "manifest.json"
    noted = json.loads(manifest.read_text())
    for folder in (run / "checkpoints").iterdir():
        (folder / "ps0.npz").unlink()
    assert "cannot be read" in refused(3, "--resume", run)
    del noted["scenario"]["checkpoint"]
    manifest.write_text(json.dumps(noted))
    assert "checkpoint is missing" in refused(2, scenario, "--resume", run)
    manifest.write_text("{")
    assert "is not JSON" in refused(3, "--resume", run)
