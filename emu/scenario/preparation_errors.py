"""Errors beyond a scenario's file: data, profiles, and room for its tasks."""

from __future__ import annotations

from pathlib import Path

from emu.errors import DataError, PlacementError, ScenarioError, SchedulingError
from emu.interchange.accuracy_curve import read_curve
from emu.prediction.placement import place
from emu.prediction.placement.place import SEARCHES
from emu.prediction.simulation import simulate
from emu.problem import Cluster, Job, Placement, Problem
from emu.problem.fields.section import Trail
from emu.problem.workloads import without_copies
from emu.problem.workloads.copies import copy_names
from emu.scenario import placements
from emu.scenario.own_rules import is_program
from emu.scenario.realize import build_job, read_job_profile, realize
from emu.scenario.scenario import Scenario
from emu.systems import Problems
from emu.systems.device_memory import RESOURCE
from emu.systems.training_section import batch_problem


def preparation_errors(scenario: Scenario) -> Problems:
    """Yield errors beyond the file: data, profile, and room for the tasks.

    Call it on a scenario without `consistency_errors`.
    """
    is_part_wrong = False
    for position, (_, part) in enumerate(scenario.parts()):
        for trail, problem in preparation_errors(part):
            is_part_wrong = True
            yield ("jobs", position, *trail), problem
    # All jobs together would fail by the same.
    if is_part_wrong:
        return

    job = scenario.to_job(train_vertices=1)
    cluster = scenario.to_cluster()
    if scenario.profile is not None:
        original = without_copies(job)
        try:
            read_job_profile(scenario, original)
        except DataError as error:
            yield ("profile",), str(error)
    yield from _curve_errors(scenario)
    if scenario.job.trains and not scenario.jobs:
        yield from _training_errors(scenario, job, cluster)
    try:
        _check_room(scenario, job, cluster)
    except PlacementError as error:
        problem = scenario.advice(str(error))
        yield _trail_of(error), problem
    except SchedulingError as error:
        yield ("placement",), str(error)


def _trail_of(error: PlacementError | ScenarioError) -> Trail:
    return tuple(error.key.split("."))


def _curve_errors(scenario: Scenario) -> Problems:
    """Yield what is wrong with the files of recorded curves."""
    for row, file in scenario.curve_files.items():
        path = Path(file)
        try:
            read_curve(path)
        except DataError as error:
            trail = scenario.trail_of_curve(row)
            yield trail, str(error)


def _training_errors(scenario: Scenario, job: Job, cluster: Cluster) -> Problems:
    """Yield what is wrong with data, looks at a training, or memory of devices."""
    problems = list(_data_errors(job))
    # Looks are counted in the data, which have to be right for that.
    if scenario.until and not problems:
        from emu.scenario.virtual_training import look_errors  # noqa: PLC0415 - 0.1 s

        problems += look_errors(scenario)
    yield from problems
    # Without the data nothing tells what a device has to hold.
    if problems or not _counts_devices(job, cluster):
        return
    try:
        build_job(scenario)
    except ScenarioError as error:
        yield _trail_of(error), error.problem
    except DataError as error:
        yield ("job", "dataset"), str(error)


def _counts_devices(job: Job, cluster: Cluster) -> bool:
    """Return True where its data tell what a job needs of ``gpu_memory``.

    Of a program its model would have to be tried out, which is not done here.
    """
    if "program" in job.settings["model"]:
        return False
    return any(RESOURCE in machine.resources for machine in cluster.machines)


def _check_room(scenario: Scenario, job: Job, cluster: Cluster) -> None:
    """Raise the PlacementError or SchedulingError that a placement fails with."""
    if scenario.jobs and scenario.place_jobs == "sequential":
        # Each fits by itself: what is left for it only their own placements tell.
        has_demands = any(task.demands for task in job.tasks)
        # A rule of one's own would have to be asked, of whose file the text is read.
        has_known_rule = not is_program(scenario.schedule.policy)
        if has_demands and has_known_rule:
            built = build_job(scenario)
            placements.place_one_by_one(scenario, built, cluster)
        return

    # That tasks wait for slots forever only a simulation shows, and of a search it may
    # be one of more iterations than the search has tried.
    takes_slots = any(task.takes for task in job.tasks)
    waits = takes_slots and scenario.job.system == "custom"
    is_search = scenario.placement.policy in SEARCHES
    has_known_rule = not is_program(scenario.schedule.policy)
    searches = is_search and waits and has_known_rule
    if searches:
        outcome = placements.place(scenario, job, cluster)
        placement = outcome.placement
        placement.check(job, cluster)
    else:
        placement = _place_quickly(scenario, job, cluster)

    problem = Problem(cluster, job, placement)
    problem = placements.following_placement(scenario, problem)
    if waits and (searches or not is_search):
        reference = realize(scenario, job)
        realization = problem.stretch(reference)
        simulate(problem, realization)


def _place_quickly(scenario: Scenario, job: Job, cluster: Cluster) -> Placement:
    """Return the placement; of a search that by IFS: it finds one where IFS does."""
    is_search = scenario.placement.policy in SEARCHES
    policy = "ifs" if is_search else scenario.placement.policy
    original = without_copies(job)
    outcome = place(
        policy,
        original,
        cluster,
        seed=scenario.seed,
        tasks=placements.places_of_originals(scenario, job),
    )
    placement = outcome.placement
    if not is_search:
        placement.check(original, cluster)

    # Copies come behind, each to the machine that its placement gives it.
    copies = len(copy_names(job))
    places_of_copies = [0] * copies
    return Placement((*placement.machine_of, *places_of_copies))


def _data_errors(job: Job) -> Problems:
    """Yield that data are missing, or that too few are there."""
    from emu.graph_data.sources import source_of  # noqa: PLC0415 - 0.1 s

    dataset = job.settings["dataset"]
    try:
        source = source_of(dataset)
    except DataError as error:
        yield ("job", "dataset"), str(error)
        return
    takes_batches = "batch_size" in job.settings
    if source.train is not None and takes_batches:
        problem = batch_problem(job.settings, source.train)
        if problem:
            yield ("job", "batch_size"), problem
