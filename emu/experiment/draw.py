"""Figures of one seed of an answer, and of its run over sockets."""

from __future__ import annotations

from dataclasses import dataclass

from emu.experiment.look_seconds import delay_looks, look_seconds
from emu.experiment.recorded_steps import time_steps
from emu.experiment.scaled_steps import FoundSteps, Trend
from emu.experiment.systems import Target
from emu.graph_data import open_for
from emu.graph_data.drawn_graph import DrawnGraph
from emu.prediction.analysis.throughput import Speed, speed_of
from emu.problem import Job, Schedule
from emu.scenario import Experiment, Scenario
from emu.scenario.run_sections import ExpectSection
from emu.scenario.virtual_training import Curve, time_looks
from emu.training.looks import Look, epoch_of, trains_whole_graph


@dataclass(frozen=True)
class Draw:
    """Figures of one seed."""

    scenario: Scenario
    """Scenario of which ``emu simulate`` finds the same makespan; where steps are
    recorded, some of the steps."""
    makespan: float
    """Seconds, with what deaths add."""
    speed: Speed
    reached: Look | None
    """Look at which the target was reached."""
    curve: Curve
    """Accuracy over time until then."""
    trend: Trend | None = None
    """Steps of smaller graphs, from which those to the target follow."""
    ghost_error: float = 0.0
    """Half of the 95 % interval of the rows that parts read of others, as a share of
    them; 0 where they are counted."""


@dataclass(frozen=True)
class Confirmation:
    """A row over sockets: its run directory, and what its result.json says."""

    path: str
    makespan: float
    makespan_error: float
    trust: str
    outcome: str
    """Verdict on this host, and whether prediction and run agree; of several runs the
    least trust, and whether a further one would."""
    runs: int = 1
    """Runs, of whose makespans and errors the medians are given."""
    further: tuple[float, float] | None = None
    """Seconds within which a further run ends, with 95 %; None of one run."""


def time_draw(
    ready: Experiment,
    schedule: Schedule,
    target: Target | None,
    found: FoundSteps | None = None,
) -> Draw:
    """Return the figures of a schedule, with its looks at the training.

    ``found``: looks to the target that its job did not train; the schedule has some of
    its steps then, and all are taken to be as long as these.
    """
    job = schedule.problem.job
    # By the length without deaths: what they add is no speed of the job.
    speed = speed_of(
        job,
        task_end=schedule.task_end,
        seconds=schedule.length,
        epoch=epoch_of(job.settings),
    )
    seconds = schedule.makespan
    reached = ready.reached
    curve: Curve = ()
    if found:
        reached = found.looks[-1]
        curve = time_steps(found.looks, speed.iteration_seconds)
        seconds = reached.step * speed.iteration_seconds
    elif ready.looks:
        curve = time_looks(ready.looks, ready.scenario, schedule)
    if curve and target and target.counts_looks:
        pause = look_seconds(ready)
        seconds += pause * len(curve)
        curve = delay_looks(curve, pause)

    scenario = ready.stated or ready.scenario
    # What the file expects is not of a row, which may be written as a file of its own.
    scenario = scenario.model_copy(update={"expect": ExpectSection()})
    return Draw(
        scenario=scenario,
        makespan=seconds,
        speed=speed,
        reached=reached,
        curve=curve,
        trend=found.trend if found else None,
        ghost_error=_ghost_error(job),
    )


def _ghost_error(job: Job) -> float:
    """Return how unsure the volumes between parts of a drawn graph are."""
    settings = job.settings
    if "model" not in settings or not trains_whole_graph(settings):
        return 0.0
    dataset = open_for(settings)
    return dataset.ghost_error if isinstance(dataset, DrawnGraph) else 0.0
