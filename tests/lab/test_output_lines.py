"""Lines that programs of a lab print: whole in their files, each with its time."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from emu.errors import DataError
from emu.lab.fitting.steps import ALL, Marks
from emu.lab.output_lines import OutputLines, last_words, marks_of
from emu.prediction.analysis.traffic import OWNER, PACKET, Traffic
from emu.runs.array_files import write_lines
from emu.runs.run_directory import RunDirectory


def test_output_is_copied_and_lines_are_timed(tmp_path: Path) -> None:
    clock = count()
    lines = OutputLines(lambda: float(next(clock)))
    ends = [lines.add(tmp_path / name) for name in ("a.log", "b.log")]
    texts = [b"1\n2\n3", b"x" * 300_000 + b"\n"]
    for end, text in zip(ends, texts, strict=True):
        with os.fdopen(end, "wb") as file:
            file.write(text)

    times = lines.close()

    assert [(tmp_path / name).read_bytes() for name in ("a.log", "b.log")] == texts
    assert [len(each) for each in times] == [2, 1]


def lab_of(run: Path, logs: dict[str, tuple[str, list[float]]]) -> Path:
    """Write a run directory of programs that printed this at these times."""
    run.mkdir()
    programs = [
        {"program": name, "machine": "m", "start": 0.0, "end": 1.0, "code": 0}
        for name in logs
    ]
    stopped = [one | {"stopped": False} for one in programs]
    numbers = ("wall_seconds", "startup_seconds", "computed_seconds")
    lab = dict.fromkeys([*numbers, "waited_seconds", "waited_share"], 1.0)
    RunDirectory(run).write_json(
        "lab.json",
        lab
        | {key: {} for key in ("dropped", "traffic", "tcp")}
        | {
            "sharing": "fair",
            "trust": "trusted",
            "nics": {"m": {"out": 1.0, "in": 1.0}},
        }
        | {"programs": stopped, "failed": None, "events": []},
    )
    for name, (text, _) in logs.items():
        (run / f"{name}-m.log").write_text(text)
    times: list[NDArray[np.float64]] = [np.array(each) for _, each in logs.values()]
    write_lines(run, times)
    return run


def marks(run: Path, text: str, *programs: str) -> Marks:
    """Return the marks of programs of which a and b sent something."""
    nothing = np.zeros(0, PACKET), ("m",), np.ones((2, 1))
    traffic = Traffic(*nothing, ("a", "b"), np.zeros(0, OWNER))
    ran = [
        (name, "m")
        for name in programs or ("a", "b")
        if (run / f"{name}-m.log").exists()
    ]
    return marks_of(run, text, ran, traffic)


def test_marks_are_of_the_processes_that_print_some(tmp_path: Path) -> None:
    logs = {
        "a": ("step\nstep", [0.5]),  # the second has no end yet
        "b": ("begin\nstep 1\n.\nstep 2\n", [0.1, 0.2, 0.3, 0.4]),
    }
    run = lab_of(tmp_path / "run", logs)

    assert [*marks(run, "step")] == [(0, 0), (0, 1)]
    assert marks(run, "step ")[0, 1].tolist() == [0.2, 0.4]
    with pytest.raises(DataError, match=r"'epoch', .* among 5 lines of 2 programs"):
        marks(run, "epoch")


def test_a_program_that_sends_nothing_may_print_the_marks(tmp_path: Path) -> None:
    run = lab_of(tmp_path / "run", {"c": ("step\nstep\n", [0.1, 0.2])})

    found = marks(run, "step", "c")

    assert {one: at.tolist() for one, at in found.items()} == {ALL: [0.1, 0.2]}


def test_marks_that_a_program_kept_back_are_refused(tmp_path: Path) -> None:
    run = lab_of(tmp_path / "run", {"a": ("step\n" * 9, [0.5] * 8 + [0.6])})

    with pytest.raises(DataError, match=r"its 9 lines .* flush after each"):
        marks(run, "step")


@pytest.mark.parametrize("time", [np.array([1, 2]), np.array([-1.0]), np.zeros((1, 1))])
def test_a_damaged_file_of_lines_is_refused(
    time: NDArray[np.float64], tmp_path: Path
) -> None:
    run = lab_of(tmp_path / "run", {"a": ("step\n", [0.5])})
    program = np.zeros(len(time), np.uint16)
    RunDirectory(run).write_arrays("lines.npz", program=program, time=time)

    with pytest.raises(DataError, match=r"lines\.npz.*is damaged"):
        marks(run, "step")


FRAME = "E1130 3 api.py:1002] failed (exitcode: -9) local_rank: 0 (pid: 4)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        ("\n  \n", ""),
        ("one\ntwo\n\n", "two"),
        (f"Error: no a\n{FRAME}\n==\n", "Error: no a"),
        # Of a rank that was started again, what it said the last time.
        (f"a\n{FRAME}\nb\n{FRAME}\n==\n", "b"),
        (f"{FRAME}\n==\n", FRAME),
    ],
)
def test_the_last_words_of_a_rank_stand_above_the_frame_of_torchrun(
    text: str, words: str
) -> None:
    assert last_words(text) == words
