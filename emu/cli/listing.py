"""Every command: its group, its module and one line on it, in the order of use.

``emu --help`` shows this table and imports none of the modules, nor numpy or numba: it
takes 0.06 s where it took 1.02 s. The line is also the
first of the command's docstring; a test compares the two.
"""

from __future__ import annotations

from typing import NamedTuple


class Listed(NamedTuple):
    """One command."""

    module: str
    """Module of `emu.cli` that registers it."""
    summary: str
    """Purpose, in a line of at most 64 characters."""


GROUPS: dict[str, dict[str, Listed]] = {
    "Write a scenario": {
        "init": Listed(
            "scenario_commands",
            "Copy a shipped scenario or lab into this directory, to edit.",
        ),
        "validate": Listed(
            "scenario_commands",
            "Check scenario and lab files; print every error in them.",
        ),
        "schema": Listed(
            "scenario_commands",
            "Print the JSON Schema of scenario and lab files, for editors.",
        ),
        "docs": Listed("scenario_commands", "Show a document of emu, or list them."),
        "import": Listed(
            "data_commands", "Bring a graph of your own in, for job.dataset: NAME."
        ),
        "data": Listed(
            "data_commands", "List graphs, or clear what was imported and prepared."
        ),
        "policies": Listed("rule_commands", "Explain every rate policy in two lines."),
        "placements": Listed(
            "rule_commands", "Explain every placement policy in two lines."
        ),
    },
    "Predict it, in virtual time": {
        "simulate": Listed("simulate_commands", "Simulate a scenario."),
        "place": Listed(
            "place_commands", "Place the tasks; print where they are, and the loads."
        ),
        "explain": Listed(
            "explain_commands", "Explain why a run takes so long, and what would help."
        ),
        "compare": Listed(
            "compare_commands", "Compare placements and policies, or recorded runs."
        ),
        "crossover": Listed(
            "compare_commands",
            "Find the value of a key from which another system is faster.",
        ),
        "sweep": Listed("sweep_commands", "Carry out many variations of a scenario."),
    },
    "Run it, over sockets": {
        "warm": Listed(
            "warm_commands",
            "Compile now what would be compiled at its first use.",
        ),
        "doctor": Listed(
            "doctor_commands",
            "Measure this host: what a run is made of, piece by piece.",
        ),
        "run": Listed(
            "run_commands", "Run a scenario over sockets; compare with the prediction."
        ),
        "profile": Listed(
            "run_commands", "Measure task times and volumes by real computation."
        ),
        "agent": Listed(
            "run_commands", "Join a run on another host as one of its hosts."
        ),
        "lab": Listed(
            "lab_commands",
            "Run your own programs on emulated machines with kernel NICs.",
        ),
        "exec": Listed("exec_commands", "Run a command beside a lab that is running."),
        "fit": Listed("fit_commands", "Make a scenario of what crossed in a lab."),
        "clean": Listed(
            "clean_commands", "Remove files that a killed process or a power cut left."
        ),
    },
    "Look at a run": {
        "report": Listed("report_commands", "Write report.html, which opens offline."),
        "evaluate": Listed(
            "evaluate_commands", "Evaluate a run's weights on the whole graph."
        ),
        "audit": Listed(
            "audit_commands", "Check a schedule against the paper's constraints."
        ),
        "plot": Listed("plot_commands", "Draw runs for a paper."),
        "trace": Listed("report_commands", "Write trace.json, for ui.perfetto.dev."),
    },
}

#: Name -> command, in the same order.
COMMANDS: dict[str, Listed] = {
    name: listed for group in GROUPS.values() for name, listed in group.items()
}
