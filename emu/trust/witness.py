"""Three witnesses of a makespan: rates, packets and a run; who agrees with whom."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from emu.analysis.critical_path import critical_path
from emu.trust.prediction import (
    NO_REASON,
    SHARE,
    Outcome,
    Prediction,
    judge_prediction,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from emu.problem import Schedule
    from emu.trust.verdict import Verdict


class Pair(NamedTuple):
    """Two witnesses, and how far the first is off the second."""

    of: str
    over: str
    verdict: Prediction

    def to_json(self) -> dict[str, Any]:
        """Return the form of result.json."""
        return {"of": self.of, "over": self.over, **self.verdict.to_json()}


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
        names = "fluid", "packets", "measured"
        return {name: getattr(self, name).makespan for name in names}

    def pairs(
        self,
        prediction: Prediction,
        verdict: Verdict,
        budget: Mapping[str, float],
        *,
        time_scale: float,
    ) -> tuple[Pair, ...]:
        """Return who agrees with whom, within the threshold of the prediction.

        Parameters
        ----------
        prediction
            Of the run over its fluid.
        verdict
            On the measurement.
        budget
            Of `emu.analysis.critical_path`.
        time_scale
            Wall seconds per emulated second, of the packets.
        """
        carried = _judged(
            (self.packets, self.fluid), prediction.threshold, time_scale, {}
        )
        run = _judged(
            (self.measured, self.packets), prediction.threshold, time_scale, budget
        )
        shared, ruled = self.maxmin.makespan, self.fluid.makespan
        of_packets = [*self._of_rule(shared, ruled, carried), *self._of_drops()]
        of_run = [
            *self._of_rule(ruled, shared, run),
            *self._of_gifts(),
            *_of_measurement(verdict),
        ]
        return (
            Pair("packets", "fluid", _led_by(of_packets, carried)),
            Pair("measured", "fluid", prediction),
            Pair("measured", "packets", _led_by(of_run, run)),
        )

    def _of_rule(
        self, found: float, expected: float, verdict: Prediction
    ) -> Iterator[str]:
        """Yield the rule of rates where its own effect on the end is a good part."""
        moved = found / expected - 1 if expected else 0.0
        error = verdict.error or 0.0
        if moved * error > 0 and abs(moved) > SHARE * abs(error):
            yield (
                f"rates by {self.policy}, while TCP shares about max-min: that alone "
                f"is {100 * moved:+.2g} %"
            )

    def _of_gifts(self) -> Iterator[str]:
        """Yield what kernel NICs let go at once, where that makes a run shorter."""
        problem, (seconds, nbytes) = self.measured.problem, self.gift
        chain = {(p.edge, p.iteration) for p in critical_path(self.measured).links}
        saved = [
            min(
                float(self.measured.flow_end[at] - self.measured.flow_start[at]),
                max(seconds, nbytes / min(problem.capacities[p] for p in hops)),
            )
            for at in chain
            if at[0] >= 0 and (hops := problem.hops[at[0]])
        ]
        shorter = self.packets.makespan - self.measured.makespan
        if 0 < SHARE * shorter < math.fsum(saved):
            yield (
                f"kernel NICs let a flow's first bytes go at once after a pause: up to "
                f"{math.fsum(saved):.3g} s of the {len(saved)} on the critical path"
            )

    def _of_drops(self) -> Iterator[str]:
        if self.dropped:
            yield f"queues dropped {self.dropped:,} packets, which were sent again"


def _judged(
    both: tuple[Schedule, Schedule],
    threshold: float,
    time_scale: float,
    budget: Mapping[str, float],
) -> Prediction:
    of, over = both
    how: Any = {"threshold": threshold, "time_scale": time_scale, "budget": budget}
    return judge_prediction(of, over, over, **how)


def _of_measurement(verdict: Verdict) -> Iterator[str]:
    if verdict.reasons:
        yield f"the measurement is {verdict.trust}: {verdict.reasons[0]}"


def _led_by(reasons: list[str], verdict: Prediction) -> Prediction:
    """Return a verdict with further reasons before its own, unless both agree."""
    if verdict.outcome is Outcome.AGREES or not reasons:
        return verdict
    own = () if verdict.reasons == NO_REASON else verdict.reasons
    return replace(verdict, reasons=(*reasons, *own))
