"""The compiled sender does what the slow one does, look by look, to the last bit."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from emu.emulation.network.rate_board import RateBoard
from emu.emulation.shaping import Pace, RateSegment
from emu.prediction.core import ffi, lib
from tests.emulation.shaping.slow_sender import SlowSender

HEAD = 40  #: bytes before the body

paces = st.builds(
    Pace,
    lead_time=st.sampled_from([0.0, 0.006]),
    catch_up=st.sampled_from([math.inf, 0.0, 0.01, 0.5]),
)
#: What happens before a look: seconds that pass, and what is said on the board: of this
#: flow or the next, bytes served, rate, how far ahead it begins.
steps = st.lists(
    st.tuples(
        st.floats(0.0, 0.05),
        st.none()
        | st.tuples(
            st.sampled_from([0, 0, 0, 1]),
            st.floats(0.0, 1.05) | st.floats(0.0, 0.1),
            st.sampled_from([0.0, 1e3, 1e6, 5e8]),
            st.floats(-0.01, 0.03) | st.floats(0.0, 0.006),
        ),
        st.sampled_from([1.0, 1.0, 0.5, 0.01]),
        st.booleans(),
    ),
    min_size=1,
    max_size=30,
)


def sender_of(volume: int, capacity: float, queued: float) -> tuple[Any, Any]:
    """Return a sender whose owner writes, with a frame; and what it points to."""
    data = ffi.new("char[]", HEAD + volume)
    buffers = ffi.new("Buffer[]", [(data, HEAD), (data + HEAD, volume)])
    sender = ffi.new("Sender *", {"capacity": capacity, "fd": -1})
    lib.load_frame(sender, 0, buffers, 2, queued, -math.inf)
    return sender, (data, buffers)


@given(steps, paces, st.integers(1, 3_000_000), st.sampled_from([0.3, 1.0, 40.0]))
def test_any_looks_at_any_board(
    steps: list[Any], pace: Pace, volume: int, time_scale: float
) -> None:
    capacity, now, began = 1e7, 100.0, 99.5
    board, slow = RateBoard.create(1), SlowSender(volume, pace, capacity, now)
    sender, _kept = sender_of(volume, capacity * time_scale, now)
    pacing = ffi.new("Pacing *", {"board": board.address, "started": True})
    pacing.pace = dataclasses.asdict(pace)
    pacing.start, pacing.time_scale, pacing.byte_scale = began, time_scale, 1.0
    for passed, said, takes, notified in steps:
        now += passed
        if said is not None:
            iteration, share, rate, ahead = said
            since = (now + ahead - began) / time_scale
            board.publish([0], [iteration], [share * volume], [rate], since)
        if notified:
            slow.notified = sender.notified = now
        entry, seen = board.read(0), None
        if entry is not None and entry.iteration == 0:
            since = began + entry.since * time_scale
            seen = RateSegment(0, entry.served, entry.rate / time_scale, since)

        went = slow.look(seen, now, takes)
        outcome, count = lib.look(pacing, sender, now), 0
        if outcome == lib.OFFERS:
            count = max(1, int(sender.offered * takes))
            lib.on_sent(sender, count + max(0, HEAD - sender.sent))
            lib.plan_look(pacing, sender, now)

        assert count == went
        assert sender.fluid_end == slow.end
        assert sender.bucket.lost == slow.bucket.lost
        assert (sender.max_stale, sender.max_lead) == (slow.max_stale, slow.max_lead)
        if slow.sent == volume:
            assert sender.left == 0
            break
        assert sender.due == slow.due
        assert sender.late == slow.late
    board.close()
