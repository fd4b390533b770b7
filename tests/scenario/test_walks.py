"""Walks of samplers over the training set where the file states none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ruamel.yaml import YAML

from emu.experiment.systems import as_system, as_variant
from emu.scenario import Scenario, build_job, load, prepare
from emu.scenario.edits import ScenarioEdits, placement_edit
from emu.scenario.scenario_file import loads

FILE = """
cluster: {machines: [{name: m, count: 3, nic: 1 Gbit/s, gpu: 1}]}
job:
  system: %s
  dataset: {name: products-like, scale: 0.002}
  model: {hidden: 8, layers: 2}
  fanouts: [2, 3]
  batch_size: 12
  iterations: 4
  rates: {aggregate: 20 ps, multiply: 1 ps, sample: 1 ns, collect: 1 ns, step: 1 ns,
          launch: 1 us}
"""
SYSTEMS = ("dgtp", "data_parallel", "p3")
ROWS = ("dgtp", "distdgl")


def scenario_of(system: str, **edits: Any) -> Scenario:
    text = FILE % system
    if system == "dgtp":
        text = text.replace("  iterations", "  workers: 3\n  iterations")
    keys = {key.replace("__", "."): value for key, value in edits.items()}
    return load(loads(text), keys) if keys else loads(text)


@pytest.mark.parametrize(
    ("system", "placement", "partitioner", "walk"),
    [
        ("dgtp", "distdgl", "metis", "replicate"),
        ("dgtp", "distdgl", "hash", "replicate"),
        ("dgtp", "etp", "metis", "replicate"),
        ("data_parallel", "best", "metis", "local"),
        ("data_parallel", "distdgl", "hash", "replicate"),
        ("p3", "distdgl", None, "replicate"),
    ],
)
def test_the_default_is_that_of_the_system_wherever_it_stands(
    system: str, placement: str, partitioner: str | None, walk: str
) -> None:
    text = f"{FILE % system}placement: {{policy: {placement}}}\n"
    if partitioner is not None:
        text = text.replace(
            "  iterations", f"  partitioner: {partitioner}\n  iterations"
        )
    scenario = loads(text)
    assert build_job(scenario).settings["epoch"] == walk
    stated = loads(text.replace("  iterations", "  epoch: shard\n  iterations"))
    assert build_job(stated).settings["epoch"] == "shard"


@pytest.mark.parametrize("row", ["distdgl", "dgtp"])
@pytest.mark.parametrize("walk", ["replicate", "shard", "local"])
def test_distdgl_as_a_system_walks_near_its_stores(row: str, walk: str) -> None:
    as_row = as_variant(scenario_of("dgtp", job__epoch=walk), row)
    found = build_job(as_row).settings["epoch"]
    assert found == ("local" if row == "distdgl" else walk)


def test_a_row_that_walks_otherwise_has_as_many_steps() -> None:
    scenario = scenario_of("dgtp", job__epochs=2, job__iterations=None)
    steps = {row: build_job(as_variant(scenario, row)).iterations for row in ROWS}
    assert steps == dict.fromkeys(ROWS, 2 * -(-393 // 12))


@pytest.mark.parametrize("first", ["distdgl", "etp"])
def test_who_changes_the_placement_trains_the_same(first: str) -> None:
    """As `emu compare --placements` and what-ifs do: one walk for all rows."""
    scenario = loads(f"{FILE % 'dgtp'}placement: {{policy: {first}}}\n")
    before = build_job(scenario).settings["epoch"]
    for policy in ("distdgl", "etp", "ifs", "best"):
        again = load(scenario, {"placement.policy": policy})
        assert build_job(again).settings["epoch"] == before
        assert again.to_json()["job"]["epoch"] == before


@pytest.mark.parametrize("source", SYSTEMS)
@pytest.mark.parametrize("target", SYSTEMS)
@pytest.mark.parametrize("walk", ["replicate", "shard", "local"])
def test_translations_train_the_same(source: str, target: str, walk: str) -> None:
    scenario = scenario_of(source, job__epoch=walk)
    assert build_job(as_system(scenario, target)).settings["epoch"] == walk
    default = scenario_of(source)
    assert (
        build_job(as_system(default, target)).settings["epoch"]
        == build_job(default).settings["epoch"]
    )


def test_each_of_several_jobs_has_its_own() -> None:
    job = YAML(typ="safe").load(FILE % "dgtp")["job"]
    jobs = [
        {"name": "a", "job": {**job, "epoch": "local"}},
        {"name": "b", "placement": {"policy": "distdgl"}, "job": job},
    ]
    machines = [{"name": "m", "count": 3, "nic": "1 Gbit/s", "gpu": 2}]
    content = {"cluster": {"machines": machines}, "jobs": jobs}
    whole = build_job(loads(json.dumps(content), name="two.json"))
    walks = {name: whole.settings_of(name)["epoch"] for name in whole.job_names}
    assert walks == {"a": "local", "b": "replicate"}


@pytest.mark.parametrize("first", ["distdgl", "etp"])
def test_what_ifs_are_edits_of_the_file(first: str) -> None:
    """The file with such an edit trains what was simulated, whatever its default."""
    text = f"{FILE % 'dgtp'}placement: {{policy: {first}}}\n"
    scenario = loads(text)
    before = build_job(scenario).settings["epoch"]
    for policy in ("best", "distdgl", "ifs"):
        edit = placement_edit(scenario, policy)
        edited = loads(text, edit)
        assert build_job(edited).settings["epoch"] == before
        assert "job.epoch" not in edit
    problem = prepare(scenario).problem
    standing = ScenarioEdits(scenario).standing(problem)
    assert build_job(loads(text, standing)).settings["epoch"] == before
