"""Sections within ``job`` of ``system: dorylus``: model, times, and its lambdas."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field
from typing_extensions import override

from emu.problem.fields.quantities import (
    Duration,
    DurationPerDevice,
    Few,
    Positive,
    Ratio,
)
from emu.problem.fields.section import Section
from emu.problem.machine import LEAST_PERIOD
from emu.systems import Settings
from emu.systems.job_section import KindTimesSection
from emu.systems.whole_graph_section import WholeGraphModelSection
from emu.units import DURATION


class DorylusModelSection(WholeGraphModelSection):
    """A GCN (Kipf and Welling, ICLR 2017) or GAT of one head, without biases."""

    kind: Literal["gcn", "gat"] = "gcn"  # type: ignore[assignment]
    """``gcn``: every layer is act(A H W); ``gat``: A is the attention of each edge
    (Velickovic et al., ICLR 2018), loops among them."""
    layers: Annotated[int, Field(strict=True, ge=1, le=16)] = 2
    """Number of layers."""
    activation: Literal["relu", "tanh"] = "tanh"
    """Function between the layers."""

    @override
    def settings(self) -> Settings:
        """Return the model as ``Job.settings`` hold it: one without biases."""
        found = {**super().settings(), "kind": f"plain_{self.kind}"}
        return found | ({"norm": "sum"} if self.kind == "gat" else {})


class DorylusTimesSection(KindTimesSection):
    """Seconds of one task of mean size of each kind.

    Times of gathers and of applies on edges are in proportion to edges, an apply's to
    vertices, a scatter's to its ghosts. Backward tasks take as long as forward ones by
    default.
    """

    gather: DurationPerDevice | None = None
    """Sum an interval's neighbours, GA."""
    apply: DurationPerDevice | None = None
    """Compute of a lambda, AV."""
    scatter: DurationPerDevice | None = None
    """Send its rows to other servers, SC."""
    edge_apply: DurationPerDevice | None = None
    """Compute of a lambda on the edges of an interval, AE, of ``gat`` alone."""
    gather_back: DurationPerDevice | None = None
    """Sum their gradients."""
    apply_back: DurationPerDevice | None = None
    """Backward pass of a lambda."""
    edge_apply_back: DurationPerDevice | None = None
    """Backward pass of that."""
    scatter_back: DurationPerDevice | None = None
    """Send its gradients."""
    call: DurationPerDevice = 0.0
    """Begin to send to a lambda."""
    answer: DurationPerDevice = 0.0
    """Take in what a lambda returns."""
    ghosts: DurationPerDevice = 0.0
    """Take in ghost rows."""
    stash: DurationPerDevice = 0.0
    """Find stashed weights."""
    gradient_sum: DurationPerDevice = 0.0
    """Sum of several parameter servers."""
    weight_update: DurationPerDevice = 0.0
    """Step of a layer."""

    @override
    def by_kind(self) -> dict[str, float | dict[str, float]]:
        times = super().by_kind()
        for kind in ("gather", "apply", "scatter", "edge_apply"):
            if kind in times:
                times.setdefault(f"{kind}_back", times[kind])
        return times


class LaunchSection(Section):
    """Time to launch a lambda, from when the graph task before it starts."""

    cold: Duration = 0.0
    """First of each interval."""
    warm: Duration = 0.0
    """Later ones."""

    @property
    def takes_time(self) -> bool:
        """True where a launch is a task of its own."""
        return self.cold > 0 or self.warm > 0


class SlowLambdasSection(Section):
    """Lambdas that take longer, chosen by the seed before the run."""

    share: Ratio = 0.0
    """Probability, per task and epoch."""
    factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    """Mean slowdown."""
    spread: Literal["constant", "exponential"] = "constant"
    """``exponential``: 1 plus an exponential variable of mean factor - 1."""

    def factors(self, seed: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Return factors of (lambda, epoch); epochs that follow change none before."""
        draws = np.random.default_rng([seed, 7]).random((*shape[::-1], 2)).T
        extra = np.full(shape, self.factor - 1.0)
        if self.spread == "exponential":
            extra *= -np.log1p(-draws[1])
        return 1.0 + np.where(draws[0] < self.share, extra, 0.0)


def _long_enough(period: float) -> float:
    if period < LEAST_PERIOD:
        seconds, least = DURATION.exact(period), DURATION.exact(LEAST_PERIOD)
        raise ValueError(f"found {seconds}, write {least} or more")
    return period


class TunerSection(Section):
    """Autotuner of ``lambdas: auto``, from min(intervals, 100) on.

    Each period, by the slope of a server's queue for threads over five periods: where
    it is positive the quota falls by a tenth, where negative it rises by one.
    """

    period: Annotated[Duration, AfterValidator(_long_enough)] = 1.0
    """Time between looks at the queue; the paper states none."""


class DyingLambdasSection(Section):
    """Lambdas that do not answer in time, chosen by the seed before the run.

    Their server waits for ``timeout``, at the least, launches another, cold, and drops
    what the first still sends. One that is slow, and answers, is waited for.
    """

    share: Annotated[Ratio, Field(ge=0, le=1)] = 0.0
    """Probability, per task and epoch, and of each lambda launched instead."""
    late: Annotated[Ratio, Field(ge=0, le=1)] = 0.5
    """Share of them that do their work and answer too late; the others die in it."""
    timeout: Duration = 0.5
    """Least time from the call to the launch of another."""
    ratio: Positive = 5.0
    """Or that many times what this step took lambdas of the server in epochs before,
    smoothed: 0.95 of the mean so far and 0.05 of the next, bytes apart."""
    attempts: Annotated[Few, Field(le=100)] = 5
    """Lambdas of one task and epoch; that none answers is an error."""
