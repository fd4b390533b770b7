"""Messages read from maps of the wire, and the facts that a process gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgpack
import pytest

from emu.emulation.shaping import EmulationSettings
from emu.emulation.wire.decoding import check_length, decode_fields
from emu.emulation.wire.messages import Begin, Listening, expect, pack, unpack
from emu.emulation.wire.process_spec import HostSide, ProcessSpec
from emu.errors import FrameTooLarge, MalformedFrame
from tests.emulation.launch.specs import edge_end, process_spec, process_task

LISTENING = pack(Listening("h", 1))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({**LISTENING, "kind": "Sings"}, "a message of unknown kind 'Sings'"),
        ({**LISTENING, "kind": ["Listening"]}, r"unknown kind \['Listening'\]"),
        ({"host": "h", "port": 1}, "unknown kind None"),
        ({**LISTENING, "more": 1}, "Listening has no field 'more'"),
        ({**LISTENING, "port": "1"}, "Listening.port is a str, not a int"),
        ({**LISTENING, "port": 1.0}, "Listening.port is a float, not a int"),
        ({**LISTENING, "host": None}, "Listening.host is a NoneType, not a str"),
        (
            {"kind": "Begin", "start_wall": "1"},
            "Begin.start_wall is a str, not a float",
        ),
        ({"kind": "Begin", "start_wall": True}, "Begin.start_wall is a bool, not a"),
        ({"kind": "Beat", "clock": 1.0}, "Beat.clock is a float, not a list"),
        ({"kind": "Peers", "addresses": []}, "Peers.addresses is a list, not a dict"),
        ({"kind": "Listening", "host": "h"}, "Listening is incomplete: .*'port'"),
    ],
)
def test_a_map_that_is_no_message_is_refused(fields: dict[str, Any], said: str) -> None:
    assert unpack(LISTENING) == Listening("h", 1)
    with pytest.raises(MalformedFrame, match=said):
        unpack(fields)


def test_whole_numbers_stand_for_times_and_stay_counts() -> None:
    begin = unpack({"kind": "Begin", "start_wall": 3})
    assert begin == Begin(3.0)
    assert type(begin) is Begin
    assert type(begin.start_wall) is float
    listening = unpack(LISTENING)
    assert type(listening) is Listening
    assert type(listening.port) is int


def test_a_message_of_another_kind_is_refused() -> None:
    listening = Listening("h", 1)
    assert expect(listening, Listening) is listening
    with pytest.raises(MalformedFrame, match="Listening came where Begin was due"):
        expect(listening, Begin)


def test_fields_have_names_of_text() -> None:
    assert decode_fields(memoryview(msgpack.packb({"a": 1}))) == {"a": 1}
    for content in ({b"a": 1}, ["a"]):
        with pytest.raises(MalformedFrame, match="not a msgpack map with text keys"):
            decode_fields(memoryview(msgpack.packb(content)))


def test_a_length_at_its_limit_is_taken() -> None:
    check_length(7, 7, "header")
    with pytest.raises(FrameTooLarge, match="a header of 8 bytes, at most 7 are taken"):
        check_length(8, 7, "header")


def test_a_specification_comes_as_it_was_sent() -> None:
    """With all that lies in it, and with the part of the agent or without."""
    inputs = (edge_end(1, latency=0.5, key=b"k"), edge_end(2, lag=3, latest=True))
    task = process_task(
        "p:T", inputs=inputs, outputs=(edge_end(5),), restores=("ps0", "ps1"), every=2
    )
    spec = process_spec("w0", task, process_task("p:U"), job_settings={"epochs": 3})
    host = HostSide(b"cert", ("127.0.0.1", 5000), "127.0.0.2", "/board", b"key")
    assert (inputs[1].latency, task.speed_times) == (0.0, [0.0])
    assert (spec.tasks[1].every, spec.first) == (0, 0)

    for sent in (spec, replace(spec, first=7, host=host)):
        content = msgpack.packb(sent, default=vars)
        assert ProcessSpec.from_map(msgpack.unpackb(content)) == sent
    assert replace(spec, host=host).here is host


def test_a_map_that_is_no_specification_is_refused() -> None:
    fields = vars(process_spec("w0"))
    settings = vars(EmulationSettings())
    for odd in (
        {**fields, "more": 1},
        {**fields, "tasks": [{}]},
        {**fields, "host": {"coordinator": [1]}},
        {**fields, "settings": {**settings, "time_scale": 0}},
    ):
        with pytest.raises(MalformedFrame, match="no specification of a process"):
            ProcessSpec.from_map(odd)


def test_a_process_without_its_host_is_refused() -> None:
    with pytest.raises(MalformedFrame, match="process w0 has nothing of its host"):
        _ = process_spec("w0").here
