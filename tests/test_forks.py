"""Forks run every test once, and report what one that dies has left: tests/forks.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.forks import Ranges

ROOT = Path(__file__).resolve().parent.parent
TESTS = """
import os, signal, pytest

@pytest.fixture(scope="module")
def torn_down(tmp_path_factory):
    yield
    folder = tmp_path_factory.getbasetemp()
    (folder.parent / f"torn_down_{folder.name}").touch()

@pytest.mark.parametrize("number", range(12))
def test_it(number, torn_down, tmp_path):
    print("printed by", number)
    if number == 1:
        pytest.skip("of a reason")
    assert number != 3
    if number == 8:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@given(st.integers(0, 40), st.integers(1, 4), st.data())
def test_every_position_is_taken_once(
    tests: int, workers: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryFile() as lock:
        ranges = Ranges(tests, workers, lock)
        taken = []
        working = [*range(workers)]
        while working:
            worker = data.draw(st.sampled_from(working))
            position = ranges.take(worker)
            if position is None:
                working.remove(worker)
            else:
                taken.append(position)

    assert sorted(taken) == [*range(tests)]


def test_a_fork_that_dies_fails_what_it_has_left(tmp_path: Path) -> None:
    """Of twelve tests one fails, and two are those of the fork that dies."""
    hooks = "from tests.forks import pytest_addoption, pytest_runtestloop"
    (tmp_path / "conftest.py").write_text(hooks)
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "test_some.py").write_text(TESTS)
    words = ["-m", "pytest", "-q", "--forks", "2", "--basetemp", "base"]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1, done.stdout + done.stderr
    failed = re.findall(r"^FAILED \S+\[(\d+)\] - (.*)", done.stdout, re.MULTILINE)
    assert dict(failed[:2]) == {
        "3": "assert 3 != 3",
        "8": "its worker died while it ran",
    }
    assert [text for _, text in failed[2:]] == ["its worker died before it ran"]
    assert "3 failed, 8 passed, 1 skipped" in done.stdout
    assert re.findall("printed by .*", done.stdout) == ["printed by 3"]
    # The other has torn down what its tests had set up, in its own folder.
    assert len([*tmp_path.glob("base/torn_down_worker*")]) == 1
