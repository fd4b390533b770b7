"""Trainings of exchanges, held against their papers' formulas on dense matrices.

No part, message or `ExchangedPart` is used by the formulas; draws and first weights
are, as they are inputs. So a fault of the draws themselves would not show here:
`test_messages` looks at these.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from emu.graph_data import open_for
from emu.problem.workloads.exchange import GRADIENTS, ROWS, Exchange, to_settings
from emu.training import initial_parameters, make_optimizer, reference_training
from emu.training.exchanged import train_exchanged
from emu.training.messages import Passage, draw_rows
from tests import draws
from tests.training import test_whole_graph

Matrix: TypeAlias = Any
EPOCHS = 5


def exchanges(layers: int, first: int = 2, **terms: Any) -> list[dict[str, Any]]:
    """Return exchanges of rows from a layer on and of gradients, as settings."""
    rows = [Exchange(ROWS, layer, **terms) for layer in range(first, layers + 1)]
    gradients = [Exchange(GRADIENTS, n, **terms) for n in range(2, layers + 1)]
    return to_settings([*rows, *gradients])


def settings_of(**changes: Any) -> dict[str, Any]:
    dataset = {"name": "products-like", "scale": 0.00025, "seed": 3}
    return test_whole_graph.settings_of(dataset=dataset, **changes)


class Gcn:
    """A graph convolution network on dense matrices, written out by hand."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.data = open_for(settings)
        count = self.data.vertices
        structure = self.data.structure
        links = np.eye(count)
        for vertex in range(count):
            begin, end = structure.indptr[vertex : vertex + 2]
            links[vertex, structure.indices[begin:end]] = 1
        degrees = links.sum(1)
        self.matrix: Matrix = links / np.sqrt(np.outer(degrees, degrees))
        owner = np.asarray(self.data.owner)
        self.owner = owner
        self.is_within = owner[:, None] == owner[None, :]
        self.features = self.data.gather(np.arange(count)).astype(np.float64)
        self.labels = np.eye(self.data.classes)[self.data.labels]
        hidden = settings["model"]["hidden"]
        layers = settings["model"]["layers"]
        widths = [self.data.feature_length, *[hidden] * (layers - 1)]
        self.widths = [*widths, self.data.classes]

    def unpack(self, flat: Matrix) -> list[tuple[Matrix, Matrix]]:
        """Return weight and bias of every layer."""
        layers = []
        start = 0
        for inputs, outputs in zip(self.widths[:-1], self.widths[1:], strict=True):
            end = start + inputs * outputs
            weight = flat[start:end].reshape(outputs, inputs)
            layers.append((weight, flat[end : end + outputs]))
            start = end + outputs
        return layers

    def loss_gradient(self, scores: Matrix) -> tuple[float, Matrix]:
        """Return the mean cross-entropy of the training vertices, and its gradient."""
        shifted = np.exp(scores - scores.max(1, keepdims=True))
        shares = shifted / shifted.sum(1, keepdims=True)
        train = np.asarray(self.data.train)
        gradient = np.zeros_like(scores)
        gradient[train] = (shares - self.labels)[train] / len(train)
        right = (shares * self.labels).sum(1)[train]
        return float(-np.log(right).mean()), gradient

    def epoch(self, flat: Matrix, read: Any, give: Any) -> tuple[Matrix, float]:
        """Return the gradient of an epoch, and its loss.

        ``read(layer, rows)`` returns the sums of a layer's inputs, ``give(layer,
        gradient)`` the gradient of these inputs from that of the sums.
        """
        layers = self.unpack(flat)
        hidden = self.features
        sums = []
        outputs = []
        for number, (weight, bias) in enumerate(layers, 1):
            sums.append(read(number, hidden))
            outputs.append(sums[-1] @ weight.T + bias)
            hidden = np.maximum(outputs[-1], 0)
        loss, gradient = self.loss_gradient(outputs[-1])
        pieces: list[Matrix] = []
        for number in range(len(layers), 0, -1):
            weight, _ = layers[number - 1]
            of_weight = gradient.T @ sums[number - 1]
            pieces = [of_weight.ravel(), gradient.sum(0), *pieces]
            if number > 1:
                before = give(number, gradient @ weight)
                gradient = before * (outputs[number - 2] > 0)
        return np.concatenate(pieces), loss


def train(settings: dict[str, Any], model: Gcn, terms: Any) -> tuple[Matrix, Any]:
    """Return weights and losses by formulas: ``terms(epoch)`` gives read and give."""
    parameters = initial_parameters(settings, model.data)
    optimizer = make_optimizer(settings, parameters)
    losses = []
    for epoch in range(EPOCHS):
        gradient, loss = model.epoch(parameters, *terms(epoch))
        optimizer.step(gradient)
        losses.append(loss)
    return parameters, losses


def check(settings: dict[str, Any], model: Gcn, terms: Any) -> None:
    expected, expected_losses = train(settings, model, terms)
    found, losses = train_exchanged(settings, EPOCHS)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-12)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    exact, _ = reference_training(settings, EPOCHS)
    assert np.abs(found - exact).max() > 1e-4  # the terms do change what is learnt


@pytest.mark.parametrize("smoothing", [0.0, 0.95])
@pytest.mark.parametrize("age", [1, 3])
def test_pipegcn_is_its_algorithm_on_dense_matrices(age: int, smoothing: float) -> None:
    """Algorithm 1: rows and gradients across parts are those of the epoch before."""
    terms = exchanges(3, age=age, smoothing=smoothing)
    settings = settings_of(model={"layers": 3}, exchanges=terms)
    model = Gcn(settings)
    within = model.matrix * model.is_within
    across = model.matrix * ~model.is_within
    sent: dict[tuple[str, int, int], Matrix] = {}
    means: dict[tuple[str, int], Matrix] = {}

    def late(word: str, layer: int, epoch: int, rows: Matrix) -> Matrix:
        """Keep what is sent, and return what is read."""
        sent[word, layer, epoch] = rows
        mean = means.get((word, layer), np.zeros_like(rows))
        if epoch >= age:
            old = sent[word, layer, epoch - age]
            mean = smoothing * mean + (1 - smoothing) * old
        means[word, layer] = mean
        return mean

    def of_epoch(epoch: int) -> tuple[Any, Any]:
        def read(layer: int, rows: Matrix) -> Matrix:
            if layer == 1:
                return model.matrix @ rows
            return within @ rows + across @ late("rows", layer, epoch, rows)

        def give(layer: int, gradient: Matrix) -> Matrix:
            shares = across.T @ gradient
            return within.T @ gradient + late("gradients", layer, epoch, shares)

        return read, give

    check(settings, model, of_epoch)


def test_bns_gcn_is_exact_on_the_matrix_that_an_epoch_draws() -> None:
    """Edges from drawn rows count as often as rows are left out, both ways."""
    rate = 0.3
    settings = settings_of(exchanges=exchanges(2, share=rate))
    model = Gcn(settings)
    exchange = Exchange(ROWS, 2, share=rate)

    def of_epoch(epoch: int) -> tuple[Any, Any]:
        matrix = model.matrix * model.is_within
        for owner in range(3):
            for reader in range(3):
                block = model.matrix * np.outer(
                    model.owner == reader, model.owner == owner
                )
                shared = np.flatnonzero(block.any(0))
                if owner == reader or not len(shared):
                    continue
                passage = Passage(5, epoch, owner, reader)
                draw = draw_rows(exchange, passage, len(shared))
                drawn = shared[draw]
                block[:, np.setdiff1d(shared, drawn)] = 0
                matrix = matrix + block * len(shared) / len(drawn)

        def read(layer: int, rows: Matrix) -> Matrix:
            return (model.matrix if layer == 1 else matrix) @ rows

        return read, lambda _, gradient: matrix.T @ gradient

    check(settings, model, of_epoch)


def quantise(rows: Matrix, bits: int, place: list[int]) -> Matrix:
    """Return rows as their reader has them, row by row."""
    draws = np.random.default_rng([5, 7, *place]).random(rows.shape)
    found = np.empty_like(rows)
    for row, numbers in enumerate(rows):
        low, high = float(numbers.min()), float(numbers.max())
        wire_low = bfloat16(low)
        scale = (2**bits - 1) / (high - low) if high > low else 0.0
        wire_scale = bfloat16(scale) or 1.0
        steps = (numbers - low) * scale + draws[row] - 0.5
        codes = np.clip(np.rint(steps), 0, 2**bits - 1)
        found[row] = codes / wire_scale + wire_low
    return found


def bfloat16(number: float) -> float:
    """Return a number with 8 significant bits, by arithmetic."""
    mantissa, exponent = np.frexp(np.float64(np.float32(number)))
    return float(np.ldexp(np.rint(mantissa * 256), exponent - 8))


@pytest.mark.parametrize("bits", [2, draws.rarely(4), draws.rarely(8)])
def test_adaqp_reads_rows_of_few_bits(bits: int) -> None:
    """Rows of every layer, features too, and partial gradients are quantised."""
    settings = settings_of(exchanges=exchanges(2, first=1, bits=bits))
    model = Gcn(settings)
    within = model.matrix * model.is_within
    pairs = [(i, j) for i in range(3) for j in range(3) if i != j]

    @cache
    def block(reader: int, owner: int) -> tuple[Matrix, NDArray[np.int64]]:
        ends = np.outer(model.owner == reader, model.owner == owner)
        across = model.matrix * ends
        return across, np.flatnonzero(across.any(0))

    def of_epoch(epoch: int) -> tuple[Any, Any]:
        def read(layer: int, rows: Matrix) -> Matrix:
            total = within @ rows
            for reader, owner in pairs:
                across, shared = block(reader, owner)
                place = [epoch, 0, layer, owner, reader]
                total += across[:, shared] @ quantise(rows[shared], bits, place)
            return total

        def give(layer: int, gradient: Matrix) -> Matrix:
            total = within.T @ gradient
            for reader, owner in pairs:
                across, shared = block(reader, owner)
                shares = (across.T @ gradient)[shared]
                place = [epoch, 1, layer, reader, owner]
                total[shared] += quantise(shares, bits, place)
            return total

        return read, give

    check(settings, model, of_epoch)


def test_exact_exchanges_train_as_one_device() -> None:
    settings = settings_of(exchanges=exchanges(2))
    found, losses = train_exchanged(settings, EPOCHS)
    expected, expected_losses = reference_training(settings, EPOCHS)
    np.testing.assert_array_equal(found, expected)
    assert losses == expected_losses


@pytest.mark.parametrize("whole", [False, True])
def test_rows_that_are_sent_seldom_are_read_until_the_next_ones(*, whole: bool) -> None:
    """An owner may send what is needed or all it has: weights are the same."""
    settings = settings_of(exchanges=exchanges(2, every=3, whole=whole))
    model = Gcn(settings)
    within = model.matrix * model.is_within
    across = model.matrix * ~model.is_within
    kept: dict[str, Matrix] = {}

    def of_epoch(epoch: int) -> tuple[Any, Any]:
        def last(word: str, rows: Matrix) -> Matrix:
            if epoch % 3 == 0:
                kept[word] = rows
            return kept[word]

        def read(layer: int, rows: Matrix) -> Matrix:
            if layer == 1:
                return model.matrix @ rows
            return within @ rows + across @ last("rows", rows)

        def give(_: int, gradient: Matrix) -> Matrix:
            return within.T @ gradient + last("gradients", across.T @ gradient)

        return read, give

    check(settings, model, of_epoch)
