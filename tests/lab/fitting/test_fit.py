"""Fits of what crossed when a known job ran: its times and volumes come out again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emu
from emu.lab.fitting.conversations import Ring, Unfittable
from emu.lab.fitting.fitted_job import write_fit
from emu.lab.fitting.iterations import (
    Template,
    _ring_seconds,
    fit_iterations,
    mean_iterations,
)
from emu.prediction.analysis.traffic import Traffic
from emu.problem import Schedule
from emu.scenario.scenario_file import loads
from tests.lab.fitting.crossed import crossed

ITERATIONS = 6
MACHINES = 3
PROGRAMS = ("server", "trainer")
SERVICE = 0.002
SUM = 9000


def job(ask: list[float], add: float, answers: list[int]) -> dict[str, Any]:
    """Return trainers that ask all other machines, then sum; volumes by iteration."""
    tasks: list[dict[str, Any]] = []
    flows: list[dict[str, Any]] = []
    where = {}
    for i in range(MACHINES):
        for name, times in (("0", ask[i]), ("sum", add), ("send", 0)):
            tasks.append({"name": f"trainer-m{i}.{name}", "time": f"{times} s"})
            where[f"trainer-m{i}.{name}"] = f"m{i}"
        after = f"trainer-m{(i - 1) % MACHINES}.sum"  # the next of the ring is ready
        for source, to, size in (
            ("0", "sum", 0),
            ("sum", "send", 0),
            (after, "send", 48),
        ):
            ends = (source if size else f"trainer-m{i}.{source}", f"trainer-m{i}.{to}")
            flows.append({"from": ends[0], "to": ends[1], "volume": f"{size} B"})
        for j in {*range(MACHINES)} - {i}:
            server = f"server-m{j}.{i}"
            tasks.append({"name": server, "time": f"{SERVICE} s", "slot": "server"})
            where[server] = f"m{j}"
            volumes = [f"{size + 1000 * j} B" for size in answers]
            flows += [
                {"from": f"trainer-m{i}.0", "to": server, "volume": "200 B"},
                {"from": server, "to": f"trainer-m{i}.sum", "volume": volumes},
            ]
    ring = [f"trainer-m{i}" for i in (0, 2, 1)]
    reduction = {
        "among": [f"{name}.send" for name in ring],
        "volume": f"{SUM} B",
        "then": [f"{name}.0" for name in ring],
        "lag": 1,
    }
    machine = {"count": MACHINES, "nic": "10 Mbit/s", "slots": {"server": 1}}
    return {
        "cluster": {"machines": [machine]},
        "job": {
            "system": "custom",
            "iterations": len(answers),
            "tasks": tasks,
            "flows": flows,
            "collectives": [{"allreduce": reduction}],
            "credit_window": "unlimited",
        },
        "placement": {"policy": "explicit", "tasks": where},
        "schedule": {"policy": "maxmin"},
    }


def simulated(document: dict[str, Any], **nics: object) -> Schedule:
    overrides = {f"cluster.machines[{at[1:]}].nic": nic for at, nic in nics.items()}
    return emu.simulate(loads(json.dumps(document), overrides, name="drawn.json"))


def traffic_of(document: dict[str, Any]) -> Traffic:
    return crossed(simulated(document), PROGRAMS)


KNOWN = job([0.004, 0.006, 0.005], 0.010, [20000, 30000, 25000, 8000, 40000, 31000])


def test_times_and_volumes_come_out_again() -> None:
    found = fit_iterations(traffic_of(KNOWN))

    assert found.ring == ((0, 1), (2, 1), (1, 1))
    assert (found.first, found.count) == (1, ITERATIONS - 1)
    assert found.volume == pytest.approx(SUM, rel=1e-3)
    for (machine, _), times in found.stages.items():
        assert times[0] == pytest.approx([0.004, 0.006, 0.005][machine], abs=1e-6)
        assert times[1] == pytest.approx(0.010, abs=1e-6)
    assert len(found.asked) == MACHINES * (MACHINES - 1)
    for (_, turn, server), (requests, answers, times) in found.asked.items():
        assert turn == 0
        expected = np.array([30000, 25000, 8000, 40000, 31000]) + 1000 * server[0]
        assert answers.tolist() == expected.tolist()
        assert requests.tolist() == [200] * found.count
        assert times == pytest.approx(SERVICE, abs=1e-6)


def test_the_fitted_job_takes_as_long_there_and_on_other_nics() -> None:
    traffic = traffic_of(KNOWN)
    document = write_fit("fitted", fit_iterations(traffic), traffic)
    document["job"]["tasks"].reverse()  # the order in the file says nothing

    for nics in (
        {},
        {"m0": "4 Mbit/s"},
        {"m1": {"out": "50 Mbit/s", "in": "3 Mbit/s"}},
    ):
        whole = simulated(expanded(KNOWN), **nics)
        sums = [
            number
            for number, task in enumerate(whole.problem.job.tasks)
            if ".allreduce" in task.name
        ]
        first, last = whole.task_end[sums].max(0)[[0, -1]]
        again = simulated(document, **nics).makespan
        assert again == pytest.approx(last - first, rel=0.01)


def test_servers_keep_their_slot_where_they_are_moved() -> None:
    """Tasks on each other's machines take as long as exchanged NICs."""
    traffic = traffic_of(KNOWN)
    document = write_fit("fitted", fit_iterations(traffic), traffic)
    for task in document["job"]["tasks"]:
        if "slot" in task:
            task["time"] = "20 ms"
    turned = {"m0": "m1", "m1": "m2", "m2": "m0"}
    where = document["placement"]["tasks"].items()
    moved = {task: turned[machine] for task, machine in where}
    elsewhere = document | {"placement": {"policy": "explicit", "tasks": moved}}

    there = simulated(elsewhere, m0="3 Mbit/s").makespan

    assert there == pytest.approx(simulated(document, m2="3 Mbit/s").makespan)


def sums_alone(document: dict[str, Any]) -> dict[str, Any]:
    """Return the scenario without the servers."""
    job = document["job"]
    tasks = [task for task in job["tasks"] if not task["name"].startswith("server")]
    flows = [flow for flow in job["flows"] if "server" not in flow["from"] + flow["to"]]
    names = {task["name"] for task in tasks}
    placed = document["placement"]["tasks"].items()
    where = {name: machine for name, machine in placed if name in names}
    return document | {
        "job": job | {"tasks": tasks, "flows": flows},
        "placement": {"policy": "explicit", "tasks": where},
    }


@pytest.mark.parametrize(
    ("document", "template", "other"),
    [
        (KNOWN, Template.DISTDGL, Template.ALLREDUCE),
        (sums_alone(KNOWN), Template.ALLREDUCE, Template.DISTDGL),
    ],
)
def test_a_template_is_the_mean_iteration_as_often_as_one_likes(
    document: dict[str, Any], template: Template, other: Template
) -> None:
    traffic = traffic_of(document)
    found = fit_iterations(traffic)
    mean = mean_iterations(found, template)
    fitted = write_fit("fitted", mean, traffic)
    seconds = simulated(fitted).makespan / found.count

    assert seconds == pytest.approx(found.seconds, rel=0.05)
    assert not any(isinstance(task["time"], list) for task in fitted["job"]["tasks"])
    volumes = {key: answers[0] for key, (_, answers, _) in mean.asked.items()}
    assert volumes == {
        key: round(
            float(np.mean([30000, 25000, 8000, 40000, 31000])) + 1000 * key[2][0]
        )
        for key in found.asked
    }
    many = fitted | {"job": fitted["job"] | {"iterations": 10 * found.count}}
    longer = simulated(many).makespan / (10 * found.count)
    assert longer == pytest.approx(seconds, rel=0.02)
    with pytest.raises(Unfittable, match=f"template {other}.*{template}"):
        mean_iterations(found, other)


def expanded(document: dict[str, Any]) -> dict[str, Any]:
    """Return the scenario with its machines one by one, so that NICs can be changed."""
    (machine,) = document["cluster"]["machines"]
    machines = [{**machine, "count": 1} for _ in range(MACHINES)]
    return document | {"cluster": {"machines": machines}}


@settings(max_examples=5, deadline=None)
@given(
    st.lists(st.floats(0.001, 0.05), min_size=MACHINES, max_size=MACHINES),
    st.floats(0.001, 0.05),
    st.lists(st.integers(1000, 60000), min_size=5, max_size=5),
)
def test_times_of_any_such_job_come_out_again(
    ask: list[float], add: float, answers: list[int]
) -> None:
    found = fit_iterations(traffic_of(job(ask, add, answers)))

    for (machine, _), times in found.stages.items():
        assert times[0] == pytest.approx(ask[machine], abs=1e-6)
        assert times[1] == pytest.approx(add, abs=1e-6)


def test_what_is_skipped_is_left_out() -> None:
    traffic = traffic_of(KNOWN)

    whole, rest = fit_iterations(traffic), fit_iterations(traffic, skip=2)

    assert (rest.first, rest.count) == (2, ITERATIONS - 2)
    assert rest.ends.tolist() == whole.ends[1:].tolist()
    with pytest.raises(Unfittable, match=r"1 iterations .* needs 4"):
        fit_iterations(traffic, skip=ITERATIONS - 1)
    with pytest.raises(Unfittable, match=r"^0 iterations .* needs 4"):
        fit_iterations(traffic, skip=1000)


def test_an_all_reduce_alone_is_fitted() -> None:
    document = json.loads(json.dumps(KNOWN))
    document["job"]["tasks"] = [
        task for task in document["job"]["tasks"] if task["name"].startswith("trainer")
    ]
    document["job"]["flows"] = [
        flow
        for flow in document["job"]["flows"]
        if not (flow["from"] + flow["to"]).count("server")
    ]
    for name in list(document["placement"]["tasks"]):
        if name.startswith("server"):
            del document["placement"]["tasks"][name]
    traffic = traffic_of(document)
    found = fit_iterations(traffic)

    assert found.count == ITERATIONS - 1
    assert found.volume == pytest.approx(SUM, rel=1e-3)
    assert {times.shape for times in found.stages.values()} == {(1, found.count)}
    assert found.stages[1, 1][0] == pytest.approx(0.016, abs=1e-6)
    again = simulated(write_fit("fitted", found, traffic)).makespan
    assert again == pytest.approx(found.seconds * found.count, rel=0.02)


def test_the_last_packets_of_a_sum_may_come_late() -> None:
    """Behind a loss they come after answers, or with the next sum."""
    traffic = traffic_of(KNOWN)
    on_time = fit_iterations(traffic)
    rows = traffic.packets.copy()
    trainers = rows["source_port"] // 10 == 111
    own = np.flatnonzero(trainers & (rows["source"] == 0) & (rows["destination"] == 2))
    per_sum = len(own) // ITERATIONS
    answers = rows["time"][(rows["destination"] == 0) & (rows["bytes"] > 1000)]
    for number, of_answers in ((1, -4), (2, -1), (3, -1)):
        following = (number + 1) * per_sum
        before = answers[answers < rows["time"][own[following]]]
        behind = own[following - per_sum // 8 : following]
        rows["time"][behind] = before[of_answers] + 1e-6
    late = replace(traffic, packets=rows[np.argsort(rows["time"], kind="stable")])

    found = fit_iterations(late)

    assert (found.first, found.count) == (on_time.first, on_time.count)
    assert found.volume == pytest.approx(on_time.volume, rel=1e-3)


def test_what_is_sent_again_is_no_further_sum() -> None:
    traffic = traffic_of(KNOWN)
    once = fit_iterations(traffic)
    rows = traffic.packets.copy()
    trainers = rows["source_port"] // 10 == 111
    hop = np.flatnonzero(trainers & (rows["source"] == 2))
    rows["bytes"][hop] = rows["bytes"][hop] * np.resize([1.0, 1.19, 1.12], len(hop))

    found = fit_iterations(replace(traffic, packets=rows))

    assert (found.first, found.count) == (once.first, once.count)
    assert found.volume == pytest.approx(once.volume, rel=0.01)


def without(traffic: Traffic, which: Any) -> Traffic:
    return replace(traffic, packets=traffic.packets[~which])


def test_what_cannot_be_fitted_is_said() -> None:
    traffic = traffic_of(KNOWN)
    port = traffic.packets["source_port"]
    everything = np.ones(len(port), bool)

    with pytest.raises(Unfittable, match="nothing was sent"):
        fit_iterations(without(traffic, everything))
    empty = traffic.packets.copy()
    empty["bytes"] = 0
    with pytest.raises(Unfittable, match="nothing was sent"):
        fit_iterations(replace(traffic, packets=empty))
    with pytest.raises(Unfittable, match="no all-reduce round a ring"):
        fit_iterations(without(traffic, port // 10 == 111))
    with pytest.raises(Unfittable, match=r"% of the bytes .* no program"):
        fit_iterations(replace(traffic, owners=traffic.owners[:3]))
    late = (traffic.packets["time"] > 0.2) & (traffic.packets["source"] == 1)
    with pytest.raises(Unfittable, match="to 6 all-reduces"):
        fit_iterations(without(traffic, late & (port // 10 == 111)))


def test_machines_of_a_fit_have_the_nics_of_the_lab_each_way() -> None:
    nics = np.array([[1e6, 2e6, 3e6], [4e6, 5e6, 6e6]])
    traffic = replace(traffic_of(KNOWN), nics=nics)
    machines = write_fit("n", fit_iterations(traffic), traffic)["cluster"]["machines"]

    assert [machine["nic"] for machine in machines] == [
        {"out": "1000000 B/s", "in": "4000000 B/s"},
        {"out": "2000000 B/s", "in": "5000000 B/s"},
        {"out": "3000000 B/s", "in": "6000000 B/s"},
    ]


def test_machines_of_a_fit_share_nothing_that_is_edited() -> None:
    """YAML would write one mapping that several machines have as an alias."""
    traffic = traffic_of(KNOWN)
    machines = write_fit("n", fit_iterations(traffic), traffic)["cluster"]["machines"]
    first, *others = machines
    before = [dict(machine["slots"]) for machine in others]

    assert first["slots"] == {"server-m0": 1, "server-m1": 1, "server-m2": 1}
    assert [machine["seat"] for machine in machines] == [1, 1, 1]
    first["slots"].clear()

    assert [machine["slots"] for machine in others] == before


@pytest.mark.parametrize("slow", [(0, 1), (1, 0)], ids=["out of m1", "into m0"])
def test_the_slowest_nic_of_the_ring_tells_how_long_an_all_reduce_is(
    slow: tuple[int, int],
) -> None:
    """Two processes send each other half of 100 B twice; m2 is not of the ring."""
    nics = np.array([[40.0, 40.0, 1.0], [40.0, 40.0, 1.0]])
    nics[slow] = 20.0
    ring = Ring(((0, 0), (1, 0)), (), ())
    assert _ring_seconds(ring, 100.0, nics) == pytest.approx(100.0 / 20.0)
