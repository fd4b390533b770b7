"""Latencies: from the keys of a file to what a job waits for, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import emu
from emu.errors import ScenarioError
from emu.lab.setup import find_lab_errors
from emu.prediction.analysis.bounds import bounds
from emu.prediction.analysis.critical_path import Cause, critical_path
from emu.prediction.analysis.what_if import Change
from emu.problem import Cluster, Link, Machine, Placement, Route
from emu.scenario.edits import ScenarioEdits
from emu.scenario.experiment import Experiment, prepare
from emu.scenario.scenario_file import load
from emu.trust.audit import audit

RACKS = """
cluster:
  machines:
    - {name: m, count: 3, nic: {in: 10 B/s, out: 10 B/s, latency: {in: 1 s, out: 2 s}}}
    - {name: far, nic: {in: 10 B/s, out: 10 B/s, latency: 250 ms}}
  racks:
    - {name: r0, machines: [m0, m1], uplink: 20 B/s, latency: {in: 4 s, out: 8 s}}
    - {name: r1, machines: [m2, far], uplink: 20 B/s, latency: 16 s}
job:
  system: custom
  iterations: 2
  tasks:
    - {name: a, kind: a, time: 1 s}
    - {name: b, kind: b, time: 1 s}
    - {name: c, kind: c, time: 1 s}
    - {name: d, kind: d, time: 1 s}
  flows:
    - {from: a, to: b, volume: 10 B}
    - {from: a, to: c, volume: 10 B}
    - {from: c, to: d, volume: 10 B}
    - {from: b, to: d, volume: 0 B}
placement: {policy: explicit, tasks: {a: m0, b: m1, c: m2, d: far}}
"""

RING = {
    "cluster": {
        "machines": [
            {
                "name": "m",
                "count": 8,
                "nic": {
                    "in": "400 Gbit/s",
                    "out": "400 Gbit/s",
                    "latency": {"out": "3.5 us"},
                },
            }
        ]
    },
    "job": {
        "system": "custom",
        "iterations": 15,
        "tasks": [{"name": f"t{i}", "kind": "rank", "time": "0 s"} for i in range(8)],
        "flows": [
            {
                "from": f"t{i}",
                "to": f"t{(i + 1) % 8}",
                "volume": f"{2**20 // 8} B",
                "lag": 1,
            }
            for i in range(8)
        ],
    },
    "placement": {
        "policy": "explicit",
        "tasks": {f"t{i}": f"m{i}" for i in range(8)},
    },
}


def racks(tmp_path: Path, text: str = RACKS) -> Experiment:
    file = tmp_path / "racks.yaml"
    file.write_text(text)
    return prepare(load(file))


def test_a_flow_pays_every_link_of_its_way(tmp_path: Path) -> None:
    """Out of a NIC and of a rack, into a rack and a NIC; within a rack the NICs."""
    problem = racks(tmp_path).problem

    expected = [2 + 1, 2 + 8 + 16 + 1, 2 + 0.25, 2 + 8 + 16 + 0.25]
    assert problem.latencies.tolist() == expected
    alone = replace(problem, placement=Placement((0, 0, 0, 0)))
    assert alone.latencies.tolist() == [0, 0, 0, 0]


def test_the_next_flow_of_an_edge_does_not_wait_for_the_landing(tmp_path: Path) -> None:
    """By hand: two flows of 1 s each follow one another, each lands 27 s later."""
    schedule = racks(tmp_path).simulate()

    assert schedule.flow_end[1].tolist() == pytest.approx([3, 5])
    assert schedule.task_start[2].tolist() == pytest.approx([30, 32])
    flow = schedule.flow_end[2]
    assert flow.tolist() == pytest.approx([32, 34])
    assert schedule.task_start[3].tolist() == pytest.approx([34.25, 36.25])
    landed = [flow["landed"] for flow in schedule.to_json()["flows"][2:4]]
    assert landed == pytest.approx([30, 32])
    # One without bytes takes its latency, too.
    assert schedule.flow_end[3].tolist() == schedule.flow_start[3].tolist()
    assert audit(schedule).passed


def test_a_ring_pays_its_latency_once_per_step() -> None:
    assert emu.simulate(emu.loads(json.dumps(RING))).makespan == pytest.approx(
        85.70016e-6, rel=1e-12
    )


def test_the_critical_path_names_what_was_on_its_way(tmp_path: Path) -> None:
    schedule = racks(tmp_path).simulate()
    chain = critical_path(schedule)
    sums = chain.sums(lambda link: link.cause)

    assert chain.seconds == pytest.approx(schedule.makespan)
    assert sums[Cause.LATENCY] == pytest.approx(27 + 2.25)
    assert all(link.port < 0 for link in chain.links if link.cause is Cause.LATENCY)


def test_bounds_hold_and_count_latencies(tmp_path: Path) -> None:
    experiment = racks(tmp_path)
    found = bounds(experiment.problem, experiment.realization)

    assert 29.25 < found.combined <= experiment.simulate().makespan
    assert experiment.simulate().makespan <= found.certificate


def test_a_task_that_starts_before_its_input_has_landed_is_found(
    tmp_path: Path,
) -> None:
    schedule = racks(tmp_path).simulate()
    early = schedule.task_start.copy()
    early[2] -= 0.5
    report = audit(replace(schedule, task_start=early))

    assert {one.constraint for one in report.violations} == {"(8)"}
    assert "before a->c[0] landed" in report.violations[0].sentence


def test_halved_latencies_are_the_scenario_with_halved_keys(tmp_path: Path) -> None:
    experiment = racks(tmp_path)
    cluster = experiment.problem.cluster.with_latencies(0.5)
    change = Change(
        "latency",
        "half of all latencies",
        replace(experiment.problem, cluster=cluster),
        experiment.realization,
        "oes",
        factor=0.5,
    )
    edit = ScenarioEdits(experiment.scenario).add_edit(change).edit
    assert edit is not None
    again = prepare(load(experiment.scenario, dict(edit)))

    halves = experiment.problem.latencies / 2
    np.testing.assert_allclose(again.problem.latencies, halves, rtol=1e-12)


def test_a_faster_nic_keeps_its_latency(tmp_path: Path) -> None:
    experiment = racks(tmp_path)
    ports = {*experiment.problem.links.of_machine(3)}
    names = tuple(sorted(ports))
    cluster = experiment.problem.cluster.with_capacities(ports, 2.0)
    problem = replace(experiment.problem, cluster=cluster)
    change = Change(
        "network", "NIC of far", problem, experiment.realization, "oes", names, 2.0
    )
    edit = ScenarioEdits(experiment.scenario).add_edit(change).edit
    assert edit is not None
    again = prepare(load(experiment.scenario, dict(edit))).problem

    assert again.latencies.tolist() == experiment.problem.latencies.tolist()
    assert again.cluster.machines[3].bandwidth_in == 20


def test_latencies_of_two_directions_are_scaled_each_by_itself() -> None:
    """A what-if states in which direction a machine waits how long."""
    nic = {"in": "1 MB/s", "out": "1 MB/s", "latency": {"in": "40 ms", "out": "8 ms"}}
    tasks = [
        {"name": "a", "time": "1 ms", "pin": "m0"},
        {"name": "b", "time": "1 ms", "pin": "m1"},
    ]
    content = {
        "name": "two-ways",
        "cluster": {"machines": [{"name": "m0", "nic": nic}, {"nic": nic}]},
        "job": {
            "system": "custom",
            "iterations": 2,
            "tasks": tasks,
            "flows": [{"from": "a", "to": "b", "volume": "1 kB"}],
        },
    }
    drawn = emu.loads(json.dumps(content))
    changes = [one.change for one in emu.explain(drawn).improvements]
    edits = [change.edit for change in changes if change.kind == "latency"]

    found = [emu.load(drawn, {**edit, "expect": None}) for edit in edits if edit]
    assert found
    for scenario in found:
        for machine in scenario.cluster.machines:
            latency = machine.nic.latency
            assert latency.inward == pytest.approx(5 * latency.outward)


def test_a_latency_longer_than_the_job_is_doubted(tmp_path: Path) -> None:
    short = RACKS.replace("16 s", "1 ms").replace("8 s", "1 ms")
    assert racks(tmp_path, short).remarks() == []
    (remark,) = racks(tmp_path).remarks()
    assert "longer than the whole job" in remark


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("latency: 250 ms", "latency: -1 ms", "nic.latency: a time cannot be negative"),
        ("latency: 250 ms", "latency: 5", "does not say its unit"),
        ("latency: 250 ms", "latency: {up: 1 s}", "unknown key 'up', known: in, out"),
        ("nic: {in: 10 B/s, out: 10 B/s, latency: 250 ms}", "nic: none, latency: 1 s",
         "machines[1].latency: a latency is one of a NIC"),
        ("  racks:", "  links: [{name: x, bandwidth: 1 B/s, latency: 1 s}]\n  racks:",
         "links[0].latency: no route crosses 'x'"),
        ("latency: 16 s", "latency: -16 s", "racks[1].latency: a time cannot be negat"),
        ("r0, machines: [m0, m1]", "r0, machines: [m0, m1, m2, far]",
         "racks[0].latency: no machine is outside the rack"),
        ("placement:", "events: [{at: 1 s, machine: far, latency: 1 s}]\nplacement:",
         "events[0].latency: an event changes no latency: state it in cluster"),
        ("placement:",
         "events: [{at: 1 s, machine: far, nic: {latency: 1 s}}]\nplacement:",
         "events[0].nic.latency: an event changes no latency: state it in cluster"),
    ],
)  # fmt: skip
def test_latencies_that_cannot_be_meant_are_refused(
    tmp_path: Path, before: str, after: str, said: str
) -> None:
    with pytest.raises(ScenarioError) as refused:
        racks(tmp_path, RACKS.replace(before, after))

    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("there", "back", "latency", "seconds"),
    [
        ("[x]", "[out, x]", "1 s", None),
        ("[x]", "[out, x]", "{in: 1 s}", None),
        ("[x, in]", "[out, x, in]", "{out: 1 s}", None),
        ("[x, in]", "[out, x, in]", "1 s", 3.0),  # one of its directions is of use
        ("[far out, x]", "[out, x]", "{out: 1 s}", 2.0),
    ],
)
def test_a_latency_of_a_nic_that_routes_go_around_is_refused(
    tmp_path: Path, there: str, back: str, latency: str, seconds: float | None
) -> None:
    routes = (
        "  links: [{name: x, bandwidth: 1 B/s}]\n  routes:\n"
        f"    - {{from: far, to: [m0, m1, m2], through: {there}}}\n"
        f"    - {{from: [m0, m1, m2], to: far, through: {back}}}\njob:"
    )
    text = RACKS.replace("latency: 250 ms", f"latency: {latency}")
    head, _, rest = text.partition("  racks:")
    text = f"{head}{routes}{rest.partition('job:')[2]}"
    if seconds is None:
        with pytest.raises(ScenarioError, match="no route crosses the NIC of far: rem"):
            racks(tmp_path, text)
    else:  # of c->d, from m2
        assert racks(tmp_path, text).problem.latencies[2] == seconds


@pytest.mark.parametrize("latency", [-1.0, float("inf"), float("nan")])
def test_machines_and_links_refuse_what_is_no_time(latency: float) -> None:
    with pytest.raises(ValueError, match="latency"):
        Machine("m", 1.0, 1.0, latency_out=latency)
    machines = tuple(Machine(f"m{m}", 1.0, 1.0) for m in range(2))
    link, route = Link("l", 1.0, latency=latency), Route((0,), (1,), ("l",))
    with pytest.raises(ValueError, match="latency"):
        _ = Cluster(machines, (link,), (route,)).links


def test_labs_delay_no_packets(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(
        "cluster: {machines: [{name: m, nic: {in: 1 Gbit/s, out: 1 Gbit/s, "
        "latency: 1 ms}}]}\nlab: {programs: [{name: p, on: [m], run: ls}]}\n"
    )
    errors = find_lab_errors(file)

    assert "nic.latency: a lab delays no packets" in str(errors[0])
