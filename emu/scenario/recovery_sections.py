"""Sections on what a job keeps while it runs, and goes on from after a failure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from emu.fields.quantities import Duration
from emu.fields.section import Section
from emu.systems.registry import systems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emu.fields.section import Trail
    from emu.systems.job_section import JobSection

_ITERATIONS = re.compile(r"\s*([0-9]{1,8})\s+iterations?\s*")
_EXAMPLE = "20 iterations"


def _parse(found: object) -> int:
    match = _ITERATIONS.fullmatch(found) if isinstance(found, str) else None
    if match is None:
        raise ValueError(f"found {found!r}, write for example {_EXAMPLE!r}")
    return int(match[1])


#: ``20 iterations``.
Iterations: TypeAlias = Annotated[
    int,
    BeforeValidator(_parse),
    Field(ge=1, le=10**7),
    PlainSerializer(lambda count: f"{count} iterations", return_type=str),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^\s*[0-9]{1,8}\s+iterations?\s*$",
            "examples": [_EXAMPLE],
        }
    ),
]


DEFAULT_RESTARTS = 3
#: Seconds from a death until a small job goes on: the least that emu took in 47 runs,
#: beside other work; see the history of measurements.
DEFAULT_RECOVERY = 2.0


class CheckpointSection(Section):
    """Parameters and optimiser state that are kept while a job runs."""

    every: Iterations
    """Iterations between two checkpoints: ``20 iterations``."""
    takes: Duration | None = None
    """Time for which tasks with state stand still."""
    to: Literal["disk"] = "disk"
    """``disk``: the last two, in the run directory."""


def _listed(names: list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}"


def checkpoint_errors(job: JobSection, *, several: bool) -> Iterator[tuple[Trail, str]]:
    """Yield (where, what is wrong and what would be right) of a stated checkpoint.

    Parameters
    ----------
    several
        Whether there are several jobs.
    """
    able = [name for name, system in systems().items() if system.cuts is not None]
    if several:
        problem = "several jobs keep no checkpoints: run each alone, or remove this key"
        yield ("checkpoint",), problem
    elif job.system not in able:
        problem = (
            f"a {job.system} job keeps no checkpoints, jobs of system "
            f"{_listed(able)} do: remove this key"
        )
        yield ("checkpoint",), problem
    elif job.uncut:
        yield ("checkpoint",), job.uncut
