"""Runs on kernel NICs: a network that does not know what the simulator expects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from emu.errors import ScenarioError
from emu.experiment import kernel_network
from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.machines import LabMachine
from emu.runs.run_directory import RunDirectory
from emu.scenario import load, prepare

if TYPE_CHECKING:
    from tests.leftovers import Leftovers

pytestmark = [
    pytest.mark.emulation,
    pytest.mark.netns,
    pytest.mark.usefixtures("_a_lab_can_be_had"),
]

GOLDEN = Path(__file__).parents[2] / "scenarios" / "golden.yaml"
KERNEL = ["emulation.network=kernel", "schedule.policy=maxmin"]


def run(folder: Path, *overrides: str) -> dict[str, Any]:
    """Return the result of the golden scenario on kernel NICs."""
    scenario = load(GOLDEN, [*KERNEL, "job.iterations=1", *overrides])
    experiment = prepare(scenario)
    directory = RunDirectory.create("golden", folder)
    return carry_out(experiment, emulation_settings(scenario), directory).result


@pytest.mark.parametrize(
    ("sharing", "policy"), [("fair", "maxmin"), ("tcp", "maxmin"), ("assigned", "oes")]
)
def test_the_kernel_takes_about_as_long_as_was_predicted(
    sharing: str, policy: str, tmp_path: Path, leftovers: Leftovers
) -> None:
    stated = [f"emulation.sharing={sharing}", f"schedule.policy={policy}"]
    result = run(tmp_path, *stated)
    leftovers.note()

    assert (result["network"], result["sharing"]) == ("kernel", sharing)
    assert abs(result["makespan_error"]) < 0.05
    assert ("early_wall_seconds" in result["transport"]) == (sharing == "assigned")
    assert result["transport"]["segments"] > 100
    assert result["verdict"]["guards"] == []


def test_nics_that_are_not_what_the_scenario_says_show_in_the_makespan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leftovers: Leftovers
) -> None:
    """NICs a third slower than stated: no code of the scheduler can hide it."""

    def slower(name: str, out: float, into: float) -> LabMachine:
        return LabMachine(name, out / 1.5, into / 1.5)

    monkeypatch.setattr(kernel_network, "LabMachine", slower)

    result = run(tmp_path)
    leftovers.note()

    assert result["makespan_error"] > 0.15


def test_a_policy_that_kernel_nics_do_not_carry_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"schedule\.policy: is fifo"):
        run(tmp_path, "schedule.policy=fifo")


def test_a_nic_that_no_kernel_carries_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"emulation\.time_scale: .*no NIC"):
        run(tmp_path, "emulation.byte_scale=1")
