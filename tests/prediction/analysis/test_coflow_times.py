"""Times of coflows beside plain loops over flows, and in what commands print."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from emu.cli.app import app
from emu.prediction.analysis.coflow_times import coflow_times
from emu.prediction.simulation import simulate
from emu.problem import Schedule
from emu.testing.strategies import random_problem


def count_plainly(schedule: Schedule) -> dict[tuple[str, int], tuple[float, float]]:
    """Return seconds, and seconds alone, by name and iteration, flow by flow."""
    problem = schedule.problem
    spans: dict[tuple[str, int], list[float]] = {}
    loads: dict[tuple[str, int], dict[int, float]] = {}
    for e, edge in enumerate(problem.job.edges):
        for n in range(schedule.flow_bytes.shape[1]):
            size = schedule.flow_bytes[e, n]
            if not edge.coflow or not problem.hops[e] or not size > 0:
                continue
            key = edge.coflow, n + edge.lag
            spans.setdefault(key, []).append(schedule.flow_ready[e, n])
            spans[key].append(schedule.flow_end[e, n])
            for port in problem.hops[e]:
                of_port = loads.setdefault(key, {})
                of_port[port] = of_port.get(port, 0.0) + size
    return {
        key: (
            max(span) - min(span),
            max(b / problem.links[p].capacity for p, b in loads[key].items()),
        )
        for key, span in spans.items()
    }


@given(seed=st.integers(0, 2**32), links=st.booleans())
def test_times_are_those_of_plain_loops(*, seed: int, links: bool) -> None:
    problem, realization = random_problem(
        np.random.default_rng(seed), coflows=True, links=links
    )
    schedule = simulate(problem, realization, "sebf_madd")
    plain, times = count_plainly(schedule), coflow_times(schedule)

    if times is None:
        assert not plain
        return
    assert {*times.names} == plain.keys()
    for key, *seconds in zip(times.names, times.seconds, times.alone, strict=True):
        assert seconds == pytest.approx(plain[key])


def test_flows_without_a_name_are_in_no_coflow() -> None:
    problem, realization = random_problem(np.random.default_rng(0))
    edges = tuple(replace(edge, coflow="") for edge in problem.job.edges)
    problem = replace(problem, job=replace(problem.job, edges=edges))
    assert coflow_times(simulate(problem, realization, "oes")) is None


def test_commands_say_how_long_coflows_take(tmp_path: Path) -> None:
    """Two shuffles into one port: the short one first, or both at half its rate."""
    names = ["a", "b", "c"]
    sizes = {"a": "1 B", "b": "3 B"}
    scenario = {
        "cluster": {"machines": [{"name": name, "nic": "1 B/s"} for name in names]},
        "job": {
            "system": "custom",
            "iterations": 1,
            "tasks": [{"name": f"t{name}", "time": "0 s"} for name in names],
            "flows": [
                {"from": f"t{name}", "to": "tc", "volume": size, "coflow": name}
                for name, size in sizes.items()
            ],
        },
        "placement": {
            "policy": "explicit",
            "tasks": {f"t{name}": name for name in names},
        },
    }
    file = tmp_path / "shuffles.json"
    file.write_text(json.dumps(scenario))

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, [arguments[0], str(file), *arguments[1:]])
        assert result.exit_code == 0, result.output
        return result.stdout  # a slow command says on stderr that it is at work

    rows = json.loads(run("compare", "--policies", "all", "--json", "-"))
    times = {row["policy"]: row["coflows"] for row in rows}
    assert len(times) == len(rows) > 10
    assert times["sebf_madd"] == pytest.approx(
        {"count": 2, "mean": 2.5, "p95": 1 + 0.95 * 3, "slowdown": (1 + 4 / 3) / 2}
    )
    assert times["maxmin"] == pytest.approx(
        {"count": 2, "mean": 3, "p95": 2 + 0.95 * 2, "slowdown": (2 + 4 / 3) / 2}
    )
    assert "2 coflows: 2.5 s on average" in run(
        "simulate", "--set", "schedule.policy=sebf_madd"
    )
    assert "slowdown" in run("compare", "--policies", "sebf_madd")
