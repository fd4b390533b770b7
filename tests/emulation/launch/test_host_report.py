"""Reports of a host on itself, and its clock beside the coordinator's."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from types import SimpleNamespace
from typing import Any, Self, cast

import psutil
import pytest
from typing_extensions import override

from emu.emulation.launch import host_report
from emu.emulation.launch.host_report import (
    ClockComparison,
    loopback_rate,
    nic_of,
    own_host_name,
    usable_cores,
)
from emu.emulation.launch.launcher import ExternalLauncher, LocalLauncher
from emu.emulation.network.clock import ClockLine
from emu.host.this_host import this_host


class Answering:
    """A connection whose peer's clock is 3 s ahead, and a board that notes it."""

    def __init__(self) -> None:
        self.pongs: deque[ClockLine] = deque()
        self.pings = 0
        self.published: list[ClockLine] = []

    def ping(self) -> None:
        """Answer at once."""
        self.pings += 1
        now = this_host.monotonic()
        self.pongs.append(ClockLine(at=now, offset=3.0, uncertainty=1e-3))

    def publish_clock(self, line: ClockLine) -> None:
        """Note a line."""
        self.published.append(line)


@pytest.mark.parametrize("name", ["", "another"])
async def test_the_clock_of_another_host_is_compared_and_published(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A coordinator of an older kind does not name its clock."""
    monkeypatch.setattr(host_report, "_APART", 0.0)
    peer = Answering()
    clock = ClockComparison(cast("Any", peer), cast("Any", peer), name)
    assert clock.reading() == []
    await clock.compare(pings=3)

    (line,) = peer.published
    assert peer.pings == 3
    assert line.offset == 3.0
    assert clock.reading() == [line.offset, line.drift, line.uncertainty]


@pytest.mark.parametrize(
    ("environment", "node", "name"),
    [({}, "n7", "n7"), ({}, "", "host"), ({"SLURM_PROCID": "3"}, "n7", "host3")],
)
def test_a_host_is_called_by_its_rank_or_its_own_name(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], node: str, name: str
) -> None:
    monkeypatch.setattr("platform.node", lambda: node)

    assert own_host_name(environment) == name


def test_hosts_are_those_with_names_and_those_without() -> None:
    assert ExternalLauncher(3).count == 3
    assert LocalLauncher().count == 1


async def test_one_clock_is_not_compared_with_itself() -> None:
    peer = Answering()
    name = this_host.name_of_clock()
    clock = ClockComparison(cast("Any", peer), cast("Any", peer), name)
    await clock.compare()

    assert (peer.pings, clock.reading()) == (0, [])


@pytest.mark.parametrize(
    ("stats", "known"),
    [
        (SimpleNamespace(speed=1000), {"nic": "eth1", "nic_speed": 1.25e8}),
        (SimpleNamespace(speed=0), {"nic": "eth1"}),
        (None, {"nic": "eth1"}),
    ],
)
def test_a_nic_is_told_with_its_speed_where_the_kernel_states_one(
    monkeypatch: pytest.MonkeyPatch, stats: object, known: dict[str, object]
) -> None:
    addresses = {
        "eth0": [SimpleNamespace(address="10.0.0.1")],
        "eth1": [
            SimpleNamespace(address="fe80::1"),
            SimpleNamespace(address="10.0.0.2"),
        ],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)
    monkeypatch.setattr(psutil, "net_if_stats", lambda: {"eth1": stats})

    assert nic_of("10.0.0.2") == known
    assert nic_of("10.0.0.3") == {}


class Silent(Answering):
    """A connection whose pings are answered from the fifth on, with a line each."""

    @override
    def ping(self) -> None:
        """Answer late, and better each time."""
        self.pings += 1
        if self.pings > 4:
            uncertainty = 1.0 / self.pings
            now = this_host.monotonic()
            line = ClockLine(at=now, offset=self.pings, uncertainty=uncertainty)
            self.pongs.append(line)


@pytest.mark.parametrize(("pings", "asked"), [(1, 5), (5, 5), (7, 7)])
async def test_pings_are_as_many_as_are_asked_for_or_one_is_answered(
    monkeypatch: pytest.MonkeyPatch, pings: int, asked: int
) -> None:
    monkeypatch.setattr(host_report, "_APART", 0.0)
    peer = Silent()
    clock = ClockComparison(cast("Any", peer), cast("Any", peer), "another")
    # What was answered before is of an earlier beat.
    peer.pongs.append(ClockLine(at=0.0, offset=99.0, uncertainty=1e-9))
    await clock.compare(pings=pings)

    assert peer.pings == asked
    assert clock.reading()[0] == asked  # the surest


async def test_clocks_are_compared_anew_each_beat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twenty pings at first and four a beat, of one second, ten milliseconds apart."""
    naps: list[float] = []

    async def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 30:
            raise asyncio.CancelledError

    monkeypatch.setattr("asyncio.sleep", sleep)
    peer = Answering()
    clock = ClockComparison(cast("Any", peer), cast("Any", peer), "another")
    await clock.compare()
    with pytest.raises(asyncio.CancelledError):
        await clock.keep()

    assert naps == [0.01] * 20 + 2 * [1.0, *[0.01] * 4]
    assert len(peer.published) == 2


def test_the_first_rank_that_an_engine_gives_names_a_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platform.node", lambda: "n7")
    ranks = {"JOB_COMPLETION_INDEX": "6", "GROUP_RANK": "5", "SLURM_PROCID": "4"}
    ranks |= {"PMI_RANK": "3", "PMIX_RANK": "2", "OMPI_COMM_WORLD_RANK": "1"}
    for variable in [*reversed(ranks)]:
        assert own_host_name(ranks) == f"host{ranks.pop(variable)}"
    for odd in ("-1", "x", "\u0663", ""):
        assert own_host_name({"PMI_RANK": odd}) == "n7"
    assert own_host_name({"PMI_RANK": "x", "SLURM_PROCID": "2"}) == "host2"


class CutOff:
    """The receiving end of a probe, which gets some bytes and then no more."""

    def __init__(self, counts: list[int]) -> None:
        self._counts = iter(counts)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing."""

    def recv_into(self, _buffer: bytearray) -> int:
        """Return how many bytes have come."""
        return next(self._counts)


@pytest.mark.parametrize(
    ("counts", "rate"),
    [([600, 400, 0], 250.0), ([16 << 20, 0], 4194304.0), ([0], 0.0)],
)
def test_the_rate_of_loopback_is_of_the_bytes_that_came(
    monkeypatch: pytest.MonkeyPatch, counts: list[int], rate: float
) -> None:
    """In four seconds; nothing is read beyond what was sent."""

    def accept(server: socket.socket, _sender: socket.socket) -> CutOff:
        server.accept()[0].close()
        return CutOff(counts)

    times = iter([100.0, 104.0])
    clock = SimpleNamespace(monotonic=lambda: next(times))
    monkeypatch.setattr(host_report, "time", clock)
    monkeypatch.setattr(host_report, "_accept", accept)
    assert loopback_rate() == rate


def test_a_host_without_loopback_has_no_rate_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_report, "loopback_address", lambda: "198.51.100.1")
    assert loopback_rate() is None


async def test_a_host_is_described_with_the_rate_of_its_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_report, "loopback_rate", lambda: 7.0)
    monkeypatch.setattr(host_report, "nic_of", lambda address: {"nic": address})
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {1, 4, 5})
    monkeypatch.setattr("os.cpu_count", lambda: 9)
    described = await host_report.measure_host("10.0.0.1")

    assert (described["loopback"], described["nic"]) == (7.0, "10.0.0.1")
    assert described["cpus"] == 3
    assert described["memory"] == psutil.virtual_memory().total
    assert described["pid"] == os.getpid()


async def test_hosts_without_a_name_of_their_clock_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two clocks of no name may be two."""
    monkeypatch.setattr(host_report, "_APART", 0.0)
    monkeypatch.setattr(this_host, "name_of_clock", lambda: "")
    peer = Answering()
    clock = ClockComparison(cast("Any", peer), cast("Any", peer), "")
    await clock.compare(pings=2)
    assert peer.pings == 2


def test_cores_are_those_of_the_host_where_none_are_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("os.sched_getaffinity")
    for count, expected in ((6, 6), (None, 1)):
        monkeypatch.setattr("os.cpu_count", lambda count=count: count)
        assert usable_cores() == expected
