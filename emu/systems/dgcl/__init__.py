"""DGCL: rows of embeddings travel along trees of links, planned for those there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from emu.problem import Job, Schedule
from emu.problem.workloads import parameter_count
from emu.systems.dgcl.job import CARRIES, PROGRAMS
from emu.systems.system import System

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.systems.job_section import JobSection
    from emu.systems.system import Results


def _section() -> type[JobSection]:
    from emu.systems.dgcl.section import DgclJobSection  # noqa: PLC0415 - pydantic

    return DgclJobSection


def _remarks(schedules: Mapping[str, Schedule], policy: str) -> Iterable[str]:
    from emu.systems.dgcl.remarks import gather_lines  # noqa: PLC0415 - numpy

    return gather_lines(schedules, policy)


def _outlook(settings: Mapping[str, Any]) -> Iterable[str]:
    from emu.systems.dgcl.plans import plan_lines  # noqa: PLC0415 - numpy

    return plan_lines(settings)


def _open(settings: Mapping[str, Any]) -> None:
    from emu.systems.dgcl.plans import open_plans  # noqa: PLC0415 - numpy

    open_plans(settings)


def _collect_parameters(_job: Job, results: Results) -> NDArray[Any]:
    return results["d0.layer1"]["parameters"]  # as all devices have them


def _tasks_with_state(job: Job) -> dict[str, tuple[str, ...]]:
    names = [task.name for task in job.tasks if task.kind == "layer1"]
    return dict.fromkeys(names, ("d0.layer1",))  # likewise


def _vectors(job: Job) -> dict[str, tuple[int, ...]]:
    from emu.graph_data import open_for  # noqa: PLC0415 - numpy

    dataset, model = open_for(job.settings), job.settings["model"]
    count = parameter_count(model, dataset.feature_length, dataset.classes)
    return {"d0.layer1": (count,)}


DGCL = System(
    "dgcl",
    _section,
    programs=PROGRAMS,
    needs_torch=True,
    open_data=_open,
    trained=_collect_parameters,
    step_kinds=("gradient1", "layer1"),
    cuts=_tasks_with_state,
    vectors=_vectors,
    carries=CARRIES,
    remarks=_remarks,
    outlook=_outlook,
)
