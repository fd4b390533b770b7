"""Gradients and looks at batches, as programs of DGTP that train have them."""

from __future__ import annotations

import numpy as np

from emu.errors import NodeMisbehaved
from emu.graph_data import sample_neighbours
from emu.graph_data.sampling import Ids
from emu.training import (
    GraphModel,
    MiniBatch,
    OwnModel,
    build_model,
    initial_parameters,
)
from emu_nodes.dgtp.job_data import JobData, edges_to
from emu_nodes.program import Array, Inputs, Shared, TaskProgram, TaskSpec

#: Rows of every message of a store that are compared with the data set. They are drawn
#: by entropy of the receiver's own, which no sender knows: a fault in a share q of the
#: rows is found in n messages with probability 1 - (1 - q)^(8 n), q = 1/2 in the first
#: with 0.996. Rows at fixed places let a fault in every other row pass.
LOOKED_AT = 8


class Trainer(TaskProgram):
    """Computes gradients on the mini-batches of the samplers.

    With ``compute: timed`` nothing is learnt, torch is not even loaded: gradients are
    zeros of the right size, and no loss is reported. Batches are looked at instead.
    """

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        settings = brief.job_settings
        self._data = JobData(brief, process)
        dataset = self._data.dataset
        self._samplers = edges_to("sampler", brief.inputs)
        self._layers: int = settings["model"]["layers"]
        self._parameters = initial_parameters(settings, dataset)
        self._worker: int = brief.settings["worker"]
        self._first_sampler = self._worker * settings["samplers_per_worker"]
        self._entropy = np.random.default_rng()
        self._model: GraphModel | OwnModel | None = None
        if settings["compute"] == "timed":
            # Opens every array that a look needs before the start barrier.
            seeds = dataset.train[:1]
            stream = np.uint64(0)
            self._draw_neighbours(seeds[0], hop=1, stream=stream)
            dataset.look_at(seeds)
            _ = dataset.labels
        else:
            self._model = build_model(settings, dataset)
            if isinstance(self._model, GraphModel):  # a user's was tried out before
                self._model.warm_up_scheduler()

    def gradient(self, iteration: int, inputs: Inputs) -> Array:
        """Return the gradient of the mean loss over all mini-batches."""
        batches = []
        for sampler in self._samplers:
            tensors = inputs[sampler.edge]
            try:
                batch = MiniBatch.from_tensors(tensors, self._layers)
            except ValueError as error:
                raise NodeMisbehaved(f"{sampler.peer}: {error}") from error
            batches.append(batch)

        if self._model is None:
            for number, batch in enumerate(batches):
                self._compare(number, iteration, batch)
            return np.zeros_like(self._parameters)

        model = self._model
        model.load(self._parameters)
        gradient, loss, accuracy = model.gradient(batches, self._worker, iteration)
        self._figures = {"loss": loss, "accuracy": accuracy}
        return gradient

    def _compare(self, number: int, iteration: int, batch: MiniBatch) -> None:
        """Hold some seeds of a batch, with edges below them, against the data set.

        As `LOOKED_AT` rows of a store. What is learnt would show other labels and
        edges, but with ``timed`` nothing is learnt.
        """
        sender = self._samplers[number]
        sampler = self._first_sampler + number
        # By entropy of its own: no sender knows which seeds are looked at.
        count = len(batch.labels)
        seeds = self._entropy.integers(count, size=LOOKED_AT)
        for seed in seeds.tolist():
            is_drawn = self._follow(
                sampler=sampler,
                iteration=iteration,
                seed=seed,
                batch=batch,
            )
            if not is_drawn:
                raise NodeMisbehaved(
                    f"{sender.peer} sent {self._brief.name} other labels, edges or "
                    f"features below seed {seed} than it draws in iteration {iteration}"
                )

    def _follow(
        self,
        sampler: int,
        iteration: int,
        seed: int,
        batch: MiniBatch,
    ) -> bool:
        """Return whether a batch has a seed's label, and a path from it to features.

        ``seed`` is the seed's position among those of the batch.
        """
        dataset = self._data.dataset
        seeds = self._data.seeds(sampler, iteration)
        vertex = seeds[seed]
        if batch.labels[seed] != dataset.labels[vertex]:
            return False

        stream = self._data.plan.stream(sampler, iteration)
        position = seed
        blocks = reversed(batch.edges)  # from the seeds on
        for hop, (source, destination) in enumerate(blocks, start=1):
            neighbours = self._draw_neighbours(vertex, hop, stream)
            bounds = [position, position + 1]
            first, last = np.searchsorted(destination, bounds)
            if last - first != len(neighbours):
                return False
            if len(neighbours):  # else it stays: a block's sources begin with its ends
                step = int(self._entropy.integers(len(neighbours)))
                vertex = neighbours[step]
                edge = first + step
                position = int(source[edge])

        vertices = np.array([vertex])
        (features,) = dataset.look_at(vertices)
        features = features.astype(self._data.feature_type)
        return np.array_equal(batch.features[position], features)

    def _draw_neighbours(self, vertex: np.int64, hop: int, stream: np.uint64) -> Ids:
        sources, _ = sample_neighbours(
            self._data.dataset.structure,
            np.array([vertex], np.int64),
            fanout=self._data.plan.hop_fanout(hop),
            stream=stream,
            hop=hop,
        )
        return sources
