"""Keys of ``job`` of ``system: dorylus``, which its builder reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field
from typing_extensions import override

from emu.array_types import Floats
from emu.problem.fields.quantities import (
    Duration,
    DurationPerDevice,
    Few,
    Index,
    Name,
    Positive,
    Rate,
    Ratio,
)
from emu.problem.fields.section import Section
from emu.problem.machine import LEAST_PERIOD
from emu.systems import PerDevice, Settings
from emu.systems.dorylus.steps import Step, attention_steps, convolution_steps
from emu.systems.job_section import BuildContext
from emu.systems.rates_section import KindTimesSection
from emu.systems.whole_graph_section import WholeGraphModelSection, WholeGraphSection
from emu.units import DURATION

#: Beginning of the names of the lambdas' machines.
LAMBDA = "lambda"
#: Bandwidth of a lambda, and of all of a server: 200 Mbit/s each at 100 (paper, 6).
_LAMBDA_NIC = "800 Mbit/s"
_LAMBDA_UPLINK = "20 Gbit/s"
#: Intervals of all servers from which a server has one receiving task.
MANY_INTERVALS = 64
#: Keys that node programs read as they are.
_SETTINGS = (
    "intervals", "interval_cut", "rematerialize", "fuse", "stream", "mode", "staleness",
    "epochs",
)  # fmt: skip


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
        settings = {**super().settings(), "kind": f"plain_{self.kind}"}
        if self.kind == "gat":
            # Attention weighs the edges: the matrix only has to say where they are.
            settings["norm"] = "sum"
        return settings


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
    def by_kind(self) -> dict[str, PerDevice]:
        times = super().by_kind()
        for kind in ("gather", "apply", "scatter", "edge_apply"):
            if kind in times:
                # A backward pass has as many edges or rows as its forward pass.
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

    def factors(self, seed: int, shape: tuple[int, ...]) -> Floats:
        """Return factors of (lambda, epoch); epochs that follow change none before."""
        # Drawn epoch by epoch, so that a longer job has the same ones first.
        lambdas, epochs = shape
        generator = np.random.default_rng([seed, 7])
        draws = generator.random((epochs, lambdas, 2)).T
        is_slow = draws[0] < self.share
        extra = np.full(shape, self.factor - 1.0)
        if self.spread == "exponential":
            # An exponential of mean 1 by inversion: draws are below 1, so no logarithm
            # of 0.
            extra *= -np.log1p(-draws[1])
        return 1.0 + np.where(is_slow, extra, 0.0)


def _long_enough(period: float) -> float:
    if period < LEAST_PERIOD:
        seconds = DURATION.exact(period)
        least = DURATION.exact(LEAST_PERIOD)
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


class DorylusKeys(WholeGraphSection):
    """Keys of a Dorylus job, as a scenario states them."""

    system: Literal["dorylus"]
    """Kind of job."""
    model: DorylusModelSection
    """Trained model."""
    parameter_servers: tuple[Name, ...] = Field(min_length=1, examples=[["ps"]])
    """Their machines; interval i meets number i mod P."""
    # As in the released code. The least loaded, as in the paper, would be an edge that
    # chooses its end while the job runs.
    intervals: Few = Field(examples=[8])
    """Vertex intervals of each server."""
    interval_cut: Literal["contiguous", "balanced"] = "contiguous"
    """By vertex number, or by similar edges between intervals."""
    threads: Few | None = None
    """Graph tasks of a server at once; default is its whole ``cpu``, 1 without."""
    backend: Literal["lambda", "cpu", "gpu"] = "lambda"
    """Where tensor tasks run: a lambda per interval, threads or GPUs of servers."""
    lambdas: Few | Literal["auto"] | None = None
    """Quota of each server, ``auto``: tuned; default is min(intervals, 100)."""
    tuner: TunerSection = TunerSection()
    """Its tuning."""
    lambda_nic: Rate = Field(default=_LAMBDA_NIC, validate_default=True)
    """Bandwidth of each."""
    lambda_uplink: Rate = Field(default=_LAMBDA_UPLINK, validate_default=True)
    """Bandwidth that a server's share."""
    lambda_latency: Duration = 0.0
    """Latency of each, each way."""
    launch: LaunchSection = LaunchSection()
    """Time until a lambda is up."""
    slow_lambdas: SlowLambdasSection = SlowLambdasSection()
    """Stragglers."""
    dying_lambdas: DyingLambdasSection = DyingLambdasSection()
    """Lambdas that die, or answer too late; slow ones that answer are waited for."""
    mode: Literal["no_pipe", "pipe", "async"] = "pipe"
    """``no_pipe``: no overlap; ``pipe``: gathers wait for their epoch's values;
    ``async``: for older ones."""
    staleness: Index = 0
    """S of ``async``: epoch e reads e - 1 - S or later, so 0 is not ``pipe``."""
    receivers: Literal["interval", "server"] | None = None
    """Tasks for ghosts; ``server``, from 64 intervals on: fewer, older reads."""
    first_epoch: Literal["sync", "free"] = "sync"
    """Its gathers wait for its values."""
    fuse: Annotated[bool, Field(strict=True)] = True
    """Last forward and first backward pass in one lambda; ``gat`` gathers between."""
    rematerialize: Annotated[bool, Field(strict=True)] = False
    """Compute activations again, pull fewer bytes."""
    stream: Literal[1, 2] = 1
    """Parts in which lambdas pull, compute, answer."""
    times: DorylusTimesSection = DorylusTimesSection()
    """Times of the tasks."""

    @property
    def attends(self) -> bool:
        """True for a GAT, whose edges have tensor tasks of their own."""
        return self.model.kind == "gat"

    @property
    def uses_lambdas(self) -> bool:
        """True where tensor tasks run in lambdas, and not on servers."""
        return self.backend == "lambda"

    def lambdas_of(self, servers: Sequence[str]) -> tuple[str, ...]:
        """Return the machines of the lambdas, interval by interval; none without."""
        count = len(servers) * self.intervals if self.uses_lambdas else 0
        return tuple(f"{LAMBDA}{number}" for number in range(count))

    @property
    def steps(self) -> list[Step]:
        """Tasks of an interval, in their order."""
        if self.attends:
            return attention_steps(self.model.layers)
        return convolution_steps(self.model.layers, fuse=self.fuse)

    @property
    def lag(self) -> int:
        """Epochs from an update to the reads that need it at the least."""
        # Asynchrony 0 is one epoch behind, not none: an update is read in the next
        # epoch.
        return self.staleness + 1

    def receives_together(self, count: int) -> bool:
        """Return True where a server has one receiving task, of so many intervals."""
        # With a task per interval and server, edges grow with the square of intervals.
        if self.receivers is None:
            return count >= MANY_INTERVALS
        return self.receivers == "server"

    @property
    def quota(self) -> int:
        """Lambdas of a server at a time, at first where they are tuned."""
        if isinstance(self.lambdas, int):
            return self.lambdas
        # Where the paper's autotuner begins (section 6).
        return min(self.intervals, 100)

    @override
    def ranks(self, machines: Sequence[str]) -> tuple[str, ...]:
        if self.machines is not None:
            return self.machines
        return tuple(
            name
            for name in machines
            # The cluster may state machines for lambdas: they are no graph servers.
            if name not in self.parameter_servers and not name.startswith(LAMBDA)
        )

    def settings(self, context: BuildContext) -> Settings:
        """Return the settings that every node program of the job gets."""
        settings = self.whole_graph_settings(context)
        for key in _SETTINGS:
            settings[key] = getattr(self, key)
        return settings
