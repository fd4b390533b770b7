"""A real graph, learnt through sockets."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from emu.experiment.expectations import find_misses
from emu.scenario import load
from tests.integration.scenarios import SCENARIOS, carried_out

pytestmark = [
    pytest.mark.emulation,
    pytest.mark.slow,
    pytest.mark.data,
    pytest.mark.timeout(400),
    pytest.mark.skipif("EMU_DATA" not in os.environ, reason="EMU_DATA names no graphs"),
]


def test_amazon_computers_is_learnt(tmp_path: Path) -> None:
    """100 s; single-process training reaches 0.90 to 0.91."""
    file = SCENARIOS / "amazon_computers.yaml"
    run = carried_out(file, tmp_path)

    assert run.result["accuracy"]["test"] >= 0.89
    assert find_misses(load(file).expect, run.result) == []
    with (run.path / "training.csv").open() as lines:
        losses = [
            (float(row["time"]), float(row["value"]))
            for row in csv.DictReader(lines)
            if row["figure"] == "loss" and row["task"] == "w0"
        ]
    assert len(losses) == 200
    assert losses == sorted(losses, key=lambda point: point[0])
    first, last = ([v for _, v in part] for part in (losses[:20], losses[-20:]))
    assert sum(last) < 0.4 * sum(first)


DGCL = """\
name: dgcl_amazon
cluster:
  machines: [{count: 4, nic: 10 Gbit/s}]
job:
  system: dgcl
  dataset: {name: amazon_computers, normalise: true}
  model: {kind: gcn, hidden: 32, layers: 2}
  epochs: 140
  optimizer: {name: adam, lr: 0.02}
  times: {forward: 20 ms, backward: 20 ms}
emulation: {time_scale: 4, compute: padded}
"""


@pytest.mark.untimed
def test_the_whole_graph_is_learnt_in_parts(tmp_path: Path) -> None:
    """70 s for 120 epochs: they reach 0.88 in one process, too."""
    file = tmp_path / "dgcl_amazon.yaml"
    file.write_text(DGCL)

    run = carried_out(file, tmp_path)

    assert run.result["accuracy"]["test"] >= 0.88
