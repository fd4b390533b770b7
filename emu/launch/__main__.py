"""``python -m emu.launch HOST:PORT``: an agent, its token in EMU_TOKEN.

A module of its own rather than a command of the CLI's process: what the agent's
interpreter has as its main module is imported again by everything it forks.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

import uvloop

from emu.errors import EmulatorError
from emu.launch.agent import Agent


def main(arguments: list[str] | None = None) -> int:
    """Serve one run; return the exit status."""
    parser = argparse.ArgumentParser(prog="emu agent")
    parser.add_argument("coordinator", metavar="HOST:PORT")
    parser.add_argument("--bind", default="")
    parser.add_argument("--patience", type=float, default=10.0)
    options = parser.parse_args(arguments)
    host, _, port = options.coordinator.rpartition(":")
    if not (host and port.isdigit()):
        parser.error(f"{options.coordinator} is not HOST:PORT")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    agent = Agent(
        (host, int(port)),
        os.environ.get("EMU_TOKEN", ""),
        bind=options.bind,
        patience=options.patience,
    )
    try:
        uvloop.run(agent.run())
    except EmulatorError as error:
        print(f"emu agent: {error}", file=sys.stderr)  # noqa: T201 -- its whole output
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
