"""A NIC that falls to a fifth in mid-run, in all that looks at capacities."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.prediction.analysis.bounds import bounds, optimality
from emu.prediction.analysis.critical_path import Cause, critical_path
from emu.prediction.placement.bound import placement_bound
from emu.prediction.scheduling import RATE_POLICIES
from emu.prediction.simulation import simulate
from emu.problem import CapacityChange, Problem, Realization
from emu.report.plot_style import Window
from emu.report.plots import gantt
from emu.report.trace import trace_events
from emu.runs.result import port_rows
from emu.scenario import load, prepare
from emu.testing.strategies import problems
from emu.trust.audit import audit
from emu.trust.guards.schedule import least_makespan
from emu.trust.rate_audit import rule_audit
from tests.integration.scenarios import Carried, attempts, carried_out, command

MUTATION = Path(__file__).parents[2] / "tools" / "mutation"
FALLS, DISTURBED = MUTATION / "events.yaml", MUTATION / "disturbed.yaml"


def example(file: Path = FALLS) -> tuple[Problem, Realization]:
    experiment = prepare(load(file))
    return experiment.problem, experiment.realization


def unchanged() -> tuple[Problem, Realization]:
    problem, realization = example()
    cluster = replace(problem.cluster, changes=())
    return replace(problem, cluster=cluster), realization


def test_audits_hold_each_instant_against_its_own_capacity() -> None:
    problem, realization = example()
    schedule = simulate(problem, realization, record_rates=True)
    ignored = simulate(*unchanged(), record_rates=True)

    assert audit(schedule).passed
    assert rule_audit(schedule, "oes", realization)[1] == []
    assert audit(replace(schedule, rates=None)).passed
    for rates in (ignored.rates, None):
        found = audit(replace(ignored, problem=problem, rates=rates))
        assert {violation.subject for violation in found.violations} == {"sink in"}
    assert rule_audit(replace(ignored, problem=problem), "oes", realization)[1]


def test_bounds_stay_bounds_and_theorem_1_is_not_claimed() -> None:
    problem, realization = example()
    schedule = simulate(problem, realization)
    found = optimality(schedule, realization, "oes")

    assert bounds(problem, realization).combined <= schedule.makespan
    assert found["theorem1"]["kept"] is False
    nic = CapacityChange(1.0, "sink in", 100.0)
    faster = replace(problem, cluster=replace(problem.cluster, changes=(nic,)))
    soonest = simulate(faster, realization).makespan
    assert bounds(faster, realization).combined <= soonest
    least = placement_bound(problem.job, problem.cluster, realization, seconds=1.0)
    assert least <= schedule.makespan
    least = placement_bound(faster.job, faster.cluster, realization, seconds=1.0)
    assert least <= soonest


def test_use_is_of_what_could_be_carried_and_the_trace_has_a_mark() -> None:
    problem, realization = example()
    schedule = simulate(problem, realization)
    (row,) = [row for row in port_rows(schedule) if row["port"] == "sink in"]

    could = 10 * 10 + 2 * (schedule.makespan - 10)
    assert row["used"] == pytest.approx(200 / could)
    marks = [e for e in trace_events({"simulated": schedule}) if e["ph"] == "i"]
    assert [(mark["name"], mark["ts"]) for mark in marks] == [
        ("sink out has 2 B/s", 10e6),
        ("sink in has 2 B/s", 10e6),
    ]


def test_bounds_count_with_the_capacity_of_every_instant() -> None:
    problem, realization = example()

    # 200 B: 100 B by 10 s, 2 B/s from then on, and the last mini-batch.
    assert bounds(problem, realization).combined == pytest.approx(10 + 50 + 0.5)
    problem, realization = example(DISTURBED)
    found = bounds(problem, realization)
    assert found.combined == pytest.approx(20 + 4 + 0.5)
    assert found.combined <= simulate(problem, realization).makespan
    assert least_makespan(problem, realization) <= found.combined


@pytest.mark.parametrize("policy", [name for name in RATE_POLICIES if name != "none"])
def test_no_rule_lets_anything_over_a_link_that_is_cut(policy: str) -> None:
    problem, realization = example(DISTURBED)
    schedule = simulate(problem, realization, policy, record_rates=True)
    rates = schedule.rates

    assert rates is not None
    assert not rates.rate[(rates.time >= 3.0) & (rates.time < 7.0)].any()
    assert audit(schedule).passed


def test_the_trace_has_marks_of_speeds_and_the_picture_bands() -> None:
    problem, realization = example(DISTURBED)
    schedule = simulate(problem, realization)

    marks = [e for e in trace_events({"simulated": schedule}) if e["ph"] == "i"]
    assert {"sink has 0 of its speed", "sink has 0.25 of its speed"} <= {
        mark["name"] for mark in marks
    }
    figure = gantt({"simulated": schedule}, Window())
    drawn = {bars.get_gid() for axes in figure.axes for bars in axes.collections}
    assert {"simulated-cut", "simulated-pause", "simulated-slow"} <= drawn


@settings(max_examples=60)
@given(
    drawn=problems(links=True, own=True, jobs=True, cuts=True, speeds=True),
    policy=st.sampled_from([name for name in RATE_POLICIES if name != "portfolio"]),
)
def test_audits_bounds_and_the_critical_path_of_drawn_jobs(
    drawn: tuple[Problem, Realization], policy: str
) -> None:
    problem, realization = drawn
    schedule = simulate(problem, realization, policy, record_rates=True)
    least = bounds(problem, realization).combined

    assert audit(schedule, times=realization.times).passed
    assert rule_audit(schedule, policy, realization)[1] == []
    assert least <= schedule.makespan * (1 + 1e-9)
    assert least_makespan(problem, realization) <= least * (1 + 1e-9)
    causes = critical_path(schedule).sums(lambda link: link.cause)
    assert causes.get(Cause.GAP, 0.0) <= 1e-9 * schedule.makespan


def test_an_audit_refuses_a_pause_that_did_not_happen() -> None:
    problem, realization = example(DISTURBED)
    calm = replace(problem, cluster=replace(problem.cluster, speed_changes=()))
    schedule = simulate(calm, realization)

    assert audit(schedule, times=realization.times).passed
    paused = replace(schedule, problem=problem)
    found = audit(paused, times=realization.times)
    assert {violation.constraint for violation in found.violations} == {"(6)"}


@pytest.mark.emulation
@pytest.mark.parametrize("file", [FALLS, DISTURBED])
def test_a_run_carries_events_out(file: Path, tmp_path: Path) -> None:
    runs: list[Carried] = []

    def once() -> float:
        runs.append(carried_out(file, tmp_path))
        result = runs[-1].outcome.content
        trusted = result["verdict"]["trust"] == "trusted"
        return abs(result["makespan_error"]) if trusted else math.inf

    assert attempts(once, 0.01)[-1] <= 0.01
    emulated = runs[-1].outcome.run.schedule
    assert emulated.makespan > 1.2 * simulate(*unchanged()).makespan
    assert "keeps" in command("audit", runs[-1].path)
