"""Bytes into the codec, chosen by the branches that they reach (pip install atheris).

    tools/hostile frames CORPUS -atheris_runs=1000000

The folder CORPUS gets good frames first, then what libFuzzer finds. The first byte of
an input chooses which kinds of frame are due and whether sealed; the rest is the
stream. What is no `WireError`, or takes more memory than the limits say, ends it
with the input kept.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

from emu.errors import WireError

atheris: Any = importlib.import_module("atheris")

with atheris.instrument_imports(include=["emu.wire"]):
    from emu.wire import (
        DATA_KINDS,
        FrameReader,
        Kind,
        Seal,
        WireLimits,
        encode_data,
        encode_message,
    )

LIMITS = WireLimits(header=1 << 12, body=1 << 20, message=1 << 14)
KINDS = ({Kind.CONTROL}, {Kind.HELLO}, DATA_KINDS, set(Kind))
SEALED = 4


def good_frames() -> list[bytes]:
    """Return frames of every kind."""
    nonce = bytes(range(32))
    values = {"x": [1.5, None, b"x", {"y": -3}], "text": "s", "yes": True}
    frames = [
        encode_message(Kind.CONTROL, {"role": "process", "name": "w0", "nonce": nonce}),
        encode_message(Kind.HELLO, {"edge": 3, "nonce": nonce}),
        encode_message(Kind.CONTROL, values),
        encode_message(Kind.CONTROL, values, Seal(b"k")),
    ]
    tensors = {"a": np.ones((3, 4), np.float32), "b": np.zeros(7, np.uint8)}
    payloads: list[dict[str, Any]] = [{}, {"x": np.arange(40)}, tensors]
    for payload in payloads:
        parts = encode_data(1, 2, payload, version=3, shaped=True)
        frames.append(b"".join(bytes(part) for part in parts))
    return frames


def read(data: bytes) -> None:
    """Read a stream; raise what is no error of ours.

    Raises
    ------
    MemoryError
        When more is taken than the limits allow.
    """
    if not data:
        return

    def allocate(size: int) -> memoryview:
        if size > LIMITS.body:
            raise MemoryError(f"{size} bytes for a stream of {len(data)}")
        return memoryview(bytearray(size))

    reader = FrameReader(allocate, kinds=KINDS[data[0] % 4], limits=LIMITS)
    if data[0] & SEALED:
        reader.trust(seal=Seal(b"k"))
    rest = memoryview(data)[1:]
    with contextlib.suppress(WireError):
        while rest:
            room = reader.get_buffer()
            count = min(len(room), len(rest))
            room[:count], rest = rest[:count], rest[count:]
            reader.received(count)
            while reader.take() is not None:
                pass
        reader.end()


def main() -> int:
    """Fill the corpus and fuzz, as libFuzzer's options state.

    Returns
    -------
    int
        2 without a corpus; otherwise the fuzzer ends the process.
    """
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    corpus = Path(sys.argv[1])
    corpus.mkdir(parents=True, exist_ok=True)
    for number, frame in enumerate(good_frames()):
        for first in range(8):
            (corpus / f"good-{number}-{first}").write_bytes(bytes([first]) + frame)
    atheris.Setup(sys.argv, read)
    atheris.Fuzz()
    return 0
