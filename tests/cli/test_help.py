"""Help as a user reads it: plain, at 80 columns, in the order of use."""

from __future__ import annotations

import importlib
import re

import pytest
from typer.core import TyperGroup, TyperOption
from typer.main import get_command
from typer.testing import CliRunner

from emu.cli import app
from emu.cli.app import COMMANDS, GROUPS, Command, Commands

RENDERED = {"COLUMNS": "80", "TERM": "dumb"}


def helped(*arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments, "--help"], env=RENDERED)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_plain_text_of_80_columns(command: str) -> None:
    text = helped(*command.split())

    assert max(map(len, text.splitlines())) <= 80
    assert not re.search(r"`|<\w+>|-----|TEXT|INTEGER|PATH", text)


def test_help_is_plain_whatever_imported_the_commands_first() -> None:
    importlib.import_module("emu.cli.run_commands")  # a group that is made then has it
    group = get_command(app)

    assert isinstance(group, TyperGroup)
    assert type(group.commands["profile"]) is Command


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_listed_as_it_says_of_itself(command: str) -> None:
    summary = COMMANDS[command].summary

    assert f"  {summary}\n" in helped(command)
    assert len(summary) <= 64


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_with_a_value_says_which(command: str) -> None:
    made = Commands(name="emu").get_command(None, command)
    options = [p for p in made.params if isinstance(p, TyperOption)]

    assert [p.name for p in options if not p.is_flag and not p.metavar] == []
    assert [p.name for p in made.params if not p.help] == []


def test_commands_stand_in_groups_in_the_order_of_use() -> None:
    text = helped()
    places = [text.index(f"\n{title}:") for title in GROUPS]
    places += [text.index(f"\n  {name} ") for name in COMMANDS]

    assert places[: len(GROUPS)] == sorted(places[: len(GROUPS)])
    assert places[len(GROUPS) :] == sorted(places[len(GROUPS) :])


def test_a_misspelt_command_is_answered() -> None:
    done = CliRunner().invoke(app, ["simulat"])

    assert done.exit_code == 2
    assert "Did you mean 'simulate'?" in done.output


@pytest.mark.parametrize("command", ["policies", "placements"])
def test_rules_are_told_in_80_columns(command: str) -> None:
    done = CliRunner().invoke(app, [command])

    assert done.exit_code == 0
    assert max(map(len, done.output.splitlines())) <= 80
    assert ("oes" if command == "policies" else "etp") in done.output
