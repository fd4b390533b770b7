"""The record by which a system offers everything that others need of it.

Importing a record imports neither pydantic nor torch: agents read its programs at their
start. What takes longer to import is behind a function.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from emu.problem import Job, Schedule
    from emu.systems.job_section import BuildContext, JobSection
    from emu.systems.translation import Translation
    from emu.trust.guards import Evidence
    from emu.trust.violation import Finding

    Guard = Callable[[Evidence], Iterable[Finding]]
    #: Task -> name -> what its program left at the end of the run.
    Results = Mapping[str, Mapping[str, NDArray[Any]]]


def _no_weights(_job: Job, _results: Results) -> NDArray[Any]:
    raise TypeError("this system trains nothing")


def _no_data(_settings: Mapping[str, Any]) -> None:
    pass


def _no_remarks(_schedules: Mapping[str, Schedule]) -> Iterable[str]:
    return ()


def _no_figures(_schedule: Schedule) -> Mapping[str, Any]:
    return {}


def _no_outlook(_settings: Mapping[str, Any]) -> Iterable[str]:
    return ()


def _none_missed(_settings: Mapping[str, Any]) -> int:
    return 0


def _synchronous(_settings: Mapping[str, Any]) -> bool:
    return False


def _follows_none(
    _section: JobSection,
    _context: BuildContext,
    _schedule: Schedule,
    _watch: Callable[[int, NDArray[Any]], None],
) -> tuple[NDArray[Any], list[float]]:
    raise TypeError("this system trains nothing asynchronously")


def _no_functions(
    _schedule: Schedule,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.zeros(0), np.zeros(0)


@dataclass(frozen=True)
class System:
    """One system: its keys, its programs and its guards."""

    name: str
    """The word in ``job.system``."""
    section: Callable[[], type[JobSection]]
    """Imports and returns the keys of ``job``, which build and realize the job."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """Kind of task -> import path ``module:Class`` of what a node process runs: agents
    start no other programs."""
    needs_torch: bool = False
    """True where its programs need torch."""
    guards: tuple[Guard, ...] = ()
    """Guards against what its runs must not show, beside those of every run."""
    open_data: Callable[[Mapping[str, Any]], None] = _no_data
    """Opens, by ``Job.settings``, the data that processes will open: what is missing or
    damaged is an error before they start."""
    trained: Callable[[Job, Results], NDArray[Any]] = _no_weights
    """Returns all parameters after a run, flat, in the order of
    `emu.training.parameter_shapes`."""
    updates_missed: Callable[[Mapping[str, Any]], int] = _none_missed
    """Returns, from ``Job.settings``, how many updates the weights of a forward pass
    lack (its staleness)."""
    asynchronous: Callable[[Mapping[str, Any]], bool] = _synchronous
    """Returns, from ``Job.settings``, True where weights depend on which values were
    read when: no training in one process repeats it without the log of reads."""
    follow: Callable[
        [JobSection, BuildContext, Schedule, Callable[[int, NDArray[Any]], None]],
        tuple[NDArray[Any], list[float]],
    ] = _follows_none
    """Trains an asynchronous job in one process with the reads of a schedule; calls its
    last argument after every step with its number and all parameters; returns these
    after the last step, and the loss of every step."""
    step_kinds: tuple[str, ...] = ()
    """Kinds of task of which the first that a job has ends every training step; empty
    where steps overlap, or nothing is trained."""
    parameter_kinds: tuple[str, ...] = ()
    """Kinds of task of parameter servers: the cost of their machines is shown apart."""
    functions: Callable[[Schedule], tuple[NDArray[np.float64], NDArray[np.float64]]] = (
        _no_functions
    )
    """Returns the seconds that every function (a lambda) of a schedule is paid for: of
    those that answered, and of those that did not."""
    cuts: Callable[[Job], Mapping[str, tuple[str, ...]]] | None = None
    """Returns, by name of every task whose program keeps state, the tasks with whose
    state it begins after a cut between two iterations (`emu_nodes.program.KeepsState`).
    None where it takes none."""
    carries: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """(Kind of the source, kind of the destination) -> content of such flows, a plural
    for tables and sentences."""
    remarks: Callable[[Mapping[str, Schedule]], Iterable[str]] = _no_remarks
    """Returns lines on schedules of a job, by how they came about (``simulated``,
    ``emulated``), in the words of the system."""
    figures: Callable[[Schedule], Mapping[str, Any]] = _no_figures
    """Returns what result.json has of a schedule that only this system knows."""
    outlook: Callable[[Mapping[str, Any]], Iterable[str]] = _no_outlook
    """Returns, from ``Job.settings``, lines that are worth reading before a run."""
    translation: Callable[[], Translation] | None = None
    """Imports and returns how its jobs are written in the words of all systems, for
    ``emu compare --systems``."""
