"""Hosts files, and what ssh is asked to do."""

from __future__ import annotations

import asyncio
import re
import shlex
import socket
import stat
import struct
import sys
import tempfile
import threading
from collections.abc import Callable
from ipaddress import IPv6Address
from pathlib import Path

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from emu.emulation.launch import host_report
from emu.emulation.launch.host_report import loopback_rate, own_host_name
from emu.emulation.launch.ssh import SshLauncher, address_towards, read_hosts_file
from emu.emulation.network.authentication import Identity
from emu.emulation.network.control import ControlConnection, ControlServer
from emu.emulation.wire.messages import Stop, pack
from emu.errors import RunError, ScenarioError
from tests.emulation.network.strangers import messages

TOKEN = "of 'this' $run"  # noqa: S105


def test_hosts_file_of_dgl(tmp_path: Path) -> None:
    file = tmp_path / "ip_config.txt"
    file.write_text("172.31.19.1 30050\n172.31.23.205\n\n# spare\nme@gpu-3  # third\n")

    assert read_hosts_file(file) == ("172.31.19.1", "172.31.23.205", "me@gpu-3")


def test_hosts_of_ipv6_are_named_without_brackets(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("::1\n[fd00::2] 30050\nme@[fe80::1%eth0]\nme@fd00::3 # third\n")
    hosts = "::1", "fd00::2", "me@fe80::1%eth0", "me@fd00::3"
    assert read_hosts_file(file) == hosts
    assert address_towards("me@::1") == "::1"


@given(st.ip_addresses(v=6), st.booleans(), st.sampled_from(["", "me@"]))
def test_any_address_of_ipv6_is_a_host(
    address: IPv6Address,
    brackets: bool,  # noqa: FBT001 -- a parameter of the test
    user: str,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "hosts"
        file.write_text(f"{user}[{address}]" if brackets else f"{user}{address}")
        assert read_hosts_file(file) == (f"{user}{address}",)


@pytest.mark.parametrize("strangers", [0, 3])
def test_the_probe_of_loopback_takes_no_stranger_for_itself(
    monkeypatch: pytest.MonkeyPatch, strangers: int
) -> None:
    """Who floods the host connects to any port, and sends, or leaves at once."""
    connect = socket.create_connection
    others: list[socket.socket] = []

    def flood(address: tuple[str, int], patience: float) -> socket.socket:
        others.extend(connect(address, patience) for _ in range(strangers))
        return connect(address, patience)

    monkeypatch.setattr(socket, "create_connection", flood)
    rate = loopback_rate()
    for other in others:
        other.close()
    assert rate is not None
    assert rate > 0


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_probe_that_is_cut_off_leaves_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cut(server: socket.socket, _: socket.socket) -> socket.socket:
        receiver = server.accept()[0]
        receiver.shutdown(socket.SHUT_RD)
        receiver.settimeout(0.01)
        setting = struct.pack("ii", 1, 0)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, setting)
        receiver.close()
        return receiver

    monkeypatch.setattr(host_report, "_accept", cut)
    assert loopback_rate() is None
    assert threading.active_count() == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.1:22\n", "'10.0.0.1:22' is no host"),
        ("[fd00::2]:22\n", "is no host"),
        ("[fd00::2\n", "is no host"),
        ("-o@::1\n", "is no host"),
        ("::1\n[::1]\n", ":2: ::1 is there already"),
        ("10.0.0.1\n-oProxyCommand=id\n", r":2: '-oProxyCommand=id' is no host"),
        ("10.0.0.1\n10.0.0.1\n", ":2: 10.0.0.1 is there already"),
        ("a b c\n", ":1: a line is a host, or a host and a port"),
        ("a 22 23\n", ":1: a line is a host, or a host and a port"),
        ("a\nb port\n", ":2: a line is a host, or a host and a port"),
        ("# none\n", "names no host"),
        ("a\x1b[31m\n", r":1: .* is no host"),
    ],
)
def test_line_that_is_no_host_is_named(
    text: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "hosts").write_text(text)
    with pytest.raises(ScenarioError, match=expected):
        read_hosts_file(tmp_path / "hosts")


def test_hosts_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="No such file"):
        read_hosts_file(tmp_path / "none")


def test_address_by_which_a_host_reaches_us() -> None:
    assert address_towards("me@127.0.0.1") == "127.0.0.1"
    for unknown in ("no.such.host.invalid", "no..host"):
        with pytest.raises(RunError, match="--listen"):
            address_towards(unknown)


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"OMPI_COMM_WORLD_RANK": "2"}, "host2"),
        ({"SLURM_PROCID": "0", "SLURMD_NODENAME": "n7"}, "host0"),
        ({"GROUP_RANK": "1"}, "host1"),
        ({"JOB_COMPLETION_INDEX": "11"}, "host11"),
    ],
)
def test_rank_of_an_engine_names_the_host(
    environment: dict[str, str], name: str
) -> None:
    assert own_host_name(environment) == name


def stand_in(folder: Path) -> Path:
    """Return an ssh that runs the order here, in a shell, as sshd would there."""
    ssh = folder / "ssh"
    ssh.write_text(
        f'#!/bin/sh\necho "$@" >> {folder}/said\nshift 3\nshift\nexec sh -c "$1"\n'
    )
    ssh.chmod(ssh.stat().st_mode | stat.S_IXUSR)
    return ssh


def test_agent_joins_under_its_host_and_the_token_is_in_no_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMU_TOKEN", "not this one")
    joined: list[Identity] = []

    async def serve() -> None:
        there = asyncio.Event()

        async def greet(connection: ControlConnection, who: Identity) -> None:
            joined.append(who)
            connection.send(pack(Stop("that was all")))
            there.set()
            async for _ in messages(connection):
                pass

        server = ControlServer(token=TOKEN, on_connection=greet)
        address = await server.start("127.0.0.1")
        launcher = SshLauncher(["127.0.0.1"], ssh=str(stand_in(tmp_path)))
        await launcher.start(address, TOKEN, tmp_path / "log", ("mine:Program",))
        try:
            how = await asyncio.wait_for(launcher.wait_for_end(), 20)
        finally:
            await launcher.aclose(2.0)
            await server.aclose()
        assert how == "ssh to 127.0.0.1 ended with status 0", (
            tmp_path / "log"
        ).read_text()

    asyncio.run(serve())
    said = (tmp_path / "said").read_text()

    assert [(who.role, who.name) for who in joined] == [("agent", "127.0.0.1")]
    assert "-T -o BatchMode=yes 127.0.0.1" in said
    assert "--allow=mine:Program" in said
    assert sys.executable in said
    assert TOKEN not in said
    assert "not this one" not in said


@pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_ssh_that_ends_at_once_is_told_of_as_any_other(
    loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    """It reads no token: written once it had ended, that raised an error of uvloop."""

    async def start(token: str) -> str:
        launcher = SshLauncher(["127.0.0.1"], ssh="false")
        try:
            await launcher.start(("127.0.0.1", 1), token, tmp_path / "log", ())
            return await launcher.wait_for_end()
        finally:
            await launcher.aclose(0.0)

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(start(TOKEN)) == "ssh to 127.0.0.1 ended with status 1"
        with pytest.raises(OSError, match="too long"):
            runner.run(start(2**17 * "t"))


@pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_an_ssh_that_is_not_there_is_named(
    loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    """An error under uvloop was "[Errno 2] No such file or directory" alone."""
    missing = tmp_path / "no ssh"

    async def start() -> None:
        launcher = SshLauncher(["127.0.0.1"], ssh=shlex.quote(str(missing)))
        try:
            await launcher.start(("127.0.0.1", 1), TOKEN, tmp_path / "log", ())
        finally:
            await launcher.aclose(0.0)

    problem = f"cannot start {missing}: No such file or directory (EMU_SSH decides)"
    with (
        asyncio.Runner(loop_factory=loop) as runner,
        pytest.raises(RunError, match=re.escape(problem)),
    ):
        runner.run(start())


def test_a_log_that_cannot_be_written_is_no_fault_of_ssh(tmp_path: Path) -> None:
    launcher = SshLauncher(["localhost"], ssh="/nope")
    log = tmp_path / "absent" / "log"
    with pytest.raises(FileNotFoundError, match="absent"):
        asyncio.run(launcher.start(("127.0.0.1", 9), TOKEN, log, []))
