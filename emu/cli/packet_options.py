"""Options of the commands that send packets."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from emu.cli.app import option
from emu.prediction.packets import Control, Shares

Queues: TypeAlias = Annotated[
    Shares | None,
    option(
        "--sharing fair|tcp", "Queues of ns-3: flows by turns, or one that drops.", ...
    ),
]
Tcp: TypeAlias = Annotated[
    Control | None, option("--congestion-control cubic|reno", "TCP of ns-3.", ...)
]
