"""Sets of machines that are worth a full search, and words on those that were taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emu.problem import Realization
from emu.scenario import build_job, machine_choice
from emu.scenario.machine_choice import machines_words, on_machines, promising
from tests.scenario.test_machine_choice import content, loads

ALL = ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        # All first where they may be the best, then the two nearest of the others.
        ({ALL: 12.5, ("a",): 10.0, ("b",): 10.4}, [ALL, ("a",), ("b",)]),
        ({ALL: 12.6, ("a",): 10.0, ("b",): 10.4}, [("a",), ("b",)]),
        ({ALL: 99.0, ("a",): 10.0, ("b",): 10.5}, [("a",), ("b",)]),
        ({ALL: 99.0, ("a",): 10.0, ("b",): 10.6}, [("a",)]),
        (
            {ALL: 99.0, ("c",): 10.2, ("a",): 10.0, ("d",): 10.3, ("b",): 10.1},
            [("a",), ("b",)],
        ),
        # Of equal times the fewest machines.
        ({ALL: 99.0, ("a", "b"): 10.0, ("c", "d", "b"): 10.0, ("d",): 10.0},
         [("d",), ("a", "b")]),
        ({ALL: 10.0, ("a",): 10.2}, [ALL, ("a",)]),
        ({ALL: 10.0, ("a",): 20.0}, [ALL]),
        ({("a",): 10.0}, [("a",)]),
        ({}, [ALL]),
    ],
)  # fmt: skip
def test_sets_near_the_best_are_searched_in_full(
    monkeypatch: pytest.MonkeyPatch, times: dict[Any, float], expected: list[Any]
) -> None:
    machines = [{"name": name, "nic": "10 Gbit/s"} for name in ALL]
    scenario = loads(content(machines))
    job = build_job(scenario)
    monkeypatch.setattr(machine_choice, "_short_searches", lambda **_: times)
    run = Realization(np.zeros((len(job.tasks), 6)), np.zeros((len(job.edges), 6)))
    found = promising(scenario, job, scenario.to_cluster(), run)
    assert [one.job.machines or ALL for one in found] == expected


def test_sets_whose_devices_cannot_hold_it_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A device of 1 kB holds no model, and with it no batch."""
    machines = [
        {"name": name, "nic": "10 Gbit/s", "gpu_memory": memory}
        for name, memory in (("a", "1 kB"), ("b", "8 GB"), ("c", "1 kB"))
    ]
    scenario = loads(content(machines))
    job = build_job(scenario)
    times = {("a",): 1.0, ("b",): 1.01}
    monkeypatch.setattr(machine_choice, "_short_searches", lambda **_: times)
    run = Realization(np.zeros((len(job.tasks), 6)), np.zeros((len(job.edges), 6)))
    found = promising(scenario, job, scenario.to_cluster(), run)
    assert [one.job.machines for one in found] == [("b",)]


@pytest.mark.parametrize(
    ("changes", "is_choice"),
    [
        ({}, True),
        ({"placement.policy": "ifs"}, False),
        ({"job.machines": ["a", "b"]}, False),
        ({"profile": "p.json"}, False),
    ],
)
def test_machines_are_a_choice_where_best_places_a_job_without_a_profile(
    changes: dict[str, Any], *, is_choice: bool
) -> None:
    machines = [{"name": name, "nic": "10 Gbit/s"} for name in ALL]
    scenario = loads(content(machines), changes)
    assert (on_machines(scenario, ("a", "c")) is not None) is is_choice


@pytest.mark.parametrize(
    ("names", "count", "words"),
    [
        (["a"], 4, "on a alone"),
        (["a"], 2, "on a alone"),
        (["a"], 1, "on a"),
        (["a", "b"], 2, "on all 2 machines"),
        (["a", "b"], 3, "on 2 of 3 machines: a, b"),
        ([*"abcdefgh"], 9, "on 8 of 9 machines: a, b, c, d, e, f, g, h"),
        ([*"abcdefghi"], 10, "on 9 of 10 machines: a, b, c, d, e, f, g, h and 1 more"),
    ],
)
def test_words_on_where_tasks_stand(names: list[str], count: int, words: str) -> None:
    assert machines_words({"machines": names, "machines_in_all": count}) == words


def test_older_results_say_nothing_of_machines() -> None:
    assert machines_words({}) == ""
