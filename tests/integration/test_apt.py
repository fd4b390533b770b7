"""APT over sockets: weights of one device, and bytes as simulated."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.scenarios import (
    carried_out,
    check_training,
    tiny_training,
    written,
)

pytestmark = [pytest.mark.emulation, pytest.mark.untimed]

ROUNDS = 4
PHASES = [
    f"{part}_{way}" for part in ("model", "data") for way in ("forward", "backward")
]


@pytest.mark.parametrize("strategy", ["gdp", "nfp", "snp", "dnp", "auto"])
def test_a_strategy_weighs_and_teaches_as_simulated(
    strategy: str, tmp_path: Path
) -> None:
    document = tiny_training(
        ROUNDS, precision="float64", system="apt", strategy=strategy
    )
    for key in ("workers", "samplers_per_worker"):
        document["job"].pop(key)
    document["job"]["times"] |= dict.fromkeys(PHASES, "10 ms")
    document["placement"] = {"policy": "ifs"}
    run = carried_out(written(document, tmp_path), tmp_path)
    check_training(run, ROUNDS)
