"""``python -m emu.emulation.launch HOST:PORT``: an agent, its token in EMU_TOKEN.

A module of its own rather than a command of the CLI's process: what the agent's
interpreter has as its main module is imported again by everything it forks.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
from collections.abc import Callable
from typing import TypeVar

from emu.emulation.launch.agent import Agent
from emu.emulation.launch.host_report import own_host_name
from emu.emulation.launch.programs import program_path
from emu.emulation.launch.signals import run_until_signalled
from emu.emulation.network.authentication import parse_address
from emu.errors import EmulatorError
from emu.host.first_moments import begin
from emu.names import check_name

T = TypeVar("T")


def _argument(read: Callable[[str], T]) -> Callable[[str], T]:
    """Return a reader of an argument whose errors keep their words."""

    def read_argument(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read_argument


def _read_patience(text: str) -> float:
    seconds = math.nan
    with contextlib.suppress(ValueError):
        seconds = float(text)
    # No time is ever later than nan or infinity: the agent would wait for ever.
    if not 0 <= seconds < math.inf:
        raise ValueError(f"found {text!r}, write seconds, 0 or more")
    return seconds


def main(arguments: list[str] | None = None) -> int:
    """Serve one run; return the exit status."""
    begin()
    parser = argparse.ArgumentParser(prog="emu agent")
    parser.add_argument(
        "coordinator", metavar="HOST:PORT", type=_argument(parse_address)
    )
    parser.add_argument("--name", default=own_host_name(), type=_argument(check_name))
    parser.add_argument("--bind", default="")
    parser.add_argument("--patience", type=_argument(_read_patience), default=10.0)
    parser.add_argument(
        "--allow", action="append", default=[], type=_argument(program_path)
    )
    options = parser.parse_args(arguments)

    def say(line: str) -> None:
        print(f"emu agent {options.name}: {line}", file=sys.stderr)  # noqa: T201 -- its terminal

    agent = Agent(
        options.coordinator,
        os.environ.pop("EMU_TOKEN", ""),  # not for those it starts
        name=options.name,
        allow=options.allow,
        bind=options.bind,
        patience=options.patience,
        say=say,
    )
    try:
        run_until_signalled(agent.run(), lambda: "serving a run")
    except (EmulatorError, KeyboardInterrupt) as error:
        print(f"emu agent: {error}", file=sys.stderr)  # noqa: T201 -- its whole output
        return error.exit_code if isinstance(error, EmulatorError) else 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
