"""Networks of ASTRA-sim's analytical backend (network.yml): dimensions of NPUs.

NPUs are numbered with the first dimension first. A route goes through the dimensions
in their order; round a ring it takes the shorter way, or that of rising numbers.
"""

from __future__ import annotations

import math
import reprlib
from itertools import pairwise, permutations
from typing import Any, NamedTuple

from emu.errors import DataError
from emu.host.input_file import one_error
from emu.interchange.accounted import read_mapping
from emu.interchange.topology import Topology, Wire

_SHAPES = ("Ring", "Switch", "FullyConnected")
#: Of the versions that are read; older ones took 2^30, which a note says.
_GIGABYTE = 1e9
_NANOSECONDS = 1e9  # of a second


class _Dimension(NamedTuple):
    """NPUs that differ in one coordinate, and how they are joined."""

    shape: str
    size: int
    wire: Wire


def read_network(content: Any, origin: str) -> Topology:
    """Return the NPUs of a network and the links between them.

    Raises DataError when lists differ in length, or hold something else.
    """
    with one_error(origin):
        reading = read_mapping(content, "network")
        lists = {}
        for key in ("topology", "npus_count", "bandwidth", "latency"):
            lists[key] = reading.get(key)
        for key, values in lists.items():
            if not isinstance(values, list) or not values:
                text = reprlib.repr(values)
                raise DataError(f"{key} is {text:.40}, write a list", path=origin)
        lengths = {len(values) for values in lists.values()}
        if len(lengths) > 1:
            names = ", ".join(lists)
            raise DataError(f"its lists {names} differ in length", path=origin)
        rows = zip(*lists.values(), strict=True)
        dimensions = [_dimension(*row) for row in rows]

        topology = Topology(origin)
        count = math.prod(dimension.size for dimension in dimensions)
        # Before names and routes are made: sizes of dimensions multiply.
        topology.check_size(count)
        topology.machines = [f"npu{number}" for number in range(count)]

        for source, destination in permutations(range(count), 2):
            ends = f"npu{source}", f"npu{destination}"
            route = _route(
                topology,
                dimensions=dimensions,
                source=source,
                destination=destination,
            )
            topology.routes[ends] = route
        topology.notes.append(
            "GB/s are 10^9 bytes per second; older versions of ASTRA-sim took 2^30"
        )
        topology.left_out.update(reading.left_out())
        return topology


def _dimension(
    shape: Any,
    size: Any,
    bandwidth: Any,
    latency: Any,
) -> _Dimension:
    if not isinstance(shape, str) or shape not in _SHAPES:
        text = reprlib.repr(shape)
        shapes = ", ".join(_SHAPES)
        raise ValueError(f"topology has {text:.40}, write {shapes}")

    # `Reading` says which of the numbers is wrong, and of what.
    stated = {
        "npus_count": size,
        "bandwidth": bandwidth,
        "latency": latency,
    }
    values = read_mapping(stated, "dimension")
    rate = values.number("bandwidth") * _GIGABYTE
    delay = values.number("latency") / _NANOSECONDS
    wire = Wire(rate, latency=delay)
    npus = values.count("npus_count")
    return _Dimension(shape, size=npus, wire=wire)


def _route(
    topology: Topology,
    dimensions: list[_Dimension],
    source: int,
    destination: int,
) -> list[str]:
    """Return the links of a route, which are added where they are new."""
    route = []
    place = source
    stride = 1
    for number, dimension in enumerate(dimensions):
        # A stride is the product of the sizes of the dimensions before this one.
        start = place // stride % dimension.size
        end = destination // stride % dimension.size
        # The first NPU of the row gives the switch of this dimension its number.
        row = place - start * stride
        for position, next_position in _positions(dimension, start, end):
            near_end = _end(row, position, stride)
            far_end = _end(row, next_position, stride)
            name = f"dim{number} {near_end}-{far_end}"
            # Routes that share a hop have one name for it, and so one wire.
            topology.wires[name] = dimension.wire
            route.append(name)

        place = row + end * stride
        stride *= dimension.size
    return route


def _positions(
    dimension: _Dimension, start: int, end: int
) -> list[tuple[int | None, int | None]]:
    """Return the hops between two positions; None is the switch between all."""
    if start == end:
        return []
    if dimension.shape == "FullyConnected":
        return [(start, end)]

    # None stands for the switch, which is no NPU.
    if dimension.shape == "Switch":
        return [(start, None), (None, end)]
    size = dimension.size
    forward = (end - start) % size
    backward = size - forward
    # Half way round both ways are as short: rising numbers are taken.
    step = 1 if forward <= backward else -1
    hops = min(forward, backward)
    places = [(start + step * hop) % size for hop in range(hops + 1)]
    return [*pairwise(places)]


def _end(row: int, position: int | None, stride: int) -> str:
    if position is None:
        return f"switch{row}"
    number = row + position * stride
    return f"npu{number}"
