"""One line on what several answers have in common, and in what they differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emu.experiment.premises import Premises, grid_words, premise_line

FIRST = Premises(
    machines="on m0 alone",
    walk="local",
    seeds_per_step=1200,
    length="14 iterations",
    seeds=(3,),
)


def test_an_answer_alone_has_each_premise_once() -> None:
    assert FIRST.line() == (
        "on m0 alone; walk: local; 1,200 seeds per step; 14 iterations; seed 3"
    )
    full = replace(
        FIRST,
        choice="chosen",
        per_machine=True,
        settings="job.workers=2",
        grid="lr tried 0.1 to 3",
        seeds=(3, 4, 5),
    )
    assert full.line() == (
        "chosen: on m0 alone; a worker per machine; walk: local; 1,200 seeds per step; "
        "14 iterations; job.workers=2; lr tried 0.1 to 3; seeds 3 to 5"
    )
    nothing = replace(FIRST, walk="", seeds_per_step=None)
    assert nothing.line() == "on m0 alone; 14 iterations; seed 3"


def test_up_to_three_walks_and_lengths_are_named() -> None:
    names = "abcd"
    rows = [
        replace(FIRST, walk=f"w{name}", length=f"l{name}", seeds_per_step=count)
        for name, count in zip(names, (40, 9, None, 700), strict=True)
    ]
    rows.append(replace(FIRST, walk="", length="la"))
    few = premise_line([*rows[:3], rows[4]])
    assert "; walk: wa | wb | wc; 9 to 1,200 seeds per step; la | lb | lc; " in few
    two = premise_line([replace(rows[0], per_machine=True), rows[1]])
    assert "; a worker per machine; walk: wa | wb; 9 to 40 seeds per step; " in two
    many = premise_line(rows)
    assert "; walk: each its own; 9 to 1,200 seeds per step; lengths differ; " in many


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        (("held", "held"), "held: on m0 alone"),
        (("chosen", "chosen"), "chosen: on m0 alone"),
        (("held", "chosen"), "on m0 alone"),
        (("", ""), "on m0 alone"),
    ],
)
def test_a_choice_is_said_where_it_is_that_of_all(
    choices: tuple[str, str], words: str
) -> None:
    rows = [replace(FIRST, choice=choice) for choice in choices]
    assert premise_line(rows).startswith(f"{words}; ")
    apart = [rows[0], replace(rows[1], machines="on m1 alone")]
    note = ", some held" if "held" in choices else ""
    assert premise_line(apart).startswith(f"each on its own machines{note}; ")


def test_settings_that_differ_are_those_of_each_row() -> None:
    rows = [replace(FIRST, settings=settings) for settings in ("a=1", "a=1", "b=2")]
    assert "; a=1; seed 3" in premise_line(rows[:2])
    assert "; settings of each row; seed 3" in premise_line(rows)
    # Seeds of all rows, whoever has the first.
    apart = [replace(FIRST, seeds=(8, 9)), replace(FIRST, seeds=(2, 8))]
    assert premise_line(apart).endswith("; seeds 2 to 9")


@pytest.mark.parametrize("count", [None, 40])
def test_premises_come_back_from_a_record(count: int | None) -> None:
    stated = replace(FIRST, seeds_per_step=count, choice="held")
    figures = stated.to_figures()
    assert None not in figures.values()
    assert Premises.from_figures(figures, 3) == stated


def test_values_that_were_tried_are_the_least_and_the_most() -> None:
    assert grid_words("job.optimizer.lr", [0.03, "0.3", 0.01]) == "lr tried 0.01 to 0.3"
    assert grid_words("job.pipeline", ["A", "none"]) == "pipeline tried A | none"
