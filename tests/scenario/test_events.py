"""Section ``events``: what it makes of the cluster, and every way to get it wrong."""

from __future__ import annotations

from typing import Any

import pytest

from emu.errors import ScenarioError
from emu.lab.kernel_network import check_network
from emu.problem import CapacityChange
from emu.runs.problem_json import problem_from_json, problem_to_json
from emu.scenario import load, prepare
from emu.scenario.scenario_file import loads

TEXT = """
cluster:
  machines: [{name: m, count: 2, nic: 10 B/s}, {name: bare, nic: none}]
  links: [{name: core, bandwidth: 5 B/s}]
  routes: [{from: [m0, m1], to: bare, through: [out, core]},
           {from: bare, to: [m0, m1], through: [core, in]}]
  racks: []
job:
  system: custom
  iterations: 1
  tasks: [{name: a, time: 1 s, pin: m0}, {name: b, time: 1 s, pin: bare}]
  flows: [{from: a, to: b, volume: 20 B}]
events:
"""
FALLS = "  - {at: 2 s, machine: m0, nic: {in: 10 B/s, out: 1 B/s}}\n"
RISES = "  - {at: 8 s, link: core, bandwidth: 10 B/s}\n"
#: 5 B by 2 s, 1 B/s from then on.
END = 2 + 15 + 1


def test_nics_and_links_change() -> None:
    scenario = loads(TEXT + RISES + FALLS)

    assert scenario.to_cluster().changes == (
        CapacityChange(8.0, "core", 10.0),
        CapacityChange(2.0, "m0 out", 1.0),
        CapacityChange(2.0, "m0 in", 10.0),
    )
    experiment = prepare(scenario)
    assert experiment.simulate().makespan == pytest.approx(END)
    again = load(scenario)
    assert again.events == scenario.events
    problem = experiment.problem
    read = problem_from_json(problem_to_json(problem), "problem.json")
    assert read.cluster == problem.cluster


def test_a_scenario_without_events_says_nothing_of_them() -> None:
    assert "events" not in load("golden").to_json()


@pytest.mark.parametrize(
    ("event", "key", "said"),
    [
        ("{at: 1 s, machine: m9, nic: 1 B/s}", "[0].machine", "no machine 'm9', known"),
        ("{at: 1 s, link: cor, bandwidth: 1 B/s}", "[0].link", "mean 'core'"),
        ("{at: 1 s, machine: bare, nic: 1 B/s}", "[0].machine", "bare has no NIC"),
        ("{at: 0 s, machine: m0, nic: 1 B/s}", "[0].at", "write a later time"),
        ("{at: -1 s, machine: m0, nic: 1 B/s}", "[0].at", "-1 s"),
        ("{at: 5, machine: m0, nic: 1 B/s}", "[0].at", "5"),
        ("{at: 1 s, machine: m0, nic: 0}", "[0].nic", "0"),
        ("{at: 1 s, machine: m0, nic: 0 B/s}", "[0].nic", "found zero"),
        ("{at: 1 s, machine: m0, nic: none}", "[0].nic", "a NIC stays"),
        ("{at: 1 s, machine: m0, nic: {in: 1 B/s}}", "[0].nic.out", "missing"),
        ("{at: 1 s, machine: m0}", "[0]", "found machine, write machine and nic"),
        ("{at: 1 s}", "[0]", "found only at, write machine and nic, or link"),
        ("{at: 1 s, machine: m0, bandwidth: 1 B/s}", "[0]", "found bandwidth and mach"),
        ("{machine: m0, nic: 1 B/s}", "[0].at", "missing"),
        ("{at: 1 s, machine: m0, nik: 1 B/s}", "[0].nik", "did you mean 'nic'"),
        (f"{RISES[4:]}{RISES.rstrip()}", "[1].at", "core changes twice at 8 s"),
    ],
)
def test_what_is_wrong_is_said_with_line_and_key(
    event: str, key: str, said: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(f"{TEXT}  - {event}\n")

    found: Any = caught.value
    assert found.key == f"events{key}"
    assert said in found.problem
    assert found.line == 14 + key.startswith("[1]")


def test_kernel_nics_have_no_links_beside_them() -> None:
    scenario = loads(TEXT + FALLS, ["emulation.network=kernel"])
    with pytest.raises(ScenarioError, match=r"cluster\.links: is for simulations"):
        check_network(scenario)
