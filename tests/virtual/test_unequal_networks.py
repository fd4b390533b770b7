"""Calls over unequal NICs, shared links and latencies: times computed by hand.

The cluster is that of a scenario, so that capacities, routes and latencies are read as
the keeper of the clocks reads them. Headers are less than 1e-3 of a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from emu.scenario.scenario_file import load_lab
from emu.virtual import gloo_operations as gloo
from emu.virtual.cluster_server import routes_between
from emu.virtual.gloo_operations import Ring, Script
from emu.virtual.gloo_transport import MessageNetwork, Operation, write_steps
from emu.virtual.run_virtual import cluster_of

#: Bytes of a message.
SIZE = 2_000_000
MBIT = 1e6 / 8
ALL = (0, 1, 2, 3)


def seconds_of(
    folder: Path, section: str, scripts: Sequence[Script], machines: Sequence[int] = ALL
) -> list[float]:
    """Return when each rank ends its script, which all begin at once."""
    file = folder / "cluster.yaml"
    file.write_text(f"cluster:\n{section}")
    cluster = cluster_of(load_lab(file), machines)
    network = MessageNetwork(cluster.links.capacities, len(machines))
    route = routes_between(cluster.links, machines, [0.0] * len(machines))
    group = network.open_group(range(len(machines)), route)
    ends = [0.0] * len(machines)
    for rank, script in enumerate(scripts):

        def done(moment: float, _: int, rank: int = rank) -> None:
            ends[rank] = moment

        operation = Operation(rank, 0, write_steps(script), done)
        network.submit(group, operation)
    while network.go_on(float("inf")):
        pass
    return ends


def machine(name: str, out: float, inward: float, latency: str = "0 s") -> str:
    nic = f"{{out: {out} Mbit/s, in: {inward} Mbit/s, latency: {latency}}}"
    return f"  - {{name: {name}, nic: {nic}}}\n"


#: Their NICs differ from machine to machine, and by direction.
UNEQUAL = "  machines:\n" + "".join(
    [
        machine("a", 100, 700),
        machine("b", 200, 600),
        machine("c", 300, 500),
        machine("d", 400, 50),
    ]
)


def test_a_gather_takes_what_the_root_s_nic_takes_in(tmp_path: Path) -> None:
    """Three senders of 100, 200, 300 come into 50 Mbit/s; into 700 each is alone."""
    scripts = [gloo.gather(rank, 4, 3, SIZE) for rank in range(4)]
    ends = seconds_of(tmp_path, UNEQUAL, scripts)
    assert ends[3] == pytest.approx(3 * SIZE / (50 * MBIT), rel=1e-3)

    # b 200, c 300, d 400 want 900 of 700 Mbit/s: b has 200, c and d 250 each.
    scripts = [gloo.gather(rank, 4, 0, SIZE) for rank in range(4)]
    ends = seconds_of(tmp_path, UNEQUAL, scripts)
    assert ends[0] == pytest.approx(SIZE / (200 * MBIT), rel=1e-3)


def test_a_scatter_takes_what_the_root_s_nic_gives_out(tmp_path: Path) -> None:
    """Machine a sends 100 to three, d takes 50: 33.3 each. c's 300: 125, 125 and 50."""
    scripts = [gloo.scatter(rank, 4, 0, SIZE) for rank in range(4)]
    ends = seconds_of(tmp_path, UNEQUAL, scripts)
    assert ends[1] == pytest.approx(3 * SIZE / (100 * MBIT), rel=1e-3)

    scripts = [gloo.scatter(rank, 4, 2, SIZE) for rank in range(4)]
    ends = seconds_of(tmp_path, UNEQUAL, scripts)
    assert ends[0] == pytest.approx(SIZE / (125 * MBIT), rel=1e-3)
    assert ends[1] == pytest.approx(SIZE / (125 * MBIT), rel=1e-3)
    assert ends[3] == pytest.approx(SIZE / (50 * MBIT), rel=1e-3)


def test_a_ring_takes_what_its_slowest_way_takes(tmp_path: Path) -> None:
    """Rank r sends to r - 1: into d, of 50 Mbit/s, goes what a sends."""
    ring = Ring(ranks=4, size=SIZE, element=4)
    ends = seconds_of(tmp_path, UNEQUAL, [gloo.all_reduce(r, ring) for r in ALL])

    assert max(ends) == pytest.approx(1.5 * SIZE / (50 * MBIT), rel=0.01)


def test_a_narrow_uplink_is_shared_by_those_that_cross_it(tmp_path: Path) -> None:
    """Two of a rack send to two outside through 100 up; back come two through 400."""
    section = (
        "  machines:\n  - {name: m, count: 4, nic: 1 Gbit/s}\n"
        "  racks:\n"
        "  - {name: r, machines: [m0, m1], uplink: {out: 100 Mbit/s, in: 400 Mbit/s}}\n"
    )
    partner = (2, 3, 0, 1)

    def exchange(rank: int) -> Script:
        receive = yield gloo.Receive(partner[rank], SIZE)
        send = yield gloo.Send(partner[rank], SIZE)
        yield gloo.Wait((receive, send))

    ends = seconds_of(tmp_path, section, [exchange(rank) for rank in ALL])
    upwards = 2 * SIZE / (100 * MBIT)
    downwards = 2 * SIZE / (400 * MBIT)
    assert ends[2] == ends[3] == pytest.approx(upwards, rel=1e-3)
    assert ends[0] == ends[1] == pytest.approx(downwards, rel=1e-3)


def test_latencies_add_up_by_direction(tmp_path: Path) -> None:
    """Ready notices go back, data forth: each by the out of one, the in of the other.

    From a to b: 1 + 20 ms forth, 300 + 4 ms back.
    """
    section = (
        "  machines:\n"
        + machine("a", 800, 800, "{out: 1 ms, in: 4 ms}")
        + machine("b", 800, 800, "{out: 300 ms, in: 20 ms}")
    )

    def send() -> Script:
        yield gloo.Wait(((yield gloo.Send(1, SIZE)),))

    def receive() -> Script:
        yield gloo.Wait(((yield gloo.Receive(0, SIZE)),))

    carried = SIZE / (800 * MBIT)
    ends = seconds_of(tmp_path, section, [send(), receive()], (0, 1))
    assert ends[1] == pytest.approx(0.304 + carried + 0.021, abs=1e-5)
    # The kernel has it whole as soon as the notice has come.
    assert ends[0] == pytest.approx(0.304, abs=1e-5)


def test_ranks_of_a_machine_share_its_nic_and_cross_none(tmp_path: Path) -> None:
    """Ranks 0 and 1 on a machine: 1 has it at once, 2 and 3 share a's 100 Mbit/s."""
    scripts = [gloo.scatter(rank, 4, 0, SIZE) for rank in range(4)]
    ends = seconds_of(tmp_path, UNEQUAL, scripts, (0, 0, 1, 2))

    assert ends[1] == 0.0
    assert ends[2] == ends[3] == pytest.approx(2 * SIZE / (100 * MBIT), rel=1e-3)
