"""The prefix of a frame, packed apart from the product, right or wrong."""

from __future__ import annotations

import struct
import zlib


def prefix_of(
    magic: bytes = b"emuF",
    version: int = 5,
    kind: int = 2,
    header: int = 9,
    body: int = 0,
) -> bytes:
    lengths = struct.pack(">4sHHII", magic, version, kind, header, body)
    return lengths + struct.pack(">I", zlib.crc32(lengths))
