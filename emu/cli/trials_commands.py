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
from emu.testing.trials import Case, Trials


@app.command()
def trials(
    file: ScenarioFile,
    overrides: Overrides = None,
    count: int = option("N", "How many runs, a seed each.", 100, min=1),
    seed: int = option("N", "The first seed.", 0),
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
    try:
        tries = Trials(case)
    except AssertionError as error:
        raise RunError(str(error)) from error
    outcomes = Counter[str]()
    bad = dict[int, list[str]]()
    for each in range(seed, seed + count):
        note_stage(f"seed {each}")
        trial = tries.run(each)
        end = type(trial.error).__name__ if trial.error else "coordinator killed"
        outcomes["equal results" if trial.run else end] += 1
        if trial.complaints:
            bad[each] = trial.complaints
        if json_target is None and (trial.complaints or count == 1):
            whole = count == 1
            lines = [
                f"seed {each}: {trial.faults}",
                f"  happened: {trial.happened}",
                f"  ended with: {trial.error or 'a result'}",
                *(f"  ! {complaint}" for complaint in trial.complaints),
            ]
            for line in "\n".join([*lines, trial.log] if whole else lines).splitlines():
                typer.echo(for_terminal(line))
    if emit(json_target, {"trials": count, "outcomes": outcomes, "complaints": bad}):
        ends = ", ".join(f"{n} {outcome}" for outcome, n in outcomes.most_common())
        typer.echo(f"{count} trials from seed {seed}: {ends}; {len(bad)} bad")
    if bad:
        first = next(iter(bad))
        words = [
            str(file),
            *(word for one in overrides or [] for word in ("--set", one)),
        ]
        again = f"emu trials {shlex.join(words)} --seed {first} --count 1 shows its log"
        raise RunError(f"{len(bad)} of {count} trials are bad: {again}")
