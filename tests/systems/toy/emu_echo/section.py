"""Section ``job`` of ``system: echo``."""

from __future__ import annotations

from typing import Literal

import numpy as np
from typing_extensions import override

from emu.problem import Cluster, Edge, Job, Realization, Task
from emu.problem.fields.quantities import (
    DEFAULT_WINDOW,
    Count,
    Duration,
    Few,
    Size,
    Window,
)
from emu.systems import Times
from emu.systems.job_section import BuildContext, JobSection
from emu_echo import PROGRAMS


class EchoJobSection(JobSection):
    """Pairs of tasks that ask and echo."""

    system: Literal["echo"]
    """Kind of job."""
    iterations: Count
    """Questions of each pair."""
    credit_window: Window = DEFAULT_WINDOW
    """Not needed: a question waits for the echo of the one before."""
    pairs: Few = 1
    """Number of pairs."""
    question: Size
    """Bytes of a question."""
    echo: Size = 8.0
    """Bytes of its echo."""
    time: Duration
    """Seconds of a question, and of an echo."""

    def _bytes(self, context: BuildContext) -> tuple[int, int]:
        scale = context.byte_scale
        return round(self.question * scale), round(self.echo * scale)

    @override
    def build(self, context: BuildContext) -> Job:
        """Return the job: ``a0`` -> ``e0``, back with lag 1, pair by pair."""
        sizes = dict(zip(PROGRAMS, self._bytes(context), strict=True))
        tasks = tuple(
            Task(
                f"{kind[0]}{pair}",
                kind,
                program=PROGRAMS[kind],
                settings={"bytes": sizes[kind]},
            )
            for pair in range(self.pairs)
            for kind in PROGRAMS
        )
        edges = []
        for ask in range(0, len(tasks), 2):
            edges += [Edge(ask, ask + 1), Edge(ask + 1, ask, lag=1)]
        settings = {"system": self.system, "seed": context.seed}
        return Job(tasks, tuple(edges), self.iterations, settings=settings)

    @override
    def realize(
        self,
        job: Job,
        context: BuildContext,
        cluster: Cluster,
        measured: Times,
    ) -> Realization:
        """Return the stated times and bytes."""
        sizes = np.array(self._bytes(context) * self.pairs) / context.byte_scale
        times = np.full((len(job.tasks), job.iterations), self.time)
        return Realization(times, np.tile(sizes[:, None], job.iterations))
