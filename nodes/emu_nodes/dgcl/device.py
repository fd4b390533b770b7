"""State of one device of DGCL: its part, its weights, rows on their way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emu.graph_data import open_parts
from emu.systems.dgcl.plans import gradient_plan, open_plan
from emu.training import PartModel, initial_parameters, make_optimizer
from emu_nodes.all_reduce import share_vector
from emu_nodes.dgcl.routing import Rows, Tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from emu.graph_data import Dataset
    from emu_nodes.program import TaskSpec

    #: (layer, backward, iteration): a pass along the plan.
    Pass = tuple[int, bool, int]


class Device:
    """The state that the tasks of a device share.

    With ``compute: timed`` nothing is learnt and torch is not loaded: rows of layers
    beyond the features are zeros of the right size.

    Parameters
    ----------
    brief
        Of any of its tasks.
    process
        Shared by them.

    Raises
    ------
    DataError
        When the data set, its parts or the plan are missing or damaged.
    """

    def __init__(self, brief: TaskSpec, process: dict[str, Any]) -> None:
        settings = brief.job_settings
        self.rank: int = brief.settings["rank"]
        self.ranks: int = settings["parts"]
        self._process = process
        dataset, whole = open_parts(settings)
        self.part = whole.part(self.rank)
        self.layers: int = settings["model"]["layers"]
        self._hidden: int = settings["model"]["hidden"]
        self._classes = dataset.classes
        self._precision = np.dtype(settings["precision"])
        self._cached: bool = settings["cache_features"]
        self._features = self._own_features(dataset)
        plan = open_plan(settings)
        backward = gradient_plan(plan, atomic=settings["backward"] == "atomic")
        self._tables = {
            False: Tables(self.rank, self.part, plan),
            True: Tables(self.rank, self.part, backward),
        }
        self._rows: dict[Pass, Rows] = {}
        self._parts: dict[tuple[Pass, int], dict[int, NDArray[Any]]] = {}
        self.parameters = initial_parameters(settings, dataset)
        self._optimizer = make_optimizer(settings, self.parameters)
        self._gradient = np.zeros_like(self.parameters)
        self._steps = 0
        self._model: PartModel | None = None
        if settings["compute"] != "timed":
            self._model = self._loaded(settings, dataset)

    def _own_features(self, dataset: Dataset) -> NDArray[Any]:
        part = self.part
        vertices = part.vertices if self._cached else part.local
        return dataset.gather(vertices).astype(self._precision)

    def _loaded(self, settings: Mapping[str, Any], dataset: Dataset) -> PartModel:
        """Load torch and go through all layers once, before the start barrier."""
        model = PartModel(settings, dataset, self.part)
        model.load(self.parameters)
        out = np.zeros((len(self.part.local), self._classes), self._precision)
        for layer in range(self.layers):
            shape = len(self.part.vertices), self._width(layer)
            out = model.forward(layer, np.zeros(shape, self._precision))
        gradient = model.score(out).gradient
        for layer in reversed(range(self.layers)):
            shared = model.backward(layer, gradient)
            if shared is not None:
                gradient = shared[: len(self.part.local)]
        return model

    def _width(self, layer: int) -> int:
        """Return the length of a layer's input rows."""
        return self._hidden if layer else self._features.shape[1]

    def send(self, of: Pass, stage: int, receiver: int) -> NDArray[Any]:
        """Return the rows that go to a receiver in a stage of a pass."""
        return self._rows[of].outgoing(stage, receiver)

    def receive(self, of: Pass, stage: int, sender: int, rows: NDArray[Any]) -> None:
        """Keep what a sender's stage brought: this device may be behind it."""
        self._parts.setdefault((of, stage), {})[sender] = rows.copy()

    def enter(self, of: Pass, stage: int) -> None:
        """Take in what the stage before has brought, or begin with stage 0."""
        layer, backward, _ = of
        if stage > 0:
            parts = self._parts.pop((of, stage - 1), {})
            self._rows[of].take_in(stage - 1, parts, add=backward)
        elif layer == 0:  # features; of other layers, their pass is begun
            self._begin(of, self._features)

    def _begin(self, of: Pass, values: NDArray[Any]) -> None:
        self._rows[of] = Rows(self._tables[of[1]], values)

    def gathered(self, layer: int, iteration: int) -> NDArray[Any]:
        """Return the input rows of a layer: of local, then of remote vertices."""
        if layer == 0 and self._cached:
            return self._features
        rows = self._rows.pop((layer, False, iteration), None)
        if rows is None:  # nobody gathers features on one device
            return self._features
        return rows.values[: len(self.part.vertices)]

    def forward(self, layer: int, iteration: int) -> dict[str, float]:
        """Compute a layer; after the last one its gradient, and return figures."""
        if layer == 0:
            self._step(iteration)
        rows = self.gathered(layer, iteration)
        last = layer == self.layers - 1
        width = self._classes if last else self._hidden
        if self._model is None:
            out = np.zeros((len(self.part.local), width), self._precision)
        else:
            out = self._model.forward(layer, rows)
        if not last:
            self._begin((layer + 1, False, iteration), out)
            return {}
        if self._model is None:
            self._backward(layer, iteration, out)
            return {}
        scored = self._model.score(out)
        self._backward(layer, iteration, scored.gradient)
        return {
            "loss": scored.loss * self.ranks,
            "accuracy": scored.accuracy * self.ranks,
        }

    def _step(self, epochs: int) -> None:
        """Step with the sum of all devices' gradients of the epochs before."""
        if self._model is None:
            return
        for _ in range(self._steps, epochs):
            self._optimizer.step(self._gradient)
            self._steps += 1
        self._model.load(self.parameters)

    def backward(self, layer: int, iteration: int) -> None:
        """Go back through a layer, whose gradient all consumers have sent."""
        rows = self._rows.pop((layer + 1, True, iteration))
        self._backward(layer, iteration, rows.values[: len(self.part.local)])

    def _backward(self, layer: int, iteration: int, gradient: NDArray[Any]) -> None:
        if self._model is not None:
            shares = self._model.backward(layer, gradient)
        else:
            shape = len(self.part.vertices), self._width(layer)
            shares = np.zeros(shape, self._precision)
        if layer > 0 and shares is not None:
            self._begin((layer, True, iteration), shares)
            return
        if self._model is not None:
            self._gradient = self._model.gradient.copy()
        if self.ranks > 1:
            name = f"w{self.rank}"
            share_vector(self._process, name, self._gradient, iteration)

    def finish(self, epochs: int) -> NDArray[Any]:
        """Return the parameters after the step of every epoch."""
        self._step(epochs)
        return self.parameters
