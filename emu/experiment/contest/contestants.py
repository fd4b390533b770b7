"""The two sides of a contest, and how far one loses to the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from emu.errors import EmulatorError, ScenarioError
from emu.experiment.question import Answer, Question, answer
from emu.experiment.systems import list_translatable, list_variants
from emu.prediction.placement_policies import PLACEMENT_POLICIES
from emu.prediction.rate_policies import RATE_POLICIES
from emu.problem.fields.suggestion import nearest
from emu.scenario import Scenario, load
from emu.scenario.edits import placement_edit


class Kind(StrEnum):
    """Kinds of things that can be contestants."""

    RULES = "rules"
    PLACEMENTS = "placements"
    SYSTEMS = "systems"


@dataclass(frozen=True)
class Contestant:
    """A rule for rates, a placement or a row of the table of systems."""

    kind: Kind
    name: str

    def question(self, scenario: Scenario) -> Question:
        """Return the question how long a scenario takes with this contestant.

        Raises ScenarioError where the scenario cannot be with it.
        """
        if self.kind is Kind.SYSTEMS:
            return Question(scenario, row=self.name, exact=False)
        edit: Mapping[str, object] = {"schedule.policy": self.name}
        if self.kind is Kind.PLACEMENTS:
            edit = placement_edit(scenario, self.name)
        variant = load(scenario, {**edit, "expect": None})
        return Question(variant, exact=False)

    def key(self) -> str:
        """Return what ``emu simulate --set`` states for it; empty for a system."""
        keys = {
            Kind.RULES: "schedule.policy",
            Kind.PLACEMENTS: "placement.policy",
        }
        if self.kind not in keys:
            return ""
        return f"{keys[self.kind]}={self.name}"


@dataclass(frozen=True, eq=False)
class Bout:
    """Answers of both contestants about one instance."""

    loser: Answer
    """Answer of the contestant whose worst case is looked for."""
    winner: Answer

    @property
    def loss(self) -> float:
        """Share by which the loser takes longer, 0.24 for 24 %; negative if it wins.

        Systems differ in the seeds of a step, so that theirs is the time per seed.
        """
        if self.loser.question.row:
            winner_speed = self.winner.samples_per_second
            loser_speed = self.loser.samples_per_second
            return winner_speed / loser_speed - 1.0
        return loss_of(self.loser.makespan, self.winner.makespan)


def loss_of(loser: float, winner: float) -> float:
    """Return the share by which one makespan is longer than another; 0 of no time."""
    if not winner:
        return 0.0
    return loser / winner - 1.0


def fight(scenario: Scenario, loser: Contestant, winner: Contestant) -> Bout:
    """Return the answers of both about a scenario.

    Raises EmulatorError where one of them is refused.
    """
    loser_question = loser.question(scenario)
    loser_answer = answer(loser_question).checked()
    winner_question = winner.question(scenario)
    winner_answer = answer(winner_question).checked()
    return Bout(loser=loser_answer, winner=winner_answer)


def read_contestants(
    first: str, second: str, kind: Kind | None = None
) -> tuple[Contestant, Contestant]:
    """Return the contestants that two names mean.

    Raises
    ------
    ScenarioError
        When no kind has both names, or several have and ``kind`` does not decide.
    """
    names_of = {
        Kind.RULES: [*RATE_POLICIES],
        Kind.PLACEMENTS: [name for name in PLACEMENT_POLICIES if name != "explicit"],
        # A system alone is a row as well, as the file's keys have it.
        Kind.SYSTEMS: [*dict.fromkeys([*list_variants(["all"]), *list_translatable()])],
    }
    if first == second:
        problem = "are one and the same: name two"
        raise ScenarioError(problem, file=f"{first} {second}")

    kinds = [kind] if kind else [*Kind]
    shared_kinds = []
    for choice in kinds:
        names = names_of[choice]
        if first in names and second in names:
            shared_kinds.append(choice)
    if not shared_kinds:
        raise _unknown(first, second, names_of, kinds)
    if len(shared_kinds) > 1:
        words = " and ".join(shared_kinds)
        choices = " or ".join(shared_kinds)
        problem = f"are {words}: write --of {choices}"
        raise ScenarioError(problem, file=f"{first} {second}")
    (kind_of_both,) = shared_kinds
    return Contestant(kind_of_both, first), Contestant(kind_of_both, second)


def _unknown(
    first: str,
    second: str,
    names_of: Mapping[Kind, list[str]],
    kinds: list[Kind],
) -> EmulatorError:
    """Return the error that no kind knows both names."""
    for name in (first, second):
        names = [known for kind in kinds for known in names_of[kind]]
        if name not in names:
            return ScenarioError(nearest(name, names), file=f"no contestant {name!r}")
    problem = "are of different kinds: name two rules, two placements or two systems"
    return ScenarioError(problem, file=f"{first} {second}")
