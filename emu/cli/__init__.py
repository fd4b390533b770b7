"""The command line: each command parses, calls one function below, prints.

Decides how options read and which exit code a failure has; every `EmulatorError` ends a
command with one line on standard error. It must not know how an answer is computed.
Start at ``app.py``, which names every command; the others hold one group each.
"""

from emu.cli.app import app, main

__all__ = ["app", "main"]
