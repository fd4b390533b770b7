"""Every plan of DGCL trains as one process does, all programs in one process."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emu.graph_data import open_layers
from emu.problem.workloads import parameter_count
from emu.scenario.scenario_file import loads
from emu.systems.dgcl.job import DgclBuilder, dgcl_job, dgcl_realization
from emu.systems.dgcl.section import DgclJobSection
from emu.training import reference_training
from tests import draws
from tests.nodes.one_process import drive

EPOCHS = 6
TEXT = """
cluster: {{topology: {topology}}}
job:
  system: dgcl
  dataset: {{name: products-like, scale: 0.0005}}
  model: {{kind: {kind}, hidden: 6, layers: {layers}}}
  epochs: {epochs}
  precision: float64
  optimizer: {{name: adam, lr: 0.02}}
  times: {{forward: 2 ms, backward: 4 ms}}
  {more}
"""
CENTRAL = "coordination: central"
BOXES = "partitioner: hierarchical\n  boxes: "


def config_of(
    more: str,
    kind: str = "gcn",
    layers: int = 2,
    topology: str = "dgx1",
    epochs: int = EPOCHS,
) -> tuple[DgclBuilder, dict[str, Any]]:
    """Return what builds a job, and the settings of its programs."""
    text = TEXT.format(
        topology=topology, kind=kind, layers=layers, epochs=epochs, more=more
    )
    scenario = loads(text)
    section = scenario.job
    assert isinstance(section, DgclJobSection)
    context = scenario.build_context(opened=True)
    settings = section.settings(context) | {"compute": "real"}
    return section.builder(context, settings), settings


@cache
def reference(kind: str, layers: int) -> tuple[NDArray[Any], list[float]]:
    settings = config_of("machines: [d0]", kind, layers)[1] | {"parts": 1}
    return reference_training(settings, EPOCHS)


@pytest.mark.parametrize(
    ("more", "kind", "layers"),
    draws.rarely_but(
        2,
        [
            ("plan: swap", "gcn", 2),
            ("plan: swap\n  backward: atomic\n  coordination: central", "sage", 3),
            ("plan: swap\n  cache_features: false\n  machines: [d1, d4]", "gcn", 2),
            ("plan: swap\n  machines: [d1]", "gcn", 2),
            ("plan: replication", "gcn", 2),
            ("plan: replication\n  machines: [d0, d5, d6]", "sage", 3),
            ("plan: replication\n  machines: [d3]", "gcn", 2),
            ("plan: replication\n  partitioner: hash\n  machines: [d3, d1]", "gin", 3),
            (f"plan: dgcl_r\n  {BOXES}[4, 4]", "gcn", 2),
            (f"plan: dgcl_r\n  {BOXES}[2, 1]\n  machines: [d0, d5, d6]", "sage", 3),
            (f"plan: dgcl_r\n  {BOXES}[3]\n  machines: [d0, d5, d6]", "gcn", 2),
            (f"plan: dgcl_r\n  {BOXES}[4, 4]\n  cache_features: false", "gin", 3),
            (
                f"plan: dgcl_r\n  {BOXES}[3, 5]\n  backward: atomic\n  {CENTRAL}",
                "commnet",
                3,
            ),
        ],
        several=True,
    ),
)
def test_weights_equal_those_of_one_process(more: str, kind: str, layers: int) -> None:
    builder, settings = config_of(more, kind, layers)
    made = drive(dgcl_job(builder, settings))
    expected, losses = reference(kind, layers)

    ranks = range(len(builder.machines))
    for rank in ranks:
        found = made.programs[f"d{rank}.layer1"].result()["parameters"]
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    for epoch in (0, EPOCHS - 1):
        told = [made.reports[f"d{rank}.layer{layers}", epoch]["loss"] for rank in ranks]
        assert np.mean(told) == pytest.approx(losses[epoch], rel=1e-12)
    hosts: list[Any] = [p for n, p in made.programs.items() if n.startswith("d8.")]
    assert all(not one._carrier._rows for one in hosts)  # nothing is left behind


@pytest.mark.parametrize("compute", ["real", "timed"])
@pytest.mark.parametrize(
    "more",
    [
        "plan: swap\n  cache_features: false",
        "plan: replication",
        f"plan: dgcl_r\n  {BOXES}[5, 3]\n  cache_features: false",
    ],
)
def test_bytes_are_those_of_the_formulas(compute: str, more: str) -> None:
    builder, settings = config_of(more, "gcn", 3, epochs=2)
    settings = {**settings, "compute": compute}
    made = drive(dgcl_job(builder, settings))

    dataset, _ = open_layers(settings)
    width = dataset.feature_length
    count = parameter_count(settings["model"], width, dataset.classes)
    expected = dgcl_realization(builder, {}, [width, 6, 6], count, 8)
    np.testing.assert_array_equal(made.volumes, expected.volumes)


def test_swap_leaves_every_row_on_the_host_and_brings_back_those_needed() -> None:
    builder, settings = config_of("plan: swap")
    _, graphs = open_layers(settings)
    parts = [graphs[0].part(number) for number in range(8)]

    up = {(at, to): len(rows) for stage, at, to, rows in builder.plans[1] if stage == 0}
    down = {(at, to): len(rows) for stage, at, to, rows in builder.plans[1] if stage}
    assert up == {(n, 8): len(part.local) for n, part in enumerate(parts)}
    assert down == {(8, n): len(part.remote) for n, part in enumerate(parts)}


def test_nothing_crosses_between_boxes() -> None:
    builder, _ = config_of(f"plan: dgcl_r\n  {BOXES}[4, 4]", layers=3)

    assert any(plan.stages for plan in builder.plans)
    for plan in builder.plans:
        assert all(at // 4 == to // 4 for _, at, to, _ in plan)
    builder, _ = config_of("plan: replication", layers=3)
    assert not any(plan.stages for plan in builder.plans)
