"""What a process hands over at the end of a run, cut into messages."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from emu.wire.messages import Frames, ResultPart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emu.network import FrameLog, RunClock
    from emu_nodes.program import Program

_PART = 256 * 1024  # bytes of a result per message


def result_parts(task: int, program: Program) -> list[ResultPart]:
    """Return a program's result cut into messages."""
    parts = []
    for name, array in program.result().items():
        data = array.tobytes()
        parts += [
            ResultPart(
                task=task,
                name=name,
                dtype=array.dtype.str,
                shape=list(array.shape),
                total=len(data),
                data=data[start : start + _PART],
            )
            for start in range(0, max(len(data), 1), _PART)
        ]
    return parts


def frame_messages(
    sent: FrameLog, received: FrameLog, clock: RunClock
) -> Iterator[Frames]:
    """Yield the frames that a process sent and received."""
    pieces = zip_longest(sent.pieces(clock), received.pieces(clock), fillvalue=b"")
    for left, came in pieces:
        yield Frames(left, came)
