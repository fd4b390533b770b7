"""The launcher of hosts that ssh reaches without a password, as DGL and PyG want it."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import shlex
import socket
from collections.abc import Collection
from pathlib import Path

from typing_extensions import override

from emu.emulation.launch.launcher import ChildAgents, agent_arguments
from emu.errors import RunError, ScenarioError
from emu.host.input_file import one_error, read_text
from emu.host.this_host import module_command
from emu.names import printable

#: No option of ssh, and nothing that a shell would take for more than a word.
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]*")
_PATIENCE = 10.0  # wall seconds that an agent may take to reach the coordinator
_MOST_HOSTS_TEXT = 1 << 20
_ANYWHERE = {"0.0.0.0", "::"}  # noqa: S104 -- listened on, reached by another name


def read_hosts_file(path: Path) -> tuple[str, ...]:
    """Return the hosts of a file in the form of DGL's ip_config.txt.

    A line is an address, or a name that ssh knows; the port of DGL's servers may follow
    and has no use here. Empty lines, and what follows a ``#``, do not count. Brackets
    around an address of IPv6 are taken off: it is the name of its host then.

    Raises ScenarioError, which names the line.
    """
    with one_error(path, lambda said: ScenarioError(said, file=str(path))):
        try:
            lines = read_text(path, _MOST_HOSTS_TEXT).splitlines()
        except OSError as error:
            sentence = f"cannot be read: {error.strerror}"
            raise ScenarioError(sentence, file=str(path)) from error

    hosts: list[str] = []
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            hosts.append(_read_host(words, hosts))
        except ValueError as error:
            raise ScenarioError(str(error), file=str(path), line=number) from None
    if not hosts:
        raise ScenarioError("names no host: write one per line", file=str(path))
    return tuple(hosts)


def _read_host(words: list[str], present: Collection[str]) -> str:
    """Return the host of a line; raises ValueError where that cannot be one more."""
    address, *ports = words
    user, separator, name = address.rpartition("@")
    inner = name.removeprefix("[").removesuffix("]")
    if name == f"[{inner}]" and _is_ipv6(inner):
        name = inner
    host = f"{user}{separator}{name}"
    # An address of IPv6 has colons, which no name may have.
    shape = f"{user}{separator}h" if _is_ipv6(name) else host
    if not _HOST.fullmatch(shape):
        raise ValueError(f"{printable(host)!r} is no host: write an address or a name")
    if len(ports) > 1 or not all(port.isdecimal() for port in ports):
        raise ValueError("a line is a host, or a host and a port")
    if host in present:
        raise ValueError(f"{host} is there already: a host has one agent")
    return host


def _is_ipv6(name: str) -> bool:
    try:
        ipaddress.IPv6Address(name)
    except ValueError:
        return False
    return name.isascii()


def address_towards(host: str) -> str:
    """Return the address of this computer by which ``host`` reaches it.

    Raises RunError when there is no way to it, or only ssh knows its name.
    """
    name = host.rpartition("@")[2]
    try:
        addresses = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)
        family, *_, address = addresses[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing
            return str(probe.getsockname()[0])
    except (OSError, UnicodeError) as error:  # the second of names with empty labels
        raise RunError(
            f"no way to host {host}: {error}; state --listen with the address of this "
            "computer that it can reach"
        ) from error


def is_here(host: str) -> bool:
    """Return whether a host is this computer; False where only ssh knows its name."""
    name = host.rpartition("@")[2]
    with contextlib.suppress(OSError):
        addresses = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)
        for family, *_, address in addresses:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.bind((address[0], 0))  # others' addresses cannot be bound
                return True
    return False


class SshLauncher(ChildAgents):
    """Starts an agent on each of these hosts by one ssh each."""

    def __init__(
        self,
        hosts: Collection[str],
        *,
        ssh: str = "ssh",
        agent: str = "",
    ) -> None:
        super().__init__()
        self.hosts = tuple(hosts)
        self._ssh = [*shlex.split(ssh), "-T", "-o", "BatchMode=yes"]
        self._agent = agent or shlex.join(module_command("emu.emulation.launch"))

    @override
    async def start(
        self,
        address: tuple[str, int],
        token: str,
        log: Path,
        allow: Collection[str],
    ) -> None:
        """Start the agents; the token goes to their standard input.

        Raises OSError when the log cannot be written, RunError when ssh cannot be
        started or there is no way to a host.
        """
        environment = dict(os.environ)
        environment.pop("EMU_TOKEN", None)  # of another run, maybe
        line = f"{token}\n".encode(errors="surrogateescape")
        listening, port = address
        for host in self.hosts:
            own_address = address_towards(host) if listening in _ANYWHERE else listening
            arguments = agent_arguments((own_address, port), _PATIENCE, allow, host)
            script = (
                "IFS= read -r EMU_TOKEN && export EMU_TOKEN && "
                f"{self._agent} {shlex.join(arguments)}"
            )
            order = f"sh -c {shlex.quote(script)}"  # whatever shell the user has there
            try:
                await self.start_child(
                    f"ssh to {host}",
                    [*self._ssh, host, order],
                    log,
                    environment=environment,
                    said=line,
                )
            except OSError as error:
                program = self._ssh[0]
                if error.filename != program:
                    raise
                problem = f"{printable(program)}: {error.strerror} (EMU_SSH decides)"
                raise RunError(f"cannot start {problem}") from error
