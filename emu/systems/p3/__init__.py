"""P3: push the structure, pull partial activations, never a feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.systems.p3.guards import no_features
from emu.systems.p3.job import PIPELINES, PROGRAMS
from emu.systems.p3.results import joined_columns, open_columns_of, own_state
from emu.systems.system import System

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emu.systems.job_section import JobSection
    from emu.systems.translation import Translation


def _section() -> type[JobSection]:
    from emu.systems.p3.section import P3JobSection  # noqa: PLC0415 - pydantic

    return P3JobSection


def _translation() -> Translation:
    from emu.systems.p3.translation import TRANSLATION  # noqa: PLC0415 - pydantic

    return TRANSLATION


def _missed(settings: Mapping[str, Any]) -> int:
    return PIPELINES[settings["pipeline"]].missed


P3 = System(
    "p3",
    _section,
    programs=PROGRAMS,
    needs_torch=True,
    guards=(no_features,),
    open_data=open_columns_of,
    trained=joined_columns,
    updates_missed=_missed,
    cuts=own_state,
    translation=_translation,
)
