"""Causes of a makespan, and changes that would help, as tables."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.table import Table

from emu.prediction.analysis import explanation as analysis
from emu.prediction.analysis.critical_path import critical_path
from emu.prediction.analysis.explanation import Explanation
from emu.prediction.analysis.task_moves import NO_MOVES
from emu.prediction.analysis.throughput import JobTime
from emu.prediction.simulation import simulate
from emu.prediction.simulation.attempts import Attempts, Killed
from emu.problem import Cluster, Edge, Job, Machine, Outages, Placement, Problem, Task
from emu.report.explanation_tables import (
    MOST_JOBS,
    apart,
    causes,
    edit_text,
    explanation_tables,
    improvements,
    job_line,
    job_table,
    most_failing,
    moves_line,
    moves_table,
    placement_table,
    placement_text,
    placing_line,
    ports,
    recovery_lines,
    warn_unclaimed,
)
from emu.report.terminal import terminal
from emu.testing import two_machine_example


def rows_of(table: Table) -> list[list[str]]:
    """Return the cells of every row."""
    columns = [[*map(str, column.cells)] for column in table.columns]
    return [[*row] for row in zip(*columns, strict=True)]


def test_causes_and_deaths_sum_to_the_length_of_the_whole_job() -> None:
    """Attempts that ended, and recovery, take as long as the last attempt of a run."""
    problem, realization = two_machine_example(2)
    last = simulate(problem, realization)
    length = last.makespan
    whole = replace(last, outages=Outages(seconds=length, recovery=length / 4))
    explanation = Explanation(
        schedule=whole,
        chain=critical_path(last),
        simulated=last,
        apart=(),
        improvements=(),
        realization=realization,
    )
    *of_chain, recovery, ended, total = rows_of(causes(explanation))

    assert recovery[:2] + recovery[4:] == ["deaths", "recovery", "12.5 %", "0"]
    assert ended[:2] + ended[4:] == ["deaths", "attempts that ended", "37.5 %", "0"]
    shares = [float(row[4].removesuffix(" %")) for row in of_chain]
    assert abs(sum(shares) - 50) < 0.05 * len(shares)
    assert total[3:5] == [f"{2 * length:g} s", "100.0 %"]


def test_shares_of_ports_are_of_the_whole_job_as_those_of_causes() -> None:
    """The deaths take half of the time: a port has half of its share of the rest."""
    schedule = simulate(*two_machine_example(2))
    deaths = Outages(seconds=schedule.makespan, recovery=0.0)
    shares = []
    for whole in (schedule, replace(schedule, outages=deaths)):
        explanation: Any = SimpleNamespace(
            schedule=whole, chain=critical_path(schedule)
        )
        first, *_ = rows_of(ports(explanation))
        shares.append(float(first[2].removesuffix(" %")))

    assert shares[0] > 1
    assert abs(shares[1] - shares[0] / 2) <= 0.1


def test_changes_that_are_not_shown_are_counted_by_what_they_are_worth() -> None:
    """Two of the five that help are worth the same, and share a row."""
    found = []
    for what, kind, gain in (
        ("NIC of a", "network", 4.0),
        ("NIC of b", "network", 4.0),
        ("task w", "compute", 3.0),
        ("half the bytes", "bytes", 2.0),
        ("maxmin", "policy", 1.0),
        ("task s", "compute", 0.0),
    ):
        change = SimpleNamespace(what=what, kind=kind, edit=None)
        row = SimpleNamespace(change=change, makespan=10.0 - gain, gain=gain)
        found.append(row)
    explanation: Any = SimpleNamespace(
        moves=SimpleNamespace(steps=()),
        improvements=found,
        improvements_then=(),
        replayed_makespan=10.0,
    )
    two = improvements(explanation, 2)
    assert [row[0] for row in rows_of(two)] == ["NIC of a (or 1 more)", "task w"]
    assert two.caption == "2 more would help, 1 change would not"
    for shown in (4, 9):
        all_of_them = improvements(explanation, shown)
        assert len(all_of_them.rows) == 4
        assert all_of_them.caption == "1 change would not"


def job_time(number: int, slowdown: float, rate: float | None = None) -> JobTime:
    """Return the times of a job, all of them different."""
    return JobTime(
        job=f"j{number}",
        release=1.0,
        end=7.0,
        seconds=6.0 + number,
        alone=3.0,
        slowdown=slowdown,
        samples_per_second=rate,
    )


def test_a_few_jobs_stand_in_their_order_with_all_of_their_times() -> None:
    """A job that trains nothing leaves the cell of its pace empty."""
    jobs = [job_time(0, 2.0), job_time(1, 4.0)]
    plain = job_table(iter(jobs))
    assert [row[0] for row in rows_of(plain)] == ["j0", "j1"]
    assert len(plain.columns) == 6

    table = job_table([job_time(0, 2.0, 1234.0), job_time(1, 4.0)])
    assert rows_of(table) == [
        ["j0", "1 s", "7 s", "6 s", "3 s", "2.000", "1,234"],
        ["j1", "1 s", "7 s", "7 s", "3 s", "4.000", ""],
    ]
    assert str(table.title) == "Jobs"


def test_of_very_many_jobs_the_most_slowed_down_stand_below_the_means() -> None:
    """Twenty are still shown in their order; of 21 the ten worst are.

    Slowdowns are 1 to 20 and 60, the largest in the middle; they take 6 to 26 s.
    """
    slowdowns = [*range(1, 11), 60, *range(11, 21)]
    jobs = [job_time(number, factor) for number, factor in enumerate(slowdowns)]
    assert len(job_table(jobs[:MOST_JOBS]).rows) == MOST_JOBS

    table = job_table(jobs)
    mean, middle, most, worst, *_, last = rows_of(table)
    assert str(table.title) == "The 10 most slowed down of 21 jobs"
    assert mean == ["mean of all", "", "", "16 s", "", "12.857"]
    assert middle == ["median of all", "", "", "16 s", "", "11.000"]
    assert most == ["95 % within", "", "", "25 s", "", "20.000"]
    assert (worst[0], worst[5]) == ("j10", "60.000")
    assert (last[0], last[5]) == ("j12", "12.000")
    assert len(table.rows) == 13


def test_a_placement_says_which_way_a_nic_is_wider() -> None:
    """One machine receives more, one sends as much, and one has no NIC."""
    cluster = Cluster(
        (
            Machine("wide", 2e6, 1e6, {"gpu": inf}),
            Machine("even", 3e6, 3e6, {"cpu": 4.0}),
        )
    )
    tasks = (
        Task("a0", "worker", {"gpu": 1.0}),
        Task("b", "worker"),
        Task("a1", "worker", {"cpu": 3.0}),
        Task("a2", "worker", {"cpu": 0.5}),
    )
    job = Job(tasks, (Edge(0, 1),), 1)
    table = placement_table(Problem(cluster, job, Placement((0, 1, 1, 1))))
    wide, even = rows_of(table)
    assert [str(column.header) for column in table.columns] == [
        *("machine", "NIC", "cpu", "gpu", "processes")
    ]
    assert wide == ["wide", "16 Mbit/s in, 8 Mbit/s out", "0", "1", "a0"]
    assert even == ["even", "24 Mbit/s", "3.5/4", "0", "b a1-2"]

    alone = Cluster((Machine("none", 0.0, 0.0),))
    placed = Problem(alone, Job((Task("b", "worker"),), (), 1), Placement((0,)))
    assert rows_of(placement_table(placed)) == [["none", "none", "b"]]


def kill(again: float, recovery: float, iteration: int) -> Killed:
    """Return an attempt that a death has ended."""
    return Killed(
        0,
        iteration,
        0.0,
        ran=5.0,
        again=again,
        recovery=recovery,
        error=f"died before {iteration}",
    )


def test_deaths_tell_what_they_cost_in_all_and_how_often_they_came() -> None:
    """Two of them: 3 s of recovery, 7 s again, and 2 s as what follows is slower."""
    last: Any = None
    kills = (kill(3.0, 1.0, 8), kill(4.0, 2.0, 5))
    head, *rest = recovery_lines(Attempts(kills, 32.0, last), without=20.0)
    assert head == (
        "killed 2 times, lost 3 s recovery, 7 s again, 2 s as what follows takes "
        "longer; 20 s without: of that job are tables, path and pace"
    )
    assert rest == [
        "died before 8: goes on at iteration 8",
        "died before 5: goes on at iteration 5",
    ]
    # Differences that print as nothing are none, on either side.
    for rounding in (4e-15, -4e-15):
        exact = Attempts((kill(0.0, 4.0, 1),), 24.0 + rounding, last)
        assert "follows" not in next(recovery_lines(exact, without=20.0))
    assert not list(recovery_lines(Attempts((), 24.0, last), without=20.0))


def test_what_failed_most_often_stands_first() -> None:
    """Four are named, whatever the order in which they were drawn."""
    drawn = {"a": 1, "b": 5, "c": 3, "d": 4}
    assert most_failing(drawn) == "b 5, d 4, c 3, a 1"
    assert most_failing(drawn | {"e": 2, "f": 9}) == "f 9, b 5, d 4, c 3, 2 others"
    assert most_failing(drawn | {"e": 2}).endswith("1 others")


def test_pins_count_the_tasks_that_they_hold() -> None:
    """A pin of a process holds all of its tasks, and one of a task that alone."""
    tasks = (Task("w0", "worker"), Task("g0", "store"), Task("g1", "store"))
    job = Job(tasks, (Edge(0, 1),), 3)
    assert job_line(job) == "3 iterations, credit window without effect"
    assert job_line(job, "oes", 4, ["g1", "w0"]) == (
        "3 iterations, credit window 4, 2 of 3 tasks pinned, rates by oes"
    )
    assert "pinned" not in job_line(job, pins=["x"])
    together = replace(tasks[2], process="p")
    job = Job((*tasks[:2], together), (Edge(0, 1),), 3)
    assert "1 of 3 tasks pinned" in job_line(job, pins=["p"])


def test_a_placement_on_chosen_machines_is_best_there() -> None:
    row: dict[str, Any] = {"policy": "best", "candidates": 0, "optimal": True}
    assert placing_line(row) == "placed by best, no placement is better"
    chosen = {"machines": ["m1", "m4"], "machines_in_all": 5, "machines_chosen": True}
    line = placing_line(row | chosen)
    assert line.startswith("placed by best on ")
    assert line.endswith(", no placement there is better")


def test_a_warning_that_several_rows_share_is_printed_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    idle = {"unclaimed": ["cpu"]}
    rows: dict[str, dict[str, Any]] = {
        "a": idle,
        "b": {"unclaimed": []},
        "c": idle,
        "d": {"unclaimed": ["gpu"]},
    }
    warn_unclaimed(rows)
    assert capsys.readouterr().err.splitlines() == [
        "warning: cpu limits nothing: no task demands any (a, c)",
        "warning: gpu limits nothing: no task demands any (d)",
    ]


def step_of(makespan: float, why: str = "", **more: Any) -> Any:
    """Return a step on the way to a better placement."""
    return SimpleNamespace(
        near=f"w to {makespan:g}", makespan=makespan, why=why, **more
    )


def moves_of(before: float, *steps: Any) -> Any:
    """Return moves, two of each step."""
    makespan = steps[-1].makespan if steps else before
    count = 2 * len(steps)
    return SimpleNamespace(before=before, steps=steps, makespan=makespan, count=count)


def test_moves_tell_by_how_much_the_whole_way_is_shorter() -> None:
    """Moves shorten 8 s to 7 s and to 6 s; shares below 10 % have two digits."""
    two = moves_of(8.0, step_of(7.0), step_of(6.0, "m0 out carries less"))
    table = moves_table(two)
    assert rows_of(table) == [
        ["w to 7", "7 s", "-12.5 %", ""],
        ["w to 6", "6 s", "-25 %", "m0 out carries less"],
    ]
    assert len(moves_table(moves_of(8.0, step_of(7.0))).columns) == 3

    def line(moves: Any) -> str:
        explanation: Any = SimpleNamespace(moves=moves)
        return moves_line(explanation)

    assert line(two) == "These 4 moves: 25 % shorter, 8 s -> 6 s"
    assert line(moves_of(8.0)).startswith("No better placement was found")
    one = moves_of(1000.0, step_of(900.0))
    one.count = 1
    assert line(one) == "This move: 10 % shorter, 1000 s -> 900 s"
    one = moves_of(1000.0, step_of(987.5))
    assert line(one) == "These 2 moves: 1.2 % shorter, 1000 s -> 987.5 s"
    assert line(moves_of(inf, step_of(9.0))) == "These 2 moves: an end, 9 s"


def test_a_step_is_pasted_as_lines_of_a_scenario() -> None:
    """Tasks stand in their order; of several jobs each has its name."""
    edit = {"placement.policy": "explicit", "placement.tasks": {"w1": "m0", "w0": "m1"}}
    assert placement_text(step_of(1.0, edit=None)) == ""
    assert placement_text(step_of(1.0, edit=edit)) == (
        "placement:\n  policy: explicit\n  tasks: {w1: m0, w0: m1}"
    )
    job = SimpleNamespace(job_names=["a", "b"])
    problem = SimpleNamespace(job=job)
    of_jobs = {"jobs[1].placement.policy": "explicit"}
    text = placement_text(step_of(1.0, edit=of_jobs, problem=problem))
    assert text.splitlines()[:2] == ["jobs:", "- {name: a}"]
    assert "name: b" in text
    mixed = {"placement.policy": "explicit", **of_jobs}
    text = placement_text(step_of(1.0, edit=mixed, problem=problem))
    assert "- {name: a}" in text
    assert "placement: {policy: explicit}" in text


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (None, ""),
        ({"placement": {"policy": "best"}}, ""),
        ({"job.batch_size": 40, "job.placement": 1}, "job.batch_size=40"),
        ({"job.machines": ["m0"], "job.workers": 2}, "job.workers=2"),
        ({"job.machines": ["m0"]}, "job.machines=[m0]"),
        ({"a": 1, "b": 2, "c": 3}, "a, 2 more"),
        # 36 characters are as wide as a column, 37 are not.
        ({"k" * 34: 1}, "k" * 34 + "=1"),
        ({"k" * 35: 1}, "k" * 35),
    ],
)
def test_an_edit_is_told_in_a_line_that_fits(
    edit: dict[str, Any] | None, text: str
) -> None:
    assert edit_text(edit) == text


def improvement(
    what: str, makespan: float, gain: float, edit: Any = None, kind: str = "network"
) -> Any:
    """Return a change, and what it was found to be worth."""
    change = SimpleNamespace(what=what, kind=kind, edit=edit)
    return SimpleNamespace(change=change, makespan=makespan, gain=gain)


def test_changes_after_moves_are_shares_of_what_the_moves_leave() -> None:
    """Moves take 10 s to 8 s; the NIC saves 2 s of these."""
    rows = (
        improvement("NIC", 6.0, 2.0, {"nic": "9 MB/s"}),
        improvement("no key", 7.0, 1.0),
        improvement("nothing", 8.0, 0.0, {"a": 1}),
        improvement("rounding", 8.0, 8e-9, {"a": 1}),
    )
    explanation: Any = SimpleNamespace(
        moves=moves_of(10.0, step_of(8.0)),
        improvements=(),
        improvements_then=rows,
        replayed_makespan=10.0,
    )
    table = improvements(explanation, 5)
    assert "after these moves" in str(table.title)
    assert rows_of(table) == [["NIC", "6 s", "-25 %", "nic=9 MB/s"]]
    assert table.caption == "2 changes would not; --json has all keys"

    explanation.moves = moves_of(10.0)
    explanation.improvements_then = ()
    explanation.improvements = (improvement("NIC", 6.0, 4.0),)
    table = improvements(explanation, 5)
    assert rows_of(table) == [["NIC", "6 s", "-40 %", "█" * 8]]
    assert table.caption == "0 changes would not"
    explanation.improvements = (improvement("NIC", 3.0, 7.0),)
    assert rows_of(improvements(explanation, 5)) == [["NIC", "3 s", "-70 %", "█" * 14]]


def test_causes_name_who_holds_a_flow_back_or_which_pool_a_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Shares are of 10 s: a chain takes 8 s, and deaths took 2 s."""
    rows = [
        {"cause": "transfer", "what": "g->s", "port": "m0 out", "pool": ""},
        {"cause": "slot", "what": "w", "port": "", "pool": "m1 gpu"},
    ]
    figures = [{"seconds": 6.0, "links": 3}, {"seconds": 2.0, "links": 2}]
    merged = [row | figure for row, figure in zip(rows, figures, strict=True)]
    monkeypatch.setattr(analysis, "cause_rows", lambda *_: merged)
    held = [{"port": "m0 out", "seconds": 6.0}, {"port": "m1 in", "seconds": 1.0}]
    monkeypatch.setattr(analysis, "port_rows", lambda *_: held)
    schedule = SimpleNamespace(problem=None, outages=Outages(2.0, 0.5))
    chain = SimpleNamespace(seconds=8.0, links=(1, 2, 3, 4, 5))
    explanation: Any = SimpleNamespace(schedule=schedule, chain=chain, death_rows=list)
    assert rows_of(causes(explanation)) == [
        ["transfer", "g->s", "m0 out", "6 s", "60.0 %", "3"],
        ["slot", "w", "m1 gpu", "2 s", "20.0 %", "2"],
        ["sum", "", "", "10 s", "100.0 %", "5"],
    ]
    assert rows_of(ports(explanation)) == [
        ["m0 out", "6 s", "60.0 %", "█" * 18],
        ["m1 in", "1 s", "10.0 %", "█" * 3],
    ]
    # A job that takes no time has no shares of it.
    schedule.outages = Outages(0.0, 0.0)
    chain.seconds = 0.0
    merged.clear()
    held[:] = [{"port": "m0 out", "seconds": 0.0}]
    assert rows_of(causes(explanation)) == [["sum", "", "", "0 us", "100.0 %", "5"]]
    assert rows_of(ports(explanation)) == [["m0 out", "0 us", "0.0 %", ""]]


def test_a_run_is_apart_from_its_simulation_by_seconds_of_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run takes 9 s for 10 s; what rounding leaves is no row."""
    rows = [
        {"cause": "transfer", "what": "flow", "seconds": -2.0},
        {"cause": "compute", "what": "w", "seconds": 1.0},
        {"cause": "gap", "what": "", "seconds": 5e-9},
        {"cause": "slot", "what": "w", "seconds": 1e-8},
    ]
    monkeypatch.setattr(analysis, "apart_rows", lambda *_: rows)
    emulated: Any = SimpleNamespace(length=9.0, problem=None)
    simulated: Any = SimpleNamespace(length=10.0)
    transfer, compute, slot, total = rows_of(apart(emulated, simulated, ()))
    assert transfer == ["transfer", "flow", "-2 s", "-20 %"]
    assert compute == ["compute", "w", "+1 s", "+10 %"]
    assert slot[:2] == ["slot", "w"]
    assert total == ["sum", "", "-1 s", "-10 %"]
    simulated.length = 0.0
    rows.clear()
    assert rows_of(apart(emulated, simulated, ())) == [["sum", "", "+9 s", "+900 %"]]


def test_an_explanation_has_the_parts_that_are_known() -> None:
    """An explanation without a simulation, moves or changes leaves them out."""
    schedule = simulate(*two_machine_example(2))
    _, realization = two_machine_example(2)
    plain = Explanation(
        schedule=schedule,
        chain=critical_path(schedule),
        simulated=None,
        apart=(),
        improvements=(),
        realization=realization,
        notes=("a remark",),
    )
    assert plain.moves is NO_MOVES

    def shown(explanation: Explanation) -> str:
        text = StringIO()
        terminal(text).print(explanation_tables(explanation))
        return text.getvalue()

    text = shown(plain)
    links = len(plain.chain.links)
    assert f"the critical path has {links} links" in text.replace("\n", " ")
    assert "note: a remark" in text
    assert "Ports on the chain" in text
    for words in ("simulated", "move", "would help", "Emulated minus"):
        assert words not in text

    # The same, a second slower, of which simulation and moves are known.
    ends = schedule.task_end + 1.0
    later = replace(schedule, task_end=ends)
    whole = replace(
        plain,
        schedule=later,
        simulated=schedule,
        improvements=(improvement("NIC", 5.0, 1.0),),
        moves=moves_of(9.0, step_of(8.0, edit={"placement.policy": "best"})),
    )
    text = shown(whole)
    assert f"simulated {schedule.makespan:g} s" in text
    head = "These 2 moves: 11 % shorter, 9 s -> 8 s"
    assert text.splitlines()[0].strip() == head
    assert "placement: {policy: best}" in text
    assert text.index("Which tasks") < text.index("Why this") < text.index("Emulated")
    assert np.isclose(later.makespan - schedule.makespan, 1.0)


def test_figures_of_explanations_have_so_many_digits() -> None:
    seconds = 1.23456789
    assert moves_line(SimpleNamespace(moves=moves_of(999.0, step_of(1.0)))) == (  # type: ignore[arg-type]
        "These 2 moves: 100 % shorter, 999 s -> 1 s"
    )
    table = moves_table(moves_of(2 * seconds, step_of(seconds)))
    assert rows_of(table) == [["w to 1.23457", "1.23457 s", "-50 %"]]
    job = JobTime("j", seconds, seconds, seconds, seconds, seconds, seconds)
    (row,) = rows_of(job_table([job]))
    assert row == ["j", *["1.235 s"] * 4, "1.235", "1.235"]
    length = {f"t{number}": "m" * 20 for number in range(3)}
    text = placement_text(step_of(1.0, edit={"placement.tasks": length}))
    assert max(map(len, text.splitlines())) <= 75
    explanation: Any = SimpleNamespace(
        moves=moves_of(10.0),
        improvements=(improvement("NIC", seconds, 4.0),),
        improvements_then=(),
        replayed_makespan=10.0,
    )
    assert rows_of(improvements(explanation, 5))[0][1] == "1.23457 s"


def test_a_pipeline_has_fewer_mini_batches_than_iterations() -> None:
    tasks = (Task("w0", "worker"), Task("w1", "worker", behind=2))
    job = Job(tasks, (Edge(0, 1),), 6)
    assert job_line(job).startswith("4 mini-batches in 6 iterations, credit window")


def test_a_path_over_the_first_link_of_all_names_its_ports() -> None:
    """The chain crosses link 0 alone, or none."""
    chain = critical_path(simulate(*two_machine_example(1)))
    schedule = simulate(*two_machine_example(1))
    for port, is_shown in ((0, True), (-1, False)):
        links = [link for link in chain.links if link.port < 0]
        crossing = (
            replace(links[0], port=port)
            if port < 0
            else next(link for link in chain.links if link.port >= 0)
        )
        links.append(replace(crossing, port=port))
        explanation = Explanation(
            schedule=schedule,
            chain=replace(chain, links=tuple(links)),
            simulated=None,
            apart=(),
            improvements=(),
            realization=two_machine_example(1)[1],
        )
        text = StringIO()
        terminal(text).print(explanation_tables(explanation))
        assert ("Ports on the chain" in text.getvalue()) == is_shown
