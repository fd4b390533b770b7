"""Events of a receiving end do not depend on how its bytes are cut."""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.emulation.network.authentication import Challenge, edge_keys
from emu.emulation.network.inbox import BufferPool
from emu.emulation.network.receiving_end import (
    Accepted,
    Answer,
    Arrived,
    Event,
    ReceivingEnd,
)
from emu.emulation.wire.data_reader import Sink
from emu.emulation.wire.decoding import MessageReader
from emu.emulation.wire.encoding import encode_data, encode_message
from emu.emulation.wire.frame_layout import Kind
from emu.errors import NodeLost, NodeMisbehaved, RunError, TruncatedFrame
from emu.prediction.core import lib, structure
from tests.emulation.network.strangers import NONCE

EDGE, KEYS = 2, edge_keys("secret", range(4))


def fed(
    end: ReceivingEnd, data: bytes, cuts: Sequence[int], wall: float
) -> list[Event]:
    """Return the events of bytes that come in pieces, a second apart from ``wall``."""
    events: list[Event] = []
    bounds = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    for first, last in itertools.pairwise(bounds):
        piece = data[first:last]
        while piece:
            view = end.get_buffer()
            count = min(len(view), len(piece))
            view[:count] = piece[:count]
            events += end.feed(count, wall)
            piece = piece[count:]
        wall += 1.0
    return events


def introduced(
    pool: BufferPool,
    cuts: Sequence[int] = (),
    taken: Container[int] = (),
    sinks: Mapping[int, Sink] = MappingProxyType({}),
    certificate: bytes = b"",
) -> ReceivingEnd:
    """Return the end of a connection whose peer has proved itself.

    ``certificate``: that the peer saw.
    """
    end = ReceivingEnd(KEYS, taken, pool, certificate, sinks=sinks)
    hello = encode_message(Kind.HELLO, {"edge": EDGE, "nonce": NONCE})
    (asked,) = fed(end, hello, cuts, 0.0)
    assert isinstance(asked, Answer)
    reader = MessageReader(kinds={Kind.HELLO})
    reader.get_buffer()[: len(asked.data)] = asked.data
    reader.on_bytes(len(asked.data))
    message = reader.take()
    assert message is not None
    nonce = message.fields["nonce"]
    challenge = Challenge(KEYS[EDGE], (EDGE,), NONCE, nonce, certificate)
    assert message.fields["proof"] == challenge.proof("server")
    proof = encode_message(Kind.HELLO, {"proof": challenge.proof("client")})
    said, accepted = fed(end, proof, cuts, 0.0)
    assert isinstance(said, Answer)
    assert accepted == Accepted(EDGE)
    assert end.edge == EDGE
    return end


def frame(iteration: int, size: int, edge: int = EDGE) -> bytes:
    """Return a frame whose payload is known."""
    content = np.arange(size, dtype=np.uint64).astype(np.uint8)
    return b"".join(encode_data(edge, iteration, {"x": content}, shaped=True))


@given(
    st.lists(st.integers(0, 10_000), max_size=20),
    st.lists(st.integers(0, 3000), min_size=1, max_size=5),
)
def test_any_pieces_of_a_conversation(cuts: list[int], sizes: list[int]) -> None:
    pool = BufferPool()
    end = introduced(pool, cuts)
    frames = [frame(n, size) for n, size in enumerate(sizes)]

    events = fed(end, b"".join(frames), cuts, 100.0)

    arrivals = [event for event in events if isinstance(event, Arrived)]
    assert len(events) == len(arrivals) == len(sizes)
    data = b"".join(frames)
    bounds = np.array([*sorted({cut % (len(data) + 1) for cut in cuts}), len(data)])
    last = 0
    for n, (event, size) in enumerate(zip(arrivals, sizes, strict=True)):
        first, last = last + len(frames[n]) - size, last + len(frames[n])
        delivery = event.delivery
        expected = np.arange(size, dtype=np.uint64).astype(np.uint8)
        np.testing.assert_array_equal(delivery.payload["x"], expected)
        assert (delivery.edge, delivery.iteration) == (EDGE, n)
        # The piece that brought the last byte, and that by which the head had come.
        assert delivery.arrived == 100.0 + np.searchsorted(bounds, last)
        assert event.first == 100.0 + np.searchsorted(bounds, first if size else last)
        delivery.release()
    assert end.frames is not None
    assert not end.frames.inside
    assert pool.statistics.in_use == 0


def test_what_a_peer_says_behind_its_proof_is_its_first_frame() -> None:
    """A frame comes in the same bytes as the proof, before the peer is accepted."""
    end = ReceivingEnd(KEYS, (), BufferPool())
    hello = encode_message(Kind.HELLO, {"edge": EDGE, "nonce": NONCE})
    (asked,) = fed(end, hello, (), 0.0)
    assert isinstance(asked, Answer)
    reader = MessageReader(kinds={Kind.HELLO})
    reader.get_buffer()[: len(asked.data)] = asked.data
    reader.on_bytes(len(asked.data))
    message = reader.take()
    assert message is not None
    challenge = Challenge(KEYS[EDGE], (EDGE,), NONCE, message.fields["nonce"])
    proof = encode_message(Kind.HELLO, {"proof": challenge.proof("client")})

    *_, first, second = fed(end, proof + frame(0, 5) + frame(1, 3), (), 7.0)
    for event, size in ((first, 5), (second, 3)):
        assert isinstance(event, Arrived)
        assert event.delivery.nbytes == size
        assert event.delivery.arrived == 7.0
        event.delivery.release()


def test_the_rest_of_a_paced_payload_is_known() -> None:
    pool = BufferPool()
    end, data = introduced(pool), frame(0, 1000)
    assert end.frames is not None
    for first, last, left in ((0, -400, 400), (-400, -300, 300)):
        assert fed(end, data[first:last], (), 0.0) == []
        assert lib.missing(end.frames.core) == left

    end.give_up()
    error = end.end("")

    assert isinstance(error, TruncatedFrame)
    assert pool.statistics.in_use == 0


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ([frame(0, 1, edge=1)], "a frame of edge 1 on the connection of edge 2"),
        ([frame(3, 1), frame(3, 1)], "sent iteration 3 after 3"),
        ([frame(2**32 - 1, 1)], "sent iteration 4294967295 after -1"),
    ],
)
def test_what_a_peer_must_not_send(said: list[bytes], match: str) -> None:
    end = introduced(BufferPool())
    with pytest.raises(NodeMisbehaved, match=match):
        fed(end, b"".join(said), (), 0.0)


def test_proofs_are_bound_to_the_certificate_that_was_seen() -> None:
    """The rank between them has another one."""
    assert introduced(BufferPool(), certificate=b"fingerprint").edge == EDGE


def test_an_edge_that_is_taken() -> None:
    with pytest.raises(NodeMisbehaved, match="edge 2 is connected already"):
        introduced(BufferPool(), taken={EDGE})


def test_an_end_between_frames_names_who_has_gone() -> None:
    stranger = ReceivingEnd(KEYS, (), BufferPool())

    assert str(stranger.end(" (reset)")) == (
        "the connection ended without a hello (reset)"
    )
    left = introduced(BufferPool()).end("")
    assert isinstance(left, NodeLost)
    assert str(left) == "the sender of edge 2 has gone"


class _Judges:
    """Compares bodies with zeros, and judges their sizes."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        self.core = structure(
            "Expected",
            edge=EDGE,
            ring=np.zeros(100, np.uint8),
            period=100,
            block=4096,
        )

    def finish(self, sizes: Mapping[str, int]) -> None:
        if sizes != self._sizes:
            raise NodeMisbehaved(f"not these: {sizes}")


def test_a_payload_that_goes_into_a_sink_counts_as_in_use_and_takes_no_memory() -> None:
    pool = BufferPool()
    end = introduced(pool, sinks={EDGE: _Judges({"x": 5000})})
    (event,) = fed(end, frame(0, 5000), (), 0.0)

    assert isinstance(event, Arrived)
    delivery = event.delivery
    assert delivery.payload == {}
    assert delivery.nbytes == 5000
    assert pool.statistics.in_use == 5120
    assert pool.statistics.held == 0

    delivery.release()
    assert pool.statistics.in_use == 0
    with pytest.raises(ValueError, match="released before"):
        delivery.release()


def test_a_sink_judges_what_has_come_whole_and_is_of_its_edge() -> None:
    foreign = b"".join(encode_data(EDGE + 1, 0, {"x": np.zeros(9, np.uint8)}))
    end = introduced(BufferPool(), sinks={EDGE: _Judges({})})
    with pytest.raises(NodeMisbehaved, match=f"a frame of edge {EDGE + 1}"):
        fed(end, foreign, (), 0.0)

    end = introduced(BufferPool(), sinks={EDGE: _Judges({})})
    with pytest.raises(NodeMisbehaved, match=r"not these: \{'x': 9\}"):
        fed(end, frame(0, 9), (), 0.0)


def test_what_goes_into_a_sink_meets_the_limit_of_memory_in_use() -> None:
    end = introduced(BufferPool(limit=8192), sinks={EDGE: _Judges({})})
    with pytest.raises(RunError, match="10000 bytes arrive while 0 of at most 8192"):
        fed(end, frame(0, 10_000), (), 0.0)


def test_a_body_that_is_not_kept_gives_its_room_back_when_its_sender_goes() -> None:
    pool = BufferPool()
    end = introduced(pool, sinks={EDGE: _Judges({})})
    assert fed(end, frame(0, 5000)[:-1], (), 0.0) == []
    assert pool.statistics.in_use == 5120

    end.give_up()
    end.give_up()

    assert pool.statistics.in_use == 0


def test_a_body_without_room_behind_an_empty_one_gives_nothing_back() -> None:
    pool = BufferPool(limit=8192)
    end = introduced(pool, sinks={EDGE: _Judges({"x": 0})})
    (event,) = fed(end, frame(0, 0), (), 0.0)
    assert isinstance(event, Arrived)

    with pytest.raises(RunError, match="10000 bytes arrive while 0 of at most 8192"):
        fed(end, frame(1, 10_000), (), 0.0)
    end.give_up()

    assert pool.statistics.in_use == 0
