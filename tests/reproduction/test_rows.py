"""Rows: the paper's number beside what several seeds found."""

from __future__ import annotations

import pytest

from emu.reproduction.claims import Claim, Point, find_claims
from emu.reproduction.figures import (
    compare,
    experiment_of,
    find_crossing,
    scenario_of,
)
from emu.reproduction.rows import Draw, Row, reproduce, rows_of
from emu.runs.intervals import interval


def claim_of(**changes: object) -> Claim:
    content = {
        "paper": "dorylus",
        "figure": "table-4",
        "title": "dollars",
        "quote": ("2 3 10 40",),
        "points": [{"label": "a"}, {"label": "b"}, {"label": "c"}],
        "measure": "dollars",
        "compare": "alone",
        "base": "rented",
        "why": "for a reason",
    }
    return Claim.model_validate(content | changes)


DRAWS = [Draw([1.0, 8.0, 3.0], "walk", 2.0), Draw([3.0, 4.0, 5.0], "walk", 5.0)]


def found_of(rows: list[Row]) -> dict[str, float]:
    return {row.point: row.found.mean for row in rows if row.found}


def test_a_row_for_every_point_or_for_all_of_them() -> None:
    """The largest is that of each seed, and not of the means."""
    each = rows_of(claim_of(each=("2", "3", "10")), DRAWS)
    ends = rows_of(claim_of(least="2", most="40", mean="3"), DRAWS)

    assert found_of(each) == {"a": 2.0, "b": 6.0, "c": 4.0}
    assert [row.ratio for row in each] == [1.0, 2.0, pytest.approx(0.4)]
    assert [row.is_reproduced for row in each] == [True, False, False]
    assert found_of(ends) == {"least": 2.0, "most": 6.5, "mean": 4.0}
    assert {row.stated for row in ends} == {2.0, 40.0, 3.0}
    assert {row.seconds for row in ends} == {7.0}
    assert [value.mean for value in ends[0].curve] == [2.0, 6.0, 4.0]


def test_without_a_number_every_point_is_shown_and_nothing_compared() -> None:
    rows = rows_of(claim_of(), DRAWS)

    assert found_of(rows) == {"a": 2.0, "b": 6.0, "c": 4.0}
    assert {row.ratio for row in rows} == {None}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("times", 4.0),
        ("saving", 75.0),
        ("more", -75.0),
        ("share", 25.0),
        ("alone", 2.0),
    ],
)
def test_sides_are_compared_as_a_claim_says(kind: str, expected: float) -> None:
    assert compare(claim_of(compare=kind), 2.0, 8.0) == expected


def test_the_cost_of_a_claim_is_that_by_hand() -> None:
    """8 machines of 0.432 $/h for 710.2 s, and 2 of 0.34 $/h for 1005.4 s."""
    rows = [*reproduce(find_claims("dorylus", "table-4"), draws=5)]
    found = {row.point: row.found for row in rows if row.claim.title.endswith("GCN, $")}

    cpu, small = found["Amazon, CPU"], found["Reddit-small, CPU"]
    assert cpu is not None
    assert small is not None
    assert cpu.mean == pytest.approx(8 * 0.432 * 710.2 / 3600)
    assert small.mean == pytest.approx(2 * 0.34 * 1005.4 / 3600)
    assert cpu.count == 1  # nothing is drawn
    assert all(row.is_reproduced for row in rows if not row.refused)


def test_what_cannot_be_carried_out_says_why() -> None:
    """Refused, or failed: a row each, in the order of the claims."""
    claims = [
        claim_of(refused="no such system", each=("2", "3", "10")),
        claim_of(edits={"cluster.machines[0].price": None}, points=[{}]),
        claim_of(points=[{}]),
    ]
    said = list[str]()
    rows = [*reproduce(claims, jobs=2, draws=1, watch=said.append)]

    assert [row.found is None for row in rows] == [True] * 4 + [False]
    assert rows[0].refused == rows[2].refused == "no such system"
    assert rows[3].refused == "failed: rented states no prices"
    assert said[-1] == "2 of 2: dorylus table 4"
    (row,) = reproduce([claims[2]])
    assert row.found == interval([0.34 / 3600] * 3)


def test_a_crossing_parts_the_values_at_which_either_side_is_faster() -> None:
    (claim,) = find_claims("p3", "figure-15")
    claim = claim.model_copy(
        update={"edits": {"job.dataset.scale": 0.004, "job.batch_size": 50}}
    )
    (crossing,) = find_crossing(claim, 0, claim.options)

    for width, first_wins in ((crossing - 1, True), (crossing, False)):
        point = Point(edits={"job.model.hidden": int(width)})
        first, second = (
            experiment_of(scenario_of(claim, point, side, 0)).simulate().makespan
            for side in (claim.first, claim.second)
        )
        assert (first <= second) == first_wins
