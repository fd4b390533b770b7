"""Lines while a command works for long: ever more seldom, and none on a terminal."""

from __future__ import annotations

import io
import re
import sys
import threading
import time

import pytest
import typer
from typer.testing import CliRunner
from typing_extensions import override

from emu.cli import signs_of_life
from emu.cli.app import COMMANDS, Command, app
from emu.cli.signs_of_life import note_stage


class _Terminal(io.StringIO):
    @override
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stage", ["", "point 3 of 7"])
def test_lines_come_ever_more_seldom(
    monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    with signs_of_life.signs_of_life("sweep", first=0.01):
        note_stage(stage)
        while len(said.getvalue().splitlines()) < 4:
            time.sleep(0.01)
    after = [float(n) for n in re.findall(r"at work for (\S+) s", said.getvalue())]
    assert after[:4] == pytest.approx([0.01, 0.03, 0.09, 0.27])
    assert all(line.endswith(stage) for line in said.getvalue().splitlines()[1:])
    assert not [one for one in threading.enumerate() if "_tell" in one.name]


def test_nothing_is_said_on_a_terminal_or_where_it_is_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for stream, first in ((_Terminal(), 0.001), (io.StringIO(), 10.0)):
        monkeypatch.setattr(sys, "stderr", stream)
        with signs_of_life.signs_of_life("explain", first=first):
            time.sleep(0.02)
        assert stream.getvalue() == ""


@pytest.mark.parametrize("command", [*COMMANDS])
def test_every_command_is_one_that_shows_life(command: str) -> None:
    group = typer.main.get_command(app)
    found = group.get_command(typer.Context(group), command)  # type: ignore[attr-defined]
    assert isinstance(found, Command)


def test_a_closed_standard_error_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed = io.StringIO()
    closed.close()
    with signs_of_life.signs_of_life("place", first=60.0):
        monkeypatch.setattr(sys, "stderr", closed)
    assert CliRunner().invoke(app, ["policies"]).exit_code == 0
