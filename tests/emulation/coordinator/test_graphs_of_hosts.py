"""A host that lacks the graph of a job gets it; one with another is named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from emu.emulation.coordinator import EmulatedRun, Observer, emulate
from emu.emulation.launch.launcher import ExternalLauncher
from emu.errors import NodeLost
from emu.experiment.run_experiment import emulation_settings
from emu.graph_data.imported import import_graph
from emu.scenario import Scenario, load, prepare
from emu.training import reference_training
from tests.integration.scenarios import tiny_training, written
from tests.warm_commands import WarmCommands
from tests.warm_process import Forked

pytestmark = [pytest.mark.emulation, pytest.mark.untimed, pytest.mark.timeout(120)]

TOKEN = "for-this-test"  # noqa: S105


class OtherHost(Observer):
    """Starts an agent with a cache of its own, as on another host."""

    def __init__(self, home: Path, commands: WarmCommands) -> None:
        self.home = home
        self.commands = commands
        self.agent: Forked | None = None

    @override
    def listening(self, host: str, port: int, token: str) -> None:
        its_own = {
            "EMU_TOKEN": token,
            "XDG_CACHE_HOME": str(self.home),
            "EMU_DATA": "",
        }
        self.agent = self.commands.start_module(
            "emu.emulation.launch", f"{host}:{port}", env={**os.environ, **its_own}
        )


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    import_ring(tmp_path, vertices=60)
    document = tiny_training(iterations=3, workers=2, precision="float64")
    document["job"]["dataset"] = {"name": "mine"}
    document["job"]["batch_size"] = 4
    return load(written(document, tmp_path))


def import_ring(folder: Path, *, vertices: int) -> None:
    """Import a ring of so many vertices as ``mine``."""
    lines = [f"{v},{(v + 1) % vertices}" for v in range(vertices)]
    (folder / "ring.csv").write_text("\n".join(lines))
    import_graph(folder / "ring.csv", "mine", feature_length=8, classes=3)


def run_on(host: OtherHost, scenario: Scenario, log: Path) -> EmulatedRun:
    """Run a scenario on an agent that joins from elsewhere."""
    ready = prepare(scenario)
    options: dict[str, Any] = {"launcher": ExternalLauncher(1), "token": TOKEN}
    settings = emulation_settings(scenario, **options)
    try:
        return emulate(
            ready.problem,
            ready.policy,
            settings,
            ready.expected,
            log=log,
            observer=host,
        )
    finally:
        assert host.agent is not None
        host.agent.wait_here()


def test_a_host_gets_the_graph_that_it_lacks(
    scenario: Scenario, tmp_path: Path, warm_commands: WarmCommands
) -> None:
    host = OtherHost(tmp_path / "there", warm_commands)
    run = run_on(host, scenario, tmp_path / "log")

    weights, _ = reference_training(dict(scenario.to_job().settings), 3)
    learnt = run.results["ps0"]["parameters"]
    np.testing.assert_allclose(learnt, weights, rtol=1e-12, atol=0)
    assert (tmp_path / "there" / "emu" / "data" / "mine" / "manifest.json").is_file()


def test_a_host_with_another_graph_of_that_name_is_named(
    scenario: Scenario,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    warm_commands: WarmCommands,
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path / "there"))
        import_ring(tmp_path, vertices=61)

    problem = r"agent .* at 127.0.0.1: mine: is another graph here .* emu data clear"
    host = OtherHost(tmp_path / "there", warm_commands)
    with pytest.raises(NodeLost, match=problem):
        run_on(host, scenario, tmp_path / "log")
