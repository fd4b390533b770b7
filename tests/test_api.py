"""The functions of ``import emu``, as a script uses them."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer
from typing_extensions import override

import emu
from emu.cli.app import app
from emu.errors import DataError, ScenarioError
from emu.prediction.packets import missing_ns3
from emu.units import DURATION

SCENARIOS = Path(__file__).parents[1] / "scenarios"
FREE = {"placement": {"policy": "best"}, "expect": None}
QUICK = {
    "job.iterations": 1,
    "emulation.time_scale": 0.02,
    "emulation.byte_scale": 5000,
    "expect": None,
}


def test_a_shipped_scenario_is_found_by_name() -> None:
    scenario = emu.load("golden")

    assert emu.simulate(scenario).makespan == 38.0
    assert repr(scenario).startswith("<Scenario golden: 2 machines, custom job of 3")


def test_a_file_of_that_name_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "golden").write_text("name: mine\n")

    with pytest.raises(ScenarioError, match="key is missing"):
        emu.load("golden")


def test_an_unknown_name_is_answered_with_those_that_ship() -> None:
    with pytest.raises(ScenarioError, match="did you mean 'golden'"):
        emu.load("goldne")
    with pytest.raises(ScenarioError, match="amazon_computers, demo, "):
        emu.load("nothing_like_it")


@pytest.mark.parametrize("wrong", ["golden", Path("golden.yaml"), {"name": "g"}, None])
def test_what_is_no_scenario_is_answered_with_the_function_that_reads_one(
    wrong: Any,
) -> None:
    for function in (emu.place, emu.simulate, emu.explain, emu.compare, emu.run):
        with pytest.raises(
            ScenarioError, match=r"^found .* no scenario: .*emu\.load\("
        ):
            function(wrong)
    with pytest.raises(
        DataError, match=r"neither .*: write emu\.simulate or emu\.load"
    ):
        emu.audit(wrong)


@pytest.mark.parametrize("wrong", [None, 3, b"golden", {"name": "g"}])
def test_what_is_no_path_or_text_is_answered_with_what_to_write(wrong: Any) -> None:
    with pytest.raises(ScenarioError, match=r"^found .*, write the path of a file"):
        emu.load(wrong)
    with pytest.raises(ScenarioError, match=r"^found .*, write the text of a scenario"):
        emu.loads(wrong)


@pytest.mark.parametrize("wrong", [None, 3, [3], {3: 4}])
def test_what_are_no_overrides_is_answered_with_what_to_write(wrong: Any) -> None:
    told = r"^overrides: found (None|3), write \{.*, or \{\} for none$"
    with pytest.raises(ScenarioError, match=told):
        emu.load("golden", wrong)
    with pytest.raises(ScenarioError, match=told):
        emu.load(emu.load("golden"), wrong)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"placements": "best"}, r"placements: found 'best', write \['best'\]"),
        ({"policies": "oes"}, r"policies: found 'oes', write \['oes'\]"),
        ({"seeds": 0}, "seeds: found 0, write 1 or more"),
    ],
)
def test_a_comparison_of_what_are_no_variants_is_refused(
    changes: Any, told: str
) -> None:
    with pytest.raises(ScenarioError, match=told):
        emu.compare(emu.load("golden"), **changes)


def test_keys_are_replaced_in_files_texts_and_scenarios() -> None:
    golden = emu.load("golden", {"expect": None})
    text = (
        "cluster: {machines: [{nic: 10 B/s}]}\n"
        "job: {system: custom, iterations: 2, tasks: [{name: a, time: 1 s}]}\n"
    )

    ten = emu.load(golden, {"job.iterations": 10})
    slower = emu.load(golden, {"cluster.machines[0].nic": "5 B/s"})
    alone = emu.loads(text, ["job.iterations=7"])

    assert emu.simulate(ten).makespan == 115.0
    assert emu.simulate(slower).makespan > 38.0
    assert emu.simulate(golden).makespan == 38.0
    assert (alone.name, emu.simulate(alone).makespan) == ("scenario", 7.0)


def test_what_is_replaced_stays_the_callers_own() -> None:
    tasks = {"g0": "m0", "s0": "m0", "w0": "m0", "g1": "m1", "s1": "m1", "ps0": "m1"}
    changes = {"placement": {"policy": "explicit", "tasks": tasks, "beta": None}}
    emu.load("golden", changes)

    assert changes["placement"]["beta"] is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"cluster.machines[0].nci": 5}, "did you mean 'nic'"),
        ({"job.tasks[9].time": "1 s"}, "list of 6, it has no 9"),
        ({"": 1}, "without a key"),
        ({"schedule.policy": "oess"}, "did you mean 'oes'"),
    ],
)
def test_a_wrong_key_is_answered(changes: dict[str, object], told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        emu.load("golden", changes)


def test_placements_are_found_and_followed() -> None:
    scenario = emu.load("golden", FREE)
    placed = emu.place(scenario)

    # On one machine: 2 s until the worker starts, then 3 s + 1 s per iteration. With
    # ps0 apart, gradients and parameters take 1 s each way: 5 s more.
    assert set(placed.tasks) == {"g0", "g1", "s0", "s1", "w0", "ps0"}
    assert emu.simulate(placed).makespan == 14.0
    apart = {**placed.tasks, "ps0": "m0" if placed.tasks["ps0"] == "m1" else "m1"}
    assert emu.simulate(scenario, apart).makespan == 19.0
    assert emu.simulate(emu.load("golden"), placed.tasks).makespan == 14.0


@pytest.mark.parametrize("policy", ["explicit", "best"])
def test_tasks_by_the_data_set_are_placed_where_they_were(policy: str) -> None:
    """DGCL's tasks have names that only its plan gives."""
    times = "{forward: 5 ms, backward: 8 ms}"
    scenario = emu.loads(
        "cluster: {machines: [{count: 3, nic: 1 Gbit/s}]}\n"
        "job: {system: dgcl, dataset: {name: products-like, scale: 0.001}, epochs: 1, "
        f"model: {{kind: gcn, hidden: 8, layers: 2}}, times: {times}}}"
    )
    placed = emu.place(scenario)
    there = {"placement": {"policy": policy, "tasks": placed.tasks}}

    again = emu.place(emu.load(scenario, there))
    assert again.tasks == placed.tasks
    assert emu.simulate(again).makespan == emu.simulate(placed).makespan
    with pytest.raises(ScenarioError, match=r"no task 'f0.0to9'"):
        emu.load(scenario, {"placement.tasks": {"f0.0to9": "m0"}})


def test_another_policy_can_be_asked_for() -> None:
    placed = emu.place(emu.load("golden"), policy="round_robin")

    assert placed.scenario.placement.policy == "round_robin"
    with pytest.raises(ScenarioError, match="did you mean 'best'"):
        emu.place(emu.load("golden"), policy="bst")


def test_variants_are_compared() -> None:
    found = emu.compare(
        emu.load("golden"),
        placements=["explicit", "best"],
        policies=["oes", "fifo"],
        moves=[("ps0", "m0")],
        swaps=[("s0", "s1")],
    )

    rows = {(one.placement, one.policy): one.makespan for one in found}
    assert len(rows) == len(found) == 6
    assert rows["explicit", "oes"] == found[0].makespan
    assert rows["explicit", "oes"] == 38.0
    assert rows["best", "fifo"] == 14.0


def test_schedules_are_explained_and_audited() -> None:
    scenario = emu.load("golden")

    explanation = emu.explain(scenario)

    assert explanation.schedule.makespan == 38.0
    assert explanation.improvements
    assert emu.explain(scenario, helpful=False).improvements == ()
    assert emu.audit(emu.simulate(scenario)).passed


def test_what_is_returned_shows_itself_in_a_line() -> None:
    scenario = emu.load("golden")
    schedule = emu.simulate(scenario)
    shown = [
        scenario,
        schedule,
        schedule.problem,
        schedule.problem.job,
        schedule.problem.placement,
        emu.place(scenario),
        emu.explain(scenario),
        emu.audit(schedule),
    ]

    for one in shown:
        assert repr(one).startswith(f"<{type(one).__name__}"), repr(one)
        assert len(repr(one)) < 120


@pytest.mark.emulation
@pytest.mark.untimed
def test_a_run_is_carried_out_and_read_again(tmp_path: Path) -> None:
    witness = None if missing_ns3() else "ns3"
    run = emu.run(emu.load("golden", QUICK), runs=tmp_path, witness=witness)

    assert ("witness" in run.result) == (witness is not None)
    assert run.makespan == run.result["makespan"]
    # The replay has the times that were measured: a busy host only adds to them.
    assert run.result["replayed_makespan"] >= 17.0
    assert (run.path / "report.html").exists()
    assert not (run.path / "trace.json").exists()
    assert emu.load_run(run.path).result == run.result
    assert emu.audit(run, tolerance=5.0).passed
    assert emu.explain(run, helpful=False).simulated is not None
    assert repr(run).startswith("<RecordedRun golden-")


#: Options without a parameter: what scripts have otherwise (a file and keys by `load`,
#: results as objects, what is printed or shown), and work that only commands do.
OTHERWISE = {
    "file what result overrides json_target out top strict dry_run dashboard live": [
        "run",
        "simulate",
        "compare",
        "explain",
        "audit",
        "place",
    ],
    "agents hosts ray listen allow any_version resume patience within": ["run"],
    "repeat": ["run", "compare"],
    "skip unit": ["compare"],
    "train": ["simulate"],
    "systems to within write same_machines keep_rate confirm form": ["compare"],
    "open_it count_looks explain": ["compare"],
    "bound bound_time": ["explain", "place"],
    "scenario": ["audit"],
}


@pytest.mark.parametrize("name", OTHERWISE[next(iter(OTHERWISE))])
def test_options_of_commands_are_parameters_too(name: str) -> None:
    command = typer.main.get_command(app).get_command(None, name)  # type: ignore[attr-defined]
    options = {parameter.name for parameter in command.params}
    parameters = {*inspect.signature(getattr(emu, name)).parameters}
    same = {"move": "moves", "swap": "swaps"}
    other = {w for words, of in OTHERWISE.items() if name in of for w in words.split()}

    assert {same.get(option, option) for option in options} - other <= parameters


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"network": "ns"}, "network is 'ns': one of ns3, fluid"),
        ({"sharing": "fair"}, "add network='ns3'"),
        ({"network": "ns3", "sharing": "fare"}, "sharing is 'fare': one of"),
        ({"network": "ns3", "congestion_control": "bbr"}, "'bbr': one of .*cubic"),
    ],
)
def test_names_of_packets_are_checked(stated: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        emu.simulate(emu.load("golden"), **stated)


@pytest.mark.skipif(bool(missing_ns3()), reason=missing_ns3() or "none")
def test_packets_carry_a_scenario_too() -> None:
    packets = emu.simulate(emu.load("golden"), network="ns3", sharing="tcp")

    assert packets.makespan == pytest.approx(38.0, rel=0.02)
    assert packets.makespan != 38.0


@pytest.mark.emulation
@pytest.mark.untimed
def test_a_notebook_runs_it_too(tmp_path: Path) -> None:
    scenario = emu.load("golden", QUICK)

    async def cell() -> float:
        """Run where a loop is running already, as in a notebook's cell."""
        return float(emu.run(scenario, runs=tmp_path).result["replayed_makespan"])

    assert asyncio.run(cell()) == 17.0


@pytest.mark.emulation
@pytest.mark.untimed
@pytest.mark.parametrize("script", sorted(SCENARIOS.glob("*.py")), ids=lambda p: p.stem)
def test_the_scripts_beside_the_scenarios_run(script: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["as it is  38 s", "faster    25 s", "placed    14 s"]
    assert Path(tmp_path, lines[3].split()[-1]).exists()


class _Cells(HTMLParser):
    """Read the tables of a text: titles, and cells row by row; open tags are kept."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()

    @override
    def handle_starttag(self, tag: str, _: object) -> None:
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    @override
    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    @override
    def handle_data(self, data: str) -> None:
        if {"td", "th"} & {*self.open}:
            self.rows[-1][-1] += data


def test_what_is_returned_shows_itself_as_a_table() -> None:
    """Every cell is compared with what the object says; texts are escaped."""
    from emu.names import html_table
    from emu.scenario import prepare

    scenario = emu.load("golden")
    experiment, schedule = prepare(scenario), emu.simulate(scenario)
    shown = _Cells(experiment._repr_html_())
    told = {task: name for name, tasks in shown.rows[1:] for task in tasks.split(", ")}
    assert told == experiment.tasks
    rows = schedule.tasks
    for machine, tasks, computing in _Cells(schedule._repr_html_()).rows[1:]:
        here = rows[rows.machine == machine]
        assert {*tasks.split(", ")} == {*here.task}
        assert DURATION.parse(computing) == pytest.approx((here.end - here.start).sum())
    shown = _Cells(emu.compare(scenario, placements=["explicit", "ifs"])._repr_html_())
    assert [row[0] for row in shown.rows[1:]] == ["explicit", "ifs"]
    nasty = "<b>&\"'"
    assert _Cells(html_table(nasty, (nasty,), [(nasty,)])).rows == [[nasty], [nasty]]


def test_frames_without_pandas_name_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = emu.simulate(emu.load("golden"))
    monkeypatch.setitem(sys.modules, "pandas", None)

    with pytest.raises(DataError, match=r"pip install 'dgtp-emulator\[figures\]'"):
        _ = schedule.tasks


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_the_missing_data_of_one_of_several_jobs_names_its_key(
    wrong: int, tmp_path: Path
) -> None:
    times = ("graph_store", "sampler", "worker", "parameter_server")
    job = {
        "system": "dgtp",
        "dataset": {"name": "products-like", "scale": 0.001},
        "model": {"hidden": 4, "layers": 1},
        "fanouts": [3],
        "batch_size": 2,
        "iterations": 1,
        "times": dict.fromkeys(times, "1 ms"),
    }
    jobs = [{"name": name, "job": dict(job)} for name in ("a", "b", "c")]
    machines = [{"count": 2, "nic": "1 Gbit/s"}]
    file = tmp_path / "three.yaml"
    file.write_text(json.dumps({"cluster": {"machines": machines}, "jobs": jobs}))
    changes = {f"jobs.{jobs[wrong]['name']}.job.dataset": "nowhere"}

    with pytest.raises(DataError, match=rf"jobs\[{wrong}\]\.job\.dataset: no data set"):
        emu.simulate(emu.load(file, changes))
