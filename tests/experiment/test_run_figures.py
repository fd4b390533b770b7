"""Figures that stand side by side in result.json, of processes that all differ."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.experiment import run_result
from emu.experiment.attempts import Ended, outages_of, sum_losses
from emu.experiment.run_result import (
    PreparedRun,
    RunResult,
    memory_figures,
    transport_figures,
)
from emu.experiment.scale_search import KernelForecast, ScaleChoice, ScaleTrial
from emu.problem import Edge, Job, Task
from emu.trust.lateness import HostEffect, Lateness
from emu.trust.verdict import HostFigures, decide


def _run(*, by_tcp: bool) -> Any:
    """Return a run of two processes on two hosts."""
    sent = [
        {"payload_bytes": 500, "header_bytes": 7, "late_sends": 1, "max_behind": 0.25},
        {"payload_bytes": 30, "header_bytes": 2, "late_sends": 4, "max_behind": 0.75},
        {"payload_bytes": 200, "header_bytes": 3, "late_sends": 0, "max_behind": 0.5},
    ]
    statistics = {
        "a": {
            "memory": {"high_water": 50, "limit": 90},
            "sent": sent[:2],
            "cpu_seconds": 1.5,
        },
        "b": {
            "memory": {"high_water": 80, "limit": 700},
            "sent": sent[2:],
            "cpu_seconds": 4.0,
        },
    }
    hosts: list[dict[str, Any]] = [{"host": "x"}, {"host": "y"}]
    if by_tcp:
        first = {"segments": 100, "retransmitted": 5, "timeouts": 1}
        second = {"segments": 40, "retransmitted": 2, "timeouts": 3}
        hosts = [{"tcp": first}, {"tcp": second}]
    return SimpleNamespace(statistics=statistics, hosts=hosts)


def test_the_fullest_process_and_the_least_limit_are_named() -> None:
    assert memory_figures(_run(by_tcp=False)) == {
        "high_water": 80.0,
        "total_high_water": 130.0,
        "limit": 90.0,
    }


def test_a_run_is_held_against_its_trial_by_all_that_its_end_may_be_off() -> None:
    """Lateness moved the end by 0.2 %, and 0.3 % have no reason."""
    effect = HostEffect(100.5, repeated=100.2, punctual=100.0, simulated=100.2)
    verdict = decide(
        effect,
        Lateness(0.2, 0.0, 0.0),
        HostFigures(cpu_busy=0.5),
        time_scale=2.0,
        max_error=0.01,
        processes=3,
    )
    trial = ScaleTrial(2.0, 2, 1.0, 0.5, 0.1, error=0.004, late_flows=0, flows=9)
    outcome: Any = SimpleNamespace(
        choice=ScaleChoice((trial,), 2.0, trial),
        predicted=SimpleNamespace(length=100.0),
        settings=SimpleNamespace(time_scale=2.0),
        run=SimpleNamespace(wall=201.0),
        verdict=verdict,
        _transport={"flows": 9, "late_flows": 0},
    )

    figures = RunResult._scales(outcome)["auto_scale"]

    assert figures["predicted"]["error"] == 0.004
    assert figures["actual"]["error"] == pytest.approx(0.005)
    assert figures["actual"]["error"] == verdict.to_json()["shift"]


def test_payload_and_headers_are_counted_apart() -> None:
    plain = {
        "payload_bytes": 730.0,
        "header_bytes": 12.0,
        "late_sends": 5,
        "max_behind_wall_seconds": 0.75,
        "cpu_seconds": 5.5,
    }
    of_tcp = {"segments": 140, "retransmitted": 7, "timeouts": 4}

    assert transport_figures(_run(by_tcp=False)) == plain
    assert transport_figures(_run(by_tcp=True)) == plain | of_tcp
    mixed = _run(by_tcp=True)
    mixed.hosts.append({"host": "z"})
    assert transport_figures(mixed) == plain


def test_each_of_several_hosts_adds_the_drift_of_its_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A single host has no row, nor have those that count TCP of their own NICs."""
    drifts = {"m0": 0.5, "m1": 0.25, "m2": -2.0}
    monkeypatch.setattr(run_result, "drift_of_machines", lambda *_: drifts)
    first = {"host": "x", "machines": ["m0", "m2", "m3"], "cpus": 4, "emu": "1.2"}
    second = {"host": "y", "machines": ["m1"], "cpus": 2, "emu": "1.2"}

    def rows_of(*hosts: dict[str, Any]) -> Any:
        run: Any = SimpleNamespace(hosts=[*hosts], schedule=None)
        schedule: Any = None
        return run_result.host_rows(run, schedule)

    rows = [{**first, "seconds": -1.5}, {**second, "seconds": 0.25}]
    assert rows_of(first, second, {"machines": ["m4"]}) == {"hosts": rows}
    assert rows_of(first) == {}
    assert rows_of({**first, "tcp": {}}, second) == {}


def test_what_is_done_again_is_no_recovery() -> None:
    attempts = [
        Ended(
            first_iteration=0,
            next_iteration=4,
            ran=10.0,
            again=3.0,
            detection=0.5,
            recovery=2.0,
            error="a death",
        ),
        Ended(
            first_iteration=4,
            next_iteration=9,
            ran=20.0,
            again=7.0,
            detection=0.25,
            recovery=5.0,
            error="another",
        ),
    ]
    outages = outages_of(attempts)

    assert sum_losses(attempts) == {"recovery": 7.0, "again": 10.0}
    assert (outages.seconds, outages.recovery) == (37.0, 7.0)


def test_reads_that_are_others_than_simulated_are_counted() -> None:
    """Two edges, of 3 and 2 rounds, read the newest, and three reads differ."""
    edges = [
        SimpleNamespace(latest=True, destination=1),
        SimpleNamespace(latest=False, destination=0),
        SimpleNamespace(latest=True, destination=2),
    ]
    job = SimpleNamespace(edges=edges, rounds=[9, 3, 2])
    reads = np.array([[0, 1, 2], [5, 5, 5], [0, 0, -1]])
    others = np.array([[0, 0, 1], [6, 6, 6], [0, 0, 0]])
    look = SimpleNamespace(accuracy=0.5)
    outcome: Any = SimpleNamespace(
        problem=SimpleNamespace(job=job),
        run=SimpleNamespace(schedule=SimpleNamespace(reads=reads)),
        predicted=SimpleNamespace(reads=others),
        experiment=SimpleNamespace(until=SimpleNamespace(split="valid"), reached=look),
        training={"accuracy": {"valid": 0.75, "test": 0.25}},
    )
    content = {"count": 5, "other": 3}
    assert RunResult._reads(outcome) == {"reads_apart": {**content, "accuracy": 0.25}}
    outcome.experiment.until.split = "train"
    assert RunResult._reads(outcome) == {"reads_apart": content}
    outcome.experiment.until = None
    assert RunResult._reads(outcome) == {"reads_apart": content}
    outcome.experiment.until = SimpleNamespace(split="valid")
    outcome.experiment.reached = None
    assert RunResult._reads(outcome) == {"reads_apart": content}
    outcome.run.schedule.reads = None
    assert RunResult._reads(outcome) == {}
    outcome.run.schedule.reads = reads
    outcome.predicted.reads = None
    assert RunResult._reads(outcome) == {}


def test_scales_of_kernel_nics_are_held_against_delay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The budget is over the length of the replay, the wall over the prediction's."""
    monkeypatch.setattr(
        run_result, "before_first_bytes", lambda budget, length: budget["x"] / length
    )
    forecast = KernelForecast(hops=9, delay=0.005, cpu_busy=0.25)
    outcome: Any = SimpleNamespace(
        choice=ScaleChoice((), 2.0, None, forecast),
        predicted=SimpleNamespace(length=100.0),
        replayed=SimpleNamespace(length=50.0),
        error_budget={"x": 5.0},
        settings=SimpleNamespace(time_scale=2.0),
        run=SimpleNamespace(wall=201.0),
        verdict=SimpleNamespace(figures=SimpleNamespace(cpu_busy=0.4)),
    )
    figures = RunResult._scales(outcome)["auto_scale"]
    assert figures["predicted"] == {
        "wall_seconds": 200.0,
        "cpu_busy": 0.25,
        "delay": 0.005,
    }
    assert figures["actual"] == {"wall_seconds": 201.0, "cpu_busy": 0.4, "delay": 0.1}
    outcome.choice = None
    assert RunResult._scales(outcome) == {}


def test_a_share_of_late_flows_is_of_all_flows() -> None:
    trial = ScaleTrial(2.0, 2, 1.0, 0.5, 0.1, error=0.004, late_flows=3, flows=12)
    outcome: Any = SimpleNamespace(
        choice=ScaleChoice((trial,), 2.0, trial),
        predicted=SimpleNamespace(length=10.0),
        settings=SimpleNamespace(time_scale=2.0),
        run=SimpleNamespace(wall=21.0),
        verdict=SimpleNamespace(
            figures=SimpleNamespace(cpu_busy=0.4), effect=SimpleNamespace(shift=0.01)
        ),
        _transport={"flows": 10, "late_flows": 4},
    )
    figures = RunResult._scales(outcome)["auto_scale"]
    assert figures["actual"]["late_flows"] == 0.4
    assert figures["predicted"]["late_flows"] == 0.25
    outcome._transport = {"flows": 1, "late_flows": 1}
    assert RunResult._scales(outcome)["auto_scale"]["actual"]["late_flows"] == 1.0
    outcome._transport = {"flows": 0, "late_flows": 0}
    assert RunResult._scales(outcome)["auto_scale"]["actual"]["late_flows"] == 0.0


@pytest.mark.parametrize(
    ("rates", "profile", "word"),
    [
        ((None, None), None, "stated"),
        ((None, None), "p.json", "profiled"),
        ((None, "rates"), None, "counted"),
        (("rates", None), "p.json", "counted"),
    ],
)
def test_times_are_counted_where_a_job_states_rates(
    rates: tuple[str | None, ...], profile: str | None, word: str
) -> None:
    jobs = [("", "", SimpleNamespace(operation_rates=stated)) for stated in rates]
    scenario = SimpleNamespace(each_job=lambda: jobs, profile=profile)
    prepared: Any = SimpleNamespace(experiment=SimpleNamespace(scenario=scenario))
    assert PreparedRun.times.fget(prepared) == word  # type: ignore[attr-defined]


def test_what_a_run_adds_to_its_file_is_there_where_it_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Failures are drawn from time 0 of the whole job until the last attempt's end."""
    ends = []
    counts: dict[str, int] = {}

    def count_failures(_: object, end: float) -> dict[str, int]:
        ends.append(end)
        return counts

    depth = {"value": 0}
    monkeypatch.setattr(run_result, "count_failures", count_failures)
    monkeypatch.setattr(run_result, "pipeline_depth", lambda _: depth["value"])
    emulation = SimpleNamespace(network="shaped", sharing="fair", flow_ends="arrival")
    section = SimpleNamespace(credit_window=3)
    scenario = SimpleNamespace(
        name="it", placed_by="ifs", job=section, emulation=emulation
    )
    experiment = SimpleNamespace(
        scenario=scenario,
        problem=SimpleNamespace(job=SimpleNamespace(iterations=8, processes="abc")),
        first=0,
        began=5.0,
        placing={},
        cause_of_length={},
    )
    schedule = SimpleNamespace(length=7.0)
    outcome: Any = SimpleNamespace(
        experiment=experiment, run=SimpleNamespace(schedule=schedule), times="stated"
    )
    plain = RunResult._settings_of_file(outcome)
    assert (plain["iterations"], plain["processes"]) == (8, 3)
    assert not plain.keys() & {"mini_batches", "first_iteration", "failures"}
    depth["value"] = 2
    experiment.first = 4
    counts["kill"] = 1
    full = RunResult._settings_of_file(outcome)
    assert (full["mini_batches"], full["first_iteration"]) == (6, 4)
    assert full["failures"] == {"kill": 1}
    assert ends == [12.0, 12.0]


def jobs_of(*names: str) -> Job:
    """Return jobs that have a worker and a store each, with settings of their own."""
    tasks = []
    for name in names:
        tasks += [Task(f"{name}/w0", "worker"), Task(f"{name}/g0", "store")]
    settings = {"jobs": {name: {"of": name} for name in names}}
    return Job(tuple(tasks), (Edge(0, 1),), 4, settings=settings)


def test_a_job_of_several_has_its_own_tasks_by_their_own_names() -> None:
    alone, plain_names = run_result._job_alone(jobs_of("a", "b"), "b", "b/")
    assert plain_names == {"b/w0": "w0", "b/g0": "g0"}
    assert [(task.name, task.kind) for task in alone.tasks] == [
        ("w0", "worker"),
        ("g0", "store"),
    ]
    assert (alone.edges, alone.iterations, alone.settings) == ((), 4, {"of": "b"})


def test_what_jobs_have_learnt_stands_beside_their_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Parts of two jobs may be called alike: they begin with the names of these."""
    times: list[Any] = []
    asked: list[Any] = []

    def figures(job: Job, run: Any, name: str, weights: Any) -> Any:
        asked.append((job, run, name, weights))
        return {"loss": f"of {name}"}, {"w": name}

    monkeypatch.setattr(run_result, "_figures", figures)
    monkeypatch.setattr(run_result, "list_model_figures", lambda _: ["m"])
    monkeypatch.setattr(run_result, "job_times", lambda *_, **__: times)
    prepared: Any = SimpleNamespace(
        problem=SimpleNamespace(job="job"),
        experiment=SimpleNamespace(scenario=None),
        policy="oes",
    )
    run: Any = SimpleNamespace(schedule=None, realization=None)
    parts: Any = {"w": 1}
    single: Any = run_result.learnt(prepared, run, parts)
    assert single == ({"models": ["m"], "loss": "of "}, {"w": ""})
    for name in "ab":
        facts = {"job": name, "loss": 0}
        times.append(SimpleNamespace(job=name, to_json=facts.copy))
    several: Any = run_result.learnt(prepared, run, parts)
    content, arrays = several
    assert content == {
        "models": ["m"],
        "training": [],
        "jobs": [{"job": "a", "loss": "of a"}, {"job": "b", "loss": "of b"}],
    }
    assert arrays == {"a/w": "a", "b/w": "b"}
    assert asked == [("job", run, name, parts) for name in ("", "a", "b")]


@pytest.mark.parametrize("by_results", [False, True])
def test_a_job_is_judged_by_its_own_reports_and_weights(
    by_results: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Weights of b are two parts, of which the second is a matrix, in their order."""
    curves: list[Any] = []
    flats = []
    results_of = []

    def trained(_: Job, results: Any) -> Any:
        results_of.append(results)
        return np.array([5.0, 6.0, 7.0, 8.0, 9.0])

    def evaluate(settings: Any, flat: Any) -> Any:
        flats.append(flat.tolist())
        return {"test": settings["of"]}

    shapes = {"u": (1,), "v": (2, 2)}
    monkeypatch.setattr("emu.runs.result.training_curve", curves.append)
    monkeypatch.setattr(
        run_result,
        "curve_until_divergence",
        lambda _, ends_well=True: {"ok": ends_well},
    )
    monkeypatch.setattr(
        run_result, "system_of", lambda _: SimpleNamespace(trained=trained)
    )
    monkeypatch.setattr(run_result, "list_training", lambda _: ["it"])
    monkeypatch.setattr(run_result, "open_for", lambda _: None)
    monkeypatch.setattr(run_result, "parameter_shapes", lambda *_: shapes)
    monkeypatch.setattr(run_result, "evaluate", evaluate)
    reports: list[Any] = [
        (0.5, "a/w0", 1, {}),
        (0.6, "b/w0", 2, {}),
        (0.7, "b/g0", 3, {}),
    ]
    run: Any = SimpleNamespace(
        reports=reports, results={"a/w0": "x", "b/w0": "y", "b/g0": "z"}
    )
    weights = {
        "b/v": np.array([[2.0, 3.0], [4.0, 5.0]]),
        "b/u": np.array([1.0]),
        "a/u": np.array([8.0]),
    }
    found, parts = run_result._figures(
        jobs_of("a", "b"), run, "b", None if by_results else weights
    )
    assert found == {"ok": True, "accuracy": {"test": "b"}}
    assert curves == [reports[1:]]
    expected = [5.0, 6.0, 7.0, 8.0, 9.0] if by_results else [1.0, 2.0, 3.0, 4.0, 5.0]
    assert flats == [expected]
    assert parts["v"].tolist() == [expected[1:3], expected[3:]]
    assert results_of == ([{"w0": "y", "g0": "z"}] if by_results else [])
