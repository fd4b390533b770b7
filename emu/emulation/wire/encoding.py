"""From payloads and messages to buffers, without copying a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np
from isal import isal_zlib

from emu.array_types import Array
from emu.emulation.wire.frame_layout import CHECKSUM, DTYPES, Kind, Seal, prefix_of

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def encode_message(
    kind: Kind,
    fields: Mapping[str, Any],
    seal: Seal | None = None,
) -> bytes:
    """Return the frame of one message, sealed once the two ends know each other.

    Values are of msgpack's own types (no numpy scalars), or dataclasses, which are maps
    of their fields. Raises TypeError if one is not.
    """
    body = bytes(msgpack.packb(dict(fields), default=vars))
    mark = seal.next(body) if seal is not None else b""
    return prefix_of(kind, len(mark), len(body)) + mark + body


def encode_data(
    edge: int,
    iteration: int,
    payload: Mapping[str, Array],
    *,
    shaped: bool = False,
) -> tuple[memoryview, ...]:
    """Return one data frame as buffers: prefix and header first, then the tensors.

    Each is flat, unsigned bytes; empty tensors have none. Arrays of the payload, which
    are C-contiguous and little-endian, are viewed and not copied: leave them alone
    until the frame has left. The rest is as in `DataHeader`.

    Raises ValueError if an array is not C-contiguous, or of a type that the wire does
    not carry, and struct.error if the tensors take 4 GiB or more.
    """
    # Those of the widest items first: so each lies at a multiple of its item's bytes.
    tensors = sorted(payload.items(), key=lambda item: -item[1].dtype.itemsize)
    specs = []
    bodies = []
    for name, array in tensors:
        dtype = _NAMES.get(array.dtype)
        if dtype is None:
            raise ValueError(f"tensor {name!r} has dtype {array.dtype}, none of ours")
        if not array.flags.c_contiguous:
            raise ValueError(f"tensor {name!r} is not C-contiguous")
        specs.append((name, dtype, array.shape))
        if array.size:
            # Flat bytes are as they have to be: 3.3 us a frame for 3.75.
            is_flat = dtype == "u1" and array.ndim == 1
            flat = array if is_flat else array.reshape(-1).view(np.uint8)
            bodies.append(flat.data)

    header = {
        "edge": edge,
        "iteration": iteration,
        "shaped": shaped,
        "tensors": specs,
    }
    head = msgpack.packb(header)
    checksum = isal_zlib.crc32(head)
    for body in bodies:  # 24 us per MB
        checksum = isal_zlib.crc32(body, checksum)

    length = sum(body.nbytes for body in bodies)
    prefix = prefix_of(Kind.DATA, CHECKSUM.size + len(head), length)
    front = prefix + CHECKSUM.pack(checksum) + head
    return (memoryview(front), *bodies)
