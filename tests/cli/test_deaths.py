"""One makespan of a job that dies, whatever says it: commands, Python, expectations."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import emu
from emu.cli import app
from emu.errors import ScenarioError
from emu.experiment.system_rows import measure
from emu.scenario import prepare
from emu.scenario.experiment import count_failures
from tests.testing.trial_cases import DGTP

JOB = """
name: dying
cluster: {machines: [{name: m, count: 2, nic: 10 B/s}]}
job:
  system: custom
  iterations: 6
  tasks: [{name: a, time: 2 s}, {name: b, time: 1 s}]
  flows: [{from: a, to: b, volume: 10 B}]
placement: {policy: explicit, tasks: {a: m0, b: m1}}
on_failure: restart
max_restarts: 40
recovery: 3 s
"""
ONE = f"{JOB}events: [{{at: 5 s, kill: b}}]\n"


def drawn(seed: int) -> str:
    rng = np.random.default_rng(seed)
    times = rng.uniform(0.5, 25.0, rng.integers(1, 5))
    events = ", ".join(
        f"{{at: {at:.3f} s, kill: {rng.choice(['a', 'b', 'm0', 'm1'])}}}"
        for at in times
    )
    slow = "{at: 4 s, slow: m0, by: 2, for: 3 s}"
    text = f"{JOB}events: [{events}, {slow}]\nseed: {seed}\n"
    rate = f"every: {rng.uniform(15, 60):.2f} s, what: kill, most: 3"
    return f"{text}failures: {{machine: {{{rate}}}}}\n" if seed % 2 else text


def called(*arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json", "-"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def answers(file: Path, folder: Path) -> dict[str, float]:
    name, scenario = str(file), emu.load(str(file))
    swept = folder / "sweep"
    sweep = ["sweep", name, "--vary", "name=x", "--out", str(swept)]
    assert CliRunner().invoke(app, sweep).exit_code == 0
    (points,) = swept.glob("**/*.csv")
    with points.open() as lines:
        (row,) = csv.DictReader(lines)
    explained = called("explain", name)
    (kept,) = called("compare", name, "--policies", "oes")
    for one in explained["improvements"]:
        assert explained["makespan"] - one["makespan"] == pytest.approx(one["gain"])
    return {
        "simulate": called("simulate", name)["makespan"],
        "explain": explained["makespan"],
        "replayed": explained["replayed_makespan"],
        "causes": sum(cause["seconds"] for cause in explained["causes"]),
        "place": called("place", name)["makespan"],
        "compare": kept["makespan"],
        "sweep": float(row["makespan"]),
        "emu.simulate": emu.simulate(scenario).makespan,
        "emu.place": emu.simulate(emu.place(scenario)).makespan,
        "emu.explain": emu.explain(scenario, helpful=False).schedule.makespan,
        "emu.compare": emu.compare(scenario)[0].makespan,
    }


@pytest.mark.parametrize("seed", range(3))
def test_all_say_the_same_makespan(seed: int, tmp_path: Path) -> None:
    file = tmp_path / "dying.yaml"
    file.write_text(drawn(seed))
    said = answers(file, tmp_path)
    assert said == pytest.approx(dict.fromkeys(said, said["simulate"]))
    recovery = called("simulate", str(file))["recovery"]
    assert recovery["makespan"] == said["simulate"]
    for policy in ("maxmin", "fifo"):  # and what-ifs, as the edit that they print
        changed = emu.load(str(file), {"schedule.policy": policy})
        _, other = emu.compare(emu.load(str(file)), policies=[policy])
        assert other.makespan == pytest.approx(emu.simulate(changed).makespan)


def test_one_kill_is_part_of_it_and_no_bound_is_below(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(f"{ONE}expect: {{makespan: 22 s}}\n")
    assert set(answers(file, tmp_path).values()) == {22.0}
    for command in ("simulate", "explain"):
        text = CliRunner().invoke(app, [command, str(file)]).stdout
        assert "22 s" in text
        assert "at most 14 s" not in text
        assert "whatever the schedule" not in text
    assert "bound" not in called("simulate", str(file))
    file.write_text(f"{ONE}expect: {{makespan: 14 s}}\n")
    assert CliRunner().invoke(app, ["simulate", str(file)]).exit_code != 0
    made = emu.simulate(emu.loads(ONE))
    assert emu.audit(made).passed
    assert (made.outages.seconds, made.outages.recovery) == (8.0, 3.0)
    assert "22 s" in repr(made)


def test_costs_are_of_all_the_time(tmp_path: Path) -> None:
    priced = ONE.replace("count: 2,", "count: 2, price: 3600 $/h,")
    file = tmp_path / "priced.yaml"
    file.write_text(priced)
    assert called("simulate", str(file))["cost"]["servers"] == pytest.approx(44.0)


def test_what_was_written_reads_as_it_was(tmp_path: Path) -> None:
    file, out = tmp_path / "one.yaml", tmp_path / "out.json"
    file.write_text(ONE)
    CliRunner().invoke(app, ["simulate", str(file), "--json", str(out)])
    result = CliRunner().invoke(app, ["audit", str(out)])
    assert result.exit_code == 0, result.output
    content = json.loads(out.read_text())
    out.write_text(json.dumps(content | {"makespan": 14.0}))
    assert CliRunner().invoke(app, ["audit", str(out)]).exit_code != 0


def test_packets_know_no_deaths() -> None:
    with pytest.raises(ScenarioError, match=r"events\[0\].kill: packets know no death"):
        emu.simulate(emu.loads(ONE), network="ns3")


@pytest.mark.parametrize("what", ["what: kill", "for: 1 s", "for: 1 s, what: cut"])
def test_drawn_failures_are_counted(what: str, tmp_path: Path) -> None:
    file = tmp_path / "drawn.yaml"
    file.write_text(f"{JOB}failures: {{machine: {{every: 9 s, {what}}}}}\n")
    found, scenario = called("simulate", str(file)), emu.load(str(file))
    assert scenario.failures is not None
    cluster, section = scenario.to_cluster(), scenario.failures.machine
    assert section is not None
    times = {m.name: [t for t, _ in section.draw(m.name, 0)] for m in cluster.machines}
    counts = {m: sum(t < found["makespan"] for t in own) for m, own in times.items()}
    assert found["failures"] == counts
    assert counts["m0"] != counts["m1"] or times["m0"] != times["m1"]
    first = min(min(own) for own in times.values())  # at the end itself is not before
    assert count_failures(prepare(scenario), first) == {}
    text = CliRunner().invoke(app, ["simulate", str(file)]).stdout
    assert f"failures drawn: {sum(counts.values())} (" in text


def test_systems_are_compared_with_their_deaths() -> None:
    event = "on_failure: restart\nevents: [{at: 60 ms, kill: w0}]\n"
    scenario = emu.loads(f"name: dying\n{DGTP}{event}")
    calm, died = (
        measure(one, "dgtp") for one in (emu.loads(f"name: d\n{DGTP}"), scenario)
    )
    assert died.makespan == pytest.approx(emu.simulate(scenario).makespan)
    assert died.makespan > calm.makespan + 2.0


def test_failures_count_where_names_look_like_directions() -> None:
    """The subject of a cut is a NIC and its direction, of others a machine or link."""
    machines = [{"name": name, "nic": "10 B/s"} for name in ("m in", "m out")]
    links = [{"name": "core in", "bandwidth": "10 B/s"}]
    terms = {"every": "2 s", "for": "1 s"}
    failures = {
        "machine": {**terms, "what": "pause"},
        "link": {**terms, "what": "cut"},
    }
    keys = {
        "cluster.machines": machines,
        "cluster.links": links,
        "placement.tasks": {"a": "m in", "b": "m out"},
        "failures": failures,
    }

    experiment = prepare(emu.loads(JOB, keys))

    assert count_failures(experiment, 20.0).keys() == {"core in", "m in", "m out"}
