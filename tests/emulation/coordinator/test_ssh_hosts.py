"""Three hosts under a real sshd: the job and its weights are those of one host."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from emu.emulation.coordinator import RunSettings, emulate
from emu.emulation.launch.ssh import SshLauncher
from emu.errors import NodeLost
from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.runs.run_directory import RunDirectory
from emu.scenario import load, prepare
from emu.training import reference_training
from tests.emulation.coordinator.emulated import golden
from tests.emulation.coordinator.hosts import SSHD, SshHosts, ip
from tests.emulation.coordinator.test_hosts import namespaces_or_skip, pytestmark
from tests.integration.scenarios import tiny_training, written
from tests.leftovers import Leftovers

pytestmark = [
    *pytestmark,
    pytest.mark.netns,  # spelt: tools/check looks for it
    pytest.mark.untimed,
    pytest.mark.skipif(
        SSHD is None or shutil.which("ssh") is None,
        reason="hosts are reached by openssh (apt-get install openssh-server)",
    ),
]


@pytest.fixture
def three(tmp_path: Path, leftovers: Leftovers) -> Iterator[SshHosts]:
    """Three hosts with an sshd each."""
    folder = tmp_path / "ssh"
    folder.mkdir(0o700)
    with (
        namespaces_or_skip(3) as (bridge, *names),
        SshHosts(bridge, names, folder) as hosts,
    ):
        leftovers.note()
        yield hosts


def test_weights_are_those_of_one_process(three: SshHosts, tmp_path: Path) -> None:
    document = tiny_training(iterations=3, workers=3, precision="float64")
    document["cluster"]["machines"] = [{"name": "m", "count": 4, "nic": "400 Mbit/s"}]
    scenario = load(
        written(document, tmp_path), [f"emulation.hosts={{m3: {three.addresses[2]}}}"]
    )
    settings = emulation_settings(
        scenario,
        listen=three.bridge,
        launcher=SshLauncher(three.addresses, ssh=three.ssh, agent=three.agent),
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
    settings = RunSettings(listen=three.bridge, launcher=launcher)
    with pytest.raises(
        NodeLost, match=rf"ssh to {three.addresses[1]} ended with status 255 .*it said"
    ):
        emulate(problem, "oes", settings, realization, log=tmp_path / "agent.log")
