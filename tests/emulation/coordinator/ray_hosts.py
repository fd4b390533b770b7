"""A Ray cluster over the hosts of this study, with its head beside the coordinator."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import psutil

from tests.emulation.coordinator.hosts import ROOT

RAY = importlib.util.find_spec("ray") is not None
_PORT = 6391
_COMES_UP = 180.0  # wall seconds; 10 on an idle host of two cores


class RayHosts:
    """A head that lends nothing, and a node in each namespace; a context manager.

    Parameters
    ----------
    bridge, names
        As `tests.emulation.coordinator.hosts.namespaces` yields them.
    log
        Takes what the nodes print.
    cpus
        That each node lends.
    """

    def __init__(
        self, bridge: str, names: Sequence[str], log: Path, cpus: int = 8
    ) -> None:
        self.address = f"{bridge}:{_PORT}"
        self._bridge, self._names, self._log, self._cpus = bridge, names, log, cpus
        self._nodes: list[subprocess.Popen[bytes]] = []
        # Short, for it holds Unix sockets; gone with the cluster.
        self.folder = Path(tempfile.mkdtemp(prefix="ray"))

    def __enter__(self) -> Self:
        try:
            head = ["--head", f"--port={_PORT}", "--num-cpus=0"]
            head += [f"--temp-dir={self.folder}", "--include-dashboard=false"]
            self._start([], self._bridge, head)
            self._await_nodes(1)
            prefix = self._bridge.rpartition(".")[0]
            for number, name in enumerate(self._names, start=2):
                node = [f"--address={self.address}", f"--num-cpus={self._cpus}"]
                place = ["ip", "netns", "exec", name]
                self._start(place, f"{prefix}.{number}", node)
                # One by one: they choose their sockets' names in one folder.
                self._await_nodes(len(self._nodes))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        family = [
            each
            for node in self._nodes
            if node.poll() is None
            for each in psutil.Process(node.pid).children(recursive=True)
        ]
        for node in self._nodes:
            node.send_signal(signal.SIGKILL)
            node.wait()
        for each in family:
            if each.is_running():
                each.kill()
        psutil.wait_procs(family, 5)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, place: list[str], address: str, arguments: list[str]) -> None:
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
        ray += ["--disable-usage-stats", f"--node-ip-address={address}"]
        path = os.pathsep.join([str(ROOT), str(ROOT / "nodes")])
        # Ray lowers the priority of what it starts, an emulator's is to be kept.
        kept = {"RAY_worker_niceness": "0", "PYTHONPATH": path}
        with self._log.open("ab") as log:
            self._nodes.append(
                subprocess.Popen(
                    [*place, *ray, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **kept},
                    start_new_session=True,
                )
            )

    def _await_nodes(self, count: int) -> None:
        look = "import ray, sys; ray.init(sys.argv[1], logging_level='ERROR'); "
        look += "print(sum(node['Alive'] for node in ray.nodes()))"
        command = [sys.executable, "-c", look, self.address]
        deadline = time.monotonic() + _COMES_UP
        while True:
            said = subprocess.run(command, capture_output=True, text=True, check=False)
            if said.stdout.strip() == str(count):
                return
            ended = any(node.poll() is not None for node in self._nodes)
            if ended or time.monotonic() > deadline:
                raise TimeoutError(f"no Ray cluster comes up: {said.stderr[-500:]}")
            time.sleep(0.5)
