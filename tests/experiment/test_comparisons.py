"""Each row of each comparison is what simulating the file that it leaves says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import emu
from emu.cli import app
from emu.errors import EmulatorError, ScenarioError
from emu.experiment.question import Answer
from emu.experiment.system_rows import compare_systems
from emu.experiment.systems import list_sources, write_rows
from emu.experiment.variants import Candidate, compare_variants
from emu.prediction.placement_policies import PLACEMENT_POLICIES
from emu.prediction.scheduling import list_rules
from emu.scenario import Experiment, load, prepare
from emu.scenario.edits import placement_edit
from emu.scenario.scenario_file import loads
from tests import draws
from tests.fidelity.corpus import RULES
from tests.scenario.test_edits import TIMED, scenario, training
from tests.scenario.test_edits import loads as loads_content

PLACEMENTS = ("ifs", "etp", "best", "distdgl", "random", "round_robin")


def drawn(rng: np.random.Generator) -> emu.Scenario | None:
    """Return a custom job, two, or one that trains, maybe with prices and a death."""
    seed, system = int(rng.integers(2**31)), str(rng.choice(["custom", *TIMED]))
    if system == "custom":
        made = scenario(seed)
    else:
        content = training(seed, system)
        at = PLACEMENTS if system == "dgtp" else PLACEMENTS[:3]
        content["placement"] = {"policy": str(rng.choice(at))}
        made = loads_content(content)
    if made is None:
        return None
    changes: dict[str, Any] = {"seed": int(rng.integers(9))}
    if not made.jobs:
        changes["placement.iterations"] = int(rng.integers(5, 60))
    if not made.jobs and rng.random() < 0.3:
        victim = made.cluster.names_and_positions()[0][0]
        events = made.to_json().get("events", [])
        changes["events"] = [*events, {"at": "4 s", "kill": victim}]
        changes |= {"on_failure": "restart", "recovery": "2 s"}
    if rng.random() < 0.3:
        changes["cluster.machines[0].price"] = "3.5 $/h"
    return load(made, changes)


def takes(ready: Experiment) -> float:
    """Return the makespan that ``emu simulate`` prints."""
    return ready.attempts(ready.simulate()).makespan


def check_files(rows: Sequence[Candidate | Answer]) -> int:
    """Simulate what every row leaves; return how many rows there were."""
    count = 0
    with TemporaryDirectory() as folder:
        named = [(row.name, row.scenarios) for row in rows]
        files = write_rows(Path(folder) / "made", "a/b", named)
        every = [file for own in files for file in own]
        assert len({*every}) == len(every)
        for row, own in zip(rows, files, strict=True):
            if row.refused:
                continue
            found = [prepare(load(file)) for file in own]
            assert [takes(one) for one in found] == [*row.makespans.values()], row.name
            assert [one.scenario.seed for one in found] == [*row.makespans]
            count += 1
    return count


def some(rng: np.random.Generator, names: tuple[str, ...]) -> list[str]:
    return [*map(str, rng.choice(names, int(rng.integers(0, 3)), replace=False))]


def check_drawn(seed: int) -> int:
    """Compare what is drawn in drawn ways; return how many rows were checked."""
    rng = np.random.default_rng(seed)
    try:
        base = drawn(rng)
        ready = None if base is None else prepare(base)
        if base is None or ready is None:
            return 0
        ready.attempts()
    except EmulatorError:
        return 0  # without room for its tasks, or killed too often
    seeds, job = int(rng.integers(1, 3)), ready.problem.job
    placements, policies = some(rng, PLACEMENTS), some(rng, RULES)
    names = [machine.name for machine in ready.problem.cluster.machines]
    unit, machine = str(rng.choice([*job.units])), str(rng.choice(names))
    options: dict[str, Any] = {"seeds": seeds, "keep_placement": rng.random() < 0.3}
    if rng.random() < 0.7:
        options["moves"] = [(unit, machine)]
    try:
        rows = compare_variants(ready, placements, policies, **options)
    except ScenarioError as error:
        if not error.file.startswith("--move"):  # no room there, or no way
            raise
        rows = compare_variants(ready, placements, policies, **options | {"moves": ()})
    count = check_files(rows)
    if base.job.system in list_sources() and not base.jobs:
        count += check_files(compare_systems(base, ["p3", "data_parallel"], seeds))
    if options["keep_placement"] or base.jobs:
        return count
    for row in rows:  # without what compares: as --set says
        if row.placing and not row.refused:
            rule = {"schedule.policy": row.policy, "placement.policy": row.placement}
            assert takes(prepare(load(base, rule))) == next(
                iter(row.makespans.values())
            )
    return count


@pytest.mark.dear
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_every_row_is_the_simulation_of_the_scenario_that_it_leaves(seed: int) -> None:
    check_drawn(seed)


_RANDOM = """
name: it
cluster: {machines: [{name: a, nic: 10 B/s, cpu: 3}, {name: b, nic: 20 B/s, cpu: 1}]}
job:
  system: custom
  iterations: 3
  tasks:
    - {name: s, time: 1 s, demands: {cpu: 1}}
    - {name: t, time: 1 s, demands: {cpu: 1}}
  flows: [{from: s, to: t, volume: 10 B}]
placement: {policy: random}
"""


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("machine", ["a", "b"])
def test_a_later_seed_may_stand_where_a_move_leads(seed: int, machine: str) -> None:
    """It counts as it is; where it leaves no room there, the row says so."""
    text = loads(_RANDOM, {"seed": seed})
    bases = [prepare(load(text, {"seed": seed + n})) for n in range(3)]
    stands = [base.tasks["s"] == machine for base in bases]
    full = [
        machine == "b" == base.tasks["t"] and base.tasks["s"] == "a" for base in bases
    ]
    if stands[0] or full[0]:
        with pytest.raises(ScenarioError, match=r"moves nothing|cannot be"):
            compare_variants(bases[0], moves=[("s", machine)], seeds=3)
        return
    base, moved = compare_variants(bases[0], moves=[("s", machine)], seeds=3)
    if any(full):
        assert "cannot be with a later seed" in str(moved.refused)
        return
    for n, is_there in enumerate(stands):
        if is_there:
            assert moved.makespans[seed + n] == base.makespans[seed + n]
    assert check_files([base, moved]) == 2


#: A search finds another placement for each of these rules.
DEMO = ["demo", "--set", "placement={policy: best, iterations: 300}"]
DEMO += ["--set", "job.iterations=6"]


def said(*arguments: str) -> Any:
    done = CliRunner().invoke(app, [*arguments, "--json", "-"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize("rule", draws.some(["mrtf", "fifo"], few=1))
def test_a_row_is_placed_under_its_own_rule_unless_one_is_kept(
    rule: str, tmp_path: Path
) -> None:
    varied = ["compare", *DEMO, "--policies", rule]
    own, kept = (said(*varied, *more)[1] for more in ([], ["--keep-placement"]))
    alone = said("simulate", *DEMO, "--set", f"schedule.policy={rule}")["makespan"]
    tasks = said("place", *DEMO)["tasks"]
    stated = emu.load("demo", DEMO[2::2])
    there = emu.simulate(emu.load(stated, {"schedule.policy": rule}), tasks).makespan

    assert own["makespan"] == alone
    assert kept["makespan"] == there != alone
    assert (own["placement_kept"], kept["placement_kept"]) == (False, True)
    assert (bool(own["moves"]), bool(kept["moves"])) == (True, False)
    for more, line in (
        (["--write", str(tmp_path)], "each row is placed under its own policy"),
        (["--keep-placement"], "each placement is that of oes, for all policies"),
    ):
        assert line in CliRunner().invoke(app, [*varied, *more]).output
    assert (tmp_path / f"demo-best-{rule}.yaml").is_file()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("joint", [False, True])
def test_rows_of_two_jobs_are_what_simulate_says_of_their_files(
    seed: int, tmp_path: Path, *, joint: bool
) -> None:
    """Placements that were searched for another rule made 23.1 % of 12.3."""
    rng = np.random.default_rng(seed)
    machines = [
        {"name": f"m{n}", "nic": f"{rng.integers(5, 20)} B/s"} for n in range(3)
    ]
    jobs = []
    for name in "ab":
        tasks = [{"name": f"t{n}", "time": f"{rng.integers(1, 4)} s"} for n in range(4)]
        flows = [
            {"from": f"t{n}", "to": f"t{n + 1}", "volume": f"{rng.integers(5, 60)} B"}
            for n in range(3)
        ]
        job = {"system": "custom", "iterations": 4, "tasks": tasks, "flows": flows}
        item = {"name": name, "job": job}
        jobs.append(item if joint else item | {"placement": {"policy": "best"}})
    content = {"cluster": {"machines": machines}, "jobs": jobs, "seed": seed}
    if joint:
        content |= {"place_jobs": "joint", "placement": {"policy": "best"}}
    file, folder = tmp_path / "two.json", tmp_path / "rows"
    file.write_text(json.dumps(content))

    rows = said("compare", str(file), "--policies", "mrtf,fifo", "--write", str(folder))
    again = {
        one.name: said("simulate", str(one))["makespan"] for one in folder.iterdir()
    }
    assert sorted(again.values()) == sorted(row["makespan"] for row in rows)
    for row in rows[1:]:
        assert [name for name in again if row["policy"] in name]
        stated = ["simulate", str(file), "--set", f"schedule.policy={row['policy']}"]
        alone = said(*stated)
        assert alone["makespan"] == row["makespan"]
        for span, job in zip(row["jobs"], alone["jobs"], strict=True):
            assert span.items() <= job.items()
            assert set(span) == {"job", "release", "end", "seconds"}


def test_what_explain_says_of_a_rule_is_what_setting_it_gives() -> None:
    stated = emu.load("demo", DEMO[2::2])
    improvements = emu.explain(stated).improvements
    for change in (one.change for one in improvements if one.change.kind == "policy"):
        assert change.what.endswith(", placed anew")
        assert change.edit is not None
        assert [*change.edit] == ["schedule.policy", "schedule.share"]
    found = {one.change.policy: one for one in improvements}
    for rule in ("mrtf", "fifo"):
        again = emu.simulate(emu.load(stated, {"schedule.policy": rule}))
        assert found[rule].makespan == again.makespan


def test_a_placement_that_cannot_be_is_a_row(tmp_path: Path) -> None:
    """It keeps the others, with either kind of placement."""
    file = tmp_path / "own.json"
    tasks = [{"name": f"t{n}", "time": f"{n + 1} s"} for n in range(3)]
    job = {"system": "custom", "iterations": 2, "tasks": tasks}
    cluster = {"machines": [{"count": 2, "nic": "1 Gbit/s"}]}
    file.write_text(json.dumps({"cluster": cluster, "job": job}))
    for more in ([], ["--keep-placement"]):
        stated = ["compare", str(file), "--placements", "distdgl,ifs", *more]
        done = CliRunner().invoke(app, [*stated, "--json", "-"])
        first, refused, ifs = json.loads(done.stdout)

        assert done.exit_code == 4
        assert first["makespan"] <= ifs["makespan"]
        assert "distdgl needs workers with samplers" in refused["refused"]
        shown = CliRunner().invoke(app, stated).stdout
        assert "refused" in shown
        assert "distdgl needs workers with samplers" in " ".join(shown.split())


@pytest.mark.parametrize("placed_by", ["explicit", "ifs"])
def test_all_placements_are_those_that_need_nothing_stated(placed_by: str) -> None:
    base = prepare(load("golden", {"job.iterations": 2}))
    if placed_by != "explicit":
        base = prepare(load(base.scenario, placement_edit(base.scenario, placed_by)))

    found = compare_variants(base, placements=["all"])
    with_rules = compare_variants(base, placements=["all"], policies=["all"])

    names = [row.placement for row in found]
    others = {*PLACEMENT_POLICIES} - {"explicit"}
    assert names[0] == placed_by
    assert sorted(names) == sorted(others | {placed_by})
    rules = [base.policy, *list_rules(base.policy)]
    rows = [(row.placement, row.policy) for row in with_rules]
    assert sorted(rows) == sorted(product(names, rules))


def test_all_placements_of_jobs_one_after_another_include_theirs() -> None:
    job = load("golden", {"job.iterations": 2}).to_json()["job"]
    jobs = [{"name": name, "job": job} for name in ("a", "b")]
    edits = {"job": None, "placement": None, "jobs": jobs, "place_jobs": "sequential"}
    base = prepare(load("golden", edits))

    found = compare_variants(base, placements=["all"], policies=["fifo"])

    rows = [(row.placement, row.policy) for row in found]
    assert rows[:2] == [("sequential", "oes"), ("sequential", "fifo")]


def test_all_placements_of_a_job_without_workers_end_well(tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    tasks = [{"name": "t", "time": "1 s"}]
    job = {"system": "custom", "iterations": 2, "tasks": tasks}
    cluster = {"machines": [{"count": 2, "nic": "1 Gbit/s"}]}
    file.write_text(json.dumps({"cluster": cluster, "job": job}))
    done = CliRunner().invoke(app, ["compare", str(file), "--placements", "all"])

    assert done.exit_code == 0
    assert "distdgl needs workers with samplers" in " ".join(done.stdout.split())


def test_moves_are_of_tasks_that_both_placements_have() -> None:
    """`best` leaves the attic out, and its store with it; the others use all."""
    base = emu.loads(WEAK)
    rows = [*emu.compare(base, placements=["best", "ifs", "distdgl"])]
    places = [emu.place(base, policy=name).tasks for name in ("best", "ifs", "distdgl")]

    assert len(places[0]) < len(places[1])
    for row, after in zip(rows, places, strict=True):
        changed = {t for t, home in places[0].items() if after[t] != home}
        assert {move.process for move in row.moves} == changed
        assert all(move.destination == after[move.process] for move in row.moves)


WEAK = """
cluster:
  machines:
    - {name: fast, count: 2, gpu: 2, nic: 10 Gbit/s}
    - {name: attic, nic: 10 Mbit/s}
job:
  system: dgtp
  dataset: {name: products-like, scale: 0.002}
  model: {hidden: 16, layers: 2}
  fanouts: [5, 5]
  batch_size: 60
  workers: 2
  iterations: 4
  times: {graph_store: 1 ms, sampler: 1 ms, worker: 2 ms, parameter_server: 1 ms}
"""
