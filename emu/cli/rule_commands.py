"""``emu policies`` and ``emu placements``: the rules, and their sources."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

import typer

from emu.cli.app import app
from emu.cli.options import JsonTarget, emit
from emu.placement.place import PLACEMENT_POLICIES
from emu.scenario.own_rules import known_policies
from emu.scheduling import policy_named

if TYPE_CHECKING:
    from collections.abc import Mapping


@app.command()
def policies(json_target: JsonTarget = None) -> None:
    """Explain every rate policy in two lines.

    A scenario chooses one with schedule.policy, or names a class of its own. Theorem 1
    of the DGTP paper bounds the makespan of those that keep it.
    """
    rules = {
        name: {
            "summary": policy.summary,
            "source": policy.source,
            "knows": policy.knows,
            "theorem1": policy.keeps_theorem,
        }
        for name, policy in ((name, policy_named(name)) for name in known_policies())
    }
    if emit(json_target, rules):
        _print(rules)


@app.command()
def placements(json_target: JsonTarget = None) -> None:
    """Explain every placement policy in two lines.

    A scenario chooses one with placement.policy.
    """
    rules = {name: policy._asdict() for name, policy in PLACEMENT_POLICIES.items()}
    if emit(json_target, rules):
        _print(rules)


def _print(rules: Mapping[str, Mapping[str, object]]) -> None:
    indent = " " * (2 + max(map(len, rules)))
    for name, rule in rules.items():
        source = str(rule["source"])
        if rule["knows"] != "nothing":
            source += f"; needs {rule['knows']}"
        if rule.get("theorem1"):
            source += "; keeps Theorem 1"
        typer.echo(
            fill(
                str(rule["summary"]),
                80,
                initial_indent=name.ljust(len(indent)),
                subsequent_indent=indent,
            )
        )
        typer.echo(fill(source, 80, initial_indent=indent, subsequent_indent=indent))
