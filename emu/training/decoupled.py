"""Tensor parallel training of a decoupled GCN: rows for products, columns for sums.

All dense layers come first, each part's on its own rows; then a sum over neighbours per
layer, each part's on its own columns of all rows (Ai et al., NeutronTP, PVLDB 2024).
Between the two all parts exchange pieces with all others, there and back.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from emu.array_types import Array
from emu.graph_data import Dataset, open_for
from emu.problem.workloads.column_slices import STAGES, Slices
from emu.training.layers import JobSettings, LayerTensors, Tensor, as_tensor
from emu.training.reference import WholeGraphModel
from emu.training.whole_graph import Scored, TrainingVertices


class _Dense(LayerTensors):
    """Dense layers of a gcn's parameters, and a sum over neighbours for each."""

    def __init__(self, settings: JobSettings, dataset: Dataset) -> None:
        import torch

        super().__init__(settings, dataset)
        activation = settings["model"]["activation"]
        self._activate = getattr(torch, activation)

    def rows_after(self, features: Array) -> Tensor:
        """Return the rows after all dense layers."""
        from torch.nn.functional import linear

        hidden = as_tensor(features)
        for number in range(self.layers):
            weight, bias = self._tensors[number]
            rows = hidden
            if number:
                rows = self._activate(hidden)
            hidden = linear(rows, weight, bias)
        return hidden

    def sum_neighbours(self, matrix: Tensor, columns: Array) -> Array:
        """Return columns of all rows after a product with a matrix per layer."""
        import torch

        rows = as_tensor(columns)
        for _ in range(self.layers):
            rows = torch.sparse.mm(matrix, rows)
        return np.asarray(rows.numpy())

    @property
    def gradient(self) -> Array:
        """Gradient of the flat parameters."""
        return self._copy_gradient()


class TensorPart:
    """One part of a tensor parallel training, stage by stage; with ``timed`` zeros.

    Raises DataError when the data set is missing or damaged.
    """

    def __init__(self, settings: JobSettings, rank: int) -> None:
        dataset = open_for(settings)
        self._dtype = np.dtype(settings["precision"])
        self._rank = rank
        self.ranks: int = settings["parts"]
        self._classes = dataset.classes
        self._slices = Slices(dataset.classes, self.ranks)
        owner = np.asarray(dataset.owner)
        parts = range(self.ranks)
        # Ascending, so that pieces of columns join in the order of the vertices.
        self._vertices = [np.flatnonzero(owner == part) for part in parts]
        local = self._vertices[rank]

        self._made: dict[str, Array] = {}
        nothing = np.zeros((0, dataset.classes))
        self.scored = Scored(
            loss=0.0,
            accuracy=0.0,
            gradient=nothing,
        )
        """Loss of this part in the last epoch."""
        self._dense: _Dense | None = None
        if settings.get("compute") == "timed":
            return

        self._dense = _Dense(settings, dataset)
        graph_model = WholeGraphModel(settings, dataset)
        self._matrix = graph_model.matrix
        features = dataset.gather(local)
        self._features = features.astype(self._dtype)
        self._trained = TrainingVertices(dataset, local)

    def begin(self, parameters: Array) -> None:
        """Begin an epoch with these parameters."""
        if self._dense is not None:
            self._dense.load(parameters)

    @property
    def gradient(self) -> Array | None:
        """Gradient of the parameters from this part, None where nothing is computed."""
        if self._dense is None:
            return None
        return self._dense.gradient

    def piece(self, stage: str, peer: int) -> Array:
        """Return what goes to a part after a stage: its columns, or its rows."""
        vertices = self._vertices[peer]
        if STAGES[stage].gives_columns:
            vertices = self._vertices[self._rank]
        if self._dense is None:
            shape = (len(vertices), self._slices.width)
            return np.zeros(shape, self._dtype)

        rows = self._made[stage]
        if not STAGES[stage].gives_columns:
            return rows[vertices]
        first, last = self._slices.bounds(peer)
        columns = rows[:, first:last]
        return np.ascontiguousarray(columns)

    def run(self, stage: str, pieces: Mapping[int, Array]) -> None:
        """Carry out a stage on the pieces of all other parts.

        Raises ValueError when one has another shape.
        """
        dense = self._dense
        if dense is None:
            return
        if stage == "dense":
            self._rows = dense.rows_after(self._features)
            rows = self._rows.detach()
            self._made[stage] = self._pad(rows.numpy())
            return

        joined = self._join(stage, pieces)
        of_classes = joined[:, : self._classes]
        if stage == "score":
            self.scored = self._trained.score(of_classes)
            self._made[stage] = self._pad(self.scored.gradient)
        elif stage == "dense_gradient":
            gradient = as_tensor(of_classes.copy())
            self._rows.backward(gradient)
        else:
            matrix = self._matrix
            if stage == "aggregate_gradient":
                matrix = matrix.t()
            self._made[stage] = dense.sum_neighbours(matrix, joined)

    def _join(self, stage: str, pieces: Mapping[int, Array]) -> Array:
        """Return the rows, or the columns, of all parts before a stage."""
        before = STAGES[stage].before
        takes_columns = STAGES[before].gives_columns
        if takes_columns:
            counts = map(len, self._vertices)
            shape = (sum(counts), self._slices.width)
        else:
            local = self._vertices[self._rank]
            shape = (len(local), self._slices.padded)

        joined = np.zeros(shape, self._dtype)
        own_piece = self.piece(before, self._rank)
        for part in range(self.ranks):
            piece = pieces.get(part, own_piece)
            if takes_columns:
                vertices = self._vertices[part]
                joined[vertices] = piece
            else:
                first, last = self._slices.bounds(part)
                joined[:, first:last] = piece
        return joined

    def _pad(self, rows: Array) -> Array:
        """Return rows with columns of zeros, so that all parts have as many."""
        shape = (len(rows), self._slices.padded)
        padded = np.zeros(shape, self._dtype)
        padded[:, : self._classes] = rows
        return padded
