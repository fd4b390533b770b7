"""``emu lab``, ``exec`` and ``fit``: own programs on emulated machines."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from emu.cli.app import app, argument, option
from emu.cli.options import JsonTarget, Overrides, ScenarioFile, emit
from emu.cli.repeat_runs import Plan, read_plan, repeat_runs, show_repeats
from emu.cli.report_commands import draw
from emu.errors import EmulatorError, ExpectationMissed, RunError, ScenarioError
from emu.host.files import check_writable, write_atomic
from emu.host.first_moments import hold_signals
from emu.host.foreign_code import ask_to_run
from emu.host.this_host import module_command
from emu.lab.fit_run import Fit, fit_run
from emu.lab.fitting.iterations import Template
from emu.lab.machines.lab import missing_needs
from emu.lab.output_lines import last_words
from emu.lab.prediction import list_lab_misses
from emu.lab.run import run_lab
from emu.lab.setup import open_lab
from emu.names import for_terminal
from emu.report.html.lab_page import lab_tables
from emu.report.terminal import plain_table, terminal
from emu.runs.lab_file import LabResult, duration_of, holder_of, log_name
from emu.runs.repeats import RunFigures
from emu.runs.run_directory import RunDirectory
from emu.scenario import load
from emu.scenario.run_sections import LabFile, LabPredictionSection
from emu.scenario.scenario_file import load_lab
from emu.units import format_duration

#: Bytes at the end of a program's output in which its last line is looked for: the
#: frame of torchrun takes 2,500. Characters of that line that are shown.
_END = 1 << 14
_SHOWN = 300


@app.command()
def lab(
    file: ScenarioFile,
    command: list[str] | None = argument(
        "[-- COMMAND]", "Runs on every machine; not the file's.", None
    ),
    overrides: Overrides = None,
    *,
    runs: Path = option(
        "DIR", "Where the run directory goes.", Path("runs"), is_eager=True
    ),
    shell: str = option("MACHINE", "Open a shell there instead.", ""),
    pcap: bool = option("--pcap", "Write traffic.pcap: all headers, for Wireshark."),
    repeat: str = option("N|auto", "Run so often; say what a further lab does.", "1"),
    within: str = option(
        "TIME", "With --repeat auto: start none after it (5 min).", ""
    ),
    json_target: JsonTarget = None,
) -> None:
    """Run your own programs on emulated machines with kernel NICs.

    Every machine is a host of its own: address, host name, processes, shared memory.
    Its NIC carries the payload rate that the file states, in real time. With --repeat
    a prediction agrees only where a further lab would, with 95 %.
    """
    spec = load_lab(file, overrides or [])
    plan = read_plan(repeat, within, {"--shell": shell})
    if shell:
        _refuse_results(json_target, command, pcap=pcap)
    if needs := missing_needs():
        raise RunError("; ".join(needs))
    if shell:
        # The exit code of the shell is that of the command.
        raise typer.Exit(_open_shell(spec, shell))

    name = file.stem
    if file.name == "lab.yaml":  # as `emu init` writes it: by its folder
        name = file.resolve().parent.name
    console = terminal(sys.stderr)
    # What the user types is the user's own; programs of a file may be of others.
    if not command:
        names = ", ".join(program.name for program in spec.lab.programs)
        ask_to_run(str(file), f"programs {names}")

    def run_once() -> tuple[Path, LabResult]:
        directory = RunDirectory.create(f"{name}-lab", runs)
        try:
            result = run_lab(
                spec, directory, command or [], pcap=pcap, watch=console.print
            )
        except EmulatorError:
            # What was refused before it began has left nothing.
            directory.remove_empty()
            raise
        return directory.path, result

    if plan is not None:
        _repeat_lab(
            spec=spec,
            run_once=run_once,
            plan=plan,
            json_target=json_target,
            console=console,
        )
        return

    path, result = run_once()
    draw(path, console)
    if emit(json_target, result):
        terminal().print(lab_tables(result))
    console.print(f"written to {path}/")
    _judge_lab(spec, result, path, console)


def _refuse_results(
    json_target: str | None, command: list[str] | None, *, pcap: bool
) -> None:
    """Raise ScenarioError where an option is stated that a shell has no use for."""
    stated: dict[str, object] = {
        "--json": json_target,
        "--pcap": pcap,
        "-- COMMAND": command,
    }
    problem = "is of a lab that runs: leave it out, or --shell"
    for name, value in stated.items():
        if value:
            raise ScenarioError(problem, file=name)


def _judge_lab(
    spec: LabFile,
    result: LabResult,
    path: Path,
    console: Console,
) -> None:
    """Exit with the code of a program that failed; raise where a verdict is missed."""
    if result["failed"]:
        code = _say_what_failed(result["failed"], path, console)
        raise typer.Exit(code)
    if misses := list_lab_misses(spec, result):
        raise ExpectationMissed("; ".join(misses))


def _repeat_lab(
    spec: LabFile,
    run_once: Callable[[], tuple[Path, LabResult]],
    plan: Plan,
    json_target: str | None,
    console: Console,
) -> None:
    """Run the programs several times; show what the labs say together."""
    results = []

    def lab_once() -> RunFigures:
        path, result = run_once()
        # One that failed ends the command: no further one says more.
        if result["failed"]:
            _judge_lab(spec, result, path, console)
        results.append((path, result))
        prediction = result.get("prediction", {})
        return RunFigures(
            path=str(path),
            makespan=duration_of(result),
            error=prediction.get("error"),
            trust=result["trust"],
        )

    section = spec.lab.prediction
    threshold = LabPredictionSection.model_fields["max_difference"].default
    if section is not None:
        threshold = section.max_difference
    repeats = repeat_runs(
        run_once=lab_once,
        plan=plan,
        threshold=threshold,
        console=console,
    )
    show_repeats(repeats, json_target, console)
    for path, result in results:
        _judge_lab(spec, result, path, console)


def _open_shell(spec: LabFile, machine: str) -> int:
    """Open a shell on a machine; return its exit code once it has ended."""
    with open_lab(spec) as machines:
        names = [candidate.name for candidate in machines.machines]
        if machine not in names:
            raise RunError(f"{machine} is no machine; there are {', '.join(names)}")
        # 0 and 1 are this terminal, which the shell takes over.
        program = machines.start(machine, ["sh", "-i"], stdin=0, output=1)
        while program.code is None:
            machines.wait(1.0)
        return program.code


def _say_what_failed(failed: LabResult, run: Path, console: Console) -> int:
    """Print which program failed, and the end of its output; return its exit code."""
    code: int = failed["code"]
    if code <= 0:
        code = 128 - code  # of a signal, as shells have it

    program = failed["program"]
    machine = failed["machine"]
    log = run / log_name(program, machine)
    console.print(
        f"{program} failed first, on {machine}, with exit code "
        f"{code}: its output is {log}"
    )

    # A log may be gigabytes: its end alone is read.
    size = log.stat().st_size
    with log.open("rb") as file:
        file.seek(max(0, size - _END))
        text = file.read().decode(errors="replace")
    if line := last_words(text):
        shown = for_terminal(line[-_SHOWN:])
        console.print(f"which ends: {shown}")
    return code


@app.command()
def fit(
    run: Path = argument("RUN", "Run directory of emu lab."),
    out: Path = option("--out -o FILE", "Scenario to write: YAML or JSON.", ...),
    skip: int = option("N", "Leave the first N iterations out.", 0, min=0),
    mark: str = option("LINE", "Iterations begin where a program printed this.", ""),
    iterations: int = option("N", "How many there were, all in all.", 0, min=0),
    against: Path | None = option(
        "RUN", "Hold it against a run of the lab at other NICs."
    ),
    template: Template | None = option(
        "distdgl|allreduce", "What the job is: every iteration is then the mean one."
    ),
    *,
    force: bool = option("--force", "Fit a lab whose programs waited for cores, too."),
    json_target: JsonTarget = None,
) -> None:
    """Make a scenario of what crossed in a lab.

    Volumes are those that crossed, times the gaps between what a process received and
    what it sent next. Processes of one program sum by all-reduces round a ring, with
    which iterations end; those of two programs ask and answer. Without such sums
    iterations are what repeats, or what --mark says. Where that can be read in two
    ways, --iterations decides. With --against the scenario says how far it was off at
    other NICs, wherever it predicts.
    """
    # A fit takes minutes: a file that cannot be written is refused before.
    check_writable(out)
    outcome = fit_run(
        run,
        skip=skip,
        template=template,
        mark=mark,
        count=iterations or None,
        force=force,
        against=against,
    )
    text = outcome.text(out.name)
    write_atomic(out, text)

    if emit(json_target, outcome.to_json()):
        terminal().print(_table_of_fit(outcome))
        for note in outcome.notes:
            typer.echo(note)
        typer.echo(f"written to {out}")
        typer.echo(load(out).job.fit_note)


def _table_of_fit(outcome: Fit) -> Table:
    """Return seconds per iteration, of all and of the half that was held out."""
    count = outcome.iterations
    table = plain_table(
        f"{count} iterations from number {outcome.first}: seconds of each",
        "",
        ">measured",
        ">simulated",
        ">error",
    )
    table.add_row(
        "of all, by all",
        format_duration(outcome.measured, 4),
        format_duration(outcome.simulated, 4),
        f"{outcome.error:+.2%}",
    )

    # The halves test the fit: one that only remembers would miss the later iterations.
    first_half = count // 2
    last_half = count - first_half
    table.add_row(
        f"of the last {last_half}, by the first {first_half}",
        format_duration(outcome.held_out_measured, 4),
        format_duration(outcome.held_out_simulated, 4),
        f"{outcome.held_out_error:+.2%}",
    )
    return table


@app.command("exec")
def run_beside(
    run: Path = argument("RUN", "Run directory of emu lab."),
    machine: str = argument("MACHINE", "Where the command runs."),
    command: list[str] | None = argument("-- COMMAND", "With its arguments.", None),
) -> None:
    """Run a command beside a lab that is running.

    It runs in a machine's namespaces, with this terminal and in this directory, and
    its exit code is the one of this command. It ends when the lab does. What it sends
    crosses the machine's NIC.
    """
    holder = holder_of(run, machine)
    if not command:
        raise ScenarioError("there is no command: emu exec RUN MACHINE -- COMMAND")
    # As programs of the lab have it, so that the same scripts run in both.
    os.environ["EMU_MACHINE"] = machine
    arguments = module_command("emu.lab.machines.exec", str(holder), *command)
    hold_signals()
    os.execv(sys.executable, arguments)  # noqa: S606 - the command is the user's own
