"""Routes and times of platforms equal SimGrid's own, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from itertools import permutations
from pathlib import Path

import pytest

from emu.interchange.simgrid import read_platform
from tests.interchange.platforms import (
    BACKBONE,
    DRAGONFLY,
    FAT_TREE,
    HALF_DUPLEX,
    TORUS,
    ZONES,
    Flow,
    makespan,
)

PLATFORMS = {
    "backbone": BACKBONE,
    "half duplex": HALF_DUPLEX,
    "torus": TORUS,
    "fat tree": FAT_TREE,
    "dragonfly": DRAGONFLY,
    "zones": ZONES,
}
#: Rates of links alone: no window of TCP, no factors, no traffic the other way.
MODEL = (
    "--cfg=network/model:CM02",
    "--cfg=network/TCP-gamma:0",
    "--cfg=network/crosstraffic:0",
    "--log=root.thres:critical",
)
SIZE = 125e6


def shift(hosts: int, step: int) -> list[Flow]:
    """Return a flow from each host of a cluster to one some places on."""
    return [
        (f"n{host}.x", f"n{(host + step) % hosts}.x", SIZE) for host in range(hosts)
    ]


#: Flows of equal latency: SimGrid gives those of a longer one less.
FLOWS = {
    "backbone": shift(6, 1),
    "half duplex": [*shift(4, 1), *shift(4, 2)],
    "torus": shift(12, 6),
    "fat tree": [(f"n{n}.x", f"n{(n + 6) % 12}.x", SIZE) for n in range(0, 12, 2)],
    "dragonfly": [(f"n{n}.x", f"n{n + 1}.x", SIZE) for n in (0, 2, 8, 10, 16)],
    "zones": [("m0.x", "n0.x", SIZE), ("m1.x", "n1.x", 2 * SIZE)],
}


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program that asks SimGrid."""
    source = Path(__file__).with_suffix("").with_name("simgrid_peer.cpp")
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    program = tmp_path_factory.mktemp("peer") / "peer"
    command = [compiler, "-std=c++17", str(source), "-lsimgrid", "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("SimGrid is not installed (apt: libsimgrid-dev)")
    return program


@pytest.mark.slow
@pytest.mark.parametrize("name", PLATFORMS)
def test_every_route_is_that_of_simgrid(peer: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "platform.xml"
    path.write_text(PLATFORMS[name])
    command = [str(peer), str(path), *MODEL[3:]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    topology = read_platform(path)
    links_of_wire = defaultdict[str, list[set[str]]](list)
    compared = set[tuple[str, str]]()
    for line in done.stdout.splitlines():
        source, destination, latency, *links = line.split("|")
        wires = topology.routes[source, destination]
        rates = sorted(topology.wires[wire].rate for wire in wires)
        expected = sorted(float(link.partition(";")[0]) for link in links)
        names = {link.partition(";")[2] for link in links}
        compared.add((source, destination))
        for wire in wires:
            links_of_wire[wire].append(names)

        assert rates == pytest.approx(expected, rel=1e-12)
        own_latency = sum(topology.wires[wire].latency for wire in wires)
        assert own_latency == pytest.approx(float(latency), rel=1e-9)
    # What two routes share here they share there.
    assert all(set.intersection(*shared) for shared in links_of_wire.values())
    assert compared == {*permutations(topology.machines, 2)}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLATFORMS)
def test_the_makespan_is_that_of_simgrid(peer: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "platform.xml"
    path.write_text(PLATFORMS[name])
    lines = "".join(f"{a} {b} {size:.0f}\n" for a, b, size in FLOWS[name])
    command = [str(peer), str(path), "flows", *MODEL]
    done = subprocess.run(
        command, input=lines, capture_output=True, text=True, check=True
    )
    assert makespan(path, FLOWS[name]) == pytest.approx(float(done.stdout), rel=1e-6)
