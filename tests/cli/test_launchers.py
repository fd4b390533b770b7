"""What `emu run` says of ways to start agents that do not go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emu.cli.run_commands import launcher_of
from emu.errors import ScenarioError
from emu.scenario import load

if TYPE_CHECKING:
    from pathlib import Path


def test_ways_to_start_agents(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("10.0.0.1\n10.0.0.2\n")

    assert launcher_of(0, None, "ssh", "").hosts == ("localhost",)
    assert launcher_of(3, None, "ssh", "").count == 3
    assert launcher_of(0, tmp_path / "hosts", "ssh -4", "").count == 2
    with pytest.raises(ScenarioError, match=r"--agents: .* state one"):
        launcher_of(3, tmp_path / "hosts", "ssh", "")
    with pytest.raises(ScenarioError, match=r"--ssh: .* --hosts"):
        launcher_of(3, None, "ssh -4", "")


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
