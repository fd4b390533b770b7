"""Times of systems without a profile: what was stated, found again from CPU times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import ScenarioError
from emu.experiment.profiling import of_length, prepare_profile, times_by_kind
from emu.report.measured_tables import times_lines
from emu.scenario import build_job, load, realize
from emu.scenario.scenario_file import find_errors, loads

DATA = "cluster: {machines: [{name: m, count: 4, nic: 1 Gbit/s}]}\njob:\n"
DATA += "  dataset: {name: products-like, scale: 0.0008}\n"
JOBS = {
    "dgcl": "  system: dgcl\n  epochs: 3\n  model: {hidden: 8, layers: 3}\n",
    "dorylus": "  system: dorylus\n  epochs: 3\n  model: {hidden: 8}\n"
    "  parameter_servers: [m3]\n  intervals: 3\n",
    "p3": "  system: p3\n  iterations: 5\n  model: {hidden: 8, layers: 2}\n"
    "  fanouts: [4, 4]\n  batch_size: 32\n",
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("dgcl", {}),
    ("dgcl", {"job.coordination": "central", "job.cache_features": False}),
    ("dgcl", {"job.plan": "replication"}),
    ("dgcl", {"job.model.layers": 1}),
    ("dorylus", {}),
    ("dorylus", {"job.model.kind": "gat", "job.mode": "pipe"}),
    ("dorylus", {"job.backend": "cpu"}),
    ("dorylus", {"job.model.layers": 1}),
    ("p3", {}),
    ("p3", {"job.pipeline": "B", "job.model.kind": "gat"}),
]


@pytest.mark.parametrize(("system", "edits"), VARIANTS)
def test_stated_times_are_found_again(system: str, edits: dict[str, Any]) -> None:
    """By the realization, not by keys: a last layer has one task for both passes."""
    scenario = load(loads(DATA + JOBS[system], timed=False), edits, timed=False)
    rng = np.random.default_rng(len(str(edits)))
    experiment = prepare_profile(scenario)
    stated = {
        key: f"{rng.uniform(0.1, 40):.4g} ms"
        for key, time in experiment.scenario.job.times
        if time in {1.0, (1.0,)}
    }
    known = load(scenario, {f"job.times.{key}": time for key, time in stated.items()})
    truth = np.asarray(realize(known, build_job(known)).times)
    measured = truth.copy()
    measured[:, 0] *= 3  # it warms up

    times, rest = times_by_kind(experiment, measured)

    found = load(scenario, {"job.times": times})
    again = np.asarray(realize(found, build_job(found)).times)
    np.testing.assert_allclose(again, truth, rtol=1e-3)
    assert len(stated) > 3
    assert not any(rest.values())


def test_a_job_without_times_can_be_measured_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(DATA + JOBS["dgcl"])
    errors = {error.key: str(error) for error in find_errors(path)}
    assert errors.keys() == {"job.times.forward", "job.times.backward"}
    assert all("emu profile" in text for text in errors.values())

    longer = of_length(load(path, timed=False), 7)
    assert build_job(longer).iterations == 7
    with pytest.raises(ScenarioError, match=r"job\.times\.forward"):
        load(longer)


def test_kinds_without_a_key_are_named() -> None:
    lines = times_lines(
        {"forward": (0.02, 0.007), "gather": 0.003, "scatter": 0.0}.items(),
        {"all_reduce": 1e-4, "barrier": 0.0},
    )
    assert lines == [
        *("  forward: 20 ms, 7 ms", "  gather: 3 ms"),
        "  (all_reduce: 100 us, no key takes it)",
    ]


def test_what_cannot_be_measured_or_written_is_said_before_the_work(
    tmp_path: Path,
) -> None:
    one, several = tmp_path / "one.yaml", tmp_path / "several.yaml"
    one.write_text(DATA + JOBS["dgcl"])
    job = "{system: custom, iterations: 2, tasks: [{name: t, kind: k, time: 1 s}]}"
    several.write_text(DATA.partition("job:")[0] + f"jobs: [{{name: a, job: {job}}}]\n")
    for file, out, wrong in (
        (one, tmp_path / "no" / "out.yaml", "cannot be written"),
        (one, tmp_path, "this is a folder"),
        (several, tmp_path / "out.yaml", "job.system: custom tasks state their times"),
    ):
        runs = ["--runs", str(tmp_path / "runs")]
        found = CliRunner().invoke(app, ["profile", str(file), str(out), *runs])
        assert found.exit_code in {2, 3}
        assert wrong in found.output.replace("\n", " ")
    assert sorted(path.name for path in tmp_path.iterdir()) == [one.name, several.name]
