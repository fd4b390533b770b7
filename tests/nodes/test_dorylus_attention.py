"""Dorylus with a GAT, all programs in one process: weights, bytes, reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emu.training import reference_training
from tests.nodes.test_dorylus_programs import replay, run

GAT = (
    "job.dataset.scale=0.0005",
    "job.epochs=4",
    "job.model={kind: gat, hidden: 6}",
    "job.times={gather: 8 ms, apply: 20 ms, scatter: 2 ms, edge_apply: 15 ms}",
)


def attend(*changes: str) -> tuple[Any, Any, Any, Any]:
    return run(*GAT, *changes)


@pytest.mark.parametrize(
    "change",
    [
        "job.mode=no_pipe",
        "job.optimizer={name: adam, lr: 0.05}",
        "job.partitioner=hash",
        "job.intervals=5",
        "job.interval_cut=balanced",
        "job.lambdas=1",
        "job.parameter_servers=[ps, g0]",
        "job.model={kind: gat, hidden: 6, layers: 3, activation: relu}",
        "job.launch={cold: 30 ms, warm: 3 ms}",
    ],
)
def test_with_barriers_it_equals_one_process(change: str) -> None:
    """The reference trains the whole graph by autograd: 1e-12 after 4 epochs."""
    found, _, weights, _ = attend("job.mode=pipe", change)
    expected, losses = reference_training(found.problem.job.settings, 4)
    assert np.abs(weights - expected).max() <= 1e-12
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize("mode", ["pipe", "async"])
def test_without_lambdas_it_equals_one_process(backend: str, mode: str) -> None:
    plain = f"job.mode={mode}", "job.slow_lambdas=null", f"job.backend={backend}"
    found, schedule, weights, _ = attend(*plain)
    expected, _ = replay(found, schedule)
    if mode == "pipe":
        expected, _ = reference_training(found.problem.job.settings, 4)
    assert np.abs(weights - expected).max() <= 1e-12


@pytest.mark.parametrize("staleness", [0, 2])
@pytest.mark.parametrize(
    "change",
    [
        "job.optimizer={name: adam, lr: 0.05}",
        "job.model={kind: gat, hidden: 6, layers: 3}",
        "job.parameter_servers=[ps, g0]",
        "job.first_epoch=free",
        "job.launch={cold: 30 ms, warm: 3 ms}",
    ],
)
def test_async_equals_one_process_with_its_reads(staleness: int, change: str) -> None:
    found, schedule, weights, _ = attend(f"job.staleness={staleness}", change)
    expected, _ = replay(found, schedule)
    assert np.abs(weights - expected).max() <= 1e-12


def test_a_replay_of_pipe_is_the_reference() -> None:
    found, schedule, _, _ = attend("job.mode=pipe")
    weights, losses = replay(found, schedule)
    expected, other = reference_training(found.problem.job.settings, 4)
    assert np.abs(weights - expected).max() <= 1e-12
    np.testing.assert_allclose(losses, other, rtol=1e-12)


def test_staleness_changes_the_weights() -> None:
    """S = 0 is not synchronous; with one server of one interval it is."""
    _, _, pipe, _ = attend("job.mode=pipe")
    _, _, stale, _ = attend("job.staleness=0")
    assert np.abs(pipe - stale).max() > 1e-6
    one = ("job.machines=[g0]", "job.intervals=1")
    found, _, alone, _ = attend("job.staleness=0", *one)
    expected, _ = reference_training(found.problem.job.settings, 4)
    assert np.abs(alone - expected).max() <= 1e-12


@pytest.mark.parametrize(
    "change",
    [
        "job.precision=float32",
        "job.parameter_servers=[ps, g0]",
        "job.model={kind: gat, hidden: 6, layers: 3}",
        "job.partitioner=hash",
    ],
)
def test_payloads_are_as_long_as_the_formulas_say(change: str) -> None:
    found, _, _, payloads = attend(change, "job.epochs=2")
    job, expected = found.problem.job, found.realization.volumes
    for (edge, n), payload in payloads.items():
        ends = job.edges[edge].source, job.edges[edge].destination
        if len({job.tasks[end].process_name for end in ends}) == 2:
            size = sum(array.nbytes for array in payload.values())
            assert size == expected[edge, n], job.edge_names[edge]
