"""Judge a prediction: did the run do what the model said, and if not, where and why.

The verdict on the measurement (`emu.trust.verdict`) says whether a number stands. This
one compares the number with the model: a run may be trusted and differ. With packets
there are three witnesses of a makespan: rates, packets and a run; who agrees with whom.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypedDict

import numpy as np

from emu.prediction.analysis.critical_path import divergences
from emu.problem import Schedule
from emu.trust.causes import LEAST, list_causes, name_cause
from emu.trust.changed_simulation import ChangedSimulation
from emu.trust.link_shares import Flow, links_to_blame
from emu.trust.observed import Observations

#: Share of what moved the end that a link or a reason has at least, to be named.
SHARE = 0.2


class Outcome(StrEnum):
    """Outcome of a prediction."""

    AGREES = "agrees"
    DIFFERS = "differs"
    UNKNOWN = "unknown"
    """A lab in which no iterations were found."""


class PredictionKeys(TypedDict):
    """A prediction as result.json has it, see `Prediction`."""

    outcome: str
    error: float | None
    threshold: float
    since: float | None
    links: list[str]
    reasons: list[str]


@dataclass(frozen=True)
class Prediction:
    """A prediction beside the run that followed it."""

    outcome: Outcome
    error: float | None
    """Makespan of the run over the predicted one, minus 1; over the one of a simulation
    of its own times and volumes if that is more. Of a lab likewise of seconds per
    iteration; None where they are not known."""
    threshold: float
    """Share by which the two may differ."""
    since: float | None = None
    """Seconds at which the first task ended so far off; None where they agree."""
    links: tuple[str, ...] = ()
    """Links of the flows that moved the end, the most first."""
    reasons: tuple[str, ...] = ()
    """The cause that explains most of it, a sentence; of witnesses what stands beside
    it."""

    def to_json(self) -> PredictionKeys:
        """Return the form of result.json."""
        return {
            "outcome": str(self.outcome),
            "error": self.error,
            "threshold": self.threshold,
            "since": self.since,
            "links": list(self.links),
            "reasons": list(self.reasons),
        }


def judge_prediction(
    emulated: Schedule,
    predicted: Schedule,
    replayed: Schedule,
    *,
    threshold: float,
    policy: str = "maxmin",
    observed: Observations | None = None,
    chance: str = "",
) -> Prediction:
    """Return the verdict on a prediction.

    Parameters
    ----------
    predicted, replayed
        Simulations of what was expected, and of the run's own times and volumes.
    threshold
        Share of the makespan.
    policy
        Rule by which causes are simulated.
    observed
        Records of the run from which causes are simulated.
    chance
        Reason of the run's verdict where the slightest delays decide: no cause is named
        then.
    """
    observed = observed or Observations()
    simulations = [replayed, predicted]
    errors = [emulated.error_over(simulation) for simulation in simulations]
    place = _place_of_headline(errors, threshold)
    error = errors[place]
    simulation = simulations[place]
    if abs(error) <= threshold:
        # The headline, though the other simulation may be farther off.
        return Prediction(outcome=Outcome.AGREES, error=errors[-1], threshold=threshold)

    difference = emulated.makespan - simulation.makespan
    # The replay has the run's own times and volumes: what is left between them is of
    # the network.
    by_network = emulated.length - replayed.length
    is_by_network = abs(by_network) > SHARE * abs(difference)
    late = _late_flows(emulated, replayed, by_network) if is_by_network else []
    drifts = [(edge, seconds) for (edge, _), seconds in late]
    links = links_to_blame(emulated, drifts, SHARE * abs(by_network))

    dead = emulated.outages.seconds - simulation.outages.seconds
    reasons: tuple[str, ...] = (chance,)
    if not chance and dead / difference >= LEAST:
        share = 100 * dead / difference
        reasons = (f"attempts that ended: {share:.0f} % of the difference",)
    elif not chance:
        late.sort(key=lambda drift: -abs(drift[1]))
        flows = [flow for flow, _ in late]
        causes = list_causes(emulated, simulation, links, late=flows, observed=observed)
        changed = ChangedSimulation(simulation, policy)
        reasons = name_cause(causes, changed, difference)
    # Since the first task that ended so far off, whatever came later.
    off = np.abs(emulated.task_end - simulation.task_end)
    is_off = off > threshold * simulation.length
    since = np.min(emulated.task_end, initial=emulated.length, where=is_off)
    return Prediction(
        outcome=Outcome.DIFFERS,
        error=error,
        threshold=threshold,
        since=float(since),
        links=tuple(links),
        reasons=reasons,
    )


def _place_of_headline(errors: list[float], threshold: float) -> int:
    """Return the place of the error that is shown first.

    That is the last one, of what was predicted before the run. Where it is within the
    threshold and another is not, the largest.
    """
    last = len(errors) - 1
    if abs(errors[last]) > threshold:
        return last

    sizes = [abs(error) for error in errors]
    return sizes.index(max(sizes))


def _late_flows(
    emulated: Schedule,
    replayed: Schedule,
    by_network: float,
) -> list[tuple[Flow, float]]:
    """Return the flows that moved the end as it moved, and seconds of each."""
    late = []
    for drift in divergences(emulated, replayed):
        link = drift.link
        moved_alike = drift.seconds * by_network > 0
        if link.edge >= 0 and moved_alike:
            flow = (link.edge, link.iteration)
            late.append((flow, drift.seconds))
    return late
