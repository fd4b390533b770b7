"""DGTP: graph stores, samplers, workers, and parameter servers or an all-reduce."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.systems.dgtp.job import CARRIES, PROGRAMS
from emu.systems.parameter_shards import (
    STEP_KINDS,
    held_parameters,
    held_state,
    open_dataset,
)
from emu.systems.system import System

if TYPE_CHECKING:
    from emu.systems.job_section import JobSection
    from emu.systems.translation import Translation


def _section() -> type[JobSection]:
    from emu.systems.dgtp.section import DgtpJobSection  # noqa: PLC0415 - pydantic

    return DgtpJobSection


def _translation() -> Translation:
    from emu.systems.dgtp.translation import TRANSLATION  # noqa: PLC0415 - pydantic

    return TRANSLATION


DGTP = System(
    "dgtp",
    _section,
    programs=PROGRAMS,
    needs_torch=True,
    open_data=open_dataset,
    trained=held_parameters,
    step_kinds=STEP_KINDS,
    parameter_kinds=("parameter_server",),
    cuts=held_state,
    carries=CARRIES,
    translation=_translation,
)
