"""Dorylus: whole-graph training by graph servers and lambdas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from emu.problem import Job, Schedule
from emu.problem.workloads import layer_shapes
from emu.systems.dorylus.deaths import function_times
from emu.systems.dorylus.steps import CARRIES, PARAMETER_KINDS, PROGRAMS
from emu.systems.system import System

if TYPE_CHECKING:
    from emu.systems.job_section import BuildContext, JobSection
    from emu.systems.system import Results


def _section() -> type[JobSection]:
    from emu.systems.dorylus.section import DorylusJobSection  # noqa: PLC0415 - pydantic

    return DorylusJobSection


def _open_data(settings: Mapping[str, Any]) -> None:
    from emu.graph_data import open_parts  # noqa: PLC0415 - numpy

    open_parts(settings)


def _asynchronous(settings: Mapping[str, Any]) -> bool:
    return bool(settings["mode"] == "async")


def _collect_parameters(job: Job, results: Results) -> NDArray[Any]:
    from emu.training.interval_layers import flat_weights  # noqa: PLC0415 - numpy

    kind = job.settings["model"]["kind"]
    return flat_weights([results[name]["weights"] for name in _holders(job)], kind)


def _holders(job: Job) -> list[str]:
    """Return the task that holds the weights of each layer, of several the first."""
    layers = range(job.settings["model"]["layers"])
    names = {task.name for task in job.tasks}
    return [f"wu{n}" if f"wu{n}" in names else f"wu{n}_0" for n in layers]


def _tasks_with_state(job: Job) -> dict[str, tuple[str, ...]]:
    holders = _holders(job)
    return {
        task.name: (holders[task.settings["layer"]],)
        for task in job.tasks
        if task.kind in {"weight_update", "apply"}
    }


def _vectors(job: Job) -> dict[str, tuple[int, ...]]:
    from emu.graph_data import open_for  # noqa: PLC0415 - numpy

    dataset, model = open_for(job.settings), job.settings["model"]
    shapes = layer_shapes(model, dataset.feature_length, dataset.classes)
    counts = [sum(prod(shape) for shape in layer) for layer in shapes]
    return {name: (n,) for name, n in zip(_holders(job), counts, strict=True)}


def _remarks(schedules: Mapping[str, Schedule], _policy: str) -> Iterable[str]:
    from emu.systems.dorylus.remarks import read_lines  # noqa: PLC0415 - numpy

    return read_lines(schedules)


def _figures(schedule: Schedule) -> Mapping[str, Any]:
    from emu.systems.dorylus.remarks import relaunches  # noqa: PLC0415 - numpy

    figures = relaunches(schedule)
    return {"relaunches": figures} if figures else {}


def _follow(
    section: JobSection,
    context: BuildContext,
    schedule: Schedule,
    watch: Callable[[int, NDArray[Any]], None],
) -> tuple[NDArray[Any], list[float]]:
    from emu.systems.dorylus.replay import replay_training  # noqa: PLC0415 - torch
    from emu.systems.dorylus.section import DorylusJobSection  # noqa: PLC0415

    if not isinstance(section, DorylusJobSection):
        raise TypeError(f"{section.system} is not dorylus")
    return replay_training(section.config(context), schedule, watch)


DORYLUS = System(
    "dorylus",
    _section,
    programs=PROGRAMS,
    open_data=_open_data,
    trained=_collect_parameters,
    asynchronous=_asynchronous,
    follow=_follow,
    step_kinds=("weight_update",),
    parameter_kinds=PARAMETER_KINDS,
    cuts=_tasks_with_state,
    vectors=_vectors,
    functions=function_times,
    carries=CARRIES,
    remarks=_remarks,
    figures=_figures,
)
