"""The links between devices, as a planner reads them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

#: Sets of devices are bits of an int64.
MOST_DEVICES = 62


@dataclass(frozen=True, eq=False)
class Topology:
    """Links, and those that rows cross between every two devices.

    Raises
    ------
    ValueError
        When there are no or too many devices, a capacity is not positive and finite, a
        route crosses an unknown link, or joins a device to itself.
    """

    devices: int
    """Number of devices."""
    links: tuple[str, ...]
    """Names."""
    capacities: NDArray[np.float64]
    """Rows, or bytes, per second of each link; shape (links,)."""
    routes: Mapping[tuple[int, int], Sequence[int]]
    """(Sender, receiver) -> positions of links; a pair that is absent is not joined."""

    def __post_init__(self) -> None:
        if not 1 <= self.devices <= MOST_DEVICES:
            raise ValueError(
                f"{self.devices} devices: a plan has 1 to {MOST_DEVICES} of them"
            )
        for name, capacity in zip(self.links, self.capacities, strict=True):
            if not (np.isfinite(capacity) and capacity > 0):
                raise ValueError(
                    f"link {name}: capacity {capacity} is not positive and finite"
                )
        for (sender, receiver), links in self.routes.items():
            ends = {sender, receiver}
            if len(ends) < 2 or not ends <= {*range(self.devices)}:
                raise ValueError(f"no route leads from {sender} to {receiver}")
            if not links or not {*links} <= {*range(len(self.links))}:
                raise ValueError(f"route {sender} to {receiver}: no links {links}")

    @cached_property
    def starts(self) -> NDArray[np.int32]:
        """Where the links of pair ``sender * devices + receiver`` begin in `crossed`.

        int32, shape (devices ** 2 + 1,); a pair that is not joined has none.
        """
        counts = [len(self.routes.get(pair, ())) for pair in self._pairs()]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)

    @cached_property
    def crossed(self) -> NDArray[np.int32]:
        """Links of all pairs, flat; int32."""
        flat = [link for pair in self._pairs() for link in self.routes.get(pair, ())]
        return np.array(flat, np.int32)

    @cached_property
    def row_times(self) -> NDArray[np.float64]:
        """Time of a row on each link over that on the fastest; shape (links,)."""
        return self.fastest / self.capacities

    @property
    def fastest(self) -> float:
        """Capacity of the widest link."""
        return float(self.capacities.max(initial=1.0, where=self.capacities > 0))

    @cached_property
    def reachable(self) -> NDArray[np.bool_]:
        """True where a device reaches another over any number of links."""
        joined = np.eye(self.devices, dtype=bool)
        for pair in self.routes:
            joined[pair] = True
        for middle in range(self.devices):
            joined |= np.outer(joined[:, middle], joined[middle])
        return joined

    def within(self, boxes: Sequence[int]) -> Topology:
        """Return the topology without routes between boxes of consecutive devices."""
        box = np.repeat(np.arange(len(boxes)), boxes)
        kept = {
            pair: to for pair, to in self.routes.items() if len({*box[[*pair]]}) < 2
        }
        return replace(self, routes=kept)

    def _pairs(self) -> itertools.product[tuple[int, int]]:
        return itertools.product(range(self.devices), range(self.devices))
