"""Rules of one's own: equal to ours where they say the same, and held to the links."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from emu.errors import DataError, InfeasiblePlacement, SchedulingError
from emu.prediction.placement import best_placement
from emu.prediction.placement.etp import EtpOptions, search_etp
from emu.prediction.placement.search import SearchOptions
from emu.prediction.scheduling.policies import OwnRates, check_rates, rate_policy
from emu.prediction.simulation import makespan, simulate
from emu.problem import (
    ActiveFlow,
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Profile,
    Realization,
    Task,
)
from emu.scenario.own_rules import register_program
from emu.testing import two_machine_example
from emu.testing.strategies import problems
from emu.trust.audit import audit
from emu.trust.rate_audit import rule_audit
from tests.golden.cases import Case, cases, exactly, problem_of
from tests.prediction.scheduling.virtual_coordinator import VirtualCoordinator
from tools.benches.evaluator import MakespanEvaluator, search

FILE = Path(__file__).resolve().parents[3] / "scenarios" / "own_rule" / "sebf.py"
SEBF = register_program(f"{FILE}:Sebf", FILE.read_text())
EQUAL = """
class Equal:
    def rates(self, flows, capacity):
        crossed = [link for flow in flows for link in flow.links]
        return [min(capacity[link] / crossed.count(link) for link in flow.links)
                for flow in flows]
"""


def rule(text: str, name: str = "Mine") -> str:
    """Return the name of a rule that ``text`` defines."""
    return register_program(f"mine.py:{name}", text)


def returning(expression: str) -> str:
    """Return the name of a rule that always returns this of flows and capacity."""
    return rule(
        f"class Mine:\n def rates(self, flows, capacity):\n  return {expression}\n"
    )


def assert_equal(
    drawn: tuple[Problem, Realization], own: str, built_in: str, exactness: float
) -> None:
    one, other = (
        simulate(*drawn, policy, record_rates=True) for policy in (own, built_in)
    )
    for name in ("task_end", "flow_ready", "flow_start", "flow_end"):
        np.testing.assert_allclose(
            getattr(one, name), getattr(other, name), rtol=exactness, err_msg=name
        )
    assert makespan(*drawn, own) == one.makespan
    assert audit(one).passed
    assert rule_audit(one, own, drawn[1], rate_policy(own).rates)[1] == []


@given(drawn=problems())
def test_sebf_written_again(drawn: tuple[Problem, Realization]) -> None:
    assert_equal(drawn, SEBF, "sebf_madd", 1e-9)


@given(drawn=problems(links=True, own=True, jobs=True, changes=True))
def test_sebf_written_again_over_links_that_change(
    drawn: tuple[Problem, Realization],
) -> None:
    assert_equal(drawn, SEBF, "sebf_madd", 1e-9)


@given(drawn=problems(links=True, cuts=True))
def test_sebf_written_again_knows_no_cut(drawn: tuple[Problem, Realization]) -> None:
    problem, realization = drawn
    found = simulate(problem, realization, SEBF, record_rates=True)
    assert audit(found).passed
    assert rule_audit(found, SEBF, realization, rate_policy(SEBF).rates)[1] == []


@given(drawn=problems(links=True, slots=True, channels=True, latest=True))
def test_equal_shares_written_again(drawn: tuple[Problem, Realization]) -> None:
    assert_equal(drawn, rule(EQUAL, "Equal"), "oes", 1e-9)


GOLDEN = [
    pytest.param(case, id=f"{file}-{case}")
    for file in ("hops", "executors", "jobs", "ring", "p3", "dgcl", "dorylus")
    for case in cases(file)
    if "oes" in case.results
]


@pytest.mark.parametrize("case", GOLDEN)
def test_golden_cases(case: Case) -> None:
    problem = problem_of(case)
    (span,) = exactly([case.results["oes"]["makespan"]])
    shared = simulate(*problem, rule(EQUAL, "Equal"))
    assert shared.makespan == pytest.approx(span, rel=1e-9)
    assert_equal(problem, SEBF, "sebf_madd", 1e-9)


@settings(max_examples=30)
@given(drawn=problems(links=True, changes=True))
def test_driven_by_events_it_decides_as_in_a_simulation(
    drawn: tuple[Problem, Realization],
) -> None:
    problem, realization = drawn
    simulated = simulate(problem, realization, SEBF)
    coordinator = VirtualCoordinator(problem, realization, SEBF)
    coordinator.run()

    for name in ("task_end", "flow_ready", "flow_start", "flow_end"):
        found = getattr(coordinator.scheduler.log, name)
        np.testing.assert_allclose(found, getattr(simulated, name), rtol=1e-9)


def test_a_flow_of_another_placement_is_another_one() -> None:
    """With one iteration it serves the same one: a search must look at its links anew.

    The source's 40 bytes cross links of 10 and of 1 B/s, by placement.
    """
    cluster = Cluster(
        (Machine("a", 10.0, 10.0), Machine("b", 10.0, 10.0), Machine("c", 1.0, 1.0))
    )
    job = Job((Task("s", "s"), Task("d", "d")), (Edge(0, 1),), 1)
    run = Realization(np.ones((2, 1)), np.full((1, 1), 40.0))
    evaluator = MakespanEvaluator(job, cluster, rule(EQUAL, "Equal"))

    found = [
        evaluator.makespan(np.array([0, place], np.int64), run) for place in (1, 2, 1)
    ]

    assert found == [6.0, 42.0, 6.0]


def test_searches_judge_placements_by_it() -> None:
    problem, realization = two_machine_example(3)
    job, cluster = problem.job, problem.cluster
    evaluator = MakespanEvaluator(job, cluster, SEBF)
    machine_of = np.array(problem.placement.machine_of, np.int64)
    assert evaluator.makespan(machine_of, realization) == makespan(
        problem, realization, SEBF
    )
    profile = Profile(realization.times, realization.volumes)
    for own, ours in ((SEBF, "sebf_madd"), (rule(EQUAL, "Equal"), "oes")):
        found = [
            (
                search_etp(
                    job, cluster, profile, options=EtpOptions(transfers=200, policy=one)
                ).makespan,
                search(
                    job,
                    cluster,
                    profile,
                    options=SearchOptions(transfers=200, policy=one),
                ).makespan,
            )
            for one in (own, ours)
        ]
        assert found[0] == pytest.approx(found[1], rel=1e-9)


def test_a_rule_is_given_what_is_documented() -> None:
    problem, realization = two_machine_example(2)
    job = problem.job
    lags = {name: e.lag for name, e in zip(job.edge_names, job.edges, strict=True)}
    text = f"""
class Mine:
    def rates(self, flows, capacity):
        order = [(f.serves, f.destination, f.source) for f in flows]
        assert order == sorted(order)
        for f in flows:
            assert f.edge == f.source + "->" + f.destination in {job.edge_names!r}
            lag = {lags!r}[f.edge]
            assert f.iteration == f.serves - lag and f.job == ""
            assert 0 < f.left <= f.volume
            assert all(capacity[link] == 10.0 for link in f.links)
            assert [link[2:] for link in f.links] == [" out", " in"]
        links = [link for flow in flows for link in flow.links]
        given = [min(10.0 / links.count(link) for link in f.links) for f in flows]
        flows.clear(), capacity.clear()
        return given
"""
    assert simulate(problem, realization, rule(text)).makespan == makespan(
        problem, realization
    )


FLOWS = [ActiveFlow("a->b", "a", "b", 3, 4, 10.0, ("m0 out", "m1 in"), "", 4.0)] * 2
LINKS = {"m0 out": 5.0, "m1 in": 3.0}


@pytest.mark.parametrize(
    ("given_back", "message"),
    [
        ([1.0], "returns 1 rates for 2 active flows"),
        ([1.0] * 3, "returns 3 rates for 2 active flows"),
        ([1.0, -1.0], "gives a->b of iteration 3 -1 B/s, a rate is 0 or more"),
        ([1.0, float("nan")], "nan B/s, a rate is 0 or more"),
        ([1.0, float("inf")], "inf B/s, a rate is 0 or more"),
        ([2.0, 2.0], "gives the flows over m1 in 4 B/s, m1 in has 3"),
        ([1.5, 1.5 + 1e-8], "m1 in has 3"),
        (None, "returns NoneType, a list of a rate per flow is needed"),
        (["fast", "slow"], "returns list, a list of a rate per flow is needed"),
        (7, "returns int"),
        (["1", 2.0], "a rate per flow is needed (found '1')"),
        ([True, 2.0], "a rate per flow is needed (found True)"),
        (np.array([True, False]), "a rate per flow is needed (found"),
        (bytearray(b"55"), "a rate per flow is needed (found bytearray"),
        ("11", "returns str, a list of a rate per flow is needed (found '11')"),
        ({1.0: "a", 2.0: "b"}, "returns dict, a list of a rate per flow is needed"),
        ({1.0, 2.0}, "returns set, a list of a rate per flow is needed"),
    ],
)
def test_rates_that_cannot_be(given_back: object, message: str) -> None:
    with pytest.raises(DataError) as caught:
        check_rates("mine", FLOWS, LINKS, given_back)

    assert message in str(caught.value)
    assert str(caught.value).startswith("mine: ")


def test_rates_that_can() -> None:
    assert check_rates("mine", FLOWS, LINKS, np.array([1, 2])) == [1.0, 2.0]
    assert check_rates("mine", FLOWS, LINKS, iter([1.5, 1.5 + 1e-9])) == [
        1.5,
        1.5 + 1e-9,
    ]


def test_what_fails_is_raised_by_whatever_asked_and_is_forgotten() -> None:
    problem, realization = two_machine_example(2)
    job, cluster, broken = problem.job, problem.cluster, returning("[1 / 0]")
    machine_of = np.array(problem.placement.machine_of, np.int64)
    evaluator = MakespanEvaluator(job, cluster, broken)
    profile = Profile(realization.times, realization.volumes)
    calls = (
        lambda: simulate(problem, realization, broken),
        lambda: makespan(problem, realization, broken),
        lambda: evaluator.makespan(machine_of, realization),
        lambda: evaluator.makespan(machine_of, realization),
        lambda: VirtualCoordinator(problem, realization, broken).run(),
        lambda: search_etp(job, cluster, profile, options=EtpOptions(policy=broken)),
        lambda: search(job, cluster, profile, options=SearchOptions(policy=broken)),
    )
    for call in calls:
        with pytest.raises(DataError, match=r"ZeroDivisionError.*\(line 3 of mine.py"):
            call()


@pytest.fixture(scope="module", autouse=True)
def short_searches() -> None:
    """Search as users do: rules are asked, and fail, at every step of a search."""


@pytest.mark.parametrize(
    ("call", "exhaustive"), [(search_etp, False), (search, True), (search, False)]
)
def test_a_failure_within_a_search_is_raised(
    call: Callable[..., object], *, exhaustive: bool
) -> None:
    """The first placements are fine; the rule fails in the middle of a walk."""
    problem, realization = two_machine_example(2)
    profile = Profile(realization.times, realization.volumes)
    counting = (
        "        global asked\n        asked += 1\n"
        "        assert asked < most, 'tired'\n        crossed"
    )
    text = f"# {call.__name__}\nasked, most = 0, 1e9\n" + EQUAL.replace(
        "        crossed", counting, 1
    )
    own = rule(text, "Equal")
    chosen: EtpOptions | SearchOptions = EtpOptions(transfers=200, policy=own)
    if call is search:  # so small a job is listed, unless annealing is asked for
        chosen = SearchOptions(transfers=200, exhaustive=exhaustive, policy=own)
    arguments = problem.job, problem.cluster, profile

    def asked(most: float) -> int:
        module = rate_policy(chosen.policy).rates
        assert module is not None
        names = inspect.getclosurevars(module).nonlocals["rule"].rates.__globals__
        names["most"], names["asked"], before = most, 0, names["asked"]
        return int(before)

    asked(1e9)
    call(*arguments, options=chosen)
    whole = asked(1e9)
    # A new rule is asked some questions twice: later searches ask fewer.
    for most in np.linspace(2, 0.9 * whole, 8).astype(int).tolist():
        asked(most)
        with pytest.raises(DataError, match="AssertionError: tired"):
            call(*arguments, options=chosen)


def test_after_a_failure_a_rule_is_not_asked_again() -> None:
    """The first failure is raised, once."""
    problem, _ = two_machine_example(2)
    answers = OwnRates(problem.job, problem.cluster, lambda *_: [])
    for question in (None, 7):  # neither is one
        answers.answer(question)

    with pytest.raises(AttributeError, match="NoneType"):
        answers.check()
    answers.check()


def test_a_rule_sees_the_links_of_each_placement() -> None:
    """Placements by turns on one evaluator, which keeps what it can of a job."""
    problem, realization = two_machine_example(2)
    own = rule(EQUAL, "Equal")
    evaluator = MakespanEvaluator(problem.job, problem.cluster, own)

    for machine_of in ((0, 1, 0, 1, 0, 1), (1, 0, 1, 1, 0, 0), (0, 1, 0, 1, 0, 1)):
        placed = replace(problem, placement=Placement(machine_of))
        found = evaluator.makespan(np.array(machine_of), realization)
        assert found == pytest.approx(makespan(placed, realization, "oes"), rel=1e-12)


def test_a_rule_sees_coflows_by_their_names_or_those_of_their_readers() -> None:
    tasks = (Task("a", "x"), Task("b", "x"), Task("c", "x"))
    job = Job(tasks, (Edge(0, 1, coflow="k"), Edge(0, 2)), 1)
    machines = Machine("m0", 8.0, 9.0), Machine("m1", 7.0, 6.0)
    problem = Problem(Cluster(machines), job, Placement((0, 1, 1)))
    run = Realization(np.array([[1.0], [0.0], [0.0]]), np.array([[10.0], [12.0]]))

    own = returning("[{'k': 1.0, 'c': 3.0}[flow.coflow] for flow in flows]")
    assert simulate(problem, run, own).flow_end.tolist() == [[11.0], [5.0]]


def test_a_rule_that_gives_nothing_is_stuck_and_named() -> None:
    """The error was one of slots, of which there are none."""
    problem, realization = two_machine_example(2)
    rule = returning("[0 for _ in flows]")

    with pytest.raises(SchedulingError, match="nothing would ever start") as stuck:
        simulate(problem, realization, rule)
    assert "the rule for rates gives g0->s1 (iteration 0)" in str(stuck.value)
    homes = problem.machine_of_task
    tasks = [replace(task, pinned=homes[task.name]) for task in problem.job.tasks]
    pinned = replace(problem.job, tasks=tuple(tasks))
    with pytest.raises(InfeasiblePlacement, match="without a rate") as nowhere:
        best_placement(pinned, problem.cluster, realization, rule)
    assert nowhere.value.key == "schedule.policy"


def test_a_flow_that_waits_for_its_turn_on_a_channel_has_no_rate_to_get() -> None:
    """Three go over one channel, and one beside it; the rule gives nothing to any."""
    channels = ("k", "", "k", "k")
    tasks = [Task(name, "x") for name in "abcde"]
    edges = [Edge(0, 1 + place, channel=name) for place, name in enumerate(channels)]
    machines = Machine("m0", 8.0, 9.0), Machine("m1", 7.0, 6.0)
    placement = Placement((0, 1, 1, 1, 1))
    problem = Problem(Cluster(machines), Job((*tasks,), (*edges,), 1), placement)
    run = Realization(np.ones((5, 1)), np.ones((4, 1)))

    with pytest.raises(SchedulingError, match="nothing would ever start") as stuck:
        simulate(problem, run, returning("[0 for _ in flows]"))
    first, beside = "a->b (iteration 0)", "a->c (iteration 0)"
    assert f"the rule for rates gives {first}, {beside} no rate" in str(stuck.value)


def test_an_audit_asks_again_and_finds_another_rule() -> None:
    problem, realization = two_machine_example(3)
    schedule = simulate(problem, realization, "fifo", record_rates=True)
    own = rule(EQUAL, "Equal")
    found = rule_audit(schedule, own, realization, rate_policy(own).rates)[1]

    assert f"{own} gives" in found[0].sentence
