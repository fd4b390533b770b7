"""The application that commands register with, and how a command ends."""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.core import TyperGroup
from typing_extensions import override

from emu.errors import EmulatorError

#: As shells have it: 128 + SIGINT.
INTERRUPTED = 130


class Commands(TyperGroup):
    """Ends a command that fails with one line and the exit code of its error."""

    @override
    def invoke(self, ctx: Any) -> Any:
        """Run the command.

        Raises
        ------
        Exit
            With the error's ``exit_code``, or 130 after Ctrl-C.
        """
        try:
            return super().invoke(ctx)
        except EmulatorError as error:
            for line in str(error).splitlines():
                typer.echo(f"emu: {line}", err=True)
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt as error:
            typer.echo(f"emu: {error}" if str(error) else "emu: interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from error


app = typer.Typer(
    name="emu",
    cls=Commands,
    help="Run distributed GNN training on an emulated cluster, beside its simulation.",
    epilog="Exit codes: 0 good, 2 bad scenario or usage, 3 bad data, 4 infeasible "
    "placement, 5 failed run, 6 missed expectation, "
    "7 untrusted run, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command that the arguments of this process name."""
    sys.exit(app())
