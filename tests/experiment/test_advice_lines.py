"""Lines of an advice about what its search found."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from emu.errors import ScenarioError
from emu.experiment import advice
from emu.experiment.advice import Advice, _best_of_rows, _contradiction, _no_worse
from emu.experiment.advice_search import Search
from emu.experiment.levers import Lever
from emu.experiment.prospects import Choice, Terms
from emu.experiment.question import Question
from emu.runs.intervals import interval
from tests.experiment.search_doubles import (
    TARGET,
    Way,
    prospect_of,
    search_of,
)


def test_no_choice_that_is_worse_than_the_file_is_left() -> None:
    """Choices at the limits of the terms stay; a file beyond them bounds nothing."""
    terms = Terms(deadline=10.0, budget=99.0)
    ways: Any = [Way("a", 4.0, 1.0, terms), Way("b", 10.0, 1.0, terms)]
    ways += [Way("c", 11.0, 1.0, terms), Way("d", 6.0, 1.0, terms)]
    search = search_of(terms, choices=ways)
    error = ScenarioError("no file")
    assert _no_worse(search, error) == [ways[0], ways[1], ways[3]]

    draw = SimpleNamespace(speed=SimpleNamespace(samples_per_second=1.0))
    answer: Any = SimpleNamespace(
        draws={0: draw},
        train=6,
        cost={"total": 1.0},
        simulated=SimpleNamespace(makespan=6),
    )
    stated = Choice(answer, terms)
    assert stated.judged == ways[3].judged
    assert _no_worse(search, stated) == [ways[0], ways[3]]


def test_rows_are_named_by_their_best_and_in_order() -> None:
    ways: Any = [
        Way("a", 4.0),
        Way("b", 3.0),
        Way("a", 2.0),
        Way("c", 9.0),
        Way("b", 8.0),
    ]
    assert _best_of_rows(ways) == [ways[2], ways[1], ways[3]]
    # What was drawn stands for its row, whatever else is there.
    drawn: Any = Way("a", 5.0)
    assert _best_of_rows(ways, [drawn]) == [ways[1], drawn, ways[3]]


@pytest.mark.parametrize(("limits", "nearness", "option"), [
    ({"budget": 2.0}, "the cheapest", "--budget 2 $"),
    ({"deadline": 3.0}, "the fastest", "--deadline 3 s"),
    ({"budget": 2.0, "deadline": 3.0}, "what comes nearest",
     "--budget 2 $ --deadline 3 s"),
])  # fmt: skip
def test_an_advice_that_cannot_be_names_its_limits(
    limits: dict[str, float], nearness: str, option: str
) -> None:
    terms = Terms(**limits)  # type: ignore[arg-type]
    way: Any = Way("p3", 7.0, 5.0, terms)
    error = _contradiction(search_of(terms), way)
    assert error.file == option
    text = f"{nearness} is p3 on all, 7 s and 5 $ per epoch"
    assert error.problem == f"nothing keeps to it: {text}"
    free: Any = Way("p3", 7.0, None, terms)
    assert "on all, 7 s per epoch" in _contradiction(search_of(terms), free).problem


def advice_of(best: Way, stated: Any, *others: Way, terms: Terms) -> Any:
    return Advice(
        terms=terms,
        best=best,  # type: ignore[arg-type]
        others=others,  # type: ignore[arg-type]
        stated=stated,
        rate=None,
        changes=(),
        refused={},
        tried=(),
    )


def test_margins_are_of_what_was_judged() -> None:
    """Margins are in dollars under a deadline alone, and in seconds otherwise."""
    terms = Terms(deadline=10.0)
    best = Way("a", 4.0, 2.0, terms)
    rival, late = Way("b", 8.0, 5.0, terms), Way("c", 11.0, 1.0, terms)
    found = advice_of(best, rival, rival, terms=terms)
    assert found._file_line().startswith("2.50 x as cheap as the file as it stands")
    assert advice_of(best, late, terms=terms)._file_line().startswith("which fits, un")
    same = advice_of(best, best, terms=terms)
    assert same._file_line().endswith("best that was tried")
    refusal = ScenarioError("no room", key="job")
    line = advice_of(best, refusal, terms=terms)._file_line()
    assert line == "not the file as it stands: no room"

    dear, free = Way("a", 4.0, None, terms), Way("b", 6.0, None, terms)
    assert advice_of(dear, free, terms=terms)._file_line().startswith("1.50 x as fast")
    nothing = advice_of(Way("a", 0.0), Way("b", 8.0), terms=Terms())
    assert nothing._file_line().startswith("which fits, unlike")

    fast, slow = Way("a", 4.0, 2.0), Way("b", 8.0, 5.0)
    found = advice_of(fast, slow, slow, terms=Terms())
    found = replace(found, best=replace(fast, draws={0: 4.0}))
    found = replace(found, others=[replace(slow, draws={0: 8.0})])
    assert found._next_line() == "2.00 x as fast as the next, b on all"
    # Over the seeds that both have.
    drawn = replace(found, best=replace(fast, draws={0: 4.0, 1: 2.0}))
    assert drawn._next_line().startswith("2.00 x")
    both = [replace(slow, draws={0: 8.0, 1: 7.0})]
    assert replace(drawn, others=both)._next_line().startswith("2.50 x")
    alone = advice_of(fast, slow, terms=Terms())
    assert alone._next_line() == "no other system can be, or comes near"


def test_rivals_within_the_interval_of_the_seeds_are_ties() -> None:
    seeds = range(4)
    best = Way("a", 1.0, draws=dict(zip(seeds, (1.0, 1.2, 0.9, 1.1), strict=True)))
    near = Way("b", 1.0, draws=dict(zip(seeds, (1.1, 1.1, 1.0, 1.0), strict=True)))
    far = Way("c", 1.0, draws={seed: 9.0 + seed / 9 for seed in seeds})
    others = [Way("d", 1.5), Way("d", 1.0, draws={9: 1.0})]
    found = advice_of(best, best, far, near, *others, terms=Terms())
    assert [tie.row for tie in found.ties] == ["b"]
    line = found._next_line()
    assert line == "8.73 x as fast as the next, c on all; a tie within 95 %: b"

    # Of one seed the same figure is a tie, but for the rounding of floats.
    same = Way("b", 1.0 + 1e-15)
    found = advice_of(Way("a", 1.0), best, same, Way("c", 1.01), terms=Terms())
    assert [tie.row for tie in found.ties] == ["b"]
    line = found._next_line()
    assert line == "1.00 x as fast as the next, b on all; a tie: b"


def test_the_file_itself_is_the_best_with_its_further_seeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A choice that is drawn is another object than the file that was settled."""
    choice: Any = Way("a", 4.0)
    draws = {0: 4.0, 1: 6.0}
    vars(choice)["drawn"] = lambda: replace(choice, draws=draws)
    search = search_of(Terms(), choices=[choice])
    search.settle_file = lambda: choice
    search.run = lambda: None
    search.list_rates = list
    monkeypatch.setattr(advice, "Search", lambda *_: search)
    monkeypatch.setattr(advice._Levers, "find_rate", lambda _: None)
    monkeypatch.setattr(advice._Levers, "find_changes", lambda _: [])
    monkeypatch.setattr(advice, "load", lambda scenario, _: scenario)
    scenario: Any = SimpleNamespace(
        stated_cluster=SimpleNamespace(machines=[]),
        accuracy=None,
        job=SimpleNamespace(system="dgtp"),
    )
    found = advice.advise(scenario, Terms())
    assert found.best.draws == draws
    assert found._file_line() == "the file as it stands is the best that was tried"


def test_a_change_is_named_from_where_the_winner_wins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rival that takes 8 s beats the best from a factor of 4 on, at 2 s each."""
    choices: Any = [SimpleNamespace(name=name) for name in "abc"]
    best, rival, _ = choices
    levers = advice._Levers(search_of(Terms()), choices)

    def judge(_: object, choice: Any, edit: Any) -> Any:
        factor = edit.get("x", 1.0)
        seconds = {"a": 2.0 * factor, "b": 8.0, "c": 9.0}[choice.name]
        return (1.0, seconds), f"{choice.name} at {factor:.1f}"

    monkeypatch.setattr(advice._Levers, "judge", judge)
    assert levers.find_winner({}) is best
    assert levers.find_winner({"x": 4.0}) is best  # of equals the present one
    assert levers.find_winner({"x": 4.1}) is rival
    lever = Lever("x", lambda value: {"x": value}, "{:.1f}".format)
    assert [*levers.find_change(lever, 1 / 16)] == []
    assert [*levers.find_change(lever, 16.0)] == ["x from 4.0: b at 4.0"]

    # Of equal seconds the present one stays the best: at 4 both take 8.
    whole = replace(lever, whole=True, write="{:.0f}".format)
    assert [*levers.find_change(whole, 16.0)] == ["x from 5: b at 5.0"]

    def fail(*_: Any, **__: Any) -> Any:
        raise ScenarioError("no such figure")

    broken = replace(lever, name="y", edit=fail)
    asked = []

    def list_levers(_: object, *, priced: bool) -> Any:
        asked.append(priced)
        return [broken, lever]

    monkeypatch.setattr(advice, "list_levers", list_levers)
    best.cost = 3.0
    assert levers.find_changes() == ["x from 4.0: b at 4.0"]
    assert [*levers.search.refused] == ["other y"]
    levers.search.terms = Terms(deadline=9.0)
    levers.find_changes()
    best.cost = None
    levers.find_changes()
    assert asked == [False, True, False]
    levers.choices = [rival, best]
    assert levers.find_changes() == []


def test_the_best_line_has_the_interval_of_several_seeds() -> None:
    """4 and 6 s: t of one degree is 12.7, and 1 s the error of their mean."""
    job = SimpleNamespace(length="5 iterations")
    answer = SimpleNamespace(
        simulated=SimpleNamespace(makespan=40.0),
        experiment=SimpleNamespace(scenario=SimpleNamespace(job=job)),
    )
    best: Any = SimpleNamespace(
        name="p3 on all", sure=interval([4.0, 6.0]), cost=2.0, answer=answer
    )
    found = advice_of(best, best, terms=Terms())
    line = "use p3 on all: 5 s ± 13 s per epoch, 2 $; 40 s for 5 iterations"
    assert found._best_line() == line
    best.sure = interval([4.0])
    best.cost = None
    line = "use p3 on all: 4 s per epoch; 40 s for 5 iterations"
    assert found._best_line() == line


def test_other_figures_may_make_other_machines_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first of three sets is refused, and an epoch takes 2 s on the last set."""
    errors: dict[Any, Any] = {("a",): ScenarioError("no a")}
    epochs = {("b",): 3.0, ("c",): 2.0}
    asked = []

    def answer(question: Any) -> Any:
        asked.append((question.scenario, question.target, question.seeds))
        machines = question.machines
        timed = prospect_of(epochs.get(machines, 9.0)).timed
        timed.refused = errors.get(machines)
        timed.placing = machines

        def check() -> None:
            raise errors[machines]

        timed.checked = check
        return timed

    monkeypatch.setattr(advice, "answer", answer)
    monkeypatch.setattr(advice, "load", lambda short, edit: (short, edit["x"]))
    monkeypatch.setattr(Search, "near_sets", lambda *_: [("a",), ("b",), ("c",)])
    search = search_of(Terms(), short="short")
    levers = advice._Levers(search, [])
    question = Question(None, "p3", target=TARGET, seeds=3)  # type: ignore[arg-type]
    choice: Any = SimpleNamespace(
        answer=SimpleNamespace(question=question),
        passes=5.0,
        name_on=lambda placing: f"on {placing[0]}",
    )
    assert levers.judge(choice, {"x": 7}) == ((1.0, 10.0), "on c")
    assert asked == [(("short", 7), None, 1)] * 3
    errors |= {("b",): ScenarioError("no b"), ("c",): ScenarioError("no c")}
    with pytest.raises(ScenarioError, match="no a"):
        levers.judge(choice, {"x": 7})
