"""A third link, added to a problem in one place, is carried by all that looks at it."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.table import Table

import emu
from emu.emulation.coordinator import RunSettings, emulate
from emu.prediction.analysis.bounds import bounds
from emu.prediction.analysis.critical_path import critical_path
from emu.prediction.analysis.explanation import explain
from emu.prediction.scheduling import RATE_POLICIES
from emu.prediction.simulation import simulate
from emu.problem import Problem, Realization, Schedule
from emu.report.dashboard.live_table import live_table
from emu.report.dashboard.server import metrics, page
from emu.report.html.chart_data import chart_data
from emu.report.html.page import report_page
from emu.report.plots import plot
from emu.report.run_tables import port_table
from emu.report.terminal import terminal
from emu.report.trace import trace_events
from emu.runs.result import port_rows
from emu.testing import two_machine_example
from emu.trust.audit import audit
from tests import draws
from tests.emulation.coordinator.emulated import emulable
from tests.report.dashboard.replay import Replay
from tests.report.drawn_run import write_run

#: Slower than a NIC (10 B/s); both ways cross it, so it limits what goes on at all.
CORE = 6.0


def example(iterations: int = 3) -> tuple[Problem, Realization]:
    return two_machine_example(iterations, shared_link=CORE)


def shown(table: Table) -> str:
    text = StringIO()
    terminal(text).print(table)
    return text.getvalue()


@pytest.mark.parametrize("policy", [p for p in RATE_POLICIES if p != "portfolio"])
def test_every_policy_keeps_to_it(policy: str) -> None:
    problem, realization = example()
    schedule = simulate(problem, realization, policy, record_rates=True)

    assert audit(schedule).passed
    assert schedule.makespan > simulate(*two_machine_example(3), policy).makespan
    found = bounds(problem, realization)
    assert found.combined <= schedule.makespan * (1 + 1e-12)


def test_audit_finds_that_it_is_overloaded() -> None:
    problem, _ = example()
    free = simulate(*two_machine_example(3), record_rates=True)
    found = audit(Schedule(**{**vars(free), "problem": problem}))

    assert {violation.subject for violation in found.violations} == {"core"}
    assert {violation.constraint for violation in found.violations} == {"(13),(14)"}


def test_bounds_chain_and_explanation_name_it() -> None:
    problem, realization = example()
    schedule = simulate(problem, realization)
    found = bounds(problem, realization)
    sent = schedule.flow_bytes[tuple(schedule.flows().T)].sum()

    assert found.binding == "core"
    assert found.nic_load == pytest.approx(sent / CORE)
    assert found.degree == 5
    chain = critical_path(schedule)
    assert {
        problem.links[link.port].name for link in chain.links if link.edge >= 0
    } == {"core"}
    explained = explain(schedule, realization, "oes", emulated=False).to_json()
    assert explained["ports"][0]["port"] == "core"
    helpful = {change["what"]: change["gain"] for change in explained["improvements"]}
    assert helpful["link core endless"] > helpful["link core twice as fast"] > 0
    assert helpful["NIC of m0 endless"] == pytest.approx(0.0)


def test_tables_charts_and_traces_show_it(tmp_path: Path) -> None:
    problem, realization = example()
    schedule = simulate(problem, realization, record_rates=True)
    run, result = write_run(tmp_path, shared_link=CORE)
    recorded = emu.load_run(run)

    assert "core" in shown(port_table(port_rows(schedule)))
    assert result["ports"][-1]["port"] == "core"
    ports = recorded.ports[recorded.ports.port == "core"]
    assert set(ports.machine + ports.direction) == {""}
    assert 0 < ports.rate.max() <= CORE * (1 + 1e-9)
    chart = chart_data(recorded)
    assert chart["ports"][-1]["name"] == "core"
    assert chart["runs"][0]["flows"]["lanes"][-1] > 1
    assert "core" in report_page(run)
    plot([recorded], "gantt", tmp_path / "gantt.svg")
    plot([recorded], "ports", tmp_path / "ports.svg")
    events = [*trace_events({"simulated": schedule})]
    named = {event["args"].get("name") for event in events if event["ph"] == "M"}
    assert {"core 1", "simulated: links"} <= named
    drawn = [event for event in events if event["ph"] == "X"]
    assert len(drawn) == schedule.task_end.size + 3 * len(schedule.flows())


def test_a_live_run_shows_it() -> None:
    replay = Replay(shared_link=CORE)
    replay.until(5.0)
    status = replay.live.status()

    (core,) = [port for port in status.ports if port.port == "core"]
    assert core.rate == pytest.approx(CORE)
    assert "core" in shown(live_table(status))
    assert 'port="core"' in metrics(status)
    assert '"name": "core"' in page(replay.live)


@pytest.mark.emulation
@pytest.mark.parametrize("latency", [draws.rarely(0.0), 0.7])
def test_sockets_keep_to_it(tmp_path: Path, latency: float) -> None:
    problem, realization = example(2)
    links = (replace(problem.cluster.shared_links[0], latency=latency),)
    problem = replace(problem, cluster=replace(problem.cluster, shared_links=links))
    problem = emulable(problem, realization)
    settings = RunSettings(time_scale=0.05, byte_scale=20_000.0, deadline=30.0)
    run = emulate(problem, "oes", settings, realization, log=tmp_path / "agent.log")

    simulated = simulate(problem, realization)
    assert run.schedule.makespan == pytest.approx(simulated.makespan, rel=0.03)
    without = simulate(*example(2)).makespan
    assert (simulated.makespan > without + 1.9 * latency) == (latency > 0)
    assert audit(run.schedule, tolerance=0.02, relative=0.05).passed
