"""A system of one's own: an ``ask`` sends bytes, its ``echo`` some of them back."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from emu.systems.job_section import JobSection
from emu.systems.system import System
from emu.trust.guards import Evidence
from emu.trust.violation import Finding

PROGRAMS = dict.fromkeys(("ask", "echo"), "emu_echo.program:Echo")


def short_echoes(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for every echo that brought more than its question."""
    came = np.nan_to_num(evidence.grid(evidence.received, "bytes"))
    job = evidence.schedule.problem.job
    sent = {edge.source: row for edge, row in zip(job.edges, came, strict=True)}
    for edge, row in zip(job.edges, came, strict=True):
        if job.tasks[edge.source].kind == "echo":
            longest, asked = float(row.max()), float(sent[edge.destination].max())
            if longest > asked:
                sentence = f"an echo of {longest:,.0f} bytes to {asked:,.0f}"
                yield Finding("short echoes", math.nan, sentence)


def _section() -> type[JobSection]:
    from emu_echo.section import EchoJobSection

    return EchoJobSection


ECHO = System("echo", _section, programs=PROGRAMS, guards=(short_echoes,))
