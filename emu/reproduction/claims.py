"""The papers' numbers, each with the sentence that it is from, and their experiments.

They stand in papers.yaml beside this module. It is checked when it is read: a number
has to occur in one of the sentences that its claim quotes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from math import prod
from typing import Any, Literal, Self, TypeAlias

from pydantic import Field, model_validator
from ruamel.yaml import YAML

from emu.errors import DataError
from emu.problem.fields.section import Section
from emu.problem.fields.suggestion import nearest

#: Word for every paper, as FIGURE names are looked up in all of them.
ALL = "all"
#: Sign and number of a factor: `18.1 / 1.16` has two, of which the first has no sign.
_FACTOR = re.compile(r"([*/]?)\s*(\d+(?:\.\d+)?)")


def evaluate(text: str) -> float:
    """Return the value of a number of a paper, ``7.69`` or a quotient, ``18.1 / 1.16``.

    Raises ValueError when it is neither.
    """
    factors = _FACTOR.findall(text)
    rest = _FACTOR.sub("", text).strip()
    # A sign in front of the first factor divides nothing.
    if rest or not factors or factors[0][0]:
        raise ValueError(f"found {text!r}, write a number, or a quotient of numbers")
    above: list[float] = []
    below: list[float] = []
    for sign, number in factors:
        numbers = below if sign == "/" else above
        numbers.append(float(number))
    return prod(above) / prod(below)


#: Keys of a scenario with their values, as ``--set`` takes them.
Edits: TypeAlias = Mapping[str, Any]


class Side(Section):
    """One of two things that an experiment holds against each other."""

    label: str = ""
    """Its name in the settings of a row."""
    system: str = ""
    """Row of ``emu compare --systems`` that the base becomes; default: as it is."""
    measure: str = ""
    """Figure of this side alone; default is that of the claim."""
    edits: Edits = Field(default_factory=dict)
    """Keys of the scenario, as ``--set`` takes them."""


class Point(Section):
    """One value on the axis of a figure."""

    label: str = ""
    edits: Edits = Field(default_factory=dict)


class Claim(Section):
    """The report of a paper in one figure, and the experiment that stands beside it."""

    paper: str
    """Key of `Papers.papers`."""
    figure: str
    """``figure-4``, ``table-2``, ``section-7.3``; several claims may share one."""
    title: str
    """The quantity that is compared."""
    quote: tuple[str, ...] = ()
    """Sentences or lines of tables, word for word."""
    reading: str = ""
    """The numbers that words are read as, where the paper has no digits."""
    each: tuple[str, ...] = ()
    """The paper's number at every point."""
    least: str = ""
    """The paper's number for the smallest of all points."""
    most: str = ""
    """The paper's number for the largest of all points, its "up to"."""
    mean: str = ""
    """The paper's number for the mean of all points."""
    unit: str = "x"
    measure: str = "makespan"
    """Figure of one scenario, or experiment, see `figures` and `experiments`."""
    compare: Literal["times", "saving", "more", "share", "alone"] = "times"
    """``times``: the second side over the first; ``saving``: 100 (1 - first / second);
    ``more``: 100 (first / second - 1); ``share``: 100 first / second; ``alone``: the
    first."""
    base: str = ""
    """Key of `Papers.bases`, or the name of a shipped scenario."""
    edits: Edits = Field(default_factory=dict)
    """Keys that all points and both sides share."""
    points: tuple[Point, ...] = (Point(),)
    first: Side = Side()
    second: Side = Side()
    options: Edits = Field(default_factory=dict)
    """Numbers that the measure itself takes."""
    drawn: bool = True
    """True where a seed draws anything, so that several are tried."""
    full: bool = False
    """True where only ``--full`` carries it out: it trains for minutes of CPU."""
    headline: bool = False
    """True where docs/measurements.md shows it."""
    why: str = ""
    """Why what is found here differs, or agrees."""
    refused: str = ""
    """Why this model cannot speak of it, in place of an experiment."""

    @property
    def place(self) -> str:
        """The figure as a reader writes it: ``figure 4``."""
        return self.figure.replace("-", " ", 1)

    @property
    def numbers(self) -> tuple[str, ...]:
        """All numbers of the paper."""
        texts = (*self.each, self.least, self.most, self.mean)
        return tuple(text for text in texts if text)

    @model_validator(mode="after")
    def _check(self) -> Self:
        # The page says beside each number why it differs from the paper.
        if not self.refused and not (self.base and self.why):
            raise ValueError(f"{self.title}: write base and why, or refused")
        if self.each and len(self.each) != len(self.points):
            raise ValueError(f"{self.title}: write a number for each of its points")
        if self.numbers and not self.quote:
            raise ValueError(f"{self.title}: quote the sentence that has the numbers")

        quotation = " ".join(self.quote)
        for number in self.numbers:
            evaluate(number)
            for _, literal in _FACTOR.findall(number):
                # Whole numbers alone, or 1.16 would be found in 11.165; the
                # full stop of a sentence may follow.
                occurs = re.search(
                    rf"(?<![\d.]){re.escape(literal)}(?!\d|\.\d)", quotation
                )
                # "Half" has no digits: `reading` says then what it is taken for.
                if not (occurs or self.reading):
                    problem = f"{literal} is in none of the sentences that it quotes"
                    raise ValueError(f"{self.title}: {problem}")
        return self


class Paper(Section):
    """A paper."""

    title: str
    text: str = ""
    """File that holds its text, in the folder that tests compare quotes with; empty
    where no text is at hand, so that nothing compares them."""


class Papers(Section):
    """All claims of all papers."""

    papers: dict[str, Paper]
    bases: dict[str, dict[str, Any]]
    """Scenarios that do not ship with emu, by name."""
    claims: tuple[Claim, ...]


# `scenario_of` asks for the bases for each side of each point.
@cache
def read_papers() -> Papers:
    """Return the checked contents of papers.yaml.

    Raises DataError when they are damaged.
    """
    path = files(__package__) / "papers.yaml"
    content = YAML(typ="safe").load(path.read_text("utf-8"))
    try:
        return Papers.model_validate(content)
    except ValueError as error:
        raise DataError(str(error), path=str(path)) from error


def find_claims(paper: str, figure: str = "") -> Sequence[Claim]:
    """Return the claims of a paper, or those of one of its figures.

    ``figure``: its name, or the number alone. Raises DataError when there is no such
    paper or figure, with the nearest names.
    """
    content = read_papers()
    names = [*content.papers, ALL]
    if paper not in names:
        raise DataError(f"no paper {paper!r}, {nearest(paper, names)}")

    claims = [claim for claim in content.claims if paper in {claim.paper, ALL}]
    # As readers write it: `figure 4`, `fig 4`, or 4 alone.
    word = figure.strip().lower().replace(" ", "-")
    word = word.replace("fig-", "figure-")
    matches = []
    for claim in claims:
        _, _, number = claim.figure.partition("-")  # an abstract has none
        if word in {"", claim.figure, number}:
            matches.append(claim)
    if not matches:
        figures = dict.fromkeys(claim.figure for claim in claims)
        raise DataError(f"{paper} has no figure {figure!r}, {nearest(word, figures)}")
    return matches
