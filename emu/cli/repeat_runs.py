"""Several runs of one scenario, one after the other, and what they say together."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from rich.console import Console

from emu.cli.options import emit, seconds
from emu.cli.report_commands import draw
from emu.emulation.coordinator import RunSettings
from emu.emulation.coordinator.company import Company
from emu.errors import ExpectationMissed, RunUntrusted, ScenarioError
from emu.experiment.expectations import find_misses
from emu.experiment.run_experiment import obstacle_to_staying
from emu.experiment.run_result import RunResult
from emu.report.repeats_table import repeats_table
from emu.report.terminal import terminal
from emu.runs.repeats import Repeats, RunFigures, iteration_lengths
from emu.runs.result import Result
from emu.scenario import Experiment, Scenario
from emu.trust.verdict import Trust
from emu.units import format_duration, format_ratio

#: Runs of ``--repeat auto`` at most, and before it may end: an interval of two is wide
#: by chance alone (Student's t of one degree of freedom is 12.7).
_MOST = 20
_LEAST = 3
#: Wall time after which ``--repeat auto`` starts no further run.
_WITHIN = "5 min"

#: Runs once more over sockets, with settings; returns its directory and result.
RunOver = Callable[[RunSettings], tuple[Path, RunResult]]
#: Runs once more; returns what is kept of it.
RunOnce = Callable[[], RunFigures]


@dataclass(frozen=True)
class Plan:
    """Number of runs, or a limit of their time."""

    count: int | None
    """None until a further run would end within what a prediction may be off."""
    within: float
    """Without a count, seconds of wall time after which no further run starts."""


def read_plan(
    text: str, within: str = "", of_one_run: Mapping[str, object] = MappingProxyType({})
) -> Plan | None:
    """Return what ``--repeat`` and ``--within`` ask for; None of one run.

    ``of_one_run``: other options, by name, that several runs have no use for.
    Raises ScenarioError where one of these is stated, ``text`` is neither ``auto`` nor
    a number of 1 or more, or a time is stated for a number of runs.
    """
    if within and text != "auto":
        problem = "limits --repeat auto: write that, or leave it out"
        raise ScenarioError(problem, file=f"--within {within}")
    if text == "1":
        return None

    for name, value in of_one_run.items():
        if value:
            problem = f"is of one run: leave --repeat {text} out"
            raise ScenarioError(problem, file=name)
    if text != "auto" and not (text.isdecimal() and int(text)):
        problem = "write a number of runs, or auto"
        raise ScenarioError(problem, file=f"--repeat {text}")
    count = None if text == "auto" else int(text)
    return Plan(count, within=seconds(within or _WITHIN, "--within"))


def repeat_experiment(
    experiment: Experiment,
    settings: RunSettings,
    once: RunOver,
    plan: Plan,
    json_target: str | None,
    *,
    strict: bool,
) -> None:
    """Carry an experiment out several times; show what the runs say together.

    Raises ExpectationMissed, RunUntrusted as `judge`, once all have run.
    """
    console = terminal(sys.stderr)
    repeats, contents = gather_runs(
        experiment=experiment,
        settings=settings,
        once=once,
        plan=plan,
        console=console,
    )
    show_repeats(repeats, json_target, console)
    for content in contents:
        judge(experiment.scenario, content, strict=strict)


def gather_runs(
    experiment: Experiment,
    settings: RunSettings,
    once: RunOver,
    plan: Plan,
    console: Console,
) -> tuple[Repeats, list[Result]]:
    """Return several runs of an experiment, and the result.json of each.

    Agents and processes stay from one run to the next, where nothing forbids it.
    """
    contents: list[Result] = []
    threshold = experiment.scenario.emulation.max_difference
    obstacle = obstacle_to_staying(experiment, settings)
    with Company() as company:
        staying = replace(settings, company=company)

        def run_once() -> RunFigures:
            path, result = once(staying)
            contents.append(result.content)
            news = ""
            if len(contents) > 1:
                news = obstacle or company.news
            return _part_of(path, result, news)

        repeats = repeat_runs(
            run_once=run_once,
            plan=plan,
            threshold=threshold,
            console=console,
        )
        return repeats, contents


def judge(scenario: Scenario, result: Result, *, strict: bool) -> None:
    """Raise ExpectationMissed where a run missed an ``expect:`` of its scenario.

    Raises RunUntrusted where it is not trusted and that is asked for.
    """
    if misses := find_misses(scenario.expect, result):
        raise ExpectationMissed("; ".join(misses))
    verdict = result["verdict"]
    trust = verdict["trust"]
    if strict and trust != Trust.TRUSTED:
        reasons = "; ".join(verdict["reasons"])
        raise RunUntrusted(f"{trust}: {reasons}")


def repeat_runs(
    run_once: RunOnce,
    plan: Plan,
    threshold: float,
    console: Console,
) -> Repeats:
    """Run so often, a line for each; return what the runs say together.

    ``threshold``: share by which a prediction may be off.
    """
    repeats = Repeats((), threshold)
    began = time.monotonic()
    is_enough = False
    while not is_enough:
        run = run_once()
        repeats = Repeats((*repeats.runs, run), threshold)
        line = _line_of(repeats, plan.count)
        console.print(line)
        number = len(repeats.runs)
        if plan.count is not None:
            is_enough = number == plan.count
        else:
            is_late = time.monotonic() - began >= plan.within
            is_sure = number >= _LEAST and repeats.is_decided
            is_enough = is_late or is_sure or number == _MOST
    return repeats


def _part_of(path: Path, result: RunResult, news: str) -> RunFigures:
    """Return what is kept of a run over sockets; ``news``: why it started anew."""
    content = result.content
    lengths = iteration_lengths(result.run.schedule)
    return RunFigures(
        path=str(path),
        makespan=content["makespan"],
        error=content["makespan_error"],
        trust=content["verdict"]["trust"],
        iterations=tuple(lengths.tolist()),
        started_anew=news,
    )


def _line_of(repeats: Repeats, count: int | None) -> str:
    """Return the line of the latest run."""
    run = repeats.runs[-1]
    number = len(repeats.runs)
    label = f"run {number}"
    if count is not None:
        label += f" of {count}"
    makespan = format_duration(run.makespan)
    error = "" if run.error is None else f", {format_ratio(run.error)}"
    line = f"{label}: {makespan}{error}, {run.trust}; {run.path}/"
    if run.started_anew:
        line += f"; started anew: {run.started_anew}"
    return line


def show_repeats(repeats: Repeats, target: str | None, console: Console) -> None:
    """Print the table, or write JSON; draw the run that is nearest to the median."""
    if emit(target, repeats.to_json()):
        terminal().print(repeats_table(repeats))
    draw(Path(repeats.nearest.path), console)
