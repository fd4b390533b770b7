"""Blocks of docs/scenarios.md are sections of scenarios that can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import emu

PAGE = Path(__file__).parents[2] / "docs" / "scenarios.md"
BLOCKS = re.findall(
    r"^```yaml\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
)
#: What a block leaves out, by a key that it has.
MACHINES = """
cluster:
  machines: [{name: m, count: 3, nic: 1 Gbit/s}]
  links: [{name: r0 up, bandwidth: 1 Gbit/s}]
"""
CUSTOM = "custom, iterations: 2, tasks: [{name: x, time: 1 s}]"
TASKS = f"job: {{system: {CUSTOM}}}\n"
DGTP = """
  system: dgtp
  dataset: {name: products-like, scale: 0.001}
  model: {hidden: 8, layers: 2}
  fanouts: [2, 2]
  batch_size: 10
  workers: 1
  iterations: 2
  times: {graph_store: 1 ms, sampler: 1 ms, worker: 1 ms, parameter_server: 1 ms}
"""
STORES = "cluster: {machines: [{name: store, count: 2, nic: 1 Gbit/s}]}\n"


def complete(block: str) -> str:
    """Return the scenario of a block, with the keys and tasks that it leaves out."""
    if block.startswith("events:"):
        return f"{block}{TASKS}{MACHINES}"
    if block.startswith("cluster:"):
        return block + TASKS
    if block.startswith("jobs:"):
        _, keys = DGTP.split("system: dgtp\n")
        dgtp_keys = ", ".join(keys.strip().splitlines())
        sections = block.replace("custom, ...", CUSTOM).replace("...", dgtp_keys)
        return sections + MACHINES
    if "stores:" in block:
        return block + DGTP.lstrip("\n") + STORES
    tasks = re.sub(
        r"^( *- \{name: )w0(, .*\}) *# w1, w2 likewise\n",
        r"\1w0\2\n\1w1\2\n\1w2\2\n",
        block,
        flags=re.MULTILINE,
    )
    return tasks + MACHINES


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_can_be_read(number: int) -> None:
    scenario = emu.loads(complete(BLOCKS[number]))
    assert emu.simulate(scenario).makespan > 0


def test_every_kind_of_block_is_there() -> None:
    assert len(BLOCKS) == 5
