"""Data parallel training as DGL does it: features are pulled, gradients summed."""

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
    from emu.systems.data_parallel.section import (  # noqa: PLC0415 - pydantic
        DataParallelJobSection,
    )

    return DataParallelJobSection


def _translation() -> Translation:
    from emu.systems.data_parallel.translation import (  # noqa: PLC0415 - pydantic
        TRANSLATION,
    )

    return TRANSLATION


DATA_PARALLEL = System(
    "data_parallel",
    _section,
    programs=PROGRAMS,
    needs_torch=True,
    open_data=open_dataset,
    trained=held_parameters,
    step_kinds=STEP_KINDS,
    cuts=held_state,
    carries=CARRIES,
    translation=_translation,
)
