"""The command line: each command parses, calls one function below, prints.

One file per command group; `app` names them all. Every `EmulatorError` ends a
command with one line on standard error and its own exit code.
"""

from emu.cli.app import app, main

__all__ = ["app", "main"]
