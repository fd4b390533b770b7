"""Infrastructure of InfraGraph (Keysight/infragraph): devices, instances, edges.

Every NPU, or GPU, is a machine, every other component a place between, every edge a
wire of each direction. Routes are those of the fewest wires. Documents of a device
alone stand for one of it. Those before version 1 state ``connections`` as text
(``xpu.0.pcie.nic.0``) and the type of a component as ``type``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise, product
from typing import Any, TypeAlias

from emu.interchange.accounted import (
    NotRead,
    Reading,
    read_mapping,
    reading_errors,
)
from emu.interchange.topology import Topology, Wire

#: What links are like, by their names; those without a rate have 0.
Links: TypeAlias = dict[str, Wire]

#: Bytes per second of one unit. A transfer moves one bit of a lane.
_RATES = {
    "gigabits_per_second": 1e9 / 8,
    "gigabytes_per_second": 1e9,
    "giga_bytes_per_second": 1e9,
    "giga_bits_per_second": 1e9 / 8,
    "gigatransfers_per_second": 1e9 / 8,
    "giga_transfers_per_second": 1e9 / 8,
}
#: Seconds of one unit.
_TIMES = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9}
#: Units of what a link has.
_UNITS = {"bandwidth": _RATES, "latency": _TIMES}
#: Types of components that can be machines: the first of which there are two is.
_MACHINES = ("npu", "xpu", "gpu", "cpu")
#: Types of components that are of no use but to join, and those above.
_KNOWN = {"npu", "xpu", "gpu", "switch", "nic", "port", "device"}
#: Of a link without a rate, which many within a box are.
_UNKNOWN = 64e9
#: Places of all kinds: of each NPU of 400 machines some fifty are usual.
_MOST_PLACES = 100_000


def read_infrastructure(content: Any, origin: str) -> Topology:
    """Return the topology of an infrastructure, or of one device.

    Raises DataError when it names what is not there, or machines are not joined.
    """
    with reading_errors(origin):
        document = read_mapping(content, "document")
        reading = document
        if "infrastructure" in document:
            reading = document.part("infrastructure")
        reading.ignore("name", "description")

        topology = Topology(origin)
        devices = _read_devices(reading)
        builder = _Builder(topology, devices)
        builder.add_instances(reading)
        if "components" not in reading:  # of a device alone the edges are its own
            builder.add_edges(reading)
        builder.choose_machines()
        # Only now, when all that is read has been asked for.
        topology.left_out.update(document.left_out())
        topology.join()
        return topology


@dataclass
class _Device:
    """A device, and what it has of each component."""

    reading: Reading
    kinds: dict[str, str]
    """Type of every component, by its name."""
    counts: dict[str, int]
    """Number of every component."""

    @property
    def name(self) -> str:
        """Its name, for errors."""
        return self.reading.text("name", "the device")


@dataclass
class _Instance:
    """Equal devices of one name."""

    device: str
    count: int


def _read_devices(reading: Reading) -> dict[str, _Device]:
    """Return the devices of a document, by name; one, where it is of a device alone."""
    parts = [*reading.parts("devices", "device")]
    parts += reading.parts("device", "device")
    if "components" in reading:
        parts.append(reading)

    devices = {}
    for device in parts:
        device.ignore("description")
        name = device.text("name", "device")
        if name in devices:
            raise ValueError(f"two devices are called {name!r}")
        devices[name] = _read_device(device)
    return devices


def _read_device(device: Reading) -> _Device:
    kinds = {}
    counts = {}
    highest = _highest_numbers(device)
    for component in device.parts("components", "component"):
        component.ignore("description", "external")
        name = component.text("name")
        if name in kinds:
            raise ValueError(f"two components are called {name!r}")
        if component.parts("components"):
            raise NotRead(f"has components within {name!r}, which are not read")

        # Before version 1 no component states how many there are.
        least_count = highest[name] + 1
        kinds[name] = _kind_of(component)
        counts[name] = component.count("count", least_count)
    return _Device(device, kinds, counts)


def _kind_of(component: Reading) -> str:
    """Return the type of a component; of one that is none of the usual, its own."""
    kind = component.text("choice", "") or component.text("type")
    # Since version 1 the key that ``choice`` names may hold the type.
    content = component.part(kind)
    return content.text("type", kind)


def _highest_numbers(device: Reading) -> Counter[str]:
    """Return the highest number of each component in ``connections``."""
    highest = Counter[str]()
    for text in _connections(device):
        words = text.split(".")
        for name, number in pairwise(words):
            if number.isdecimal():
                highest_before = highest[name]
                highest[name] = max(highest_before, int(number))
    return highest


class _Builder:
    """The places of an infrastructure so far, and what joins them."""

    def __init__(self, topology: Topology, devices: dict[str, _Device]) -> None:
        self._topology = topology
        self._devices = devices
        self._instances = dict[str, _Instance]()
        #: Instances of devices that are not in the file.
        self._missing = set[str]()
        #: Type of every place.
        self._kinds = dict[str, str]()

    def add_instances(self, reading: Reading) -> None:
        """Add all instances, and what is within them.

        Raises DataError when none is there and no device can stand for one.
        """
        for instance in reading.parts("instances", "instance"):
            instance.ignore("description")
            name = instance.text("name")
            if name in self._instances:
                raise ValueError(f"two instances are called {name!r}")
            device = instance.text("device")
            count = instance.count("count", 1)
            if device in self._devices:
                self._instances[name] = _Instance(device, count)
            else:
                # `add_edges` passes over the connections of these, which end nowhere.
                self._missing.add(name)
                self._topology.leave_out(
                    f"instance {name} of device {device}, which is not in the file"
                )

        if not self._instances:
            self._add_lone_device()
        for name, copies in self._instances.items():
            for number in range(copies.count):
                self._build(copies.device, f"{name}.{number}")

    def add_edges(self, reading: Reading) -> None:
        """Add the edges between instances."""
        links = _links(reading)
        for edge in reading.parts("edges", "edge"):
            near_ends = self._instance_ends(edge.part("ep1"))
            far_ends = self._instance_ends(edge.part("ep2"))
            # Their service pairs instances, then the components of each pair.
            if len(near_ends) == len(far_ends):
                pairs = zip(near_ends, far_ends, strict=True)
                for sides in pairs:
                    self._add_edge(edge, *sides, links)
            else:
                sources = [*chain(*near_ends)]
                destinations = [*chain(*far_ends)]
                self._add_edge(
                    edge,
                    sources=sources,
                    destinations=destinations,
                    links=links,
                )

        for text in _connections(reading):
            words = text.split(".")
            if len(words) != 9:
                raise ValueError(
                    f"connection {text!r} is not of nine words: "
                    "server.0.nic.0.eth.switch.0.port.0"
                )
            source_instance = words[0]
            destination_instance = words[5]
            instances = {source_instance, destination_instance}
            if self._missing & instances:
                kind = "connection of an instance of a device that is not there"
                self._topology.leave_out(kind)
                continue
            # Four words are an end, and the one between the ends is the link.
            source = ".".join(words[:4])
            destination = ".".join(words[5:])
            wire = self._wire(words[4], links)
            self._connect(source, destination, wire)

    def choose_machines(self) -> None:
        """Take the components of one type as machines; count those of no use.

        Raises DataError when there are not two of any such type.
        """
        counts = Counter(self._kinds.values())
        kinds = [kind for kind in _MACHINES if counts[kind] > 1]
        if not kinds:
            names = ", ".join(_MACHINES)
            raise self._topology.error(
                f"has no two components of one type of {names}: nothing computes"
            )
        machine_kind = kinds[0]
        for place, kind in self._kinds.items():
            if kind == machine_kind:
                self._topology.machines.append(place)

        # Before `Topology.join` the routes are the edges, by their two ends.
        ends = {*chain(*self._topology.routes)}
        for place, kind in self._kinds.items():
            if place not in ends:
                self._topology.leave_out(f"component {kind}, which nothing joins")
        unused_kinds = counts.keys() - _KNOWN
        for kind in sorted(unused_kinds):
            name = f"component {kind}, but for its links"
            self._topology.leave_out(name, counts[kind])

    def _add_lone_device(self) -> None:
        """Let the one device that is in no other stand for an infrastructure."""
        inner: set[str] = set()
        for device in self._devices.values():
            inner |= device.kinds.keys()

        outer = [name for name in self._devices if name not in inner]
        if len(outer) != 1:
            names = ", ".join(self._devices) or "none"
            raise self._topology.error(
                f"has no instance of a device that it has ({names}): write "
                "devices and instances of them into one file"
            )
        (name,) = outer
        self._instances[name] = _Instance(name, count=1)
        self._topology.notes.append(f"no instances: one {name} is taken")

    def _build(self, name: str, place: str) -> None:
        """Add the components of a device and the wires between them."""
        device = self._devices[name]
        for component, count in device.counts.items():
            kind = device.kinds[component]
            for number in range(count):
                part = f"{place}.{component}.{number}"
                if kind != "device":
                    self._kinds[part] = kind
                    continue
                if component not in self._devices:
                    raise ValueError(f"device {component!r} is not in the file")
                self._build(component, part)
            # Within the loop, since devices within devices multiply.
            if len(self._kinds) > _MOST_PLACES:
                raise ValueError(f"it has more than {_MOST_PLACES:,} components")

        links = _links(device.reading)
        for edge in device.reading.parts("edges", "edge"):
            near_end = edge.part("ep1")
            near_ends = self._device_ends(near_end, device)
            far_end = edge.part("ep2")
            far_ends = self._device_ends(far_end, device)
            sources = [f"{place}.{part}" for part in near_ends]
            destinations = [f"{place}.{part}" for part in far_ends]
            self._add_edge(
                edge,
                sources=sources,
                destinations=destinations,
                links=links,
            )
        for text in _connections(device.reading):
            words = text.split(".")
            if len(words) != 5:
                raise ValueError(
                    f"connection {text!r} is not of five words: xpu.0.pcie.nic.0"
                )
            source_words = [place, *words[:2]]
            source = ".".join(source_words)
            destination_words = [place, *words[3:]]
            destination = ".".join(destination_words)
            wire = self._wire(words[2], links)
            self._connect(source, destination, wire)

    def _device_ends(self, end: Reading, device: _Device) -> list[str]:
        component = end.text("component")
        inner = end.text("device", "")
        if inner:
            component = f"{inner}.{component}"
        return self._parts(device, component)

    def _instance_ends(self, end: Reading) -> list[list[str]]:
        """Return the places of an end, for each instance that it names."""
        selection = end.text("instance")
        name, _, _ = selection.partition("[")
        if name not in self._instances:
            raise ValueError(f"there is no instance {name!r} of a device in the file")
        instance = self._instances[name]
        device = self._devices[instance.device]
        component = end.text("component")
        parts = self._parts(device, component)

        ends = []
        for place in _expand(selection, instance.count):
            places = [f"{place}.{part}" for part in parts]
            ends.append(places)
        return ends

    def _parts(self, device: _Device, stated: str) -> list[str]:
        """Return the places of ``nic[0:2].port``: of all where no slice says."""
        steps = []
        for word in stated.split("."):
            name, _, _ = word.partition("[")
            if name not in device.counts:
                raise ValueError(f"{device.name} has no component {name!r}")
            count = device.counts[name]
            places = [*_expand(word, count)]
            steps.append(places)
            # Where the component is a device, the next word is a component of that.
            device = self._devices.get(name, device)
        paths = product(*steps)
        return [".".join(words) for words in paths]

    def _add_edge(
        self,
        edge: Reading,
        sources: list[str],
        destinations: list[str],
        links: Links,
    ) -> None:
        """Add the wires of an edge between the places of its two ends."""
        link = edge.text("link")
        wire = self._wire(link, links)
        scheme = edge.text("scheme", "one2one")
        ends: Iterable[tuple[str, str]]
        if scheme == "many2many":
            ends = product(sources, destinations)
        elif scheme == "one2one":
            ends = zip(sources, destinations, strict=False)
            difference = len(sources) - len(destinations)
            surplus = abs(difference)
            if surplus:
                kind = "component that is one too many for a one2one edge"
                self._topology.leave_out(kind, surplus)
        else:
            raise NotRead(f"has a scheme {scheme!r}, one2one and many2many are read")

        # Of a set with itself both orders of a pair come up, and are one edge.
        pairs = {frozenset(pair): pair for pair in ends}
        for source, destination in pairs.values():
            if source != destination:
                self._connect(source, destination, wire)

    def _connect(self, source: str, destination: str, wire: Wire) -> None:
        for place in (source, destination):
            if place not in self._kinds:
                raise ValueError(f"an edge ends at {place!r}, which is not there")
        self._topology.connect(source, destination, wire)

    def _wire(self, link: str, links: Links) -> Wire:
        if link not in links:
            problem = f"an edge names link {link!r}, which is not there"
            raise self._topology.error(problem)
        wire = links[link]
        if wire.rate:
            return wire
        self._topology.leave_out(f"bandwidth of link {link}, not stated: 64 GB/s")
        return wire._replace(rate=_UNKNOWN)


def _connections(reading: Reading) -> list[str]:
    """Return the edges that are stated as text; TypeError when one is none."""
    texts = reading.get("connections", [])
    if not isinstance(texts, list):
        raise TypeError("connections are no list, write xpu.0.pcie.nic.0 in it")
    for text in texts:
        if not isinstance(text, str):
            raise TypeError("a connection is no text, write xpu.0.pcie.nic.0")
    return texts


def _links(reading: Reading) -> Links:
    """Return the links of a device or infrastructure; those without a rate have 0."""
    links = {}
    for link in reading.parts("links", "link"):
        link.ignore("description")
        physical = link
        if "physical" in link:
            physical = link.part("physical")
        rate = _amount(physical, "bandwidth")
        latency = _amount(physical, "latency")
        name = link.text("name")
        if name in links:
            raise ValueError(f"two links are called {name!r}")
        links[name] = Wire(rate, latency)
    return links


def _amount(physical: Reading, key: str) -> float:
    """Return bytes per second, or seconds; 0 where nothing is stated."""
    amount = physical.part(key)
    amount.ignore("description")
    choice = amount.text("choice", "")
    unit_sizes = _UNITS[key]
    units = [unit for unit in unit_sizes if unit in amount]
    # One that is not known would pass for a rate that is not stated.
    if not units:
        stated = amount.keys()
        units = [word for word in stated if word not in ("choice", "description")]
    if choice:
        units = [choice]
    if not units:
        return 0.0
    if len(units) > 1:
        names = " and ".join(units)
        raise ValueError(f"{key} is in {names}, write one of them as its choice")
    choice = units[0]
    if choice not in unit_sizes:
        names = ", ".join(unit_sizes)
        raise ValueError(f"{key} is in {choice!r}, write {names}")
    number = amount.number(choice)
    # It would stand for one that is not stated.
    if key == "bandwidth" and not number:
        raise ValueError(f"{key} is 0 {choice}, write more than that")
    return number * unit_sizes[choice]


def _expand(stated: str, count: int) -> Iterator[str]:
    """Yield ``name.0``, ``name.1`` of ``name[0:2]``, of ``count`` there are."""
    match = re.fullmatch(r"([^\[\]]+)(?:\[([-\d:]*)\])?", stated)
    if match is None:
        raise ValueError(f"found {stated!r}, not name[first:last]")
    name, slice_text = match.groups()
    numbers: Any = range(count)
    if slice_text and ":" in slice_text:
        bound_texts = slice_text.split(":")
        words = [int(word) if word else None for word in bound_texts]
        bounds = [word or 0 for word in words[:2]]
        # Python cuts a slice beyond the end short without a word: links went missing.
        is_within = all(-count <= bound <= count for bound in bounds)
        selection = slice(*words)
        numbers = numbers[selection] if is_within else []
    elif slice_text:
        number = int(slice_text)
        numbers = [numbers[number]] if -count <= number < count else []

    # Of none an edge would go missing.
    if slice_text and not numbers:
        raise ValueError(f"found {stated!r}, and there are {count}")
    return (f"{name}.{number}" for number in numbers)
