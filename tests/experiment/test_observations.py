"""Records of a run by hand: its clocks and waits, and the bytes of others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.emulation.shaping import EmulationSettings
from emu.emulation.wire.frame_layout import CONNECTION_ROWS, FRAME_ROWS, WAIT_ROWS
from emu.experiment.observations import clock_offset, foreign_rates, observe
from emu.problem import Cluster, Edge, Job, Machine, Placement, Problem, Task

#: Two edges from m0, on which t0 runs, to m1; one back; one within m1.
EDGES = (Edge(0, 1), Edge(0, 2), Edge(1, 0, lag=1), Edge(1, 2))
PAYLOADS = (4_000_000, 1_000_000, 300_000, 9_000_000)


def problem_of(speeds: tuple[float, float] = (1.0, 1.0)) -> Problem:
    machines = [
        Machine(f"m{number}", 1e6, 1e6, speed=speed)
        for number, speed in enumerate(speeds)
    ]
    tasks = tuple(Task(f"t{number}", "task") for number in range(3))
    return Problem(Cluster(tuple(machines)), Job(tasks, EDGES, 2), Placement((0, 1, 1)))


def run_of(**changes: Any) -> Any:
    """Return a run of which every edge carried its payload in one frame."""
    received = np.zeros(len(EDGES), FRAME_ROWS)
    received["edge"] = range(len(EDGES))
    received["bytes"] = PAYLOADS
    records = {
        "schedule": SimpleNamespace(problem=problem_of()),
        "received": received,
        "sent": np.zeros(0, FRAME_ROWS),
        "connections": np.zeros(0, CONNECTION_ROWS),
        "waits": np.zeros(0, WAIT_ROWS),
        "hosts": [],
        "statistics": {},
        "cpu": np.zeros((3, 2)),
        "began": np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
        "turns": np.array([[7.0, 8.0, 9.0, 10.0]]),
    }
    return SimpleNamespace(**{**records, **changes})


def prepared(**changes: Any) -> Any:
    """Return one of half a real byte for a byte, and 4 wall seconds for a second."""
    settings = {"byte_scale": 0.5, "time_scale": 4.0, **changes}
    return SimpleNamespace(settings=EmulationSettings(**settings))


@pytest.mark.parametrize(
    ("answered", "offset"),
    [
        ((10.0, 40.0), 0.0),  # it says 12 to 36 wall seconds: within
        ((10.0, 33.0), 3.0),  # it answered after its answer came
        ((13.5, 40.0), -1.5),  # it was asked before the question left
        ((13.5, 33.0), 3.0),
    ],
)
def test_a_clock_is_off_by_what_does_not_fit_between_question_and_answer(
    answered: tuple[float, float], offset: float
) -> None:
    figures = {"clock": [3.0, 9.0], "answered": answered}

    assert clock_offset(figures, 4.0) == offset
    assert clock_offset({"clock": [3.0, 9.0]}, 4.0) == 0.0
    assert clock_offset({"answered": answered}, 4.0) == 0.0


def test_bytes_of_others_are_those_beyond_all_that_a_run_can_have_sent() -> None:
    """Payload of 5 MB goes from m0 to m1 and 0.3 MB back; m1 sends itself nothing.

    With headers they are 5.5 and 0.33 MB at most. Acknowledgements of the other way
    add 0.021 and 0.35 MB. Four connections add 80,000 bytes to either way, and five
    packets that were sent again add 7,570.
    """
    there = 5_608_570
    back = 767_570
    hosts = [
        {
            "name": "m0",
            "traffic": {"out_bytes": there + 800, "in_bytes": back, "seconds": 8.0},
            "tcp": {"retransmitted": 3},
        },
        {
            "name": "m1",
            "traffic": {
                "out_bytes": back + 60,
                "in_bytes": there + 50,
                "seconds": 2.0,
            },
            "tcp": {"retransmitted": 2},
        },
        {"name": "elsewhere", "traffic": {}, "tcp": {"retransmitted": 0}},
    ]
    rates = foreign_rates(prepared(), run_of(hosts=hosts))

    # 800 B in 8 s, 50 and 60 B in 2 s; an emulated B/s is 0.125 real ones.
    assert rates == {
        "m0 out": pytest.approx(800.0, rel=1e-6),
        "m1 in": pytest.approx(200.0, rel=1e-6),
        "m1 out": pytest.approx(240.0, rel=1e-6),
    }


def test_records_are_those_of_the_run_by_process_edge_and_link() -> None:
    statistics = {}
    for number, blocks in enumerate((0.0, 5.0)):
        statistics[f"p{number}"] = {
            "host_metrics": {"waited": 0.25 + number, "disk": 0.75, "blocks": blocks},
            "clock": [1.0, 2.0],
            "answered": [0.0, 7.0],
            "flows": np.array([number, 1, 2, 3, 4, 5.0]).tobytes(),
        }
    sent = np.zeros(2, FRAME_ROWS)
    sent["edge"], sent["iteration"] = (3, 1), (0, 1)
    sent["first"], sent["last"] = (1.5, 2.5), (8.0, 9.0)
    hosts = [
        {"name": "m0", "nic": {"out": 0.5, "in": 0.25}, "tcp": {}},
        {"name": "m1", "nic": {"out": 0.1}},  # of another kind
        {"name": "m2", "tcp": {}},
    ]
    run = run_of(statistics=statistics, sent=sent, hosts=hosts)
    found = observe(prepared(compute="padded"), run)

    # Disks count for who read or wrote them; a second takes 4 on the wall.
    first, second = found.processes["p0"], found.processes["p1"]
    assert (first.core, first.disk, first.clock) == (0.25, 0.0, 1.0)
    assert (second.core, second.disk, second.clock) == (1.25, 0.75, 1.0)
    assert found.first == {(3, 0): 1.5, (1, 1): 2.5}
    assert [*found.sends] == [(0, 1), (1, 1)]
    assert found.nics == {"m0 out": 0.5, "m0 in": 0.25}
    assert (found.time_scale, found.byte_scale) == (4.0, 0.5)
    assert (found.measured, found.foreign) == (None, {})
    assert found.began is run.began
    assert found.turns is run.turns


def test_measured_work_takes_its_cpu_time_over_the_speed_of_its_machine() -> None:
    """A task that never ran took nothing."""
    problem = problem_of(speeds=(2.0, 0.5))
    cpu = np.array([[1.0, 3.0], [2.0, np.nan], [4.0, 6.0]])
    run = run_of(schedule=SimpleNamespace(problem=problem), cpu=cpu)
    found = observe(prepared(compute="real"), run)

    assert found.measured is not None
    assert found.measured.tolist() == [[0.5, 1.5], [4.0, 0.0], [8.0, 12.0]]
