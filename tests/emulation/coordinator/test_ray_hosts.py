"""Three hosts of a real Ray cluster: the job and its weights are those of one host."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from emu.emulation.coordinator import RunSettings, emulate
from emu.emulation.launch.ray_cluster import RayLauncher, bundles_of
from emu.errors import NodeLost, RunError
from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.runs.run_directory import RunDirectory
from emu.scenario import load, prepare
from emu.training import reference_training
from tests.emulation.coordinator.emulated import Acts, golden
from tests.emulation.coordinator.ray_hosts import RAY, RayHosts
from tests.emulation.coordinator.test_hosts import namespaces_or_skip, pytestmark
from tests.integration.scenarios import tiny_training, written

pytestmark = [
    *pytestmark,
    pytest.mark.netns,  # spelt: tools/check looks for it
    pytest.mark.slow,
    pytest.mark.skipif(
        not RAY, reason="a cluster of Ray (pip install 'dgtp-emulator[ray]')"
    ),
]
TOKEN = "5e7a11d0c0ffee5e7a11d0c0ffee"  # noqa: S105


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayHosts]:
    """Three hosts that lend 4 CPUs each."""
    log = tmp_path_factory.mktemp("ray") / "log"
    with (
        namespaces_or_skip(3) as (bridge, *names),
        RayHosts(bridge, names, log, 4) as r,
    ):
        yield r


def commands() -> list[str]:
    return [
        " ".join(each.info["cmdline"] or ())
        for each in psutil.process_iter(["cmdline"])
    ]


def bridge_of(cluster: RayHosts) -> str:
    return cluster.address.partition(":")[0]


def test_weights_are_those_of_one_process(cluster: RayHosts, tmp_path: Path) -> None:
    """And the token is in no command line and in no file of Ray."""
    document = tiny_training(iterations=3, workers=3, precision="float64")
    document["cluster"]["machines"] = [{"name": "m", "count": 4, "nic": "400 Mbit/s"}]
    bridge = bridge_of(cluster)
    stated = {"m3": f"{bridge.rpartition('.')[0]}.4"}
    scenario = load(written(document, tmp_path))
    experiment = prepare(scenario)
    launcher = RayLauncher(cluster.address, bundles_of(experiment.problem, 0.5, stated))
    settings = emulation_settings(
        scenario,
        listen=bridge,
        launcher=launcher,
        host_of=launcher.host_of,
        token=TOKEN,
    )
    seen: list[str] = []
    directory = RunDirectory.create("tiny", tmp_path / "runs")
    look = Acts("began", lambda: seen.extend(commands()), experiment.problem)
    run = carry_out(experiment, settings, directory, look).run

    machines = {host["host"]: host["machines"] for host in run.hosts}
    assert len(machines) == 3
    assert "m3" in machines[stated["m3"]]
    assert sorted(itertools.chain(*machines.values())) == ["m0", "m1", "m2", "m3"]
    expected, _ = reference_training(dict(scenario.to_job().settings), 3)
    np.testing.assert_allclose(
        run.results["ps0"]["parameters"], expected, rtol=1e-12, atol=0
    )
    assert any("emu.emulation.launch.ray_client" in line for line in seen)
    assert not any(TOKEN in line for line in seen)
    written_down = [p for p in cluster.folder.rglob("*") if p.is_file()]
    assert written_down
    assert not [p for p in written_down if TOKEN.encode() in p.read_bytes()]


def test_machine_that_no_host_can_hold_is_an_error(cluster: RayHosts) -> None:
    problem, _ = golden(1)
    with pytest.raises(
        RunError, match=r"can never hold these machines: m0 asks 6 CPU; .* has 4 CPU"
    ):
        RayLauncher(cluster.address, bundles_of(problem, 2.0, {}))


def test_client_that_is_killed_ends_the_run_and_leaves_nobody(
    cluster: RayHosts, tmp_path: Path
) -> None:
    problem, realization = golden(3)
    launcher = RayLauncher(cluster.address, bundles_of(problem, 1.0, {}))
    settings = RunSettings(
        listen=bridge_of(cluster), launcher=launcher, host_of=launcher.host_of
    )
    with pytest.raises(NodeLost, match="client of Ray was killed by SIGKILL"):
        emulate(
            problem,
            "oes",
            settings,
            realization,
            log=tmp_path / "agent.log",
            observer=Acts("began", launcher._client.kill, problem),
        )
    bridge, patience = bridge_of(cluster), time.monotonic() + 5.0

    def left() -> list[str]:
        return [c for c in commands() if "emu.emulation.launch" in c and bridge in c]

    while left() and time.monotonic() < patience:
        time.sleep(0.05)
    assert left() == []
