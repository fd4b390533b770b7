"""Check keys that are right each by itself against one another."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeAlias

from emu.errors import DataError
from emu.prediction.scheduling import RATE_POLICIES
from emu.problem import Job
from emu.problem.fields import cluster_section
from emu.problem.fields.section import Resources, Trail
from emu.problem.fields.suggestion import nearest
from emu.problem.links import ImpossibleRoute, MissingRoute
from emu.problem.workloads import CHECKPOINT
from emu.scenario import events_section
from emu.scenario.document import Data
from emu.scenario.error_messages import LATENCY_OF_NIC
from emu.scenario.own_rules import is_program
from emu.scenario.run_sections import PlacementSection
from emu.scenario.standing import overload_problems, standing_problems
from emu.systems import Problems
from emu.systems.model_section import program_text
from emu.systems.section_faults import problems_of
from emu.systems.training_section import NO_TIME, TrainingSection

if TYPE_CHECKING:
    from emu.scenario.scenario import Scenario

    Check = Callable[[Scenario], Problems]

#: Where a problem is; what is wrong, and what would be right.
Found: TypeAlias = tuple[Trail, str]
_OF_LABS = "is for `emu lab`: a scenario runs its job; remove it"
_A_LAB = "this file describes a lab, which `emu lab` runs"
_MACHINE_KEYS = [*cluster_section.MachineSection.model_fields]
#: Scales of a trend: with two, nothing would tell how sure it is.
_LEAST_SCALES = 3
#: Read by checks that build the job, beside the sections that it is built of.
BUILT_JOB = "built job"
#: What each check reads, and the check, in the order in which they are made.
_CHECKS: list[tuple[set[str], Check]] = []


def misspelt_keys(data: Data) -> Problems:
    """Yield keys that look like a known one but are not, or belong to another file.

    Machines may have any further resource, so ``memroy`` would pass as one.
    """
    if "lab" in data:
        states_job = "job" in data or "jobs" in data
        problem = _OF_LABS if states_job else _A_LAB
        yield ("lab",), problem
    prices = data.get("prices")
    if isinstance(prices, dict) and "function_second" in prices:
        problem = "the price is per hour, and so is its name: write function_hour"
        yield ("prices", "function_second"), problem

    # Data as written: nothing has been validated yet, so that any value may be there.
    cluster = data.get("cluster")
    machines = None
    if isinstance(cluster, dict):
        machines = cluster.get("machines")
    if not isinstance(machines, list):
        return
    for position, machine in enumerate(machines):
        keys = machine if isinstance(machine, dict) else ()
        for key in keys:
            if key in _MACHINE_KEYS:
                continue
            # Closer than a suggestion has to be (0.6): a further resource is no error
            # by itself.
            close = difflib.get_close_matches(key, _MACHINE_KEYS, n=1, cutoff=0.7)
            if close:
                trail = ("cluster", "machines", position, key)
                yield trail, f"unknown key {key!r}, did you mean {close[0]!r}?"


def consistency_errors(
    scenario: Scenario,
    wrong: Collection[str] = (),
    *,
    timed: bool = True,
) -> list[Found]:
    """Return (where, what is wrong and what would be right).

    ``wrong``: sections known to be wrong, or `BUILT_JOB`: what depends on them is not
    looked at. ``timed``: whether every kind of task needs a time or a profile.
    """
    problems: list[Found] = []
    bad_sections = set(wrong)
    for sections, check in _CHECKS:
        if not timed and check is _times:
            continue
        if not sections.isdisjoint(bad_sections):
            continue
        for trail, problem in check(scenario):
            problems.append((trail, problem))
            # What builds on a section that is wrong would only repeat the error.
            section, *_ = trail
            bad_sections.add(str(section))
    return problems


def _reads(*sections: str) -> Callable[[Check], Check]:
    """Return what makes a check one of `consistency_errors`, of what sections state.

    They are made in the order of this file: each may rely on those above it.
    """

    def note(check: Check) -> Check:
        _CHECKS.append((set(sections), check))
        return check

    return note


@_reads("cluster", "job")
def _sizes(scenario: Scenario) -> Problems:
    names = scenario.stated_cluster.names
    return scenario.job.size_problems(names)


@_reads("cluster")
def _machines(scenario: Scenario) -> Problems:
    cluster = scenario.cluster
    yield from cluster_section.network_errors(cluster)
    yield from _idle_latencies(cluster)
    for position, machine in enumerate(cluster.machines):
        if "latency" in machine.further():
            yield ("cluster", "machines", position, "latency"), LATENCY_OF_NIC

    names: set[str] = set()
    # Names that counts make may meet stated ones: m1 beside a count of m.
    for name, position in cluster.names_and_positions():
        if name in names:
            trail = ("cluster", "machines", position)
            yield trail, f"a second machine called {name!r}"
        names.add(name)


def _idle_latencies(cluster: cluster_section.ClusterSection) -> Problems:
    """Yield latencies of NICs that all routes of their machines go around."""
    bypasses = Counter[str]()  # machines with which it speaks around a NIC
    for route in cluster.routes:
        sides = (
            ("out", route.sources, route.destinations),
            ("in", route.destinations, route.sources),
        )
        for direction, names, peers in sides:
            for name in names:
                nic = f"{name} {direction}"
                if direction in route.through or nic in route.through:
                    continue
                # A pair is stated once, so that a sum counts machines; itself it sends
                # nothing.
                bypasses[nic] += sum(peer != name for peer in peers)
    if not bypasses:
        return

    rows = cluster.names_and_positions()
    count_of_peers = len(rows) - 1
    for position, machine in enumerate(cluster.machines):
        latency = machine.nic.latency
        directions = []
        if latency.outward:
            directions.append("out")
        if latency.inward:
            directions.append("in")
        # Of equal machines all, as they have one latency in the file.
        equal_names = [name for name, place in rows if place == position]
        nics = [f"{name} {side}" for name in equal_names for side in directions]
        is_bypassed = all(bypasses[nic] >= count_of_peers for nic in nics)
        if nics and is_bypassed:
            trail = ("cluster", "machines", position, "nic", "latency")
            name = equal_names[0]
            yield trail, f"no route crosses the NIC of {name}: remove it"


@_reads("cluster", "prices")
def _prices(scenario: Scenario) -> Problems:
    """Yield machines without a price beside others that have one."""
    problem = (
        "has no price, other machines have one: write for example price: 0.34 $/h, or "
        "0 $/h where it costs nothing"
    )
    # As stated: machines that jobs bring along are paid by their functions.
    prices = [machine.price for machine in scenario.stated_cluster.machines]
    has_prices = any(price is not None for price in prices)
    for position, price in enumerate(prices):
        if has_prices and price is None:
            yield ("cluster", "machines", position), problem
    if not scenario.prices.granularity:
        yield ("prices", "granularity"), "found zero, write for example 1 ms"


@_reads("job", "jobs", "until")
def _until(scenario: Scenario) -> Problems:
    """Yield an accuracy that no job is trained to."""
    if scenario.until is None:
        return
    trail = ("until",)
    if scenario.jobs:
        problem = "several jobs reach it at different times: run each alone, or remove"
        yield trail, problem
    elif not scenario.job.trains:
        system = scenario.job.system
        yield trail, f"a {system} job trains nothing, remove this key"
    elif scenario.until.seeds and scenario.until.every:
        problem = "space the same looks by seeds and by steps: remove one of them"
        yield trail, f"found seeds and every, which {problem}"


@_reads("job", "training_scales")
def _training_scales(scenario: Scenario) -> Problems:
    """Yield scales at which nothing can be trained, or of which there is no trend."""
    scales = scenario.training_scales
    if scales is None:
        return

    trail = ("training_scales",)
    dataset = getattr(scenario.job, "dataset", None)
    if dataset is None or not dataset.drawn:
        problem = "the job trains on its own graph: remove this, or draw that "
        yield trail, f"{problem}(job.dataset.drawn: true)"
        return

    scales_found = list(scales)
    is_repeated = len(set(scales)) < len(scales)
    if is_repeated or len(scales) < _LEAST_SCALES:
        yield (
            trail,
            f"found {scales_found}, write {_LEAST_SCALES} different ones or more",
        )
    largest = max(scales, default=0.0)
    if largest >= dataset.scale:
        problem = f"found {largest:g}, write less than the scale of the file"
        yield trail, f"{problem}, {dataset.scale:g}"


@_reads(
    "job",
    "jobs",
    "emulation",
    "checkpoint",
    "on_failure",
    "max_restarts",
    "recovery",
)
def _recovery(scenario: Scenario) -> Problems:
    checkpoint = scenario.checkpoint
    if checkpoint is not None:
        yield from events_section.checkpoint_errors(
            scenario.job,
            several=bool(scenario.jobs),
        )
        if checkpoint.takes and scenario.emulation.compute == "real":
            problem = "measured work has no stated times: remove it, or write padded"
            yield ("checkpoint", "takes"), problem

    if scenario.on_failure == "abort":
        problem = "a run is not restarted: write on_failure: restart, or remove this"
        for key in ("max_restarts", "recovery"):
            if getattr(scenario, key) is not None:
                yield (key,), problem
        for position, event in enumerate(scenario.events):
            if event.recovery is not None:
                yield ("events", position, "recovery"), problem


@_reads("cluster", "events")
def _events(scenario: Scenario) -> Problems:
    return events_section.event_errors(scenario.events, scenario.cluster)


@_reads("failures")
def _failures(scenario: Scenario) -> Problems:
    return events_section.failure_errors(scenario.failures)


@_reads("expect")
def _tolerance(scenario: Scenario) -> Problems:
    expect = scenario.expect
    is_exact = isinstance(expect.makespan, float) or isinstance(expect.bytes, float)
    default = type(expect)().tolerance
    # A range is its own tolerance; one number needs the key.
    if expect.tolerance != default and not is_exact:
        problem = "is of one makespan or number of bytes: write that, or remove it"
        yield ("expect", "tolerance"), problem


@_reads("schedule")
def _rates(scenario: Scenario) -> Problems:
    schedule = scenario.schedule
    file, _, _ = schedule.policy.rpartition(":")
    if file.endswith(".py") and schedule.source is None:
        try:
            program_text(schedule.policy)
        except DataError as error:
            yield ("schedule", "policy"), error.problem

    has_text = schedule.source is not None
    if has_text and not is_program(schedule.policy):
        problem = f"is for classes of your own, policy is {schedule.policy}: remove it"
        yield ("schedule", "source"), problem
    # `rule` ends in ``_by_job`` here: two policies are known so, too.
    if schedule.share == "job" and schedule.rule not in RATE_POLICIES:
        problem = f"by job there are oes and maxmin, policy is {schedule.policy}"
        yield ("schedule", "share"), problem


@_reads("cluster", "events", "failures")
def _cluster_errors(scenario: Scenario) -> Problems:
    """Yield errors that only the built cluster shows: routes that cannot be."""
    try:
        links = scenario.to_cluster().shared_links
        is_of_links = scenario.failures and scenario.failures.link
        if is_of_links and not links:
            problem = "no link is there but NICs: write racks or links, or machine"
            yield ("failures", "link"), problem
    except ImpossibleRoute as error:
        # Routes of racks stand behind all that are stated, see `ClusterSection.build`.
        stated_routes = len(scenario.cluster.routes)
        trail: Trail = ("cluster", "racks")
        if error.position < stated_routes:
            trail = ("cluster", "routes", error.position)
        yield trail, str(error)
    # Of a machine that is written once with a count the one line is named.
    except MissingRoute as error:
        rows = scenario.cluster.names_and_positions()
        _, position = rows[error.machine]
        yield ("cluster", "machines", position, "nic"), str(error)
    except ValueError as error:
        yield ("cluster",), str(error)


@_reads("cluster", "emulation")
def _hosts(scenario: Scenario) -> Problems:
    """Yield hosts of machines that there are not, or that are namespaces."""
    names = scenario.cluster.names
    is_of_kernel = scenario.emulation.network == "kernel"
    for key in ("hosts", "ports"):
        if is_of_kernel and getattr(scenario.emulation, key):
            problem = "kernel NICs are all on this host, remove this key"
            yield ("emulation", key), problem
    for name in scenario.emulation.hosts:
        if name not in names:
            problem = f"no machine {name!r}, {nearest(name, names)}"
            yield ("emulation", "hosts", name), problem


@_reads("cluster", "job")
def _job(scenario: Scenario) -> Problems:
    return problems_of(scenario.job, scenario.cluster)


@_reads("job", "emulation", "expect")
def _expectations(scenario: Scenario) -> Problems:
    expect = scenario.expect
    trains = scenario.job.trains
    if not scenario.jobs and not trains:
        for key in ("accuracy", "loss"):
            if getattr(expect, key) is not None:
                problem = f"a {scenario.job.system} job trains nothing, remove this key"
                yield ("expect", key), problem
    elif scenario.emulation.compute == "timed" and expect.accuracy is not None:
        problem = "timed tasks compute nothing, write emulation.compute: padded or real"
        yield ("expect", "accuracy"), problem


@_reads("job", "jobs", "emulation")
def _setup(scenario: Scenario) -> Problems:
    """Yield a setup of a job that has none."""
    if scenario.emulation.setup and not scenario.job.trains:
        problem = f"a {scenario.job.system} job begins with nothing: remove this key"
        yield ("emulation", "setup"), problem


@_reads("cluster", "job", "placement", "events", "checkpoint", "emulation", BUILT_JOB)
def _structure(scenario: Scenario) -> Problems:
    """Yield errors only the built job shows; building a large one takes a second."""
    # An explicit placement is no pin, but may name tasks of the data set as well.
    places = {**scenario.pins, **scenario.placement.tasks}
    try:
        # Without pins, as a wrong one ends the build: they are told one by one below.
        job = scenario.to_job(train_vertices=1, pins=False)
        present_places = scenario.only_present(job, places)
        is_missing_some = len(present_places) < len(places)
        if is_missing_some:  # the data set names tasks
            job = scenario.to_job(pins=False, opened=True)
    except ValueError as error:
        yield ("job",), str(error)
        return

    problems = list(standing_problems(scenario, job))
    problems += _kill_problems(scenario, job)
    yield from problems

    is_auto = getattr(scenario.job, "stores", None) == "auto"
    if is_auto and scenario.placed_by == "best":
        return  # on fewer machines there may be room
    if not problems:
        yield from overload_problems(scenario, job)


def _kill_problems(scenario: Scenario, job: Job) -> Problems:
    return events_section.kill_errors(
        events=scenario.events,
        machines=scenario.cluster.names,
        hosts=scenario.emulation.hosts,
        job=job,
    )


@_reads("cluster", "job")
def _resources(scenario: Scenario) -> Problems:
    offers: set[str] = set()
    for machine in scenario.cluster.machines:
        offers.update(machine.amounts())
    demands: set[str] = set()
    for trail, resources in scenario.job.list_demands():
        demands |= resources.amounts().keys()
        # A known word may be demanded where no machine limits it: then it is unlimited.
        for resource in resources.further():
            if resource not in offers:
                names = offers.union(Resources.model_fields)
                suggestion = nearest(resource, sorted(names))
                problem = f"no machine has {resource!r}, {suggestion}"
                yield (*trail, resource), problem

    keys = sorted(demands.union(_MACHINE_KEYS))
    problem = "neither a key of machines nor a resource that a task demands"
    for position, machine in enumerate(scenario.cluster.machines):
        for resource in machine.further():
            if resource not in demands:
                trail = ("cluster", "machines", position, resource)
                yield trail, f"{problem}, {nearest(resource, keys)}"


@_reads("cluster", "job")
def _slots(scenario: Scenario) -> Problems:
    return scenario.job.slot_problems(scenario.cluster)


@_reads("cluster", "job")
def _devices(scenario: Scenario) -> Problems:
    return scenario.job.device_problems(scenario.cluster)


@_reads("job")
def _operation_rates(scenario: Scenario) -> Problems:
    return scenario.job.rate_problems()


@_reads("cluster", "job", "profile", "checkpoint", BUILT_JOB)
def _times(scenario: Scenario) -> Problems:
    if scenario.jobs:
        return
    section = scenario.job
    if scenario.profile is not None:
        if section.unprofiled:
            yield ("profile",), section.unprofiled
        if section.operation_rates is not None:
            yield ("job", "rates"), "found a profile as well, which has all times"
        return
    if section.operation_rates is not None:
        return
    for key in section.list_untimed():
        yield ("job", "times", key), NO_TIME
    if not isinstance(section, TrainingSection):
        return

    # Copies of state take no time but that of their bytes.
    timed_kinds = {CHECKPOINT, *section.times.default_times()}
    if section.measures_worker:
        timed_kinds.add("worker")
    # Kinds do not depend on the number of training vertices: the data stay closed.
    job = scenario.to_job(train_vertices=1, pins=False)
    kinds = {task.kind for task in job.tasks}
    for kind in sorted(kinds - timed_kinds):
        yield ("job", "times", kind), NO_TIME


def scenario_errors(
    scenario: Scenario,
    wrong: Collection[str] = (),
    *,
    timed: bool = True,
) -> list[Found]:
    """Return (where, what is wrong), the parameters as of `consistency_errors`."""
    if not scenario.jobs:
        problems = consistency_errors(scenario, wrong, timed=timed)
        if "jobs" not in wrong:
            problems += _joint_errors(scenario)
        return problems

    problems = _errors_of_jobs(scenario, wrong, timed=timed)
    states_placement = scenario.placement != PlacementSection()
    if scenario.place_jobs == "sequential" and states_placement:
        problem = "write it into each of the jobs, or place_jobs: joint"
        problems.append((("placement",), problem))
    problems += _machine_errors(scenario)
    problems += _cost_errors(scenario)
    problems += _until(scenario)
    problems += _recovery(scenario)
    # Kills of several jobs name tasks of the job that is all of them.
    has_kills = any(event.kill for event in scenario.events)
    if has_kills and not problems:
        job = scenario.to_job(train_vertices=1, pins=False)
        problems += _kill_problems(scenario, job)
    if scenario.profile is not None:
        problem = "a profile is of one job, write times into each of the jobs"
        problems.append((("profile",), problem))
    for key in ("loss", "accuracy"):
        if getattr(scenario.expect, key) is not None:
            trail: Trail = ("expect", key)
            problem = "this is of one job, remove this key"
            problems.append((trail, problem))
    return problems


def _joint_errors(scenario: Scenario) -> Problems:
    """Yield keys of several jobs that a file with one job states."""
    problem = "is of several jobs, this is one: write jobs, or remove this key"
    for key in ("place_jobs", "joint_cost"):
        if key in scenario.model_fields_set:
            yield (key,), problem


def _errors_of_jobs(
    scenario: Scenario, wrong: Collection[str], *, timed: bool
) -> list[Found]:
    """Return what is wrong with each of several jobs, then what is with all of them."""
    problems: list[Found] = []
    # By job, what it finds outside of itself.
    shared_errors: list[list[Found]] = []
    counts = Counter(item.name for item in scenario.jobs)
    for position, (item, part) in enumerate(scenario.parts()):
        place: Trail = ("jobs", position)
        count = counts[item.name]
        if count > 1:
            trail_of_name = (*place, "name")
            problem = f"{item.name!r} occurs {count} times"
            problems.append((trail_of_name, problem))
        errors_elsewhere = []
        for trail, problem in consistency_errors(part, wrong, timed=timed):
            if trail[0] in {"job", "placement"}:
                trail_of_file = (*place, *trail)
                problems.append((trail_of_file, problem))
            else:
                errors_elsewhere.append((trail, problem))
        shared_errors.append(errors_elsewhere)

    # A resource that no task of one job demands, another job may. Of one place: the
    # suggestions beside it differ with what the job demands.
    trails = [{trail for trail, _ in errors} for errors in shared_errors]
    in_all = set.intersection(*trails)
    for trail, problem in shared_errors[0]:
        if trail in in_all:
            problems.append((trail, problem))
    return problems


def _machine_errors(scenario: Scenario) -> Problems:
    """Yield the machines of jobs that are placed together, where these differ."""
    problem = (
        "jobs that are placed together share their machines: state the same ones in "
        "each, or write place_jobs: sequential"
    )
    if scenario.place_jobs != "joint":
        return
    machine_sets = [frozenset(item.job.movable_on or ()) for item in scenario.jobs]
    are_equal = len(set(machine_sets)) == 1
    if are_equal:
        return
    for position, machines in enumerate(machine_sets):
        if machines:
            yield ("jobs", position, "job", "machines"), problem


def _cost_errors(scenario: Scenario) -> Problems:
    cost = scenario.joint_cost
    if cost != "max" and scenario.place_jobs != "joint":
        problem = f"{cost} is of jobs that are placed together: write place_jobs: joint"
        yield ("joint_cost",), problem
        return

    weights = [item.weight for item in scenario.jobs]
    has_weights = any(weight is not None for weight in weights)
    if cost == "weighted" and not has_weights:
        problem = "no job has a weight, write for example weight: 2 into one, or sum"
        yield ("joint_cost",), problem
    if cost != "weighted":
        problem = f"joint_cost is {cost}: write joint_cost: weighted, or no weight"
        for position, weight in enumerate(weights):
            if weight is not None:
                yield ("jobs", position, "weight"), problem
