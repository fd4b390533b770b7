"""The command line: each command parses, calls one function below, prints.

One file per command group. Every `EmulatorError` ends a command with one line on
standard error and its own exit code.
"""

from emu.cli import (  # noqa: F401 - importing a module registers its commands
    audit_commands,
    compare_commands,
    doctor_commands,
    explain_commands,
    place_commands,
    plot_commands,
    report_commands,
    run_commands,
    scenario_commands,
    simulate_commands,
    sweep_commands,
    trace_commands,
)
from emu.cli.app import app, main

__all__ = ["app", "main"]
