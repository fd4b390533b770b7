"""Three witnesses of a makespan: rates, packets and a run; who agrees with whom."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from emu.prediction.analysis.critical_path import critical_path
from emu.problem import Schedule
from emu.trust.causes import NO_REASON
from emu.trust.observed import Observations
from emu.trust.prediction import (
    SHARE,
    Outcome,
    Prediction,
    PredictionKeys,
    judge_prediction,
)

if TYPE_CHECKING:
    from emu.trust.verdict import Verdict


class PairKeys(PredictionKeys):
    """Two witnesses as result.json has them, see `Pair`."""

    of: str
    over: str


class Pair(NamedTuple):
    """Two witnesses, and how far the first is off the second."""

    of: str
    over: str
    verdict: Prediction

    def to_json(self) -> PairKeys:
        """Return the form of result.json."""
        return {
            "of": self.of,
            "over": self.over,
            **self.verdict.to_json(),
        }


@dataclass(frozen=True, eq=False)
class Witnesses:
    """Schedules of one job, by what carried its bytes."""

    fluid: Schedule
    """Rates of the policy."""
    maxmin: Schedule
    """Max-min fair rates, those that TCP comes nearest to."""
    packets: Schedule
    dropped: int
    """Packets that queues dropped."""
    measured: Schedule
    policy: str
    """Rule of the fluid's rates."""
    gift: tuple[float, float] = (0.0, 0.0)
    """Seconds of its rate, or bytes if that is more, that a link let go at once after a
    pause, where kernel NICs were measured."""

    @property
    def makespans(self) -> dict[str, float]:
        """Return the makespan of each witness."""
        return {
            "fluid": self.fluid.makespan,
            "packets": self.packets.makespan,
            "measured": self.measured.makespan,
        }

    def pairs(
        self,
        prediction: Prediction,
        verdict: Verdict,
        observed: Observations | None = None,
    ) -> tuple[Pair, ...]:
        """Return who agrees with whom, within the threshold of the prediction.

        ``prediction``: of the run over its fluid. ``verdict`` and ``observed``: of the
        measurement.
        """
        judge = partial(judge_prediction, threshold=prediction.threshold)
        by_packets = judge(
            self.packets,
            predicted=self.fluid,
            replayed=self.fluid,
        )
        run = judge(
            self.measured,
            predicted=self.packets,
            replayed=self.packets,
            observed=observed,
        )
        maxmin = self.maxmin.makespan
        fluid = self.fluid.makespan
        of_packets = [*self._of_rule(maxmin, fluid, by_packets)]
        if self.dropped:
            drops = f"queues dropped {self.dropped:,} packets, which were sent again"
            of_packets.append(drops)
        of_run = [*self._of_rule(fluid, maxmin, run), *self._of_gifts()]
        if verdict.reasons:
            sentence = f"the measurement is {verdict.trust}: {verdict.reasons[0]}"
            of_run.append(sentence)

        return (
            Pair("packets", "fluid", _lead_with(of_packets, by_packets)),
            Pair("measured", "fluid", prediction),
            Pair("measured", "packets", _lead_with(of_run, run)),
        )

    def _of_rule(
        self,
        found: float,
        expected: float,
        verdict: Prediction,
    ) -> Iterator[str]:
        """Yield the rule of rates where its own effect on the end is a good part."""
        shift = found / expected - 1 if expected else 0.0
        error = verdict.error or 0.0
        # An effect the other way explains nothing of the error.
        if shift * error > 0 and abs(shift) > SHARE * abs(error):
            yield (
                f"rates by {self.policy}, while TCP shares about max-min: that alone "
                f"is {100 * shift:+.2g} %"
            )

    def _of_gifts(self) -> Iterator[str]:
        """Yield what kernel NICs let go at once, where that makes a run shorter."""
        problem = self.measured.problem
        rate_seconds, least_bytes = self.gift
        links = critical_path(self.measured).links
        gifts = []
        for edge, n in {(link.edge, link.iteration) for link in links}:
            hops = problem.hops[edge] if edge >= 0 else ()
            if hops:
                length = self.measured.flow_end[edge, n]
                length -= self.measured.flow_start[edge, n]
                capacity = min(problem.capacities[port] for port in hops)
                gift = max(rate_seconds, least_bytes / capacity)
                # A flow cannot be shorter by more than it lasted.
                gifts.append(min(float(length), gift))

        shorter = self.packets.makespan - self.measured.makespan
        if 0 < SHARE * shorter < math.fsum(gifts):
            yield (
                f"kernel NICs let a flow's first bytes go at once after a pause: up to "
                f"{math.fsum(gifts):.3g} s of the {len(gifts)} on the critical path"
            )


def _lead_with(reasons: list[str], verdict: Prediction) -> Prediction:
    """Return a verdict with further reasons before its own, unless both agree."""
    if verdict.outcome is Outcome.AGREES or not reasons:
        return verdict
    if verdict.reasons != NO_REASON:
        reasons = [*reasons, *verdict.reasons]
    return replace(verdict, reasons=tuple(reasons))
