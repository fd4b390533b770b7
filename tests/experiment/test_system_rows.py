"""Rows of a table of systems: their settings, what they need, and what is kept."""

from __future__ import annotations

import csv
import json
import os
import signal
import time
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.cli.compare_command import form_of, write_systems
from emu.cli.report_commands import Form
from emu.errors import EmulatorError, ScenarioError
from emu.experiment.machine_memory import (
    check_memory,
    gpu_memory_by_machine,
    memory_by_machine,
)
from emu.experiment.question import answer, ask
from emu.experiment.refusal import reason
from emu.experiment.row_figures import limits_of
from emu.experiment.row_machines import Sources
from emu.experiment.row_settings import list_settings
from emu.experiment.system_rows import compare_systems, list_questions, measure
from emu.experiment.systems import Target, as_variant
from emu.graph_data import open_for, open_parts
from emu.report.system_tables import answers_json, ranking
from emu.scenario import Scenario, load, prepare
from emu.systems.setup import GHOSTS
from emu.systems.system import list_transfers, parameter_bytes
from tests.experiment.test_target import FILE, scenario_of
from tests.warm_commands import WarmCommands

TO = ["--to", "accuracy=0.4", "--within", "20"]


def test_a_row_is_the_best_of_its_settings() -> None:
    """Each is the row of a file that states nothing else."""
    grid: dict[str, Any] = {"pipeline": ["none", "A"], "fanouts": [[4, 4], [2, 3]]}
    stated = {"p3": grid, "data_parallel": {"batch_size": 8}}
    scenario = load(scenario_of(), {"systems": stated})
    alone = [
        measure(load(scenario_of(), {"job.fanouts": fanouts}), row)
        for row in ("p3.none", "p3.A")
        for fanouts in grid["fanouts"]
    ]
    (row, other) = compare_systems(scenario, ["p3", "data_parallel"])
    best = max(alone, key=lambda one: one.samples_per_second)
    assert [seconds for _, seconds in row.tried] == [one.makespan for one in alone]
    assert row.makespan == best.makespan
    job: Any = best.scenarios[0].job
    assert row.question.settings["job.fanouts"] == list(job.fanouts)
    # Seeds of an iteration are those of three workers, on however many machines.
    assert other.seeds_per_step is not None
    assert abs(other.seeds_per_step - 3 * 8) <= 1
    assert list_settings(scenario, "dgcl") == [{}]
    # A setting of a system holds for its rows, but for what makes them rows.
    assert list_settings(scenario, "p3.A") == [
        {"job.fanouts": fanouts} for fanouts in grid["fanouts"]
    ]


@pytest.mark.parametrize(
    ("systems", "says"),
    [
        ({"dgkl": {}}, "did you mean 'dgcl'"),
        ({"dgcl": {"plann": "spst"}}, "did you mean 'plan'"),
        ({"p3.A": {"pipeline": "none"}}, "is what makes the row p3.A"),
        ({"dgtp": {"batch_size": [*range(1, 40)]}}, "write 32 or fewer"),
    ],
)
def test_settings_of_no_row_are_refused(systems: dict[str, Any], says: str) -> None:
    with pytest.raises(ScenarioError) as found:
        compare_systems(load(scenario_of(), {"systems": systems}), ["all"])
    assert says in str(found.value)
    assert "systems." in str(found.value)


@pytest.mark.parametrize(
    ("row", "section", "says"),
    [
        ("p3", {"push": "foo"}, "p3.push: found 'foo', known: shipped, derived"),
        ("p3", {"push": ["shipped", "foo"]}, "p3.push: found 'foo', known: shipped"),
        ("p3.A", {"fanouts": [[3, "foo"]]}, '"p3.A".fanouts: found'),
    ],
)
def test_a_wrong_setting_of_a_row_is_named_by_its_key_in_systems(
    row: str, section: dict[str, Any], says: str
) -> None:
    """Hold it in a table as well, and where it is one of several alternatives."""
    scenario = load(scenario_of(), {"systems": {row: section}})
    answers = compare_systems(scenario, ["dgtp", row])
    refusals = {answer.system: answer.refused for answer in answers}
    refusal = refusals[row]

    assert refusals["dgtp"] is None
    assert isinstance(refusal, ScenarioError)
    assert reason(refusal).startswith(f"systems.{says}")


def test_a_refusal_has_its_key_where_it_begins_with_what_was_found() -> None:
    found = ScenarioError("found 2, write 3 or more", file="a", key="job.iterations")
    other = ScenarioError("80 % is not reached", file="a", key="until.accuracy")

    assert reason(found) == "job.iterations: found 2, write 3 or more"
    assert reason(other) == "80 % is not reached"
    assert reason(ScenarioError("found none")) == "found none"


@pytest.mark.parametrize("row", ["one_machine", "p3.none", "dgcl", "dorylus.pipe"])
def test_memory_is_refused_where_it_lacks(row: str) -> None:
    """One byte less than needed is named, as many as needed are not."""
    ready = prepare(as_variant(scenario_of(machines=["a0", "a1"]), row))
    schedule = ready.simulate()
    needs = memory_by_machine(ready, schedule)
    dataset = open_for(ready.problem.job.settings)
    features = 4 * dataset.vertices * dataset.feature_length
    assert sum(needs.values()) > features
    fullest = max(needs, key=needs.__getitem__)
    for spare in (0, -1000):
        room = {"memory": f"{int(needs[fullest]) + 1 + spare} B"}
        machines = [{**one, **room} for one in FILE["cluster"]["machines"]]
        small = load(ready.scenario, {"cluster.machines": machines})
        if spare == 0:
            check_memory(prepare(small), schedule)
            continue
        with pytest.raises(ScenarioError, match=f"{fullest} needs .* more than it has"):
            check_memory(prepare(small), schedule)


@pytest.mark.parametrize("until", [None, {"accuracy": "0.1 %", "seeds": 48}])
def test_a_chosen_row_is_that_of_asking_for_its_machines_alone(
    until: dict[str, object] | None,
) -> None:
    """Its trial there has prepared it, and its answer does not do so again.

    But until an accuracy: the job of the row stays as long as the file says.
    """
    scenario = load(scenario_of(), {"until": until})
    rows = compare_systems(scenario, ["data_parallel", "p3"])
    for row in rows:
        assert row.chosen
        assert row.question.prepared is None
        alone = answer(replace(row.question, machines=row.machines))
        assert row.makespan == alone.makespan
        assert row.plain == alone.plain
        assert row.edits == alone.edits
        assert row.experiment.tasks == alone.experiment.tasks


def test_rows_share_the_file_where_they_read_the_same() -> None:
    sources = Sources()
    first, again = (sources.first_equal(scenario_of()) for _ in range(2))
    other = sources.first_equal(load(scenario_of(), {"seed": 5}))
    assert again is first
    assert other is not first

    on_one = sources.on_machines(first, ("a0",))
    assert sources.on_machines(again, ("a0",)) is on_one
    assert sources.on_machines(other, ("a0",)).seed == 5
    assert sources.on_machines(first, ("a1",)) is not on_one


@pytest.mark.parametrize("row", ["dgcl", "p3.none", "data_parallel"])
def test_payloads_are_held_by_the_machines_of_both_their_ends(
    row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held against the names of edges that each machine is asked about."""
    asked: list[set[str]] = []
    names = np.array([])

    def note(_: object, is_asked: np.ndarray) -> float:
        asked.append({*names[is_asked].tolist()})
        return 0.0

    monkeypatch.setattr("emu.experiment.machine_memory._Payloads.most_waiting", note)
    ready = prepare(as_variant(scenario_of(machines=["a0", "a1", "b"]), row))
    job = ready.problem.job
    names = np.array(job.edge_names)
    memory_by_machine(ready, ready.simulate())

    homes = [ready.tasks[task.name] for task in job.tasks]
    for machine, found in zip(ready.placing["machines"], asked, strict=True):
        assert found == {
            name
            for name, edge in zip(job.edge_names, job.edges, strict=True)
            if machine in (homes[edge.source], homes[edge.destination])
        }
    assert len(asked) == 3


@pytest.mark.parametrize("kind", ["gcn", "gat"])
def test_memory_of_rows_is_that_of_their_own_part(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Features, layers and ghosts count, in parts that differ by a vertex."""
    model = {"kind": kind, "hidden": 16, "layers": 2}
    scenario = scenario_of(machines=["a0", "a1", "b"], model=model, partitioner="hash")
    ready = prepare(as_variant(scenario, "dorylus.pipe"))
    (dataset, graph), job = open_parts(ready.problem.job.settings), ready.problem.job
    module = "emu.experiment.machine_memory"
    ghosts = [one for one in list_transfers(job) if one.cause == GHOSTS]
    monkeypatch.setattr(f"{module}._Payloads.most_waiting", lambda *_: 0.0)
    monkeypatch.setattr(f"{module}.state_bytes", lambda _: {})
    monkeypatch.setattr(f"{module}.list_unfilled", lambda _: ghosts)
    kept = dataset.feature_length + 16 + dataset.classes
    read = dataset.feature_length if kind == "gcn" else 0
    parts = [graph.part(number) for number in range(graph.parts)]
    assert len({len(part.local) for part in parts}) == 2
    needs = memory_by_machine(ready, ready.simulate())
    assert [needs[name] for name in ("a0", "a1", "b")] == [
        4.0 * (len(part.local) * kept + len(part.remote) * read) for part in parts
    ]


@pytest.mark.parametrize("row", ["data_parallel", "dgcl", "p3.none"])
def test_every_machine_that_steps_keeps_moments(row: str) -> None:
    """Two for Adam, of each parameter; under P3 the columns of each machine."""
    needs, sizes = [], {}
    for name in ("sgd", "adam"):
        scenario = scenario_of(machines=["a0", "a1"], optimizer=name)
        ready = prepare(as_variant(scenario, row))
        needs.append(memory_by_machine(ready, ready.simulate()))
        sizes = parameter_bytes(ready.problem.job)
    more = [needs[1][name] - needs[0][name] for name in ("a0", "a1")]
    each = [*sizes.values()] if row == "p3.none" else [*sizes.values()] * 2
    assert more == pytest.approx([2.0 * size for size in each])


@pytest.mark.parametrize("policy", ["degree", "lru"])
def test_memory_of_caches_is_counted_whenever_they_are_filled(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before time 0 or by batches: as many rows, with their numbers, of others."""
    module = "emu.experiment.machine_memory"
    monkeypatch.setattr(f"{module}._Payloads.most_waiting", lambda *_: 0.0)
    needs, owner = [], np.empty(0)
    for rows in (0, 7, 10**6):
        cache = {"cache": {"policy": policy, "size": f"{rows * 400} B"}} if rows else {}
        scenario = scenario_of(machines=["a0", "a1"], **cache)
        ready = prepare(as_variant(scenario, "data_parallel"))
        needs.append(memory_by_machine(ready, ready.simulate()))
        owner = np.asarray(open_for(ready.problem.job.settings).owner)
    for rank, name in enumerate(("a0", "a1")):
        others = int((owner != rank).sum())
        assert needs[1][name] - needs[0][name] == 7 * (400 + 8)
        assert needs[2][name] - needs[0][name] == others * (400 + 8)


def test_one_machine_without_room_is_no_row_of_several() -> None:
    needs = max(measure(scenario_of(), "one_machine").memory.values())
    room = {"memory": f"{needs * 0.95:.0f} B"}
    machines = [{**one, **room} for one in FILE["cluster"]["machines"]]
    small = load(scenario_of(), {"cluster.machines": machines})
    assert len(measure(small, "data_parallel").placing["machines"]) > 1
    with pytest.raises(ScenarioError, match="does not fit into memory"):
        measure(small, "one_machine")


@pytest.mark.parametrize("row", ["dgtp", "p3.A", "dgcl", "dorylus.async"])
def test_limits_are_shares_of_the_path(row: str) -> None:
    ready = prepare(as_variant(scenario_of(machines=["a0", "a1"]), row))
    limits = limits_of(ready, ready.simulate())
    kinds = {name.split()[0] for name in limits}
    assert kinds <= {"link", "latency", "slot", "rate"}
    assert sum(limits.values()) == pytest.approx(1)
    assert [*limits.values()] == sorted(limits.values(), reverse=True)


@pytest.mark.nightly
def test_what_came_nearest_is_named() -> None:
    """On this graph the file's learning rate is the best of those that are tried."""
    names = ["dgcl", "data_parallel"]
    scenario = scenario_of(dataset={"name": "products-like", "scale": 0.002})
    target = Target(0.999, within=4)
    with pytest.raises(ScenarioError) as found:
        compare_systems(scenario, names, target=target)
    assert "no system holds it within 4 epochs" in str(found.value)
    nearest = {name: error_of(scenario, name, target) for name in names}
    best = max(nearest, key=lambda name: nearest[name].nearest)
    assert f"{best} came nearest, {nearest[best].nearest:.2%}" in str(found.value)


def error_of(scenario: Scenario, name: str, target: Target) -> Any:
    with pytest.raises(EmulatorError) as found:
        measure(scenario, name, target=target)
    return found.value


def test_the_table_is_written_in_every_form(tmp_path: Path) -> None:
    names = ["dgcl", "one_machine"]
    results = compare_systems(scenario_of(), names, target=Target(0.4, within=20))
    rows = answers_json(results)
    text = {}
    for form in (Form.HTML, Form.CSV, Form.SVG):
        out = tmp_path / f"table.{form}"
        write_systems(scenario_of(), results, "accuracy=0.4", form, out)
        text[form] = out.read_text()
    lines = csv.DictReader(StringIO(text[Form.CSV]))
    for line, row in zip(lines, rows, strict=True):
        assert float(line["makespan"]) == row["makespan"]
        assert float(line["epochs"]) == row["epochs"]
        assert line["limit"] == row["limit"]
    assert "src=" not in text[Form.HTML]
    data = json.loads(text[Form.HTML].split('id="data">')[1].split("</script>")[0])
    plot = data["accuracy"]
    assert {curve["name"] for curve in plot["curves"]} == {*names}
    assert (plot["target"], plot["split"]) == (40, "valid")
    clock = {"s": 1.0, "ms": 1e-3, "us": 1e-6}[plot["unit"]]
    assert data["end"] * clock == pytest.approx(max(row["makespan"] for row in rows))
    assert all(row["curves"][0][-1][1] >= 0.4 for row in rows)
    assert all(name in text[Form.SVG] for name in names)
    with pytest.raises(ScenarioError, match=r"html\|svg"):
        form_of(None, Path("table.txt"), "accuracy=0.4")


def test_single_values_are_expected_of_the_row_that_is_the_file_alone() -> None:
    scenario = scenario_of()

    def are_exact(scenario: Scenario, row: str, **overrides: object) -> list[bool]:
        questions = list_questions(scenario, row, overrides=overrides)
        return [question.exact for question in questions]

    assert are_exact(scenario, "dgtp") == [True]
    assert are_exact(scenario, "data_parallel") == [False]
    assert are_exact(scenario, "dgtp", **{"job.batch_size": 32}) == [False]
    stated = load(scenario, {"systems": {"dgtp": {"batch_size": [16, 32]}}})
    assert are_exact(stated, "dgtp") == [False, False]


def test_a_job_that_trains_nothing_needs_no_memory() -> None:
    assert ask(load("golden")).memory == {}
    assert ask(scenario_of()).memory


@pytest.mark.slow
def test_a_killed_comparison_goes_on_with_what_is_trained(
    tmp_path: Path, warm_commands: WarmCommands
) -> None:
    file = tmp_path / "to.json"
    file.write_text(json.dumps(FILE))
    command = ["compare", str(file), *TO, "--json", "-"]
    command += ["--systems", "dgcl,data_parallel,p3.A", "--keep-lr"]
    own = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def trained() -> dict[str, int]:
        # Not by rglob, which fails on what is renamed meanwhile.
        top = os.walk(tmp_path / "cache")
        folders = [Path(at, "loss.npy") for at, _, files in top if "loss.npy" in files]
        folders = [one for one in folders if one.parent.name.endswith("-accuracy")]
        return {str(one): one.stat().st_mtime_ns for one in folders}

    cut = warm_commands.start(*command, env=own)
    while not (before := trained()) and cut.poll() is None:
        time.sleep(0.02)
    cut.kill()
    assert cut.wait_here() == -signal.SIGKILL
    done = warm_commands.run(*command, cwd=tmp_path, env=own)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    after = trained()
    assert len(after) > len(before)
    assert {name: after[name] for name in before} == before
    once = {
        n: measure(scenario_of(), n, target=Target(0.4, within=20)) for n in ("dgcl",)
    }
    assert rows[0]["makespan"] == once["dgcl"].makespan
    assert all(np.isfinite(row["makespan"]) for row in rows)


@pytest.mark.emulation
@pytest.mark.usefixtures("leftovers")
def test_the_best_rows_are_run_over_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("to.json").write_text(json.dumps({**FILE, "emulation": {"compute": "timed"}}))
    stated = ["compare", "to.json", "--systems", "dgcl,one_machine", *TO]
    done = CliRunner().invoke(app, [*stated, "--confirm", "1", "--json", "-"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    best = min(rows, key=lambda row: row["makespan"])
    assert [row["system"] for row in rows if "run" in row] == [best["system"]]
    result = json.loads((Path(best["run"]["path"]) / "result.json").read_text())
    assert result["predicted_makespan"] == best["makespan"]
    assert best["run"]["makespan_error"] == result["makespan_error"]
    assert best["run"]["trust"] == result["verdict"]["trust"]


def test_classes_are_not_ranked_beside_each_other() -> None:
    """A step on the whole graph learns otherwise from as many vertices."""
    rows = compare_systems(scenario_of(), ["dgtp", "dgcl", "p3.none", "dorylus.pipe"])
    lines = [*ranking(rows)]
    content = answers_json(rows)

    assert [row.whole_graph for row in rows] == [False, True, False, True]
    assert "on mini-batches" in lines[0]
    assert "dgcl" not in lines[0]
    assert "on the whole graph" in lines[1]
    assert "--to accuracy=" in lines[2]
    assert content[1]["change"] == 0.0
    assert content[2]["change"] == rows[2].makespan / rows[0].makespan - 1
    assert content[3]["change"] == rows[3].makespan / rows[1].makespan - 1


def test_gpu_memory_of_a_machine_is_that_of_all_its_tasks() -> None:
    sizes = {"x": 5.0, "y": 7.0, "z": 2.0, "w": 0.0}
    tasks = [
        SimpleNamespace(name=name, demands={"gpu_memory": size})
        for name, size in sizes.items()
    ]
    tasks.append(SimpleNamespace(name="v", demands={}))
    machines = {"x": "m0", "y": "m1", "z": "m0", "w": "m2", "v": "m2"}
    problem = SimpleNamespace(job=SimpleNamespace(tasks=tasks))
    experiment: Any = SimpleNamespace(problem=problem, tasks=machines)

    assert gpu_memory_by_machine(experiment) == {"m0": 7.0, "m1": 7.0}


def test_up_to_32_settings_of_a_row_are_tried() -> None:
    def count(sizes: int) -> int:
        choices = {"batch_size": [*range(1, sizes + 1)], "fanouts": [[4, 4], [2, 3]]}
        stated = load(scenario_of(), {"systems": {"dgtp": choices}})
        return len(list_settings(stated, "dgtp"))

    assert count(16) == 32
    with pytest.raises(ScenarioError, match="34 settings, write 32 or fewer"):
        count(17)


def test_keys_of_several_values_are_a_grid_and_one_value_is_none() -> None:
    stated = {"dgtp": {"batch_size": [16, 32], "samplers_per_worker": 2}}
    questions = list_questions(load(scenario_of(), {"systems": stated}), "dgtp")
    grids = [question.grid for question in questions]
    assert grids == [{"job.batch_size": ("16", "32")}] * 2
    sizes = [question.settings["job.batch_size"] for question in questions]
    assert sizes == [16, 32]
