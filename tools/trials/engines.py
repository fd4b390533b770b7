"""How each engine starts the agents of a run."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.coordinator.hosts import ROOT

if TYPE_CHECKING:
    from tests.coordinator.hosts import SshHosts
    from tests.coordinator.ray_hosts import RayHosts

TOKEN = "of-this-study"  # noqa: S105 -- of no use to anybody
_PORT = 7123


class Engine:
    """Arguments of ``emu run``, and processes that start its agents.

    Parameters
    ----------
    name
        ``local``, ``ssh``, ``ray``, ``mpirun`` or ``torchrun``.
    ray
        Of the same hosts, where there is one.
    """

    def __init__(self, name: str, hosts: SshHosts, ray: RayHosts | None) -> None:
        self.name, self._hosts, self._ray = name, hosts, ray
        self._children: list[subprocess.Popen[bytes]] = []

    def arguments(self) -> list[str]:
        """Return what the command is told of it."""
        hosts = self._hosts
        if self.name == "local":
            return []
        if self.name == "ssh":
            file = hosts.folder / "ip_config.txt"
            file.write_text("".join(f"{each}\n" for each in hosts.addresses))
            ssh = ["--hosts", str(file), "--ssh", hosts.ssh]
            return [*ssh, "--agent-command", hosts.agent]
        if self._ray is not None and self.name == "ray":
            return ["--ray", self._ray.address]
        count = str(len(hosts.addresses))
        return ["--agents", count, "--listen", f"{hosts.bridge}:{_PORT}"]

    def start(self) -> None:
        """Start what starts agents, where the command does not do that itself."""
        agent = f"{self._hosts.agent} {self._hosts.bridge}:{_PORT} --patience 60"
        if self.name == "mpirun":
            self._start(self._mpirun(agent))
        if self.name == "torchrun":
            for address in self._hosts.addresses:
                self._start(
                    [*self._hosts.ssh.split(), address, self._torchrun(address)]
                )

    def _mpirun(self, agent: str) -> list[str]:
        addresses = self._hosts.addresses
        command = ["mpirun", "--allow-run-as-root", "--bind-to", "none"]
        command += ["--mca", "plm_rsh_agent", self._hosts.ssh]
        command += ["--host", ",".join(f"{each}:1" for each in addresses)]
        return [*command, "-x", "EMU_TOKEN", "sh", "-c", agent]

    def _torchrun(self, address: str) -> str:
        """Return what the shell of a host runs.

        All these hosts have one name, so torchrun cannot tell which of them is at the
        rendezvous' address: it is told, or all would wait there for a host.
        """
        first, *_ = self._hosts.addresses
        torchrun = f"{sys.executable} -m torch.distributed.run --no-python"
        torchrun += f" --nnodes {len(self._hosts.addresses)} --nproc-per-node 1"
        torchrun += f" --rdzv-backend c10d --rdzv-endpoint {first}:29400"
        torchrun += f" --rdzv-conf is_host={int(address == first)}"
        torchrun += f" --local-addr {address}"
        agent = f"{self._hosts.agent} {self._hosts.bridge}:{_PORT} --patience 60"
        return f"EMU_TOKEN={TOKEN} {torchrun} sh -c {shlex.quote(agent)}"

    def _start(self, command: list[str]) -> None:
        with (self._hosts.folder.parent / f"{self.name}.log").open("ab") as log:
            self._children.append(
                subprocess.Popen(
                    command,
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "EMU_TOKEN": TOKEN},
                )
            )

    def stop(self) -> None:
        """Wait for what was started; end it when it stays."""
        with ExitStack() as stack:
            for child in self._children:
                stack.callback(child.wait)
                stack.callback(child.kill)
                try:
                    child.wait(10)
                except subprocess.TimeoutExpired:
                    continue
