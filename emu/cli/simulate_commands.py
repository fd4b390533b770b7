"""``emu simulate``."""

from __future__ import annotations

from typing import Any

from emu.analysis.optimality_gap import optimality, optimality_line
from emu.analysis.throughput import job_times, pace
from emu.cli.app import app
from emu.cli.options import JsonTarget, Overrides, ScenarioFile, emit, judge_simulated
from emu.experiment.expectations import missed, simulated_figures, unchecked
from emu.report import flow_table, port_table, terminal
from emu.report.job_tables import (
    job_line,
    job_table,
    model_rows,
    pace_line,
    print_placing,
)
from emu.runs.result import flow_rows, port_rows
from emu.runs.result_file import result_of
from emu.scenario import load, prepare
from emu.scenario.realize import measured_models
from emu.units import format_duration


@app.command()
def simulate(
    file: ScenarioFile,
    overrides: Overrides = None,
    json_target: JsonTarget = None,
) -> None:
    """Simulate a scenario.

    It takes milliseconds, and prints the makespan, the flows and the load of each NIC.

    Raises
    ------
    ExpectationMissed
        When it missed an ``expect:`` that a simulation can tell.
    """
    experiment = prepare(load(file, overrides or []))
    schedule, problem = experiment.simulate(), experiment.problem
    console = terminal(quiet=json_target == "-")
    jobs = job_times(schedule, experiment.realization, experiment.chosen_policy())
    tables = [flow_table(flow_rows(schedule)), port_table(port_rows(schedule))]
    for table in [*tables, *([job_table(jobs)] if jobs else [])]:
        console.print(table)
        console.print()
    makespan = format_duration(schedule.makespan, 10)
    window, pins = experiment.scenario.job.credit_window, experiment.scenario.pins
    console.print(
        f"{experiment.scenario.name}: makespan {makespan}, "
        f"{job_line(problem.job, experiment.policy, window, pins)}, "
        f"{len(schedule.flows()):,} flows"
    )
    print_placing(experiment.placing, console)
    speed = pace(schedule).to_json()
    console.print(pace_line(speed), highlight=False)
    models = measured_models(experiment.scenario)
    for row in model_rows(models):
        console.print(*row, highlight=False)
    gap = optimality(schedule, experiment.realization, experiment.policy)
    if line := optimality_line(gap):
        console.print(line)
    told: dict[str, Any] = {"pace": speed, "models": models}
    told["placing"] = experiment.placing
    if jobs:
        told["jobs"] = [one.to_json() for one in jobs]
    emit(json_target, result_of(experiment.scenario, schedule) | gap | told)
    expect = experiment.scenario.expect
    figures = simulated_figures(schedule, experiment.realization)
    judge_simulated(unchecked(expect), missed(expect, figures))
