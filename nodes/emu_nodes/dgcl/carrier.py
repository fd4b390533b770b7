"""Rows on their way through one machine: what it gets and sends, stage by stage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.errors import NodeMisbehaved
from emu.graph_data import Adjacency, Part, open_layers
from emu.systems.dgcl.plans import gradient_plan, open_plans
from emu_nodes.program import TaskSpec

#: Stage, sender, receiver, vertices in ascending order.
Transfer = tuple[int, int, int, NDArray[np.int64]]

#: (layer, backward, iteration): a pass along the plan.
Pass = tuple[int, bool, int]


class Tables:
    """A device's tables of a plan: which of its rows it sends, which it gets.

    Its rows are those of its part, then of vertices that it only relays.
    """

    def __init__(self, rank: int, part: Part, transfers: Iterable[Transfer]) -> None:
        mine = [one for one in transfers if rank in one[1:3]]
        passing = [vertices for *_, vertices in mine]
        every = np.unique(np.concatenate([part.local[:0], *passing]))
        # Rows that pass through go last, so that those of the part keep their places.
        relays = np.setdiff1d(every, part.vertices)
        vertices = np.concatenate([part.vertices, relays])
        order = np.argsort(vertices)
        self.rows = len(vertices)
        self._rank = rank
        #: Rows that go to a receiver in a stage, ascending by vertex.
        self.sent: dict[tuple[int, int], NDArray[np.intp]] = {}
        self._received: dict[int, list[tuple[int, NDArray[np.intp]]]] = {}
        for stage, sender, receiver, rows in mine:
            at = order[np.searchsorted(vertices[order], rows)]
            if sender == rank:
                self.sent[stage, receiver] = at
            else:
                self._received.setdefault(stage, []).append((sender, at))

    def rows_from(self, stage: int) -> list[tuple[int, NDArray[np.intp]]]:
        """Return (sender, rows) of a stage, senders in ascending order."""
        return sorted(self._received.get(stage, []), key=lambda one: one[0])


class Rows:
    """Values of a device's rows in one pass of one layer.

    Beyond the first rows, whose values are given, they hold 0.
    """

    def __init__(self, tables: Tables, values: NDArray[Any]) -> None:
        self._tables = tables
        self.values = np.zeros((tables.rows, values.shape[1]), values.dtype)
        self.values[: len(values)] = values

    def outgoing(self, stage: int, receiver: int) -> NDArray[Any]:
        """Return a copy of the rows that go to a receiver in a stage."""
        return self.values[self._tables.sent[stage, receiver]]

    def take_in(self, stage: int, parts: dict[int, NDArray[Any]], *, add: bool) -> None:
        """Take in what a stage brought, in ascending order of the senders.

        So sums of gradients have one order, whoever was first.

        Rows are by sender; they are added to what is there, or replace it.

        Raises NodeMisbehaved when a sender's rows are missing, or of another shape.
        """
        for sender, at in self._tables.rows_from(stage):
            expected = len(at), self.values.shape[1]
            rows = parts.get(sender)
            if rows is None or rows.shape != expected:
                shape = "nothing" if rows is None else f"rows of shape {rows.shape}"
                raise NodeMisbehaved(
                    f"device {sender} sent {shape} in stage {stage}, not {expected}"
                )
            if add:
                self.values[at] += rows
            else:
                self.values[at] = rows


class Carrier:
    """Rows of all passes, and what was received for them.

    Raises DataError when the data set, its parts or the plans are missing or damaged.
    """

    def __init__(self, brief: TaskSpec) -> None:
        settings = brief.job_settings
        self.rank: int = brief.settings["rank"]
        self.ranks: int = settings["parts"]
        self._dataset, graphs = open_layers(settings)
        holds = self.rank < self.ranks
        none, few = np.empty(0, np.int64), np.empty(0, np.int32)
        empty = Adjacency(np.zeros(1, np.int64), few, np.empty(0))
        nothing = Part(none, none, few, empty, empty)
        self.parts = [g.part(self.rank) if holds else nothing for g in graphs]
        self.layers = len(graphs)
        self._hidden: int = settings["model"]["hidden"]
        self._precision = np.dtype(settings["precision"])
        atomic = settings["backward"] == "atomic"
        self._plans = {
            (layer, backward): gradient_plan(p, atomic=atomic) if backward else p
            for layer, p in enumerate(open_plans(settings))
            for backward in (False, True)
        }
        self._tables = {
            key: Tables(self.rank, self.parts[key[0]], plan)
            for key, plan in self._plans.items()
        }
        self._rows: dict[Pass, Rows] = {}
        self._arrived: dict[tuple[Pass, int], dict[int, NDArray[Any]]] = {}

    def _width(self, layer: int) -> int:
        """Return the length of a layer's input rows."""
        return self._hidden if layer else self._dataset.feature_length

    def send(self, of: Pass, stage: int, receiver: int) -> NDArray[Any]:
        """Return the rows that go to a receiver in a stage of a pass."""
        return self._rows[of].outgoing(stage, receiver)

    def receive(self, of: Pass, stage: int, sender: int, rows: NDArray[Any]) -> None:
        """Keep what a sender's stage brought: this machine may be behind it."""
        self._arrived.setdefault((of, stage), {})[sender] = rows.copy()

    def enter(self, of: Pass, stage: int) -> None:
        """Take in what the stage before has brought."""
        if stage > 0:
            arrivals = self._arrived.pop((of, stage - 1), {})
            self._rows[of].take_in(stage - 1, arrivals, add=of[1])

    def _begin(self, of: Pass, values: NDArray[Any]) -> None:
        layer, backward, _ = of
        self._rows[of] = Rows(self._tables[layer, backward], values)


class Host(Carrier):
    """A machine that has no vertices and keeps rows for others."""

    @override
    def enter(self, of: Pass, stage: int) -> None:
        """Begin with nothing, and forget the rows after the last stage."""
        layer, backward, _ = of
        if of not in self._rows:
            self._begin(of, np.zeros((0, self._width(layer)), self._precision))
        super().enter(of, stage)
        if stage == self._plans[layer, backward].stages:
            del self._rows[of]
