"""Pins of processes, by the names of their tasks or their own."""

from __future__ import annotations

import pytest

from emu.problem import Job, Task
from emu.scenario import build_job
from emu.scenario.pins import pin
from emu.scenario.scenario_file import loads
from emu.scenario.standing import _last_demanding

TEXT = """
cluster: {machines: [{name: m, count: 2, nic: 1 B/s}]}
job:
  system: custom
  iterations: 1
  tasks:
    - {name: a, time: 1 s, process: p}
    - {name: b, time: 1 s, process: p}
    - {name: c, time: 1 s, pin: m1}
"""


@pytest.mark.parametrize("name", ["a", "b", "p"])
def test_a_process_is_pinned_by_any_of_its_names(name: str) -> None:
    job = pin(build_job(loads(TEXT)), {name: "m0"})
    assert [task.pinned for task in job.tasks] == ["m0", "m0", "m1"]


@pytest.mark.parametrize(
    ("stated", "problem"),
    [
        ({"a": "m0", "b": "m1"}, "b must stand on m0, not m1"),
        ({"c": "m0"}, "c must stand on m1, not m0"),
    ],
)
def test_a_process_stands_on_one_machine(stated: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        pin(build_job(loads(TEXT)), stated)


def test_what_was_too_much_is_the_last_task_there_that_demands_it() -> None:
    """A task behind it demands nothing of it, and another stands elsewhere."""
    tasks = (
        Task("a", "x", demands={"cpu": 2.0}, pinned="m0"),
        Task("b", "x", demands={"cpu": 1.0}, pinned="m0"),
        Task("c", "x", demands={"cpu": 0.0, "memory": 1.0}, pinned="m0"),
        Task("d", "x", demands={"cpu": 4.0}, pinned="m1"),
        Task("e", "x", demands={"cpu": 4.0}),
    )
    job = Job(tasks, (), 1)
    found = [
        _last_demanding(job, machine, resource).name
        for machine, resource in (("m0", "cpu"), ("m0", "memory"), ("m1", "cpu"))
    ]
    assert found == ["b", "c", "d"]
