"""Claims carried out: the paper's number and ours, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from operator import itemgetter
from statistics import fmean
from typing import Any

from emu.errors import EmulatorError
from emu.experiment.spread import spread
from emu.reproduction.claims import Claim, Point, Side, evaluate
from emu.reproduction.drawn_machines import measure_rules
from emu.reproduction.figures import (
    cpu_minutes_of_placing,
    describe,
    find_crossing,
    list_published,
    measure_scenario,
    measure_sides,
    scenario_of,
)
from emu.reproduction.whole_graph import PLAN_FIGURES, fit_line
from emu.runs.intervals import Interval, interval
from emu.scenario import Scenario

#: Measures that compare whole experiments; every other is a figure of a scenario.
EXPERIMENTS: Mapping[str, Callable[[Claim, int, Mapping[str, Any]], list[float]]] = {
    "drawn_machines": measure_rules,
    "crossing": find_crossing,
    "line": fit_line,
    "published": list_published,
}
#: Label of a row of all points -> what it takes of their values.
_CHOICES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "least": min,
    "most": max,
    "mean": fmean,
}
#: A figure within this share of the paper's is reproduced.
BAND = 0.2


def find_figure(scenario: Scenario, name: str) -> float:
    """Return a figure of a scenario by its name in papers.yaml.

    Raises KeyError when there is no such figure, and as the figure does.
    """
    if name in PLAN_FIGURES:
        return PLAN_FIGURES[name](scenario)
    if name == "placing":
        return cpu_minutes_of_placing(scenario)
    return measure_scenario(scenario, name)


@dataclass(frozen=True)
class Row:
    """One number of a paper and the same found here."""

    claim: Claim
    point: str
    """Label of the point; ``least``, ``most``, where all points have one number."""
    stated: float | None
    """The paper's number, None where it has none."""
    found: Interval | None
    """Mean and half of its 95 % interval; None where it was refused."""
    settings: str
    seconds: float
    """CPU time of the whole claim, which its rows share."""
    refused: str = ""
    curve: tuple[Interval, ...] = ()
    """Values found at every point of the claim."""

    @property
    def ratio(self) -> float | None:
        """Found over stated."""
        if self.found is None or not self.stated:
            return None
        return self.found.mean / self.stated

    @property
    def is_reproduced(self) -> bool:
        """True where the ratio is within `BAND` of 1."""
        return self.ratio is not None and abs(self.ratio - 1) <= BAND

    def to_json(self) -> dict[str, Any]:
        """Return the row with the keys of its claim that a reader asks for."""
        claim = self.claim
        estimate = None if self.found is None else asdict(self.found)
        labels = [point.label for point in claim.points]
        return {
            "paper": claim.paper,
            "figure": claim.figure,
            "title": claim.title,
            "point": self.point,
            "unit": claim.unit,
            "stated": self.stated,
            "found": estimate,
            "ratio": self.ratio,
            # A refused claim has points, and no curve over them.
            "points": {
                label: asdict(value)
                for label, value in zip(labels, self.curve, strict=False)
            },
            "settings": self.settings,
            "why": claim.why,
            "refused": self.refused,
            "quote": [*claim.quote],
            "reading": claim.reading,
            "cpu_seconds": self.seconds,
        }


@dataclass(frozen=True)
class Draw:
    """Outcome of one seed: the values of the points, and what that took."""

    values: list[float]
    settings: str
    seconds: float


def draw_claim(claim: Claim, seed: int) -> Draw:
    """Return what a claim finds with one seed, by point.

    Raises ScenarioError, PlacementError, DataError as its scenarios do.
    """
    # CPU time: wall time would count waits for cores, as pieces run side by side.
    began = time.process_time()
    if claim.measure in EXPERIMENTS:
        values = EXPERIMENTS[claim.measure](claim, seed, claim.options)
    else:
        values = measure_sides(claim, seed, find_figure)

    return Draw(
        values=values,
        settings=describe_claim(claim, seed),
        seconds=time.process_time() - began,
    )


def describe_claim(claim: Claim, seed: int) -> str:
    """Return what the sides of a claim are called, their walk and their graph.

    Raises ScenarioError, DataError as `scenario_of`.
    """
    sides = [claim.first]
    if claim.compare != "alone":
        sides.append(claim.second)
    labels = [side.label for side in sides if side.label]

    point = claim.points[0]
    side = sides[-1]
    if claim.measure == "drawn_machines":  # whose edits are none of a scenario
        point = Point()
        side = Side()
    scenario = scenario_of(claim, point, side, seed)

    words = [" / ".join(labels), describe(scenario)]
    return "; ".join(filter(None, words))


def _numbers_of(claim: Claim) -> list[tuple[str, float | None]]:
    """Return the label and the paper's number of every row of a claim."""
    labels = [point.label for point in claim.points]
    if claim.each:
        stated_numbers = [evaluate(text) for text in claim.each]
        return [*zip(labels, stated_numbers, strict=True)]
    if not claim.numbers:
        return [(label, None) for label in labels]

    numbers: list[tuple[str, float | None]] = []
    for name in _CHOICES:
        text = getattr(claim, name)
        if text:
            numbers.append((name, evaluate(text)))
    return numbers


def rows_of(claim: Claim, draws: Sequence[Draw]) -> list[Row]:
    """Return the rows of a claim that was carried out with one seed or several."""
    by_point = zip(*(draw.values for draw in draws), strict=True)
    curve = tuple(interval(values) for values in by_point)
    rows = []
    for number, (label, paper_number) in enumerate(_numbers_of(claim)):
        choose = _CHOICES.get(label, itemgetter(number))
        # The largest of each draw, then the mean over the draws: the "up to" of a paper
        # is of one experiment, too, and the largest of means would be less.
        values = [choose(draw.values) for draw in draws]
        row = Row(
            claim=claim,
            point=label,
            stated=paper_number,
            found=interval(values),
            settings=draws[0].settings,
            seconds=sum(draw.seconds for draw in draws),
            curve=curve,
        )
        rows.append(row)
    return rows


def refused_rows(claim: Claim, reason: str) -> list[Row]:
    """Return the rows of a claim that has none of ours, and why."""
    numbers = _numbers_of(claim) if claim.numbers else [("", None)]
    return [
        Row(
            claim=claim,
            point=label,
            stated=paper_number,
            found=None,
            settings="",
            seconds=0.0,
            refused=reason,
        )
        for label, paper_number in numbers
    ]


def reproduce(
    claims: Sequence[Claim],
    *,
    draws: int = 3,
    jobs: int = 1,
    full: bool = False,
    watch: Callable[[str], None] = lambda _: None,
) -> Iterator[Row]:
    """Yield the rows of claims in their order, once all are carried out.

    Parameters
    ----------
    draws
        Seeds of every claim that draws something.
    jobs
        Processes; 0 is one for each core.
    full
        Whether those that train for minutes are carried out too.
    watch
        Is told after every piece how many are done.
    """
    pieces = []
    for claim in claims:
        if not claim.refused and (full or not claim.full):
            # A piece per seed, so that one long claim keeps all cores busy.
            seeds = range(draws if claim.drawn else 1)
            pieces += [(claim, seed) for seed in seeds]

    # By identity: a claim holds dictionaries, so that it is no key itself.
    draws_of: dict[int, list[Draw]] = {}
    failures: dict[int, str] = {}
    work = spread(lambda number: draw_claim(*pieces[number]), len(pieces), jobs)
    # Closed whatever happens, or the processes would go on when a reader stops early.
    with closing(work) as results:
        for count, (number, result) in enumerate(results, start=1):
            claim, _ = pieces[number]
            watch(f"{count} of {len(pieces)}: {claim.paper} {claim.place}")
            if isinstance(result, EmulatorError):
                # One seed that fails takes the whole claim: a mean
                # would not say which draw it lacks.
                failures[id(claim)] = f"failed: {result}"
            else:
                draws_of.setdefault(id(claim), []).append(result)

    for claim in claims:
        reason = claim.refused or failures.get(id(claim))
        if id(claim) in draws_of and not reason:
            yield from rows_of(claim, draws_of[id(claim)])
        else:
            reason = reason or "trains for minutes of CPU: add --full"
            yield from refused_rows(claim, reason)
