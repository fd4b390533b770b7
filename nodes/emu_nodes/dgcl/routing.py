"""Rows of a device while a gather, or its backward pass, brings them along a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import NodeMisbehaved

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from emu.graph_data import Part

    #: Stage, sender, receiver, vertices in ascending order.
    Transfer = tuple[int, int, int, NDArray[np.int64]]


class Tables:
    """A device's tables of a plan: which of its rows it sends, which it gets.

    Its rows are those of its part, then of vertices that it only relays.

    Parameters
    ----------
    transfers
        Of the whole plan.
    """

    def __init__(self, rank: int, part: Part, transfers: Iterable[Transfer]) -> None:
        mine = [one for one in transfers if rank in one[1:3]]
        passing = [vertices for *_, vertices in mine]
        every = np.unique(np.concatenate([part.local[:0], *passing]))
        relayed = np.setdiff1d(every, part.vertices)
        vertices = np.concatenate([part.vertices, relayed])
        order = np.argsort(vertices)
        self.rows = len(vertices)
        self._rank = rank
        self._sent: dict[tuple[int, int], NDArray[np.intp]] = {}
        self._received: dict[int, list[tuple[int, NDArray[np.intp]]]] = {}
        for stage, sender, receiver, wanted in mine:
            at = order[np.searchsorted(vertices[order], wanted)]
            if sender == rank:
                self._sent[stage, receiver] = at
            else:
                self._received.setdefault(stage, []).append((sender, at))

    def sent(self, stage: int, receiver: int) -> NDArray[np.intp]:
        """Return the rows that go to a receiver in a stage, ascending by vertex."""
        return self._sent[stage, receiver]

    def received(self, stage: int) -> list[tuple[int, NDArray[np.intp]]]:
        """Return (sender, rows) of a stage, senders in ascending order."""
        return sorted(self._received.get(stage, []), key=lambda one: one[0])


class Rows:
    """Values of a device's rows in one pass of one layer.

    Parameters
    ----------
    values
        Of its first rows; what the others hold at first is 0.
    """

    def __init__(self, tables: Tables, values: NDArray[Any]) -> None:
        self._tables = tables
        self.values = np.zeros((tables.rows, values.shape[1]), values.dtype)
        self.values[: len(values)] = values

    def outgoing(self, stage: int, receiver: int) -> NDArray[Any]:
        """Return a copy of the rows that go to a receiver in a stage."""
        return self.values[self._tables.sent(stage, receiver)]

    def take_in(self, stage: int, parts: dict[int, NDArray[Any]], *, add: bool) -> None:
        """Take in what a stage brought, in ascending order of the senders.

        So sums of gradients have one order, whoever was first.

        Parameters
        ----------
        parts
            Rows by sender.
        add
            Add to what is there, else replace it.

        Raises
        ------
        NodeMisbehaved
            When a sender's rows are missing, or of another shape.
        """
        for sender, at in self._tables.received(stage):
            expected = len(at), self.values.shape[1]
            found = parts.get(sender)
            if found is None or found.shape != expected:
                shape = "nothing" if found is None else f"rows of shape {found.shape}"
                raise NodeMisbehaved(
                    f"device {sender} sent {shape} in stage {stage}, not {expected}"
                )
            if add:
                self.values[at] += found
            else:
                self.values[at] = found
