"""emu sweep: every combination once, whatever ends it in between."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from emu.cli import app
from emu.cli.sweep_commands import run_points
from emu.errors import ScenarioError, ScenarioErrors
from emu.report.terminal import terminal
from emu.runs.recorded_run import load_run
from emu.runs.sweep_record import SweepRecord
from emu.scenario.variations import Point, variations
from tests.emulation.coordinator.ray_hosts import RAY

GOLDEN = Path(__file__).parents[2] / "scenarios" / "golden.yaml"
VARY = ["job.iterations=1,3,10", "schedule.policy=oes,maxmin"]


def call(*arguments: str | Path) -> Result:
    options = [text for key in VARY for text in ("--vary", key)]
    return CliRunner().invoke(
        app, ["sweep", str(GOLDEN), *options, *map(str, arguments)]
    )


def test_every_combination_with_every_seed() -> None:
    points = variations(GOLDEN, ["seed=7"], VARY, seeds=2)

    assert len(points) == 3 * 2 * 2
    assert {point.seed for point in points} == {7, 8}
    assert {point.scenario.schedule.policy for point in points} == {"oes", "maxmin"}
    assert len({point.key("simulate") for point in points}) == 12
    assert points[0].key("simulate") != points[0].key("emulate")


def test_tasks_that_a_file_pins_are_said(tmp_path: Path) -> None:
    """Both policies give the same rows, since the file states where tasks stand."""
    command = ["sweep", str(GOLDEN), "--simulate", "--out", str(tmp_path)]
    policies = ["--vary", "placement.policy=ifs,best", "--set", "expect=null"]
    result = CliRunner().invoke(app, command + policies)

    assert "placed by best, ifs, placement.tasks pins 6 tasks" in result.stdout


def test_commas_in_brackets_belong_to_the_value() -> None:
    vary = ["job.tasks[0].time=[1 s, 2 s, 3 s],4 s"]
    first, second = variations(GOLDEN, [], vary, seeds=1)

    assert first.values == {"job.tasks[0].time": "[1 s, 2 s, 3 s]"}
    assert second.values == {"job.tasks[0].time": "4 s"}


@pytest.mark.parametrize("text", ["job.iterations", "=1,2", "job.iterations=1,,2"])
def test_a_bad_vary_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError, match="key=value,value"):
        variations(GOLDEN, [], [text], seeds=1)


def test_an_error_names_the_option_that_was_written() -> None:
    """Every point is a file with overrides; the user wrote only --vary."""
    vary = ["seed=1,2", "job.iterations=1..3"]
    with pytest.raises(ScenarioError, match=r"^--vary job\.iterations=1\.\.3: "):
        variations(GOLDEN, [], vary, seeds=1)
    with pytest.raises(ScenarioError, match=r"^--set job\.iterations=some: "):
        variations(GOLDEN, ["job.iterations=some"], ["seed=1,2"], seeds=1)


def test_all_errors_of_varied_values_name_their_options() -> None:
    vary = ["job.iterations=some", "job.credit_window=other"]
    with pytest.raises(ScenarioErrors) as caught:
        variations(GOLDEN, [], vary, seeds=1)
    files = [error.file for error in caught.value.errors]
    assert sorted(files) == [
        "--vary job.credit_window=other",
        "--vary job.iterations=some",
    ]


def test_points_decide_where_the_file_is_wrong_without_their_values(
    tmp_path: Path,
) -> None:
    """A cache of a policy alone lacks its size, which every point states."""
    demo = str(GOLDEN.with_name("demo.yaml"))
    stated = ["job.cache.policy=degree", "job.iterations=1"]
    options = [text for key in stated for text in ("--set", key)]
    options += ["--vary", "job.cache.size=1 MB,2 MB", "--seeds", "2"]
    result = CliRunner().invoke(app, ["sweep", demo, *options, "--out", str(tmp_path)])

    assert result.exit_code == 0, result.output
    points = variations(Path(demo), stated, ["job.cache.size=1 MB"], seeds=2)
    assert [(point.seed, point.unchanged) for point in points] == [
        (0, False), (1, False)
    ]  # fmt: skip
    assert len((tmp_path / "points.jsonl").read_text().splitlines()) == 4
    with pytest.raises(ScenarioError, match=r"^--vary job\.cache\.size=huge: "):
        variations(Path(demo), stated, ["job.cache.size=huge"], seeds=1)


def test_every_point_has_the_values_that_it_says() -> None:
    points = variations(GOLDEN, [], ["seed=0,5"], seeds=1)

    assert [point.scenario.seed for point in points] == [0, 5]
    assert [point.seed for point in points] == [0, 5]
    with pytest.raises(ScenarioError, match="--vary states the seeds"):
        variations(GOLDEN, [], ["seed=0,5"], seeds=2)
    with pytest.raises(ScenarioError, match="--vary seed: --set states it already"):
        variations(GOLDEN, ["seed=7"], ["seed=0,5"], seeds=1)
    with pytest.raises(ScenarioError, match="write all values in one"):
        variations(GOLDEN, [], ["job.iterations=1", "job.iterations=2"], seeds=1)


def test_writes_points_table_and_picture(tmp_path: Path) -> None:
    result = call("--out", tmp_path)

    assert result.exit_code == 0, result.output
    with (tmp_path / "points.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["job.iterations"], float(row["makespan"])) for row in rows] == [
        ("1", 17.0), ("1", 17.0), ("3", 38.0), ("3", 38.0), ("10", 115.0), ("10", 115.0)
    ]  # fmt: skip
    assert (tmp_path / "points.svg").stat().st_size > 5000
    assert "maxmin" in result.output


def test_without_matplotlib_the_table_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is that of the points, of which some miss what is expected."""
    monkeypatch.setitem(sys.modules, "emu.report.plot_curves", None)
    monkeypatch.setitem(sys.modules, "emu.report.plot_style", None)
    result = call("--out", tmp_path)

    assert result.exit_code == 0, result.output
    assert "points.svg is left out" in result.output
    assert "maxmin" in result.stdout
    assert (tmp_path / "points.csv").exists()
    assert not (tmp_path / "points.svg").exists()
    missing = call("--out", tmp_path / "other", "--set", "expect.makespan=1 s")
    assert missing.exit_code == 6


def test_finished_points_are_not_done_again(tmp_path: Path) -> None:
    """A line that says 1 s is believed: nothing was simulated.

    What is expected is asked of it all the same.
    """
    assert call("--out", tmp_path).exit_code == 0
    record = tmp_path / "points.jsonl"
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    for line in lines:
        line["figures"]["makespan"] = 1.0
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))

    again = call("--out", tmp_path)
    assert again.exit_code == 6
    assert (
        "policy=oes, seed=0: simulated makespan is 1 s, expected 38 s" in again.output
    )
    with (tmp_path / "points.csv").open() as file:
        assert {row["makespan"] for row in csv.DictReader(file)} == {"1.0"}


@pytest.mark.parametrize(("first", "then"), [(0, 1), (1, 0)])
def test_a_sweep_of_other_keys_takes_what_is_finished(
    first: int, then: int, tmp_path: Path
) -> None:
    """Both hold golden as it is: three iterations, by oes."""
    values = ("job.iterations=3", "schedule.policy=oes")
    stated = ["sweep", str(GOLDEN), "--out", str(tmp_path), "--vary"]
    assert CliRunner().invoke(app, [*stated, values[first]]).exit_code == 0
    done = CliRunner().invoke(app, [*stated, values[then]])
    with (tmp_path / "points.csv").open() as file:
        rows = list(csv.DictReader(file))

    assert done.exit_code == 0, done.output
    assert len((tmp_path / "points.jsonl").read_text().splitlines()) == 1
    key, value = values[then].split("=")
    assert [row[key] for row in rows] == [value]
    assert values[first].split("=")[0] not in rows[0]
    assert float(rows[0]["makespan"]) == 38


@pytest.mark.parametrize("price", [0.5, 2.0, None])
def test_cost_and_value_are_those_of_a_simulation(
    price: float | None, tmp_path: Path
) -> None:
    stated = [str(GOLDEN), "--set", "expect=null"]
    if price is not None:
        stated += ["--set", f"cluster.machines[0].price={price} $/h"]
    varied = ["--vary", "job.iterations=1,3", "--out", str(tmp_path)]
    swept = CliRunner().invoke(app, ["sweep", *stated, *varied])
    with (tmp_path / "points.csv").open() as file:
        rows = list(csv.DictReader(file))

    assert swept.exit_code == 0, swept.output
    assert ("value / (s $)" in swept.stdout) == (price is not None)
    for row in rows:
        more = ["--set", f"job.iterations={row['job.iterations']}", "--json", "-"]
        alone = json.loads(CliRunner().invoke(app, ["simulate", *stated, *more]).stdout)
        cost = alone.get("cost", {})
        assert row.get("cost") == (str(cost["total"]) if cost else None)
        assert row.get("value") == (str(cost["value"]) if cost else None)


def test_a_failing_point_does_not_stop_the_others(tmp_path: Path) -> None:
    points = variations(GOLDEN, [], VARY, seeds=1)

    def carry(point: Point) -> dict[str, float]:
        if point.values["job.iterations"] == "3":
            raise ScenarioError("cannot be")
        return {"makespan": 1.0}

    record = SweepRecord(tmp_path)
    failures = run_points(points, record, "simulate", carry, terminal(sys.stderr))

    assert len(failures) == 2
    assert len(record.rows) == 4


KILLED = """
import os, signal, sys
from pathlib import Path
from emu.cli.sweep_commands import run_points
from emu.report.terminal import terminal
from emu.runs.recorded_run import load_run
from emu.runs.sweep_record import SweepRecord
from emu.scenario.variations import variations

def carry(point):
    if len(record.rows) == 3:
        with record.path.open("a") as file:
            file.write('{"version": 1, "key": "to')
        os.kill(os.getpid(), signal.SIGKILL)
    return {"makespan": 1.0}

record = SweepRecord(Path(sys.argv[2]))
points = variations(Path(sys.argv[1]), [], sys.argv[3:], 1)
run_points(points, record, "simulate", carry, terminal())
"""


def test_goes_on_after_a_kill(tmp_path: Path) -> None:
    """Killed in the middle of the fourth of six: three stay, three are done."""
    arguments = [str(GOLDEN), str(tmp_path), *VARY]
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False)
    assert killed.returncode == -signal.SIGKILL
    done: list[str] = []

    def carry(point: Point) -> dict[str, float]:
        done.append(point.key("simulate"))
        return {"makespan": 2.0}

    points = variations(GOLDEN, [], VARY, seeds=1)
    record = SweepRecord(tmp_path)
    run_points(points, record, "simulate", carry, terminal(sys.stderr))

    assert len(done) == 3
    keys = [point.key("simulate") for point in points]
    makespans = [SweepRecord(tmp_path).rows[key]["figures"]["makespan"] for key in keys]
    assert makespans == [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]


def test_a_ray_cluster_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    result = call("--out", tmp_path, "--ray", "127.0.0.1:9")

    assert result.exit_code == 5
    assert "emu: --ray 127.0.0.1:9: " in result.output
    beside = call("--out", tmp_path, "--ray", "127.0.0.1:9", "--emulate")
    assert "points run one by one, on this host" in beside.output


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """Return the address of a Ray cluster of one node, which ends with the test."""
    folder = tempfile.mkdtemp(prefix="ray")  # short, for it holds Unix sockets
    head = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    head += ["--node-ip-address=127.0.0.1", "--port=6393", "--num-cpus=2"]
    head += ["--include-dashboard=false", "--disable-usage-stats"]
    head += [f"--temp-dir={folder}"]
    with (tmp_path / "ray.log").open("wb") as log:
        process = subprocess.Popen(head, stdout=log, stderr=log)
    try:
        for _ in range(600):
            with suppress(OSError), socket.create_connection(("127.0.0.1", 6393)):
                break
            time.sleep(0.1)
        yield "127.0.0.1:6393"
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.skipif(not RAY, reason="ray is not installed: pip install '.[ray]'")
def test_a_ray_cluster_simulates_the_same_points(tmp_path: Path, cluster: str) -> None:
    vary = [text for key in VARY for text in ("--vary", key)]
    to = ["--out", str(tmp_path / "ray"), "--ray", cluster]
    # In a process of its own: Ray's client leaves files open.
    command = [sys.executable, "-m", "emu", "sweep", str(GOLDEN), *vary, *to]
    assert subprocess.run(command, check=False).returncode == 0
    assert call("--out", tmp_path / "here").exit_code == 0

    one, other = (tmp_path / name / "points.csv" for name in ("ray", "here"))
    assert one.read_text() == other.read_text()


@pytest.mark.emulation
@pytest.mark.slow
def test_emulates_over_sockets(tmp_path: Path) -> None:
    arguments = ["sweep", str(GOLDEN), "--emulate", "--out", str(tmp_path)]
    arguments += ["--vary", "job.iterations=1", "--set", "emulation.time_scale=0.1"]
    # The file expects the 38 s of its three iterations.
    arguments += ["--set", "expect=null"]
    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 0, result.output
    with (tmp_path / "points.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert float(row["replayed_makespan"]) == pytest.approx(17.0, rel=0.01)
    assert float(row["makespan"]) >= 16.99
    assert load_run(row["run"]).missing == ()
