"""Launchers of agents: their commands, and what is said of those that end."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from emu.emulation.launch import ssh
from emu.emulation.launch.launcher import (
    ChildAgents,
    ExternalLauncher,
    Launcher,
    LocalLauncher,
    agent_arguments,
)
from emu.emulation.launch.ssh import (
    SshLauncher,
    address_towards,
    is_here,
    read_hosts_file,
)
from emu.errors import DataError, ScenarioError

ADDRESS = ("10.0.0.9", 5)


def test_arguments_of_an_agent() -> None:
    """An address of IPv6 stands in brackets; a host of no name has none stated."""
    assert agent_arguments(ADDRESS, 2.5, ["a:B", "c:D"], "h") == [
        *("10.0.0.9:5", "--patience", "2.5", "--allow=a:B", "--allow=c:D"),
        *("--name", "h"),
    ]
    assert agent_arguments(("fd00::1", 5), 10.0, []) == [
        *("[fd00::1]:5", "--patience", "10"),
    ]


def test_agents_of_others_take_the_time_of_a_person() -> None:
    external = ExternalLauncher(3, deadline=7.0)
    assert (external.count, external.patience, external.deadline) == (3, 600.0, 7.0)
    assert ExternalLauncher(3).deadline is None
    assert (Launcher().count, Launcher().patience, Launcher().deadline) == (0, 0, None)
    assert LocalLauncher().embedded
    assert not SshLauncher(["a", "b"]).embedded
    assert SshLauncher(["a", "b"]).count == 2


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Note what is started as a child, and start nothing."""
    started: list[Any] = []

    async def start_child(
        _agents: ChildAgents,
        name: str,
        command: Sequence[str],
        log: Path,
        **options: Any,
    ) -> None:
        assert log == Path("log")
        started.append((name, [*command], options))

    monkeypatch.setenv("EMU_TOKEN", "of another run")
    monkeypatch.setenv("OTHER", "x")
    monkeypatch.setattr(ChildAgents, "start_child", start_child)
    return started


async def test_the_agent_of_this_host_has_its_token_in_its_environment(
    commands: list[Any],
) -> None:
    await LocalLauncher().start(ADDRESS, "secret", Path("log"), ["a:B"])

    ((name, command, options),) = commands
    assert name == "the agent of this host"
    assert command == [
        *(sys.executable, "-P", "-m", "emu.emulation.launch", "10.0.0.9:5"),
        *("--patience", "2", "--allow=a:B", "--name", "localhost"),
    ]
    assert options["environment"]["EMU_TOKEN"] == "secret"  # noqa: S105
    assert options["environment"]["OTHER"] == "x"


@pytest.mark.parametrize(
    ("listening", "reached"),
    [
        ("10.0.0.9", ["10.0.0.9:5", "10.0.0.9:5"]),
        ("0.0.0.0", ["by-a:5", "by-me@b:5"]),  # noqa: S104
        ("::", ["by-a:5", "by-me@b:5"]),
    ],
)
async def test_each_host_reaches_an_address_of_this_computer(
    monkeypatch: pytest.MonkeyPatch,
    commands: list[Any],
    listening: str,
    reached: list[str],
) -> None:
    """Each host has an address of its own where the coordinator listens on all."""
    monkeypatch.setattr(ssh, "address_towards", lambda host: f"by-{host}")
    hosts = ["a", "me@b"]
    launcher = SshLauncher(hosts, ssh="ssh -p '2 2'", agent="my agent")
    await launcher.start((listening, 5), "secret", Path("log"), ["a:B"])

    assert [name for name, _, _ in commands] == ["ssh to a", "ssh to me@b"]
    for (_, command, options), host, address in zip(
        commands, hosts, reached, strict=True
    ):
        assert command[:6] == ["ssh", "-p", "2 2", "-T", "-o", "BatchMode=yes"]
        assert command[6] == host
        script = (
            "IFS= read -r EMU_TOKEN && export EMU_TOKEN && my agent "
            f"{address} --patience 10 --allow=a:B --name {host}"
        )
        assert command[7:] == [f"sh -c '{script}'"]
        assert options["said"] == b"secret\n"
        assert "EMU_TOKEN" not in options["environment"]
        assert options["environment"]["OTHER"] == "x"


class Child:
    """A child that ends when it is let, with a status."""

    def __init__(self, status: int, *, ends: bool = True) -> None:
        self.pid = status
        self._status = status
        self.may_end = asyncio.Event()
        if ends:
            self.may_end.set()

    async def wait(self) -> int:
        """Return the status once it has ended."""
        await self.may_end.wait()
        return self._status


async def start_children(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *children: Child
) -> ChildAgents:
    """Return agents that are these children, called a, b, c."""
    rest = iter(children)

    async def create(*_: Any, **__: Any) -> Child:
        return next(rest)

    monkeypatch.setattr("asyncio.create_subprocess_exec", create)
    agents = ChildAgents()
    for name, _ in zip("abc", children, strict=False):
        await agents.start_child(name, ["x"], tmp_path / "log", environment={})
    return agents


async def test_of_children_that_have_ended_the_first_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    children = Child(3, ends=False), Child(4), Child(5)
    agents = await start_children(monkeypatch, tmp_path, *children)

    assert await agents.wait_for_end() == "b ended with status 4"


async def test_children_are_killed_after_their_grace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each with its group, also those that have ended: it may have left others."""
    stays = Child(7, ends=False)
    killed = []

    def kill(group: int, number: int) -> None:
        killed.append((group, number))
        stays.may_end.set()
        if group == 8:
            raise ProcessLookupError

    monkeypatch.setattr("os.killpg", kill)
    agents = await start_children(monkeypatch, tmp_path, Child(8), stays)
    await agents.aclose(0.0)

    assert killed == [(8, 9), (7, 9)]
    await ChildAgents().aclose(0.0)


class Probe:
    """A socket that can be bound to some addresses."""

    here: frozenset[str] = frozenset()

    def __init__(self, family: int, kind: int) -> None:
        assert kind == socket.SOCK_DGRAM
        self._family = family

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing."""

    def bind(self, address: tuple[str, int]) -> None:
        """Raise where the address is not of this computer."""
        assert address[1] == 0
        if address[0] not in self.here:
            raise OSError(99, "Cannot assign requested address")

    def connect(self, address: tuple[str, int]) -> None:
        """Note the way."""
        self._way = address

    def getsockname(self) -> tuple[str, int]:
        """Return the near end of the way."""
        return f"towards {self._way[0]} of {self._family}", 1


def test_a_host_is_here_where_its_address_can_be_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = []

    def look(name: str, port: int, **options: Any) -> list[Any]:
        assert options == {"type": socket.SOCK_DGRAM}
        names.append(name)
        return [
            (2, 2, 17, "", ("10.0.0.1", port)),
            (10, 2, 17, "", ("fd00::1", port, 0, 0)),
        ]

    fake = SimpleNamespace(socket=Probe, getaddrinfo=look, SOCK_DGRAM=socket.SOCK_DGRAM)
    monkeypatch.setattr(ssh, "socket", fake)
    for here, expected in (
        ({"10.0.0.1"}, True),
        ({"10.0.0.2"}, False),
        (set[str](), False),
    ):
        monkeypatch.setattr(Probe, "here", frozenset(here))
        assert is_here("me@gpu@n7") is expected
    assert address_towards("me@n8") == "towards 10.0.0.1 of 2"
    assert names == ["n7", "n7", "n7", "n8"]


def test_a_host_has_one_port_of_digits_or_none(tmp_path: Path) -> None:
    """A line of a file is counted with those that name nothing."""
    path = tmp_path / "hosts"
    path.write_text("# all\n\na 1\nb\n\nc 1 2\n")
    with pytest.raises(ScenarioError, match=r":6: a line is a host, or a host and a"):
        read_hosts_file(path)
    path.write_bytes(b"a\n" + bytes([0xFF]))
    with pytest.raises(ScenarioError, match="is not text in UTF-8"):
        read_hosts_file(path)
    path.write_text("a\n" * (1 << 19) + "#")
    with pytest.raises(DataError, match="has 1048577 bytes, at most 1048576"):
        read_hosts_file(path)
    path.write_text("[::1]\nme@[::1]\n[me]\n")
    with pytest.raises(ScenarioError, match=r":3: '\[me\]' is no host"):
        read_hosts_file(path)
