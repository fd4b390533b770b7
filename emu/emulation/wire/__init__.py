"""Frames on a connection: what the bytes mean, never how they travel.

A frame is a fixed prefix, a msgpack header and a body. Data frames carry tensors back
to back; messages carry one msgpack map. Must not know: sockets, loops, clocks, pools.
Every length is checked against a limit before memory is taken for it.
"""

from emu.emulation.wire.decoding import FrameReader
from emu.emulation.wire.encoding import Outgoing, encode_data, encode_message
from emu.emulation.wire.frame_layout import (
    DATA_KINDS,
    MESSAGE_KINDS,
    PREFIX_BYTES,
    VERSION,
    DataHeader,
    Fields,
    Frame,
    Kind,
    Message,
    Seal,
    TensorSpec,
    WireLimits,
)

__all__ = [
    "DATA_KINDS",
    "MESSAGE_KINDS",
    "PREFIX_BYTES",
    "VERSION",
    "DataHeader",
    "Fields",
    "Frame",
    "FrameReader",
    "Kind",
    "Message",
    "Outgoing",
    "Seal",
    "TensorSpec",
    "WireLimits",
    "encode_data",
    "encode_message",
]
