"""The asyncio edge: connections, shaped sending, wall clock, rate board.

Everything above speaks emulated seconds and bytes; only here they become wall seconds
(times ``time_scale``) and real bytes (times ``byte_scale``). Must not know: tasks,
policies, what a payload means.
"""

from emu.network.address import format_address, parse_address
from emu.network.authentication import (
    Identity,
    Rejection,
    Rejections,
    derive_key,
    edge_keys,
)
from emu.network.awake_clock import AwakeClock
from emu.network.clock import Alarm, RunClock, clock_of_host
from emu.network.connect import open_edge
from emu.network.control import ControlConnection, ControlStatistics
from emu.network.control_server import ControlServer, connect_control
from emu.network.data_server import DataServer, DataServerStatistics
from emu.network.frame_log import FrameLog
from emu.network.handoff import Handoff
from emu.network.inbox import Delivery, Inbox, InboxStatistics
from emu.network.out_edge import OutEdge, OutEdgeStatistics, SendRecord
from emu.network.pacer import Pacer, PacerStatistics, lead_time, pace_at
from emu.network.peer_clock import ClockLine, PeerClock
from emu.network.pool import BufferPool, PooledBuffer, PoolStatistics
from emu.network.rate_board import RateBoard
from emu.network.rx_timestamps import arrival_device
from emu.network.silence import BEAT, SILENCE, SilenceWatch
from emu.network.tls import draw_certificate, is_loopback
from emu.network.tuning import tune_process, tune_socket

__all__ = [
    "BEAT",
    "SILENCE",
    "Alarm",
    "AwakeClock",
    "BufferPool",
    "ClockLine",
    "ControlConnection",
    "ControlServer",
    "ControlStatistics",
    "DataServer",
    "DataServerStatistics",
    "Delivery",
    "FrameLog",
    "Handoff",
    "Identity",
    "Inbox",
    "InboxStatistics",
    "OutEdge",
    "OutEdgeStatistics",
    "Pacer",
    "PacerStatistics",
    "PeerClock",
    "PoolStatistics",
    "PooledBuffer",
    "RateBoard",
    "Rejection",
    "Rejections",
    "RunClock",
    "SendRecord",
    "SilenceWatch",
    "arrival_device",
    "clock_of_host",
    "connect_control",
    "derive_key",
    "draw_certificate",
    "edge_keys",
    "format_address",
    "is_loopback",
    "lead_time",
    "open_edge",
    "pace_at",
    "parse_address",
    "tune_process",
    "tune_socket",
]
