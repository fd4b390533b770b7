"""Boxes by ``nvidia-smi topo -m``: GPUs, their NVLinks, PCIe and NICs.

The matrix has no rates. They are those of the GPU that a line beside the matrix names
(H100), else what is assumed is noted. A pair of GPUs has the NVLinks that the matrix
states, unless a GPU would have more of them than there are on it: then all of them lead
to a switch, and a GPU has one link up and one down.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import permutations, product
from pathlib import Path
from typing import NamedTuple

from emu.errors import DataError
from emu.host.input_file import one_error, read_packed_text
from emu.interchange.topology import Answers, Topology, Wire


class Gpu(NamedTuple):
    """Links of a GPU."""

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
#: SOC is what older versions call SYS.
_WAYS = ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
#: The command underlines its header on a terminal.
_ANSI = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
#: GPUs, and NICs by number or, in older versions, by name.
_DEVICE = re.compile(r"GPU\d+|NIC\d+|(mlx|bnxt|irdma)\w+")
_LANES = re.compile(r"NV[1-9]\d*")
#: Lines that explain the words of the matrix: nothing is lost by them.
_LEGEND = re.compile(r"(NIC )?Legend:|(X|SYS|NODE|PHB|PXB|PIX|NV#)\s+=|NIC\d+:")


def read_matrix(path: Path, answers: Answers) -> Topology:
    """Return the GPUs of a box, or of several equal ones that their NICs join.

    Raises DataError when a row is missing, a word is another, or several boxes have no
    rate of their NICs.
    """
    with one_error(path):
        text = _ANSI.sub("", read_packed_text(path))
        topology = Topology(str(path))
        matrix = _parse(text.splitlines(), topology)
        matrix.check(str(path))
        count = answers.boxes * len(matrix.gpus)
        topology.check_size(count)

        model = _find_model(matrix.beside, topology)
        gpu = GPUS.get(model) or _guess(matrix)
        # One box keeps the names of the matrix; of several each has its own.
        prefixes = [""]
        if answers.boxes > 1:
            prefixes = [f"box{box}." for box in range(answers.boxes)]
        for prefix in prefixes:
            _join_box(
                topology,
                matrix=matrix,
                gpu=gpu,
                prefix=prefix,
            )
        if answers.boxes > 1:
            _join_boxes(topology, matrix=matrix, prefixes=prefixes, nic=answers.nic)
        else:
            topology.leave_out("NIC of the box", len(matrix.nics))
        _note(
            topology,
            matrix=matrix,
            model=model,
            gpu=gpu,
        )
        return topology


@dataclass
class _Matrix:
    """A matrix, and the lines beside it."""

    gpus: list[str] = field(default_factory=list)
    nics: list[str] = field(default_factory=list)
    rows: dict[str, dict[str, str]] = field(default_factory=dict)
    """Row -> column -> word; both are GPUs or NICs."""
    beside: list[str] = field(default_factory=list)
    """Lines before and behind it."""

    def lanes(self, source: str, destination: str) -> int:
        """Return the number of NVLinks between two GPUs, 0 where PCIe joins them."""
        word = self.rows[source][destination]
        match = re.fullmatch(r"NV(\d+)", word)
        if match is None:
            return 0
        return int(match[1])

    def lanes_of(self, source: str) -> list[int]:
        """Return the numbers of NVLinks from a GPU to each."""
        return [self.lanes(source, destination) for destination in self.gpus]

    def has_switch(self, gpu: Gpu) -> bool:
        """Return True where a GPU would have more NVLinks than there are on it."""
        sums = [sum(self.lanes_of(name)) for name in self.gpus]
        return max(sums) > gpu.lanes

    def check(self, origin: str) -> None:
        """Raise DataError where a word of two GPUs is no way, or differs back."""
        every_gpu = {*self.gpus}
        for source in self.gpus:
            row = self.rows.get(source, {})
            has_mark = row.get(source) == "X"
            is_whole = every_gpu <= row.keys()
            if not has_mark or not is_whole:
                raise DataError(
                    f"has no whole row of {source}, with an X for itself",
                    path=origin,
                )

        for source, destination in permutations(self.gpus, 2):
            word = self.rows[source][destination]
            back = self.rows[destination][source]
            ends = f"{source} to {destination}"
            if word not in _WAYS and not _LANES.fullmatch(word):
                codes = ", ".join(_WAYS)
                raise DataError(f"{ends} is {word!r}: NV1, ..., {codes}", path=origin)
            # The command prints a symmetric matrix: another one was edited, or cut.
            if back != word:
                raise DataError(f"{ends} is {word}, and back {back}", path=origin)

    def nearest_nic(self, gpu: str) -> str:
        """Return the NIC that is the fewest bridges away; the first of several."""
        distances = {}
        for nic in self.nics:
            word = self.rows[gpu].get(nic, "")
            if word not in _WAYS:
                codes = ", ".join(_WAYS)
                raise ValueError(f"{gpu} to {nic} is {word!r}: {codes}")
            distances[nic] = _WAYS.index(word)
        return min(self.nics, key=distances.__getitem__)


def _parse(lines: list[str], topology: Topology) -> _Matrix:
    """Return the matrix that stands among some lines.

    Raises ValueError when there is none, there are two, or rows do not fit columns.
    """
    headers = [line for line in lines if is_header(line)]
    if len(headers) != 1:
        raise ValueError(
            f"it has {len(headers)} matrices of GPUs, one is read"
            ": for equal boxes write boxes: 2"
        )
    titles = headers[0].split()
    columns = [title for title in titles if _DEVICE.fullmatch(title)]
    if len({*columns}) < len(columns):
        raise ValueError("it has two columns of one name")
    # Rows are read by column: behind one that is passed over all would shift.
    for title, column in zip(titles, columns, strict=False):
        if title != column:
            raise ValueError(
                f"its column {title} before {column} is no GPU or NIC: remove it"
            )
    # Titles behind the devices have blanks in them, as CPU Affinity has.
    other_titles = titles[len(columns) :]
    rest = " ".join(other_titles)
    other_columns = re.findall(r"GPU NUMA ID|\w+ Affinity|\S+", rest)
    for title in other_columns:
        topology.leave_out(f"column {title}")

    matrix = _Matrix()
    matrix.gpus = [name for name in columns if name.startswith("GPU")]
    matrix.nics = [name for name in columns if not name.startswith("GPU")]
    # A line above the header may begin with a name of a GPU, too.
    is_below = False
    for line in lines:
        name, *words = line.split() or [""]
        if is_below and _DEVICE.fullmatch(name):
            _add_row(
                matrix,
                columns=columns,
                name=name,
                words=words,
            )
        elif line in headers:
            is_below = True
        elif name:
            matrix.beside.append(line.strip())
    return matrix


def _add_row(
    matrix: _Matrix,
    columns: list[str],
    name: str,
    words: list[str],
) -> None:
    if name not in columns or name in matrix.rows:
        raise ValueError(f"it has a row of {name}, one too many for its columns")
    # By column: where a NIC stood between two GPUs, its word was taken for theirs.
    cells = zip(columns, words, strict=False)  # affinities stand behind
    matrix.rows[name] = dict(cells)


def is_header(line: str) -> bool:
    """Return True for the line above a matrix: names of GPUs and of nothing else."""
    words = line.split()
    if len(words) < 2 or not words[0].startswith("GPU"):
        return False
    first, second, *_ = words
    if not _DEVICE.fullmatch(first):
        return False
    return second == "CPU" or _DEVICE.fullmatch(second) is not None


def _find_model(lines: list[str], topology: Topology) -> str:
    """Return the GPU that lines beside the matrix name, if they do.

    Raises DataError where they name several.
    """
    text = " ".join(lines)
    models = [model for model in GPUS if re.search(rf"\b{model}\b", text)]
    if len(models) > 1:
        names = " and ".join(models)
        raise topology.error(f"names {names} beside the matrix: leave one of them")
    return models[0] if models else ""


def _guess(matrix: _Matrix) -> Gpu:
    """Return the first GPU of as many lanes as lead to a switch; else the unnamed."""
    first_gpu = matrix.gpus[0]
    lanes = max(matrix.lanes_of(first_gpu))
    if matrix.has_switch(_UNNAMED):
        for gpu in GPUS.values():
            # With a switch every pair has all lanes of a GPU.
            if gpu.lanes == lanes:
                return gpu
    return _UNNAMED


def _join_box(
    topology: Topology,
    matrix: _Matrix,
    gpu: Gpu,
    prefix: str,
) -> None:
    """Add the GPUs of a box, and the routes among them."""
    # Both kinds of wires for each: `cluster_keys` drops those that no route crosses.
    for name in matrix.gpus:
        topology.machines.append(prefix + name)
        lanes = max(matrix.lanes_of(name))
        nvlink_rate = gpu.lane * lanes
        for direction in ("up", "down"):
            pcie_wire = f"{prefix}{name} pcie {direction}"
            nvlink_wire = f"{prefix}{name} nvlink {direction}"
            topology.wires[pcie_wire] = Wire(gpu.pcie)
            topology.wires[nvlink_wire] = Wire(nvlink_rate)

    # NV18 to each of seven others would be 126 NVLinks on a GPU that has 18.
    has_switch = matrix.has_switch(gpu)
    for first, second in permutations(matrix.gpus, 2):
        source = prefix + first
        destination = prefix + second
        lanes = matrix.lanes(first, second)
        if lanes and has_switch:
            route = [f"{source} nvlink up", f"{destination} nvlink down"]
        elif lanes:
            name = f"nvlink {source}-{destination}"
            route = [name]
            topology.wires[name] = Wire(gpu.lane * lanes)
        else:
            route = [f"{source} pcie up", f"{destination} pcie down"]
            word = matrix.rows[first][second]
            # The words count bridges and name none: who shares one is unknown.
            topology.leave_out(f"{word}: which PCIe switches are between")
        topology.routes[source, destination] = route


def _join_boxes(
    topology: Topology,
    matrix: _Matrix,
    prefixes: list[str],
    nic: float,
) -> None:
    """Join the GPUs of different boxes: each over the NIC that is nearest to it."""
    if not matrix.nics:
        raise ValueError("it has no NIC that could join several boxes")
    if not nic:
        raise topology.error(
            "has no rates of NICs: write topology: {file: ..., boxes: "
            f"{len(prefixes)}, nic: 400 Gbit/s}}"
        )

    for prefix in prefixes:
        for name in matrix.nics:
            topology.wires[f"{prefix}{name} out"] = Wire(nic)
            topology.wires[f"{prefix}{name} in"] = Wire(nic)
    nearest = {name: matrix.nearest_nic(name) for name in matrix.gpus}
    for box, other_box in permutations(prefixes, 2):
        for first, second in product(matrix.gpus, repeat=2):
            # GPUs nearest to one NIC share it, and each has its own PCIe.
            source = box + first
            destination = other_box + second
            topology.routes[source, destination] = [
                f"{source} pcie up",
                f"{box}{nearest[first]} out",
                f"{other_box}{nearest[second]} in",
                f"{destination} pcie down",
            ]
    topology.notes.append("a GPU reaches other boxes over the NIC nearest to it")


def _note(
    topology: Topology,
    matrix: _Matrix,
    model: str,
    gpu: Gpu,
) -> None:
    """Note what was assumed, and count what was read past."""
    if matrix.has_switch(gpu):
        first_gpu = matrix.gpus[0]
        lanes = max(matrix.lanes_of(first_gpu))
        topology.notes.append(
            f"a GPU has {lanes} NVLinks in all, which lead to a switch: to all GPUs "
            "together it sends no more"
        )

    taken_as = [name for name in GPUS if GPUS[name] == gpu]
    if model:
        line = f"GPUs are {model}, by a line beside the matrix"
    elif taken_as:
        line = f"no GPU is named: taken as {taken_as[0]} by its NVLinks"
    else:
        line = "no GPU is named"
    nvlink = gpu.lane / 1e9
    pcie = gpu.pcie / 1e9
    line += f": an NVLink has {nvlink:g} GB/s each way, PCIe {pcie:g} GB/s"
    if not model:
        names = ", ".join(GPUS)
        line += f"; write its name ({names}) above the matrix"
    topology.notes.append(line)

    for line in matrix.beside:
        if not _LEGEND.match(line):
            topology.leave_out("line beside the matrix")
