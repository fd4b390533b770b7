"""Help as plain text: paragraphs filled to the width, options with their meaning.

The types of Python (``<path>``, ``<bool>``) are left out, and so is the markup of
docstrings.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from typer.core import TyperArgument, TyperCommand
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterator

_LITERAL = re.compile(r"``?([^`]+)``?")


def write_paragraphs(text: str, formatter: Any) -> None:
    """Write the paragraphs of a docstring, without backticks and numpydoc sections."""
    told = re.split(r"\n\s*\w+\n\s*---", _LITERAL.sub(r"\1", text))[0]
    for paragraph in re.split(r"\n\s*\n", told.strip()):
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(" ".join(paragraph.split()))


def write_parameters(parameters: list[Any], formatter: Any) -> None:
    """Write arguments and options as two columns."""
    arguments = [p for p in parameters if isinstance(p, TyperArgument)]
    options = [p for p in parameters if not isinstance(p, TyperArgument)]
    for title, found, rows in (
        ("Arguments", arguments, _argument_rows(arguments)),
        ("Options", options, _option_rows(options)),
    ):
        if found:
            with formatter.section(title):
                formatter.write_dl(list(rows))


def _argument_rows(arguments: list[Any]) -> Iterator[tuple[str, str]]:
    for argument in arguments:
        yield argument.metavar or argument.name.upper(), argument.help or ""


def _option_rows(options: list[Any]) -> Iterator[tuple[str, str]]:
    for option in options:
        if getattr(option, "hidden", False):
            continue
        named = "/".join([*option.opts, *option.secondary_opts])
        if option.metavar:
            named += f" {option.metavar}"
        meaning = getattr(option, "help", None) or ""
        if option.metavar and option.default:
            meaning += f" [default: {option.default}]"
        yield named, _LITERAL.sub(r"\1", meaning)


class Command(TyperCommand):
    """One command, with plain help."""

    @override
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what follows the name in the usage line."""
        arguments = [p for p in self.params if isinstance(p, TyperArgument)]
        names = [p.metavar or (p.name or "").upper() for p in arguments]
        shown = [
            name if argument.required or name[0] == "[" else f"[{name}]"
            for name, argument in zip(names, arguments, strict=True)
        ]
        return ["[OPTIONS]", *shown]

    @override
    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, description, arguments and options."""
        self.format_usage(ctx, formatter)
        write_paragraphs(self.help or "", formatter)
        write_parameters(self.get_params(ctx), formatter)
