"""Reports of a host on itself, and its clock beside the coordinator's."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from emu.emulation.launch import host_report
from emu.emulation.launch.host_report import ClockComparison, nic_of, own_host_name
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
