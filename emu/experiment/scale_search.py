"""Which time scale to try next, and which one to take: decided by trials alone.

A trial is the scenario itself for some iterations at a time scale. Scales grow until
the aims hold, and are halved as long as that saves more wall time than it costs.
Nothing in here was measured on any computer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from emu.runs.result import Result, Row
from emu.trust.verdict import round_up
from emu.units import format_duration, format_ratio

#: Share of ``max_error`` that a trial may use up: the run is another draw.
_MARGIN = 0.5
#: Factors by which a time scale that misses an aim grows: by as much as it misses,
#: since what is late is late in wall time, and is a smaller share of a longer run.
_STEPS = 2.0, 8.0
#: Neighbouring scales that are nearer than this factor are taken as one.
_NEAR = 1.5
#: Wall seconds of a run at least: of a shorter one, a single standstill of 10 ms is
#: more than half of the 1 % that is asked for, and whether one comes is chance.
SHORTEST = 2.0
#: Wall seconds per end of a task or flow at which trials begin, on one core. Any number
#: does: a wrong one costs trials, not exactness.
_BEGINNING = 4e-3


@dataclass(frozen=True)
class ScaleTrial:
    """Some iterations at a time scale; seconds are of wall time."""

    time_scale: float
    iterations: int
    """Time scale and number of iterations of the trial."""
    cost: float
    """Seconds of the whole trial, from the first process to the last."""
    wall: float
    """Seconds of the run itself."""
    cpu_busy: float
    """Share of the host's cores during the run, whoever used them."""
    error: float
    """Share of the makespan by which the end may be off, for a reason or for none."""
    late_flows: int
    flows: int
    """Flows that ended later than they may (`emu.trust.lateness`), and all."""

    @property
    def late_share(self) -> float:
        """Share of the flows that ended later than they may."""
        return self.late_flows / self.flows if self.flows else 0.0

    def sentence(self) -> str:
        """Return how it came out, in one line."""
        return (
            f"trial at time scale {self.time_scale:g}: "
            f"{self.late_flows} of {self.flows} flows late, "
            f"end off by up to {format_ratio(self.error).removeprefix('+')} "
            f"({format_duration(self.cost, 2)} of wall time)"
        )


@dataclass(frozen=True)
class ScaleSearch:
    """Aims of the search for a time scale."""

    makespan: float
    """Makespan of the whole run, emulated seconds, more than 0."""
    max_error: float
    """Share of the makespan; infinite where chance decides it whatever the host."""
    max_late_flows: float
    """Share of the flows."""

    def first(self, ends: int, cores: int) -> float:
        """Return where to begin for so many ends of tasks and flows."""
        wall = _BEGINNING * ends / cores
        return self._round_scale(wall / self.makespan)

    def miss_factor(self, trial: ScaleTrial) -> float:
        """Return the factor by which the worse of the aims is missed, 1 if just met."""
        late = 0.0
        # A limit of 1 lets all be late, and none are counted then.
        if self.max_late_flows < 1:
            late = trial.late_share / max(self.max_late_flows, 1e-9)
        error = trial.error / (_MARGIN * self.max_error)
        return max(error, late)

    def next(self, trials: Sequence[ScaleTrial]) -> float | None:
        """Return the scale to try next, None when another trial is not worth it."""
        best = self._fastest(trials)
        worst = self._slowest_miss(trials)
        if best is None:
            slowest = max(trials, key=lambda trial: trial.time_scale)
            least, most = _STEPS
            factor = min(max(self.miss_factor(slowest), least), most)
            return self._round_scale(factor * slowest.time_scale)

        if worst is None:
            scale = best.time_scale / 2
        elif best.time_scale > _NEAR * worst.time_scale:
            # Scales are factors: the middle of two is their geometric mean.
            scale = math.sqrt(worst.time_scale * best.time_scale)
        else:
            return None
        scale = self._round_scale(scale)
        gain = (best.time_scale - scale) * self.makespan
        # One of two trials fails, and saves nothing.
        return scale if gain > 2 * trials[-1].cost else None

    def choice(self, trials: Sequence[ScaleTrial]) -> ScaleChoice:
        """Return the fastest scale whose trial meets the aims, else the next to try.

        Of one trial or more.
        """
        best = self._fastest(trials)
        scale = best.time_scale if best else self.next(trials) or 1.0
        return ScaleChoice(tuple(trials), scale, best)

    def _slowest_miss(self, trials: Sequence[ScaleTrial]) -> ScaleTrial | None:
        misses = [trial for trial in trials if self.miss_factor(trial) > 1]
        return max(misses, key=lambda trial: trial.time_scale, default=None)

    def _fastest(self, trials: Sequence[ScaleTrial]) -> ScaleTrial | None:
        """Return the fastest trial above all that missed an aim."""
        worst = self._slowest_miss(trials)
        # A faster scale that met the aims below one that missed them was lucky.
        least = worst.time_scale if worst else 0.0
        above = [trial for trial in trials if trial.time_scale > least]
        return min(above, key=lambda trial: trial.time_scale, default=None)

    def _round_scale(self, scale: float) -> float:
        shortest = SHORTEST / self.makespan
        return round_up(max(scale, shortest))


@dataclass(frozen=True)
class KernelForecast:
    """Cost of a run on kernel NICs as foreseen, at the scale that follows from it."""

    hops: int
    """Flows on the simulated critical path."""
    delay: float
    """Share of the makespan that passes before their first bytes."""
    cpu_busy: float
    """Share of the cores."""


@dataclass(frozen=True)
class ScaleChoice:
    """The choice of a time scale, with its trials."""

    trials: tuple[ScaleTrial, ...]
    """In their order, one or more."""
    time_scale: float
    """The scale that is taken."""
    taken: ScaleTrial | None
    """Its trial, which met the aims; None where none did, and the scale is the one that
    would have been tried next."""
    kernel: KernelForecast | None = None
    """Forecast for kernel NICs, where no trial says anything."""

    @classmethod
    def from_json(cls, content: Row) -> ScaleChoice:
        """Return the choice of `to_json`.

        Raises KeyError, TypeError when it is none.
        """
        trials = [ScaleTrial(**trial) for trial in content["trials"]]
        scale = content["time_scale"]
        kernel = None
        taken_trial = None
        if "kernel" in content:
            kernel = KernelForecast(**content["kernel"])
        for trial in trials:
            if content["held"] and trial.time_scale == scale:
                taken_trial = trial
        return cls(tuple(trials), scale, taken_trial, kernel)

    def to_json(self) -> Result:
        """Return the trials in the form of result.json."""
        content: Result = {"time_scale": self.time_scale}
        if self.kernel is None:
            content["held"] = self.taken is not None
        content["trials"] = [*map(asdict, self.trials)]
        if self.kernel is not None:
            content["kernel"] = asdict(self.kernel)
        return content

    def sentence(self, budget: float) -> str:
        """Return one line on a scale that no trial says enough of; empty else.

        Trials had ``budget`` seconds.
        """
        if self.kernel is not None:
            return (
                f"time scale {self.time_scale:g}, by what kernel NICs cost: "
                f"{format_ratio(self.kernel.delay)} before the first bytes of "
                f"{self.kernel.hops:,} flows, cores {self.kernel.cpu_busy:.0%} busy"
            )
        if self.taken is not None:
            return ""
        return (
            f"no trial met max_error and max_late_flows; time scale "
            f"{self.time_scale:g} is untried (emulation.trial_budget is {budget:g} s)"
        )

    def beside(self, expected: float, actual: Mapping[str, float]) -> Result:
        """Return predictions of the run beside its own figures, ``actual``.

        ``expected`` is in wall seconds. On kernel NICs there is ``delay`` before first
        bytes in place of ``late_flows``, a share, and ``error``.
        """
        figures = {"wall_seconds": expected}
        if self.kernel is not None:
            figures["cpu_busy"] = self.kernel.cpu_busy
            figures["delay"] = self.kernel.delay
        if self.taken is not None:
            figures["cpu_busy"] = self.taken.cpu_busy
            figures["late_flows"] = self.taken.late_share
            figures["error"] = self.taken.error
        return {"predicted": figures, "actual": dict(actual)}
