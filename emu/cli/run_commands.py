"""``emu run``, ``emu profile`` and ``emu agent``: what starts processes."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from emu.cli.app import app, argument, option
from emu.cli.host_options import Hosts
from emu.cli.options import (
    JsonTarget,
    Overrides,
    ScenarioFile,
    emit,
)
from emu.cli.packet_options import Queues, Tcp, refuse_packet_options
from emu.cli.repeat_runs import judge, read_plan, repeat_experiment
from emu.cli.report_commands import draw
from emu.cli.trace_times import check_trace, profile_of_trace
from emu.cli.watching import LiveViews, ProgressLine, address
from emu.emulation.coordinator import RunSettings
from emu.emulation.launch.host_report import loopback_rate, usable_cores
from emu.emulation.launch.programs import program_path
from emu.errors import DataError, ScenarioError
from emu.experiment import profiling
from emu.experiment.attempts import Beginning, resume_run
from emu.experiment.auto_scale import with_byte_scale, with_scales
from emu.experiment.dry_run import (
    DryRun,
    check_memory,
    check_messages,
    check_ready,
    strain,
)
from emu.experiment.dry_run import dry_run as dry_run_of
from emu.experiment.profiling import (
    WARNED,
    check_load,
    host_load,
    measure_rates,
    rates_keys,
)
from emu.experiment.run_experiment import carry_out
from emu.experiment.run_result import RunResult
from emu.experiment.trace_profile import parse_ranges
from emu.experiment.witness import PacketNetwork, with_witness
from emu.host.files import check_writable
from emu.host.first_moments import hold_signals
from emu.host.this_host import module_command
from emu.prediction import packets
from emu.prediction.packets import Control, Shares
from emu.problem import Profile
from emu.report.measured_tables import rates_lines, times_lines
from emu.report.run_tables import run_tables
from emu.report.terminal import plain_table, terminal
from emu.runs.run_directory import RunDirectory
from emu.scenario import Experiment, ProfileFile, Scenario, load, write_scenario
from emu.scenario.workload_file import write_profile
from emu.systems.system import outlook_on, remarks_on

#: Iterations or epochs that are measured where no other number is stated.
_PROFILED = 50
#: Directory that takes run directories where no other is stated.
_RUNS = Path("runs")
#: Simulators that judge a run beside ours.
Witness = StrEnum("Witness", "NS3")


def _program(text: str) -> str:
    try:
        return program_path(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Allowed = Annotated[
    list[str] | None,
    option(
        "--allow MODULE:CLASS",
        "Program of one's own that this host may start; repeat for more.",
        ...,
        parser=_program,
    ),
]
Runs = Annotated[
    Path,
    option(
        "--runs DIR", "Directory that takes the run directories.", ..., is_eager=True
    ),
]
Force = Annotated[
    bool,
    option(
        "--force",
        "Measure times even where over 20 % of this host is taken.",
        ...,
        envvar="EMU_FORCE",
    ),
]


@app.command()
def run(
    file: Path | None = argument("FILE", "Scenario, as elsewhere.", None),
    overrides: Overrides = None,
    runs: Runs = _RUNS,
    agents: int = option(
        "N", "Agents to wait for, started on other hosts; 0 starts one here.", 0, min=0
    ),
    patience: str | None = option(
        "TIME", "How long to wait for --agents N; default is 10 minutes."
    ),
    hosts: Path | None = option(
        "FILE", "Hosts to start agents on by ssh, one per line."
    ),
    ray: str = option(
        "ADDRESS", "Ray cluster to start agents on: HOST:PORT, or auto.", ""
    ),
    listen: str = option(
        "HOST[:PORT]",
        "Where agents reach this run; loopback, or the way to its hosts.",
        "",
    ),
    allow: Allowed = None,
    resume: Path | None = option(
        "RUN", "Run directory to go on with, from its last checkpoint."
    ),
    json_target: JsonTarget = None,
    repeat: str = option("N|auto", "Run so often; say what a further run does.", "1"),
    within: str = option(
        "TIME", "With --repeat auto: start no run after it (5 min).", ""
    ),
    witness: Witness | None = option(
        "ns3", "Then simulate it over packets, and say who agrees with whom."
    ),
    sharing: Queues = None,
    congestion_control: Tcp = None,
    *,
    any_version: bool = option(
        "--any-version", "Warn of hosts with another emu, do not refuse them."
    ),
    strict: bool = option("--strict", "Fail unless the verdict is trusted."),
    dry_run: bool = option("--dry-run", "Say what is known; start nothing."),
    dashboard: bool = option("--dashboard", "Serve a live page."),
    force: Force = False,
    live: bool = option("--live", "Show machines and rates in the terminal."),
) -> None:
    """Run a scenario over sockets; compare with the prediction.

    Agents on other hosts are started by ssh (--hosts; its command is EMU_SSH, and that
    of the agents EMU_AGENT), by Ray where it has room for every machine (--ray;
    EMU_RAY_CPUS for each of its processes), or by anybody with ``emu agent HOST:PORT``
    (--agents); the token that admits these is taken from the environment variable
    EMU_TOKEN on both sides. Trials of time_scale: auto run on this host alone.

    One run is one draw. With --repeat N it runs N times, each into a directory of its
    own; with auto until a further run would end as near as a prediction may be off, 20
    times at most. The prediction agrees then only where a further run would, with 95 %.

    A dashboard is served at a free port of loopback, or at EMU_DASHBOARD ([HOST:]PORT;
    a host other than loopback asks viewers for a token). It stays after the run until
    Ctrl-C where standard error is a terminal; an open page keeps the
    run in any case.
    """
    progress = terminal(sys.stderr)
    programs = tuple(allow or ())
    carriers = Hosts(agents, hosts, ray, any_version=any_version, patience=patience)
    listen_at = address(listen, "--listen", port=0) if listen else None
    options = {"--resume": resume, "--witness": witness, "--dashboard": dashboard}
    plan = read_plan(repeat, within, {**options, "--dry-run": dry_run})
    # Before anything starts: the witness follows a run that may take hours.
    check = check_witness(witness, dry=dry_run, stated=(sharing, congestion_control))
    loader = _choose_loader(file, overrides or [], resume)
    if dry_run:
        if resume is not None:
            problem = "says what a whole job takes, not what is left: leave it out"
            raise ScenarioError(problem, file="--dry-run")
        _print_forecast(_only(loader), json_target, is_here=carriers.here)
        return

    beginning = prepare_run(
        loader, resume, runs, check, progress, carriers, force=force, allow=programs
    )
    experiment = beginning.experiment
    settings = carriers.settings(experiment, listen_at, programs)
    _foresee(beginning, settings, progress)
    if plan is not None:
        once = partial(run_once, beginning, runs, progress, live=live)
        repeat_experiment(experiment, settings, once, plan, json_target, strict=strict)
        return
    page = (os.environ.get("EMU_DASHBOARD") or "0") if dashboard else ""
    witnesses = (sharing, congestion_control) if witness is not None else None
    outcome = _run_and_show(
        beginning, settings, runs, progress, json_target, witnesses, page, live=live
    )
    # Outside the views, which show every error inside as a run that failed.
    judge(experiment.scenario, outcome.content, strict=strict)


def _run_and_show(
    beginning: Beginning,
    settings: RunSettings,
    runs: Path,
    progress: Console,
    json_target: str | None,
    tcp: tuple[Shares | None, Control | None] | None,
    page: str,
    *,
    live: bool,
) -> RunResult:
    """Carry an experiment out, show and draw what came of it.

    ``tcp``: sharing and congestion control of its third witness; None without one.
    ``page``: address of the dashboard; empty for none.
    """
    experiment = beginning.experiment
    name = experiment.scenario.name
    directory = beginning.directory or RunDirectory.create(name, runs)
    views = LiveViews(
        experiment, settings, directory.path, progress, page=page, table=live
    )
    with views as observer:
        choice = beginning.choice
        start = beginning.start
        outcome = carry_out(experiment, settings, directory, observer, choice, start)
        if tcp is not None:
            outcome = over_packets(outcome, *tcp, directory, progress)
        # Before tables are printed, which the line that is drawn would run through.
        views.on_end(outcome.content)
        _show_outcome(outcome, json_target)
        progress.print(f"written to {directory.path}/")
        draw(directory.path, progress)
        views.linger()  # with the report drawn
    return outcome


def run_once(
    beginning: Beginning,
    runs: Path,
    progress: Console,
    settings: RunSettings,
    *,
    live: bool,
) -> tuple[Path, RunResult]:
    """Carry an experiment out once more; return its directory and result."""
    experiment = beginning.experiment
    directory = RunDirectory.create(experiment.scenario.name, runs)
    views = LiveViews(experiment, settings, directory.path, progress, table=live)
    with views as observer:
        choice = beginning.choice
        outcome = carry_out(experiment, settings, directory, observer, choice)
        views.on_end(outcome.content)
    return directory.path, outcome


def _show_outcome(outcome: RunResult, json_target: str | None) -> None:
    """Print the tables of a run, and what its rate policy remarks on it; or JSON."""
    if not emit(json_target, outcome.content):
        return
    console = terminal()
    console.print(run_tables(outcome.content))
    schedules = {"simulated": outcome.predicted, "emulated": outcome.run.schedule}
    for line in remarks_on(schedules, outcome.experiment.choose_policy()):
        console.print(line)


def _foresee(beginning: Beginning, settings: RunSettings, progress: Console) -> None:
    """Say what is known of a run before it starts; refuse what memory cannot hold."""
    experiment = beginning.experiment
    scenario = experiment.scenario
    # Of other hosts neither memory nor load is known before they have joined.
    if settings.launcher is None or settings.launcher.embedded:
        forecast = dry_run_of(experiment)
        check_memory(forecast, scenario.job.credit_window)
        # Where a time scale was chosen, trials have shown that this host keeps to it.
        if beginning.choice is None:
            _warn(forecast, progress)
        for remark in experiment.remarks():
            _tell(progress, remark)
    for line in outlook_on(experiment.problem.job.settings):
        progress.print(line)


def _choose_loader(
    file: Path | None, overrides: list[str], resume: Path | None
) -> Callable[[], Scenario] | None:
    """Return what loads the scenario that is named; None where only a run is."""
    if file is not None:
        return partial(load, file, overrides)
    if resume is None:
        problem = "names no scenario: write FILE, or --resume RUN"
        raise ScenarioError(problem, file="emu run")
    if overrides:
        problem = "a run goes on with its own scenario: leave it out"
        raise ScenarioError(problem, file="--set")
    return None


def _only(stated: Callable[[], Scenario] | None) -> Scenario:
    """Return the scenario that is named; refuse to go on without one."""
    if stated is None:
        raise ScenarioError("write FILE: a run alone is not known", file="--dry-run")
    return stated()


def prepare_run(
    stated: Callable[[], Scenario] | None,
    resume: Path | None,
    runs: Path,
    carried: Callable[[Experiment], object],
    progress: Console,
    carriers: Hosts,
    *,
    force: bool,
    allow: tuple[str, ...],
) -> Beginning:
    """Return the experiment of a scenario, or what is left of a run.

    ``carried``: refuses an experiment before anything of it is started.
    """

    def check(scenario: Scenario, folder: Path) -> None:
        check_ready(scenario, folder, here=carriers.here)
        # Stated times are waited for on any host; real computation is slowed by others.
        if scenario.emulation.compute == "real":
            check_load(host_load(), partial(_tell, progress), force=force)

    if resume is not None:
        say = partial(progress.print, soft_wrap=True)
        beginning = resume_run(resume, stated, say)
        check(beginning.experiment.scenario, resume)
        # A run that goes on has its scales; a new one is checked in `with_scales`,
        # before its trials.
        carried(beginning.experiment)
        return beginning

    scenario = _only(stated)
    check(scenario, runs)
    experiment, choice = with_scales(
        scenario,
        lambda trial: progress.print(trial.sentence()),
        allow=allow,
        check=carried,
    )
    if choice and (line := choice.sentence(scenario.emulation.trial_budget)):
        progress.print(line)
    return Beginning(experiment, choice)


def check_witness(
    witness: Witness | None, *, dry: bool, stated: tuple[object, ...]
) -> Callable[[Experiment], object]:
    """Return what refuses an experiment of which the witness can say nothing.

    Raises ScenarioError when options of the packets are ``stated`` without a witness,
    or it without a run (``dry``); DataError when it is not installed.
    """
    if witness is None:
        refuse_packet_options(stated, "--witness ns3")
        return lambda _: None
    if dry:
        problem = "follows a run: leave it out, or emu simulate FILE --network ns3"
        raise ScenarioError(problem, file="--witness")
    if missing := packets.missing_ns3():
        raise DataError(missing, path="--witness ns3")
    return lambda experiment: packets.check_packets(experiment.problem)


def over_packets(
    outcome: RunResult,
    sharing: Shares | None,
    control: Control | None,
    directory: RunDirectory,
    said: Console,
) -> RunResult:
    """Return a run with its third witness; say how many packets that takes."""
    experiment = outcome.experiment
    scale = experiment.scenario.emulation.stated_byte_scale
    count = packets.packets_of(experiment.problem, experiment.realization, scale)
    said.print(f"run written to {directory.path}/; {count:,} packets, by ns-3 ...")
    network = PacketNetwork.of(experiment.scenario, sharing, control)
    return with_witness(outcome, network, directory)


def _print_forecast(
    scenario: Scenario, json_target: str | None, *, is_here: bool
) -> None:
    """Print what the simulation of a scenario says of its run; start nothing.

    ``is_here``: this host alone carries it; of others memory and load are not known.
    """
    if scenario.emulation.network == "kernel":  # no trial is needed there
        experiment, _ = with_scales(scenario)
    else:
        experiment = with_byte_scale(scenario)

    forecast = dry_run_of(experiment)
    window = scenario.job.credit_window
    if emit(json_target, asdict(forecast)):
        name = f"{scenario.name}, credit window {window}"
        table = plain_table(f"{name}: nothing was started", "", ">")
        for label, text in forecast.rows():
            table.add_row(label, text)
        terminal().print(table)

    # After the table, which shows how much is too much.
    if is_here:
        check_memory(forecast, window)
    check_messages(experiment)
    if is_here:
        _warn(forecast, terminal(sys.stderr))


def _warn(known: DryRun, console: Console) -> None:
    """Print a line each on scales that this host cannot keep to, and on full queues."""
    if warning := strain(known, usable_cores(), loopback_rate()):
        _tell(console, warning)
    if known.tcp is not None:
        console.print(known.tcp.sentence())


def _tell(console: Console, said: str) -> None:
    console.print(f"warning: {said}")


@app.command()
def profile(
    file: ScenarioFile,
    out: Path = argument(
        "OUT",
        "Profile to write (JSON); of p3, dgcl and dorylus another scenario (YAML).",
    ),
    overrides: Overrides = None,
    iterations: int | None = option(
        "N", f"Iterations or epochs to measure; default: {_PROFILED}.", None, min=1
    ),
    trace: Path | None = option("--from TRACE", "Of torch.profiler (JSON, gz)."),
    ranges: list[str] | None = option(
        "--range KIND=NAME,...",
        "Ranges of the trace that are a kind of task; default: its name.",
    ),
    runs: Runs = _RUNS,
    *,
    rates: bool = option(
        "--rates", "Measure rates of operations, of three sizes of the job."
    ),
    force: Force = False,
) -> None:
    """Measure task times and volumes by real computation.

    A time is the CPU time that one (task, iteration) takes on this host, so that other
    processes on its cores do not count; volumes are what really crossed the sockets.
    Systems whose tasks overlap iterations (p3, dgcl, dorylus) take no profile: OUT is
    their scenario, with the median time of each kind in job.times.

    With --rates OUT is the scenario with job.rates in place of times, which every
    system takes: fitted to what tasks took at a quarter, half and all of its batch size
    (hidden width, where there are no batches).

    With --from nothing is run: the k-th occurrence of a range that the trace recorded
    (torch.profiler.record_function) is iteration k, and volumes are those of what the
    scenario's samplers will sample.
    """
    console = terminal(sys.stderr)
    if trace is None and ranges:
        raise ScenarioError("is of a trace: add --from TRACE", file="--range")
    if trace is not None:
        _refuse_measuring(rates=rates, iterations=iterations, runs=runs)
        check_trace(trace)
        # A file from which times are to be measured need not state any.
        scenario = load(file, overrides or [], timed=False)
        kinds = parse_ranges(ranges or ())
        content = profile_of_trace(console, scenario, trace, kinds)
        _write_profile(console, out, content)
        return

    scenario_of_file = load(file, overrides or [], timed=False)
    length = iterations or _PROFILED
    scenario = profiling.of_length(scenario_of_file, length)
    # Measuring takes minutes: a file that cannot be written is refused before.
    check_writable(out)
    measure = partial(_measure, runs=runs, console=console, force=force)
    if rates:
        fit = measure_rates(scenario, measure)
        key = "job.rates"
        values = rates_keys(fit, scenario_of_file.job.operation_rates)
        edit = {"job.times": None, "profile": None, key: values}
        write_scenario(out, load(scenario_of_file, edit))
        lines = [*rates_lines(values, fit.residuals)]
    else:
        experiment, outcome = measure(scenario)
        # Tasks that overlap iterations take no profile of single ones.
        if not scenario.job.unprofiled:
            scale = experiment.scenario.emulation.stated_byte_scale
            content = ProfileFile.of(experiment.problem.job, outcome, scale)
            _write_profile(console, out, content)
            return
        times, rest = profiling.times_by_kind(experiment, outcome.times)
        key = "job.times"
        with_times = load(scenario_of_file, {key: times})
        write_scenario(out, with_times)
        lines = times_lines(with_times.job.times, rest)

    first = f"written to {out}, with {key} as measured here:"
    console.print(
        first, *lines, f"next: emu simulate {shlex.quote(str(out))}", sep="\n"
    )


def _refuse_measuring(*, rates: bool, iterations: int | None, runs: Path) -> None:
    """Raise ScenarioError for options of measuring, which a trace does not need."""
    if rates:
        raise ScenarioError("are measured here: leave --from out", file="--rates")
    if iterations is not None:
        problem = "a trace has its own: leave it out beside --from"
        raise ScenarioError(problem, file="--iterations")
    # Whatever is not as by default has been stated.
    if runs != _RUNS:
        problem = "nothing runs: leave it out beside --from"
        raise ScenarioError(problem, file=f"--runs {runs}")


def _measure(
    scenario: Scenario,
    *,
    runs: Path,
    console: Console,
    force: bool,
) -> tuple[Experiment, Profile]:
    """Run a scenario's job and return it with its CPU times and volumes."""
    check_ready(scenario, runs)
    experiment = profiling.prepare_profile(scenario)
    load = host_load()
    check_load(load, partial(_tell, console), force=force)
    with (
        RunDirectory.passing(f"{scenario.name}-profile", runs) as directory,
        ProgressLine(experiment.problem.job, console) as line,
    ):
        outcome = profiling.measure_profile(experiment, directory, line)

    later_load = host_load()
    # Load that began meanwhile has made times too long, which the first look missed.
    if later_load.worst > max(load.worst, WARNED):
        check_load(later_load, partial(_tell, console), force=force)
    return experiment, outcome


def _write_profile(console: Console, out: Path, measured: ProfileFile) -> None:
    write_profile(out, measured)
    console.print(f"written to {out}; use it with --set profile={out}")


@app.command()
def agent(
    coordinator: str = argument("HOST:PORT", "Where emu run listens."),
    name: str = option(
        "NAME", "Of this host in the run; else hostN by an engine's rank.", ""
    ),
    bind: str = option(
        "ADDRESS", "Address of this host on which processes take data.", ""
    ),
    patience: float = option(
        "SECONDS", "Seconds to keep trying to reach the coordinator.", 60.0
    ),
    allow: Allowed = None,
) -> None:
    """Join a run on another host as one of its hosts.

    The token is taken from the environment variable EMU_TOKEN. Agent and coordinator
    prove to each other that they know it; it never travels. The agent starts the
    product's own programs and no others, unless they are named with --allow.
    """
    # What an agent's interpreter has as its main module would be imported again by
    # every process it forks: python -m emu.emulation.launch replaces this process.
    address(coordinator, "agent")
    arguments = [coordinator, f"--patience={patience}"]
    arguments += [f"--allow={program}" for program in allow or ()]
    if name:
        arguments.append(f"--name={name}")
    if bind:
        arguments.append(f"--bind={bind}")
    command = module_command("emu.emulation.launch", *arguments)
    hold_signals()
    os.execv(sys.executable, command)  # noqa: S606 -- our own module
