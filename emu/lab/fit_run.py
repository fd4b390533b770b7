"""A scenario fitted to a run of a lab, and how far its simulation is from the run."""

from __future__ import annotations

import contextlib
import copy
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML

from emu.errors import DataError
from emu.lab.fitting import iterations
from emu.lab.fitting.causes import FittedSteps, overtaken
from emu.lab.fitting.conversations import Unfittable
from emu.lab.fitting.fitted_job import write_fit
from emu.lab.fitting.iterations import FittedIterations, Template
from emu.lab.fitting.steps import Marks, Step, describe_ends
from emu.lab.output_lines import marks_of
from emu.lab.run import MORE_CORES, MOST_WAITS
from emu.names import file_part
from emu.prediction.analysis.traffic import Traffic
from emu.runs.array_files import read_traffic
from emu.runs.lab_file import LabResult, read_lab
from emu.scenario import prepare
from emu.scenario.document import MOST_YAML
from emu.scenario.scenario_file import loads

#: Columns of a line of YAML: a list of times stays on one.
_WIDTH = 1 << 16
#: Share by which a ring's simulation is off that runs no all-reduce: an all-gather was
#: by 45 %, sums of gloo and DistDGL by 3 at most.
_NO_SUM = 0.1


@dataclass(frozen=True)
class Fit:
    """A fitted scenario, with what it says of the run that it was made of."""

    document: dict[str, Any]
    """The scenario."""
    iterations: int
    first: int
    """Number of iterations, and the number of the first of them in the run."""
    measured: float
    simulated: float
    """Seconds per iteration."""
    held_out_measured: float
    held_out_simulated: float
    """Likewise: those of the second half, and of the simulation of a fit to the
    first."""
    other_error: float | None = None
    """Simulated over measured, minus 1, at other NICs; None where nobody measured."""
    notes: tuple[str, ...] = ()
    """Reasons for which other NICs may change more than the simulation shows."""

    @property
    def error(self) -> float:
        """Simulated over measured, minus 1."""
        return self.simulated / self.measured - 1

    @property
    def held_out_error(self) -> float:
        """Likewise of the iterations that were held out."""
        return self.held_out_simulated / self.held_out_measured - 1

    def to_json(self) -> dict[str, Any]:
        """Return all of it but the scenario."""
        figures = {
            **vars(self),
            "error": self.error,
            "held_out_error": self.held_out_error,
        }
        del figures["document"]
        return figures

    def text(self, name: str) -> str:
        """Return the content of a scenario file of this name, YAML or JSON.

        Raises DataError when it is more than is read of a YAML file.
        """
        fitted_name = self.document["name"]
        head = (
            f"# By `emu fit` from {fitted_name}: what crossed in "
            f"{self.iterations} iterations\n"
            f"# from number {self.first}, at {self.measured:.6g} s each.\n"
        )
        if name.endswith(".json"):
            return json.dumps(self.document)
        yaml = YAML()
        # None writes lists of numbers on a line, and what holds them on several.
        yaml.default_flow_style = None
        yaml.width = _WIDTH
        text = io.StringIO(head)
        # A StringIO that begins with a text writes over it from its beginning.
        text.seek(0, io.SEEK_END)
        yaml.dump(self.document, text)
        content = text.getvalue()
        size = len(content)
        if size > MOST_YAML:
            raise DataError(
                f"is a fit of {size:,} characters of YAML, at most "
                f"{MOST_YAML:,} are read: name it .json",
                path=name,
            )
        return content


def fit_run(
    run: Path,
    *,
    skip: int = 0,
    template: Template | None = None,
    mark: str = "",
    count: int | None = None,
    force: bool = False,
    against: Path | None = None,
) -> Fit:
    """Return a scenario with the job that ran in a lab, by its run directory.

    ``skip`` iterations at the beginning are left out. With a template all iterations
    are like the mean one. ``mark`` is text in the lines that a program printed when an
    iteration began; ``count`` says how many there were, where what repeats can be read
    in several ways. With ``force`` also of a lab that is not trusted. A run ``against``
    which it is held, of the same lab at other NICs, says how far it is off there, and
    so does the scenario from then on. Raises DataError
    when the directory is no run of a lab, its traffic was not noted, NICs changed,
    programs waited for cores, or a fit understands none of what crossed.
    """
    traffic, lab = _read_run(run, force=force)
    name = file_part(run.resolve().name)
    cores = lab.get("cpu", {})
    try:
        marks = _read_marks(run, mark, lab, traffic)
        outcome = iterations.fit_traffic(traffic, skip=skip, marks=marks, count=count)
        job = _make_fit(name, outcome, traffic, cores, template)
        ring = isinstance(outcome, FittedIterations) and template is None
        # An all-gather goes round a ring once: gloo's was off by 45 % as an all-reduce
        # at its own NICs, and by 0.4 % by its steps.
        if ring and abs(job.error) > _NO_SUM:
            with contextlib.suppress(Unfittable):
                outcome = iterations.fit_traffic(
                    traffic,
                    skip=skip,
                    ring=False,
                    count=count,
                )
                by_steps = _make_fit(name, outcome, traffic, cores, None)
                job = min(job, by_steps, key=lambda fit: abs(fit.error))
    except Unfittable as error:
        raise DataError(f"cannot be fitted: {error}", path=run) from error
    if against is None:
        return job

    other_run, other_lab = _read_run(against, force=force)
    if problem := _mismatch(traffic, other_run, lab, other_lab):
        raise DataError(problem, path=against)
    try:
        marks = _read_marks(against, mark, other_lab, other_run)
        measured = iterations.fit_traffic(
            other_run, skip=skip, marks=marks, count=count
        )
    except Unfittable as error:
        raise DataError(f"cannot be fitted: {error}", path=against) from error
    return _hold_against(job, other_run, measured.seconds)


def _hold_against(job: Fit, held: Traffic, measured: float) -> Fit:
    """Return a fit that knows how far it is off at the NICs of another run."""
    document = copy.deepcopy(job.document)
    machines = document["cluster"]["machines"]
    for number, machine in enumerate(machines):
        rate_out, rate_in = held.nics[:, number]
        machine["nic"] = {
            "out": f"{rate_out:.10g} B/s",
            "in": f"{rate_in:.10g} B/s",
        }
    name = str(document["name"])
    predicted = _simulated(name, document) / job.iterations
    error = predicted / measured - 1

    document = copy.deepcopy(job.document)
    document["job"]["fit_error"] = round(error, 6)
    return replace(job, document=document, other_error=error)


def _mismatch(
    traffic: Traffic,
    held: Traffic,
    lab: LabResult,
    other_lab: LabResult,
) -> str:
    """Return why a run says nothing of a fit at other NICs; empty if it does."""
    if traffic.machines != held.machines:
        return "is of other machines than the run that is fitted: run the same lab"
    cores = lab.get("cpu", {})
    other_cores = other_lab.get("cpu", {})
    if cores != other_cores:
        return "has other cores than the run that is fitted: state the same cpu"
    if np.array_equal(traffic.nics, held.nics):
        return "has the NICs of the run that is fitted: state others, as half of them"
    return ""


def _read_marks(
    run: Path,
    mark: str,
    lab: LabResult,
    traffic: Traffic,
) -> Marks | None:
    if not mark:
        return None
    programs = [(row["program"], row["machine"]) for row in lab["programs"]]
    return marks_of(run, mark, programs, traffic)


def _read_run(run: Path, *, force: bool) -> tuple[Traffic, LabResult]:
    """Return what crossed, and lab.json; raises DataError where no fit is right."""
    traffic = read_traffic(run)
    lab = read_lab(run)
    if lab["events"]:
        raise DataError(
            "cannot be fitted: NICs changed while it ran (events), and times fitted "
            "across that would be of neither",
            path=run,
        )
    # Waits become computing: such fits were 15 % off and looked right.
    if lab["trust"] != "trusted" and not force:
        gain = max(lab["waited_share"], lab.get("early_share", 0.0))
        percent = 100 * gain
        most_percent = 100 * MOST_WAITS
        remedy = "state a larger lab.time_scale" if lab.get("cpu") else MORE_CORES
        raise DataError(
            f"cannot be fitted: waits for cores, or what pauses left of quotas, were "
            f"{percent:.2g} % of what programs computed ({most_percent:g} % may "
            f"be), and would be taken for computing; {remedy} and run it again, or fit "
            "it with --force",
            path=run,
        )
    return traffic, lab


def _make_fit(
    name: str,
    found: FittedIterations | FittedSteps,
    traffic: Traffic,
    cores: Mapping[str, float],
    template: Template | None,
) -> Fit:
    # What the first half predicts is compared with the second, which it has not seen.
    half = found.count // 2
    late = found.part(half, found.count)
    early = found.part(0, half)
    if template is not None:
        found = iterations.mean_iterations(found, template)
        early = iterations.mean_iterations(early, template)

    job = write_fit(name, found, traffic, cores)
    early_job = write_fit(name, early, traffic, cores)
    return Fit(
        document=job,
        iterations=found.count,
        first=found.first,
        measured=found.seconds,
        simulated=_simulated(name, job) / found.count,
        held_out_measured=late.seconds,
        held_out_simulated=_simulated(name, early_job) / early.count,
        notes=tuple(_notes(found, traffic)),
    )


def _simulated(name: str, job: dict[str, Any]) -> float:
    text = json.dumps(job)
    scenario = loads(text, name=f"{name}.json")
    schedule = prepare(scenario).simulate()
    return schedule.makespan


def _notes(found: FittedIterations | FittedSteps, traffic: Traffic) -> Iterator[str]:
    """Yield a sentence where programs may wait for the kernel to take a step."""
    # A kernel that took all of a large message takes less of it at slower NICs: a
    # server that answers three workers in turn was off by 13 %.
    if not isinstance(found, FittedSteps):
        return
    large = overtaken(found)
    if not large:
        return

    further = len(large) - 1
    count = f" (and {further} others)" if further else ""
    largest = max(large, key=_usual_size)
    size = _usual_size(largest)
    ends = describe_ends((largest.source, largest.destination), traffic)
    yield (
        f"{size:,.0f} bytes{count} from {ends} were on "
        "their way when their sender went on: with a slower NIC it may wait in send(), "
        "which no fit at these NICs shows"
    )


def _usual_size(step: Step) -> float:
    return float(np.median(step.sizes))
