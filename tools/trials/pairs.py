"""Which of two is better: sockets against the simulation."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.fidelity.corpus import RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.random import Generator

    from tools.trials.trial import Trial

    Content = dict[str, Any]

#: Pairs whose simulated makespans differ by less are no decision.
APART = 0.01
#: Variants that are longer by more are no question, and cost the time of many others:
#: at one time scale, 36 times as long took 54 s beside 1.5 s.
FAR = 2.0
_TRIES = 8
_BANDS = (0.01, 0.02, 0.05, 0.2, np.inf)


def apart(one: float, other: float) -> float:
    """Return by which share the larger exceeds the smaller."""
    return max(one, other) / min(one, other) - 1


def replaced(content: Content, rng: Generator) -> Content:
    """Return a scenario with everything that is not pinned somewhere else."""
    machines = [machine["name"] for machine in content["cluster"]["machines"]]
    there = content["placement"]["tasks"]
    tasks = {name: str(rng.choice(machines)) for name in there}
    return content | {"placement": content["placement"] | {"tasks": tasks}}


def ruled(content: Content, rng: Generator) -> Content:
    """Return a scenario with another rule for rates."""
    others = [rule for rule in RULES if rule != content["schedule"]["policy"]]
    return content | {"schedule": {"policy": str(rng.choice(others))}}


def drawn_pair(
    content: Content, seed: int, makespan: Callable[[Content], float]
) -> list[Content] | None:
    """Return a scenario and a variant of it whose simulated makespans are apart.

    Even seeds are placed elsewhere, odd ones get another policy.

    Parameters
    ----------
    makespan
        Simulates a scenario.

    Returns
    -------
    list or None
        None when no variant of a few is over 1 % apart and at most three times as
        long: NICs that are never in use leave a policy nothing to decide.
    """
    rng = np.random.default_rng([seed, 7])
    own = makespan(content)
    for _ in range(_TRIES):
        variant = (ruled if seed % 2 else replaced)(content, rng)
        if APART < apart(own, makespan(variant)) <= FAR:
            return [content, variant]
    return None


def moved(content: Content, rng: Generator) -> Content:
    """Return a scenario with some of what is not pinned somewhere else, maybe."""
    own, other = (
        one["placement"]["tasks"] for one in (content, replaced(content, rng))
    )
    some = rng.permutation(sorted(own))[: rng.integers(1, len(own) + 1)].tolist()
    tasks = own | {name: other[name] for name in some}
    return content | {"placement": content["placement"] | {"tasks": tasks}}


def pair_apart(
    content: Content, seed: int, share: float, makespan: Callable[[Content], float]
) -> list[Content] | None:
    """Return a scenario in two placements whose simulated makespans are apart.

    Of some random placements, the one that is about ``share`` apart from the scenario's
    own; None when none is over 1 % apart and at most three times as long.

    ``makespan``: simulates a scenario.
    """
    rng = np.random.default_rng([seed, 9])
    own, best, closest = makespan(content), None, np.inf
    for _ in range(2 * _TRIES):
        variant = moved(content, rng)
        between = apart(own, makespan(variant))
        if APART < between <= FAR and abs(np.log(between / share)) < closest:
            best, closest = variant, abs(np.log(between / share))
    return None if best is None else [content, best]


@dataclass(frozen=True)
class Decision:
    """One question that was put to the simulation and to the sockets.

    Parameters
    ----------
    asked, found
        By which share the second is longer than the first: simulated, emulated.
    trust
        Of the two runs.
    """

    group: str
    asked: float
    found: float
    trust: tuple[str, str]

    @property
    def agreed(self) -> bool:
        """Whether both have the same sign."""
        return bool(np.sign(self.asked) == np.sign(self.found))

    @property
    def kind(self) -> str:
        """What differs: placement, or policy."""
        return self.group.partition("-")[0]


def decisions(rows: Sequence[Trial]) -> list[Decision]:
    """Return what two runs of one variant decide, of finished ones that are apart."""
    finished = [row for row in rows if row.trust != "failed"]
    return [
        Decision(
            one.scenario,
            other.expected / one.expected - 1,
            other.emulated / one.emulated - 1,
            (one.trust, other.trust),
        )
        for one, other in itertools.combinations(finished, 2)
        if (one.scenario, one.variant) == (other.scenario, other.variant)
        and apart(one.expected, other.expected) > APART
    ]


def agreement(rows: Sequence[Trial]) -> list[str]:
    """Return how often sockets and simulation agree, by kind of pair and distance."""
    made = decisions(rows)
    failed = sum(row.trust == "failed" for row in rows)
    again = sum(row.retries for row in rows)
    counts = f"runs {len(rows)}, again {again}, failed {failed}"
    lines = [f"decisions {_agreed(made)}; {counts}"]
    lines += [
        f"  {kind}: {_agreed([d for d in made if d.kind == kind])}"
        for kind in sorted({decision.kind for decision in made})
    ]
    for low, high in itertools.pairwise(_BANDS):
        chosen = [d for d in made if low < apart(1.0, 1.0 + d.asked) <= high]
        lines.append(f"  {100 * low:g} to {100 * high:g} % apart: {_agreed(chosen)}")
    lines += [
        f"  disagreed: {d.group} asked {100 * d.asked:+.2f} %, "
        f"found {100 * d.found:+.2f} % ({', '.join(d.trust)})"
        for d in made
        if not d.agreed
    ]
    return lines


def _agreed(made: Sequence[Decision]) -> str:
    if not made:
        return "0"
    agreed = sum(decision.agreed for decision in made)
    return f"{len(made)}, agreed {agreed} ({100 * agreed / len(made):.1f} %)"
