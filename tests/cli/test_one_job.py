"""One scenario is one job: every command describes the same one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.experiment.auto_scale import with_scales
from emu.scenario import load, prepare

SCENARIO = """\
cluster:
  machines:
    - {name: big, cpu: 8, nic: 20 B/s}
    - {name: small, count: 2, cpu: 3, nic: 10 B/s}
job:
  system: custom
  iterations: 7
  tasks:
    - {name: g0, kind: graph_store, time: 1 s, pin: small0}
    - {name: s0, kind: sampler, time: 1 s, demands: {cpu: 1}}
    - {name: s1, kind: sampler, time: 1 s, demands: {cpu: 1}}
    - {name: w0, kind: worker, time: 3 s, demands: {cpu: 1}}
    - {name: ps0, kind: parameter_server, time: 1 s, demands: {cpu: 3}}
  flows:
    - {from: g0, to: s0, volume: 40 B}
    - {from: g0, to: s1, volume: 40 B}
    - {from: s0, to: w0, volume: 60 B}
    - {from: s1, to: w0, volume: 60 B}
    - {from: w0, to: ps0, volume: 10 B}
    - {from: ps0, to: w0, volume: 10 B, lag: 1}
placement:
  policy: etp
  iterations: 50
  tasks: {s1: big}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(SCENARIO)
    return str(path)


def _json(*arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json", "-"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("place_jobs", ["", "sequential", "joint"])
def test_the_edit_of_place_simulates_to_its_makespan(
    place_jobs: str, tmp_path: Path
) -> None:
    """`best` leaves out slow machines, whose stores the file has otherwise."""
    machines = [
        {"name": "quick", "count": 2, "nic": "10 Gbit/s"},
        {"name": "plain", "count": 3, "nic": "1 Gbit/s"},
    ]
    times = dict.fromkeys(("sampler", "worker", "graph_store"), "2 ms")
    job = {
        "system": "dgtp",
        "dataset": {"name": "products-like", "scale": 0.001},
        "model": {"hidden": 8, "layers": 2},
        "fanouts": [3, 4],
        "batch_size": 8,
        "workers": 2,
        "samplers_per_worker": 1,
        "times": times | {"parameter_server": "1 ms"},
        "iterations": 3,
    }
    content: dict[str, Any] = {"cluster": {"machines": machines}}
    if place_jobs:
        content["place_jobs"] = place_jobs
        content["jobs"] = [{"name": name, "job": job} for name in ("a", "b")]
    else:
        content |= {"job": job, "placement": {"policy": "best"}}
    path = tmp_path / "own.json"
    path.write_text(json.dumps(content))

    placed = _json("place", str(path))

    stated = prepare(load(path, placed["edit"]))
    assert stated.simulate().makespan == placed["makespan"]
    assert stated.tasks == placed["tasks"]
    if not place_jobs:
        assert all(home.startswith("quick") for home in placed["tasks"].values())


@pytest.mark.parametrize("window", ["null", "2", "unlimited"])
def test_every_command_describes_the_same_job(file: str, window: str) -> None:
    stated = ["--set", f"job.credit_window={window}"]
    simulated = _json("simulate", file, *stated)
    placed = _json("place", file, *stated)
    (compared,) = _json("compare", file, *stated)
    explained = _json("explain", file, *stated, "--no-improvements")
    experiment, _ = with_scales(load(file, [stated[1]]))

    assert placed["makespan"] == simulated["makespan"]
    assert compared["makespan"] == simulated["makespan"]
    assert explained["makespan"] == simulated["makespan"]
    assert placed["tasks"] == simulated["placement"]
    assert experiment.problem == prepare(experiment.scenario).problem
    assert experiment.simulate().makespan == simulated["makespan"]
    assert placed["iterations"] == 7
    assert placed["search"]["iterations"] == 7


@pytest.mark.parametrize("command", ["simulate", "place", "compare", "explain"])
def test_every_command_prints_iterations_window_and_pins(
    file: str, command: str
) -> None:
    shown = CliRunner().invoke(app, [command, file]).stdout.replace("\n", " ")

    assert "7 iterations, credit window 4, 2 of 5 tasks pinned" in shown
    unlimited = [command, file, "--set", "job.credit_window=unlimited"]
    assert "credit window unlimited" in CliRunner().invoke(app, unlimited).stdout


@pytest.mark.parametrize("asked", [["--bound"], ["--bound-time", "1 s"]])
@pytest.mark.parametrize("command", ["place", "explain"])
def test_bound_is_looked_for_where_it_is_asked_for(
    file: str, command: str, asked: list[str]
) -> None:
    plain = _json(command, file)
    bounded = _json(command, file, *asked)

    bound = bounded.pop("placement_bound")
    assert 0 < bound <= bounded["makespan"]
    gap = bounded.pop("placement_gap")
    assert gap == pytest.approx(1 - bound / bounded["makespan"])
    assert bounded == plain


@pytest.mark.parametrize(
    "policy", ["ifs", "etp", "best", "distdgl", "random", "round_robin"]
)
@pytest.mark.parametrize("machine", ["big", "small0", "small1"])
def test_a_pin_holds_under_every_policy(file: str, policy: str, machine: str) -> None:
    placed = _json(
        "place",
        file,
        "--set",
        f"placement.policy={policy}",
        "--set",
        f"placement.tasks.s0={machine}",
    )

    assert placed["tasks"]["s0"] == machine
    assert placed["tasks"]["s1"] == "big"
    assert placed["tasks"]["g0"] == "small0"


def test_compare_shows_moves_and_swaps_beside_the_scenario(file: str) -> None:
    spelt = "placement={policy: explicit, tasks: {s0: big, s1: big, w0: big, ps0: big}}"
    options = ["--move", "w0=small1", "--swap", "ps0,g0", "--placements", "ifs"]
    text = SCENARIO.replace(", pin: small0", "")
    Path(file).write_text(text)
    asis, moved, swapped, ifs = _json(
        "compare", file, "--set", spelt.replace("ps0", "g0: small0, ps0"), *options
    )

    assert asis["placement"] == "explicit"
    assert moved["placement"] == "move w0 to small1"
    assert moved["moves"] == [
        {"process": "w0", "source": "big", "destination": "small1"}
    ]
    assert swapped["placement"] == "swap g0 and ps0"
    assert ifs["placement"] == "ifs", "a spelt out placement pins nothing elsewhere"
    assert ifs["moves"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--move", "w9=big"], "--move w9=big: no task 'w9', known: g0, s0"),
        (["--move", "w0=bg"], "no machine 'bg' takes part, did you mean 'big'?"),
        (["--move", "w0"], "--move w0: write --move TASK=MACHINE"),
        (["--swap", "w0"], "--swap w0: write --swap TASK,TASK"),
        (["--move", "s1=small1"], "--move s1=small1: cannot be: task s1 must stand on"),
        (["--set", "placement.tasks.s9=big"], "placement.tasks.s9: no task 's9'"),
        (["--set", "placement.tasks.s0=bog"], "placement.tasks.s0: no machine 'bog'"),
        (["--set", "placement.tasks.g0=big"], "but g0 must stand on small0"),
    ],
)
def test_what_is_unknown_or_impossible_is_refused(
    file: str, options: list[str], message: str
) -> None:
    result = CliRunner().invoke(app, ["compare", file, *options])

    assert result.exit_code == 2
    assert message in result.stderr


def test_a_pin_to_a_machine_that_is_too_small_names_line_and_key(file: str) -> None:
    text = SCENARIO.replace("{s1: big}", "{s1: small0, s0: small0, ps0: small0}")
    Path(file).write_text(text)
    result = CliRunner().invoke(app, ["simulate", file])

    assert result.exit_code == 2
    assert f"{file}:24: placement.tasks.ps0: machine small0 has 3 cpu" in result.stderr


def test_a_dry_run_and_a_sweep_say_the_window(file: str, tmp_path: Path) -> None:
    dry = CliRunner().invoke(app, ["run", file, "--dry-run"])
    swept = CliRunner().invoke(
        app, ["sweep", file, "--vary", "seed=1,2", "--out", str(tmp_path / "out")]
    )

    assert "credit window 4" in dry.stdout
    assert "credit window 4" in swept.stdout
