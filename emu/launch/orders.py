"""How an agent and its fork server tell messages apart: each behind its length."""

from __future__ import annotations

import struct
from typing import Any

import msgpack

LENGTH = struct.Struct(">Q")


def packed(message: dict[str, Any]) -> bytes:
    """Return a message behind its length."""
    body = bytes(msgpack.packb(message))
    return LENGTH.pack(len(body)) + body
