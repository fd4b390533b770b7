"""One box by ``nvidia-smi topo -m``: NVLinks between pairs of GPUs, PCIe elsewhere.

The matrix has no rates: a lane of NVLink is taken as 25 GB/s, as since NVLink 2, and a
way over PCIe (PIX, PXB, PHB, NODE, SYS) as 16 lanes of its third generation.
"""

from __future__ import annotations

import re
from pathlib import Path

from emu.errors import DataError
from emu.host.input_file import one_error, read_text
from emu.interchange.topology import Topology, Wire

_LANE, _PCIE = 25e9, 15.754e9
_WORDS = {"PIX", "PXB", "PHB", "NODE", "SYS", "SOC"}


def read_matrix(path: Path) -> Topology:
    """Return the GPUs of a box; what is beside them is left out.

    Raises DataError when a row is missing or has another word.
    """
    with one_error(path):
        lines = re.sub(r"\x1b\[\d*m", "", read_text(path)).splitlines()
        head = lines[0].split()
        names = [word for word in head if re.fullmatch(r"GPU\d+", word)]
        rows = {line.split()[0]: line.split()[1:] for line in lines[1:] if line.strip()}
        topology = Topology(str(path), names)
        for way in ("up", "down"):
            topology.wires |= {f"{name} pcie {way}": Wire(_PCIE) for name in names}
        for one in names:
            if len(rows.get(one, ())) <= head.index(names[-1]):
                raise DataError(f"has no whole row of {one}", path=path)
            for other, word in zip(head, rows[one], strict=False):
                if one == other or other not in names:
                    continue
                if lanes := re.fullmatch(r"NV(\d+)", word):
                    name = f"nvlink {one}-{other}"
                    topology.wires[name] = Wire(_LANE * int(lanes[1]))
                    topology.routes[one, other] = [name]
                elif word in _WORDS:
                    ways = [f"{one} pcie up", f"{other} pcie down"]
                    topology.routes[one, other] = ways
                    topology.left_out[f"{word}: which PCIe switches are between"] += 1
                else:
                    problem = f"{one} to {other} is {word!r}: NV1, ..., "
                    problem += ", ".join(sorted(_WORDS))
                    raise DataError(problem, path=path)
        others = [word for word in rows if re.fullmatch(r"(NIC|mlx)\w*", word)]
        topology.left_out["NIC of the box"] += len(others)
        return topology
