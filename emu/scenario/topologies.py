"""Machines, links and routes of known boxes, from a word in ``cluster.topology``.

Rates are those of DGCL's Table 1 (Cai et al., EuroSys 2021); NVLinks are numbered as in
NVIDIA's description of the DGX-1.
"""

from __future__ import annotations

import functools
import itertools
import sys
from pathlib import Path
from typing import Any

from emu.errors import DataError
from emu.problem.fields.section import Trail
from emu.scenario.document import Data, Document
from emu.units import RATE

_DEVICES = 8
#: Pairs of devices of a box that two lanes of NVLink join, and those that one joins.
_TWO_LANES = "03 04 12 15 23 47 56 67"
_ONE_LANE = "01 02 13 26 37 45 46 57"
#: GB/s of NVLinks of two lanes and of one, PCIe, the link of the sockets, InfiniBand.
_RATES = {"nv2": 48.35, "nv1": 24.22, "pcie": 11.13, "qpi": 9.56, "ib": 6.37}
#: Word -> number of boxes, and whether they have NVLinks.
_BOXES = {"dgx1": (1, True), "two_dgx1": (2, True), "pcie_8": (1, False)}
_KNOWN = f"{', '.join(_BOXES)}, or a file of links and routes"
_MOST_BOXES = 400
_KEYS = ("machines", "links", "routes", "racks")
_AT = ("cluster", "topology")


def expand_topology(document: Document, folder: Path) -> None:
    """Write machines, links and routes for ``cluster.topology``, where it is stated.

    ``folder``: that of the file, which the path of a topology is relative to. Raises
    ScenarioError when it is no known word and no file of such keys, or stands beside
    them.
    """
    cluster = document.data.get("cluster")
    if not isinstance(cluster, dict) or "topology" not in cluster:
        return
    if isinstance(cluster["topology"], dict):
        word, answers = _read_answers(document, folder)
    else:
        word = _read_word(document, folder)
        answers = {}
    # What it stands for is written in its place.
    del cluster["topology"]
    for key in _KEYS:
        if key in cluster:
            problem = f"states {key} already: remove one of the two"
            raise document.error(_AT, problem)
    if word in _BOXES:
        boxes, nvlinks = _BOXES[word]
        cluster.update(boxes_of(boxes, nvlinks=nvlinks))
        job = document.data.get("job")
        # Only DGCL's plan ``swap`` has use for it: rows go through the host's memory.
        swaps = isinstance(job, dict) and job.get("plan") == "swap"
        if swaps and boxes == 1:
            _add_host(cluster)
        return

    content = _read(document, Path(word), answers)
    unknown = content.keys() - set(_KEYS)
    if unknown:
        keys = ", ".join(_KEYS)
        problem = f"{word} has a key {min(unknown)!r}, it can have {keys}"
        raise document.error(_AT, problem)
    cluster.update(content)


def _read_word(document: Document, folder: Path) -> str:
    """Return the word, or the path, that ``topology`` is."""
    word = document.data["cluster"]["topology"]
    if not isinstance(word, str):
        raise document.error(_AT, f"found {word!r:.40}, write {_KNOWN}")
    if word in _BOXES:
        return word
    document.resolve_path(_AT, folder)
    cluster = document.data["cluster"]
    path = str(cluster["topology"])
    _check_file(document, path)
    return path


def _read_answers(document: Document, folder: Path) -> tuple[str, Data]:
    """Return the file of ``topology: {file: ..., boxes: 2}``, and what else it says.

    Rates are bytes per second. Raises ScenarioError when a key is another, or a value
    is none of its kind.
    """
    document.resolve_path((*_AT, "file"), folder)
    cluster = document.data["cluster"]
    answers = dict(cluster["topology"])

    word = answers.pop("file", None)
    if not isinstance(word, str):
        raise document.error(_AT, "states no file: write {file: h100.txt, boxes: 2}")
    _check_file(document, word)

    for key, value in answers.items():
        trail = (*_AT, key)
        if key == "boxes":
            _check_count(document, trail, value)
        elif key in ("nic", "uplink"):
            text = str(value)
            try:
                answers[key] = RATE.parse(text)
            except ValueError as error:
                raise document.error(trail, str(error)) from error
        else:
            problem = "is no key of a topology: file, boxes, nic, uplink are"
            raise document.error(trail, problem)
    return word, answers


def _check_count(document: Document, trail: Trail, value: Any) -> None:
    # A truth value is a whole number to Python.
    is_count = isinstance(value, int) and not isinstance(value, bool)
    if not is_count or not 1 <= value <= _MOST_BOXES:
        problem = f"found {value!r:.40}, write 1 to {_MOST_BOXES}"
        raise document.error(trail, problem)


def _check_file(document: Document, word: str) -> None:
    if not Path(word).is_file():
        raise document.error(_AT, f"found {word!r}, write {_KNOWN}")


def _read(document: Document, path: Path, answers: Data) -> Data:
    """Return the keys of a file, which may have a format of others.

    What was assumed, and what that file says and a cluster cannot, is said on standard
    error. Raises ScenarioError when it is damaged, or no mapping.
    """
    # Imported here, once: the child that reads would do so for every file.
    from emu.scenario.topology_file import read_keys  # noqa: PLC0415 - seldom

    try:
        keys, notes = read_keys(path, answers)
    except DataError as error:
        raise document.error(_AT, f"{path} {error.problem}") from error
    for note in notes:
        _say(f"emu: {path}: {note}")
    return keys


@functools.cache  # a scenario is read several times
def _say(line: str) -> None:
    """Write a line on standard error, once."""
    print(line, file=sys.stderr)  # noqa: T201 - as signs of life are


def _add_host(cluster: Data) -> None:
    """Add the memory of a box as a machine ``host``, which devices reach over PCIe."""
    for number in range(_DEVICES):
        device = f"d{number}"
        to_host = {
            "from": device,
            "to": "host",
            "through": [f"pcie{number} up"],
        }
        to_device = {
            "from": "host",
            "to": device,
            "through": [f"pcie{number} down"],
        }
        cluster["routes"] += [to_host, to_device]
    host = {"name": "host", "nic": "none"}
    cluster["machines"].append(host)


def boxes_of(boxes: int, *, nvlinks: bool) -> Data:
    """Return section ``cluster`` of boxes of eight devices each, without NICs.

    A pair without an NVLink crosses PCIe out of the sender, then the link of its socket
    where the receiver is on the other, or the InfiniBand cards of both boxes, then PCIe
    into the receiver. Devices 0 to 3 of a box are on one socket, 4 to 7 on the other.
    """
    devices = range(boxes * _DEVICES)
    kinds = {}
    for device in devices:
        kinds[f"pcie{device} up"] = "pcie"
        kinds[f"pcie{device} down"] = "pcie"
    for socket in range(2 * boxes):
        kinds[f"qpi{socket}"] = "qpi"
    if boxes > 1:
        for box in range(boxes):
            kinds[f"ib{box} out"] = "ib"
            kinds[f"ib{box} in"] = "ib"

    routes = []
    # Without NICs every way has to be stated.
    for sender, receiver in itertools.permutations(devices, 2):
        lanes = _lanes(sender, receiver) if nvlinks else ""
        through = _cross(sender, receiver)
        # An NVLink of their own: nothing else is crossed.
        if lanes:
            name = f"{lanes} {sender}-{receiver}"
            through = [name]
            kinds[name] = lanes
        route = {
            "from": f"d{sender}",
            "to": f"d{receiver}",
            "through": through,
        }
        routes.append(route)

    links = []
    for name, kind in kinds.items():
        bandwidth = f"{_RATES[kind]} GB/s"
        link = {"name": name, "bandwidth": bandwidth}
        links.append(link)
    machines = [{"name": f"d{device}", "nic": "none"} for device in devices]
    return {
        "machines": machines,
        "links": links,
        "routes": routes,
    }


def _lanes(sender: int, receiver: int) -> str:
    """Return the NVLink between two devices, empty where there is none."""
    if sender // _DEVICES != receiver // _DEVICES:
        return ""
    places = (sender % _DEVICES, receiver % _DEVICES)
    first, second = sorted(places)
    pair = f"{first}{second}"
    if pair in _TWO_LANES.split():
        return "nv2"
    return "nv1" if pair in _ONE_LANE.split() else ""


def _cross(sender: int, receiver: int) -> list[str]:
    """Return the links between two devices that no NVLink joins."""
    # Two sockets a box, numbered through all of them.
    socket = sender * 2 // _DEVICES
    box = sender // _DEVICES
    other_box = receiver // _DEVICES
    through = [f"pcie{sender} up"]
    if box != other_box:
        through += [f"ib{box} out", f"ib{other_box} in"]
    elif socket != receiver * 2 // _DEVICES:
        through.append(f"qpi{socket}")
    return [*through, f"pcie{receiver} down"]
