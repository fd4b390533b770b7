"""Texts of programs that a scenario names: its models, and its rule for rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from emu.errors import DataError
from emu.problem.fields.section import Trail
from emu.scenario.document import Document, value_in, values_in
from emu.scenario.own_rules import rule_file
from emu.systems.model_section import program_text

#: Texts of programs, ``FILE:NAME``.
Texts: TypeAlias = Mapping[str, str]
#: Keys of a job beside which figures of its model stay what they are.
_KEPT = {
    "iterations",
    "epochs",
    "epoch",
    "credit_window",
    "optimizer",
    "partitioner",
    "workers",
    "sync",
    "ring",
    "parameter_servers",
    "demands",
    "times",
    "machines",
    "sampling",
}


def list_noted_texts(content: Any) -> Iterator[tuple[str, str]]:
    """Yield every program with its text, where a resolved scenario has both."""
    if isinstance(content, dict):
        program = content.get("program", content.get("policy"))
        text = content.get("source")
        if isinstance(program, str) and isinstance(text, str):
            yield program, text
    for value in values_in(content):
        yield from list_noted_texts(value)


def _text_of(program: str, noted: Texts) -> dict[str, str]:
    """Return the text of a program as its section has it; nothing without a file."""
    try:
        text = noted.get(program) or program_text(program)
    except DataError:  # an error of the checks that follow
        return {}
    return {"source": text}


def read_program(document: Document, trail: Trail, noted: Texts) -> None:
    """Put the text of a program into a document, where there is one at ``trail``.

    What was noted of another program is forgotten. A file that cannot be read is an
    error of the checks that follow.
    """
    model = value_in(document.data, trail)
    if not isinstance(model, dict):
        return
    program = model.get("program")
    if not isinstance(program, str):
        return

    # Its text is of the program that the file named.
    if (*trail, "program") in document.options:
        model.pop("source", None)
    job = trail[:-1]
    for option in document.options:  # of what figures were measured with
        is_of_job = job[: len(option)] == option[: len(job)]
        keys = option[len(job) :]
        is_kept = bool(keys) and keys[0] in _KEPT
        if is_of_job and not is_kept:
            model.pop("measured", None)
    if not isinstance(model.get("source"), str):
        model.pop("source", None)
        model.update(_text_of(program, noted))


def read_rule(document: Document, folder: Path, noted: Texts) -> None:
    """Put the text of a rule of one's own into a document, where it is in a file."""
    schedule = document.data.get("schedule")
    if not isinstance(schedule, dict):
        return
    policy = schedule.get("policy")
    if not isinstance(policy, str):
        return

    is_option = document.is_option(("schedule", "policy"))
    # Text in the file is of the rule that the option replaces.
    if is_option:
        schedule.pop("source", None)
    # A resolved scenario brings its text along: the file may be another by now.
    if isinstance(schedule.get("source"), str):
        return

    folder_of_rule = Path() if is_option else folder
    file = rule_file(policy, folder_of_rule, noted)
    if file is not None:
        _, _, name = policy.rpartition(":")
        rule = f"{file}:{name}"
        schedule["policy"] = rule
        schedule.update(_text_of(rule, noted))
