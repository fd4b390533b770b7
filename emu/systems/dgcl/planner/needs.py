"""Rows that devices need of one another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from emu.systems.dgcl.planner.topology import Topology


@dataclass(frozen=True, eq=False)
class Needs:
    """Vertices that a device has and others need, in ascending order.

    A vertex that is held on both of two islands of devices occurs once for each.

    Raises
    ------
    ValueError
        When lengths differ, vertices are not ascending, or one is not needed.
    """

    vertices: NDArray[np.int64]
    """int64, shape (rows,)."""
    owners: NDArray[np.int32]
    """Device that has each."""
    readers: NDArray[np.int64]
    """Set of devices that need each, bit by bit."""

    def __post_init__(self) -> None:
        if not len(self.vertices) == len(self.owners) == len(self.readers):
            raise ValueError("vertices, owners and readers differ in length")
        if (np.diff(self.vertices) < 0).any():
            raise ValueError("vertices are not in ascending order")
        own = self.readers >> self.owners.astype(np.int64) & 1
        if (self.readers <= 0).any() or own.any():
            raise ValueError("a vertex has no reader, or its owner among them")

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.vertices)

    @property
    def pairs(self) -> int:
        """Number of (vertex, reader) pairs."""
        return int(np.bitwise_count(self.readers).sum())

    @classmethod
    def of_parts(
        cls, remote: Sequence[NDArray[np.int64]], owners: Sequence[NDArray[np.int32]]
    ) -> Needs:
        """Return the needs of parts: device i needs ``remote[i]`` of ``owners[i]``.

        Raises
        ------
        ValueError
            When two parts disagree on the owner of a vertex, or one owns what it needs.
        """
        vertices = np.concatenate([*remote, np.empty(0, np.int64)])
        held = np.concatenate([*owners, np.empty(0, np.int32)])
        reader = np.repeat(np.arange(len(remote)), [len(some) for some in remote])
        order = np.argsort(vertices, kind="stable")
        vertices, held, reader = vertices[order], held[order], reader[order]
        first = np.flatnonzero(np.diff(vertices, prepend=-1))
        if not len(first):
            return cls(vertices, held.astype(np.int32), vertices)
        counts = np.diff(first, append=len(vertices))
        if (np.repeat(held[first], counts) != held).any():
            raise ValueError("two parts disagree on the owner of a vertex")
        readers = np.bitwise_or.reduceat(np.int64(1) << reader.astype(np.int64), first)
        return cls(vertices[first], held[first].astype(np.int32), readers)

    @classmethod
    def joined(cls, some: Sequence[Needs]) -> Needs:
        """Return the needs of several islands of devices as one."""
        vertices = np.concatenate([one.vertices for one in some])
        order = np.argsort(vertices, kind="stable")
        return cls(
            vertices[order],
            np.concatenate([one.owners for one in some])[order],
            np.concatenate([one.readers for one in some])[order],
        )

    def swapped(self, local: Sequence[NDArray[np.int64]]) -> Needs:
        """Return the needs where a host, device ``len(local)``, gets all local rows."""
        vertices = np.concatenate(local)
        order = np.argsort(vertices)
        held = np.repeat(np.arange(len(local), dtype=np.int32), [*map(len, local)])
        readers = np.full(len(vertices), np.int64(1) << len(local))
        readers[np.searchsorted(vertices[order], self.vertices)] |= self.readers
        return Needs(vertices[order], held[order], readers)

    def moved(self, device_of: Sequence[int]) -> Needs:
        """Return the needs with the part of device i on ``device_of[i]``."""
        readers = np.zeros_like(self.readers)
        for old, new in enumerate(device_of):
            readers |= (self.readers >> old & 1) << new
        owners = np.asarray(device_of, np.int32)[self.owners]
        return Needs(self.vertices, owners, readers)

    def unreachable(self, topology: Topology) -> tuple[int, int] | None:
        """Return (owner, reader) of a row that cannot get there; None: all can."""
        missing = ~topology.reachable
        for owner in range(topology.devices):
            bits = int(sum(1 << int(d) for d in np.flatnonzero(missing[owner])))
            cut_off = self.readers[self.owners == owner] & bits
            if cut_off.any():
                lost = int(cut_off[np.flatnonzero(cut_off)[0]])
                return owner, (lost & -lost).bit_length() - 1
        return None
