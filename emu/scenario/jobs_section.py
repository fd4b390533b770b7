"""Key ``jobs``: several jobs on one cluster, each with a placement and a release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Union

from pydantic import Field

from emu.fields.quantities import Duration, Positive, TaskName
from emu.fields.section import Section
from emu.scenario.run_sections import PlacementSection
from emu.systems.job_section import JobSection
from emu.systems.registry import section_types

if TYPE_CHECKING:
    AnyJob = JobSection
else:
    #: One job, by its system.
    AnyJob = Annotated[
        Union[section_types()],  # noqa: UP007 - of those that are installed
        Field(discriminator="system"),
    ]
#: ``job.system`` where ``jobs`` states what is run.
SEVERAL = "several"


class JobsItemSection(Section):
    """One of several jobs; its tasks are called ``a/w0``."""

    name: TaskName = Field(examples=["a"])
    """Beginning of its tasks' names."""
    release: Duration = 0.0
    """Run time before which none of its tasks starts."""
    weight: Positive | None = None
    """Weight of its time with ``joint_cost: weighted``; default is 1."""
    placement: PlacementSection = PlacementSection()
    """Which of its tasks stands on which machine: names without the job's. Together
    with other jobs (``place_jobs: joint``), ``tasks`` are pins."""
    job: AnyJob
    """The job."""


class SeveralJobsSection(JobSection):
    """Stands for ``job`` where there are ``jobs``."""

    system: Literal["several"]
    iterations: None = None
    credit_window: Literal["of each job"] = "of each job"
