"""Weights and losses of training over sockets are those of one process."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emu.runs.array_files import read_weights
from emu.scenario import load, prepare
from emu.training import reference_training
from tests.integration.scenarios import carried_out, tiny_training, written

pytestmark = [pytest.mark.emulation, pytest.mark.untimed]

ITERATIONS = 20
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}

# Every value of every column. tests/nodes/test_training_job.py has all pairs of what
# decides weights in one process; sockets decide none.
CASES = [
    ("distdgl", "oes", "oneshot", 1, "float32", "sage"),
    ("round_robin", "maxmin", "multiround", 2, "float64", "gat"),
]


@cache
def reference(precision: str, kind: str) -> tuple[NDArray[Any], list[float]]:
    """Return weights and losses of one process, in which nothing is placed or sent."""
    settings = _settings(precision, kind)
    return reference_training(settings, ITERATIONS)


def model(kind: str) -> dict[str, Any]:
    return {"kind": kind, "hidden": 8, "layers": 2}


def _settings(precision: str, kind: str) -> dict[str, Any]:
    from emu.scenario.scenario import Scenario

    document = tiny_training(ITERATIONS, precision=precision, model=model(kind))
    return dict(Scenario.model_validate(document).to_job().settings)


@pytest.mark.parametrize(
    ("placement", "policy", "sampling", "servers", "precision", "kind"),
    CASES,
)
def test_weights_equal_the_reference(
    placement: str,
    policy: str,
    sampling: str,
    servers: int,
    precision: str,
    kind: str,
    tmp_path: Path,
) -> None:
    document = tiny_training(
        ITERATIONS,
        sampling=sampling,
        parameter_servers=servers,
        precision=precision,
        model=model(kind),
    )
    run = carried_out(
        written(document, tmp_path),
        tmp_path,
        f"placement.policy={placement}",
        f"schedule.policy={policy}",
        # Two workers and their generators in one process, or in one each.
        f"emulation.processes={'task' if servers == 1 else 'machine'}",
    )
    expected, losses = reference(precision, kind)

    results = run.outcome.run.results
    weights = np.concatenate(
        [results[f"ps{number}"]["parameters"] for number in range(servers)]
    )
    assert weights.dtype == precision
    left = [part.ravel() for part in read_weights(run.path).values()]
    np.testing.assert_array_equal(np.concatenate(left), weights, strict=True)
    np.testing.assert_allclose(weights, expected, rtol=TOLERANCE[precision], atol=0)
    curve = run.result["training"]
    assert [point["iteration"] for point in curve] == list(range(ITERATIONS))
    np.testing.assert_allclose(
        [point["loss"] for point in curve], losses, rtol=TOLERANCE[precision]
    )
    times = [point["time"] for point in curve]
    assert times == sorted(times)
    assert losses[-1] < losses[0]


def test_the_placements_differ(tmp_path: Path) -> None:
    """What is alike in all runs above is not the placement."""
    file = written(tiny_training(1), tmp_path)
    moved = [
        prepare(load(file, [f"placement.policy={policy}"])).problem.placement
        for policy in ("distdgl", "round_robin")
    ]

    assert moved[0] != moved[1]


ROUNDS, WORKERS = 4, 3


def test_all_workers_hold_the_weights_of_one_process(tmp_path: Path) -> None:
    document = tiny_training(ROUNDS, workers=WORKERS, sync="ring", ring="placed")
    file = written(document, tmp_path)
    run = carried_out(file, tmp_path, "placement.policy=round_robin")
    job = run.outcome.run.schedule.problem.job
    expected, losses = reference_training(job.settings, ROUNDS)

    results = run.outcome.run.results
    weights = [results[f"w{rank}"]["parameters"] for rank in range(WORKERS)]
    np.testing.assert_allclose(weights[0], expected, rtol=1e-5, atol=1e-5)
    for others in weights[1:]:
        np.testing.assert_array_equal(others, weights[0])
    kept = [part.ravel() for part in read_weights(run.path).values()]
    np.testing.assert_array_equal(np.concatenate(kept), weights[0], strict=True)
    assert [point["loss"] for point in run.result["training"]] == pytest.approx(
        losses, rel=1e-5
    )
    assert run.result["accuracy"].keys() >= {"train", "test"}
    (sent,) = (f for f in run.result["edges"] if f["from"] == f["to"] == "all_reduce")
    summed = np.nansum(
        [
            run.outcome.run.schedule.flow_bytes[e].sum()
            for e, edge in enumerate(job.edges)
            if job.tasks[edge.source].kind == "all_reduce"
        ]
    )
    assert summed == ROUNDS * 2 * (WORKERS - 1) * expected.nbytes
    assert 0 < sent["bytes"] < summed  # within a machine it is free
    crossing = [
        job.edge_names[e]
        for e, hops in enumerate(run.outcome.run.schedule.problem.hops)
        if hops and ".ring0->" in job.edge_names[e]
    ]
    assert sorted(crossing) == ["w1.ring0->w0.got0", "w2.ring0->w1.got0"]
