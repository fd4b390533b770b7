"""Data parallel training as DGL does it: features are pulled, gradients summed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emu.systems.dgtp import DGTP

if TYPE_CHECKING:
    from emu.systems.job_section import JobSection
    from emu.systems.translation import Translation


def _section() -> type[JobSection]:
    from emu.systems.data_parallel.section import (  # noqa: PLC0415 - pydantic
        DataParallelJobSection,
    )

    return DataParallelJobSection


def _translation() -> Translation:
    from emu.systems.data_parallel.section import (  # noqa: PLC0415 - pydantic
        TRANSLATION,
    )

    return TRANSLATION


#: Its programs, weights and steps are those of DGTP's workers that sum gradients.
DATA_PARALLEL = replace(
    DGTP,
    name="data_parallel",
    section=_section,
    parameter_kinds=(),
    translation=_translation,
)
