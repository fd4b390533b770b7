"""A job of the user's own: any graph of timed tasks and flows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.systems.system import System

if TYPE_CHECKING:
    from emu.systems.job_section import JobSection


def _section() -> type[JobSection]:
    from emu.systems.custom.section import CustomJobSection  # noqa: PLC0415 - pydantic

    return CustomJobSection


CUSTOM = System("custom", _section, programs={"task": "emu_nodes.timed:Timed"})
