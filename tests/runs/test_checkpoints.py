"""Checkpoints on disk: whole, or passed over."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import DataError
from emu.problem.job import Cut
from emu.runs.run_directory import drop_cuts, newest_cut, write_cut

JOB, OWNERS = "job", ("ps0", "ps1")


def cut(iteration: int) -> Cut:
    arrays = {"parameters": np.arange(9.0) + iteration, "steps": np.array([iteration])}
    return Cut(iteration, {"ps0": arrays, "ps1": {"parameters": np.ones((2, 3))}})


def newest(run: Path, said: list[str] | None = None, **changes: Any) -> Cut:
    say = (said if said is not None else []).append
    stated = {"job": JOB, "owners": OWNERS, **changes}
    return newest_cut(run, stated["job"], stated["owners"], say)


def written(run: Path, *iterations: int) -> None:
    for iteration in iterations:
        write_cut(run, JOB, cut(iteration))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    written(tmp_path, 20, 40, 60)
    found = newest(tmp_path)
    assert found.iteration == 60
    for task, arrays in cut(60).states.items():
        assert found.states[task].keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(found.states[task][name], array)
    folders = sorted(each.name for each in (tmp_path / "checkpoints").iterdir())
    assert folders == ["00000040", "00000060"]


def test_before_any_it_begins_anew(tmp_path: Path) -> None:
    assert newest(tmp_path).iteration == 0


def test_without_a_commit_record_it_does_not_count(tmp_path: Path) -> None:
    written(tmp_path, 20, 40)
    (tmp_path / "checkpoints/00000040/commit.json").unlink()
    assert newest(tmp_path).iteration == 20
    (tmp_path / "checkpoints/00000020/commit.json").unlink()
    assert newest(tmp_path).iteration == 0
    written(tmp_path, 40)
    assert newest(tmp_path).iteration == 40


def _edit(run: Path, **changes: Any) -> None:
    path = run / "checkpoints/00000040/commit.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "is not what was committed": lambda run: (
        run / "checkpoints/00000040/ps1.npz"
    ).write_bytes(b"x"),
    "cannot be read": lambda run: (run / "checkpoints/00000040/ps0.npz").unlink(),
    "is of another job": lambda run: _edit(run, job="other"),
    "is of iteration 41": lambda run: _edit(run, iteration=41),
    "is not JSON": lambda run: (run / "checkpoints/00000040/commit.json").write_text(
        "{"
    ),
    "parts": lambda run: _edit(run, parts=[]),
}


@pytest.mark.parametrize("problem", DAMAGES)
def test_a_damaged_one_is_passed_over_or_one_error(
    tmp_path: Path, problem: str
) -> None:
    written(tmp_path, 20, 40)
    DAMAGES[problem](tmp_path)
    said: list[str] = []
    assert newest(tmp_path, said).iteration == 20
    assert len(said) == 1
    assert problem in said[0]
    assert "00000040" in said[0]
    (tmp_path / "checkpoints/00000020/commit.json").unlink()
    with pytest.raises(DataError, match=problem):
        newest(tmp_path)


@given(st.data())
def test_no_damage_is_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any byte of any file of the newest, or any cut-off of it: the older one counts.

    Of a commit record some bytes are blanks: it means the same then.
    """
    run = tmp_path_factory.mktemp("run")
    written(run, 20, 40)
    files = sorted((run / "checkpoints/00000040").iterdir())
    path = data.draw(st.sampled_from(files))
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= data.draw(st.integers(1, 255))
    else:
        del content[place:]
    path.write_bytes(content)
    found = newest(run)
    assert found.iteration == 20 or path.name == "commit.json"
    for task, arrays in cut(found.iteration).states.items():
        for name in found.states[task]:
            np.testing.assert_array_equal(found.states[task][name], arrays[name])


def test_of_another_job(tmp_path: Path) -> None:
    written(tmp_path, 20)
    with pytest.raises(DataError, match="is of another job"):
        newest(tmp_path, job="other")
    with pytest.raises(DataError, match="is of another job"):
        newest(tmp_path, owners=("w0",))


def test_cuts_are_dropped_where_there_are_some(tmp_path: Path) -> None:
    drop_cuts(tmp_path)
    written(tmp_path, 20, 40)
    (tmp_path / "result.json").write_text("{}")
    drop_cuts(tmp_path)
    assert [*(tmp_path / "checkpoints").iterdir()] == []
    assert (tmp_path / "result.json").exists()
    assert newest(tmp_path).iteration == 0
