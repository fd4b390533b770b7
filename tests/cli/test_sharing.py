"""``emu run --network kernel --sharing``: which runs it asks for, and what it shows."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.cli.running import overrides_of
from emu.errors import ScenarioError
from emu.report import terminal
from emu.report.comparison import sharing_table


def test_every_kind_of_sharing_is_a_run_under_the_policy_that_it_carries_out() -> None:
    kernel, maxmin = "emulation.network=kernel", "schedule.policy=maxmin"

    assert overrides_of("kernel", "tcp,assigned") == [
        [kernel, "emulation.sharing=tcp", maxmin],
        [kernel, "emulation.sharing=assigned"],
    ]
    assert overrides_of("", "") == [[]]
    assert overrides_of("kernel", "") == [[kernel]]


def test_sharing_is_of_kernel_nics() -> None:
    with pytest.raises(ScenarioError, match="state that too"):
        overrides_of("", "tcp")


def test_several_runs_are_not_watched() -> None:
    command = ["run", "golden", "--network", "kernel", "--sharing", "tcp,fair"]

    found = CliRunner().invoke(app, [*command, "--live"])

    assert found.exit_code == 2
    assert "state one kind" in found.output


def test_a_row_per_run_stands_beside_its_prediction() -> None:
    result = {
        "scenario": "golden",
        "sharing": "tcp",
        "policy": "maxmin",
        "predicted_makespan": 38.0,
        "makespan": 40.0,
        "makespan_error": 2 / 38,
        "transport": {"segments": 200, "retransmitted": 3, "timeouts": 1},
        "verdict": {"trust": "trusted"},
    }
    console = terminal()
    with console.capture() as shown:
        console.print(sharing_table([result]))

    row = shown.get().splitlines()[-1].split()
    assert row == [
        "tcp",
        "maxmin",
        "38",
        "s",
        "40",
        "s",
        "+5.26",
        "%",
        "1.5",
        "%",
        "1",
        "trusted",
    ]
