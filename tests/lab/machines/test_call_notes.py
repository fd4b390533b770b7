"""Notes of socket calls, read from files as programs write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.lab.machines import call_notes
from emu.lab.machines.call_notes import NOTE, CallNotes
from emu.prediction.analysis.traffic import RECEIVE, SEND, WAIT

#: Addresses of machines 0 and 2, and of a stranger.
FIRST, THIRD, STRANGER = (
    (10 << 24) + (77 << 16) + 1,
    (10 << 24) + (77 << 16) + 3,
    5 << 24,
)


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CallNotes:
    """Return notes whose files are written by hand, by a library that is there."""
    library = tmp_path / "notes.so"
    library.touch()
    monkeypatch.setattr(call_notes, "LIBRARY", library)
    return CallNotes()


def write(notes: CallNotes, name: str, *rows: dict[str, int], count: int = -1) -> Path:
    """Write the notes of a process; their number stands in front."""
    content = np.zeros(1 + len(rows), NOTE)
    content["begin"][0] = len(rows) if count < 0 else count
    for place, row in enumerate(rows, 1):
        for key, value in row.items():
            content[key][place] = value
    path = Path(notes.environment["EMU_CALLS"], name)
    path.write_bytes(content.tobytes())
    return path


def call(
    begin: int, end: int, kind: int, peer: int = 0, **known: int
) -> dict[str, int]:
    """Return a call in milliseconds since 1000 s."""
    milliseconds = 1_000_000
    return {
        "begin": 10**12 + begin * milliseconds,
        "end": 10**12 + end * milliseconds if end else 0,
        "kind": kind,
        "peer": peer,
        "host": 3,
        **known,
    }


def test_calls_between_machines_are_rows_by_time(notes: CallNotes) -> None:
    """Waits have no other end; what is of strangers, or was cut off, is none."""
    write(
        notes,
        "70.a.train",
        call(30, 40, SEND, FIRST, bytes=5, port=80, peer_port=90, thread=71),
        call(10, 20, WAIT, thread=72),
        call(50, 60, SEND, STRANGER),
        call(70, 0, SEND, FIRST),
    )
    write(notes, "8.b.serve.x", call(-5, 15, RECEIVE, THIRD, bytes=6, host=1))
    write(notes, "9.c.alone", call(1, 2, SEND, STRANGER), call(3, 4, WAIT))

    calls, programs = notes.read(1000.0)

    assert programs == ["train", "serve.x"]
    assert calls["kind"].tolist() == [RECEIVE, WAIT, SEND]
    assert calls["program"].tolist() == [1, 0, 0]
    assert calls["process"].tolist() == [8, 70, 70]
    assert calls["thread"].tolist() == [0, 72, 71]
    assert calls["machine"].tolist() == [0, 2, 2]
    assert calls["peer"].tolist() == [2, 0, 0]
    assert calls["bytes"].tolist() == [6, 0, 5]
    assert (calls["port"][2], calls["peer_port"][2]) == (80, 90)
    np.testing.assert_allclose(calls["begin"], [0.0, 0.010, 0.030], atol=1e-9)
    np.testing.assert_allclose(calls["end"], [0.015, 0.020, 0.040], atol=1e-9)
    assert notes.problem({"train", "serve.x"}) == ""
    assert notes.problem({"train", "b", "a"}).startswith("socket calls of a, b are not")


def test_calls_that_found_no_room_leave_all_out(
    notes: CallNotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three calls of two processes found no room; two calls of each have room."""
    monkeypatch.setattr(call_notes, "MOST_NOTES", 2)
    row = call(1, 2, SEND, FIRST)
    write(notes, "1.a.p", row, row, row, count=4)
    write(notes, "2.a.p", row, row, row, count=3)
    calls, programs = notes.read(1000.0)
    assert (len(calls), programs) == (0, [])
    assert notes.problem({"p"}).startswith("3 socket calls found no room")


def test_a_file_that_is_cut_off_has_whole_notes(
    notes: CallNotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its count says more; where as many as fit are noted all are used."""
    monkeypatch.setattr(call_notes, "MOST_NOTES", 2)
    row = call(1, 2, SEND, FIRST)
    path = write(notes, "1.a.p", row, row)
    path.write_bytes(path.read_bytes()[:-1])
    write(notes, "2.a.p", row, row)
    calls, _ = notes.read(1000.0)
    assert calls["process"].tolist() == [1, 2, 2]


def test_the_library_is_preloaded_before_others(
    notes: CallNotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lab without the library notes no calls and says so."""
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    library: Any = call_notes.LIBRARY
    assert notes.environment["LD_PRELOAD"] == str(library)
    monkeypatch.setenv("LD_PRELOAD", "other.so")
    assert notes.environment["LD_PRELOAD"] == f"{library}:other.so"
    library.unlink()
    assert notes.environment == {}
    assert "built without the library" in notes.problem(set())
    notes.close()
