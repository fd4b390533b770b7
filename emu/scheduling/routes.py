"""Routes as flat arrays: the ports that flows between two machines cross."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from emu.problem.links import IN, OUT
from emu.scheduling.compiled import inlined

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


class Routes(NamedTuple):
    """The route between every two machines, as in `emu.problem.Links`."""

    nic: Ints
    zone: Ints
    route_of: Ints
    route_start: Ints
    route_port: Ints


@inlined
def route_between(routes: Routes, source: int, destination: int) -> tuple[int, int]:
    """Return where the route between two machines begins and ends in ``route_port``.

    Nowhere within a machine.
    """
    if source == destination:
        return 0, 0
    route = routes.route_of[routes.zone[source], routes.zone[destination]]
    return routes.route_start[route], routes.route_start[route + 1]


@inlined
def port_at(routes: Routes, place: int, source: int, destination: int) -> int:
    """Return the port at ``place`` of ``route_port`` between two machines."""
    port: int = routes.route_port[place]
    if port == OUT:
        port = routes.nic[source, 0]
    elif port == IN:
        port = routes.nic[destination, 1]
    return port
