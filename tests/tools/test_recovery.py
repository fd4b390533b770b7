"""Rows of kills are drawn from their seed, and judged as they should be."""

from __future__ import annotations

from typing import Any

import pytest

from emu.scenario.scenario_file import loads
from tools.attacks.recovery import (
    HOST,
    LENGTHS,
    NETWORKS,
    PHASES,
    complaint,
    draws,
    named,
    stated,
    table,
)

ROW: dict[str, Any] = {
    "kind": "restart",
    "victim": "w0",
    "noticed": 0.5,
    "first": 3,
    "named": True,
    "orphans": [],
    "code": 0,
    "traceback": False,
    "left": [],
    "identical": True,
}


VICTIMS = {"dgtp": ["g", "w"], "dgcl": ["d"]}
CELLS = (3 * len(PHASES) + 2 * len(HOST) * (len(PHASES) - 1)) * len(NETWORKS)
CELLS += len(VICTIMS)  # a whole host


def test_trials_are_those_of_the_seed_and_reach_every_process_and_phase() -> None:
    found = draws(3, CELLS, 24, VICTIMS)
    restarts = [each for each in found if each.kind == "restart"]

    assert found == draws(3, CELLS, 24, VICTIMS) != draws(4, CELLS, 24, VICTIMS)
    where = {(d.system, d.network, d.victim, d.phase) for d in restarts}
    assert len(where) == len(restarts) == CELLS
    of_dgcl = {d.victim for d in restarts if d.system == "dgcl"}
    assert of_dgcl == {"d", "host", *HOST}


def test_lambdas_are_not_tried_on_kernel_nics() -> None:
    found = draws(3, 200, 50, {"dorylus": ["lambda"]})
    assert {draw.network for draw in found} == {"plain", "hosts"}


def test_half_of_the_trials_is_half_of_each_kind() -> None:
    found = draws(3, 300, 100, VICTIMS)
    half = [each.kind for each in found[:200]]

    assert half.count("resume") == 50
    assert {d.network for d in found[:40] if d.kind == "resume"} == {*NETWORKS}


@pytest.mark.parametrize("system", LENGTHS)
def test_every_system_takes_several_cuts(system: str) -> None:
    iterations, every = LENGTHS[system]
    scenario = loads(stated(system))

    assert scenario.job.system in {system, "dgtp"}
    assert scenario.checkpoint is not None
    assert iterations // every >= 7


@pytest.mark.parametrize(
    ("word", "message", "expected"),
    [
        ("w0", "process w0 was killed by SIGKILL: ", True),
        ("w0", "process w01 was killed by SIGKILL: ", False),
        ("localhost", "the agent of this host was killed: ", True),
        ("m0", "agent m0 at 10.0.0.1: the fork server was killed", True),
        ("10.0.0.1", "ssh to 10.0.0.12 ended", False),
        ("", "anything", False),
    ],
)
def test_a_culprit_is_named(word: str, message: str, *, expected: bool) -> None:
    assert named(word, message) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, ""),
        ({"code": 5, "identical": False}, "exit code 5"),
        ({"identical": False}, "other weights"),
        ({"named": False, "left": ["file a"]}, "the culprit is not named; left file a"),
        ({"orphans": ["emu:w0"]}, "not ended: emu:w0"),
    ],
)
def test_row_that_is_not_as_it_should_be(change: dict[str, Any], expected: str) -> None:
    assert complaint(ROW | change) == expected


def test_table_counts() -> None:
    words = {"network": "plain", "system": "dgtp", "phase": "run", "complaint": ""}
    rows = [ROW, ROW | {"first": 0, "noticed": 1.5}, ROW | {"first": None}]
    found = [" ".join(line.split()) for line in table([row | words for row in rows])]

    assert found[1] == "restart 3 2 3 1 0.50 1.40 1.50 0 0"
    assert found[2].startswith("restart dgtp 3 2 3 1")
    assert len(found) == 6
