"""Which of two is better: what the sockets say, against the simulation."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tools.fidelity_study.corpus import RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.random import Generator

    from tools.fidelity_study.rows import Row

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

    Parameters
    ----------
    makespan
        Simulates a scenario.
    """
    rng = np.random.default_rng([seed, 9])
    own, best, closest = makespan(content), None, np.inf
    for _ in range(2 * _TRIES):
        variant = moved(content, rng)
        between = apart(own, makespan(variant))
        if APART < between <= FAR and abs(np.log(between / share)) < closest:
            best, closest = variant, abs(np.log(between / share))
    return None if best is None else [content, best]


def drawn_placements(
    content: Content, seed: int, count: int, makespan: Callable[[Content], float]
) -> list[Content]:
    """Return a scenario in so many random placements, none of them very long.

    Parameters
    ----------
    makespan
        Simulates a scenario.
    """
    rng = np.random.default_rng([seed, 8])
    drawn = [replaced(content, rng) for _ in range(_TRIES * count)]
    lengths = np.array([makespan(variant) for variant in drawn])
    order = np.argsort(lengths)
    near = order[lengths[order] <= (1 + FAR) * lengths[order[0]]]
    # From the best up to where it gets too long, evenly: some are close calls.
    chosen = np.linspace(0, len(near) - 1, count).round().astype(int)
    return [drawn[n] for n in near[np.unique(chosen)]]


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
        """Whether both say the same."""
        return bool(np.sign(self.asked) == np.sign(self.found))


def decisions(rows: Sequence[Row]) -> list[Decision]:
    """Return what two runs of one group decide, of finished ones that are apart."""
    finished = [row for row in rows if row.trial.trust != "failed"]
    return [
        Decision(
            one.group,
            other.expected / one.expected - 1,
            other.trial.emulated / one.trial.emulated - 1,
            (one.trial.trust, other.trial.trust),
        )
        for one, other in itertools.combinations(finished, 2)
        if one.group == other.group and apart(one.expected, other.expected) > APART
    ]


def agreement(rows: Sequence[Row]) -> list[str]:
    """Return how often sockets and simulation agree, by how far it is between two."""
    made = decisions(rows)
    failed = sum(row.trial.trust == "failed" for row in rows)
    again = sum(row.trial.retries for row in rows)
    counts = f"runs {len(rows)}, again {again}, failed {failed}"
    lines = [f"decisions {_agreed(made)}; {counts}"]
    return [*lines, *agreement_by_kind(made)]


def agreement_by_kind(made: Sequence[Decision]) -> list[str]:
    """Return the same by kind of pair and by distance, and who disagreed."""
    lines = []
    for kind in sorted({decision.group.split("-")[0] for decision in made}):
        chosen = [d for d in made if d.group.split("-")[0] == kind]
        lines.append(f"  {kind}: {_agreed(chosen)}")
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


def taus(rows: Sequence[Row]) -> list[str]:
    """Return Kendall's tau of every group: of all its runs, and of what is apart."""
    lines = []
    for group in dict.fromkeys(row.group for row in rows):
        mine = [r for r in rows if r.group == group and r.trial.trust != "failed"]
        if len(mine) < 2:
            continue
        tau = kendall([r.expected for r in mine], [r.trial.emulated for r in mine])
        made = decisions(mine)
        lines.append(
            f"Kendall's tau of {group}, {len(mine)} placements: {tau:.3f}; of those "
            f"over {100 * APART:g} % apart {_agreed(made)}"
        )
    return lines


def kendall(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Kendall's tau (a) of two lists of one length."""
    pairs = list(itertools.combinations(range(len(first)), 2))
    concordant = sum(
        np.sign(first[i] - first[j]) * np.sign(second[i] - second[j]) for i, j in pairs
    )
    return float(concordant / len(pairs))
