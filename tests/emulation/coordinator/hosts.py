"""Hosts on one computer: network namespaces with an address of their own, and an sshd.

The coordinator's place is the namespace that this process is in. Needs root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[3]
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin")


def ip(command: str, *, check: bool = True) -> None:
    """Run the ip command.

    Raises subprocess.CalledProcessError when it fails and that is not expected.
    """
    subprocess.run(
        ["ip", *command.split()], check=check, capture_output=True, text=True
    )


@contextlib.contextmanager
def namespaces(count: int) -> Iterator[list[str]]:
    """Yield the address of a bridge, and the names of so many namespaces on it.

    Raises subprocess.CalledProcessError when they cannot be made here.
    """
    number = os.getpid() % 250
    bridge = f"emu{number}"
    names = [f"emu{number}h{i}" for i in range(2, 2 + count)]
    try:
        ip(f"link add {bridge} type bridge")
        ip(f"addr add 10.213.{number}.1/24 dev {bridge}")
        ip(f"link set {bridge} up")
        for address, name in enumerate(names, start=2):
            ip(f"netns add {name}")
            ip(f"link add {name} type veth peer name eth0 netns {name}")
            ip(f"link set {name} master {bridge} up")
            ip(f"-n {name} addr add 10.213.{number}.{address}/24 dev eth0")
            ip(f"-n {name} link set eth0 up")
            ip(f"-n {name} link set lo up")
        yield [f"10.213.{number}.1", *names]
    finally:
        for name in names:
            ip(f"netns del {name}", check=False)
            ip(f"link del {name}", check=False)
        ip(f"link del {bridge}", check=False)


class SshHosts:
    """Namespaces with an sshd each, and how to reach them; a context manager.

    Parameters
    ----------
    bridge, names
        As `namespaces` yields them.
    folder
        Takes keys and logs of these daemons alone.
    """

    def __init__(self, bridge: str, names: list[str], folder: Path) -> None:
        self.bridge, self.names, self.folder = bridge, names, folder
        prefix = bridge.rpartition(".")[0]
        self.addresses = [f"{prefix}.{n}" for n in range(2, 2 + len(names))]
        self.ssh = f"ssh -F {folder}/config"
        path = os.pathsep.join([str(ROOT), str(ROOT / "nodes")])
        self.agent = (
            f"cd {ROOT} && PYTHONPATH={path} {sys.executable} -m emu.emulation.launch"
        )
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            self._make_keys()
            self._start()
            self._await_doors()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait()

    def _make_keys(self) -> None:
        for name in ("host", "user"):
            key = ["ssh-keygen", "-q", "-N", "", "-t", "ed25519", "-f"]
            subprocess.run([*key, self.folder / name], check=True)
        shutil.copy(self.folder / "user.pub", self.folder / "authorized")
        settings = {
            "HostKey": self.folder / "host",
            "AuthorizedKeysFile": self.folder / "authorized",
            "StrictModes": "no",
            "UsePAM": "no",
            "PermitRootLogin": "yes",
            "PidFile": "none",
        }
        lines = [f"{key} {value}\n" for key, value in settings.items()]
        (self.folder / "sshd_config").write_text("".join(lines))
        (self.folder / "config").write_text(
            f"IdentityFile {self.folder}/user\nIdentitiesOnly yes\nUser root\n"
            f"StrictHostKeyChecking no\nUserKnownHostsFile {self.folder}/known\n"
            "LogLevel ERROR\n"
        )

    def _start(self) -> None:
        Path("/run/sshd").mkdir(exist_ok=True)
        command = [str(SSHD), "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with (self.folder / "sshd.log").open("ab") as log:
            for name in self.names:
                self._daemons.append(
                    subprocess.Popen(
                        ["ip", "netns", "exec", name, *command], stderr=log
                    )
                )

    def _await_doors(self) -> None:
        deadline = time.monotonic() + 10
        for address in self.addresses:
            while subprocess.run(
                [*self.ssh.split(), address, "true"], capture_output=True, check=False
            ).returncode:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no sshd answers at {address}")
                time.sleep(0.05)
