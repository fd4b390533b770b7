"""Rows of a table of systems: planned, trained once per class of weights, simulated.

All machines are chosen before anything is trained, so that what does not fit is known
by then. Trainings are kept by content: a comparison that was cut off goes on with them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from emu.errors import EmulatorError, ScenarioError
from emu.experiment.expectations import figures_of_simulation, list_misses
from emu.experiment.machine_memory import check_memory, memory_by_machine
from emu.experiment.spread import spread
from emu.experiment.systems import (
    Target,
    check_rows,
    chosen_system,
    edits,
    list_settings,
    list_variants,
    variant_named,
)
from emu.graph_data import open_for
from emu.prediction.analysis.bounds import bounds
from emu.prediction.analysis.critical_path import MOVING, Cause, critical_path
from emu.prediction.analysis.throughput import pace, seeds_per_iteration
from emu.problem import Schedule
from emu.problem.fields.quantities import DEFAULT_DEVICE
from emu.problem.workloads.operations import OPERATIONS
from emu.report.system_tables import SystemResult
from emu.runs.result import port_rows
from emu.scenario import Experiment, Scenario, prepare
from emu.scenario.experiment import cost_of, with_deaths
from emu.scenario.setup import setup_rows
from emu.scenario.virtual_training import NotReached, time_looks
from emu.systems import Keys
from emu.systems.system import system_of
from emu.training.kept import weight_settings
from emu.training.looks import epoch_of
from emu.units import format_duration

R = TypeVar("R")


@dataclass(frozen=True)
class Plan:
    """One setting of a row, on machines of its choice; nothing is trained yet."""

    system: str
    settings: Mapping[str, object]
    """Keys that `list_settings` gave; with those that a search of a key changes."""
    scenario: Scenario | None = None
    """With its first seed and no target; None where it was refused."""
    machines: tuple[str, ...] = ()
    """Those that take part, where they are known."""
    refused: EmulatorError | None = None


def plan_row(
    scenario: Scenario,
    system: str,
    settings: Mapping[str, object],
    machines: Sequence[str] | None = None,
    *,
    spread: bool,
) -> Plan:
    """Return a row with its machines, or the reason why there is none."""
    try:
        choice = chosen_system(scenario, system, settings, machines, spread=spread)
        names = tuple(machines or ())
        if spread:  # before it is trained; else its simulation says so as soon
            ready = prepare(choice)
            check_memory(ready, ready.simulate())
            names = names or tuple(ready.placing["machines"])
    except EmulatorError as error:
        return Plan(system, settings, refused=error)
    return Plan(system, settings, choice, names)


def _scenario_of(
    scenario: Scenario, plan: Plan, seed: int, target: Target | None
) -> Scenario:
    """Return what is simulated of a plan with a seed."""
    one = plan.scenario
    if one is None:
        raise plan.refused or ValueError("a plan without a scenario")
    if seed != scenario.seed:
        changes, spread = {**plan.settings, "seed": seed}, target is not None
        names = plan.machines
        one = chosen_system(scenario, plan.system, changes, names, spread=spread)
    return one if target is None else target.end(one)


def measure(
    scenario: Scenario,
    system: str,
    overrides: Mapping[str, object] | None = None,
    seeds: int = 1,
    machines: Sequence[str] | None = None,
    target: Target | None = None,
) -> SystemResult:
    """Simulate a scenario as a row of systems, with its seed and those that follow.

    By default machines are chosen with the first seed (`chosen_system`). With a target
    it trains until that is reached; what is trained is kept for all of equal weights.
    Of the settings that the file states for it the best is returned. Raises
    ScenarioError, PlacementError, DataError as `as_system` and `prepare`.
    """
    plan = partial(plan_row, scenario, system, spread=target is not None)
    settings = list_settings(scenario, system)
    plans = [plan({**one, **(overrides or {})}, machines) for one in settings]
    return measure_plans(scenario, plans, seeds, target)


def measure_plans(
    scenario: Scenario, plans: Sequence[Plan], seeds: int, target: Target | None
) -> SystemResult:
    """Return the best of the plans of one row, simulated.

    It has the shortest time to the target, or the most training vertices per second.
    Raises as `measure`: of plans that do not reach a target that which came nearest.
    """
    rows, errors = list[SystemResult](), list[EmulatorError]()
    trials: list[tuple[Keys, float | None]] = []
    for plan in plans:
        makespan = None
        try:
            rows.append(_simulate_plan(scenario, plan, seeds, target))
            makespan = rows[-1].makespan
        except EmulatorError as error:
            errors.append(error)
        trials.append(({**plan.settings}, makespan))
    if not rows:
        raise max(errors, key=lambda error: getattr(error, "nearest", -1.0))
    best = min(rows, key=lambda row: row.makespan if target else row.seconds_per_seed)
    return replace(best, tried=tuple(trials))


def _simulate_plan(
    scenario: Scenario, plan: Plan, seeds: int, target: Target | None
) -> SystemResult:
    outcomes: dict[int, tuple[Experiment, Schedule]] = {}
    scenarios: dict[int, Scenario] = {}
    for seed in range(scenario.seed, scenario.seed + seeds):
        scenarios[seed] = _scenario_of(scenario, plan, seed, target)
        ready = prepare(scenarios[seed])
        outcomes[seed] = ready, with_deaths(ready, ready.simulate())
        check_memory(*outcomes[seed])
        plan = replace(plan, machines=plan.machines or (*ready.placing["machines"],))
    return _result_of(scenario, plan, outcomes, scenarios)


def _result_of(
    scenario: Scenario,
    plan: Plan,
    outcomes: Mapping[int, tuple[Experiment, Schedule]],
    scenarios: Mapping[int, Scenario],
) -> SystemResult:
    """Return what schedules by seed say of a plan; single figures are of the first."""
    ready, schedule = outcomes[scenario.seed]
    figures = figures_of_simulation(schedule, ready.realization)
    is_own = plan.system == scenario.job.system and not plan.settings
    cost = cost_of(ready.scenario, schedule)
    job, source = ready.problem.job, plan.scenario or scenario
    busiest = max(port_rows(schedule), key=lambda row: row["used"], default=None)
    trains = source.job.trains
    return SystemResult(
        plan.system,
        {seed: attempts.makespan for seed, (_, attempts) in outcomes.items()},
        limits=limits_of(ready, schedule),
        busiest_link=bounds(ready.problem, ready.realization).nic_load,
        busiest=(busiest["port"], busiest["used"]) if busiest else ("", 0.0),
        seeds=seeds_per_iteration(job.settings) or open_for(job.settings).train_count,
        train=open_for(job.settings).train_count,
        paces={
            seed: pace(schedule, epoch_of(job.settings))
            for seed, (_, schedule) in outcomes.items()
        },
        edits=edits(scenario, source),
        placing=ready.placing,
        moved=figures["bytes"] or 0.0,
        cost=cost.to_json() if cost else None,
        looks={s: one.reached for s, (one, _) in outcomes.items() if one.reached},
        curves={
            seed: time_looks(one.looks, one.scenario, schedule)
            for seed, (one, schedule) in outcomes.items()
            if one.looks
        },
        setup=setup_rows(ready),
        memory=memory_by_machine(ready, schedule) if trains else {},
        busy=_busy_of(schedule),
        weights=_weights_of(ready.scenario) if trains else "",
        missed=tuple(list_misses(scenario.expect, figures, exact=is_own)),
        scenarios=scenarios,
        settings=plan.settings,
    )


def _busy_of(schedule: Schedule) -> float | None:
    """Return the share of the makespan that processes which train compute, the mean.

    Where no task is called so, as of Dorylus, of machines: when one of its layers does.
    """
    problem, system = schedule.problem, system_of(schedule.problem.job.settings)
    if (busy := pace(schedule, None).busy) is not None or system is None:
        return busy
    spans = defaultdict[int, list[NDArray[np.float64]]](list)
    for number, task in enumerate(problem.job.tasks):
        if "layer" in task.settings and task.kind not in system.parameter_kinds:
            both = schedule.task_start[number], schedule.task_end[number]
            spans[problem.placement.machine_of[number]].append(np.stack(both))
    total = 0.0
    for parts in spans.values():
        starts, ends = np.concatenate(parts, axis=1)
        order = np.argsort(starts)
        until = np.maximum.accumulate(ends[order])
        before = np.concatenate([[0.0], until[:-1]])
        total += float(np.nansum(until - np.maximum(starts[order], before)))
    return total / len(spans) / schedule.length if spans and schedule.length else None


def _weights_of(scenario: Scenario) -> str:
    """Return what decides the weights of a training, but its length, as text."""
    settings = scenario.to_job(train_vertices=1, pins=False).settings
    causes: dict[str, Any] = weight_settings(settings, opens=False)
    if (system := system_of(settings)) is not None:
        causes["missed"] = system.updates_missed(settings)
        if system.asynchronous(settings):  # by what was read when
            causes["job"] = scenario.job.model_dump(mode="json")
    return json.dumps(causes, sort_keys=True, default=str)


def limits_of(experiment: Experiment, schedule: Schedule) -> dict[str, float]:
    """Return what the critical path is spent on, as shares of it, the most first.

    A ``link``, the ``latency`` of messages, a ``slot`` that others held, a ``rate`` of
    operations; where times are stated the ``path`` of tasks on a machine.
    """
    problem, shares = schedule.problem, defaultdict[str, float](float)
    job, machine_of = problem.job, problem.placement.machine_of
    section, counts = experiment.scenario.job, None
    if (rates := section.operation_rates) is not None:
        context = experiment.scenario.build_context()
        volumes = experiment.realization.volumes * context.byte_scale
        counts = section.count_operations(job, context, volumes).counts
    for link in critical_path(schedule).links:
        long = float(link.end - link.start) / (schedule.length or 1.0)
        if link.cause in MOVING or link.task < 0:  # it moves bytes
            name = f"link {problem.links[link.port].name}" if link.port >= 0 else "gap"
            shares["latency" if link.cause is Cause.LATENCY else name] += long
            continue
        name = problem.cluster.machines[machine_of[link.task]].name
        if link.cause in (Cause.SLOT, Cause.CREDIT):
            shares[f"slot {name}"] += long
        elif rates is None or counts is None:
            shares[f"path {name}"] += long
        else:
            device = experiment.scenario.cluster.by_name[name].device
            of_device = rates.on(device or DEFAULT_DEVICE)
            each = counts[:, link.task, link.iteration]
            seconds = each * [of_device[operation] for operation in OPERATIONS]
            for operation, part in zip(OPERATIONS, seconds.tolist(), strict=True):
                shares[f"rate {operation}"] += long * part / (seconds.sum() or 1.0)
    names = sorted(shares, key=lambda name: -shares[name])
    return {name: shares[name] for name in names if shares[name] > 0}


def compare_systems(
    scenario: Scenario,
    systems: Sequence[str],
    seeds: int = 1,
    *,
    same_machines: bool = False,
    target: Target | None = None,
    watch: Callable[[str], None] = lambda _: None,
    warn: Callable[[str, EmulatorError], None] = lambda *_: None,
    cores: int = 1,
) -> list[SystemResult]:
    """Return the simulated times of every system, in the order given.

    Each on machines of its choice; with ``same_machines`` on those of the first. One
    that this scenario cannot be says why in their place. With a ``target`` all train to
    that accuracy, and each row has the time on all machines too, or is on all of them
    where that is faster. ``watch`` is called with what is done, and how much of it;
    ``warn`` with each row that cannot be, before anything is trained; ``cores``
    processes share the work.

    Raises ScenarioError, PlacementError, DataError as `measure`, where no system can be
    simulated or one is unknown.
    """
    check_rows(scenario)
    names, plans = list_variants(systems), dict[str, list[Plan]]()
    machines: Sequence[str] | None = None
    share = partial(_share, cores=cores, watch=watch)
    row = partial(_row_of, scenario, seeds=seeds, target=target, free=not same_machines)
    if same_machines:
        first = _first_of(scenario, names, target)
        machines = first.placing["machines"]
    plan = partial(plan_row, scenario, spread=target is not None)
    settings_of_rows = []
    for name in names:
        at = None if variant_named(name).alone else machines
        settings_of_rows += [(name, s, at) for s in list_settings(scenario, name)]
    for one in share("machines chosen", plan, settings_of_rows):
        plans.setdefault(one.system, []).append(one)
    rows = plans.items()
    wrong = {name: row[0].refused for name, row in rows if all(p.refused for p in row)}
    for name, error in wrong.items():
        # Else the error of the command, or a row that is there at once.
        if error and target is not None and len(wrong) < len(names):
            warn(name, error)
    if target is not None:
        classes = _list_trainings(scenario, plans, seeds, target)
        share("trainings, one per class of weights", _train, classes)
    results = share("rows", row, [(plans[name],) for name in names])
    refusals = [result.refused for result in results if result.refused]
    if len(refusals) == len(results):
        raise _nearest(results, target)
    return results


def _share(
    what: str,
    function: Callable[..., R],
    items: Sequence[tuple[Any, ...]],
    *,
    cores: int,
    watch: Callable[[str], None],
) -> list[R]:
    """Return what a function returns of every item, in their order; see `spread`."""
    results: dict[int, R] = {}
    watch(f"{what}: 0 of {len(items)}")
    with closing(spread(lambda n: function(*items[n]), len(items), cores)) as pieces:
        for n, one in pieces:
            if isinstance(one, EmulatorError):
                raise one
            results[n] = one
            watch(f"{what}: {len(results)} of {len(items)}")
    return [results[n] for n in range(len(items))]


def _nearest(rows: Sequence[SystemResult], target: Target | None) -> EmulatorError:
    """Return the error of a table without a row: of a target, what came nearest."""
    best = max(rows, key=lambda row: getattr(row.refused, "nearest", -1.0))
    error = best.refused
    if not isinstance(error, NotReached) or target is None or len(rows) == 1:
        return error or ValueError("a row is there")  # type: ignore[return-value]
    return ScenarioError(
        f"no system holds it within {target.within} epochs: {best.system} came nearest,"
        f" {error.nearest:.2%} after {format_duration(error.seconds)}; write more "
        "epochs (--within), or a lower accuracy",
        file=f"--to accuracy={target.accuracy:g}",
    )


def _first_of(
    scenario: Scenario, names: Sequence[str], target: Target | None
) -> SystemResult:
    """Return the first row that can be, whose machines the others are to have."""
    error: EmulatorError | None = None
    for name in names:
        try:
            return measure(scenario, name, target=target)
        except EmulatorError as failure:
            error = error or failure
    raise error or ScenarioError("write two systems", file="--systems")


def _list_trainings(
    scenario: Scenario, plans: Mapping[str, Sequence[Plan]], seeds: int, target: Target
) -> list[tuple[Scenario]]:
    """Return one scenario per class of weights, which all the others will find kept."""
    classes: dict[tuple[str, str], Scenario] = {}
    for seed in range(scenario.seed, scenario.seed + seeds):
        for plan in chain(*plans.values()):
            try:
                one = _scenario_of(scenario, plan, seed, target)
                key = _weights_of(one), one.job.length
            except EmulatorError:  # its row says so
                continue
            classes.setdefault(key, one)
    return [(one,) for one in classes.values()]


def _train(scenario: Scenario) -> None:
    """Train until the accuracy of a scenario; what is learnt is kept."""
    try:
        prepare(scenario)
    except EmulatorError:  # its row says so
        return


def _row_of(
    scenario: Scenario,
    plans: Sequence[Plan],
    *,
    seeds: int,
    target: Target | None,
    free: bool,
) -> SystemResult:
    """Return a row; one that is free to choose is on all machines where these win."""
    try:
        row = measure_plans(scenario, plans, seeds, target)
    except EmulatorError as error:
        curves = {scenario.seed: error.curve} if isinstance(error, NotReached) else {}
        return SystemResult(plans[0].system, curves=curves, refused=error)
    names = scenario.job.ranks(scenario.stated_cluster.names)
    alone = variant_named(row.system).alone or target is None
    if alone or {*row.placing["machines"]} >= {*names}:
        return row
    wide = plan_row(scenario, row.system, row.settings, names, spread=True)
    try:
        whole = measure_plans(scenario, [wide], seeds, target)
    except EmulatorError:  # it has no room there, or too few columns
        return row
    if free and whole.makespan < row.makespan:  # it chose by fewer iterations
        return replace(whole, tried=row.tried)
    return replace(row, everywhere=whole.makespan)
