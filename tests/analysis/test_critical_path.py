"""The chain of Theorem 1: contiguous, causal, and as long as the schedule."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import emu
from emu.analysis.critical_path import Cause, critical_path
from emu.analysis.link_load import LinkContention
from emu.scheduling import RATE_POLICIES
from emu.simulation import simulate
from emu.testing import two_machine_example
from emu.testing.strategies import problems, random_problem
from tests.analysis.chains import cases, distorted

if TYPE_CHECKING:
    from emu.analysis.critical_path import ChainLink
    from emu.problem import Problem, Realization, Schedule

CASES = cases()


def check_link(schedule: Schedule, link: ChainLink) -> None:
    """Check that a link lies within the execution or the flow that it names."""
    if link.edge >= 0:
        at = link.edge, link.iteration
        start, end = schedule.flow_start[at], schedule.flow_end[at]
    else:
        at = link.task, link.iteration
        start, end = schedule.task_start[at], schedule.task_end[at]
    if link.cause is Cause.GAP:
        assert link.end <= start + 1e-9
    else:
        assert start - 1e-9 <= link.start < link.end <= end + 1e-9


def check_chain(schedule: Schedule) -> None:
    links = critical_path(schedule).links

    for link in links:
        check_link(schedule, link)
    for before, after in pairwise(links):
        assert before.end == after.start
    if links:
        assert links[0].start == 0.0
        assert links[-1].end == schedule.makespan


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("policy", ["oes", "maxmin"])
def test_simulated_chain_closes(case: tuple[Problem, Realization], policy: str) -> None:
    schedule = simulate(*case, policy)
    chain = critical_path(schedule)

    check_chain(schedule)
    assert chain.seconds == pytest.approx(schedule.makespan, rel=1e-9, abs=1e-12)
    assert Cause.GAP not in {link.cause for link in chain.links}
    by_cause = chain.sums(lambda link: link.cause)
    assert sum(by_cause.values()) == pytest.approx(schedule.makespan, rel=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_emulated_chain_closes_with_its_gaps(
    case: tuple[Problem, Realization],
) -> None:
    schedule = distorted(simulate(*case))

    check_chain(schedule)
    assert critical_path(schedule).seconds == pytest.approx(schedule.makespan)


@given(problems())
def test_any_chain_closes(case: tuple[Problem, Realization]) -> None:
    schedule = simulate(*case)

    check_chain(schedule)


_FEATURES = ("links", "own", "slots", "channels", "latest", "jobs", "changes")


@given(
    st.integers(0, 2**32 - 1),
    st.sets(st.sampled_from(_FEATURES)),
    st.sampled_from([name for name in RATE_POLICIES if name != "portfolio"]),
    st.booleans(),
)
def test_no_simulated_schedule_has_a_gap(
    seed: int,
    features: set[str],
    policy: str,
    ties: bool,  # noqa: FBT001
) -> None:
    rng = np.random.default_rng(seed)
    case = random_problem(rng, ties=ties, **dict.fromkeys(features, True))
    schedule = simulate(*case, policy)
    chain = critical_path(schedule)

    assert Cause.GAP not in {link.cause for link in chain.links}
    assert chain.seconds == pytest.approx(schedule.makespan, rel=1e-9, abs=1e-12)


def test_a_channel_is_busy_with_its_other_flow() -> None:
    """Two flows of 4 s by turns on one channel: each waits for the one before."""
    file = {
        "name": "channel",
        "cluster": {"machines": [{"name": "m", "count": 2, "nic": "10 B/s"}]},
        "job": {
            "system": "custom",
            "iterations": 2,
            "tasks": [
                {"name": name, "time": f"{int(name in 'ac')} s"} for name in "abcd"
            ],
            "flows": [
                {"from": a, "to": b, "volume": "40 B", "channel": "x"}
                for a, b in ("ab", "cd")
            ],
        },
        "placement": {
            "policy": "explicit",
            "tasks": {"a": "m0", "c": "m0", "b": "m1", "d": "m1"},
        },
    }
    schedule = emu.simulate(emu.loads(json.dumps(file)))
    links = critical_path(schedule).links

    assert [(str(one.cause), one.start, one.end) for one in links] == [
        ("compute", 0.0, 1.0),
        ("channel", 1.0, 5.0),
        ("channel", 5.0, 9.0),
        ("channel", 9.0, 13.0),
        ("transfer", 13.0, 17.0),
    ]


def test_worked_example() -> None:
    """Store 0 to sampler 1, whose link to the worker then carries all three batches."""
    schedule = simulate(*two_machine_example(3))
    job = schedule.problem.job
    named = [
        (
            str(link.cause),
            job.edge_names[link.edge] if link.edge >= 0 else job.tasks[link.task].name,
            link.iteration,
            link.seconds,
        )
        for link in critical_path(schedule).links
    ]

    assert named == [
        ("compute", "g0", 0, 1.0),
        ("transfer", "g0->s1", 0, 4.0),
        ("compute", "s1", 0, 1.0),
        ("transfer", "s1->w0", 0, 4.0),
        ("in order", "s1->w0", 0, 8.0),
        ("in order", "s1->w0", 1, 8.0),
        ("transfer", "s1->w0", 2, 7.0),
        ("compute", "w0", 2, 3.0),
        ("transfer", "w0->p0", 2, 1.0),
        ("compute", "p0", 2, 1.0),
    ]


def test_credit_is_named() -> None:
    """With a window of 1 every store waits for the worker, 3 s in each iteration."""
    schedule = simulate(*two_machine_example(3, credit=1))
    sums = critical_path(schedule).sums(lambda link: link.cause)

    assert sums == {Cause.TRANSFER: 31.0, Cause.COMPUTE: 10.0, Cause.CREDIT: 6.0}


def test_bottleneck_is_the_port_with_the_smaller_share() -> None:
    """Into m1 at 5 B/s: the in port of m1 holds g0 -> s1 back, not the out port."""
    schedule = simulate(*two_machine_example(1, second_nic=5.0))
    contention = LinkContention(schedule)
    edge = 1  # g0 -> s1
    start, end = schedule.flow_start[edge, 0], schedule.flow_end[edge, 0]

    assert (
        schedule.problem.links[contention.bottleneck(edge, start, end)].name == "m1 in"
    )
    assert contention.bottleneck(0, 0.0, 1.0) == -1


def test_degree_counts_flows_with_bytes() -> None:
    schedule = simulate(*two_machine_example(1))

    assert LinkContention(schedule).degree(
        0, np.array([0.5, 1.0, 4.9, 5.0])
    ).tolist() == [
        0,
        1,
        1,
        0,
    ]
