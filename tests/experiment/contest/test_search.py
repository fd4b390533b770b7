"""Steps of the search for the worst instance, on instances that are one number."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import ScenarioError
from emu.experiment.contest import search
from emu.experiment.contest.contestants import Bout, Contestant, Kind, loss_of
from emu.experiment.contest.instance import jitter
from emu.experiment.contest.search import Effort, _Judge, find_worst

LOSER = Contestant(Kind.RULES, "oes")
WINNER = Contestant(Kind.RULES, "maxmin")


@dataclass(frozen=True)
class Number:
    """Stands for an instance: what is lost on it follows from a number."""

    value: int

    def neighbour(self, rng: np.random.Generator) -> Number:
        """Return the next number."""
        rng.integers(2)
        return Number(self.value + 1)

    def simpler(self) -> Iterator[Number]:
        """Yield the two smaller ones, the smallest first."""
        for less in (2, 1):
            if self.value >= less:
                yield Number(self.value - less)

    def level(self) -> dict[str, Number]:
        """Return numbers without something."""
        return {"none": Number(0), "refused": Number(-1)}

    def scenario(self, *_: Any) -> int:
        """Return the number."""
        return self.value


class Losses:
    """Stands for `_Judge.loss`: losses by number, in the order in which they come."""

    def __init__(self, **losses: float) -> None:
        self.losses = {int(name[1:]): loss for name, loss in losses.items()}
        self.asked: list[int] = []

    def __call__(self, judge: Any, instance: Number, *_: Any) -> float:
        """Return the loss; minus infinity of what is not known."""
        self.asked.append(instance.value)
        loss = self.losses.get(instance.value, -math.inf)
        if loss == -math.inf:
            judge.refusal = ScenarioError(f"no {instance.value}")
        return loss


def judge_by(monkeypatch: pytest.MonkeyPatch, losses: Any) -> _Judge[Any]:
    def loss(*asked: Any) -> float:
        return float(losses(*asked))

    monkeypatch.setattr(_Judge, "loss", loss)
    return _Judge(LOSER, WINNER)


def test_a_loss_is_a_share_of_what_the_winner_takes() -> None:
    assert loss_of(3.0, 2.0) == 0.5
    assert loss_of(2.0, 4.0) == -0.5
    assert loss_of(3.0, 0.0) == 0.0

    def answer(row: str, makespan: float, rate: float) -> Any:
        question = SimpleNamespace(row=row)
        return SimpleNamespace(
            question=question, makespan=makespan, samples_per_second=rate
        )

    # Systems are compared by vertices per second, as their steps differ in size.
    assert Bout(answer("p3", 9.0, 10.0), answer("dgtp", 3.0, 15.0)).loss == 0.5
    assert Bout(answer("", 9.0, 10.0), answer("", 3.0, 15.0)).loss == 2.0


def test_numbers_move_by_a_share_at_most_each_way() -> None:
    change = jitter(np.random.default_rng(3), 0.01)
    moved = [change(100.0) for _ in range(200)]
    assert 99.0 <= min(moved) < 99.2
    assert 100.8 < max(moved) <= 101.0


def test_a_steady_loss_is_the_least_of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is and moved three times; what is a tie once is asked no further."""
    for losses, least, count in (
        ([0.3, 0.2, 0.25, 0.4, 0.1], 0.2, 4),
        ([0.3, 0.0, 0.25, 0.4], 0.0, 2),
        ([-0.5, 0.3], -0.5, 1),
    ):
        given = iter(losses)
        asked: list[Number] = []

        def loss(
            _: Any,
            instance: Number,
            *_changes: Any,
            given: Any = given,
            asked: Any = asked,
        ) -> float:
            asked.append(instance)
            return float(next(given))

        judge = judge_by(monkeypatch, loss)
        assert judge.steady_loss(Number(1)) == least
        assert len(asked) == count


def test_tries_and_refusals_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = judge_by(monkeypatch, Losses(n1=0.5))
    assert judge.try_out(Number(1)) == 0.5
    assert judge.try_out(Number(2)) == -math.inf
    assert (judge.tries, judge.refused) == (2, 1)


def test_what_keeps_nearly_all_of_a_loss_is_simpler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A twentieth of 0.4 may go: from 9 to 7 and 6, and not to 4 or 5."""
    losses = Losses(n9=0.4, n7=0.385, n5=0.375, n6=0.38, n4=0.37)
    judge = judge_by(monkeypatch, losses)
    assert search._simplify(Number(9), judge) == Number(6)
    nothing = judge_by(monkeypatch, Losses(n9=0.0, n7=0.0))
    assert search._simplify(Number(9), nothing) == Number(9)


def test_a_walk_begins_at_the_worst_of_a_tenth_of_its_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of 20 steps are draws: 6 is worse than 3, and its neighbours worse still."""
    losses = Losses(**{f"n{value}": value / 100 for value in range(40)})
    judge = judge_by(monkeypatch, losses)
    starts = iter([3, 6])
    told: list[tuple[int, float]] = []
    worst = search._walk(
        lambda _: Number(next(starts)),
        judge,
        np.random.default_rng(0),
        20,
        lambda tries, loss: told.append((tries, loss)),
    )
    assert worst == Number(24)
    assert judge.tries == 20
    assert told[0] == (3, 0.07)
    assert told[-1] == (20, 0.24)
    # Below ten steps one is drawn; where nothing is known anything is as good.
    judge = judge_by(monkeypatch, Losses(n9=0.2))
    found = search._walk(lambda _: Number(7), judge, np.random.default_rng(0), 4, None)
    assert (found, judge.tries, judge.refused) == (Number(9), 4, 3)


def test_walks_go_on_to_what_is_less_of_a_loss_by_chance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second of three steps takes a loss of 0.01 less with a chance of 0.692."""
    draws = iter([0.691, 0.99])
    rng: Any = SimpleNamespace(integers=lambda _: 0, random=lambda: next(draws))
    losses = Losses(n1=0.3, n2=0.29, n3=0.1, n4=0.0)
    judge = judge_by(monkeypatch, losses)
    assert search._walk(lambda _: Number(1), judge, rng, 3, None) == Number(1)
    assert losses.asked[-2:] == [2, 3]
    # It stays at 1 where the first draw is above that chance.
    draws = iter([0.693, 0.99])
    losses.asked.clear()
    search._walk(lambda _: Number(1), judge, rng, 3, None)
    assert losses.asked[-2:] == [2, 2]


def test_walks_draw_no_chance_where_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A loss that is as large or larger is taken; of equal ones the first is worst."""
    rng: Any = SimpleNamespace(integers=lambda _: 0)
    judge = judge_by(monkeypatch, Losses(n1=0.3, n2=0.3, n3=0.31))
    assert search._walk(lambda _: Number(1), judge, rng, 3, None) == Number(3)
    monkeypatch.setattr(_Judge, "steady_loss", lambda *_: 0.25)
    assert search._walk(lambda _: Number(1), judge, rng, 3, None) == Number(1)


def test_a_walk_goes_on_from_the_worst_of_its_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The walk reaches 0.05 from the draw of 0.06, not from the draw of 0.03."""
    rng: Any = SimpleNamespace(integers=lambda _: 0, random=lambda: 0.999)
    losses = Losses(n3=0.03, n6=0.06, n7=0.05, n8=0.09)
    judge = judge_by(monkeypatch, losses)
    starts = iter([3, 6])
    draw: Any = lambda _: Number(next(starts))  # noqa: E731
    assert search._walk(draw, judge, rng, 21, None) == Number(6)
    assert {*losses.asked} == {3, 6, 7}


def test_what_has_no_neighbour_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Number, "neighbour", lambda number, _: number)
    judge = judge_by(monkeypatch, Losses(n1=0.3))
    told: list[int] = []
    search._walk(
        lambda _: Number(1),
        judge,
        np.random.default_rng(0),
        9,
        lambda tries, _: told.append(tries),
    )
    assert (judge.tries, told) == (1, [])


def test_numbers_are_moved_alike_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first number drawn from seed 0 is 0.63696, so that it moves by 0.27 %."""
    changes: list[Any] = []

    def loss(_: Any, __: Any, *change: Any) -> float:
        changes.extend(change)
        return 0.5

    judge_by(monkeypatch, loss).steady_loss(Number(1))
    assert changes[0](100.0) == pytest.approx(100.27392337)


def test_the_worst_of_all_walks_is_found_with_what_is_left_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    losses = Losses(n0=0.1, n5=0.3, n6=0.35, n8=0.2)
    judge_by(monkeypatch, losses)
    walks = iter([5, 6, 8])
    steps = []

    def walk(_draw: Any, judge: Any, _rng: Any, count: int, _watch: Any) -> Number:
        steps.append(count)
        number = Number(next(walks))
        judge.try_out(number)
        return number

    def draw(_: Any) -> Any:
        return Number(0)

    monkeypatch.setattr(search, "_walk", walk)
    monkeypatch.setattr(search, "_simplify", lambda instance, _: instance)
    monkeypatch.setattr(
        search, "fight", lambda value, *_: SimpleNamespace(loss=value / 10)
    )
    found: Any = find_worst(LOSER, WINNER, draw, Effort(tries=20, walks=3))
    assert steps == [6, 6, 6]
    assert found.instance == Number(6)
    assert (found.steady_loss, found.loss) == (0.35, 0.6)
    assert found.without == {"none": 0.1, "refused": None}
    assert (found.tries, found.refused) == (3, 0)
    walks = iter([1, 2])
    with pytest.raises(ScenarioError, match=r"every instance was refused, .*no 2"):
        find_worst(LOSER, WINNER, draw, Effort(tries=1, walks=2))
    assert steps[3:] == [1, 1]
    # Some are refused, and on the others it never loses.
    losses.losses[5] = 0.0
    walks = iter([5, 1])
    assert find_worst(LOSER, WINNER, draw, Effort(tries=2, walks=2)) is None


def test_a_watch_is_told_of_the_worst_of_all_walks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    losses = Losses(n1=0.5, n2=0.4, n9=0.2, n10=0.1)
    judge_by(monkeypatch, losses)
    starts = iter([Number(1), Number(9)])
    watched_losses: list[float] = []

    def watch(_: int, loss: float) -> None:
        watched_losses.append(loss)

    def draw(_: Any) -> Any:
        return next(starts)

    monkeypatch.setattr(search, "fight", lambda *_: SimpleNamespace(loss=0.5))
    find_worst(LOSER, WINNER, draw, Effort(tries=4, walks=2), watch)
    assert watched_losses == [0.5, 0.5]
