"""Seeds of the study of kernel NICs: of the commit's date, and new ones every day."""

from __future__ import annotations

import itertools
import subprocess
from typing import Any

import pytest

from emu.errors import EmulatorError
from tools.studies import kernel


def test_seeds_are_of_the_date_of_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(*_: Any, **__: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 0, "20261125\n")

    monkeypatch.setattr(subprocess, "run", said)
    first = kernel.first_seed()
    assert first == 20261125000

    names = [name for name, *_ in itertools.islice(kernel.singles(2, 1.0, first), 3)]
    assert names[1:] == ["drawn-20261125000@{}/0", "drawn-20261125002@{}/0"]


def test_without_a_commit_seeds_are_to_be_stated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", fails)
    with pytest.raises(EmulatorError, match="state --first"):
        kernel.first_seed()
