"""Parts that exchange rows layer by layer, held against training in one piece."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emu.graph_data import Dataset, Part, WholeGraph, open_for, open_parts
from emu.graph_data.dataset import open_dataset
from emu.graph_data.sampling import Structure
from emu.graph_data.whole_graph import Aggregation
from emu.problem.workloads import parameter_count
from emu.training import (
    PartModel,
    evaluate,
    initial_parameters,
    make_optimizer,
    reference_training,
)
from emu.training.reference import WholeGraphModel
from tests import draws
from tests.graph_data.parts import whole_of

EPOCHS = 20
SETTINGS = {
    "dataset": {"name": "products-like", "scale": 0.0005, "seed": 3},
    "partitioner": "metis",
    "parts": 3,
    "model": {
        "kind": "gcn",
        "hidden": 7,
        "layers": 2,
        "norm": "symmetric",
        "activation": "relu",
    },
    "optimizer": {"name": "adam", "lr": 0.02},
    "precision": "float64",
    "compute": "real",
    "seed": 5,
}
NORMS = {"gcn": "symmetric", "sage": "mean", "commnet": "symmetric", "gin": "sum"}


def settings_of(**changes: Any) -> dict[str, Any]:
    model = {**SETTINGS["model"], **changes.pop("model", {})}  # type: ignore[dict-item]
    return {**SETTINGS, "model": model, **changes}


@cache
def reference(kind: str, optimizer: str, layers: int) -> NDArray[Any]:
    settings = settings_of(
        model={"kind": kind, "norm": NORMS[kind], "layers": layers},
        optimizer={"name": optimizer, "lr": 0.02},
        parts=1,
    )
    return reference_training(settings, EPOCHS)[0]


class Parts:
    """All parts in one process, which gather and sum rows as a plan would."""

    def __init__(
        self, settings: dict[str, Any], whole: WholeGraph, *, ascending: bool = True
    ) -> None:
        dataset = open_for(settings)
        self.whole, self.order = whole, 1 if ascending else -1
        self.parts = [whole.part(number) for number in range(whole.parts)]
        self.models = [PartModel(settings, dataset, part) for part in self.parts]
        self.features = [dataset.gather(part.vertices) for part in self.parts]
        self.features = [x.astype(settings["precision"]) for x in self.features]
        self.parameters = initial_parameters(settings, dataset)
        self.optimizer = make_optimizer(settings, self.parameters)

    def gather(self, local: list[NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the rows of each part's local and remote vertices."""
        everything = np.empty((self.whole.vertices, local[0].shape[1]))
        for part, rows in zip(self.parts, local, strict=True):
            everything[part.local] = rows
        return [everything[part.vertices] for part in self.parts]

    def summed(self, shares: list[NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the gradient of each part's local rows, senders in order."""
        total = [
            share[: len(part.local)].copy()
            for part, share in zip(self.parts, shares, strict=True)
        ]
        for sender in range(len(self.parts))[:: self.order]:
            part, share = self.parts[sender], shares[sender]
            for owner, own in enumerate(self.parts):
                mine = np.flatnonzero(part.owners == owner)
                rows = own.positions(part.remote[mine])
                total[owner][rows] += share[len(part.local) + mine]
        return total

    def epoch(self) -> float:
        """Take one step; return the loss before it."""
        for model in self.models:
            model.load(self.parameters)
        layers = self.models[0].layers
        out: list[NDArray[Any]] = []
        for layer in range(layers):
            rows = self.gather(out) if layer else self.features
            out = [
                model.forward(layer, x)
                for model, x in zip(self.models, rows, strict=True)
            ]
        scored = [model.score(x) for model, x in zip(self.models, out, strict=True)]
        gradients = [one.gradient for one in scored]
        for layer in reversed(range(layers)):
            shares = [
                model.backward(layer, gradient)
                for model, gradient in zip(self.models, gradients, strict=True)
            ]
            if layer:
                gradients = self.summed([one for one in shares if one is not None])
        self.optimizer.step(np.sum([m.gradient for m in self.models], axis=0))
        return sum(one.loss for one in scored)


def trained(settings: dict[str, Any], **options: Any) -> tuple[Any, list[float]]:
    _, whole = open_parts(settings)
    job = Parts(settings, whole, **options)
    losses = [job.epoch() for _ in range(EPOCHS)]
    return job.parameters, losses


@pytest.mark.parametrize(
    ("optimizer", "partitioner", "parts"),
    [
        *(("sgd", "metis", parts) for parts in (1, 3)),
        *(draws.rarely("sgd", "metis", parts) for parts in (2, 8)),
        ("adam", "hash", 2),
        draws.rarely("adam", "hash", 8),
        ("adam", "hierarchical", 3),
        draws.rarely("adam", "hierarchical", 8),
    ],
)
def test_parts_learn_what_one_process_learns(
    parts: int, partitioner: str, optimizer: str
) -> None:
    boxes = [parts - parts // 2, parts // 2][: min(parts, 2)]
    settings = settings_of(
        parts=parts,
        partitioner=partitioner,
        boxes=boxes if partitioner == "hierarchical" else [],
        optimizer={"name": optimizer, "lr": 0.02},
    )
    expected = reference("gcn", optimizer, 2)

    for ascending in (True, False):
        found, losses = trained(settings, ascending=ascending)

        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
        assert losses[-1] < losses[0]


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("layers", [draws.rarely(1), 3])
def test_every_kind_and_depth(kind: str, layers: int) -> None:
    settings = settings_of(model={"kind": kind, "norm": NORMS[kind], "layers": layers})

    found, losses = trained(settings)

    expected = reference(kind, "adam", layers)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    model = settings["model"]
    dataset = open_for(settings)
    count = parameter_count(model, dataset.feature_length, dataset.classes)
    assert len(found) == count
    assert losses[-1] < losses[0]


def test_losses_are_those_of_the_reference() -> None:
    settings = settings_of(model={"activation": "tanh", "norm": "mean"})

    _, losses = trained(settings)

    np.testing.assert_allclose(losses, reference_training(settings, EPOCHS)[1], 1e-12)


def dropped(part: Part) -> Part:
    """Return a part that lacks one remote vertex: its edges weigh nothing."""
    lost = part.forward.columns == len(part.local)
    weights = np.where(lost, 0.0, part.forward.weights)
    return replace(part, forward=replace(part.forward, weights=weights))


def with_own_degrees(dataset: Dataset, number: int, part: Part) -> Part:
    """Return a part that counts degrees among its own vertices alone."""
    structure = dataset.structure
    inside = dataset.owner == number
    ends = np.repeat(np.arange(structure.vertices), np.diff(structure.indptr))
    kept = inside[ends] & inside[structure.indices]
    degree = np.bincount(ends[kept], minlength=structure.vertices) + 1.0
    degree = degree[part.vertices]
    rows = np.repeat(np.arange(len(part.local)), np.diff(part.forward.indptr))
    weights = (degree[rows] * degree[part.forward.columns]) ** -0.5
    return replace(part, forward=replace(part.forward, weights=weights))


@pytest.mark.parametrize("fault", ["dropped vertex", "own degrees", "row summed twice"])
def test_a_fault_in_one_part_is_seen(fault: str) -> None:
    settings = settings_of()
    dataset, whole = open_parts(settings)

    def read(number: int) -> Part:
        part = whole.part(number)
        if fault == "dropped vertex" and number == 1:
            return dropped(part)
        if fault == "own degrees":
            return with_own_degrees(dataset, number, part)
        return part

    job = Parts(settings, WholeGraph(whole.vertices, whole.parts, read))
    if fault == "row summed twice":
        setattr(job, "summed", twice(len(job.parts[0].remote), job.summed))  # noqa: B010 - mypy
    for _ in range(EPOCHS):
        job.epoch()

    off = np.abs(job.parameters - reference("gcn", "adam", 2)).max()
    assert off > 1e-6


def twice(
    remote: int,
    summed: Callable[[list[NDArray[Any]]], list[NDArray[Any]]],
) -> Callable[[list[NDArray[Any]]], list[NDArray[Any]]]:
    def faulty(shares: list[NDArray[Any]]) -> list[NDArray[Any]]:
        shares = [share.copy() for share in shares]
        largest = np.abs(shares[0]).sum(1)
        largest[:-remote] = 0
        shares[0][largest.argmax()] *= 2
        return summed(shares)

    return faulty


def test_scores_by_hand() -> None:
    """Kipf and Welling's layer on a path of three, in numpy alone."""
    settings = settings_of(dataset={"name": "products-like", "scale": 0.0005})
    dataset = open_for(settings)
    count = dataset.vertices
    matrix = np.eye(count)
    ends = np.repeat(np.arange(count), np.diff(dataset.structure.indptr))
    matrix[ends, dataset.structure.indices] = 1
    root = 1 / np.sqrt(matrix.sum(1))
    matrix *= root[:, None] * root[None, :]
    flat = initial_parameters(settings, dataset)
    f, h, c = dataset.feature_length, 7, dataset.classes
    w1, b1, w2, b2 = np.split(flat, np.cumsum([h * f, h, c * h]))
    features = dataset.gather(np.arange(count)).astype(float)
    hidden = np.maximum(matrix @ features @ w1.reshape(h, f).T + b1, 0)
    expected = matrix @ hidden @ w2.reshape(c, h).T + b2

    import torch

    found = WholeGraphModel(settings, dataset).scores(torch.tensor(flat)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    accuracy = evaluate(settings, flat)
    right = expected.argmax(1)[dataset.test] == dataset.labels[dataset.test]
    assert accuracy["test"] == pytest.approx(right.mean())


@pytest.mark.parametrize("norm", ["mean", "symmetric"])
def test_gradients_of_sums_are_those_of_torch_to_the_bit(norm: str) -> None:
    import torch

    base = settings_of(dataset={"name": "products-like", "scale": 0.0005})
    settings = {**base, "model": {**base["model"], "norm": norm}}
    model = WholeGraphModel(settings, open_for(settings))
    rows = torch.randn(len(model.matrix), 5, dtype=model.matrix.dtype)
    gradient = torch.randn_like(rows)

    def differentiate(sum_rows: Any) -> Any:
        leaf = rows.clone().requires_grad_()
        return torch.autograd.grad(sum_rows(leaf), leaf, gradient)[0]

    own = differentiate(lambda leaf: torch.sparse.mm(model.matrix, leaf))
    assert torch.equal(differentiate(model._sum), own)
    if norm == "mean":  # the transpose is another matrix
        assert not torch.allclose(own, torch.sparse.mm(model.matrix, gradient))


def test_rows_and_parameters_of_another_length_are_refused() -> None:
    settings = settings_of()
    dataset, whole = open_parts(settings)
    model = PartModel(settings, dataset, whole.part(0))

    with pytest.raises(ValueError, match="parameters for a model of"):
        model.load(np.zeros(3))
    model.load(initial_parameters(settings, dataset))
    with pytest.raises(ValueError, match="2 rows for"):
        model.forward(0, np.zeros((2, dataset.feature_length)))


def test_integer_valued_sums_are_exact_in_any_order() -> None:
    rng = np.random.default_rng(2)
    structure = Structure(np.arange(0, 41, 4), _ring(10))
    owner = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0], np.int32)
    whole = whole_of(structure, owner, 3, Aggregation("sum", loops=False))
    job = Parts.__new__(Parts)
    job.whole, job.parts = whole, [whole.part(n) for n in range(3)]
    shares = [rng.integers(-9, 9, (len(p.vertices), 4)) * 1.0 for p in job.parts]

    found = {}
    for job.order in (1, -1):
        found[job.order] = job.summed(shares)

    total = np.zeros((10, 4))
    for part, share in zip(job.parts, shares, strict=True):
        np.add.at(total, part.vertices, share)
    for order, rows in found.items():
        for part, mine in zip(job.parts, rows, strict=True):
            assert (mine == total[part.local]).all(), order


def _ring(count: int) -> NDArray[np.int32]:
    at = np.arange(count)
    near = [np.sort((at[v] + np.array([-2, -1, 1, 2])) % count) for v in at]
    return np.concatenate(near).astype(np.int32)


@pytest.mark.nightly
@pytest.mark.data
@pytest.mark.slow
@pytest.mark.skipif("EMU_DATA" not in os.environ, reason="EMU_DATA names no graphs")
def test_amazon_computers_is_learnt() -> None:
    settings = settings_of(
        dataset={"name": "amazon_computers", "seed": 0, "normalise": True},
        model={"hidden": 32},
        optimizer={"name": "adam", "lr": 0.02},
        precision="float32",
        parts=1,
    )
    assert open_dataset("amazon_computers").classes == 10

    parameters, _ = reference_training(settings, 70)

    assert evaluate(settings, parameters)["test"] >= 0.86
