"""Files of labs, read whole or refused with what is wrong in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emu.errors import DataError
from emu.runs.lab_file import duration_of, log_name, read_lab

PACKETS = {"out_bytes": 9, "out_packets": 3, "in_bytes": 8, "in_packets": 2}
QUEUES = {"segments": 5, "retransmitted": 1, "timeouts": 0}


def lab() -> dict[str, Any]:
    """Return the content of lab.json of two machines, of one of which is counted."""
    program = {"program": "p", "machine": "a", "start": 0.0, "end": None}
    return {
        "wall_seconds": 6.0,
        "startup_seconds": 1.0,
        "computed_seconds": 2.0,
        "waited_seconds": 0.5,
        "waited_share": 0.25,
        "sharing": "maxmin",
        "trust": "trusted",
        "nics": {"a": {"in": 3.0, "out": 4.0}, "b": {"in": 1e-9, "out": 5.0}},
        "programs": [{**program, "stopped": False, "code": 0}],
        "failed": None,
        "dropped": {"a": {"out": 0, "in": 1}},
        "events": [{"machine": "b", "time": 1.0, "nic_out": 2.0, "nic_in": 3.0}],
        "traffic": {"a": PACKETS},
        "tcp": {"a": QUEUES, "b": QUEUES},
    }


def read(folder: Path, content: dict[str, Any]) -> dict[str, Any]:
    (folder / "lab.json").write_text(json.dumps(content))
    return read_lab(folder)


def test_a_lab_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Of a machine whose packets were not counted queues may be known."""
    full = lab() | {"time_scale": 1.0, "cpu": {"b": 0.5}, "early_share": 0.25}
    full["measured"] = {"seconds": 3.0, "shares": {"a": {"in": 1.0, "out": 0.5}}}
    full["crossed"] = dict.fromkeys(("packets", "messages", "shared_queues"), 7)
    full["crossed"]["bytes"] = {"a": {"b": 5}}
    for content in (lab(), full):
        assert read(tmp_path, content) == content
    assert log_name("server", "m0") == "server-m0.log"


def test_a_lab_of_scaled_time_lasts_as_long_as_its_programs_know() -> None:
    assert duration_of(lab()) == 6.0
    assert duration_of(lab() | {"time_scale": 4.0}) == 1.5


ODD: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "program": (
        lambda it: it["programs"][0].update(machine="c"),
        "programs: names 'c', which nics lacks",
    ),
    "event": (
        lambda it: it["events"].append({**it["events"][0], "machine": "d"}),
        "events: names 'd', which nics lacks",
    ),
    "traffic": (
        lambda it: it["traffic"].update(y=PACKETS, x=PACKETS),
        "traffic: names 'x', which nics lacks",
    ),
    "drops": (lambda it: it["dropped"].update(z={"out": 0, "in": 0}), "dropped: names"),
    "tcp": (lambda it: it["tcp"].update(z=QUEUES), "tcp: names 'z'"),
    "cpu": (lambda it: it.update(cpu={"z": 0.5}), "cpu: names 'z'"),
    "shares": (
        lambda it: it.update(
            measured={"seconds": 1.0, "shares": {"z": {"in": 1.0, "out": 1.0}}}
        ),
        "measured: names 'z'",
    ),
    "no queues": (lambda it: it["tcp"].pop("a"), "tcp: lacks 'a'"),
    "no drops": (lambda it: it["dropped"].pop("a"), "dropped: lacks 'a'"),
    "wall": (lambda it: it.update(wall_seconds=-1e-9), "holds a time before 0"),
    "start": (lambda it: it["programs"][0].update(start=-1.0), "holds a time before 0"),
    "rate": (lambda it: it["nics"]["b"].update(out=0.0), "or a NIC without a rate"),
    "scale": (lambda it: it.update(time_scale=0.5), "time_scale: "),
}


@pytest.mark.parametrize("name", ODD)
def test_a_lab_that_contradicts_itself_is_refused(tmp_path: Path, name: str) -> None:
    change, problem = ODD[name]
    content = lab()
    change(content)
    with pytest.raises(DataError, match=problem) as raised:
        read(tmp_path, content)
    assert str(raised.value).startswith(str(tmp_path / "lab.json"))


def test_no_time_at_all_is_a_time(tmp_path: Path) -> None:
    content = lab() | {"wall_seconds": 0.0}
    assert read(tmp_path, content)["wall_seconds"] == 0.0
