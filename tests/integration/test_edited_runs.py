"""Runs over sockets whose directories were edited: an audit names every edit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.errors import EmulatorError
from emu.experiment.recompute import audit_whole
from emu.runs.audit_inputs import read_to_audit
from tests.integration.edits import draw, forge
from tests.integration.scenarios import GOLDEN, carried_out, tiny_training, written

pytestmark = [pytest.mark.emulation, pytest.mark.untimed]
EDITS = 20
DISTURBED = Path(__file__).parents[2] / "tools" / "mutation" / "disturbed.yaml"
SYSTEMS = ["custom", "disturbed", "dgtp", "jobs", "p3", "dgcl", "dorylus"]
QUICK = ("emulation.time_scale=0.1", "emulation.byte_scale=10000", "expect=null")


def _job(system: str) -> dict[str, Any]:
    """Return a scenario of four small iterations; its processes do compute."""
    document = tiny_training(4)
    document["emulation"]["compute"] = "padded"
    keep = {k: document["job"][k] for k in ("dataset", "batch_size", "fanouts")}
    model = {"kind": "gcn", "hidden": 8, "layers": 2}
    if system == "jobs":
        jobs = [document["job"], tiny_training(3, sync="ring")["job"]]
        del document["job"], document["placement"]
        document["jobs"] = [
            {"name": n, "job": j} for n, j in zip("ab", jobs, strict=True)
        ]
        document["jobs"][1]["release"] = "100 ms"
    elif system == "p3":
        names = ("sampler", "model_forward", "data_forward", "data_backward")
        times = {**dict.fromkeys(names, "20 ms"), "model_backward": "30 ms"}
        # With 8 a flow is one packet.
        own = {"model": {"hidden": 64, "layers": 2}, "iterations": 4, "times": times}
        document["job"] = {"system": "p3", **keep, **own}
        del document["placement"]
    elif system == "dgcl":
        times = {"forward": "10 ms", "backward": "20 ms"}
        own = {"model": model, "epochs": 3, "times": times}
        document["job"] = {"system": "dgcl", "dataset": keep["dataset"], **own}
        document["cluster"] = {"machines": [{"count": 3, "nic": "1 Gbit/s"}]}
        del document["placement"]
    elif system == "dorylus":
        times = {"gather": "8 ms", "apply": "20 ms", "scatter": "2 ms"}
        own = {"model": model, "epochs": 3, "times": times, "mode": "async"}
        own |= {"intervals": 2, "threads": 2, "staleness": 0}
        own["parameter_servers"] = ["ps"]
        document["job"] = {"system": "dorylus", "dataset": keep["dataset"], **own}
        rest = {"nic": "10 Gbit/s", "price": "0.3 $/h"}
        machines = [{"name": "g", "count": 2, **rest}, {"name": "ps", **rest}]
        document["cluster"] = {"machines": machines}
        del document["placement"]
    return document


@pytest.fixture(scope="module")
def runs() -> dict[str, Path]:
    """Return a place for the runs of this module, by system."""
    return {}


def _run(system: str, runs: dict[str, Path], folder: Path) -> Path:
    if system not in runs:
        if system == "custom":
            changes = ("job.iterations=3", "job.credit_window=2", *QUICK)
            runs[system] = carried_out(GOLDEN, folder, *changes).path
        elif system == "disturbed":
            runs[system] = carried_out(DISTURBED, folder, "job.iterations=4").path
        else:
            runs[system] = carried_out(written(_job(system), folder), folder).path
    return runs[system]


def _found(run: Path) -> list[str]:
    """Return what an audit says of a run, an error of ours among it."""
    try:
        subject = read_to_audit(run)
        report, _ = audit_whole(subject, subject.tolerance, 1e-6)
    except EmulatorError as error:
        return [str(error)]
    return [*map(str, report.violations)]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("system", SYSTEMS)
def test_an_edit_of_any_file_is_named(
    system: str,
    runs: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
) -> None:
    run = _run(system, runs, tmp_path_factory.mktemp(system))
    assert _found(run) == []
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    missed = []
    for number in range(EDITS):
        copy = shutil.copytree(run, tmp_path / str(number))
        edit = draw(np.random.default_rng([seed, number]), copy)
        if not _found(copy):
            missed.append((seed, number, edit))
        shutil.rmtree(copy)
    assert not missed


def _swap(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.timeout(200)
def test_edits_that_agree_with_their_digests_are_named(
    runs: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
) -> None:
    """The text, the manifest, the problem and the times, each with its own digest."""
    run = _run("custom", runs, tmp_path_factory.mktemp("custom"))
    rate = '"bandwidth_out": 10.0'
    for number, (name, old, new, said) in enumerate(
        [
            ("scenario.txt", "nic: 10 B/s", "nic: 11 B/s", "scenario"),
            ("scenario.txt", "system: custom", "system: cust", "scenario"),
            ("manifest.json", '"credit_window": 2', '"credit_window": 3', "scenario"),
            ("manifest.json", '"byte_scale": 10000.0', '"byte_scale": 1.0', "scenario"),
            ("problem.json", rate, rate.replace("10", "20"), "problem"),
            ("problem.json", '"lag": 2', '"lag": 3', ""),
            ("simulated.json", '"makespan": ', '"makespan": 1', "simulated"),
            ("processes.json", '"late_sends": ', '"late_sends": 1', "result"),
            ("processes.json", '"payload_bytes": ', '"payload_bytes": 1', "counts"),
            ("processes.json", '"hosts": ', '"hosts": 1, "": ', "processes.json"),
        ]
    ):
        copy = shutil.copytree(run, tmp_path / str(number))
        _swap(copy / name, old, new)
        forge(copy)
        assert any(said in one for one in _found(copy)), (name, old)


def test_a_manifest_without_scenario_text_says_so(
    runs: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
) -> None:
    run = _run("custom", runs, tmp_path_factory.mktemp("custom"))
    copy = shutil.copytree(run, tmp_path / "run")
    _swap(copy / "manifest.json", '"source"', '"elsewhere"')
    subject = read_to_audit(copy)
    report, silent = audit_whole(subject, subject.tolerance, 1e-6)
    assert any("names no scenario text" in one for one in silent)
    assert any(v.constraint == "records" for v in report.violations)
    (copy / "scenario.txt").unlink()
    assert any("scenario.txt" in one for one in _found(copy))


def test_no_guard_is_asked_by_settings_that_are_missing(
    runs: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
) -> None:
    """By scales of 1 clocks were wrong, and frames came with other bytes."""
    run = _run("custom", runs, tmp_path_factory.mktemp("custom"))
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "manifest.json").unlink()
    subject = read_to_audit(copy)
    report, silent = audit_whole(subject, subject.tolerance, 1e-6)
    assert {v.constraint for v in report.violations} == {"records"}
    assert "manifest.json is missing: the guards cannot be asked again" in silent
