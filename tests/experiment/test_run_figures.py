"""Figures that stand side by side in result.json, of processes that all differ."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from emu.experiment import run_result
from emu.experiment.attempts import Ended, outages_of, sum_losses
from emu.experiment.run_result import RunResult, memory_figures, transport_figures
from emu.experiment.scale_search import ScaleChoice, ScaleTrial
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
