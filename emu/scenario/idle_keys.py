"""Keys that a file states and nothing of its job reads: sentences that name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.prediction.placement.place import SEARCHES
from emu.problem.fields.quantities import DEFAULT_DEVICE
from emu.scenario.workload_file import read_profile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emu.problem import Job, Problem
    from emu.problem.fields.section import Section
    from emu.scenario.run_sections import EmulationSection
    from emu.scenario.scenario import Scenario

#: Names that a sentence has at most.
_NAMED = 3
#: Keys of ``placement`` that searches read, and those that the paper's alone does.
_OF_SEARCHES = ("iterations", "simulated_iterations")
_OF_ETP = ("beta", "beta_unit", "tolerance")
#: Keys of ``emulation`` that NICs of the kernel have, and trials of a time scale.
_OF_KERNEL = ("sharing", "max_nic_error")
_OF_TRIALS = ("max_late_flows", "trial_budget")


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
    yield from _idle_searches(scenario)
    yield from _idle_emulation(scenario.emulation)
    yield from _idle_shares(scenario)
    yield from _idle_seeds(scenario)
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


def events_elsewhere(scenario: Scenario, problem: Problem) -> Iterator[str]:
    """Yield a sentence per change of a machine on which no task stands."""
    homes = set(problem.machine_of_task.values())
    idle_machines = set(scenario.stated_cluster.names) - homes
    for position, event in enumerate(scenario.events):
        # A link has no name of a machine.
        for name in (event.machine, event.cut, event.slow, event.pause):
            if name in idle_machines:
                yield (
                    f"events[{position}]: no task stands on {name}: it changes nothing"
                )


def _idle_searches(scenario: Scenario) -> Iterator[str]:
    """Yield keys of searches where a placement is by a rule that looks for none."""
    sections = [scenario.placement, *(job.placement for job in scenario.jobs)]
    for section in sections:
        if section.policy != "etp":
            keys = _set_keys(section, _OF_ETP)
            yield from _idle("placement", keys, "policy: etp", section.policy)
        if section.policy not in SEARCHES:
            keys = _set_keys(section, _OF_SEARCHES)
            names = " or ".join(sorted(SEARCHES))
            yield from _idle("placement", keys, f"policy: {names}", section.policy)


def _idle_emulation(emulation: EmulationSection) -> Iterator[str]:
    """Yield keys of kernel NICs and of trials where a run has neither."""
    if emulation.network != "kernel":
        keys = _set_keys(emulation, _OF_KERNEL)
        yield from _idle("emulation", keys, "network: kernel", emulation.network)
    if emulation.time_scale != "auto":
        keys = _set_keys(emulation, _OF_TRIALS)
        scale = f"{emulation.time_scale:g}"
        yield from _idle("emulation", keys, "time_scale: auto", scale)


def _idle_shares(scenario: Scenario) -> Iterator[str]:
    """Yield the division of ports among jobs where there is one of them."""
    if scenario.schedule.share == "job" and len(scenario.each_job()) == 1:
        yield "schedule: share changes nothing: of several jobs, found one"


def _idle_seeds(scenario: Scenario) -> Iterator[str]:
    """Yield the seed of failures where nothing fails."""
    failures = scenario.failures
    if failures is None or failures.seed is None:
        return
    if failures.machine is None and failures.link is None:
        yield "failures: seed changes nothing: of machine or link, found none"


def _set_keys(section: Section, keys: Sequence[str]) -> list[str]:
    """Return those of some keys that are not as by default."""
    fields = type(section).model_fields
    return [key for key in keys if getattr(section, key) != fields[key].default]


def _idle(section: str, keys: Sequence[str], reader: str, found: str) -> Iterator[str]:
    """Yield a sentence on keys of a section that are of what it does not state."""
    if keys:
        names = ", ".join(keys)
        verb = "changes" if len(keys) == 1 else "change"
        yield f"{section}: {names} {verb} nothing: of {reader}, found {found}"
