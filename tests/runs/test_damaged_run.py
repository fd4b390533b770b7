"""Every value of every JSON file of a run, changed: an answer or one error of ours."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.emulation.wire.frame_layout import FRAME_ROWS
from emu.errors import DataError, EmulatorError
from emu.report.trace import write_trace
from emu.runs.array_files import read_frames
from emu.runs.audit_inputs import read_to_audit
from emu.runs.recorded_run import load_run, with_simulated_rates
from tests import draws
from tests.integration.scenarios import GOLDEN, carried_out, tiny_training, written
from tests.report.recorded import schedules, write_run

FILES = ("problem.json", "result.json", "simulated.json", "manifest.json")
VALUES: list[Any] = [None, True, -1, 0, 1, 10**6, 2**63, 1e300, float("nan"), -0.5]
VALUES += ["", "x", "1 GB", [], [1], {}, {"a": 1}]


def places(value: Any, trail: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield trail
    items = value.items() if isinstance(value, dict) else ()
    for key, inner in enumerate(value) if isinstance(value, list) else items:
        yield from places(inner, (*trail, key))


def changed(content: Any, trail: tuple[Any, ...], value: Any) -> Any:
    if not trail:
        return value
    made = copy.deepcopy(content)
    inner = made
    for step in trail[:-1]:
        inner = inner[step]
    if value is FILES:  # nothing: the key is gone
        del inner[trail[-1]]
    else:
        inner[trail[-1]] = value
    return made


def use(run: Path) -> None:
    """Do what audit, explain, plot and trace begin with."""
    read = load_run(run)
    _ = read.policy, repr(read)
    if read.simulated is not None:
        with_simulated_rates(read)
    write_trace(run, run / "trace.json")
    subject = read_to_audit(run)
    subject.audit(subject.tolerance, 1e-6)


@pytest.mark.parametrize("name", FILES)
def test_a_changed_value_gives_an_answer_or_one_error(
    name: str, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run")
    good = json.loads((run / name).read_text())
    trails = [*places(good)]
    rng = np.random.default_rng(len(name))
    refused = 0
    for _ in draws.some(range(60)):
        trail = trails[rng.integers(len(trails))]
        value = [*VALUES, FILES][rng.integers(len(VALUES) + 1)]
        if not trail and value is FILES:
            continue
        (run / name).write_text(json.dumps(changed(good, trail, value)))
        try:
            use(run)
        except EmulatorError:
            refused += 1
    assert refused or name == "manifest.json"


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("sent", (3, 1)),
        ("received", ()),
        ("notified", (3, 1)),
        ("notified", (0, 3)),
        ("began", (3, 1)),
    ],
)
def test_frames_of_another_shape_are_refused(
    name: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    """A column of ``notified`` ended in an IndexError of a guard."""
    job, path = schedules()[0].problem.job, tmp_path / "frames.npz"
    rows = np.zeros(3, FRAME_ROWS)
    arrays = {"sent": rows, "received": rows, "notified": np.ones((len(job.edges), 3))}
    np.savez(path, allow_pickle=False, **arrays)
    tasks = len(job.tasks), 3
    assert np.isnan(read_frames(job, path)["began"]).all()  # of an earlier emu
    arrays["began"] = np.ones(tasks)
    np.savez(path, allow_pickle=False, **arrays)
    assert (read_frames(job, path)["began"] == np.ones(tasks)).all()
    assert read_frames(job, path)["notified"].shape == (len(job.edges), 3)
    half = arrays | {"notified": arrays["notified"].astype(np.float16)}
    np.savez(path, allow_pickle=False, **half)
    with pytest.raises(DataError, match="notified has"):  # and no overflow is warned of
        read_frames(job, path)
    arrays[name] = np.zeros(shape, arrays[name].dtype)
    np.savez(path, allow_pickle=False, **arrays)
    with pytest.raises(
        DataError, match=r"frames\.npz: (holds no rows|notified has|began has)"
    ):
        read_frames(job, path)


@pytest.mark.parametrize("by", [-1, 1, 2, 50])
def test_an_edited_lag_is_named(by: int, tmp_path: Path) -> None:
    """Every edge between machines, one after the other."""
    run = write_run(tmp_path / "run")
    good = json.loads((run / "problem.json").read_text())
    problem = load_run(run).problem
    for number, hops in enumerate(problem.hops):
        if hops:
            lag = problem.job.edges[number].lag
            edited = changed(good, ("edges", number, "lag"), lag + by)
            (run / "problem.json").write_text(json.dumps(edited))
            with pytest.raises(DataError, match=r"problem\.json|result\.json"):
                read_to_audit(run)


COMMANDS = {
    "audit": [],
    "explain": [],
    "report": ["--out", "page.html"],
    "report --as trace": ["--out", "perfetto.json"],
    "report --as csv": [],
    "evaluate": [],
    "report --as svg": ["--out", "drawn.svg"],
}


def look_at(run: Path, *names: str) -> None:
    """Give a run to commands that read one: an answer, or one line."""
    for name in names or COMMANDS:
        out = [run / one if "." in one else one for one in COMMANDS[name]]
        done = CliRunner().invoke(app, [*name.split(), str(run), *map(str, out)])
        unplanned = done.exception
        assert unplanned is None or isinstance(unplanned, SystemExit), repr(unplanned)
        assert done.exit_code in (0, 2, 3, 6), (name, done.output)


@pytest.fixture(scope="module", params=["golden", "training"])
def real(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Path:
    """Return what a run over sockets has left."""
    folder = tmp_path_factory.mktemp("real")
    if request.param == "golden":
        overrides = ["job.iterations=2", "expect=null"]
        return carried_out(GOLDEN, folder, *overrides).path
    job = {"workers": 3, "sync": "ring", "ring": "placed"}
    file = written(tiny_training(2, **job), folder)
    return carried_out(file, folder, "placement.policy=round_robin").path


ROOTS = ["{}", "[]", "null", "3", '"x"', "", '{"statistics": {', '{"version": 3}']


@pytest.mark.emulation
@pytest.mark.untimed
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_any_root_of_every_json_file_is_an_answer_or_one_line(
    real: Path, tmp_path: Path
) -> None:
    """processes.json of ``{}`` ended in a KeyError."""
    run = shutil.copytree(real, tmp_path / "run")
    look_at(run)
    names = sorted(path.name for path in real.glob("*.json"))
    assert {"processes.json", "manifest.json", "result.json"} <= {*names}
    rng = np.random.default_rng(len(names))
    for name in names:
        for root in ROOTS:
            (run / name).write_text(root)
            look_at(run, rng.choice([*COMMANDS]))
        shutil.copy(real / name, run / name)


@pytest.mark.emulation
@pytest.mark.untimed
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_pipes_and_folders_in_place_of_files_end_no_command(
    real: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(real, tmp_path / "run")
    rng = np.random.default_rng(3)
    for path in sorted(real.iterdir()):
        if not path.is_file() or path.name == "report.html":
            continue
        for make in (os.mkfifo, os.mkdir):
            (run / path.name).unlink()
            make(run / path.name)
            look_at(run, "report", rng.choice([*COMMANDS]))
            (shutil.rmtree if make is os.mkdir else os.unlink)(run / path.name)
            shutil.copy(path, run / path.name)


@pytest.fixture(scope="module")
def inflating(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive with all keys of all files of a run; packing it takes 1.5 s."""
    keys = ["packets", "machines", "nics", "programs", "owners", "time", "ran"]
    keys += ["program"]
    keys += ["waited", "retransmitted", "timeouts", "dropped", "queued"]
    keys += ["parameters", "names", "shapes", "offsets"]
    path: Path = tmp_path_factory.mktemp("inflating") / "all.npz"
    arrays = dict.fromkeys(keys, np.zeros(4_000_000))
    np.savez_compressed(path, allow_pickle=False, **arrays)
    assert path.stat().st_size < 1 << 20
    return path


READS_ALL = """
import pathlib, resource, sys
from emu.errors import DataError
from emu.runs import array_files
resource.setrlimit(resource.RLIMIT_DATA, (300_000_000,) * 2)
for name in sys.argv[2:]:
    try:
        getattr(array_files, f"read_{name}")(pathlib.Path(sys.argv[1]))
    except DataError as error:
        print(error)
"""


def test_a_small_file_that_unpacks_to_gigabytes_is_refused(
    tmp_path: Path, inflating: Path
) -> None:
    """Under a limit of memory, in a process of its own."""
    names = ("traffic", "samples", "lines", "weights")
    for name in names:
        shutil.copy(inflating, tmp_path / f"{name}.npz")
    done = subprocess.run(
        [sys.executable, "-c", READS_ALL, str(tmp_path), *names],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.stderr == ""
    for name, line in zip(names, done.stdout.splitlines(), strict=True):
        assert f"{name}.npz" in line
        assert "claims to unpack to" in line
