"""The asyncio edge: connections, shaped sending, wall clock, rate board.

Everything above speaks emulated seconds and bytes; only here they become wall seconds
(times ``time_scale``) and real bytes (times ``byte_scale``). Must not know: tasks,
policies, what a payload means.
"""

from emu.emulation.network.authentication import (
    Identity,
    Strangers,
    derive_key,
    edge_keys,
    format_address,
    parse_address,
)
from emu.emulation.network.clock import (
    BEAT,
    SILENCE,
    Alarm,
    AwakeClock,
    ClockLine,
    PeerClock,
    RunClock,
    SilenceWatch,
)
from emu.emulation.network.connect import open_edge
from emu.emulation.network.control import ControlConnection
from emu.emulation.network.control_server import ControlServer, connect_control
from emu.emulation.network.data_server import DataServer
from emu.emulation.network.inbox import (
    BufferPool,
    Delivery,
    Handoff,
    Inbox,
    InboxStatistics,
    PoolStatistics,
)
from emu.emulation.network.out_edge import OutEdge
from emu.emulation.network.pacer import Pacer
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.network.rx_timestamps import arrival_device
from emu.emulation.network.send_log import FrameLog
from emu.emulation.network.statistics import HostUse, ProcessStatistics
from emu.emulation.network.tls import draw_certificate, is_loopback
from emu.emulation.network.tuning import tune_process, tune_socket

__all__ = [
    "BEAT",
    "SILENCE",
    "Alarm",
    "AwakeClock",
    "BufferPool",
    "ClockLine",
    "ControlConnection",
    "ControlServer",
    "DataServer",
    "Delivery",
    "FrameLog",
    "Handoff",
    "HostUse",
    "Identity",
    "Inbox",
    "InboxStatistics",
    "OutEdge",
    "Pacer",
    "PeerClock",
    "PoolStatistics",
    "ProcessStatistics",
    "RateBoard",
    "RunClock",
    "SilenceWatch",
    "Strangers",
    "arrival_device",
    "connect_control",
    "derive_key",
    "draw_certificate",
    "edge_keys",
    "format_address",
    "is_loopback",
    "open_edge",
    "parse_address",
    "tune_process",
    "tune_socket",
]
