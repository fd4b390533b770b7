"""Edges of a job, and their columns, made once for all jobs of the same edges.

A command that asks what would help makes hundreds of jobs which differ in their
iterations, pins and demands, and share a tuple of edges.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from emu.array_types import Ints, Mask

#: Positions of tasks.
Tasks: TypeAlias = tuple[int, ...]
Names: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Edge:
    """A dependency of ``destination`` on ``source``, positions in ``Job.tasks``."""

    source: int
    destination: int
    lag: int = 0
    """(destination, n) needs (source, n - lag), if there is one; 0 or more."""
    # The paper lets stores run ahead without bound, real systems do not (A1).
    credit: bool = False
    """True for an edge that bounds run-ahead and carries no bytes, ever: no connection
    is opened for it and it is satisfied the moment its source ends."""
    channel: str = ""
    """Its flows go one after the other with those of all edges of this channel, in the
    order in which they got ready; empty for none. What is handed over within a machine,
    and order alone, waits for no channel."""
    latest: bool = False
    """True where the destination reads the newest iteration that has arrived when it
    starts, n - lag at the least, instead of n - lag itself."""
    coflow: str = ""
    """Its flows that serve one iteration are a coflow with those of all edges of this
    name; empty: with all to the same task that have none."""


class EdgeColumns:
    """Edges as arrays, by position; what follows from them alone is kept.

    Attributes
    ----------
    edges
        The edges.
    source, destination, lag
        As of `Edge`, int64.
    fitting
        Tasks of the last job that was checked with these edges; None before.
    """

    def __init__(self, edges: tuple[Edge, ...]) -> None:
        sources = [edge.source for edge in edges]
        destinations = [edge.destination for edge in edges]
        lags = [edge.lag for edge in edges]
        self.edges = edges
        self.fitting: tuple[Any, ...] | None = None
        self.source = np.array(sources, np.int64)
        self.destination = np.array(destinations, np.int64)
        self.lag = np.array(lags, np.int64)
        self._orders: dict[int, Tasks] = {}
        self._ranked: tuple[list[int], Ints] | None = None

    @cached_property
    def credit(self) -> Mask:
        """True for every credit."""
        marks = [edge.credit for edge in self.edges]
        return np.array(marks, np.bool_)

    @cached_property
    def latest(self) -> Mask:
        """True for every edge whose newest iteration is read."""
        marks = [edge.latest for edge in self.edges]
        return np.array(marks, np.bool_)

    @cached_property
    def channels(self) -> Names:
        """Names of the channels, in the order of the edges."""
        return _distinct(edge.channel for edge in self.edges)

    @cached_property
    def coflows(self) -> Names:
        """Names of the coflows, in the order of the edges."""
        return _distinct(edge.coflow for edge in self.edges)

    def order(self, tasks: int) -> Tasks:
        """Return so many tasks, each behind its sources without lag, see `Job.order`.

        Tasks in a cycle, and behind one, are left out.
        """
        order = self._orders.get(tasks)
        if order is None:
            order = self._find_order(tasks)
            self._orders[tasks] = order
        return order

    def _find_order(self, tasks: int) -> Tasks:
        is_prompt = self.lag == 0
        sources = self.source[is_prompt]
        destinations = self.destination[is_prompt]
        followers: list[list[int]] = [[] for _ in range(tasks)]
        pairs = zip(sources.tolist(), destinations.tolist(), strict=True)
        for source, destination in pairs:
            followers[source].append(destination)

        counts = np.bincount(destinations, minlength=tasks)
        waiting = counts.tolist()
        free = np.flatnonzero(counts == 0).tolist()
        for task in free:  # grows while it is walked: Kahn's algorithm
            for follower in followers[task]:
                waiting[follower] -= 1
                if waiting[follower] == 0:
                    free.append(follower)
        return tuple(free)

    def ranks(self, places: list[int]) -> Ints:
        """Return the place of every edge by that of its destination, then its source.

        ``places``: of every task, equal where names are read alike. Edges between the
        same two go by lag, then in their order.
        """
        if self._ranked is not None:
            known_places, ranks = self._ranked
            if known_places == places:
                return ranks

        place = np.array(places, np.int64)
        reader = place[self.destination]
        sender = place[self.source]
        # The last key is the first by which they go; `lexsort` is stable.
        keys = (self.lag, sender, reader)
        order = np.lexsort(keys)
        count = len(order)
        ranks = np.empty(count, np.int64)
        ranks[order] = np.arange(count)
        self._ranked = places, ranks
        return ranks


def _distinct(names: Iterable[str]) -> Names:
    # A dict and no set: numbers of channels go by the order of the edges.
    distinct = dict.fromkeys(names)
    distinct.pop("", None)
    return tuple(distinct)


#: Columns by the address of their edges, which they keep: as long as a job has them.
_known: weakref.WeakValueDictionary[int, EdgeColumns] = weakref.WeakValueDictionary()


def columns_of(edges: tuple[Edge, ...]) -> EdgeColumns:
    """Return the columns of these very edges, those that another job has if any."""
    columns = _known.get(id(edges))
    if columns is None:
        columns = EdgeColumns(edges)
        _known[id(edges)] = columns
    return columns
