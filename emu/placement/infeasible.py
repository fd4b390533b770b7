"""Why a job does not fit a cluster: the binding resource and the shortfall."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.errors import InfeasiblePlacement
from emu.placement.packing import Packing
from emu.placement.space import Space

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emu.problem import Cluster, Job


def infeasibility(space: Space) -> InfeasiblePlacement:
    """Return the error that names what is missing, for a space known to be too small.

    The first of these that holds, over resources in alphabetical order: pinned tasks
    overload their machine; all tasks together want more than all machines have; one
    unit is larger than the room on any machine; one resource alone cannot be packed.
    Otherwise no single resource is to blame, and the error names those that movable
    tasks demand.
    """
    movable = ", ".join(space.resources[r] for r in _demanded(space))
    return (
        _pinned(space)
        or _total(space)
        or _largest(space)
        or _alone(space)
        or InfeasiblePlacement(
            "the tasks do not fit the cluster: "
            f"{movable} bind together, none of them alone"
        )
    )


def _demanded(space: Space) -> list[int]:
    """Return the resources of which some movable task demands any."""
    return np.flatnonzero(space.demand.any(axis=0)).tolist()


def _pinned(space: Space) -> InfeasiblePlacement | None:
    for _, resource, shortfall, problem in _overloaded(space):
        return InfeasiblePlacement(
            problem, resource=resource, shortfall=shortfall, key="placement.tasks"
        )
    return None


def overload(job: Job, cluster: Cluster) -> Iterator[tuple[str, str, str]]:
    """Yield machine, resource and a sentence wherever pinned tasks alone are too much.

    Raises
    ------
    ValueError
        When a task is pinned to a machine that is not in the cluster.
    """
    for machine, resource, _, problem in _overloaded(Space(job, cluster, apart=True)):
        yield machine, resource, problem


def _overloaded(space: Space) -> Iterator[tuple[str, str, float, str]]:
    for machine, (free, slack) in enumerate(zip(space.free, space.slack, strict=True)):
        name = space.cluster.machines[machine].name
        for r, resource in enumerate(space.resources):
            if free[r] < -slack[r]:
                capacity = space.capacity[machine, r]
                problem = (
                    f"machine {name} has {capacity:g} {resource}, the tasks pinned to "
                    f"it need {space.used[machine, r]:g} ({-free[r]:g} more)"
                )
                yield name, resource, float(-free[r]), problem


def _total(space: Space) -> InfeasiblePlacement | None:
    for r, resource in enumerate(space.resources):
        there = float(space.capacity[:, r].sum())
        asked = float(space.used[:, r].sum() + space.demand[:, r].sum())
        if asked > there * (1 + 1e-12):
            return InfeasiblePlacement(
                f"the tasks need {asked:g} {resource} in total, "
                f"all machines together have {there:g} ({asked - there:g} short)",
                resource=resource,
                shortfall=asked - there,
            )
    return None


def _largest(space: Space) -> InfeasiblePlacement | None:
    if not space.units:
        return None
    for r, resource in enumerate(space.resources):
        unit = int(np.argmax(space.demand[:, r]))
        machine = int(np.argmax(space.free[:, r]))
        asked, there = float(space.demand[unit, r]), float(space.free[machine, r])
        if asked > there + space.slack[machine, r]:
            return InfeasiblePlacement(
                f"{space.units[unit].name} needs {asked:g} {resource}, the roomiest "
                f"machine, {space.cluster.machines[machine].name}, has {there:g} left "
                f"({asked - there:g} short)",
                resource=resource,
                shortfall=asked - there,
            )
    return None


def _alone(space: Space) -> InfeasiblePlacement | None:
    """Blame a resource that could not be packed even if all others were unlimited."""
    for r in _demanded(space):
        resource = space.resources[r]
        asked = space.demand[:, r][space.demand[:, r] > 0]
        amounts, sizes = np.unique(asked, return_counts=True)
        packing = Packing(
            amounts[:, None], tuple(sizes.tolist()), (space.free + space.slack)[:, [r]]
        )
        most = float((packing.reachable() @ amounts).max())
        shortfall = float(asked.sum()) - most
        if shortfall > float(asked.sum()) * 1e-12:
            return InfeasiblePlacement(
                f"of {asked.sum():g} {resource} that the movable tasks need, the "
                f"machines can hold {most:g} at best, in pieces of "
                f"{', '.join(f'{amount:g}' for amount in amounts)} "
                f"({shortfall:g} short)",
                resource=resource,
                shortfall=shortfall,
            )
    return None
