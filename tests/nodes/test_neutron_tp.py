"""Tensor parallel training: weights by formulas on dense matrices, bytes by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.graph_data import open_for
from emu.problem.workloads.column_slices import STAGES, Slices
from emu.systems.job_section import BuildContext
from emu.training import initial_parameters, make_optimizer, reference_training
from tests.nodes.one_process import JobRun, drive
from tests.systems.sections import _RATES, section_of
from tests.training.test_exchanged import Gcn

KEYS: dict[str, Any] = {
    "dataset": {"name": "products-like", "scale": 0.00022, "seed": 3},
    "precision": "float64",
    "epochs": 3,
    "rates": _RATES,
}


def run(parts: int, compute: str = "real", **keys: Any) -> JobRun:
    """Run a job, and hold its bytes against what it stated."""
    section = section_of("neutron_tp", **{**KEYS, **keys})
    machines = tuple(f"m{rank}" for rank in range(parts))
    context = BuildContext(machines, None, seed=5, compute=compute, byte_scale=0.5)
    job = section.build(context)
    done = drive(job)
    stated = section.realize(job, context, None, {}).volumes
    for edge, row in enumerate(stated):
        sent = job.flow_counts[edge]
        np.testing.assert_array_equal(done.volumes[edge, :sent], row[:sent] / 2)
    return done


def formulas(settings: dict[str, Any]) -> tuple[Any, list[float]]:
    """Return weights and losses of products first, sums last, without any part."""
    model = Gcn(settings)
    power = np.linalg.matrix_power(model.matrix, settings["model"]["layers"])
    parameters = initial_parameters(settings, model.data)
    optimizer = make_optimizer(settings, parameters)
    losses = []
    for _ in range(KEYS["epochs"]):
        layers = model.unpack(parameters)
        inputs = [model.features]
        for weight, bias in layers:
            inputs.append(np.maximum(inputs[-1], 0) @ weight.T + bias)
            if len(inputs) == 2:  # features are taken as they are
                inputs[1] = model.features @ weight.T + bias
        loss, gradient = model.loss_gradient(power @ inputs[-1])
        gradient = power.T @ gradient
        pieces: list[Any] = []
        for number in range(len(layers) - 1, -1, -1):
            rows = np.maximum(inputs[number], 0) if number else model.features
            pieces = [(gradient.T @ rows).ravel(), gradient.sum(0), *pieces]
            gradient = gradient @ layers[number][0] * (inputs[number] > 0)
        optimizer.step(np.concatenate(pieces))
        losses.append(loss)
    return parameters, losses


@pytest.mark.dear
@given(
    parts=st.integers(1, 4),
    layers=st.integers(1, 3),
    partitioner=st.sampled_from(["hash", "metis"]),
)
def test_weights_are_those_of_the_formulas(
    parts: int, layers: int, partitioner: str
) -> None:
    model = {"kind": "gcn", "hidden": 5, "layers": layers}
    done = run(parts, model=model, partitioner=partitioner)
    settings = dict(done.job.settings)
    expected, losses = formulas(settings)
    alone, alone_losses = reference_training(settings, KEYS["epochs"])
    np.testing.assert_allclose(alone, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(alone_losses, losses, rtol=1e-12)
    for rank in range(parts):
        found = done.programs[f"d{rank}.dense"].result()["parameters"]
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    for epoch, loss in enumerate(losses):
        told = [done.reports[f"d{r}.score", epoch]["loss"] for r in range(parts)]
        assert np.mean(told) == pytest.approx(loss, rel=1e-12)


def test_bytes_are_those_of_a_hand_computation() -> None:
    """47 classes on 3 parts are 48 columns, 16 each; timed zeros weigh as much."""
    assert (Slices(47, 3).width, Slices(47, 4).width, Slices(48, 4).width) == (
        16,
        12,
        13,
    )
    done = run(3, compute="timed", model={"kind": "gcn", "hidden": 4, "layers": 2})
    job = done.job
    owner = np.asarray(Gcn(dict(job.settings)).owner)
    rows = np.bincount(owner)
    for number, edge in enumerate(job.edges):
        ends = job.tasks[edge.source].name, job.tasks[edge.destination].name
        sizes = {
            ("d0.dense", "d1.aggregate"): rows[0],
            ("d0.aggregate", "d1.score"): rows[1],
            ("d2.score", "d0.aggregate_gradient"): rows[2],
            ("d2.aggregate_gradient", "d0.dense_gradient"): rows[0],
        }
        if ends in sizes:
            assert done.volumes[number, 0] == 8 * 16 * sizes[ends]


def test_another_kind_of_model_is_refused() -> None:
    section = section_of(
        "neutron_tp", **{**KEYS, "model": {"kind": "sage", "hidden": 4, "layers": 2}}
    )
    problems = [text for _, text in section.problems(_Cluster())]
    assert problems == ["found sage, all products come before sums: gcn"]


class _Cluster:
    """Names alone: nothing else of a cluster is asked for."""

    names = ("a", "b")


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_edges_by_formula(ranks: int) -> None:
    """Three exchanges among all pairs, and the sum of gradients."""
    section = section_of("neutron_tp", **KEYS)
    machines = tuple(f"m{rank}" for rank in range(ranks))
    job = section.build(BuildContext(machines, None, seed=7))
    # Handoffs from stage to stage within a device are beside it.
    handoffs = [
        edge
        for edge in job.edges
        if {job.tasks[edge.source].kind, job.tasks[edge.destination].kind} <= {*STAGES}
        and job.tasks[edge.source].process == job.tasks[edge.destination].process
    ]
    most = len(job.edges) - len(handoffs)
    assert section.least_edges(machines) == max(1, most)


def test_products_and_sums_of_a_stage_by_hand() -> None:
    """A layer takes two products on the way back, the first one, of 5 rows."""
    section = section_of("neutron_tp", **{**KEYS, "model": {"hidden": 4, "layers": 3}})
    job = section.build(BuildContext(("m0", "m1"), None, seed=7))
    dataset = open_for(job.settings)
    features, classes = dataset.feature_length, dataset.classes
    first, second, last = features * 4, 4 * 4, 4 * classes

    def count(stage: str) -> dict[str, int]:
        found: dict[str, int] = section._count_stage(stage, dataset, 5)
        return found

    passed = first + second + last
    backward = first + 2 * (second + last)
    assert count("dense") == {"multiply": 5 * passed, "launch": 3}
    assert count("dense_gradient") == {"multiply": 5 * backward, "launch": 3}
