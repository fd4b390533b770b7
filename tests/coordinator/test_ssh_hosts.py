"""Three hosts under a real sshd: the job and its weights are those of one host."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emu.coordinator import EmulationSettings, emulate
from emu.errors import NodeLost
from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.launch import SshLauncher
from emu.runs.run_directory import RunDirectory
from emu.scenario import load, prepare
from emu.training import reference_training
from tests.coordinator.emulated import golden
from tests.coordinator.test_hosts import ROOT, ip, namespaces, pytestmark
from tests.integration.scenarios import tiny_training, written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.leftovers import Leftovers

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin")
pytestmark = [
    *pytestmark,
    pytest.mark.skipif(
        SSHD is None or shutil.which("ssh") is None,
        reason="hosts are reached by openssh (apt-get install openssh-server)",
    ),
]


class SshHosts:
    """Namespaces with an sshd each, and how to reach them."""

    def __init__(self, bridge: str, names: list[str], folder: Path) -> None:
        self.bridge, self.names, self.folder = bridge, names, folder
        prefix = bridge.rpartition(".")[0]
        self.addresses = [f"{prefix}.{n}" for n in range(2, 2 + len(names))]
        self.ssh = f"ssh -F {folder}/config"
        path = os.pathsep.join([str(ROOT), str(ROOT / "nodes")])
        self.agent = f"cd {ROOT} && PYTHONPATH={path} {sys.executable} -m emu.launch"
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start every sshd, with keys of this test alone."""
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
        Path("/run/sshd").mkdir(exist_ok=True)
        command = [str(SSHD), "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with (self.folder / "sshd.log").open("ab") as log:
            for name in self.names:
                self._daemons.append(
                    subprocess.Popen(
                        ["ip", "netns", "exec", name, *command], stderr=log
                    )
                )

    def await_doors(self) -> None:
        """Wait until every sshd lets somebody in."""
        deadline = time.monotonic() + 10
        for address in self.addresses:
            while subprocess.run(
                [*self.ssh.split(), address, "true"], capture_output=True, check=False
            ).returncode:
                assert time.monotonic() < deadline, "no sshd answers"
                time.sleep(0.05)

    def stop(self) -> None:
        """End every sshd."""
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait()

    def launcher(self) -> SshLauncher:
        """Return what starts an agent on each."""
        return SshLauncher(self.addresses, ssh=self.ssh, agent=self.agent)


@pytest.fixture
def three(tmp_path: Path, leftovers: Leftovers) -> Iterator[SshHosts]:
    """Three hosts with an sshd each."""
    folder = tmp_path / "ssh"
    folder.mkdir(0o700)
    with namespaces(3) as (bridge, *names):
        hosts = SshHosts(bridge, names, folder)
        with contextlib.ExitStack() as stack:
            stack.callback(hosts.stop)
            hosts.start()
            hosts.await_doors()
            leftovers.note()
            yield hosts


def test_weights_are_those_of_one_process(three: SshHosts, tmp_path: Path) -> None:
    document = tiny_training(iterations=3, workers=3, precision="float64")
    document["cluster"]["machines"] = [{"name": "m", "count": 4, "nic": "400 Mbit/s"}]
    scenario = load(
        written(document, tmp_path), [f"emulation.hosts={{m3: {three.addresses[2]}}}"]
    )
    settings = emulation_settings(
        scenario, listen=three.bridge, launcher=three.launcher()
    )
    directory = RunDirectory.create("tiny", tmp_path / "runs")
    run = carry_out(prepare(scenario), settings, directory).run

    machines = {host["host"]: host["machines"] for host in run.hosts}
    assert sorted(machines) == three.addresses
    assert "m3" in machines[three.addresses[2]]
    assert sorted(itertools.chain(*machines.values())) == ["m0", "m1", "m2", "m3"]
    expected, _ = reference_training(dict(scenario.to_job().settings), 3)
    np.testing.assert_allclose(
        run.results["ps0"]["parameters"], expected, rtol=1e-12, atol=0
    )


def test_host_that_ssh_cannot_reach_is_named(three: SshHosts, tmp_path: Path) -> None:
    problem, realization = golden(1)
    ip(f"link set {three.names[1]} down")
    launcher = SshLauncher(
        three.addresses[:2],
        ssh=f"{three.ssh} -o ConnectTimeout=1",
        agent=three.agent,
    )
    settings = EmulationSettings(listen=three.bridge, launcher=launcher)
    with pytest.raises(
        NodeLost, match=rf"ssh to {three.addresses[1]} ended with status 255 .*it said"
    ):
        emulate(problem, "oes", settings, realization, log=tmp_path / "agent.log")
