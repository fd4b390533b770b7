"""Keys that a file states and nothing of its job reads: sentences that name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.problem.fields.quantities import DEFAULT_DEVICE
from emu.scenario.workload_file import read_profile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emu.problem import Job
    from emu.scenario.scenario import Scenario

#: Names that a sentence has at most.
_NAMED = 3


def idle_keys(scenario: Scenario, job: Job) -> Iterator[str]:
    """Yield a sentence per kind of key of a scenario that changes nothing of its job.

    They are no errors: who tries variants leaves them in a file.
    """
    yield from _idle_devices(scenario)
    yield from _idle_speeds(scenario)
    yield from _idle_slots(scenario, job)
    yield from _idle_prices(scenario)
    yield from _idle_links(scenario)
    yield from _idle_rows(scenario, job)
    for *_, section in scenario.each_job():
        yield from section.idle_keys()


def _idle_devices(scenario: Scenario) -> Iterator[str]:
    """Yield devices of machines that no time or rate is stated for."""
    timed = {DEFAULT_DEVICE}
    for *_, section in scenario.each_job():
        tables = [times for *_, times in section.device_times()]
        if section.operation_rates is not None:
            tables += [rates for *_, rates in section.operation_rates.device_rates()]
        for table in tables:
            timed.update(table)

    machines = scenario.stated_cluster.machines
    stated = dict.fromkeys(machine.device for machine in machines if machine.device)
    idle = [device for device in stated if device not in timed]
    if idle:
        names = ", ".join(idle)
        yield (
            f"device {names}: no time or rate is stated for it, so that its machines "
            "take the default ones"
        )


def _idle_speeds(scenario: Scenario) -> Iterator[str]:
    """Yield speeds of machines that divide nothing, as all times are stated."""
    if scenario.profile is not None or scenario.emulation.compute == "real":
        return
    for *_, section in scenario.each_job():
        if section.goes_by_speed or section.measures_worker:
            return

    machines = scenario.stated_cluster.machines
    speeds = dict.fromkeys(machine.speed for machine in machines if machine.speed != 1)
    if speeds:
        words = ", ".join(f"{speed:g}" for speed in speeds)
        yield (
            f"speed {words} of machines changes nothing: it is of measured times, "
            "and these are stated; write device: WORD there, and times for it: "
            "{default: 1 s, WORD: 2 s}"
        )


def _idle_slots(scenario: Scenario, job: Job) -> Iterator[str]:
    """Yield pools of machines that no task takes a slot of."""
    taken = {task.takes for task in job.tasks}
    stated: dict[str, None] = {}
    for machine in scenario.stated_cluster.machines:
        stated.update(dict.fromkeys(machine.slots))
    idle = [pool for pool in stated if pool not in taken]
    if idle:
        names = ", ".join(idle)
        yield f"slots of {names} limit nothing: no task takes one"


def _idle_prices(scenario: Scenario) -> Iterator[str]:
    """Yield prices of functions where the job has none, or nothing has a cost."""
    if "prices" not in scenario.model_fields_set:
        return
    has_functions = any(section.pays_functions for *_, section in scenario.each_job())
    machines = scenario.stated_cluster.machines
    has_prices = any(machine.price is not None for machine in machines)
    if not has_functions:
        yield "prices are of functions, and the job has none: they change nothing"
    elif not has_prices:
        yield (
            "prices change nothing where no machine has one: write for example "
            "price: 0.34 $/h"
        )


def _idle_links(scenario: Scenario) -> Iterator[str]:
    """Yield links that no route crosses."""
    cluster = scenario.stated_cluster
    route_links = {name for route in cluster.routes for name in route.through}
    idle = [link.name for link in cluster.links if link.name not in route_links]
    if idle:
        names = _name_some(idle)
        yield f"link {names}: no route crosses it, so that it limits nothing"


def _idle_rows(scenario: Scenario, job: Job) -> Iterator[str]:
    """Yield tasks and edges of a profile that the job does not have."""
    if scenario.profile is None:
        return
    profile = read_profile(scenario.profile)
    idle = profile.foreign_names(job)
    if idle:
        names = _name_some(idle)
        yield f"profile: the job has no {names}: what it states of them is unused"


def _name_some(names: list[str]) -> str:
    """Return the first of some names, and how many there are beyond."""
    words = ", ".join(names[:_NAMED])
    unnamed = len(names) - _NAMED
    return f"{words} and {unnamed} more" if unnamed > 0 else words
