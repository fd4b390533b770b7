"""The papers' numbers: every one is in the sentence that it is quoted from."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from emu.errors import DataError
from emu.reproduction.claims import (
    Claim,
    evaluate,
    find_claims,
    read_papers,
)
from emu.reproduction.figures import scenario_of
from emu.reproduction.rows import EXPERIMENTS
from tests import draws

#: Folder with the texts of the papers, which are not ours to ship.
TEXTS = os.environ.get("EMU_PAPERS", "")
#: Without the refused ones.
CARRIED_OUT = [claim for claim in read_papers().claims if not claim.refused]


@given(st.lists(st.integers(1, 999), min_size=1, max_size=4), st.data())
def test_a_number_is_a_quotient_of_numbers(
    factors: list[int], data: st.DataObject
) -> None:
    signs = [data.draw(st.sampled_from("*/")) for _ in factors[1:]]
    text = str(factors[0])
    expected = float(factors[0])
    for sign, factor in zip(signs, factors[1:], strict=True):
        text += f" {sign} {factor}"
        expected = expected * factor if sign == "*" else expected / factor

    assert evaluate(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "about 2", "2 +", "2 3 x", "/ 2", "1e3"])
def test_words_are_no_number(text: str) -> None:
    with pytest.raises(ValueError, match="write a number"):
        evaluate(text)


def claim_of(**changes: object) -> Claim:
    content = {
        "paper": "p3",
        "figure": "figure-1",
        "title": "a gain",
        "quote": ("it is 3.85 x, and 1.7 x",),
        "each": ("3.85",),
        "base": "rented",
        "why": "for a reason",
    }
    return Claim.model_validate(content | changes)


@pytest.mark.parametrize("number", ["3.8", "85", "7", "3", "3.85 / 2"])
def test_a_number_has_to_occur_in_a_quote(number: str) -> None:
    """Whole: 3.8 and 85 are parts of 3.85."""
    assert claim_of(each=("3.85 / 1.7",)).numbers == ("3.85 / 1.7",)
    with pytest.raises(ValidationError, match="in none of the sentences"):
        claim_of(each=(number,))
    assert claim_of(each=(number,), reading="by hand").numbers == (number,)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"quote": ()}, "quote the sentence"),
        ({"each": ("3.85", "1.7")}, "a number for each of its points"),
        ({"why": ""}, "write base and why, or refused"),
        ({"color": "red"}, "color"),
    ],
)
def test_a_damaged_claim_is_refused(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        claim_of(**changes)


@pytest.mark.skipif(not TEXTS, reason="EMU_PAPERS names no folder with their texts")
@pytest.mark.parametrize(
    "paper", [name for name, paper in read_papers().papers.items() if paper.text]
)
def test_every_quote_stands_in_the_paper(paper: str) -> None:
    """Word for word, but for what white space is between them."""
    path = Path(TEXTS) / read_papers().papers[paper].text
    text = re.sub(r"\s+", " ", path.read_text("utf-8"))
    quotes = [quote for claim in find_claims(paper) for quote in claim.quote]

    assert len(quotes) > 5
    assert [q for q in quotes if re.sub(r"\s+", " ", q) not in text] == []


def test_a_figure_is_found_by_its_name_and_by_its_number() -> None:
    named = find_claims("dgtp", "figure-6")

    assert len(named) == 3
    assert find_claims("dgtp", "6") == find_claims("dgtp", "Fig 6") == named
    assert {claim.figure for claim in find_claims("p3", "4")} == {"table-4"}
    assert len(find_claims("all")) == len(read_papers().claims)


@pytest.mark.parametrize(
    ("paper", "figure", "problem"),
    [
        ("p3", "figure-71", "did you mean 'figure-7'"),
        ("dgclx", "", "did you mean 'dgcl'"),
        ("dorylus", "zz", "known: table-1, "),
    ],
)
def test_an_unknown_figure_gets_the_nearest_names(
    paper: str, figure: str, problem: str
) -> None:
    with pytest.raises(DataError, match=problem):
        find_claims(paper, figure)


@pytest.mark.parametrize(
    "claim",
    draws.rarely_but(3, CARRIED_OUT),
    ids=lambda claim: claim.title,
)
def test_the_scenarios_of_a_claim_are_good_and_state_their_walk(claim: Claim) -> None:
    if claim.measure == "drawn_machines":  # whose points are of its own
        claim = claim.model_copy(update={"points": (claim.points[0],)})
        claim = Claim.model_validate(claim.model_dump() | {"points": [{}], "each": ()})
    sides = (claim.first,) if claim.compare == "alone" else (claim.first, claim.second)
    for point in claim.points:
        for side in sides:
            if claim.measure == "drawn_machines":
                side = side.model_copy(update={"edits": {}})  # noqa: PLW2901
            try:
                job = scenario_of(claim, point, side, seed=1).job
            except DataError as error:
                pytest.skip(str(error))
            if "epoch" in type(job).model_fields:
                assert "epoch" in job.model_fields_set


def test_every_experiment_is_used() -> None:
    assert EXPERIMENTS.keys() <= {claim.measure for claim in CARRIED_OUT}
