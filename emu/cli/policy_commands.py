"""``emu policies`` and ``emu placements``: what scenarios may choose, without numpy."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from textwrap import TextWrapper
from typing import Any

import typer

from emu.cli import options
from emu.cli.app import app
from emu.errors import EmulatorError
from emu.prediction.placement_policies import PLACEMENT_POLICIES
from emu.prediction.rate_policies import GROUP, RATE_POLICIES, Policy


@app.command()
def policies(json_target: options.JsonTarget = None) -> None:
    """Explain every rate policy in two lines.

    A scenario chooses one with schedule.policy, or names a class of its own. Theorem 1
    of the DGTP paper bounds the makespan of those that keep it.
    """
    known_policies = dict(RATE_POLICIES)
    faults = _add_installed(known_policies)
    rules: dict[str, dict[str, Any]] = {}
    for name, rule in known_policies.items():
        rules[name] = {
            "summary": rule.summary,
            "source": rule.source,
            "knows": rule.knows,
            "theorem1": rule.keeps_theorem,
        }
    _explain(json_target, rules)

    # Last: one package's fault hides no rule of others.
    for fault in faults:
        typer.echo(f"emu: {fault}", err=True)
    if faults:
        raise typer.Exit(faults[0].exit_code)


@app.command()
def placements(json_target: options.JsonTarget = None) -> None:
    """Explain every placement policy in two lines.

    A scenario chooses one with placement.policy.
    """
    rules = {name: policy._asdict() for name, policy in PLACEMENT_POLICIES.items()}
    _explain(json_target, rules)


def _add_installed(known_policies: dict[str, Policy]) -> list[EmulatorError]:
    """Add the policies of installed packages; return why some cannot be loaded."""
    if not entry_points(group=GROUP):
        return []
    # To load rules of one's own takes numpy and half a second.
    from emu.prediction.scheduling import policy_named  # noqa: PLC0415
    from emu.scenario.own_rules import list_installed  # noqa: PLC0415

    faults: list[EmulatorError] = []
    for name in list_installed():
        try:
            known_policies[name] = policy_named(name)
        except EmulatorError as fault:
            faults.append(fault)
    return faults


def _explain(json_target: str | None, rules: Mapping[str, dict[str, Any]]) -> None:
    if not options.emit(json_target, rules):
        return
    width = 2 + max(map(len, rules))
    for name, rule in rules.items():
        source = rule["source"]
        knowledge = rule["knows"]
        if knowledge != "nothing":
            source += f"; needs {knowledge}"
        if rule.get("theorem1"):
            source += "; keeps Theorem 1"
        _print_beside(name, rule["summary"], width)
        _print_beside("", source, width)


def _print_beside(head: str, text: str, width: int) -> None:
    """Print a text in a column of its own, behind a head of so many letters."""
    wrapper = TextWrapper(
        width=80,  # as help has
        initial_indent=head.ljust(width),
        subsequent_indent=" " * width,
    )
    typer.echo(wrapper.fill(text))
