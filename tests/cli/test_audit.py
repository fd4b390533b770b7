"""``emu audit`` finds what is false, in simulated and emulated schedules."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.experiment.recompute import list_unseen
from emu.runs.audit_inputs import read_to_audit
from emu.trust.guards.schedule import task_times
from tests.cli.mutations import MUTATIONS

pytestmark = pytest.mark.timeout(300)  # the first run may have to compile
GOLDEN = str(Path(__file__).parents[2] / "scenarios" / "golden.yaml")
#: 38 emulated seconds in 3.8 wall seconds; 10 ms of wall time are 0.1 s.
QUICK = ("emulation.time_scale=0.1", "emulation.byte_scale=10000", "expect=null")


def _audited(path: Path, *options: str) -> tuple[int, str]:
    """Return the exit code of ``emu audit``, and everything that it found."""
    report = path.parent / "audit.json"
    report.unlink(missing_ok=True)
    result = CliRunner().invoke(
        app, ["audit", str(path), "--json", str(report), *options]
    )
    said = result.output + str(result.exception or "")
    if report.exists():
        content = json.loads(report.read_text())
        said += " ".join(
            f"{v['constraint']} {v['sentence']}" for v in content["violations"]
        )
        said += " ".join(f"{v['guard']} {v['sentence']}" for v in content["guards"])
    return result.exit_code, said


def _mutated(path: Path, mutation: str) -> None:
    content: dict[str, Any] = json.loads(path.read_text())
    MUTATIONS[mutation][1](content)
    path.write_text(json.dumps(content))


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("simulated") / "golden.json"
    CliRunner().invoke(app, ["simulate", GOLDEN, "--json", str(path)])
    return path


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("emulated")
    changes = [word for change in QUICK for word in ("--set", change)]
    CliRunner().invoke(app, ["run", GOLDEN, "--runs", str(runs), *changes])
    (run,) = runs.iterdir()
    return run


def test_a_sound_simulation_passes(simulated: Path) -> None:
    assert _audited(simulated)[0] == 0
    asked = CliRunner().invoke(app, ["audit", str(simulated), "--policy"])
    assert asked.exit_code == 0
    words = " ".join(asked.output.split())
    assert "no rates are recorded, emu run records them" in words


def test_reads_of_the_newest_value_of_a_simulation_are_sound(tmp_path: Path) -> None:
    """They arrive at 2, 3 and 4 s, and are read at 2, 4 and 6 s."""
    scenario, simulation = tmp_path / "pair.yaml", tmp_path / "pair.json"
    scenario.write_text(
        """
        cluster: {machines: [{name: m, count: 2, nic: 10 B/s}]}
        job:
          system: custom
          iterations: 3
          tasks: [{name: a, time: 1 s, pin: m0}, {name: b, time: 2 s, pin: m1}]
          flows: [{from: a, to: b, volume: 10 B, reads: latest}]
        """
    )
    CliRunner().invoke(app, ["simulate", str(scenario), "--json", str(simulation)])

    assert json.loads(simulation.read_text())["reads"] == {"a->b": [0, 2, 2]}
    assert _audited(simulation)[0] == 0


def test_there_are_at_least_50_mutations() -> None:
    assert len(MUTATIONS) >= 50


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_false_simulation_is_named(
    mutation: str, simulated: Path, tmp_path: Path
) -> None:
    target = tmp_path / "golden.json"
    shutil.copy(simulated, target)
    _mutated(target, mutation)

    code, said = _audited(target)

    assert code in (3, 6)
    assert MUTATIONS[mutation][0] in said


def _arrays(
    file: str, change: Callable[[dict[str, Any]], None]
) -> Callable[[Path], None]:
    def mutate(run: Path) -> None:
        with np.load(run / file) as arrays:
            content = {name: arrays[name].copy() for name in arrays}
        change(content)
        np.savez(run / file, **content)

    return mutate


def _rates(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    return _arrays("rates.npz", change)


def _received(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    return _arrays(
        "frames.npz", lambda found: found.update(received=change(found["received"]))
    )


def _first(content: dict[str, Any], name: str, value: float) -> None:
    content[name][0] = value


def _moved(rows: Any, column: str, by: float) -> Any:
    rows[column] += by
    return rows


FILES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "rates one and a half times": (
        "(13)", _rates(lambda c: c.update(rate=1.5 * c["rate"])),
    ),
    "rates halved": ("(12)", _rates(lambda c: c.update(rate=c["rate"] / 2))),
    "a rate NaN": ("(12)", _rates(lambda c: _first(c, "rate", np.nan))),
    "a rate negative": ("(12)", _rates(lambda c: _first(c, "rate", -1.0))),
    "a rate before its flow": ("(12)", _rates(lambda c: _first(c, "time", -3.0))),
    "all rates 5 s later": ("(12)", _rates(lambda c: c.update(time=c["time"] + 5))),
    "rates backwards": (
        "(12)", _rates(lambda c: c.update({k: v[::-1] for k, v in c.items()})),
    ),
    "a rate of no flow": (
        "flows that the job", _rates(lambda c: _first(c, "edge", 99)),
    ),
    "frames lost": ("never came", _received(lambda rows: rows[1:])),
    "frames twice": (
        "came twice", _received(lambda r: np.concatenate([r, r[:1]])),
    ),
    "frames 5 s early": (
        "before its last byte was sent",
        _received(lambda rows: _moved(rows, "last", -5.0)),
    ),
    "frames of twice the bytes": (
        "other bytes",
        _received(lambda rows: _moved(rows, "bytes", 1000)),
    ),
}  # fmt: skip


@pytest.mark.emulation
@pytest.mark.untimed
@pytest.mark.parametrize("mutation", [*MUTATIONS, *FILES])
def test_a_false_run_is_named(mutation: str, emulated: Path, tmp_path: Path) -> None:
    target = tmp_path / "run"
    shutil.copytree(emulated, target)
    if mutation in FILES:
        FILES[mutation][1](target)
    else:
        _mutated(target / "result.json", mutation)

    code, said = _audited(target)

    assert code in (3, 6)
    assert {**MUTATIONS, **FILES}[mutation][0] in said


@pytest.mark.emulation
def test_a_sound_run_passes(emulated: Path) -> None:
    result = json.loads((emulated / "result.json").read_text())

    assert result["verdict"]["guards"] == []
    assert _audited(emulated)[0] == 0
    # What an option asked for is no longer taken on trust.
    for options in ([], ["--policy"]):
        asked = CliRunner().invoke(app, ["audit", str(emulated), *options])
        assert ("rates.npz is trusted" in asked.output) == (not options)


@pytest.mark.emulation
@pytest.mark.untimed
def test_a_task_that_takes_longer_must_have_said_so(emulated: Path) -> None:
    evidence = read_to_audit(emulated).evidence
    assert evidence is not None
    assert evidence.times is not None
    assert [*task_times(evidence)] == []
    (finding,) = task_times(replace(evidence, times=0.9 * evidence.times))
    assert finding.guard == "task times"


@pytest.mark.emulation
@pytest.mark.untimed
def test_a_run_of_178_bytes_does_not_pass(tmp_path: Path) -> None:
    few = ("--set", "emulation.byte_scale=0.2", "--set", "emulation.time_scale=0.05")
    CliRunner().invoke(app, ["run", GOLDEN, "--runs", str(tmp_path), *few])
    (run,) = tmp_path.iterdir()

    code, said = _audited(run)
    result = json.loads((run / "result.json").read_text())

    assert result["transport"]["payload_bytes"] == 178
    assert result["verdict"]["trust"] == "untrusted"
    assert "nothing was carried" in result["verdict"]["reasons"][0]
    assert code == 6
    assert "this run tests control, not the network" in said
    assert "this run tests control" in (run / "report.html").read_text()


def test_figures_of_tasks_are_named_alike_with_and_without_training(
    tmp_path: Path,
) -> None:
    (tmp_path / "training.csv").touch()
    run: Any = SimpleNamespace(path=tmp_path)
    (whole,) = list_unseen(run)
    (rest,) = list_unseen(run, {"training"})

    figures = rest.removeprefix("training.csv is trusted for ")
    assert whole.endswith(f"--training, and {figures}")
