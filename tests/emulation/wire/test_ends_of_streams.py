"""Streams that end within a frame, behind others or behind an error."""

from __future__ import annotations

import numpy as np
import pytest

from emu.emulation.wire.data_reader import DataReader
from emu.emulation.wire.encoding import encode_data
from emu.emulation.wire.frame_layout import PREFIX_BYTES
from emu.errors import TruncatedFrame, WireError
from tests.emulation.wire.test_decoding import Recorder, feed, reader_of


@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize(("cut", "part"), [(7, "prefix"), (PREFIX_BYTES + 5, "header")])
def test_what_has_come_is_counted_from_where_the_frame_begins(
    before: int, cut: int, part: str
) -> None:
    """Frames without bytes lie behind each other where heads are received."""
    data = b"".join(encode_data(1, 2, {"x": np.arange(0)}))
    reader = reader_of(Recorder())
    assert len(feed(reader, before * data + data[:cut])) == before
    count = cut if part == "prefix" else cut - PREFIX_BYTES
    with pytest.raises(TruncatedFrame, match=rf": {count} of \d+ bytes of its {part}"):
        reader.end()


def test_a_stream_that_was_refused_ends_without_a_further_word() -> None:
    data = bytearray(b"".join(encode_data(1, 2, {"x": np.arange(8)})))
    data[1] ^= 1
    reader = reader_of(Recorder())
    assert isinstance(reader, DataReader)
    with pytest.raises(WireError):
        feed(reader, bytes(data))
    assert reader.inside
    reader.end()
