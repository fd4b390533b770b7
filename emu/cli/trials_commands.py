"""``emu trials``: whole runs of a scenario in virtual time, under drawn faults."""

from __future__ import annotations

import shlex
from collections import Counter

import typer

from emu.cli.app import app, option
from emu.cli.options import JsonTarget, Overrides, ScenarioFile, emit
from emu.cli.signs_of_life import note_stage
from emu.errors import RunError
from emu.names import for_terminal
from emu.scenario import load, prepare
from emu.testing.trials import Case, Trial, Trials


@app.command()
def trials(
    file: ScenarioFile,
    overrides: Overrides = None,
    count: int = option("N", "How many runs, a seed each.", 100, min=1),
    seed: int = option("N", "The first seed.", 0, min=0),
    hosts: int = option("N", "Hosts, which share no memory.", 1, min=1),
    json_target: JsonTarget = None,
) -> None:
    """Try whole runs in virtual time, under faults drawn from seeds.

    Coordinator, agents and node programs run in this process, without sockets and
    clocks. Processes die, connections break, delay and damage what they carry. A run
    has to end as one without faults does, or with one error that names who is to
    blame. One seed alone (--count 1) prints its faults and its log.

    Raises
    ------
    RunError
        When a run ended otherwise, or one without faults fails.
    """
    case = Case.of(prepare(load(file, overrides or [])), hosts=hosts)
    # The run without faults comes first: others are compared with it.
    try:
        tries = Trials(case)
    # Trials are tests first, and say by an assertion that there is nothing to compare
    # with; a command ends in a line.
    except AssertionError as error:
        raise RunError(str(error)) from error
    outcomes = Counter[str]()
    bad = dict[int, list[str]]()
    is_single = count == 1
    for number in range(seed, seed + count):
        note_stage(f"seed {number}")
        trial = tries.run(number)
        if trial.run:
            outcomes["equal results"] += 1
        elif trial.error:
            outcomes[type(trial.error).__name__] += 1
        else:
            outcomes["coordinator killed"] += 1
        if trial.complaints:
            bad[number] = trial.complaints
        if json_target is None and (trial.complaints or is_single):
            _print_trial(number, trial, with_log=is_single)

    content = {
        "trials": count,
        "outcomes": outcomes,
        "complaints": bad,
    }
    if emit(json_target, content):
        counts = [f"{times} {outcome}" for outcome, times in outcomes.most_common()]
        ends = ", ".join(counts)
        typer.echo(f"{count} trials from seed {seed}: {ends}; {len(bad)} bad")
    if bad:
        first = next(iter(bad))
        words = [str(file)]
        for override in overrides or []:
            words += ["--set", override]
        command = f"emu trials {shlex.join(words)} --seed {first} --count 1"
        problem = f"{len(bad)} of {count} trials are bad: {command} shows its log"
        raise RunError(problem)


def _print_trial(seed: int, trial: Trial, *, with_log: bool) -> None:
    lines = [
        f"seed {seed}: {trial.faults}",
        f"  happened: {trial.happened}",
        f"  ended with: {trial.error or 'a result'}",
        *(f"  ! {complaint}" for complaint in trial.complaints),
    ]
    if with_log:
        lines.append(trial.log)
    text = "\n".join(lines)
    for line in text.splitlines():
        # Logs hold what faults have damaged, which may be orders to a terminal.
        typer.echo(for_terminal(line))
