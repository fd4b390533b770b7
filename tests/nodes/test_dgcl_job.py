"""DGCL, all programs in one process: weights, gathered rows and bytes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emu.graph_data import open_for, open_parts
from emu.problem.payloads import payload_kind
from emu.problem.workloads import parameter_count
from emu.systems.dgcl.job import DgclBuilder, dgcl_job, dgcl_realization
from emu.systems.dgcl.planner import GatherPlan, Needs, Topology, peer_to_peer
from emu.systems.dgcl.spst import spst
from emu.training import reference_training
from emu_nodes.dgcl import programs
from tests.nodes.one_process import drive
from tests.systems.sections import section_of

EPOCHS = 6
SETTINGS: dict[str, Any] = {
    "system": "dgcl",
    "dataset": {"name": "products-like", "scale": 0.0005, "seed": 3},
    "partitioner": "metis",
    "parts": 3,
    "boxes": [],
    "model": {
        "kind": "gcn",
        "hidden": 6,
        "layers": 2,
        "norm": "symmetric",
        "activation": "relu",
    },
    "optimizer": {"name": "adam", "lr": 0.02},
    "precision": "float64",
    "compute": "real",
    "seed": 5,
    "cache_features": True,
    "backward": "nonatomic",
    "replicas": [],
}


def line(devices: int) -> Topology:
    """Return devices on a line of fast links; other pairs share one slow link."""
    links, routes = ["slow"], {}
    for sender in range(devices):
        for receiver in range(devices):
            if abs(sender - receiver) == 1:
                routes[sender, receiver] = [len(links)]
                links.append(f"{sender}{receiver}")
            elif sender != receiver:
                routes[sender, receiver] = [0]
    capacities = np.array([1.0] + [10.0] * (len(links) - 1))
    return Topology(devices, tuple(links), capacities, routes)


def plan_of(settings: dict[str, Any], *, planned: bool) -> GatherPlan:
    _, whole = open_parts(settings)
    parts = [whole.part(number) for number in range(whole.parts)]
    needs = Needs.of_parts([p.remote for p in parts], [p.owners for p in parts])
    if not planned:
        return peer_to_peer(needs, whole.parts)
    return spst(needs, line(whole.parts), seed=1)


@cache
def reference(
    kind: str, norm: str, layers: int, optimizer: str
) -> tuple[NDArray[Any], list[float]]:
    model = {**SETTINGS["model"], "kind": kind, "norm": norm, "layers": layers}
    settings = {
        **SETTINGS,
        "model": model,
        "optimizer": {"name": optimizer, "lr": 0.02},
        "parts": 1,
    }
    return reference_training(settings, EPOCHS)


def run(
    monkeypatch: pytest.MonkeyPatch,
    *,
    planned: bool = True,
    coordination: Any = "decentralized",
    epochs: int = EPOCHS,
    **changes: Any,
) -> tuple[Any, DgclBuilder]:
    model = {**SETTINGS["model"], **changes.pop("model", {})}
    settings = {**SETTINGS, "model": model, **changes}
    plan = plan_of(settings, planned=planned)
    plans = (plan,) * model["layers"]
    monkeypatch.setattr(programs, "open_plans", lambda _: plans)
    section = section_of(
        "dgcl",
        model={"hidden": 4, "layers": model["layers"]},
        epochs=epochs,
        cache_features=settings["cache_features"],
        coordination=coordination,
    )
    machines = tuple(f"m{rank}" for rank in range(settings["parts"]))
    backward = (plan.reverse(atomic=settings["backward"] == "atomic"),) * len(plans)
    builder = DgclBuilder(section, machines, plans, backward)
    return drive(dgcl_job(builder, settings)), builder


def check(made: Any, optimizer: str = "adam") -> None:
    """Hold the weights of every device, and the losses, against one process."""
    settings = made.job.settings
    model = settings["model"]
    expected, losses = reference(
        model["kind"], model["norm"], model["layers"], optimizer
    )
    for rank in range(settings["parts"]):
        found = made.programs[f"d{rank}.layer1"].result()["parameters"]
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    last = f"layer{model['layers']}"
    for epoch in (0, EPOCHS - 1):
        told = [
            made.reports[f"d{rank}.{last}", epoch]["loss"]
            for rank in range(settings["parts"])
        ]
        assert np.mean(told) == pytest.approx(losses[epoch], rel=1e-12)


@pytest.mark.parametrize(
    ("parts", "planned", "backward"),
    [
        (1, True, "atomic"),
        (2, False, "atomic"),
        (3, True, "nonatomic"),
        (3, False, "nonatomic"),
        (8, True, "atomic"),
        (8, True, "nonatomic"),
    ],
)
def test_weights_equal_those_of_one_process(
    monkeypatch: pytest.MonkeyPatch,
    parts: int,
    planned: bool,  # noqa: FBT001
    backward: str,
) -> None:
    made, _ = run(monkeypatch, planned=planned, parts=parts, backward=backward)

    check(made)


@pytest.mark.parametrize("partitioner", ["hash", "hierarchical"])
@pytest.mark.parametrize("cache_features", [True, False])
def test_partitioners_gathered_features_and_sgd(
    monkeypatch: pytest.MonkeyPatch,
    partitioner: str,
    cache_features: bool,  # noqa: FBT001
) -> None:
    made, _ = run(
        monkeypatch,
        partitioner=partitioner,
        boxes=[2, 1] if partitioner == "hierarchical" else [],
        cache_features=cache_features,
        coordination="central",
        optimizer={"name": "sgd", "lr": 0.02},
    )

    check(made, "sgd")


@pytest.mark.parametrize(
    ("kind", "norm"),
    [("sage", "mean"), ("gin", "sum"), ("commnet", "mean"), ("gcn", "mean")],
)
def test_every_kind_over_three_layers(
    monkeypatch: pytest.MonkeyPatch, kind: str, norm: str
) -> None:
    model = {"kind": kind, "norm": norm, "layers": 3}

    made, _ = run(monkeypatch, model=model, cache_features=False)

    check(made)


def test_one_layer_needs_no_gather_where_features_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, _ = run(monkeypatch, model={"layers": 1})

    check(made)


@pytest.mark.parametrize("planned", [True, False])
def test_gathered_features_are_those_of_the_graph(
    monkeypatch: pytest.MonkeyPatch,
    planned: bool,  # noqa: FBT001
) -> None:
    seen: dict[int, NDArray[Any]] = {}
    gathered = programs.Device.gather

    def look(self: programs.Device, layer: int, iteration: int) -> NDArray[Any]:
        rows = gathered(self, layer, iteration)
        if layer == 0:
            seen[self.rank] = rows.copy()
        return rows

    monkeypatch.setattr(programs.Device, "gather", look)
    made, _ = run(monkeypatch, planned=planned, cache_features=False, epochs=1)

    dataset, whole = open_parts(made.job.settings)
    for rank in range(3):
        assert (seen[rank] == dataset.gather(whole.part(rank).vertices)).all()


@pytest.mark.parametrize("compute", ["real", "timed"])
def test_bytes_are_those_of_the_formulas(
    monkeypatch: pytest.MonkeyPatch, compute: str
) -> None:
    made, builder = run(
        monkeypatch,
        epochs=2,
        compute=compute,
        cache_features=False,
        model={"layers": 3},
    )

    dataset, model = open_for(made.job.settings), made.job.settings["model"]
    count = parameter_count(model, dataset.feature_length, dataset.classes)
    widths = [dataset.feature_length, 6, 6]
    expected = dgcl_realization(builder, {}, widths, count, 8)
    np.testing.assert_array_equal(made.volumes, expected.volumes)
    sent = {payload_kind(name) for one in made.payloads.values() for name in one}
    assert sent == {"activations", "gradients"}


def test_without_computation_no_weight_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = run(monkeypatch, epochs=2, compute="timed")

    first = [made.programs[f"d{rank}.layer1"].result() for rank in range(3)]
    again, _ = run(monkeypatch, epochs=1, compute="timed")
    for rank, left in enumerate(first):
        other = again.programs[f"d{rank}.layer1"].result()["parameters"]
        assert (left["parameters"] == other).all()
