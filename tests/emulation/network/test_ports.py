"""Ports of a range: the first that is free, or one line."""

from __future__ import annotations

import asyncio
import errno

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from emu.emulation.coordinator.process_specs import check_ports
from emu.emulation.network.authentication import listen_within
from emu.emulation.network.control import ControlServer
from emu.errors import ScenarioError
from emu.scenario import load


@given(
    st.integers(1, 65_000), st.integers(0, 8), st.sets(st.integers(0, 9)),
    st.sampled_from([0, 17]),
)  # fmt: skip
@example(2000, 1, {0, 1}, 0)
def test_the_first_free_port_is_taken(
    first: int, more: int, used: set[int], stated: int
) -> None:
    taken = {first + one for one in used}

    async def listen(port: int) -> int:
        if port in taken and port != stated:
            raise OSError(errno.EADDRINUSE, "used")
        return port

    span = range(first, first + more + 1)
    free = [port for port in span if port not in taken]
    ask = listen_within(stated, (first, first + more), listen)
    if stated or free:
        assert asyncio.run(ask) == (stated or free[0])
    else:
        with pytest.raises(OSError, match=rf"all of .* {first}-{first + more} "):
            asyncio.run(ask)
    assert asyncio.run(listen_within(0, None, listen)) == 0


def test_another_error_is_no_port_in_use() -> None:
    async def listen(_: int) -> int:
        raise OSError(errno.EADDRNOTAVAIL, "not of this host")

    with pytest.raises(OSError, match="not of this host"):
        asyncio.run(listen_within(0, (2000, 2009), listen))


async def test_servers_share_a_range() -> None:
    async def ignore(*_: object) -> None: ...

    servers = [ControlServer(token="x", on_connection=ignore) for _ in range(3)]  # noqa: S106
    try:
        at = [await s.start("127.0.0.1", 0, (21_000, 21_400)) for s in servers]
    finally:
        for server in servers:
            await server.aclose()
    ports = [port for _, port in at]
    assert ports == sorted(set(ports))
    assert all(21_000 <= port <= 21_400 for port in ports)


@given(st.lists(st.sampled_from("abc"), min_size=1), st.integers(1, 9), st.booleans())
def test_a_range_that_is_too_small_says_what_is_needed(
    hosts: list[str],
    size: int,
    beside: bool,  # noqa: FBT001 -- a parameter of the test
) -> None:
    most = max(map(hosts.count, hosts)) + beside
    if size >= most:
        check_ports((100, 99 + size), hosts, extra=beside)
    else:
        with pytest.raises(ScenarioError, match=f"ports: .* needs {most} ports"):
            check_ports((100, 99 + size), hosts, extra=beside)
    check_ports(None, hosts, extra=beside)


@pytest.mark.parametrize(
    "stated",
    ["20000", "0-10", "20100-20000", "20000-70000", "a-b", "[1, 2]", "-5-7", "1-2-3"],
)
def test_what_is_no_range_is_refused(stated: str) -> None:
    with pytest.raises(ScenarioError, match=r"emulation\.ports.*20000-20100"):
        load("golden", [f"emulation.ports={stated}"])


def test_range_reaches_the_processes_and_the_manifest() -> None:
    emulation = load("golden", ["emulation.ports=20000 - 20100"]).emulation
    assert emulation.settings.ports == (20_000, 20_100)
    assert emulation.model_dump(mode="json")["ports"] == "20000-20100"
    kernel = ["emulation.network=kernel", "schedule.policy=maxmin"]
    with pytest.raises(ScenarioError, match=r"emulation\.ports: kernel NICs"):
        load("golden", [*kernel, "emulation.ports=20000-20100"])
