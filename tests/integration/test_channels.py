"""Channels, servers and collectives of custom jobs: worked out by hand, and refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from emu.errors import ScenarioError
from emu.prediction.analysis.bounds import bounds, optimality
from emu.prediction.analysis.critical_path import Cause, critical_path
from emu.prediction.analysis.explanation import exact_name
from emu.prediction.simulation import makespan, simulate
from emu.problem import Problem, Realization, Schedule
from emu.scenario import prepare
from emu.scenario.experiment import Experiment
from emu.testing.strategies import problems
from emu.trust.audit import audit
from tests.integration.scenarios import custom, flow, read


def prepared(stated: dict[str, Any]) -> Experiment:
    return prepare(read(stated))


def ends(schedule: Schedule, edge: str) -> list[float]:
    """Return when the flows of an edge ended."""
    row = schedule.flow_end[schedule.problem.job.edge_positions[edge]]
    return [float(end) for end in row[~np.isnan(row)]]


def one_channel(**second: Any) -> dict[str, Any]:
    """Return p and q on a, which send to r and s; q sends later by its name alone."""
    return custom(
        [{"name": "p"}, {"name": "q", **second}, {"name": "r"}, {"name": "s"}],
        [flow("q", "s", "20 B", channel="c"), flow("p", "r", "20 B", channel="c")],
        {"p": "a", "q": "a", "r": "b", "s": "b"},
    )


def test_flows_of_a_channel_do_not_share_the_link() -> None:
    experiment = prepared(one_channel())
    schedule = simulate(experiment.problem, experiment.realization)
    assert ends(schedule, "p->r") == [3.0]  # ready together: r comes before s
    assert ends(schedule, "q->s") == [5.0]
    assert schedule.makespan == 6.0
    assert experiment.problem.job.channels == ("c",)


def test_who_is_ready_first_goes_first() -> None:
    experiment = prepared(one_channel(time="500 ms"))
    schedule = simulate(experiment.problem, experiment.realization)
    assert ends(schedule, "q->s") == [2.5]
    assert ends(schedule, "p->r") == [4.5]


def test_a_channel_may_go_to_several_machines_and_costs_nothing_within_one() -> None:
    stated = custom(
        [{"name": name} for name in "pqrstu"],
        [
            flow("p", "r", "20 B", channel="c"),
            flow("q", "s", "20 B", channel="c"),
            flow("p", "t", "20 B", channel="c"),
            flow("p", "u", "0 B", channel="c"),
        ],
        {"p": "a", "q": "b", "r": "d", "s": "e", "t": "a", "u": "d"},
    )
    experiment = prepared(stated)
    schedule = simulate(experiment.problem, experiment.realization)
    assert ends(schedule, "p->r") == [3.0]
    assert ends(schedule, "q->s") == [5.0]  # over NICs of its own
    assert ends(schedule, "p->t") == [1.0]  # handed over on a
    assert ends(schedule, "p->u") == [5.0]  # nothing to send, when its turn comes


def test_tasks_of_a_server_run_one_at_a_time() -> None:
    stated = custom(
        [
            {"name": "kv.pull", "server": "kv", "time": "2 s"},
            {"name": "kv.push", "server": "kv", "time": "2 s"},
            {"name": "w"},
        ],
        [flow("kv.push", "w", "10 B")],
        {"kv": "a", "w": "b"},
        iterations=2,
    )
    experiment = prepared(stated)
    job = experiment.problem.job
    schedule = simulate(experiment.problem, experiment.realization)
    ended = {t.name: schedule.task_end[j].tolist() for j, t in enumerate(job.tasks)}
    assert ended["kv.pull"] == [2.0, 6.0]
    assert ended["kv.push"] == [4.0, 8.0]
    assert list(job.processes) == ["kv", "w"]
    assert [pool.name for pool in experiment.problem.pools] == ["kv"]


def without_channels(problem: Problem) -> Problem:
    edges = tuple(replace(edge, channel="") for edge in problem.job.edges)
    return replace(problem, job=replace(problem.job, edges=edges))


def ring(times: list[str], **more: Any) -> dict[str, Any]:
    names = [f"w{i}" for i in range(len(times))]
    return custom(
        [{"name": n, "time": t} for n, t in zip(names, times, strict=True)],
        [],
        {name: f"m{i}" for i, name in enumerate(names)},
        collectives=[{"allreduce": {"among": names, "volume": "60 B", **more}}],
    )


@pytest.mark.parametrize("segments", [1, 2, 3])
def test_a_ring_takes_what_the_formula_says(segments: int) -> None:
    """2 (R - 1) steps of a chunk each, once the slowest has begun: 3 s + 6 * 1.5 s.

    Without channels what follows overtakes what is on its way, and both get late.
    """
    stated = ring(["1 s", "2 s", "1 s", "3 s"], segments=segments)
    experiment = prepared(stated)
    problem, realization = experiment.problem, experiment.realization
    assert makespan(problem, realization) == pytest.approx(12.0)
    assert makespan(without_channels(problem), realization) == pytest.approx(19.75)
    assert realization.volumes.sum() == pytest.approx(2 * 3 * 60)
    assert list(problem.job.processes) == ["w0", "w1", "w2", "w3"]


def test_who_waits_for_the_sum() -> None:
    """With w0 and w1 of 1 s: two steps of 3 s each, then the next iteration."""
    stated = ring(["1 s", "1 s"])
    stated["job"]["iterations"] = 2
    experiment = prepared(stated)
    assert makespan(experiment.problem, experiment.realization) == pytest.approx(14.0)

    stated["job"]["tasks"] += [{"name": f"o{i}", "time": "2 s"} for i in (0, 1)]
    stated["placement"]["tasks"] |= {"o0": "m0", "o1": "m1"}
    reduction = stated["job"]["collectives"][0]["allreduce"]
    reduction["then"] = ["o0", "o1"]
    experiment = prepared(stated)  # w1 goes on; its flows wait in line
    assert makespan(experiment.problem, experiment.realization) == pytest.approx(15.0)


@given(drawn=problems(links=True, own=True, channels=True))
def test_what_is_read_off_a_schedule_with_channels(
    drawn: tuple[Problem, Realization],
) -> None:
    schedule = simulate(*drawn, "oes", record_rates=True)
    assert audit(schedule).violations == []
    assert critical_path(schedule).seconds == pytest.approx(schedule.makespan)
    assert bounds(*drawn).combined <= schedule.makespan * (1 + 1e-9)


def test_the_chain_names_who_held_the_channel() -> None:
    experiment = prepared(one_channel())
    problem, realization = experiment.problem, experiment.realization
    schedule = simulate(problem, realization)
    links = critical_path(schedule).links
    held = [link for link in links if link.cause is Cause.CHANNEL]
    assert [exact_name(problem, link) for link in held] == ["p->r"]
    assert [link.seconds for link in held] == [2.0]  # from 1 s, when q->s was ready
    theorem = optimality(schedule, realization, "oes")["theorem1"]
    assert theorem["kept"] is False


def test_a_channel_is_a_bound() -> None:
    stated = custom(
        [{"name": name} for name in "pqrs"],
        [flow("p", "r", "20 B", channel="c"), flow("q", "s", "20 B", channel="c")],
        {"p": "a", "q": "b", "r": "d", "s": "e"},
    )
    experiment = prepared(stated)
    found = bounds(experiment.problem, experiment.realization)
    assert (found.combined, found.binding) == (6.0, "channel c")


def test_audit_finds_turns_that_were_not_kept() -> None:
    experiment = prepared(one_channel())
    schedule = simulate(experiment.problem, experiment.realization)
    job = experiment.problem.job
    first, later = job.edge_positions["p->r"], job.edge_positions["q->s"]
    schedule.flow_start[later, 0] = 2.0
    assert "channels q->s[0] started while another flow was under way" in str(
        audit(schedule).violations[0]
    )
    schedule.flow_start[later, 0] = 3.0
    schedule.flow_ready[first, 0] = 1.5
    sentences = [v.sentence for v in audit(schedule).violations]
    assert "p->r[0] started before one that got ready earlier on channel c" in sentences


def refused(stated: dict[str, Any]) -> tuple[str | None, str]:
    with pytest.raises(ScenarioError) as caught:
        read(stated)
    assert caught.value.line is not None
    return caught.value.key, caught.value.problem


@pytest.mark.parametrize(
    ("reduction", "key", "story"),
    [
        ({"among": ["w0"]}, "among", "one task alone has nothing to exchange"),
        ({"among": ["w0", "v1"]}, "among", "no task 'v1'"),
        ({"among": ["w0", "w1", "w0"]}, "among", "'w0' occurs 2 times"),
        ({"volume": "0 B"}, "volume", "found 0 bytes"),
        ({"volume": ["1 B", "2 B"]}, "volume", "found 2 values for 3 iterations"),
        ({"lag": 0}, "lag", "found 0: who brings can wait"),
        ({"then": ["w0"]}, "then", "found 1 for 2 tasks"),
        ({"segments": 0}, "segments", "found 0, write 1 or more"),
        ({"among": ["w0", "g"]}, "among", "'g' is a gate"),
        ({"among": ["w0", "few"]}, "among", "found different numbers of iterations"),
    ],
)  # fmt: skip
def test_an_all_reduce_that_cannot_be(
    reduction: dict[str, Any], key: str, story: str
) -> None:
    stated = ring(["1 s", "1 s"], **reduction)
    job = stated["job"]
    job["iterations"] = 3
    job["tasks"] += [{"name": "g", "gate": True, "time": "0 s"}]
    job["tasks"] += [{"name": "few", "iterations": 2, "time": "0 s"}]
    stated["placement"]["tasks"] |= {"g": "m0", "few": "m1"}
    found, problem = refused(stated)
    assert found == f"job.collectives[0].allreduce.{key}"
    assert problem.startswith(story)


@pytest.mark.parametrize(
    ("task", "key", "story"),
    [
        ({"process": "p"}, "server", "a server is a process with one slot"),
        ({"slot": "gpu"}, "server", "a server is a process with one slot"),
        ({"server": "gpu"}, "server", "machines have slots called 'gpu'"),
        ({"pin": "b"}, "pin", "found 'b', but kv0 of the same server 'kv' must"),
        ({"server": "w"}, "server", None),
    ],
)  # fmt: skip
def test_a_server_that_cannot_be(task: dict[str, Any], key: str, story: str) -> None:
    stated = custom(
        [
            {"name": "kv0", "server": "kv", "pin": "a"},
            {"name": "kv1", "server": "kv", **task},
            {"name": "w", "process": "elsewhere"},
        ],
        [],
        {"w": "a", "kv0": "a", "kv1": "a"},
    )
    stated["cluster"]["machines"].append({"name": "b", "nic": "1 B/s"})
    stated["cluster"]["machines"][0]["slots"] = {"gpu": 1}
    found, problem = refused(stated)
    assert found == f"job.tasks[1].{key}"
    assert problem.startswith(story or "task 'w' runs in process 'elsewhere'")


def test_a_server_stands_on_one_machine() -> None:
    stated = custom(
        [{"name": "kv0", "server": "kv"}, {"name": "kv1", "server": "kv"}],
        [],
        {"kv0": "a", "kv1": "b"},
    )
    key, problem = refused(stated)
    assert key == "placement.tasks.kv1"
    assert "kv0" in problem


def test_a_gate_needs_no_channel() -> None:
    stated = custom(
        [{"name": "p"}, {"name": "g", "gate": True}],
        [flow("p", "g", "0 B", channel="c")],
        {"p": "a", "g": "a"},
    )
    assert refused(stated) == (
        "job.flows[0].channel",
        "nothing is sent to or from the gate 'g', remove this",
    )


@pytest.mark.emulation
def test_over_sockets_nothing_is_sent_before_its_turn(tmp_path: Path) -> None:
    """Two senders share a channel beside a ring of three, and a server of one thread.

    On every link a flow could have the same rate earlier: no NIC is shared.
    """
    from emu.emulation.coordinator import RunSettings, emulate

    tasks = [{"name": f"w{i}"} for i in range(3)]
    tasks += [{"name": name, "server": "kv"} for name in ("pull", "push")]
    tasks += [{"name": name} for name in "pqrs"]
    stated = custom(
        tasks,
        [
            flow("p", "r", "20 B", channel="c"),
            flow("q", "s", "20 B", channel="c"),
            flow("p", "s", "0 B", channel="c"),
            flow("push", "r", "10 B"),
        ],
        {"w0": "a", "w1": "b", "w2": "c", "kv": "c"}
        | {"p": "d", "q": "e", "r": "f", "s": "g"},
        iterations=2,
        collectives=[{"allreduce": {"among": ["w0", "w1", "w2"], "volume": "30 B"}}],
    )
    experiment = prepared(stated)
    problem, realization = experiment.problem, experiment.realization
    settings = RunSettings(time_scale=0.1, byte_scale=50_000.0, deadline=60.0)
    run = emulate(problem, "maxmin", settings, realization, log=tmp_path / "agent.log")

    simulated = simulate(problem, realization, "maxmin")
    assert run.schedule.makespan == pytest.approx(simulated.makespan, rel=0.05)
    assert audit(run.schedule, tolerance=0.5, relative=0.05).violations == []
    line = [problem.job.edge_positions[name] for name in ("p->r", "q->s")]
    first, second = run.schedule.flow_start[line[1]], run.schedule.flow_end[line[0]]
    assert first[0] >= second[0]
