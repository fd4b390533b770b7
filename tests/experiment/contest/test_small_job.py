"""Small jobs: neighbours differ in one thing, and all that is simpler is offered."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from emu.experiment.contest.small_job import SmallJob

SEEDS = range(12)


def drawn(seed: int) -> SmallJob:
    """Return a job some steps away from one that is drawn."""
    generator = np.random.default_rng(seed)
    job = SmallJob.draw(generator, free=bool(seed % 2))
    for _ in range(6):
        job = job.neighbour(generator)
    return job


def changes(job: SmallJob, other: SmallJob) -> list[tuple[str, str]]:
    """Return part and field of each number that two jobs with equal parts differ in."""
    found = []
    for part in ("machines", "tasks", "flows"):
        rows = zip(getattr(job, part), getattr(other, part), strict=True)
        for row, other_row in rows:
            found += [
                (part, field.name)
                for field in fields(row)
                if getattr(row, field.name) != getattr(other_row, field.name)
            ]
    return found


def sizes(job: SmallJob) -> tuple[int, int, int]:
    return len(job.machines), len(job.tasks), len(job.flows)


def test_neighbours_differ_in_one_row_and_in_every_number_of_some() -> None:
    generator = np.random.default_rng(61)
    seen = set[tuple[str, str]]()
    resized = set[tuple[int, ...]]()
    for seed in SEEDS:
        job = drawn(seed)
        for _ in range(60):
            other = job.neighbour(generator)
            steps = np.subtract(sizes(other), sizes(job)).tolist()
            if any(steps):
                resized.add(tuple(np.sign(steps).tolist()))
                continue
            found = changes(job, other)
            assert len({part for part, _ in found}) <= 1
            assert len(found) <= 3  # all numbers of a row
            seen.update(found)

    # A flow keeps its ends, and a task its kind.
    assert seen == {
        *(("machines", name) for name in ("incoming", "outgoing", "cores")),
        *(("tasks", name) for name in ("machine", "milliseconds")),
        ("flows", "kilobytes"),
    }
    # One machine, task or flow more or less; a task comes, and may go, with flows.
    assert resized >= {
        *((way, 0, 0) for way in (1, -1)),
        *((0, way, way) for way in (1, -1)),
        *((0, 0, way) for way in (1, -1)),
    }


def test_all_that_has_one_thing_less_or_no_time_is_simpler() -> None:
    for seed in SEEDS:
        job = drawn(seed)
        simpler = [*job.simpler()]
        counts = [sizes(other) for other in simpler]
        machines, tasks, flows = sizes(job)

        expected = []
        for place in range(flows):
            rest = (*job.flows[:place], *job.flows[place + 1 :])
            expected.append(replace(job, flows=rest))
        for place, task in enumerate(job.tasks):
            if task.milliseconds:
                row = replace(task, milliseconds=0)
                rows = (*job.tasks[:place], row, *job.tasks[place + 1 :])
                expected.append(replace(job, tasks=rows))
        if job.iterations > 1:
            expected.append(replace(job, iterations=job.iterations - 1))
        assert all(other in simpler for other in expected)
        if tasks > 1:
            assert sum(count[1] == tasks - 1 for count in counts) == tasks
        if machines > 1:
            assert sum(count[0] == machines - 1 for count in counts) == machines

        # What is simpler never leads back.
        assert all(other.weight() < job.weight() for other in simpler)
        assert all(job not in other.simpler() for other in simpler)


def test_drawn_tasks_take_nothing_to_400_ms() -> None:
    generator = np.random.default_rng(7)
    jobs = [SmallJob.draw(generator, free=False) for _ in range(20)]
    times = {task.milliseconds for job in jobs for task in job.tasks}
    assert (min(times), max(times)) == (0, 400)


def test_equal_nics_and_machines_are_simpler_than_unequal_ones() -> None:
    """Fewer kinds of machines first, then fewer that are slower one way."""
    for seed in SEEDS:
        job = drawn(seed)
        uneven = [row.incoming != row.outgoing for row in job.machines]
        for other in job.simpler():
            if sizes(other) != sizes(job) or other.machines == job.machines:
                continue
            kinds = len({*other.machines}) - len({*job.machines})
            rows = [row.incoming != row.outgoing for row in other.machines]
            assert kinds < 0 or (kinds == 0 and sum(rows) < sum(uneven))


def test_tasks_of_a_machine_that_goes_stand_on_the_one_before_it() -> None:
    """Those behind it move up, and those of the first stay on the first."""
    job = drawn(1)
    machines = (job.machines[0],) * 4
    tasks = tuple(replace(job.tasks[0], machine=place) for place in range(4))
    job = replace(job, machines=machines, tasks=tasks, flows=())
    places = []
    for position in range(4):
        fewer = job._drop_machine(position)
        assert len(fewer.machines) == 3
        places.append([task.machine for task in fewer.tasks])
    assert places == [[0, 0, 1, 2], [0, 0, 1, 2], [0, 1, 1, 2], [0, 1, 2, 2]]


def test_iterations_are_drawn_from_one_to_the_most() -> None:
    rng = np.random.default_rng(0)
    counts = {drawn(1)._with_iterations(rng).iterations for _ in range(60)}
    assert counts == {1, 2, 3, 4}
