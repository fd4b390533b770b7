"""Key ``jobs``: several jobs on one cluster, each with a placement and a release."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from emu.scenario.custom_section import CustomJobSection
from emu.scenario.dgtp_section import DgtpJobSection
from emu.scenario.p3_section import DataParallelJobSection, P3JobSection
from emu.scenario.quantities import Duration, Positive, TaskName
from emu.scenario.run_sections import PlacementSection
from emu.scenario.section import Section

#: One job, by its system.
JobSection: TypeAlias = (
    DgtpJobSection | P3JobSection | DataParallelJobSection | CustomJobSection
)
#: ``job.system`` where ``jobs`` states what is run.
SEVERAL = "several"


class JobsItemSection(Section):
    """One of several jobs; its tasks are called ``a/w0``."""

    name: TaskName = Field(examples=["a"])
    """What its tasks' names begin with."""
    release: Duration = 0.0
    """Run time before which none of its tasks starts."""
    weight: Positive | None = None
    """Of its time, with ``joint_cost: weighted``; default is 1."""
    placement: PlacementSection = PlacementSection()
    """Which of its tasks stands on which machine: names without the job's. Together
    with other jobs (``place_jobs: joint``), ``tasks`` are pins."""
    job: Annotated[JobSection, Field(discriminator="system")]
    """What is run."""


class SeveralJobsSection(Section):
    """Stands for ``job`` where there are ``jobs``."""

    system: Literal["several"]
    iterations: None = None
    credit_window: Literal["of each job"] = "of each job"
