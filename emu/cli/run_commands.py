"""``emu run``, ``emu profile`` and ``emu agent``: what starts processes."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emu.calibration.available import usable_cores
from emu.cli.app import app
from emu.cli.options import JsonTarget, Overrides, ScenarioFile, address, emit
from emu.cli.progress_bar import ProgressLine
from emu.cli.running import draw, judge, overrides_of, side_by_side, tried_out
from emu.coordinator import Observer, Observers
from emu.dashboard import LiveRun, LiveTable
from emu.errors import EmulatorError, ScenarioError
from emu.experiment.auto_scale import with_byte_scale
from emu.experiment.dry_run import check_memory, strain
from emu.experiment.dry_run import dry_run as dry_run_of
from emu.experiment.profiling import (
    measure_profile,
    prepare_profile,
    profile_from_trace,
)
from emu.experiment.readiness import check_ready
from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.launch import (
    ExternalLauncher,
    LocalLauncher,
    RayLauncher,
    SshLauncher,
    address_towards,
    bundles_of,
    read_hosts_file,
)
from emu.launch.host_report import loopback_rate
from emu.launch.programs import program_path
from emu.report import terminal
from emu.report.job_tables import ranges_table
from emu.report.run_tables import run_tables
from emu.report.scale_tables import dry_run_table, trials_table
from emu.runs.run_directory import RunDirectory
from emu.scenario import load, write_profile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from emu.coordinator import EmulationSettings
    from emu.dashboard.server import Dashboard
    from emu.experiment.dry_run import DryRun
    from emu.experiment.scale_search import ScaleChoice
    from emu.launch import Launcher
    from emu.scenario import Experiment, Scenario


class Onlookers:
    """One observer, while entered, for the dashboard and the terminal.

    Parameters
    ----------
    page
        ``[host:]port`` of the dashboard, empty for none.
    table
        Whether the terminal shows machines and rates in place of the progress line.
    """

    def __init__(
        self,
        experiment: Experiment,
        settings: EmulationSettings,
        directory: Path,
        console: Console,
        *,
        page: str = "",
        table: bool = False,
    ) -> None:
        self._console, self._table = console, table
        launcher = settings.launcher
        self._agents = launcher.count if launcher and not launcher.hosts else 0
        self._job = experiment.problem.job
        self._live = LiveRun(
            experiment.problem,
            experiment.scenario.name,
            experiment.policy,
            settings.time_scale,
        )
        self._dashboard = self._served(page, directory) if page else None
        self._open = ExitStack()
        self._drawing = ExitStack()

    def _served(self, page: str, directory: Path) -> Dashboard:
        from emu.dashboard.server import Dashboard  # noqa: PLC0415 - aiohttp

        at = page if ":" in page else f"127.0.0.1:{page}"
        host, port = address(at, "--dashboard-at")
        token = os.environ.get("EMU_DASHBOARD_TOKEN", "")
        return Dashboard(self._live, directory, host=host, port=port, token=token)

    def __enter__(self) -> Observer:
        if self._dashboard is not None:
            self._open.enter_context(self._dashboard)
            self._console.print(f"dashboard at {self._dashboard.url}", soft_wrap=True)
        line = ProgressLine(self._job, self._console, agents=self._agents)
        if self._table:
            self._drawing.enter_context(LiveTable(self._live, self._console))
        else:
            self._drawing.enter_context(line)
        if self._dashboard is None and not self._table:
            return line
        return Observers([line, self._live.tape])

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._drawing.close()
        if isinstance(error, EmulatorError):
            self._live.failed(str(error))
            self.linger(f"the run failed: {error}")
        self._open.close()

    def ended(self, result: dict[str, Any]) -> None:
        """Show what the run came to; ``result`` is the content of result.json."""
        self._live.ended(result)
        self._drawing.close()

    def linger(self, why: str = "") -> None:
        """Keep the dashboard up until Ctrl-C where the console is a terminal."""
        if self._dashboard is None or not self._console.is_terminal:
            return
        if why:
            self._console.print(why, markup=False)
        self._console.print(f"the dashboard stays at {self._dashboard.url} (Ctrl-C)")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            self._console.print("the dashboard is closed")


@dataclass(frozen=True)
class Hosts:
    """Hosts, as the options state them.

    Raises
    ------
    ScenarioError
        When two ways are asked for, or the hosts cannot be read.
    """

    agents: int
    file: Path | None
    ssh: str
    agent_command: str
    ray: str
    ray_cpus: float

    def __post_init__(self) -> None:
        if self.file is None and (self.ssh != "ssh" or self.agent_command):
            raise ScenarioError("says how to start agents on --hosts", file="--ssh")
        if not self.ray and self.ray_cpus != 1:
            raise ScenarioError("says what a process takes of --ray", file="--ray-cpus")
        if bool(self.agents) + (self.file is not None) + bool(self.ray) > 1:
            problem = "waits for agents that others start, --hosts and --ray start them"
            raise ScenarioError(f"{problem}: state one of the three", file="--agents")
        if self.file is not None:
            read_hosts_file(self.file)

    def launcher(self, experiment: Experiment) -> Launcher:
        """Return the launcher of the agents.

        Raises
        ------
        RunError
            When the Ray cluster has no room.
        """
        if self.ray:
            stated = experiment.scenario.emulation.hosts
            bundles = bundles_of(experiment.problem, self.ray_cpus, stated)
            return RayLauncher(self.ray, bundles)
        if self.file is not None:
            hosts = read_hosts_file(self.file)
            return SshLauncher(hosts, ssh=self.ssh, agent=self.agent_command)
        return ExternalLauncher(self.agents) if self.agents else LocalLauncher()

    def settings(
        self,
        experiment: Experiment,
        at: tuple[str, int] | None,
        allow: tuple[str, ...],
    ) -> EmulationSettings:
        """Return settings to emulate on these hosts, which are reserved from now on.

        Parameters
        ----------
        at
            Where to listen; None is the way to the hosts.

        Raises
        ------
        RunError
            When the Ray cluster has no room, or there is no way to the hosts.
        """
        launcher = self.launcher(experiment)
        started = self.file is not None or self.ray
        way = "127.0.0.1"
        if started and at is None:
            way = address_towards(launcher.hosts[0])
        host, port = at or (way, 0)
        stated = {}
        if isinstance(launcher, RayLauncher):
            stated["host_of"] = launcher.host_of
        return emulation_settings(
            experiment.scenario,
            launcher=launcher,
            listen=host,
            port=port,
            token=os.environ.get("EMU_TOKEN", "") if self.agents else "",
            allow=allow,
            **stated,
        )


def _program(text: str) -> str:
    try:
        return program_path(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Allowed = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="MODULE:CLASS",
        parser=_program,
        help="Program of one's own that this host may start; repeat for more.",
    ),
]
Runs = Annotated[
    Path,
    typer.Option(
        "--runs", metavar="DIR", help="Directory that takes the run directories."
    ),
]


@app.command()
def run(
    file: ScenarioFile,
    overrides: Overrides = None,
    runs: Runs = Path("runs"),
    agents: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="Agents to wait for, started on other hosts; 0 starts one here.",
        ),
    ] = 0,
    hosts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Hosts to start agents on by ssh, one per line."
        ),
    ] = None,
    ssh: Annotated[
        str, typer.Option(metavar="COMMAND", help="The ssh of --hosts, with options.")
    ] = "ssh",
    agent_command: Annotated[
        str,
        typer.Option(
            metavar="COMMAND",
            help="What --hosts runs there for an agent, e.g. 'emu agent'.",
        ),
    ] = "",
    ray: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Ray cluster to start agents on: HOST:PORT, or auto.",
        ),
    ] = "",
    ray_cpus: Annotated[
        float,
        typer.Option(
            metavar="X", min=0.001, help="CPUs that a process reserves of --ray."
        ),
    ] = 1.0,
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST[:PORT]",
            help="Where agents reach this run; loopback, or the way to its hosts.",
        ),
    ] = "",
    allow: Allowed = None,
    network: Annotated[
        str, typer.Option(metavar="KIND", help="Of emulation.network: kernel.")
    ] = "",
    sharing: Annotated[
        str,
        typer.Option(
            metavar="KINDS",
            help="Of kernel NICs; several, e.g. tcp,fair, are run side by side.",
        ),
    ] = "",
    json_target: JsonTarget = None,
    *,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail unless the verdict is trusted.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what is known; start nothing.")
    ] = False,
    trials: Annotated[
        bool, typer.Option("--trials", help="Only run the trials of time_scale: auto.")
    ] = False,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Serve a live page at a free port.")
    ] = False,
    dashboard_at: Annotated[
        str,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Serve it here; a host other than loopback asks viewers for a token.",
        ),
    ] = "",
    live: Annotated[
        bool, typer.Option("--live", help="Show machines and rates in the terminal.")
    ] = False,
) -> None:
    """Run a scenario over sockets; compare with the prediction.

    Agents on other hosts are started by ssh (--hosts), by Ray where it has room for
    every machine (--ray), or by anybody with ``emu agent HOST:PORT`` (--agents); the
    token that admits these is taken from the environment variable EMU_TOKEN on both
    sides. Trials of time_scale: auto run on this host alone.
    A dashboard stays
    after the run until Ctrl-C where somebody watches (standard error is a terminal);
    an open page keeps the run in any case.
    """
    stated = overrides_of(network, sharing)
    scenarios = [load(file, [*(overrides or []), *each]) for each in stated]
    scenario, progress, allowed = scenarios[0], terminal(sys.stderr), tuple(allow or ())
    if len(scenarios) > 1:
        watched = dashboard or dashboard_at or live
        if dry_run or trials or watched or agents or hosts or ray:
            problem = "runs several side by side, here and unwatched: state one kind"
            raise ScenarioError(problem, file="--sharing")
        side_by_side(scenarios, runs, progress, json_target, allowed, strict=strict)
        return
    where = Hosts(agents, hosts, ssh, agent_command, ray, ray_cpus)
    at = address(listen, "--listen", port=0) if listen else None
    if dry_run:
        say_what_is_known(scenario, json_target)
        return
    check_ready(scenario, runs, here=not (agents or hosts or ray))
    experiment, choice = tried_out(scenario, progress, try_stated=trials, allow=allowed)
    if trials:
        _show_trials(choice, json_target)
        return
    scenario = experiment.scenario
    settings = where.settings(experiment, at, allowed)
    if settings.launcher is None or settings.launcher.embedded:
        check_memory(known := dry_run_of(experiment), scenario.job.credit_window)
        if choice is None:
            _warn(known, progress)
    directory = RunDirectory.create(scenario.name, runs)
    page = dashboard_at or ("0" if dashboard else "")
    onlookers = Onlookers(
        experiment, settings, directory.path, progress, page=page, table=live
    )
    with onlookers as observer:
        outcome = carry_out(experiment, settings, directory, observer, choice)
        onlookers.ended(outcome.result)
        if emit(json_target, outcome.result):
            terminal().print(run_tables(outcome.result))
        progress.print(f"written to {directory.path}/")
        draw(directory.path, progress)
        onlookers.linger()
    judge(scenario, outcome.result, strict=strict)


def _show_trials(choice: ScaleChoice | None, json_target: str | None) -> None:
    """Print trials of time scales."""
    if choice is None:
        raise ScenarioError("the job takes no time, there is nothing to try")
    if emit(json_target, choice.to_json()):
        terminal().print(trials_table([t.to_json() for t in choice.trials]))


def say_what_is_known(scenario: Scenario, json_target: str | None) -> None:
    """Print what the simulation of a scenario says of its run; start nothing."""
    known, window = dry_run_of(with_byte_scale(scenario)), scenario.job.credit_window
    if emit(json_target, known.to_json()):
        name = f"{scenario.name}, credit window {window}"
        terminal().print(dry_run_table(known.to_json(), name))
    check_memory(known, window)
    _warn(known, terminal(sys.stderr))


def _warn(known: DryRun, console: Console) -> None:
    """Print in a line why this host cannot keep to the scales, where that is sure."""
    if said := strain(known, usable_cores(), loopback_rate()):
        console.print(f"warning: {said}", markup=False, highlight=False)


@app.command()
def profile(
    file: ScenarioFile,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Profile to write (JSON).")
    ],
    overrides: Overrides = None,
    iterations: Annotated[
        int, typer.Option(metavar="N", min=1, help="Iterations to measure.")
    ] = 50,
    trace: Annotated[
        Path | None,
        typer.Option("--from", metavar="TRACE", help="Of torch.profiler (JSON, gz)."),
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="KIND=NAME,...",
            help="Ranges of the trace that are a kind of task; default: its name.",
        ),
    ] = None,
    runs: Runs = Path("runs"),
) -> None:
    """Measure task times and volumes by real computation.

    A time is the CPU time that one (task, iteration) takes on this host, so that other
    processes on its cores do not count; volumes are what really crossed the sockets.

    With --from nothing is run: the k-th occurrence of a range that the trace recorded
    (torch.profiler.record_function) is iteration k, and volumes are those of what the
    scenario's samplers will sample.
    """
    if trace is not None:
        stated_ranges = dict(map(_range, ranges or ()))
        scenario = load(file, overrides or [], timed=False)
        console = terminal(sys.stderr)

        def watch(found: Mapping[str, NDArray[np.float64]]) -> None:
            console.print(ranges_table(found))

        with console.status("counting what is sampled"):
            measured = profile_from_trace(scenario, trace, stated_ranges, watch)
        write_profile(out, measured)
        console.print(f"written to {out}; use it with --set profile={out}")
        return
    stated = [*(overrides or []), f"job.iterations={iterations}", "job.epochs=null"]
    scenario = load(file, stated, timed=False)
    check_ready(scenario, runs)
    experiment = prepare_profile(scenario)
    directory = RunDirectory.create(f"{scenario.name}-profile", runs)
    console = terminal(sys.stderr)
    with ProgressLine(experiment.problem.job, console) as line:
        measured = measure_profile(experiment, directory, line)
    write_profile(out, measured)
    console.print(f"written to {out}; use it with --set profile={out}")


def _range(text: str) -> tuple[str, list[str]]:
    kind, _, names = text.partition("=")
    if not names:
        problem = f"found {text!r}, write for example worker=forward,backward"
        raise ScenarioError(problem, file="--range")
    return kind, names.split(",")


@app.command()
def agent(
    coordinator: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="Where emu run listens.")
    ],
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Of this host in the run; else hostN by an engine's rank.",
        ),
    ] = "",
    bind: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Address of this host on which processes take data."
        ),
    ] = "",
    patience: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Seconds to keep trying to reach the coordinator."
        ),
    ] = 60.0,
    allow: Allowed = None,
) -> None:
    """Join a run on another host as one of its hosts.

    The token is taken from the environment variable EMU_TOKEN. Agent and coordinator
    prove to each other that they know it; it never travels. The agent starts the
    product's own programs and no others, unless they are named with --allow.
    """
    # What an agent's interpreter has as its main module would be imported again by
    # every process it forks: python -m emu.launch replaces this process.
    address(coordinator, "agent")
    arguments = [sys.executable, "-m", "emu.launch", coordinator]
    arguments += ["--patience", str(patience)]
    arguments += [f"--allow={program}" for program in allow or ()]
    arguments += [f"--name={name}"] if name else []
    arguments += [f"--bind={bind}"] if bind else []
    os.execv(sys.executable, arguments)  # noqa: S606 -- our own module
