"""Everything printed fits 100 columns, whatever machines and resources are called.

Only a table of very many columns is wider: its figures are never cut.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.report.terminal import WIDTH


def _name(draw: np.random.Generator, number: int) -> str:
    """Return a name of up to 60 characters, with a place to break or without."""
    return f"{'-'.join('x' * int(draw.integers(1, 31)) for _ in range(2))}{number}"


def _drawn(draw: np.random.Generator) -> dict[str, Any]:
    """Return a scenario of long names, where machines state what no task demands."""
    own = [_name(draw, number) for number in range(draw.integers(4))]
    demanded = dict.fromkeys(own, 1e-3)
    resources = {n: 10.0 ** int(draw.integers(10)) for n in [*own, "cpu", "gpu"]}
    machines = [
        {
            "name": _name(draw, number),
            "nic": f"{draw.choice([0.123456789, 987654321])} Gbit/s",
            **resources,
        }
        for number in range(draw.integers(2, 6))
    ]
    tasks = [
        {"name": _name(draw, number), "time": f"{draw.random()} s", "demands": demanded}
        for number in range(draw.integers(2, 9))
    ]
    names = [task["name"] for task in tasks]
    edges = [
        {"from": a, "to": b, "volume": f"{draw.random()} GB"}
        for a, b in pairwise(names)
    ]
    job = {"tasks": tasks, "flows": edges, "iterations": int(draw.choice([2, 12]))}
    return {
        "name": _name(draw, 0),
        "cluster": {"machines": machines},
        "job": {"system": "custom", **job},
        "placement": {"policy": str(draw.choice(["best", "etp", "ifs"]))},
    }


def _printed(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    assert max(map(len, done.output.splitlines())) <= WIDTH, done.output
    return done.output


@pytest.mark.parametrize("seed", range(3))
def test_output_on_drawn_scenarios(seed: int, tmp_path: Path) -> None:
    draw = np.random.default_rng(seed)
    file = tmp_path / "s.yaml"
    file.write_text(json.dumps(_drawn(draw)))

    for command in (
        ("simulate",),
        ("place",),
        ("explain", "--bound-time", "0.1 s"),
        ("compare", "--placements", "ifs,etp", "--policies", "oes,fifo"),
        ("run", "--dry-run"),
    ):
        _printed(command[0], str(file), *command[1:])


@pytest.mark.parametrize("seed", range(3))
def test_compared_systems_name_long_machines_and_warn_of_what_nothing_demands(
    seed: int,
) -> None:
    draw = np.random.default_rng(seed)
    idle = "memory"  # cores limit every system, whatever demands them
    machine = {"cpu": 16, "gpu": 4, "memory": "99 GB", "nic": "1.23456789 Gbit/s"}
    machines = [{"name": _name(draw, n), "count": 2, **machine} for n in range(2)]
    amounts = {"cpu": 1, "gpu": 0.01, "memory": "1 GB"}
    del amounts[idle]
    kinds = ("graph_store", "sampler", "worker", "parameter_server")

    said = _printed(
        "compare", "demo", "--systems", "dgtp,data_parallel,p3",
        "--set", f"cluster.machines={json.dumps(machines)}",
        "--set", f"job.demands={json.dumps(dict.fromkeys(kinds, amounts))}",
        "--set", "placement.policy=ifs",
    )  # fmt: skip

    warning = f"warning: {idle} limits nothing: no task demands any"
    assert said.count("warning:") == 1
    assert f"{warning} (dgtp, data_parallel, p3)" in said.replace("\n", " ")
