"""Section ``job`` of ``system: whole_graph``, as WholeGraph and cuGraph have rows."""

from __future__ import annotations

from typing import ClassVar, Literal

from emu.systems.asking_section import AskingSection, asking_translation


class WholeGraphJobSection(AskingSection):
    """WholeGraph: devices own rows by hash, and gather those of a batch from all.

    Numbers go out and rows come back, an all-to-all per mini-batch. Devices of one
    machine share its memory here, as they do over NVLink; between machines its
    collectives are flows, of which each device waits for its own (inferred).
    """

    usual_features: ClassVar[str] = "device"

    system: Literal["whole_graph"]
    """Kind of job."""


TRANSLATION = asking_translation("hash")
