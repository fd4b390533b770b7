"""The asyncio edge: connections, shaped sending, wall clock, rate board.

Everything above speaks emulated seconds and bytes; only here they become wall seconds
(times ``time_scale``) and real bytes (times ``byte_scale``). Must not know: tasks,
policies, what a payload means.
"""

from emu.emulation.network.authentication import (
    Strangers,
    format_address,
    parse_address,
)
from emu.emulation.network.clock import Alarm, RunClock
from emu.emulation.network.statistics import ProcessStatistics
from emu.emulation.network.tls import is_loopback

__all__ = [
    "Alarm",
    "ProcessStatistics",
    "RunClock",
    "Strangers",
    "format_address",
    "is_loopback",
    "parse_address",
]
