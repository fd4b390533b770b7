"""What kernel NICs cannot be asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.errors import ScenarioError
from emu.experiment.kernel_network import check_network
from emu.scenario import load

GOLDEN = Path(__file__).parents[2] / "scenarios" / "golden.yaml"


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["schedule.policy=oes"], "schedule.policy"),
        (["schedule.policy=none", "emulation.flow_ends=fluid"], "emulation.flow_ends"),
    ],
)
def test_what_asks_for_assigned_rates_is_refused(
    overrides: list[str], key: str
) -> None:
    kernel = load(GOLDEN, ["expect=null", *overrides, "emulation.network=kernel"])
    with pytest.raises(ScenarioError, match="state") as caught:
        check_network(kernel)

    assert caught.value.key == key
    check_network(load(GOLDEN, ["expect=null", *overrides]))


def test_assigned_rates_are_of_any_policy() -> None:
    stated = ["emulation.network=kernel", "emulation.sharing=assigned"]
    check_network(load(GOLDEN, [*stated, "schedule.policy=fifo"]))
