"""Trees of switches of Slurm (topology.conf of topology/tree), their nodes below.

The file has no rates: those of NICs, and of the links between switches, are answers. A
route goes up to the lowest switch above both nodes, and down.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import permutations, product
from pathlib import Path
from typing import TypeAlias

from emu.errors import DataError
from emu.host.input_file import one_error, read_packed_text
from emu.interchange.topology import MOST_MACHINES, Answers, Topology, Wire

#: Node or switch -> the switch above it.
Above: TypeAlias = dict[str, str]

#: A part of a hostlist: ``tux[0-5,12]``, with commas only within brackets.
_PART = re.compile(r"(?:[^,\s\[\]]|\[[^\]]*\])+")
#: A key and its value, which stands in quotes where it has blanks (parse_config.c).
_PAIR = re.compile(r'\s*([\w.]+)\s*=\s*(?:"([^"]*)"|([^\s"=]+))(?=\s|$)')
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def read_switches(path: Path, answers: Answers) -> Topology:
    """Return the nodes of a cluster, and the links between them and their switches.

    Raises DataError when a line is damaged, a node has no switch, or rates are missing.
    """
    with one_error(path):
        topology = Topology(str(path))
        above: Above = {}
        text = read_packed_text(path)
        for number, line in _join_lines(text):
            try:
                _read_line(line, topology, above)
            except ValueError as error:
                raise DataError(f"line {number}: {error}", path=path) from error
        topology.check_size(len(topology.machines))
        nodes = {*topology.machines}
        for switch in above.values():
            if switch in nodes:
                raise topology.error(f"has {switch} as a node, and as a switch")

        _add_wires(topology, above, answers)
        paths = {}
        for name in topology.machines:
            paths[name] = _path(name, above)
        for source, destination in permutations(topology.machines, 2):
            route = _route(paths[source], paths[destination])
            # Nodes of two trees have none, which `cluster_keys` says.
            if route:
                topology.routes[source, destination] = route
        return topology


def _join_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines without comments, each with the number of its first.

    One that ends in a backslash goes on in the next.
    """
    content = ""
    first = 1
    for number, line in enumerate(text.splitlines(), 1):
        text_of_line, _, _ = line.partition("#")
        text_of_line = text_of_line.rstrip()
        content += text_of_line.removesuffix("\\")
        if not text_of_line.endswith("\\"):
            yield first, content
            content = ""
            first = number + 1
    yield first, content


def _read_line(line: str, topology: Topology, above: Above) -> None:
    """Add the nodes or switches below a switch; raises ValueError as `_expand`."""
    text = line.strip()
    words = text.split()
    if not words:
        return
    keys = {}
    while text:
        match = _PAIR.match(text)
        if match is None:
            raise ValueError(f"found {text!r:.40}, write SwitchName=s0 Nodes=n[0-3]")
        key, quoted, value = match.groups()
        # Slurm takes its keys in capitals, too.
        lower_key = key.lower()
        if lower_key in keys:
            is_list = lower_key in ("nodes", "switches")
            advice = "write one list: n[0-3],m0" if is_list else "keep one of them"
            raise ValueError(f"{key} is there twice, {advice}")
        keys[lower_key] = value or quoted
        text = text[match.end() :].strip()
    switch = keys.pop("switchname", "")
    if not switch:
        raise ValueError(f"{words[0]:.40} is no SwitchName")

    node_list = keys.pop("nodes", "")
    switch_list = keys.pop("switches", "")
    nodes = [*_expand(node_list)]
    switches = [*_expand(switch_list)]
    # Slurm ends at the second line: "Switch (s0) has already been defined".
    if switch in above.values():
        raise ValueError(f"{switch} is there twice, write all below it in one line")
    for name in [*nodes, *switches]:
        if name in above:
            raise ValueError(f"{name} is below {above[name]}, and below {switch}")
        above[name] = switch
    topology.machines += nodes
    for key in keys:
        topology.leave_out(f"{key} of a switch")


def _expand(hostlist: str) -> Iterator[str]:
    """Yield the names of ``tux[0-5,12],login``; zeros in front of numbers stay.

    Raises ValueError when brackets do not hold ranges, or there are too many names.
    """
    # A bracket that is open, or closed twice, would part one name in two.
    between_parts = _PART.sub("", hostlist)
    if "[" in between_parts or "]" in between_parts:
        raise ValueError(f"found {hostlist!r:.40}, write names as tux[0-5,12]")
    count = 0
    for part in _PART.findall(hostlist):
        names = [""]
        pieces = re.findall(r"([^\[\]]*)(?:\[([^\]]*)\])?", part)
        for text, ranges in pieces:
            endings = [""]
            if ranges:
                endings = [*_numbers(ranges)]
            pairs = product(names, endings)
            names = [f"{name}{text}{ending}" for name, ending in pairs]
            # While it grows, since x[0-9999][0-9999] has a hundred million names.
            if len(names) > 2 * MOST_MACHINES:
                raise ValueError(f"{part} are more machines than are read")
        count += len(names)
        yield from names

    if hostlist and not count:
        raise ValueError(f"found {hostlist!r:.40}, write names as tux[0-5,12]")


def _numbers(ranges: str) -> Iterator[str]:
    for text in ranges.split(","):
        match = _RANGE.fullmatch(text)
        if match is None:
            raise ValueError(f"found [{ranges:.40}], write [0-5,12]")
        digits = match[1]
        first = int(digits)
        last = int(match[2] or digits)
        if last < first:
            raise ValueError(f"found [{ranges:.40}], write the lower number first")
        if last - first > 2 * MOST_MACHINES:
            raise ValueError(f"[{ranges:.40}] are more machines than are read")

        width = len(digits)
        for number in range(first, last + 1):
            # As Slurm writes them: tux[08-10] are tux08, tux09, tux10.
            yield str(number).zfill(width)


def _add_wires(topology: Topology, above: Above, answers: Answers) -> None:
    """Add a link up and one down of each node and switch.

    Raises DataError when their rates are not answered.
    """
    nodes = {*topology.machines}
    missing = []
    # All that is missing at once, so that nobody has to answer twice.
    if not answers.nic:
        missing.append("nic: 100 Gbit/s")
    # A single level of switches has no link between two of them.
    has_levels = bool(above.keys() - nodes)
    if has_levels and not answers.uplink:
        missing.append("uplink: 400 Gbit/s")
    if missing:
        name = Path(topology.origin).name
        answers_needed = [f"file: {name}", *missing]
        answer = ", ".join(answers_needed)
        problem = (
            "is Slurm's topology.conf, which has no rates: write topology: "
            f"{{{answer}}}"
        )
        raise DataError(problem, path=topology.origin)

    for name in above:
        rate = answers.nic if name in nodes else answers.uplink
        topology.wires[f"{name} up"] = Wire(rate)
        topology.wires[f"{name} down"] = Wire(rate)


def _path(name: str, above: Above) -> list[str]:
    """Return a node and the switches above it; ValueError when they run in a circle."""
    path = [name]
    most_places = len(above) + 1
    while path[-1] in above:
        below = path[-1]
        switch = above[below]
        path.append(switch)
        if len(path) > most_places:
            raise ValueError(f"switches above {name} run in a circle")
    return path


def _route(source: list[str], destination: list[str]) -> list[str]:
    """Return the links up to the lowest switch above both, and down; none without."""
    # Paths go up, so that the first that both have is the lowest.
    shared_names = [name for name in source if name in destination]
    if not shared_names:
        return []
    top = shared_names[0]
    source_height = source.index(top)
    destination_height = destination.index(top)
    ups = source[:source_height]
    downs = destination[:destination_height]
    route = [f"{name} up" for name in ups]
    route += [f"{name} down" for name in reversed(downs)]
    return route
