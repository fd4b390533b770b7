"""Causes of a makespan, and changes that would help, as tables."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from rich.table import Table

from emu.prediction.analysis.critical_path import critical_path
from emu.prediction.analysis.explanation import Explanation
from emu.prediction.simulation import simulate
from emu.problem import Outages
from emu.report.explanation_tables import causes, improvements, ports
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
