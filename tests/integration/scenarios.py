"""Small scenarios for real processes, and the ways to carry them out."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from emu.cli import app
from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.experiment.run_result import RunResult, evaluate_run
from emu.runs.array_files import read_weights
from emu.runs.retraining import training_audit
from emu.runs.run_directory import RunDirectory
from emu.scenario import Scenario, load, prepare
from emu.scenario.scenario_file import loads
from emu.systems.system import systems
from emu.training import reference_training

SCENARIOS = Path(__file__).parents[2] / "scenarios"
GOLDEN = SCENARIOS / "golden.yaml"


def tiny_training(iterations: int = 20, **job: Any) -> dict[str, Any]:
    """Return a scenario of 8 processes that learn from 2,449 vertices."""
    return {
        "name": "tiny",
        "cluster": {
            "machines": [
                {"name": "fast", "nic": "1 Gbit/s"},
                {"name": "slow", "nic": "400 Mbit/s"},
            ]
        },
        "job": {
            "system": "dgtp",
            "dataset": {"name": "products-like", "scale": 0.001},
            "partitioner": "hash",
            "model": {"hidden": 8, "layers": 2},
            "fanouts": [3, 4],
            "batch_size": 8,
            "workers": 2,
            "samplers_per_worker": 1,
            "epoch": "replicate",  # of every placement
            "times": {
                "graph_store": "20 ms",
                "graph_store_hop": "10 ms",
                "sampler": "20 ms",
                "sampler_hop": "10 ms",
                "sampler_fetch": "10 ms",
                "worker": "40 ms",
                "parameter_server": "10 ms",
            },
            "optimizer": {"name": "adam", "lr": 0.01},
            "iterations": iterations,
            **job,
        },
        "placement": {"policy": "distdgl"},
        "emulation": {"compute": "real", "deadline": "60 s"},
        "seed": 7,
    }


def flow(source: str, to: str, volume: str | list[str], **more: Any) -> dict[str, Any]:
    return {"from": source, "to": to, "volume": volume, **more}


def custom(
    tasks: list[dict[str, Any]],
    flows: list[dict[str, Any]],
    at: dict[str, str],
    *,
    machine: dict[str, Any] | None = None,
    emulation: dict[str, Any] | None = None,
    **job: Any,
) -> dict[str, Any]:
    """Return a scenario of a custom job, of one iteration unless ``job`` states more.

    ``tasks``: one that states no time takes 1 s.

    ``at``: the machine of every task; it has a NIC of 10 B/s.

    ``machine``: what machines have beside, or in place of, that.
    """
    machines = [{"name": m, "nic": "10 B/s", **(machine or {})} for m in {*at.values()}]
    return {
        "name": "custom",
        "cluster": {"machines": sorted(machines, key=itemgetter("name"))},
        "job": {
            "system": "custom",
            "iterations": 1,
            "tasks": [{"time": "1 s", **task} for task in tasks],
            "flows": flows,
            "credit_window": "unlimited",
            **job,
        },
        "placement": {"policy": "explicit", "tasks": at},
        "emulation": emulation or {"time_scale": 0.05, "byte_scale": 50000},
    }


def bursts(iterations: int, *, window: int | str, sizes: list[str]) -> dict[str, Any]:
    """Return a scenario of stores that are much faster than what they feed.

    ``sizes``: what each store sends to the one worker per iteration.
    """
    stores = [f"g{number}" for number in range(len(sizes))]
    return custom(
        [
            *({"name": g, "kind": "graph_store", "time": "0.1 s"} for g in stores),
            {"name": "w0", "kind": "worker", "time": "4 s"},
        ],
        [flow(g, "w0", size) for g, size in zip(stores, sizes, strict=True)],
        {**dict.fromkeys(stores, "m0"), "w0": "m1"},
        machine={"nic": "1000 B/s"},
        emulation={"time_scale": 0.02, "byte_scale": 5000},
        iterations=iterations,
        credit_window=window,
    )


def written(document: dict[str, Any], folder: Path) -> Path:
    """Write a scenario (JSON is YAML) and return its file."""
    file = folder / f"{document['name']}.yaml"
    file.write_text(json.dumps(document))
    return file


def read(document: dict[str, Any]) -> Scenario:
    """Return the scenario that a document states."""
    return loads(json.dumps(document))


@dataclass(frozen=True, eq=False)
class Carried:
    """An experiment that was carried out, and the directory that it left."""

    outcome: RunResult
    path: Path

    @property
    def result(self) -> dict[str, Any]:
        """Content of result.json."""
        return self.outcome.content


def carried_out(file: Path, folder: Path, *overrides: str) -> Carried:
    """Run a scenario over real sockets, in this process, as ``emu run`` does."""
    scenario = load(file, overrides)
    experiment = prepare(scenario)
    directory = RunDirectory.create(scenario.name, folder / "runs")
    outcome = carry_out(experiment, emulation_settings(scenario), directory)
    return Carried(outcome, directory.path)


def check_training(
    run: Carried, steps: int, *, within: float = 1e-12, missed: int = 0
) -> NDArray[Any]:
    """Check what a run has learnt and sent; return the weights of one process.

    ``within``: share and difference by which weights and losses may be off.

    ``missed``: updates that weights lack.
    """
    left, job = run.outcome.run, run.outcome.run.schedule.problem.job
    expected, losses = reference_training(job.settings, steps, missed=missed)
    found = systems()[job.settings["system"]].trained(job, left.results)
    np.testing.assert_allclose(found, expected, rtol=within, atol=within)
    kept = [part.ravel() for part in read_weights(run.path).values()]
    np.testing.assert_array_equal(np.concatenate(kept), found, strict=True)
    assert evaluate_run(run.path) == {"": run.result["accuracy"]}
    curve = {one["iteration"]: one["loss"] for one in run.result["training"]}
    assert curve == pytest.approx(dict(enumerate(losses)), rel=within)
    assert training_audit(run.path, job) == (steps + 1, [])
    at = tuple(left.schedule.flows().T)  # every flow carried what formulas say
    np.testing.assert_array_equal(
        run.outcome.predicted.flow_bytes[at], left.schedule.flow_bytes[at]
    )
    return expected


def attempts(once: Callable[[], float], allowed: float, most: int = 3) -> list[float]:
    """Measure until a deviation is allowed: these machines are shared and noisy.

    Return all deviations; the last is allowed, or there are ``most``.
    """
    found: list[float] = []
    while not found or (found[-1] > allowed and len(found) < most):
        found.append(once())
    return found


def command(*arguments: str | Path) -> str:
    """Carry out a command of emu in this process; return what it prints."""
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.stdout


def emu(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Carry out a command in this process, as one that ended with its exit code.

    A process of its own takes 0.6 s of CPU to import emu, and 3 s where it trains.
    """
    with contextlib.chdir(cwd):
        done = CliRunner().invoke(app, [*map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(
        arguments, done.exit_code, done.stdout, done.stderr
    )
