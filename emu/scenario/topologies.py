"""Machines, links and routes of known boxes, from a word in ``cluster.topology``.

Rates are those of DGCL's Table 1 (Cai et al., EuroSys 2021); NVLinks are numbered as in
NVIDIA's description of the DGX-1.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from emu.errors import DataError
from emu.host.input_file import open_input
from emu.scenario.document import Data, Document, read_document

if TYPE_CHECKING:
    Pairs = Sequence[tuple[int, int]]

_DEVICES = 8
_NV2: Pairs = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))
_NV1: Pairs = ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7))
#: GB/s of NVLinks of two lanes and of one, PCIe, the link of the sockets, InfiniBand.
_RATES = {"nv2": 48.35, "nv1": 24.22, "pcie": 11.13, "qpi": 9.56, "ib": 6.37}
#: Word -> number of boxes, and whether they have NVLinks.
_BOXES = {"dgx1": (1, True), "two_dgx1": (2, True), "pcie_8": (1, False)}
_KNOWN = f"{', '.join(_BOXES)}, or a file of links and routes"
_KEYS = ("machines", "links", "routes", "racks")


def expand_topology(document: Document, folder: Path) -> None:
    """Write machines, links and routes for ``cluster.topology``, where it is stated.

    ``folder``: that of the file, which the path of a topology is relative to.

    Raises ScenarioError when it is no known word and no file of such keys, or
    stands beside them.
    """
    cluster = document.data.get("cluster")
    if not isinstance(cluster, dict) or "topology" not in cluster:
        return
    at = ("cluster", "topology")
    if not isinstance(cluster["topology"], str):
        raise document.error(at, f"found {cluster['topology']!r:.40}, write {_KNOWN}")
    if cluster["topology"] not in _BOXES:
        document.resolve_path(at, folder)
    word = cluster.pop("topology")
    for key in _KEYS:
        if key in cluster:
            problem = f"states {key} already: remove one of the two"
            raise document.error(at, problem)
    if word in _BOXES:
        boxes, nvlinks = _BOXES[word]
        cluster.update(boxes_of(boxes, nvlinks=nvlinks))
        job = document.data.get("job")
        if boxes == 1 and isinstance(job, dict) and job.get("plan") == "swap":
            _add_host(cluster)
        return
    if not Path(word).is_file():
        raise document.error(at, f"found {word!r}, write {_KNOWN}")
    content = _read(document, Path(word))
    if unknown := content.keys() - {*_KEYS}:
        problem = f"{word} has a key {min(unknown)!r}, it can have {', '.join(_KEYS)}"
        raise document.error(at, problem)
    cluster.update(content)


def _read(document: Document, path: Path) -> Data:
    """Return the keys of a file, which may have a format of others.

    What that says and a cluster cannot is said on standard error, by name and count.

    Raises ScenarioError when it is damaged, or no mapping.
    """
    from emu.interchange.formats import read_topology  # noqa: PLC0415 - seldom

    try:
        with open_input(path) as file:
            head = file.read(1 << 16).decode("utf-8", "replace")
        content: Data = {}
        topology = read_topology(path, head)
        if topology is None:
            content = read_document(path).data
            topology = read_topology(path, "", content)
        if topology is None:
            return content
        keys = topology.cluster()
    except DataError as error:
        problem = f"{path} {error.problem}"
        raise document.error(("cluster", "topology"), problem) from error
    for what, count in topology.left_out.items():
        line = f"emu: {path}: left out: {what}, {count:,} times"
        print(line, file=sys.stderr)  # noqa: T201 - as signs of life are
    return keys


def _add_host(cluster: Data) -> None:
    """Add the memory of a box as a machine ``host``, which devices reach over PCIe."""
    for number, device in enumerate(machine["name"] for machine in cluster["machines"]):
        for ends, way in ((("from", "to"), "up"), (("to", "from"), "down")):
            pair = dict(zip(ends, (device, "host"), strict=True))
            cluster["routes"].append({**pair, "through": [f"pcie{number} {way}"]})
    cluster["machines"].append({"name": "host", "nic": "none"})


def boxes_of(boxes: int, *, nvlinks: bool) -> Data:
    """Return section ``cluster`` of boxes of eight devices each, without NICs.

    A pair without an NVLink crosses PCIe out of the sender, then the link of its socket
    where the receiver is on the other, or the InfiniBand cards of both boxes, then PCIe
    into the receiver. Devices 0 to 3 of a box are on one socket, 4 to 7 on the other.
    """
    devices = [(box, place) for box in range(boxes) for place in range(_DEVICES)]
    links = {
        f"pcie{_number(one)} {way}": _RATES["pcie"]
        for one in devices
        for way in ("up", "down")
    }
    links |= {f"qpi{2 * b + s}": _RATES["qpi"] for b in range(boxes) for s in (0, 1)}
    if boxes > 1:
        ways = itertools.product(range(boxes), ("out", "in"))
        links |= {f"ib{box} {way}": _RATES["ib"] for box, way in ways}
    routes = []
    for sender, receiver in itertools.permutations(devices, 2):
        through, rate = _through(sender, receiver, nvlinks=nvlinks)
        if rate:
            links[through[0]] = rate
        ends = {"from": f"d{_number(sender)}", "to": f"d{_number(receiver)}"}
        routes.append({**ends, "through": through})
    return {
        "machines": [{"name": f"d{_number(one)}", "nic": "none"} for one in devices],
        "links": [
            {"name": name, "bandwidth": f"{rate} GB/s"} for name, rate in links.items()
        ],
        "routes": routes,
    }


def _number(device: tuple[int, int]) -> int:
    return device[0] * _DEVICES + device[1]


def _through(
    sender: tuple[int, int], receiver: tuple[int, int], *, nvlinks: bool
) -> tuple[list[str], float]:
    """Return the links from a device to another, and the rate of one of their own."""
    (box, place), (other_box, other) = sender, receiver
    up, down = f"pcie{_number(sender)} up", f"pcie{_number(receiver)} down"
    if box != other_box:
        return [up, f"ib{box} out", f"ib{other_box} in", down], 0.0
    pair = (min(place, other), max(place, other))
    for kind, pairs in (("nv2", _NV2), ("nv1", _NV1)):
        if nvlinks and pair in pairs:
            name = f"{kind} {_number(sender)}-{_number(receiver)}"
            return [name], _RATES[kind]
    socket = place * 2 // _DEVICES
    if socket == other * 2 // _DEVICES:
        return [up, down], 0.0
    return [up, f"qpi{2 * box + socket}", down], 0.0
