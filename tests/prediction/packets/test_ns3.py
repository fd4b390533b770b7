"""A job over packets, beside the fluid one: ns-3 knows nothing of our scheduler."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import emu.prediction.packets as room
from emu.cli import app
from emu.errors import DataError, ScenarioError
from emu.prediction.packets import Control, Shares, missing_ns3, simulate_packets
from emu.prediction.simulation import makespan, simulate
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Task,
)
from emu.scenario import load, prepare
from emu.testing.strategies import random_problem
from emu.trust.audit import audit

needs_ns3 = pytest.mark.skipif(bool(missing_ns3()), reason=missing_ns3() or "none")
#: Bytes of packets per byte of a drawn job, whose flows are of 1 to 40.
SCALE = 200_000.0


def test_a_wheel_is_known_by_its_libraries_and_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr("importlib.util.find_spec", lambda _: spec)
    monkeypatch.setattr(room, "_compiler", lambda: "c++")

    def versions() -> list[str]:
        found = [library.version for library in room._libraries()]
        return [version for version in found if version == "3.41"]

    (tmp_path / "include" / "ns3").mkdir(parents=True)
    assert versions() == []
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libns3.41-core.so").touch()
    assert versions() == ["3.41"]
    assert f"-L{tmp_path / 'lib64'}" in next(room._libraries()).flags
    assert missing_ns3() == ""
    monkeypatch.setattr(room, "_compiler", lambda: None)
    assert missing_ns3().startswith("a C++ compiler is not installed")
    monkeypatch.setattr(room, "_libraries", lambda: iter(()))
    assert missing_ns3().startswith("ns-3 is not installed")


def senders(
    count: int, size: float, iterations: int = 1
) -> tuple[Problem, Realization]:
    """Return a job of some machines of 1 MB/s that send to the last one."""
    machines = tuple(Machine(f"m{m}", 1e6, 1e6) for m in range(count + 1))
    tasks = tuple(Task(f"t{t}", "task") for t in range(count + 1))
    edges = tuple(Edge(t, count) for t in range(count))
    problem = Problem(
        Cluster(machines),
        Job(tasks, edges, iterations),
        Placement((*range(count + 1),)),
    )
    volumes = np.full((count, iterations), size)
    return problem, Realization(np.zeros((count + 1, iterations)), volumes)


@needs_ns3
@pytest.mark.parametrize("control", list(Control))
@pytest.mark.parametrize("sharing", list(Shares))
def test_a_flow_takes_its_bytes_over_the_rate(
    sharing: Shares, control: Control
) -> None:
    run = simulate_packets(*senders(1, 3e6), sharing=sharing, control=control)

    assert run.schedule.makespan == pytest.approx(3.0, rel=0.02)
    assert run.schedule.makespan > 3.0  # a packet takes time to the switch and on


@needs_ns3
def test_flows_by_turns_end_together_and_none_is_dropped() -> None:
    run = simulate_packets(*senders(4, 1e6))

    assert run.dropped == 0
    np.testing.assert_allclose(run.schedule.flow_end[:, 0], 4.0, rtol=0.01)


@needs_ns3
def test_credits_between_machines_are_no_packets() -> None:
    problem, realization = senders(1, 1e6, iterations=3)
    edges = (*problem.job.edges, Edge(1, 0, 1, credit=True))
    job = Job(problem.job.tasks, edges, 3)
    volumes = np.concatenate([realization.volumes, np.full((1, 3), 5e6)])

    run = simulate_packets(
        Problem(problem.cluster, job, problem.placement),
        Realization(realization.times, volumes),
    )

    assert run.schedule.makespan == pytest.approx(3.0, rel=0.02)


@needs_ns3
def test_cables_have_the_latency_of_nics_with_bytes_and_without() -> None:
    """Three flows one after the other, each 0.5 s on its way; the last is empty."""
    machines = tuple(Machine(f"m{m}", 1e6, 1e6, latency_in=0.25, latency_out=0.25)
                     for m in range(2))  # fmt: skip
    edges = (Edge(0, 1), Edge(1, 0, 1), Edge(1, 0, 1, credit=True))
    job = Job((Task("a", "a"), Task("b", "b")), edges, 2)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    volumes = np.array([[3e4, 0.0], [3e4, 3e4], [0.0, 0.0]])
    realization = Realization(np.zeros((2, 2)), volumes)

    exact = simulate(problem, realization)
    assert exact.makespan == pytest.approx(3 * 0.5 + 2 * 0.03)
    schedule = simulate_packets(problem, realization).schedule
    # The windows of TCP grow by round trips, of 1 s here: these flows need up to two.
    assert exact.makespan < schedule.makespan < exact.makespan + 2 * 2.0
    assert schedule.task_start[1, 1] - schedule.task_end[0, 1] == pytest.approx(0.5)
    far = replace(machines[0], latency_in=0.1)
    apart = replace(problem, cluster=Cluster((far, machines[1])))
    with pytest.raises(ScenarioError, match="latencies that differ by direction"):
        simulate_packets(apart, realization)


@needs_ns3
def test_an_incast_into_one_queue_drops() -> None:
    run = simulate_packets(*senders(8, 1e6), sharing=Shares.TCP)

    assert run.dropped > 0
    assert run.schedule.makespan > 8.0


@needs_ns3
@pytest.mark.parametrize("seed", range(12))
def test_drawn_jobs_take_about_as_long_as_max_min_rates_say(seed: int) -> None:
    problem, realization = random_problem(
        np.random.default_rng([11, 100 + seed]),
        ties=seed % 4 == 0,
        own=seed % 2 == 0,
        slots=seed % 3 == 0,
    )
    volumes = np.where(realization.volumes > 0, realization.volumes, 0.0)
    fluid = makespan(problem, Realization(realization.times, volumes), "maxmin")

    schedule = simulate_packets(problem, realization, byte_scale=SCALE).schedule

    assert schedule.makespan == pytest.approx(fluid, rel=0.03, abs=0.05)
    assert schedule.makespan >= fluid * 0.97
    found = audit(schedule, tolerance=1e-6, relative=1e-3).violations
    assert [one.sentence for one in found] == []
    same = simulate(problem, realization, "maxmin")
    assert np.array_equal(np.isnan(schedule.flow_end), np.isnan(same.flow_end))


@needs_ns3
def test_the_command_prints_both_and_writes_json(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    ran = CliRunner().invoke(
        app, ["simulate", "golden", "--network", "ns3", "--json", str(out)]
    )

    assert ran.exit_code == 0, ran.output
    assert "max-min fair rates: 38 s, packets +0." in ran.output
    assert "not judged over packets: expect.makespan" in ran.output
    written = json.loads(out.read_text())
    assert written["makespan"] == pytest.approx(38.0, rel=0.02)
    assert written["packets"]["fluid_makespan"] == 38.0


def test_training_needs_a_schedule_of_rates() -> None:
    ran = CliRunner().invoke(app, ["simulate", "golden", "--network", "ns3", "--train"])
    assert ran.exit_code == 2
    assert "training goes with --network fluid alone" in ran.output


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["cluster.links=[{name: core, bandwidth: 10 B/s}]"], "links beside NICs"),
        (["events=[{at: 5 s, machine: m1, nic: 5 B/s}]"], "capacities that change"),
    ],
)
def test_what_packets_do_not_carry_is_refused(changes: list[str], said: str) -> None:
    found = prepare(load("golden", changes))
    with pytest.raises(ScenarioError, match=said):
        simulate_packets(found.problem, found.realization)


def test_a_machine_without_ns3_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "_libraries", lambda: iter(()))
    with pytest.raises(DataError, match="apt-get install libns3-dev"):
        simulate_packets(*senders(1, 1.0))


@needs_ns3
def test_a_program_that_does_not_compile_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "dag.cc"
    broken.write_text("int main() { return missing; }\n")
    monkeypatch.setattr(room, "PROGRAM", broken)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(DataError, match=r"does not compile with ns-3 .*missing"):
        simulate_packets(*senders(1, 1.0))
    assert [path.name for path in (tmp_path / "emu").iterdir()] == []
