"""Boxes by ``nvidia-smi topo -m``: GPUs, their NVLinks, PCIe and NICs.

The matrix has no rates. They are those of the GPU that a line beside the matrix names
(H100), else what is assumed is noted. A pair of GPUs has the NVLinks that the matrix
states, unless a GPU would have more of them than there are on it: then all of them lead
to a switch, and a GPU has one link up and one down.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

from emu.errors import DataError
from emu.host.input_file import one_error, read_text
from emu.interchange.topology import Answers, Topology, Wire


class Gpu(NamedTuple):
    """What a GPU is joined by."""

    lanes: int
    """NVLinks."""
    lane: float
    """Bytes per second of one of them, per direction."""
    pcie: float
    """Bytes per second of its 16 lanes of PCIe, per direction."""


_PCIE_3 = 15.754e9
_PCIE_4 = 31.508e9
_PCIE_5 = 63.015e9
#: NVLinks by NVIDIA's architecture whitepapers (P100 to B200: NVLink 1 to 5), A800 and
#: H800 by their data sheets; PCIe by its generation, 128b/130b coded.
GPUS = {
    "P100": Gpu(4, 20e9, _PCIE_3),
    "V100": Gpu(6, 25e9, _PCIE_3),
    "A100": Gpu(12, 25e9, _PCIE_4),
    "A800": Gpu(8, 25e9, _PCIE_4),
    "H800": Gpu(8, 25e9, _PCIE_5),
    "H100": Gpu(18, 25e9, _PCIE_5),
    "H200": Gpu(18, 25e9, _PCIE_5),
    "H20": Gpu(18, 25e9, _PCIE_5),
    "B200": Gpu(18, 50e9, _PCIE_5),
    "B300": Gpu(18, 50e9, _PCIE_5),
}
#: Of a box that does not say its GPUs: the most lanes of all, and the slowest PCIe.
_UNNAMED = Gpu(18, 25e9, _PCIE_3)
#: Ways over PCIe, the nearest first.
_WAYS = ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
_ANSI = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_GPU = re.compile(r"GPU\d+")
_NIC = re.compile(r"NIC\d+|mlx\w+|bnxt\w+|irdma\w+")


def read_matrix(path: Path, answers: Answers) -> Topology:
    """Return the GPUs of a box, or of several equal ones that their NICs join.

    Raises DataError when a row is missing, a word is another, or several boxes have no
    rate of their NICs.
    """
    with one_error(path):
        topology = Topology(str(path))
        matrix = _parse(_ANSI.sub("", read_text(path)).splitlines(), topology)
        matrix.check(str(path))
        boxes = answers.boxes
        topology.check_size(boxes * len(matrix.gpus))
        model = _find_model(matrix.beside)
        gpu = GPUS.get(model) or _guess(matrix)
        prefixes = [f"box{box}." for box in range(boxes)] if boxes > 1 else [""]
        for prefix in prefixes:
            _join_box(topology, matrix, gpu, prefix)
        if boxes > 1:
            _join_boxes(topology, matrix, prefixes, answers.nic)
        else:
            topology.left_out["NIC of the box"] += len(matrix.nics)
        _note(topology, matrix, model, gpu)
        return topology


@dataclass
class _Matrix:
    """What stands in a matrix."""

    gpus: list[str] = field(default_factory=list)
    nics: list[str] = field(default_factory=list)
    cells: dict[tuple[str, str], str] = field(default_factory=dict)
    """Row and column, both GPUs or NICs, -> word."""
    beside: list[str] = field(default_factory=list)
    """Lines before and behind it."""

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Ordered pairs of GPUs."""
        return [*permutations(self.gpus, 2)]

    def lanes(self, ends: tuple[str, str]) -> int:
        """Return the number of NVLinks between two GPUs, 0 where PCIe joins them."""
        match = re.fullmatch(r"NV(\d+)", self.cells[ends])
        return int(match[1]) if match else 0

    def lanes_of(self, name: str) -> list[int]:
        """Return the numbers of NVLinks from a GPU to all others, and a 0."""
        return [0, *(self.lanes(ends) for ends in self.pairs if ends[0] == name)]

    def has_switch(self, gpu: Gpu) -> bool:
        """Return True where a GPU would have more NVLinks than there are on it."""
        return any(sum(self.lanes_of(name)) > gpu.lanes for name in self.gpus)

    def check(self, origin: str) -> None:
        """Raise DataError where a word of two GPUs is no way, or differs back."""
        for name in self.gpus:
            if self.cells.get((name, name)) != "X":
                problem = f"has no whole row of {name}, with an X for itself"
                raise DataError(problem, path=origin)
        for ends in self.pairs:
            source, destination = ends
            word = self.cells.get(ends)
            if word is None:
                raise DataError(f"has no whole row of {source}", path=origin)
            if word not in _WAYS and not re.fullmatch(r"NV[1-9]\d*", word):
                problem = f"{source} to {destination} is {word!r}: NV1, ..., "
                raise DataError(problem + ", ".join(_WAYS), path=origin)
            back = self.cells.get((destination, source), word)
            if back != word:
                problem = f"{source} to {destination} is {word}, and back {back}"
                raise DataError(problem, path=origin)

    def nearest_nic(self, gpu: str) -> str:
        """Return the NIC that is the fewest bridges away; the first of several."""
        for nic in self.nics:
            word = self.cells.get((gpu, nic), "")
            if word not in _WAYS:
                raise ValueError(f"{gpu} to {nic} is {word!r}: {', '.join(_WAYS)}")
        return min(self.nics, key=lambda nic: _WAYS.index(self.cells[gpu, nic]))


def _parse(lines: list[str], topology: Topology) -> _Matrix:
    """Return the matrix that stands among some lines.

    Raises ValueError when there is none, there are two, or rows do not fit columns.
    """
    headers = [number for number, line in enumerate(lines) if is_header(line)]
    if len(headers) != 1:
        problem = f"it has {len(headers)} matrices of GPUs, one is read"
        raise ValueError(f"{problem}: for equal boxes write boxes: 2")
    (first,) = headers
    words = lines[first].split()
    columns = [word for word in words if _GPU.fullmatch(word) or _NIC.fullmatch(word)]
    matrix = _Matrix(
        gpus=[word for word in columns if _GPU.fullmatch(word)],
        nics=[word for word in columns if _NIC.fullmatch(word)],
    )
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        raise ValueError(f"it has two columns of {twice[0]}")

    rows = set[str]()
    for number, line in enumerate(lines):
        name, *cells = line.split() or [""]
        if number == first or not name:
            continue
        if number < first or not (_GPU.fullmatch(name) or _NIC.fullmatch(name)):
            matrix.beside.append(line.strip())
            continue
        if name not in columns or name in rows:
            raise ValueError(f"it has a row of {name}, one too many for its columns")
        rows.add(name)
        matrix.cells |= {
            (name, column): word for column, word in zip(columns, cells, strict=False)
        }
    rest = " ".join(words[len(columns) :])
    for title in re.findall(r"GPU NUMA ID|\w+ Affinity|\S+", rest):
        topology.left_out[f"column {title}"] += 1
    return matrix


def is_header(line: str) -> bool:
    """Return True for the line above a matrix: names of GPUs and of nothing else."""
    first, second = [*line.split(), "", ""][:2]
    is_title = second == "CPU" or _GPU.fullmatch(second) or _NIC.fullmatch(second)
    return bool(_GPU.fullmatch(first) and is_title)


def _find_model(lines: list[str]) -> str:
    """Return the GPU that lines beside the matrix name, by its longest name."""
    text = " ".join(lines)
    for model in sorted(GPUS, key=len, reverse=True):
        if re.search(rf"\b{model}\b", text):
            return model
    return ""


def _guess(matrix: _Matrix) -> Gpu:
    """Return the first GPU of as many lanes as lead to a switch; else the unnamed."""
    lanes = max(matrix.lanes_of(matrix.gpus[0]))
    if matrix.has_switch(_UNNAMED):
        for gpu in GPUS.values():
            if gpu.lanes == lanes:
                return gpu
    return _UNNAMED


def _join_box(topology: Topology, matrix: _Matrix, gpu: Gpu, prefix: str) -> None:
    """Add the GPUs of a box, and the routes among them."""
    has_switch = matrix.has_switch(gpu)
    for name in matrix.gpus:
        topology.machines.append(prefix + name)
        nvlink = Wire(gpu.lane * max(matrix.lanes_of(name)))
        for way in ("up", "down"):
            topology.wires[f"{prefix}{name} pcie {way}"] = Wire(gpu.pcie)
            topology.wires[f"{prefix}{name} nvlink {way}"] = nvlink

    for ends in matrix.pairs:
        source, destination = (prefix + name for name in ends)
        lanes = matrix.lanes(ends)
        kind = "nvlink" if lanes else "pcie"
        route = [f"{source} {kind} up", f"{destination} {kind} down"]
        if lanes and not has_switch:
            route = [f"nvlink {source}-{destination}"]
            topology.wires[route[0]] = Wire(gpu.lane * lanes)
        elif not lanes:
            word = matrix.cells[ends]
            topology.left_out[f"{word}: which PCIe switches are between"] += 1
        topology.routes[source, destination] = route


def _join_boxes(
    topology: Topology, matrix: _Matrix, prefixes: list[str], nic: float
) -> None:
    """Join the GPUs of different boxes: each over the NIC that is nearest to it."""
    if not matrix.nics:
        raise ValueError("it has no NIC that could join several boxes")
    if not nic:
        problem = "has no rates of NICs: write topology: {file: ..., boxes: "
        problem += f"{len(prefixes)}, nic: 400 Gbit/s}}"
        raise DataError(problem, path=topology.origin)
    for prefix in prefixes:
        for name in matrix.nics:
            for way in ("out", "in"):
                topology.wires[f"{prefix}{name} {way}"] = Wire(nic)
    for box, other_box in permutations(prefixes, 2):
        for source in matrix.gpus:
            for destination in matrix.gpus:
                topology.routes[box + source, other_box + destination] = [
                    f"{box}{source} pcie up",
                    f"{box}{matrix.nearest_nic(source)} out",
                    f"{other_box}{matrix.nearest_nic(destination)} in",
                    f"{other_box}{destination} pcie down",
                ]
    topology.notes.append("a GPU reaches other boxes over the NIC nearest to it")


def _note(topology: Topology, matrix: _Matrix, model: str, gpu: Gpu) -> None:
    """Note what was assumed, and count what was read past."""
    if matrix.has_switch(gpu):
        lanes = max(matrix.lanes_of(matrix.gpus[0]))
        line = f"a GPU has {lanes} NVLinks in all, which lead to a switch: to all GPUs "
        topology.notes.append(line + "together it sends no more")
    taken_as = [name for name, known in GPUS.items() if known == gpu]
    if model:
        line = f"GPUs are {model}, by a line beside the matrix"
    elif taken_as:
        line = f"no GPU is named: taken as {taken_as[0]} by its NVLinks"
    else:
        line = "no GPU is named"
    line += f": an NVLink has {gpu.lane / 1e9:g} GB/s each way, PCIe "
    line += f"{gpu.pcie / 1e9:g} GB/s"
    if not model:
        line += f"; write its name ({', '.join(GPUS)}) above the matrix"
    topology.notes.append(line)
    legend = re.compile(r"Legend:|NIC Legend:|(X|SYS|NODE|PHB|PXB|PIX|NV#)\s+=|NIC\d+:")
    others = [text for text in matrix.beside if not legend.match(text)]
    if others:
        topology.left_out["line beside the matrix"] += len(others)
