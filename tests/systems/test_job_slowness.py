"""Factors of times on every machine, by its speed and by its devices."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from emu.problem import Job, Task
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.fields.quantities import DEFAULT_DEVICE
from emu.systems.slowness import with_slowness

CLUSTER = ClusterSection.model_validate(
    {
        "machines": [
            {"name": "a", "nic": "1 Gbit/s", "speed": 2.0, "device": "quick"},
            {"name": "b", "nic": "2 Gbit/s"},
            {"name": "c", "nic": "3 Gbit/s", "speed": 0.5, "device": "slow"},
            {"name": "d", "nic": "4 Gbit/s", "device": "unstated"},
        ]
    }
)
JOB = Job((Task("s0", "sampler"), Task("worker", "worker")), (), 1)
#: Seconds of a worker by device, of which the default one takes four.
TIMES = {DEFAULT_DEVICE: 4.0, "quick": 1.0, "slow": 6.0}
#: Factors by the machines' speeds, and by their devices.
BY_SPEED = {"a": 0.5, "c": 2.0}
BY_DEVICE = {"a": 0.25, "c": 1.5}


def factors(*, profiled: bool = False, **keys: Any) -> list[Any]:
    section = SimpleNamespace(
        **{
            "goes_by_speed": False,
            "measures_worker": False,
            "trains": True,
            "device_times": list,
            **keys,
        }
    )
    job = with_slowness(JOB, section, CLUSTER, profiled=profiled)  # type: ignore[arg-type]
    return [task.slowness for task in job.tasks]


def by_device(name: str) -> Any:
    return lambda: [(("job", "times", name), name, TIMES)]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, [{}, {}]),
        ({"profiled": True}, [BY_SPEED, BY_SPEED]),
        ({"goes_by_speed": True, "trains": False}, [BY_SPEED, BY_SPEED]),
        ({"measures_worker": True}, [{}, BY_SPEED]),
        # Stated times of a training are by kind, others by the names of tasks.
        ({"device_times": by_device("sampler")}, [BY_DEVICE, {}]),
        ({"device_times": by_device("s0")}, [{}, {}]),
        ({"device_times": by_device("s0"), "trains": False}, [BY_DEVICE, {}]),
        ({"device_times": by_device("sampler"), "trains": False}, [{}, {}]),
        # A profile is of this computer, whatever a file states by device.
        ({"device_times": by_device("sampler"), "profiled": True}, [BY_SPEED] * 2),
    ],
)
def test_times_go_by_speeds_where_they_were_measured_and_by_devices_else(
    keys: dict[str, Any], expected: list[Any]
) -> None:
    assert factors(**keys) == expected


def test_on_equal_machines_a_job_stays_the_same_object() -> None:
    machines = [{"name": name, "nic": "1 Gbit/s"} for name in "ab"]
    cluster = ClusterSection.model_validate({"machines": machines})
    section = SimpleNamespace(
        goes_by_speed=True, measures_worker=True, device_times=list
    )
    job = with_slowness(JOB, section, cluster, profiled=False)  # type: ignore[arg-type]

    assert job is JOB
