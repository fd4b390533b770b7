"""Tables and lines: what they say, and that they fit."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.table import Table
from typer.testing import CliRunner

from emu.cli import app
from emu.experiment.attempts import Ended, recovery_of
from emu.prediction.placement.moves import Move
from emu.prediction.simulation import simulate
from emu.prediction.simulation.attempts import Attempts, Killed
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
from emu.report.comparison import (
    _notes_on,
    candidate_json,
    comparison_table,
    comparison_tables,
    sweep_figure_tables,
    sweep_table,
)
from emu.report.explanation_tables import (
    job_line,
    length_text,
    moves_line,
    placement_table,
    placing_line,
    print_placing,
    ranges,
    recovery_lines,
    warn_of_unclaimed,
)
from emu.report.facts import run_facts, setting
from emu.report.figure_rows import setup_row
from emu.report.html.page import headline
from emu.report.many_runs import _error, runs_json, runs_table
from emu.report.run_tables import budget_table, flow_table, port_table
from emu.report.terminal import terminal
from emu.runs.intervals import Interval
from emu.runs.recorded_run import load_run
from emu.runs.result import flow_rows, port_rows
from emu.testing import two_machine_example
from emu.units import format_duration
from tests.report.answers import candidate_of
from tests.report.recorded import write_run


def _shown(table: Table) -> list[str]:
    text = StringIO()
    terminal(text).print(table)
    return text.getvalue().splitlines()


PROBLEM = Problem(
    Cluster(
        (
            Machine("fast", 1e6, 2e6, {"memory": 48e9, "cpu": 8.0}),
            Machine("slow", 1e6, 1e6, {"memory": 48e9}),
        )
    ),
    Job(
        (Task("g0", "store", {"memory": 14e9}), Task("w0", "worker", {"cpu": 2.0})),
        (Edge(0, 1),),
        iterations=2,
    ),
    Placement((1, 0)),
)


def test_of_very_many_links_the_busiest_are_shown() -> None:
    """In the order of their use; what is stated later may be used more."""
    used = np.random.default_rng(0).permutation(70) / 70
    rows = [
        {"port": f"m{n} in", "bytes_per_second": 1e9, "bytes": 1.0, "used": share}
        for n, share in enumerate(used.tolist())
    ]
    title, _, *lines = _shown(port_table(rows))
    busiest = np.argsort(-used)[:20]

    assert title.split() == ["The", "20", "busiest", "of", "70", "NICs", "and", "links"]
    assert [line.split()[0] for line in lines] == [f"m{n}" for n in busiest]
    assert len(_shown(port_table(rows[:64]))) == 2 + 64


def test_flows_and_ports_of_a_schedule() -> None:
    realization = Realization(np.ones((2, 2)), np.array([[1e6, 2e6]]))
    schedule = simulate(PROBLEM, realization)

    title, header, row = _shown(flow_table(flow_rows(schedule)))
    assert title.strip() == "Flows between machines"
    assert header.split() == ["from", "to", "flows", "bytes", "waiting", "moving"]
    assert row.split() == ["store", "worker", "2", "3", "MB", "0", "us", "1.5", "s"]

    _, _, out, into, *_ = _shown(port_table(port_rows(schedule)))
    assert out.split() == ["fast", "out", "16", "Mbit/s", "0", "B", "0%"]
    assert into.split()[:7] == ["fast", "in", "8", "Mbit/s", "3", "MB", "60%"]
    assert into.count("█") == 18


def test_flows_of_no_bytes_are_not_counted() -> None:
    volumes = np.array([[0.0, 2e6]])
    schedule = simulate(PROBLEM, Realization(np.ones((2, 2)), volumes))
    (row,) = flow_rows(schedule)
    assert (row["flows"], row["bytes"], row["mean_seconds"]) == (1, 2e6, 2.0)


def test_placement_shows_used_and_capacity() -> None:
    _, header, fast, slow = _shown(placement_table(PROBLEM))

    assert header.split() == ["machine", "NIC", "cpu", "memory", "processes"]
    assert fast.split()[1:7] == ["8", "Mbit/s", "in,", "16", "Mbit/s", "out"]
    assert fast.split()[7:] == ["2/8", "0", "B/48", "GB", "w0"]
    assert slow.split() == ["slow", "8", "Mbit/s", "0", "14", "GB/48", "GB", "g0"]


def test_comparison_is_against_the_first_row() -> None:
    rows = [
        candidate_of("ifs", "oes", {0: 10.0}, share_between=0.5),
        candidate_of("etp", "oes", {0: 9.0}, share_between=0.25),
    ]

    table = comparison_table(rows)

    assert [row.style for row in table.rows] == ["", "bold"]  # the shortest
    _, _, first, second = _shown(table)
    assert first.split() == ["ifs", "oes", "10", "s", "0", "%", "50%", "0"]
    assert second.split() == ["etp", "oes", "9", "s", "-10", "%", "25%", "0"]


def test_comparison_pairs_the_seeds() -> None:
    """Seeds are apart by more than candidates are, which differ by 1 to 2 %."""
    first = candidate_of("ifs", "oes", {0: 10.0, 1: 20.0, 2: 30.0}, share_between=0.5)
    shorter = candidate_of("etp", "oes", {0: 9.9, 1: 19.7, 2: 29.5}, share_between=0.5)
    alike = candidate_of("ifs", "fifo", {0: 10.1, 1: 19.8, 2: 30.2}, share_between=0.5)

    *_, second, third = _shown(comparison_table([first, shorter, alike]))
    assert "-1.4 ± 0.86 %" in second
    assert "tie (" in third
    assert candidate_json(shorter, first)["tie"] is False
    assert candidate_json(alike, first)["tie"] is True
    assert candidate_json(alike, first)["seeds"] == 3


def test_costs_leave_room_for_names_and_figures() -> None:
    """A table of nine columns broke names of rules within words at 100 columns."""
    seeds = {0: 23.85017, 1: 23.91111}
    cost = {"total": 0.02113, "value": 1.98877}
    names = ["explicit", "round_robin"], ["omcoflow_frozen", "weighted_maxmin"]
    rows = [
        candidate_of(
            where, rule, {s: x + n * 1e-7 for s, x in seeds.items()}, cost=cost
        )
        for n, (where, rule) in enumerate(zip(*names, strict=True))
    ]
    makespans, costs = (_shown(table) for table in comparison_tables(rows))
    for table in (makespans, costs):
        for line, where, rule in zip(table[2:], *names, strict=False):
            assert line.split()[:2] == [where, rule]
    assert costs[2].split()[2:] == ["0.0211", "$", "1.989"]
    assert "23.8806 s" in makespans[2]


@pytest.mark.parametrize(("own", "first"), [(0.3, 0.0), (0.0, 0.3), (0.1, 0.1)])
def test_rounding_of_either_row_makes_two_as_good(own: float, first: float) -> None:
    """10 and 9.8 s, of which the last digits move one by 0.3 s."""
    rows = [
        candidate_of("ifs", "oes", {0: 10.0}, rounding=first),
        candidate_of("etp", "oes", {0: 9.8}, rounding=own),
    ]
    alike = "etp, oes: as good as the first row, rounding alone moves it by 300 ms"
    assert (comparison_table(rows).caption == alike) == (max(own, first) == 0.3)


def test_the_error_of_means_is_no_share_of_recovery() -> None:
    """12 and 10 s, of which 2 are recovery in each."""
    means = {"emulated": Interval(12.0, 0.0, 1), "predicted": Interval(10.0, 0.0, 1)}
    assert _error(means, "predicted", 2.0) == 0.25
    assert _error(means, "simulated", 2.0) is None


def test_all_runs_of_a_group_are_counted(tmp_path: Path) -> None:
    """One of the two does not say what was predicted."""
    runs = [write_run(tmp_path / name) for name in "ab"]
    result = json.loads((runs[0] / "result.json").read_text())
    del result["predicted_makespan"]
    (runs[0] / "result.json").write_text(json.dumps(result))

    (row,) = runs_json([load_run(run) for run in runs])

    assert row["runs"] == 2
    assert row["predicted"] == {"mean": 38.0, "half": 0.0}


def test_a_run_that_is_named_twice_is_no_repetition(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    copy = run / ".." / run.name
    done = CliRunner().invoke(app, ["compare", str(run), str(copy)])
    assert done.exit_code == 2
    assert "is named twice" in done.output

    other = write_run(tmp_path / "b")
    assert CliRunner().invoke(app, ["compare", str(run), str(other)]).exit_code == 0


def test_a_sweep_is_compared_with_its_best_seed_by_seed() -> None:
    rows: list[dict[str, Any]] = [
        {
            "values": {"policy": policy, "seed": seed},
            "figures": {"makespan": (10.0 + 5 * seed) * factor},
        }
        for policy, factors in {"oes": (1, 1), "maxmin": (1.02, 1.03)}.items()
        for seed, factor in enumerate(factors)
    ]

    head, best, other = _shown(sweep_table(rows, ["policy"]))[-3:]
    assert "samples" not in head
    assert best.split()[:3] == ["oes", "12.5", "s"]
    assert best.split()[-1] == "2"
    assert other.endswith("tie (+2.5 ± 6.4 %)")

    # A column of errors says nothing of points that were not emulated.
    errors = {"makespan_error": 0.01, "replay_error": 0.02}
    rows[0]["figures"] |= errors
    assert list(sweep_figure_tables(rows, ["policy"])) == []
    for row in rows:
        row["figures"] |= errors
    (table,) = sweep_figure_tables(rows, ["policy"])
    _, head, oes, _ = _shown(table)
    assert head.split() == ["policy", "makespan", "error", "replay", "error"]
    assert oes.split() == ["oes", "+1", "%", "+2", "%"]


def test_a_sweep_of_priced_machines_leaves_its_keys_in_a_narrow_terminal() -> None:
    """Names of rows stay legible: two keys had no room beside prices in 80 columns."""
    keys = ["schedule.policy", "job.batch_size"]
    figures = {"makespan": 0.276, "cost": 2.5e-4, "value": 3.0}
    rows: list[dict[str, Any]] = [
        {
            "values": {"schedule.policy": "maxmin", "job.batch_size": size, "seed": 0},
            "figures": figures | {"samples": size, "samples_per_second": size},
        }
        for size in (20, 40)
    ]
    text = StringIO()
    console = terminal(text)
    console.width = 80
    costs = sweep_figure_tables(rows, keys)
    console.print(sweep_table(rows, keys), *costs)

    shown = text.getvalue()
    assert shown.count("maxmin") == 6
    for words in ("against the best", "samples per s", "value / (s $)"):
        assert words in shown


@pytest.mark.parametrize("width", [20, 40, 60])
def test_no_table_loses_a_figure_in_a_narrow_terminal(width: int) -> None:
    """The last column, of what points are against the best, was blank in 60 columns."""
    keys = ["job.iterations", "cluster.machines[0].nic"]
    rows = [
        {
            "values": {keys[0]: count, keys[1]: "10 B/s", "seed": 0},
            "figures": {"makespan": 11.0 * count},
        }
        for count in (2, 3)
    ]
    text = StringIO()
    console = terminal(text)
    console.width = width
    console.print(sweep_table(rows, keys))

    shown = text.getvalue()
    for words in ("makespan", "against the best", "22 s", "33 s", "+50 %"):
        assert words in shown
    # Six of each key, figures or their headers, and two spaces between columns.
    least = 6 + 6 + len("makespan") + len("± (95 %)") + len("seeds") + 16 + 5 * 2
    assert max(map(len, shown.splitlines())) == max(least, width)


def test_names_of_wide_resources_are_folded_and_amounts_whole() -> None:
    """A header may be a name of 60 characters: figures below it were cut."""
    names = [letter * 60 for letter in "qvxz"]
    amounts = dict.fromkeys(names, 80e9)
    cluster = Cluster((Machine("m", 1e6, 1e6, amounts),))
    job = Job((Task("g0", "store", dict.fromkeys(names, 1e9)),), (), 1)
    lines = _shown(placement_table(Problem(cluster, job, Placement((0,)))))
    shown = "\n".join(lines)

    assert max(map(len, lines)) <= 100
    assert shown.count("1e+09/8e+10") == 4
    assert [shown.count(letter) for letter in "qvxz"] == [60] * 4


def test_names_of_wide_resources_are_folded_until_a_table_has_its_width() -> None:
    """Beside long names of machines, headers folded at 16 made it 102 columns wide."""
    names = [letter * 40 for letter in "qvx"]
    amounts = dict.fromkeys(names, 1e5) | {"cpu": 1e6, "gpu": 1e3}
    rate = 987654321e9 / 8  # as wide as a figure gets: 9.877e+08 Gbit/s
    machine = Machine("m" * 30, rate, rate, amounts)
    tasks = (Task("t" * 30, "store", dict.fromkeys(names, 1e-3)),)
    placed = Problem(Cluster((machine,)), Job(tasks, (), 1), Placement((0,)))
    lines = _shown(placement_table(placed))
    shown = "\n".join(lines)

    assert max(map(len, lines)) <= 100
    assert shown.count("0.001/100000") == 3
    assert [shown.count(letter) for letter in "qvx"] == [40] * 3


@pytest.mark.parametrize("width", [80, 100])
def test_a_sweep_of_three_keys_shows_how_fast_each_trains(width: int) -> None:
    """The column beside the makespans was cut to its head, and all cells were blank."""
    keys = ["schedule.policy", "job.batch_size", "job.machines"]
    rows: list[dict[str, Any]] = []
    for size, pace in ((2_000, 12_340.0), (4_000, 56_780.0)):
        for seed in range(3):
            values = {keys[0]: "sincronia", keys[1]: size, keys[2]: ["m0", "m1"]}
            figures = {
                "makespan": size / pace * (1 + seed / 100),
                "samples": size,
                "samples_per_second": pace,
            }
            rows.append({"values": values | {"seed": seed}, "figures": figures})
    text = StringIO()
    console = terminal(text)
    console.width = width
    console.print(sweep_table(rows, keys), *sweep_figure_tables(rows, keys))

    shown = text.getvalue()
    for words in ("12,340", "56,780", "samples per s", "by seeds per second"):
        assert words in shown
    # As where all train to an accuracy, makespans say all.
    assert list(sweep_figure_tables(rows, keys, by_makespan=True)) == []


def test_the_best_of_a_sweep_is_that_of_all_seeds() -> None:
    """Which is none of one seed: the second rule loses with the first one."""
    makespans = {"oes": (10.0, 14.0), "maxmin": (11.0, 12.0), "mrtf": (12.5, 11.0)}
    rows: list[dict[str, Any]] = [
        {"values": {"policy": policy, "seed": seed}, "figures": {"makespan": makespan}}
        for policy, row in makespans.items()
        for seed, makespan in enumerate(row)
    ]
    _, oes, maxmin, mrtf = _shown(sweep_table(rows, ["policy"]))[-4:]
    assert "%" not in maxmin
    assert "%" in oes
    assert "%" in mrtf


def test_an_emulated_setup_says_on_which_side_it_is_off() -> None:
    causes = {
        "weights": {"bytes": 2e6, "seconds": 1.0},
        "planning": {"bytes": 0.0, "seconds": 3.0},
    }
    measured = {"seconds": 5.0, "error": 0.25, "bytes": 2.5e6, "trust": "trusted"}
    setup = {"causes": causes, "seconds": 4.0, "measured": measured}
    seconds, text = setup_row(setup)
    assert seconds == "4 s"
    assert "2 MB of weights, 3 s of planning" in text
    assert "emulated 5 s (+25 %), 2.5 MB arrived, trusted" in text


@pytest.mark.parametrize(
    ("searched", "kept", "policies", "note"),
    [
        ((True, False), False, "ab", "each row is placed under its own policy"),
        ((False, False), False, "ab", None),
        ((True, True), False, "aa", None),
        ((True, True), True, "ab", "each placement is that of a, for all policies"),
    ],
)
def test_a_comparison_says_under_which_policy_its_placements_were_found(
    searched: tuple[bool, bool],
    kept: bool,  # noqa: FBT001
    policies: str,
    note: str | None,
) -> None:
    rows = []
    for number, (is_searched, policy) in enumerate(
        zip(searched, policies, strict=True)
    ):
        row = candidate_of(f"p{number}", policy, {0: 1.0 + number})
        placing = {"candidates": 7 if is_searched else None}
        rows.append(replace(row, placing=placing, kept=kept and number == 1))

    assert [*_notes_on(rows)] == [note] * (note is not None)


def test_a_sweep_over_workers_shows_samples_per_second() -> None:
    """Two workers take less time than four, and train on half as much."""
    rows = [
        {
            "values": {"workers": count, "seed": 0},
            "figures": {
                "makespan": seconds,
                "samples": 5_000 * count,
                "samples_per_second": 5_000 * count / seconds,
            },
        }
        for count, seconds in ((2, 1.0), (4, 1.25))
    ]
    title, *shown = _shown(sweep_table(rows, ["workers"]))
    head, two, four = [title, *shown][-4:-1]

    assert head.endswith("samples per s")
    assert two.split()[-2:] == ["%", "10,000"]
    assert two.split()[-3] == "+60"  # seconds of a sample
    assert four.split()[-1] == "16,000"
    assert "by seeds per second" in shown[-1]
    to_target = _shown(sweep_table(rows, ["workers"], by_makespan=True))
    assert to_target[-1].split()[-2:] == ["+25", "%"]
    # A point that ended before two batches has no pace: then all have their makespans.
    rows[0]["figures"] = {"makespan": 1.0, "samples": 10_000}
    assert _shown(sweep_table(rows, ["workers"])) == to_target


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ([], []),
        (["s0", "s1", "s2", "s9", "w0"], ["s0-2", "s9", "w0"]),
        (["ps", "s3", "s4"], ["ps", "s3-4"]),
        (["g0", "s1", "s0"], ["g0", "s1", "s0"]),
    ],
)
def test_runs_of_names_are_joined(names: list[str], shown: list[str]) -> None:
    assert ranges(names) == shown


def test_wide_content_is_folded_at_100_columns() -> None:
    tasks = tuple(Task(f"a_rather_long_name_{i * 7}", "worker") for i in range(40))
    problem = Problem(
        Cluster((Machine("m", 1.0, 1.0),)), Job(tasks, (), 1), Placement((0,) * 40)
    )

    assert max(map(len, _shown(placement_table(problem)))) <= 100


def test_restarts_are_told_with_their_costs_and_culprits() -> None:
    ended = [Ended(0, 20, 6.0, 4.0, 0.25, 2.25, "process w0 was killed by SIGKILL")]
    content = {"makespan": 18.25, **recovery_of(ended, 18.25, 17.75)}
    rows = [(fact.label, fact.value, fact.note) for fact in run_facts(content)]
    lines = [" ".join(row) for row in rows]
    (whole,) = [line for line in lines if line.startswith("lost to deaths")]
    assert "6.25 s" in whole
    labels = [label for label, _, _ in rows]
    assert labels.index("lost to deaths") < labels.index("emulated makespan")
    told = "18.25 s of all attempts, the last from iteration 20 on"
    assert any(told in line for line in lines)
    page = headline(content).partition("<details")
    assert "18.25 s" in page[0]
    assert "18.25 s" not in page[2]
    assert "in 1: 2.25 s recovery, 4 s again" in whole
    assert "recovery is as stated" in whole
    assert any("20: process w0 was killed by SIGKILL" in line for line in lines)
    assert not any("restart" in " ".join(map(str, f)) for f in run_facts({}))


def test_a_run_of_a_pipeline_counts_the_mini_batches_that_were_stated() -> None:
    def said(**more: int) -> str:
        return next(setting({"iterations": 14, "credit_window": 4, **more})).note

    assert said() == "14 iterations, credit window 4"
    assert said(mini_batches=12) == "12 mini-batches in 14 iterations, credit window 4"


PLACING: dict[str, Any] = {
    "policy": "best",
    "seed": 3,
    "candidates": 6152,
    "budget": 3076,
    "optimal": False,
    "unclaimed": [],
}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({}, "placed by best (at most 3,076 candidates, seed 3)"),
        (
            {"optimal": True},
            "placed by best (at most 3,076 candidates, seed 3), no placement is better",
        ),
        ({"policy": "ifs", "candidates": 0}, "placed by ifs"),
        ({"policy": "explicit", "candidates": 0}, "placed as the scenario states"),
    ],
)
def test_the_line_names_policy_budget_and_seed(
    change: dict[str, Any], line: str
) -> None:
    assert placing_line(PLACING | change) == line


@pytest.mark.parametrize(
    ("idle", "line"),
    [
        ([], ""),
        (["cpu"], "warning: cpu limits nothing: no task demands any"),
        (["cpu", "gpu"], "warning: cpu, gpu limit nothing: no task demands any"),
    ],
)
def test_what_limits_nothing_is_warned_of_once_on_standard_error(
    idle: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    placing = PLACING | {"unclaimed": idle}
    assert warn_of_unclaimed(placing) == line
    print_placing(placing, terminal())
    out, err = capsys.readouterr()
    assert (out, err) == (placing_line(PLACING) + "\n", line + "\n" if line else "")


@pytest.mark.parametrize(
    ("makespan", "rest"),
    [
        (1.5, ", 100 ms as what follows takes longer"),
        (1.4, ""),
        (1.2, ", less 200 ms as what follows goes faster"),
    ],
)
def test_what_a_death_costs_sums_to_the_makespan(makespan: float, rest: str) -> None:
    dead = Killed(0, 20, 0.0, ran=0.5, again=0.1, recovery=0.3, error="w1 died")
    last = simulate(*two_machine_example(1))
    first, second = recovery_lines(Attempts((dead,), makespan, last), without=1.0)

    lost = f"killed once, lost 300 ms recovery, 100 ms again{rest}"
    tables = "of that job are tables, path and pace"
    assert first == f"{lost}; 1 s without: {tables}"
    assert second == "w1 died: goes on at iteration 20"


def test_what_rounding_left_is_no_row_of_the_error_budget() -> None:
    budget = {"loop lag": 2e-3, "compute overrun": -1e-17, "shaping": 0.0}
    table = budget_table({"replayed_makespan": 4.0, "error_budget": budget})

    cells = [list(column.cells) for column in table.columns]
    assert cells == [["loop lag"], ["+2 ms"], ["+0.05 %"]]


def test_moves_say_how_much_of_the_job_they_save() -> None:
    moves: Any = SimpleNamespace(steps=[0, 0], count=2, before=8.0, makespan=6.0)
    explanation: Any = SimpleNamespace(moves=moves)
    assert moves_line(explanation) == "These 2 moves: 25 % shorter, 8 s -> 6 s"


def test_moves_are_listed_once_with_the_policies_that_they_are_under() -> None:
    move = Move("w0", "slow", "fast")
    other = Move("w0", "slow", "slower")
    rows = [candidate_of("ifs", "oes", {0: 10.0})]
    for policy, moved in (("oes", move), ("fifo", move), ("mrtf", other)):
        row = candidate_of("best", policy, {0: 9.0})
        rows.append(replace(row, moves=(moved,)))

    notes = str(comparison_table(rows).caption).splitlines()

    assert notes[:2] == [
        "best under oes, fifo: w0: slow -> fast",
        "best under mrtf: w0: slow -> slower",
    ]


def test_coflows_are_shown_by_their_mean_and_by_most_of_them() -> None:
    times = {"count": 3, "mean": 2.0, "p95": 7.0, "slowdown": 1.5}
    later = {**times, "mean": 4.0, "p95": 5.0}
    rows = [
        candidate_of("ifs", "oes", {0: 10.0}, coflows=later),
        candidate_of("etp", "oes", {0: 11.0}, coflows=times),
    ]
    assert [candidate_json(row, rows[0])["coflows"] for row in rows] == [later, times]
    *_, table = comparison_tables(rows)
    first, second = _shown(table)[-2:]

    assert first.split() == ["ifs", "oes", "3", "4", "s", "5", "s", "1.500"]
    assert second.split() == ["etp", "oes", "3", "2", "s", "7", "s", "1.500"]
    assert [row.style for row in table.rows] == ["", "bold"]


def test_what_was_predicted_stands_beside_what_was_emulated(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run"))
    assert run.emulated is not None
    table = runs_table([run])
    cells = {str(column.header): next(iter(column.cells)) for column in table.columns}

    assert cells["emulated"] == format_duration(run.emulated.makespan, 5)
    assert cells["predicted"] == format_duration(38.0, 5)
    assert cells["emulated"] != cells["predicted"]


def test_one_iteration_is_no_plural() -> None:
    assert length_text(1, 1) == "1 iteration"
    assert length_text(5, 3) == "3 mini-batches in 5 iterations"


def test_of_several_jobs_the_longest_ones_number_is_none_of_all() -> None:
    job = Job((Task("t", "t"), Task("u", "t", iterations=1)), (), 3)
    # A recorded job has no settings, which would name its jobs.
    several = Job((Task("a/t", "t"), Task("b/t", "t", iterations=1)), (), 3)

    assert job_line(job).startswith("3 iterations, ")
    assert job_line(several).startswith("iterations of each job, ")
    result = {"scenario": "two", "iterations": 3, "mini_batches": 3}
    (alone,) = setting(result)
    (of_each,) = setting(result | {"jobs": [{"job": "a"}, {"job": "b"}]})
    assert alone.note == "3 iterations"
    assert of_each.note == "iterations of each job"
