"""Requests, answers and rings in packets that are stated one by one."""

from __future__ import annotations

import numpy as np
import pytest

from emu.lab.fitting.conversations import (
    Exchange,
    Packets,
    Unfittable,
    _follow,
    _ring,
    by_process,
    conversations,
)
from emu.prediction.analysis.traffic import OWNER, PACKET, Traffic

#: Ports of program 0 on machines 0 and 1, and of program 1 on them.
CLIENTS, SERVERS = (100, 101), (200, 201)


def traffic_of(*rows: tuple[float, int, int, int, int, int]) -> Traffic:
    """Return packets of two machines: time, machines, ports, bytes."""
    owners = [
        *((machine, port, 0) for machine, port in enumerate(CLIENTS)),
        *((machine, port, 1) for machine, port in enumerate(SERVERS)),
    ]
    return Traffic(
        packets=np.array([*rows], PACKET),
        machines=("m0", "m1"),
        nics=np.ones((2, 2)),
        programs=("client", "server"),
        owners=np.array(owners, OWNER),
    )


def test_packets_are_of_the_programs_that_have_their_ports() -> None:
    """Nine of 1000 bytes cross between ports of nobody, and one in a hundred may."""
    rows = [
        (0.1, 1, 0, 201, 100, 591),
        (0.2, 0, 1, 9, 101, 5),
        (0.3, 0, 1, 100, 101, 400),
        (0.4, 0, 1, 100, 9, 4),
    ]
    packets = by_process(traffic_of(*rows))

    assert packets.processes == ((0, 0), (1, 0), (1, 1))
    assert packets.rows.tolist() == [0, 2]
    assert packets.source.tolist() == [2, 0]
    assert packets.destination.tolist() == [0, 1]
    assert packets.time.tolist() == [0.1, 0.3]
    assert packets.bytes.tolist() == [591, 400]
    with pytest.raises(Unfittable, match=r"^1\.1% of the bytes belong to ports"):
        by_process(traffic_of(*rows, (0.5, 0, 1, 100, 9, 2)))


def test_whoever_speaks_first_asks_and_answers_end_requests() -> None:
    """Two packets ask and three answer; a last request may have no answer."""
    ring = [
        (0.1 * turn, source, 1 - source, 100 + source, 101 - source, 900)
        for turn in range(4)
        for source in (0, 1)
    ]
    talk = [
        (1.0, 0, 1, 100, 201, 30),
        (1.1, 0, 1, 100, 201, 40),
        (1.2, 1, 0, 201, 100, 500),
        (1.3, 1, 0, 201, 100, 600),
        (1.5, 0, 1, 100, 201, 50),
        (1.6, 1, 0, 201, 100, 700),
        (1.7, 0, 1, 100, 201, 60),
    ]
    # A server speaks first here: it is the client of the other program.
    other = [(0.9, 0, 1, 200, 101, 20), (0.95, 1, 0, 101, 200, 80)]
    rows = sorted([*ring, *talk, *other])

    exchanges, found = conversations(by_process(traffic_of(*rows)))

    first, second = (0, 0), (1, 1)
    assert exchanges == [
        Exchange((0, 1), (1, 0), (0.9, 0.9), (0.95, 0.95), 20, 80),
        Exchange(first, second, (1.0, 1.1), (1.2, 1.3), 70, 1100),
        Exchange(first, second, (1.5, 1.5), (1.6, 1.6), 50, 700),
    ]
    assert found.members == ((0, 0), (1, 0))
    for times, sizes in found.sent:
        np.testing.assert_allclose(times, [0.0, 0.1, 0.2, 0.3])
        assert sizes.tolist() == [900] * 4
    assert [len(times) for times in found.any_sent] == [4, 4]


def test_each_pair_of_processes_has_a_conversation_of_its_own() -> None:
    """Two clients ask two servers, all at the same time."""
    clients, servers = (0, 1), (2, 3)
    rows = [(0.0, 0, 1, 9000), (0.01, 1, 0, 9000)]
    for client in clients:
        for server in servers:
            size = 10 * client + server
            asked = 1.0 + 0.01 * client + 0.001 * server
            rows.append((asked, client, server, size))
            rows.append((asked + 1.0, server, client, 100 * size))
    rows.sort()
    time, source, destination, sizes = (
        np.array(row) for row in zip(*rows, strict=True)
    )
    processes = ((0, 0), (1, 0), (2, 1), (3, 1))
    packets = Packets(processes, np.arange(10), source, destination, time, sizes)

    exchanges, _ = conversations(packets)

    found = [(e.client, e.server, e.request, e.answer) for e in exchanges]
    assert found == [
        (processes[client], processes[server], size, 100 * size)
        for client, server, size in ((0, 2, 2), (0, 3, 3), (1, 2, 12), (1, 3, 13))
    ]


@pytest.mark.parametrize(
    ("sizes", "ring"),
    [
        # From the one who sends most, told from the least number on.
        ([[0, 0, 9], [8, 0, 1], [0, 9, 0]], [0, 2, 1]),
        ([[0, 0, 7], [8, 0, 1], [0, 9, 0]], [0, 2, 1]),
        ([[0, 5, 1], [1, 0, 5], [5, 1, 0]], [0, 1, 2]),
        # Processes 1 and 2 send one another most, 0 sends them something.
        ([[0, 2, 0], [0, 0, 9], [0, 9, 0]], [1, 2]),
        # Who sends most gets nothing back: the way ends in a loop without it.
        ([[0, 50, 0], [0, 0, 7], [0, 8, 0]], [0, 1, 2, 1]),
        ([[0, 0], [0, 0]], [0]),
    ],
)
def test_a_ring_is_followed_from_who_sends_most(
    sizes: list[list[int]], ring: list[int]
) -> None:
    """Each sends most of its bytes to the next one."""
    assert _follow(np.array(sizes)) == ring


def ring_of(*rows: tuple[int, int, int]) -> Packets:
    """Return packets among three processes: source, destination, bytes."""
    source, destination, sizes = np.array(rows).T
    return Packets(
        processes=((0, 0), (1, 0), (2, 0)),
        rows=np.arange(len(rows)),
        source=source,
        destination=destination,
        time=np.arange(float(len(rows))),
        bytes=sizes,
    )


def test_a_tenth_of_the_bytes_may_go_beside_a_ring() -> None:
    """Times to the next one and to anybody are told apart."""
    around = [(0, 2, 300), (2, 1, 300), (1, 0, 300)]
    found = _ring(ring_of(*around, (0, 1, 100)))

    assert found.members == ((0, 0), (2, 0), (1, 0))
    assert [times.tolist() for times, _ in found.sent] == [[0.0], [1.0], [2.0]]
    assert [sizes.tolist() for _, sizes in found.sent] == [[300]] * 3
    assert [times.tolist() for times in found.any_sent] == [[0.0, 3.0], [1.0], [2.0]]

    with pytest.raises(Unfittable, match="no all-reduce round a ring"):
        _ring(ring_of(*around, (0, 1, 101)))
    # One that only sends, or only receives, has no place in it.
    for ends in ((2, 0), (0, 2)):
        with pytest.raises(Unfittable, match="no all-reduce round a ring"):
            _ring(ring_of((0, 1, 300), (1, 0, 300), (*ends, 1)))
