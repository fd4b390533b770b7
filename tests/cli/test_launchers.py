"""Errors of `emu run` about ways to start agents, and the address that they join."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from emu.cli.host_options import Hosts
from emu.cli.watching import ProgressLine
from emu.emulation.coordinator import RunProgress
from emu.emulation.launch.ray_cluster import bundles_of
from emu.errors import ScenarioError
from emu.report.terminal import terminal
from emu.scenario import load, prepare
from emu.testing import two_machine_example


def hosts(agents: int = 0, file: Path | None = None, ray: str = "") -> Hosts:
    return Hosts(agents, file, ray)


def test_ways_to_start_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hosts").write_text("10.0.0.1\n10.0.0.2\n")
    golden = prepare(load("golden"))

    assert hosts().launcher(golden).hosts == ("localhost",)
    assert hosts(3).launcher(golden).count == 3
    assert hosts(0, tmp_path / "hosts").launcher(golden).count == 2
    with pytest.raises(ScenarioError, match=r"--agents: .* state one"):
        hosts(3, tmp_path / "hosts")
    with pytest.raises(ScenarioError, match=r"--agents: .* state one"):
        hosts(3, ray="auto")
    monkeypatch.setenv("EMU_RAY_CPUS", "none")
    with pytest.raises(ScenarioError, match=r"EMU_RAY_CPUS: .* number"):
        hosts(ray="auto").launcher(golden)


def test_agents_are_waited_for_as_long_as_stated() -> None:
    golden = prepare(load("golden"))
    assert Hosts(2, None, "", patience="60 s").launcher(golden).deadline == 60.0
    assert Hosts(2, None, "").launcher(golden).deadline is None
    for agents, patience in ((0, "60 s"), (2, "soon"), (2, "0 s")):
        with pytest.raises(ScenarioError, match="--patience: "):
            Hosts(agents, None, "", patience=patience)


def test_machine_is_one_bundle_and_stays_where_it_is_stated() -> None:
    """Each machine of golden has three processes."""
    bundles = bundles_of(prepare(load("golden")).problem, 0.5, {"m1": "10.0.0.2"})

    assert bundles == {
        "m0": {"CPU": 1.5},
        "m1": {"CPU": 1.5, "node:10.0.0.2": 0.001},
    }


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("{m7: a}", r"emulation\.hosts\.m7: no machine 'm7', .*m0"),
        ("{m0: a}", ""),
    ],
)
def test_machines_on_hosts_are_machines(stated: str, expected: str) -> None:
    if expected:
        with pytest.raises(ScenarioError, match=expected):
            load("golden", [f"emulation.hosts={stated}"])
    else:
        hosts = load("golden", [f"emulation.hosts={stated}"]).emulation.hosts
        assert hosts == {"m0": "a"}


def test_kernel_nics_are_all_on_one_host() -> None:
    overrides = ["emulation.network=kernel", "schedule.policy=maxmin"]
    with pytest.raises(ScenarioError, match="kernel NICs are all on this host"):
        load("golden", [*overrides, "emulation.hosts={m0: a}"])


@pytest.mark.parametrize("given", [True, False])
def test_token_of_the_environment_is_not_printed(
    monkeypatch: pytest.MonkeyPatch,
    given: bool,  # noqa: FBT001 -- a parameter of the test
) -> None:
    monkeypatch.delenv("EMU_TOKEN", raising=False)
    if given:
        monkeypatch.setenv("EMU_TOKEN", "of-this-run")
    text = io.StringIO()
    line = ProgressLine(two_machine_example(1)[0].job, terminal(text), agents=2)
    line.listening("::1", 7001, "of-this-run")

    assert ("of-this-run" in text.getvalue()) != given
    assert "emu agent [::1]:7001" in text.getvalue()


def test_the_line_counts_what_ended_before_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stages: list[str] = []
    monkeypatch.setattr("emu.cli.watching.note_stage", stages.append)
    job = two_machine_example(4)[0].job
    line = ProgressLine(job, terminal(io.StringIO()))
    ended = RunProgress(len(job.tasks), 2.5, 1e9, 0.5)
    line.progressed(ended)
    line.restarting("p0 died", first=2)
    line.progressed(ended)

    assert stages == ["iteration 1/4, 2.50 s", "iteration 3/4, 2.50 s"]


@pytest.mark.parametrize(
    ("host", "said"), [("127.0.0.1", "--listen HOST:PORT"), ("10.0.0.7", "each host")]
)
def test_an_address_that_other_hosts_cannot_reach_is_said(host: str, said: str) -> None:
    text = io.StringIO()
    line = ProgressLine(two_machine_example(1)[0].job, terminal(text), agents=2)
    line.listening(host, 7001, "of-this-run")

    assert said in text.getvalue()
