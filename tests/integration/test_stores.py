"""Machines that own no part of the graph, over sockets: what is sent and learnt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from emu.scenario import load, prepare
from tests.integration.scenarios import carried_out, check_training, emu, written
from tests.systems.stores_apart import counted, drawn_pool, sent

pytestmark = [pytest.mark.emulation, pytest.mark.untimed]

ROUNDS = 4


@pytest.mark.parametrize(
    ("system", "seed", "keys"),
    [
        ("dgtp", 0, {}),
        ("dgtp", 4, {"sampling": "multiround"}),
        ("data_parallel", 1, {}),
    ],
)
def test_bytes_over_sockets_are_those_counted(
    system: str, seed: int, keys: dict[str, Any], tmp_path: Path
) -> None:
    document = drawn_pool(seed, system, iterations=ROUNDS, **keys)
    document["emulation"]["compute"] = "real"
    file = written(document, tmp_path)

    run = carried_out(file, tmp_path)
    pairs = counted(prepare(load(file)), document["job"]["stores"])
    assert sent(run.outcome.run.schedule) == pairs
    check_training(run, ROUNDS, within=1e-5)  # float32: sums in another order
    assert len(pairs) > 1


def test_a_store_apart_that_dies_is_there_again(tmp_path: Path) -> None:
    cache = {"policy": "lru", "size": "40 kB"}
    document = drawn_pool(4, "dgtp", iterations=8, cache=cache)
    document["job"]["credit_window"] = 1
    document |= {
        "checkpoint": {"every": "1 iterations", "to": "disk"},
        "on_failure": "restart",
        "recovery": "10 ms",
        "events": [{"at": {"task": "w0", "iteration": 2}, "kill": "g0"}],
    }
    done = emu("run", written(document, tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    (file,) = (tmp_path / "runs").glob("*/result.json")
    (attempt,) = json.loads(file.read_text())["recovery"]["attempts"]
    assert "process g0 was killed by SIGKILL" in attempt["error"]
    assert emu("audit", file.parent, cwd=tmp_path).returncode == 0
