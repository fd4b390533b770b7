"""Messages read from maps of the wire, and the facts that a process gets."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from emu.emulation.wire.decoding import check_length, decode_fields
from emu.emulation.wire.messages import Listening, pack, unpack
from emu.errors import FrameTooLarge, MalformedFrame
from tests.emulation.launch.specs import process_spec

LISTENING = pack(Listening("h", 1))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({**LISTENING, "kind": "Sings"}, "a message of unknown kind 'Sings'"),
        ({**LISTENING, "kind": ["Listening"]}, r"unknown kind \['Listening'\]"),
        ({"host": "h", "port": 1}, "unknown kind None"),
        ({**LISTENING, "more": 1}, "Listening has no field 'more'"),
    ],
)
def test_a_map_that_is_no_message_is_refused(fields: dict[str, Any], said: str) -> None:
    assert unpack(LISTENING) == Listening("h", 1)
    with pytest.raises(MalformedFrame, match=said):
        unpack(fields)


def test_fields_have_names_of_text() -> None:
    assert decode_fields(memoryview(msgpack.packb({"a": 1}))) == {"a": 1}
    for content in ({b"a": 1}, ["a"]):
        with pytest.raises(MalformedFrame, match="not a msgpack map with text keys"):
            decode_fields(memoryview(msgpack.packb(content)))


def test_a_length_at_its_limit_is_taken() -> None:
    check_length(7, 7, "header")
    with pytest.raises(FrameTooLarge, match="a header of 8 bytes, at most 7 are taken"):
        check_length(8, 7, "header")


def test_a_process_without_its_host_is_refused() -> None:
    with pytest.raises(MalformedFrame, match="process w0 has nothing of its host"):
        _ = process_spec("w0").here
