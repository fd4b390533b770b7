"""One scenario on three hosts under each launcher: start, error, losses.

    tools/study launchers OUT [--scenario testbed_products] [--rounds 3] [--set K=V]

Hosts are network namespaces with an sshd each, on this computer (root, openssh-server;
openmpi-bin for mpirun, torch for torchrun, ray). Rounds go through all in turn.
``start`` is the wall time from when the run listens to its barrier (mpirun and torchrun
are started before, and so is the Ray cluster), ``weights`` whether losses are those of
``local`` to the last digit.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from emu.errors import RunError
from tests.coordinator.hosts import ROOT, SSHD, SshHosts, namespaces
from tests.coordinator.ray_hosts import RAY, RayHosts
from tools.runner import Study

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from tools.runner import Work

ENGINES = ("local", "ssh", "ray", "mpirun", "torchrun")


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


@dataclass(frozen=True)
class Launched:
    """One run: wall seconds of its start and in all, and what came of it."""

    case: str
    engine: str
    start: float
    whole: float
    makespan_error: float
    trust: str
    losses: str


def options(parser: ArgumentParser) -> None:
    """Add what is run, and how often."""
    parser.add_argument("--scenario", default="testbed_products")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[])


def work(options: Namespace) -> Iterator[Work[Launched]]:
    """Yield every launcher in turn, with hosts that are there until all have ended.

    Raises
    ------
    RunError
        When no sshd is installed.
    """
    if SSHD is None:
        raise RunError("no sshd is installed here (Debian: openssh-server)")
    # So that namespaces and daemons go however this ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    keys = options.out / "keys"
    shutil.rmtree(keys, ignore_errors=True)
    keys.mkdir(0o700, parents=True)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, keys)
        bridge, *names = stack.enter_context(namespaces(3))
        hosts = stack.enter_context(SshHosts(bridge, names, keys.resolve()))
        ray = None
        if RAY and (not options.only or "ray" in options.only):
            cluster = RayHosts(bridge, names, options.out / "ray.log", cpus=16)
            ray = stack.enter_context(cluster)
        missing = {"ray"} if ray is None else set()
        missing |= set() if shutil.which("mpirun") else {"mpirun"}
        for number in range(options.rounds):
            for name in ENGINES:
                if name not in missing:
                    engine, case = Engine(name, hosts, ray), f"{name}/{number}"
                    yield case, partial(carried, options, case, engine)


def carried(options: Namespace, case: str, engine: Engine) -> list[Launched]:
    """Return the row of one run."""
    target = options.out / "result.json"
    target.unlink(missing_ok=True)
    command: list[Any] = [sys.executable, "-m", "emu", "run", options.scenario]
    command += ["--json", target, "--runs", options.out / "runs"]
    for change in ("expect=null", *options.set):
        command += ["--set", change]
    began = time.monotonic()
    engine.start()
    try:
        done = subprocess.run(
            [*map(str, command), *engine.arguments()],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "EMU_TOKEN": TOKEN},
        )
    finally:
        engine.stop()
    whole, none = time.monotonic() - began, float("nan")
    if done.returncode:
        print(done.stderr[-2000:])
        return [Launched(case, engine.name, none, whole, none, "failed", "")]
    result = json.loads(target.read_text())
    losses = json.dumps([point["loss"] for point in result["training"]])
    start, error = result["startup"]["seconds"], result["makespan_error"]
    trust = result["verdict"]["trust"]
    return [Launched(case, engine.name, start, whole, error, trust, losses)]


def table(rows: list[Launched], _: Namespace) -> Iterator[str]:
    """Yield a line per launcher: runs, start, makespan error, whether losses agree."""
    good = [row for row in rows if row.trust != "failed"]
    local = {row.losses for row in good if row.engine == "local"}
    yield f"{'launcher':10} {'runs':>4} {'start s':>8} {'makespan error':>15} weights"
    for name in ENGINES:
        mine = [row for row in good if row.engine == name]
        if not mine:
            continue
        start = statistics.median(row.start for row in mine)
        error = statistics.median(row.makespan_error for row in mine)
        losses = {row.losses for row in mine} | local
        word = "as local" if len(losses) == 1 else "DIFFER"
        if not local or "[]" in losses:
            word = "not compared: nothing was trained, or local did not run"
        yield f"{name:10} {len(mine):4} {start:8.2f} {error:+15.5%} {word}"


STUDY = Study(row=Launched, work=work, table=table, options=options)
