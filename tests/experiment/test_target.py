"""Systems compared by the time to an accuracy."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import ScenarioError
from emu.experiment.draw import Confirmation
from emu.experiment.question import answer
from emu.experiment.system_rows import compare_systems
from emu.experiment.systems import Target
from emu.graph_data import open_for
from emu.report.system_tables import answer_json
from emu.report.target_tables import target_lines, target_table
from emu.scenario import Scenario, build_job, prepare
from emu.scenario.scenario_file import loads
from tests import draws

FILE: dict[str, Any] = {
    "cluster": {
        "machines": [
            {"name": "a", "count": 2, "nic": "5 Gbit/s", "price": "1 $/h"},
            {"name": "b", "nic": "1 Gbit/s", "price": "0.2 $/h"},
        ]
    },
    "job": {
        "system": "dgtp",
        "workers": 3,
        "dataset": {"name": "products-like", "scale": 0.001},
        "model": {"kind": "gcn", "hidden": 16, "layers": 2},
        "fanouts": [4, 4],
        "batch_size": 16,
        "iterations": 5,
        "epoch": "shard",
        "optimizer": {"name": "adam", "lr": 0.05},
        "rates": {
            "aggregate": "20 ps",
            "multiply": "4 ps",
            "sample": "3 ns",
            "collect": "200 ps",
            "step": "1 ns",
            "launch": "50 us",
        },
    },
}
ROWS = ["dgtp", "distdgl", "data_parallel", "p3.none", "dgcl", "dorylus.pipe"]


def scenario_of(**keys: Any) -> Scenario:
    return loads(json.dumps({**FILE, "job": {**FILE["job"], **keys}}), name="to.json")


@pytest.mark.nightly
def test_every_row_is_the_simulation_of_what_it_leaves() -> None:
    target = Target(0.5, within=30)
    scenario = scenario_of()
    results = compare_systems(scenario, ROWS, target=target)
    for row in results:
        assert row.refused is None, row.system
        ready = prepare(row.scenarios[scenario.seed])
        assert ready.simulate().makespan == row.makespan
        assert ready.reached == row.looks[scenario.seed]
        steps = build_job(ready.scenario).iterations
        assert steps == row.looks[scenario.seed].step
        assert row.cost is not None
        assert row.everywhere is None or row.everywhere >= row.makespan
    table = target_table(results, "accuracy=0.5")
    assert table.row_count == len(ROWS)
    first, *others = target_lines(results)
    assert first.startswith(min(results, key=lambda row: row.makespan).system)
    # A row that trains weights of its own is not in this line.
    shared = [line for line in others if line.startswith("Equal weights")]
    assert shared == ["Equal weights, trained once: data_parallel, dgtp, p3.none."]


@pytest.mark.parametrize("iterations", [1, draws.rarely(2), 5])
def test_no_row_is_slower_than_on_all_machines(iterations: int) -> None:
    """One or two iterations take two machines for data_parallel; the target, three."""
    rates = {**FILE["job"]["rates"], "multiply": "1 ns"}
    dataset = {"name": "products-like", "scale": 0.002}
    scenario = scenario_of(iterations=iterations, rates=rates, dataset=dataset)
    names = ["dgtp", "data_parallel"]
    target = Target(0.5, within=30)
    for row in compare_systems(scenario, names, target=target, keep_rate=True):
        assert row.placing["machines"] == ["a0", "a1", "b"]
        assert row.everywhere is None
        ready = prepare(row.scenarios[scenario.seed])
        assert ready.simulate().makespan == row.makespan


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_every_row_is_at_the_best_of_its_learning_rates() -> None:
    """A row of which the file states a rate keeps it, as all do where it is asked."""
    target = Target(0.5, within=20)
    optimizer = {"name": "adam", "lr": 0.01}
    content = {**FILE, "systems": {"p3.none": {"optimizer": {"lr": 0.02}}}}
    content["job"] = {**FILE["job"], "optimizer": optimizer}
    scenario = loads(json.dumps(content), name="rates.json")
    names = ["data_parallel", "p3.none", "dgcl"]
    best = compare_systems(scenario, names, target=target)
    kept = compare_systems(scenario, names, target=target, keep_rate=True)

    key = "job.optimizer.lr"
    assert [row.question.settings.get(key) for row in kept] == [None, 0.02, None]
    assert best[1].question.settings[key] == 0.02
    for number in (0, 2):
        row = best[number]
        assert row.makespan < kept[number].makespan
        assert row.question.settings[key] in row.question.grid[key]
        ready = prepare(row.scenarios[scenario.seed])
        assert ready.simulate().makespan == row.makespan
        for rate in (0.03, 0.1):
            settings = {**row.question.settings, key: rate}
            other = answer(replace(row.question, settings=settings))
            assert row.makespan <= other.makespan


def test_rows_on_the_same_machines_stay_there() -> None:
    rates = {**FILE["job"]["rates"], "multiply": "1 ns"}
    scenario = scenario_of(iterations=1, rates=rates)
    names, target = ["data_parallel", "dgtp"], Target(0.5, within=30)
    rows = compare_systems(
        scenario, names, target=target, same_machines=True, keep_rate=True
    )
    assert {(*row.placing["machines"],) for row in rows} == {("a0", "a1")}
    assert any(row.everywhere and row.everywhere < row.makespan for row in rows)


def test_every_key_of_a_row_is_documented() -> None:
    scenario = scenario_of()
    (row,) = compare_systems(scenario, ["dorylus.pipe"], target=Target(0.2, within=30))
    run = Confirmation("runs/x", 1.0, 0.0, "trusted", "agrees")
    keys = {*answer_json(replace(row, run=run), row), "refused"}
    text = (Path(__file__).parents[2] / "docs" / "results.md").read_text()
    section = text.partition("## Tables of systems")[2].partition("\n## ")[0]
    rows = [line.partition(" | ")[0] for line in section.splitlines()[6:]]
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == keys
    assert row.edits["parameters of a layer"] == (["weight", "bias"], ["weight"])


def test_equal_weights_are_one_class() -> None:
    """On the same machines mini-batch systems take the same steps to a target."""
    scenario = scenario_of(machines=["a0", "a1", "b"], epoch="local")
    names = ["dgtp", "distdgl", "data_parallel", "p3.none"]
    rows = compare_systems(scenario, names, target=Target(0.5, within=30))
    looks = {row.looks[scenario.seed] for row in rows}
    assert len(looks) == 1
    assert len({row.makespan for row in rows}) > 1
    assert all(row.everywhere is None for row in rows)


def test_dgtp_has_a_worker_for_each_of_its_machines() -> None:
    (row,) = compare_systems(scenario_of(), ["dgtp"], target=Target(0.4, within=30))
    job: Any = row.scenarios[0].job
    machines = row.placing["machines"]
    assert job.workers == len(job.machines or ("a0", "a1", "b")) >= len(machines)
    assert job.workers * job.batch_size == 3 * 16


def test_a_target_out_of_reach_says_what_came_nearest() -> None:
    target = Target(0.999, within=4)
    with pytest.raises(ScenarioError, match=r"at best 3 looks in a row hold .*after"):
        compare_systems(scenario_of(), ["dgtp"], target=target)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0.88", "write accuracy=0.88"),
        ("accuracy=2", "200 %"),
        ("accuracy=0", "above 0"),
        ("accuracy=x", "write a number"),
        ("accuracy=0.8,split=all", "train|valid|test"),
        ("loss=0.1", "write accuracy=0.88"),
    ],
)
def test_a_target_is_an_accuracy(text: str, says: str) -> None:
    with pytest.raises(ScenarioError) as found:
        Target.parse(text)
    assert says in str(found.value)
    assert f"--to {text}" in str(found.value)


@given(st.floats(0.001, 1), st.sampled_from(["train", "valid", "test"]))
def test_targets_are_read_as_written(accuracy: float, split: str) -> None:
    assert Target.parse(f"accuracy={accuracy!r}, split={split}") == Target(
        accuracy, split
    )
    assert Target.parse("accuracy = 88 %") == Target(0.88)


def test_the_command_shows_and_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "to.json"
    file.write_text(json.dumps(FILE))
    stated = ["compare", str(file), "--systems", "dgcl,data_parallel"]
    to = ["--to", "accuracy=0.5", "--within", "30"]
    shown = CliRunner().invoke(app, [*stated, *to])
    assert shown.exit_code == 0, shown.output
    assert "Simulated, to accuracy=0.5" in shown.stdout
    assert "is first" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 100
    done = CliRunner().invoke(
        app, [*stated, *to, "--json", "-", "--write", str(tmp_path)]
    )
    for row in json.loads(done.stdout):
        (written,) = row["files"]
        again = CliRunner().invoke(app, ["simulate", written, "--json", "-"])
        assert json.loads(again.stdout)["makespan"] == row["makespan"]
        assert row["reached"]["0"]["accuracy"] >= 0.5
    wrong = CliRunner().invoke(app, ["compare", str(file), *to])
    assert wrong.exit_code == 2
    assert "--systems all" in wrong.stderr


@pytest.mark.parametrize("row", ["data_parallel", "p3.none", "dgcl"])
def test_looks_that_training_waits_for(row: str) -> None:
    """A pass over the whole graph each, shared; whole graphs have their scores."""
    target = Target(0.4, within=30)
    base = scenario_of(workers=2)
    (free,) = compare_systems(base, [row], target=target, keep_rate=True)
    counted = replace(target, counts_looks=True)
    question = replace(free.question, target=counted)
    slow = answer(question)
    assert slow.premises.length == "to accuracy=0.4 of valid vertices, looks counted"
    dataset = open_for(build_job(free.scenario).settings)
    length, classes = dataset.feature_length, dataset.classes
    vertices, edges = dataset.vertices, dataset.edges
    pause = 4 * length * vertices * 200e-12 + 2 * 50e-6
    pause += edges * (16 + min(16, classes)) * 20e-12
    pause += vertices * (length * 16 + 16 * classes) * 4e-12
    pause *= 0 if row == "dgcl" else 1 / len(free.machines)
    looks = len(free.curves[0])
    more = slow.makespan - free.makespan
    assert more == pytest.approx(looks * pause, abs=1e-12)
    assert slow.curves[0][-1][0] == pytest.approx(slow.makespan)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("accuracy=0.88", Target(0.88, within=7)),
        ("accuracy=88 %,split=test", Target(0.88, "test", 7)),
        (" split = train , accuracy = 1", Target(1.0, "train", 7)),
        ("accuracy=0", None),
        ("accuracy=101 %", None),
        ("split=test", None),
        ("accuracy=0.5,split=all", None),
        ("accuracy=0.5,seeds=3", None),
    ],
)
def test_a_target_is_a_share_above_nothing_and_at_most_all(
    text: str, target: Target | None
) -> None:
    if target is not None:
        assert Target.parse(text, 7) == target
        return
    with pytest.raises(ScenarioError) as error:
        Target.parse(text)
    assert error.value.file == f"--to {text}"


@pytest.mark.parametrize(("batch_size", "steps"), [(16, 5), (66, 1), (65, 2), (22, 3)])
def test_passes_end_with_the_step_that_sees_the_last_vertex(
    batch_size: int, steps: int
) -> None:
    """Three workers see 48 of 197 vertices in a step: four steps are too few."""
    scenario = scenario_of(batch_size=batch_size)
    assert open_for(build_job(scenario).settings).train_count == 197
    ended: Any = Target(0.5, "test", within=7).end(scenario)
    assert ended.job.iterations == 7 * steps
    assert ended.until.split == "test"
    assert ended.until.accuracy == 0.5
