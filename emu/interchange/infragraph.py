"""Infrastructure of InfraGraph (Keysight/infragraph): devices, instances, edges.

Every NPU, or GPU, is a machine, every other component a place between, every edge a
wire of each direction. Routes are those of the fewest wires.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from emu.errors import DataError
from emu.host.input_file import one_error
from emu.interchange.topology import Topology, Wire
from emu.interchange.workload import Data

_UNITS = {
    "gigabits_per_second": 1e9 / 8, "gigabytes_per_second": 1e9,
    "gigatransfers_per_second": 1e9 / 8, "ms": 1e-3, "us": 1e-6, "ns": 1e-9,
}  # fmt: skip
_MACHINES = ("npu", "xpu", "gpu", "cpu")
#: Of a link without a rate, which many within a box are.
_UNKNOWN = 64e9


def read_infrastructure(content: Data, origin: str) -> Topology:
    """Return the topology of an infrastructure.

    Raises DataError when it names what is not there, or machines are not joined.
    """
    with one_error(origin):
        topology = Topology(origin)
        devices = {device["name"]: device for device in content["devices"]}
        kinds = dict[str, str]()
        for instance in content["instances"]:
            for number in range(int(instance.get("count", 1))):
                place = f"{instance['name']}.{number}"
                _build(topology, devices, instance["device"], place, kinds)
        links = {link["name"]: link for link in content.get("links", [])}
        counts = {one["name"]: one for one in content["instances"]}
        for edge in content.get("edges", []):
            ends = []
            for key in ("ep1", "ep2"):
                stated = edge[key]["instance"]
                one = counts[stated.partition("[")[0]]
                inner = devices[one["device"]]
                places = _expand(stated, int(one.get("count", 1)))
                parts = _parts(devices, inner, edge[key]["component"])
                ends.append([".".join(words) for words in product(places, parts)])
            _connect(topology, edge, ends, links)
        for kind in _MACHINES:
            topology.machines = [name for name, one in kinds.items() if one == kind]
            if len(topology.machines) > 1:
                break
        for kind in {*kinds.values()} - {*_MACHINES[:3], "switch", "nic", "port"}:
            count = sum(one == kind for one in kinds.values())
            topology.left_out[f"component {kind}, but for its links"] += count
        topology.join()
        return topology


def _build(
    topology: Topology,
    devices: Mapping[str, Data],
    name: str,
    place: str,
    kinds: dict[str, str],
) -> None:
    """Add the components of a device and the wires between them."""
    device = devices[name]
    for one in device["components"]:
        for number in range(int(one.get("count", 1))):
            part = f"{place}.{one['name']}.{number}"
            if one["choice"] == "device":
                _build(topology, devices, one["name"], part, kinds)
            else:
                stated = one.get(one["choice"])  # of one that is none of the usual
                own = isinstance(stated, dict) and "type" in stated
                kinds[part] = stated["type"] if own else one["choice"]
    links = {link["name"]: link for link in device.get("links", [])}
    for edge in device.get("edges", []):
        ends = []
        for key in ("ep1", "ep2"):
            words = [edge[key].get("device"), edge[key]["component"]]
            stated = ".".join(word for word in words if word)
            parts = _parts(devices, device, stated)
            ends.append([f"{place}.{part}" for part in parts])
        _connect(topology, edge, ends, links)


def _parts(devices: Mapping[str, Data], device: Data, stated: str) -> list[str]:
    """Return the places of ``nic[0:2].port``: of all components where no slice says."""
    steps = []
    for word in stated.split("."):
        name = word.partition("[")[0]
        sizes = {one["name"]: int(one.get("count", 1)) for one in device["components"]}
        if name not in sizes:
            raise ValueError(f"{device['name']} has no component {name!r}")
        steps.append([*_expand(word, sizes[name])])
        device = devices.get(name, device)
    return [".".join(words) for words in product(*steps)]


def _expand(stated: str, count: int) -> Iterator[str]:
    """Yield ``name.0``, ``name.1`` of ``name[0:2]``, of ``count`` there are."""
    match = re.fullmatch(r"([^\[\]]+)(?:\[([-\d:]*)\])?", stated)
    if match is None:
        raise ValueError(f"found {stated!r}, not name[first:last]")
    slice_text = match[2]
    numbers: Any = range(count)
    if slice_text and ":" in slice_text:
        words = (int(word) if word else None for word in slice_text.split(":"))
        numbers = numbers[slice(*words)]
    elif slice_text:
        numbers = [numbers[int(slice_text)]]
    return (f"{match[1]}.{number}" for number in numbers)


def _connect(
    topology: Topology, edge: Data, ends: list[list[str]], links: Mapping[str, Data]
) -> None:
    if edge["link"] not in links:
        problem = f"an edge names link {edge['link']!r}, which is not there"
        raise DataError(problem, path=topology.origin)
    physical = links[edge["link"]].get("physical", {})
    rate, lag = (_amount(physical.get(key, {})) for key in ("bandwidth", "latency"))
    if not rate:
        kind = f"bandwidth of link {edge['link']}, not stated: 64 GB/s"
        topology.left_out[kind] += 1
    together = product if edge.get("scheme") == "many2many" else zip
    for one, other in together(*ends):
        if one != other:
            topology.connect(one, other, Wire(rate or _UNKNOWN, lag))


def _amount(stated: Data) -> float:
    return sum(float(stated[unit]) * _UNITS[unit] for unit in stated.keys() & _UNITS)
