"""``emu simulate`` and ``emu place``: a scenario in virtual time, and by what rules."""

from __future__ import annotations

import math
import sys
from enum import StrEnum

import typer
from rich.console import Console

import emu
from emu.cli import options, packet_options
from emu.cli.app import app, option
from emu.cli.progress import progress_bar
from emu.cli.signs_of_life import note_stage
from emu.errors import DataError
from emu.experiment import expectations
from emu.experiment.question import ask
from emu.prediction.analysis import bounds
from emu.prediction.analysis.full_queues import full_queues
from emu.prediction.analysis.throughput import JobTime, job_times, pace
from emu.prediction.packets import Control, Shares, packets_of, simulate_packets
from emu.prediction.placement import resource_loads
from emu.prediction.simulation import rounding_effect
from emu.prediction.simulation import simulate as simulate_rates
from emu.prediction.simulation.attempts import Attempts
from emu.problem import Schedule
from emu.report import explanation_tables as words
from emu.report import figure_rows
from emu.report.comparison import coflow_line
from emu.report.measured_tables import training_table
from emu.report.run_tables import flow_table, port_table
from emu.report.terminal import terminal
from emu.runs.result import Result, flow_rows, port_rows, result_of
from emu.scenario import Experiment, load, prepare
from emu.scenario.edits import ScenarioEdits
from emu.scenario.experiment import count_failures, refuse_deaths
from emu.scenario.machine_choice import apart_words
from emu.scenario.realize import list_model_figures
from emu.scenario.run_sections import ExpectSection
from emu.scenario.scenario_file import has_recorded_job
from emu.scenario.setup import setup_rows
from emu.systems.system import figures_on, remarks_on
from emu.training.looks import epoch_of
from emu.trust.lateness import effect_of_slight_delays
from emu.units import format_count, format_duration, format_ratio

#: Carrier of the bytes in a simulation.
Network = StrEnum("Network", "FLUID NS3")


@app.command()
def simulate(
    file: options.ScenarioFile,
    overrides: options.Overrides = None,
    json_target: options.JsonTarget = None,
    *,
    train: bool = option("--train", "Train in one process as the schedule does."),
    network: Network = option(
        "fluid|ns3", "Carrier of the bytes: rates, or packets of ns-3.", Network.FLUID
    ),
    sharing: packet_options.Queues = None,
    congestion_control: packet_options.Tcp = None,
) -> None:
    """Simulate a scenario.

    It takes milliseconds, and prints the makespan, the flows and the load of each NIC;
    with --train the accuracy over simulated time as well. With --network ns3 the bytes
    go as packets, by TCP through queues: a second witness, in seconds to minutes.

    Raises
    ------
    ExpectationMissed
        When it missed an ``expect:`` that a simulation can tell.
    """
    scenario = load(file, overrides or [])
    experiment = prepare(scenario)
    # Beside JSON on standard output tables would make it no JSON.
    console = terminal(quiet=json_target == "-")
    note = scenario.job.fit_note
    # Of what `emu virtual` has recorded there is no fit, and `emu fit` refuses it.
    if note and not has_recorded_job(file):
        console.print(note)

    if network is Network.FLUID:
        choices = (sharing, congestion_control)
        packet_options.refuse_packet_options(choices, "--network ns3")
        simulate_by_rates(experiment, json_target, console, train=train)
        return
    if train:
        raise typer.BadParameter("training goes with --network fluid alone")

    refuse_deaths(experiment)
    simulate_over_packets(
        experiment,
        sharing or Shares.FAIR,
        congestion_control or Control.CUBIC,
        json_target,
        console,
    )


def simulate_by_rates(
    experiment: Experiment,
    json_target: str | None,
    console: Console,
    *,
    train: bool,
) -> None:
    """Print the schedule under the scenario's rate policy, and judge it."""
    answer = ask(experiment)
    _, schedule = answer.first
    recovery = answer.deaths
    rule = experiment.choose_policy()
    jobs = job_times(schedule, experiment.realization, rule, epoch_of)
    _print_tables(schedule, jobs, console)
    _print_makespan(experiment, schedule, recovery, console)
    speed = pace(schedule, epoch_of(schedule.problem.job.settings)).to_json()
    console.print(figure_rows.pace_line(speed))
    models = list_model_figures(experiment.scenario)
    for row in figure_rows.model_rows(models):
        console.print(*row)
    gap = _print_gap(experiment, schedule, rule, console)

    more: Result = {"pace": speed, "models": models, **recovery.to_json()}
    if failures := count_failures(experiment, recovery.makespan):
        more["failures"] = failures
    if schedule.problem.cluster.tuners:  # takes further simulations
        profile = experiment.expected
        shift = effect_of_slight_delays(experiment.realization, rule, profile, schedule)
        console.print(_TUNED.format(shift))
        more["sensitivity"] = shift
    more |= figures_on(schedule) | _setup(experiment, recovery.makespan, console)
    if coflows := answer.coflows:
        more["coflows"] = coflows
        console.print(coflow_line(coflows))
    if cost := answer.cost:
        more["cost"] = cost
        console.print("cost", ", ".join(figure_rows.cost_row(cost)))
    more["placing"] = experiment.placing
    more |= _training(experiment, schedule, console, train=train)
    more |= _jobs_json(jobs)
    if json_target is not None:  # a row per flow: 7 % of the CPU of 700,000
        options.emit(json_target, result_of(experiment.scenario, schedule) | gap | more)
    sentence = expectations.list_unchecked(experiment.scenario.expect)
    options.judge_simulated(sentence, answer.missed)


def _print_gap(
    experiment: Experiment,
    schedule: Schedule,
    rule: str,
    console: Console,
) -> Result:
    """Print what is left to gain and what stands out; return the former."""
    gap = bounds.optimality(schedule, experiment.realization, experiment.policy)
    if line := bounds.optimality_line(gap):
        console.print(line)
    remarks = remarks_on({"simulated": schedule}, rule)
    for remark in filter(None, remarks):
        console.print(remark)
    return {**gap}


def _jobs_json(jobs: list[JobTime]) -> Result:
    """Return the times of several jobs; nothing of one alone."""
    return {"jobs": [job.to_json() for job in jobs]} if jobs else {}


def _setup(experiment: Experiment, makespan: float, console: Console) -> Result:
    """Print and return what is sent before time 0 of a training."""
    try:
        setup = setup_rows(experiment)
    except DataError as error:  # with a profile nothing else needs the data set
        console.print(f"setup is not known: {error}")
        return {}
    if not setup:
        return {}
    seconds, cause = figure_rows.setup_row(setup)
    length = format_duration(makespan + setup["seconds"], 10)
    console.print(f"setup {seconds} {cause}; with setup {length}")
    return {"setup": setup}


def _print_makespan(
    experiment: Experiment,
    schedule: Schedule,
    recovery: Attempts,
    console: Console,
) -> None:
    """Print how long the job takes, deaths included, and where it stands."""
    job = experiment.problem.job
    scenario = experiment.scenario
    window = scenario.job.credit_window
    pins = scenario.pins
    flows = schedule.flows()
    flow_count = format_count(len(flows), "flow")
    console.print(
        f"{scenario.name}: makespan "
        f"{format_duration(recovery.makespan, 10)}, "
        f"{words.job_line(job, experiment.policy, window, pins)}, "
        f"{flow_count}"
    )

    for line in words.recovery_lines(recovery, schedule.length):
        console.print(line)
    if failures := count_failures(experiment, recovery.makespan):
        count = sum(failures.values())
        console.print(f"failures drawn: {count} ({words.most_failing(failures)})")
    words.print_placing(experiment.placing, console)
    for remark in experiment.remarks(schedule):
        terminal(sys.stderr).print(f"warning: {remark}")


def simulate_over_packets(
    experiment: Experiment,
    sharing: Shares,
    control: Control,
    json_target: str | None,
    console: Console,
) -> None:
    """Print what packets make of a job, beside what max-min fair rates make of it."""
    problem = experiment.problem
    realization = experiment.realization
    scale = experiment.scenario.emulation.stated_byte_scale  # packets have real sizes
    count = packets_of(problem, realization, scale)
    print(f"about {count:,} packets, by ns-3 ...", file=sys.stderr)  # noqa: T201

    run = simulate_packets(
        problem, realization, sharing=sharing, control=control, byte_scale=scale
    )
    schedule = run.schedule
    fluid = simulate_rates(problem, realization, "maxmin")  # nearest to TCP
    jobs = job_times(schedule, realization, "maxmin", epoch_of)
    _print_tables(schedule, jobs, console)

    name = experiment.scenario.name
    console.print(
        f"{name}: makespan {format_duration(schedule.makespan, 10)} over packets: ns-3 "
        f"{run.version}, {control}, {sharing} queues, {run.dropped:,} packets dropped"
    )
    longer = schedule.makespan / fluid.makespan - 1 if fluid.makespan else 0.0
    length = format_duration(fluid.makespan, 10)
    console.print(f"max-min fair rates: {length}, packets {format_ratio(longer)}")

    packets: Result = {}
    if sharing is Shares.TCP:  # whose one queue drops
        queues = full_queues(fluid, time_scale=1.0, byte_scale=scale)
        console.print(queues.sentence())
        packets["full_queues"] = queues.to_json()
    packets |= {
        "ns3": run.version,
        "sharing": sharing.value,
        "congestion_control": control.value,
        "byte_scale": scale,
        "dropped": run.dropped,
        "fluid_makespan": fluid.makespan,
    }
    words.print_placing(experiment.placing, console)
    more = {"packets": packets} | _jobs_json(jobs)
    options.emit(json_target, result_of(experiment.scenario, schedule) | more)
    _say_unjudged(experiment.scenario.expect)


def _say_unjudged(expect: ExpectSection) -> None:
    """Say on standard error what is expected and no packets can tell."""
    if fields := sorted(expect.model_fields_set):
        keys = ", expect.".join(fields)
        print(f"not judged over packets: expect.{keys}", file=sys.stderr)  # noqa: T201


def _print_tables(schedule: Schedule, jobs: list[JobTime], console: Console) -> None:
    tables = [flow_table(flow_rows(schedule)), port_table(port_rows(schedule))]
    if jobs:
        tables.append(words.job_table(jobs))
    for table in tables:
        console.print(table)
        console.print()


def _training(
    experiment: Experiment,
    schedule: Schedule,
    console: Console,
    *,
    train: bool,
) -> Result:
    """Print and return the accuracy that was asked for.

    Where ``train``, with losses and accuracy over the time of the schedule.
    """
    more = experiment.cause_of_length
    scenario = experiment.scenario
    if not (train or experiment.reached):
        return more
    from emu.scenario import virtual_training  # noqa: PLC0415 - 0.1 s

    if (until := experiment.until) and (look := experiment.reached):
        ((seconds, _),) = virtual_training.time_looks([look], scenario, schedule)
        more["reached"]["seconds"] = seconds
        console.print(
            f"until {until.accuracy:.1%} of {until.split} vertices: "
            f"{scenario.job.length}, reached after {format_duration(seconds)}"
        )
        # Asynchronous training: what a step reads depends on what has arrived by then.
        if schedule.reads is not None:
            console.print(
                "a run reads other values where it is late, so that its accuracy "
                "after as many is another"
            )

    if not train:
        return more
    curve = virtual_training.virtual_training(scenario, schedule, until)
    console.print(training_table(curve["training"]))
    if "diverged" in curve:
        console.print(f"training diverged at step {curve['diverged']}")
        return more | curve
    shares = [f"{split} {share:.2%}" for split, share in curve["accuracy"].items()]
    console.print(f"accuracy at the end: {', '.join(shares)}")
    return more | curve


#: Share of a makespan that rounding moves from which on it is worth a line.
NOTABLE = 1e-9
#: Of a makespan that queues tune, by the share that chance moves it.
_TUNED = (
    "tuned by queues: the slightest delays move the makespan by {:.2%}, so that no run "
    "need come closer"
)

#: Figure that a search compared, by ``joint_cost``.
_JUDGED = {
    "max": "longest time of a job ",
    "sum": "sum of the jobs' times ",
    "weighted": "weighted sum of the jobs' times ",
}


@app.command()
def place(
    file: options.ScenarioFile,
    overrides: options.Overrides = None,
    json_target: options.JsonTarget = None,
    bound_time: options.BoundTime = "",
    *,
    bound: options.Bound = False,
) -> None:
    """Place the tasks; print where they are, and the loads."""
    limit = options.bound_seconds(bound_time, bound=bound)
    scenario = emu.load(file, overrides or [])
    with progress_bar(terminal(sys.stderr)) as bar:  # nothing is drawn off a terminal
        line = bar.add_task("searching", total=None)

        def watch(candidates: int, most: int, best: float) -> None:
            text = f"best {format_duration(best)}, candidates"
            note_stage(f"{text} {candidates:,} of {most:,}")
            bar.update(line, description=text, completed=candidates, total=most)

        experiment = emu.place(scenario, progress=watch)

    problem = experiment.problem
    makespan = ask(experiment).makespan
    console = terminal(quiet=json_target == "-")
    _print_placement(experiment, makespan, console)
    # Events that nearly tie may change places by rounding, and with them the schedule.
    rounding = rounding_effect(
        problem, experiment.realization, experiment.choose_policy()
    )
    if rounding > NOTABLE * makespan:
        console.print(
            "the last digits of times and volumes move this makespan by up to "
            f"{format_duration(rounding)} ({format_ratio(rounding / makespan)}): "
            "placements that are closer are equally good"
        )
    content = _content(experiment, makespan) | {"rounding": rounding}
    # The proof takes ten times as long as the search.
    if limit is not None:
        run = experiment.realization
        gap = bounds.placement_gap(problem, run, makespan, seconds=limit)
        console.print(bounds.placement_line(gap))
        content |= gap
    options.emit(json_target, content)


def _print_placement(experiment: Experiment, makespan: float, console: Console) -> None:
    """Print where tasks are, how long the job takes there, and what a search gained."""
    problem = experiment.problem
    scenario = experiment.scenario
    console.print(words.placement_table(problem))
    window = scenario.job.credit_window
    job = words.job_line(problem.job, experiment.policy, window, scenario.pins)
    length = format_duration(makespan, 10)
    console.print(f"\n{scenario.name}: makespan {length}, {job}")
    hint = apart_words(scenario, problem)
    words.print_placing(experiment.placing, console, hint)

    placing = experiment.placed
    if placing is not None and placing.start_makespan is not None:
        start = placing.start_makespan or 0.0
        end = placing.makespan or 0.0
        gain = format_ratio(end / start - 1 if start else 0.0)
        figure = _JUDGED[scenario.joint_cost] if scenario.jobs else ""
        console.print(
            f"on {placing.iterations} of the {problem.job.iterations} iterations: "
            f"{figure}{format_duration(start)} -> {format_duration(end)} ({gain}) "
            f"after {placing.candidates:,} candidates, {placing.accepted:,} accepted"
        )


def _content(experiment: Experiment, makespan: float) -> dict[str, object]:
    problem = experiment.problem
    placing = experiment.placed
    search = None
    # Rules that place without a search have looked at no candidates.
    if placing is not None and placing.candidates > 0:
        search = {
            "iterations": placing.iterations,
            "makespan": placing.makespan,
            "start_makespan": placing.start_makespan,
            "candidates": placing.candidates,
            "accepted": placing.accepted,
            "simulated": placing.evaluations,
            "optimal": placing.optimal,
        }

    edits = ScenarioEdits(experiment.scenario)
    edit = edits.standing(problem)
    return {
        "policy": experiment.scenario.placed_by,
        "placing": experiment.placing,
        "tasks": experiment.tasks,
        "edit": edit,
        "loads": [
            {
                "machine": load.machine,
                "resource": load.resource,
                "used": load.used,
                # JSON knows no infinity.
                "capacity": load.capacity if math.isfinite(load.capacity) else None,
            }
            for load in resource_loads(problem.job, problem.cluster, problem.placement)
        ],
        "makespan": makespan,
        "iterations": problem.job.iterations,
        "credit_window": experiment.scenario.job.credit_window,
        "search": search,
    }
