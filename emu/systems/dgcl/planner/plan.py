"""Plans: tables of rows per stage, sender and receiver, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from emu.systems.dgcl.planner.needs import Needs
    from emu.systems.dgcl.planner.topology import Topology


class PlanError(ValueError):
    """A plan that does not bring every row to who needs it."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Rows that every device sends to every other in every stage."""

    devices: int
    """Number of devices."""
    transfers: NDArray[np.int32]
    """(Stage, sender, receiver), ascending, each once; shape (transfers, 3)."""
    bounds: NDArray[np.int64]
    """Rows of transfer i are ``rows[bounds[i]:bounds[i + 1]]``."""
    rows: NDArray[np.int64]
    """Vertices, ascending within a transfer."""

    @property
    def stages(self) -> int:
        """Number of stages."""
        return int(self.transfers[-1, 0]) + 1 if len(self.transfers) else 0

    def __iter__(self) -> Iterator[tuple[int, int, int, NDArray[np.int64]]]:
        """Yield (stage, sender, receiver, vertices) of every transfer."""
        for number, (stage, sender, receiver) in enumerate(self.transfers.tolist()):
            begin, end = self.bounds[number : number + 2]
            yield stage, sender, receiver, self.rows[begin:end]

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Rows of every transfer."""
        return np.diff(self.bounds)

    def load(self, topology: Topology) -> NDArray[np.int64]:
        """Return the rows that cross each link in each stage; (stages, links).

        Raises
        ------
        PlanError
            When a transfer joins devices that no route joins.
        """
        load = np.zeros((self.stages, len(topology.links)), np.int64)
        for (stage, *pair), rows in zip(
            self.transfers.tolist(), self.counts.tolist(), strict=True
        ):
            if (links := topology.routes.get((pair[0], pair[1]))) is None:
                raise PlanError(f"no link leads from {pair[0]} to {pair[1]}")
            load[stage, list(links)] += rows
        return load

    def stage_times(self, topology: Topology) -> NDArray[np.float64]:
        """Return the seconds of each stage: of its slowest link, a row being 1."""
        busy: NDArray[np.float64] = self.load(topology) / topology.capacities
        longest: NDArray[np.float64] = busy.max(axis=1, initial=0.0)
        return longest

    def cost(self, topology: Topology) -> float:
        """Return t(S), the sum over the stages (DGCL, equation 4), a row being 1."""
        return float(self.stage_times(topology).sum())

    def reversed(self, *, atomic: bool) -> Plan:
        """Return the plan of the gradients: last stage first, receivers send.

        Parameters
        ----------
        atomic
            A device sums what several send it in one stage. Otherwise the l-th sender
            of a vertex sends in the l-th part of the stage, so that each has one writer
            at a time (section 6.2).
        """
        found: list[tuple[int, int, int, NDArray[np.int64]]] = []
        last, stage = self.stages - 1, 0
        for number in range(self.stages):
            within = self.transfers[:, 0] == last - number
            parts = self._by_writer(np.flatnonzero(within), atomic=atomic)
            for part, sender, receiver, rows in parts:
                found.append((stage + part, sender, receiver, rows))
            stage += 1 + max(part for part, *_ in parts)
        found.sort(key=lambda one: one[:3])
        return plan_of(self.devices, found)

    def _by_writer(
        self, numbers: NDArray[np.intp], *, atomic: bool
    ) -> list[tuple[int, int, int, NDArray[np.int64]]]:
        """Return (part of the stage, sender, receiver, vertices) of gradients."""
        found: list[tuple[int, int, int, NDArray[np.int64]]] = []
        written: dict[int, list[NDArray[np.int64]]] = {}
        for number in numbers.tolist():
            _, receiver, sender = self.transfers[number].tolist()
            rows = self.rows[self.bounds[number] : self.bounds[number + 1]]
            if atomic:
                found.append((0, sender, receiver, rows))
                continue
            parts = written.setdefault(receiver, [])
            for part in range(len(parts) + 1):
                if part == len(parts):
                    parts.append(rows[:0])
                taken = np.isin(rows, parts[part], assume_unique=True)
                if (free := rows[~taken]).size:
                    found.append((part, sender, receiver, free))
                    parts[part] = np.concatenate([parts[part], free])
                if not (rows := rows[taken]).size:
                    break
        return found


def plan_of(
    devices: int, transfers: list[tuple[int, int, int, NDArray[np.int64]]]
) -> Plan:
    """Return the plan of (stage, sender, receiver, vertices), in ascending order."""
    keys = np.array([one[:3] for one in transfers], np.int32).reshape(-1, 3)
    tables = [one[3] for one in transfers]
    bounds = np.cumsum([0, *map(len, tables)], dtype=np.int64)
    return Plan(devices, keys, bounds, np.concatenate([*tables, np.empty(0, np.int64)]))


def peer_to_peer(needs: Needs, devices: int) -> Plan:
    """Return the plan of one stage in which every owner sends to every reader."""
    found: list[tuple[int, int, int, NDArray[np.int64]]] = []
    for owner in range(devices):
        mine = needs.owners == owner
        vertices, readers = needs.vertices[mine], needs.readers[mine]
        found += [
            (0, owner, reader, vertices[readers >> reader & 1 == 1])
            for reader in range(devices)
            if (readers >> reader & 1).any()
        ]
    return plan_of(devices, found)


def swap(needs: Needs, host: int) -> Plan:
    """Return the plan of NeuGraph's swap: all rows to a host, and those needed back.

    Parameters
    ----------
    needs
        As `Needs.swapped` returns them.
    """
    up = peer_to_peer(replace(needs, readers=needs.readers & 1 << host), host + 1)
    others = needs.readers & ~(1 << host)
    down = [
        (1, host, reader, needs.vertices[others >> reader & 1 == 1])
        for reader in range(host)
    ]
    found = [(stage, *ends, rows) for stage, *ends, rows in (*up, *down) if len(rows)]
    return plan_of(host + 1, found)


def check_plan(plan: Plan, needs: Needs, topology: Topology) -> None:
    """Check that every row travels along a tree from its owner to all its readers.

    Raises
    ------
    PlanError
        When a table is not in order, a row is sent by a device that has it from another
        stage than the one before or not at all, comes twice or to its owner, travels
        where no route leads, or does not come to a reader.
    """
    plan.load(topology)
    order = np.lexsort(plan.transfers.T[::-1])
    if (order != np.arange(len(order))).any() or (
        len(np.unique(plan.transfers, axis=0)) != len(order)
    ):
        raise PlanError("transfers are not in ascending order, or one occurs twice")
    known = np.unique(needs.vertices)
    depth = np.full((len(known), plan.devices), -1, np.int8)
    depth[np.searchsorted(known, needs.vertices), needs.owners] = 0
    for transfer in plan:
        _follow(depth, known, transfer)
    at = np.searchsorted(known, needs.vertices)
    for reader in range(plan.devices):
        wanted = needs.readers >> reader & 1 == 1
        missing = wanted & (depth[at, reader] < 0)
        if missing.any():
            vertex = needs.vertices[np.flatnonzero(missing)[0]]
            raise PlanError(f"vertex {vertex} does not come to device {reader}")


def _follow(
    depth: NDArray[np.int8],
    known: NDArray[np.int64],
    transfer: tuple[int, int, int, NDArray[np.int64]],
) -> None:
    """Enter the rows of a transfer into ``depth``: links from each row's owner."""
    stage, sender, receiver, rows = transfer
    where = f"stage {stage}, {sender} to {receiver}"
    if not rows.size or (np.diff(rows) <= 0).any():
        raise PlanError(f"{where}: vertices are none or not ascending")
    at = np.minimum(np.searchsorted(known, rows), len(known) - 1)
    if not len(known) or (known[at] != rows).any():
        raise PlanError(f"{where}: a vertex that no device needs")
    if (wrong := depth[at, sender] != stage).any():
        row = int(np.flatnonzero(wrong)[0])
        had = int(depth[at[row], sender])
        found = "does not have" if had < 0 else f"has since stage {had} and not {stage}"
        raise PlanError(f"{where}: {sender} {found} vertex {rows[row]}")
    if (again := depth[at, receiver] >= 0).any():
        row = rows[np.flatnonzero(again)[0]]
        raise PlanError(f"{where}: vertex {row} comes to {receiver} again")
    depth[at, receiver] = stage + 1
