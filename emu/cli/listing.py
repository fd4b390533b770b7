"""Every command: its group, its module and one line on it, in the order of use.

``emu --help`` shows this table and imports none of the modules, nor numpy: it
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


#: Groups; below each the start of a module's name, a command of it, and the line.
_TABLE = """\
Write a scenario
    scenario init       Copy a shipped scenario or lab into this directory, to edit.
    scenario validate   Check scenario and lab files; print every error in them.
    scenario schema     Print the JSON Schema of scenario and lab files, for editors.
    scenario docs       Show a document of emu, or list them.
    scenario import     Bring a graph of your own in, for job.dataset: NAME.
    scenario data       List graphs, or clear what was imported and prepared.
    predict  policies   Explain every rate policy in two lines.
    predict  placements Explain every placement policy in two lines.
Predict it, in virtual time
    predict  simulate   Simulate a scenario.
    predict  place      Place the tasks; print where they are, and the loads.
What if?
    what_if  explain    Explain why a run takes so long, and what would help.
    what_if  compare    Compare placements and policies, or recorded runs.
    what_if  crossover  Find the value of a key from which another system is faster.
    sweep    sweep      Carry out many variations of a scenario.
Run it, over sockets
    run      run        Run a scenario over sockets; compare with the prediction.
    run      profile    Measure task times and volumes by real computation.
    run      agent      Join a run on another host as one of its hosts.
Run your own programs
    lab      lab        Run your own programs on emulated machines with kernel NICs.
    lab      exec       Run a command beside a lab that is running.
    lab      fit        Make a scenario of what crossed in a lab.
Look at a run
    report   report     Write a run as a page, a trace, a figure or tables.
    audit    audit      Check a schedule against the paper's constraints.
    audit    evaluate   Evaluate a run's weights on the whole graph.
This host
    host     clean      Remove files that a killed process or a power cut left.
"""


def _groups(table: str) -> dict[str, dict[str, Listed]]:
    groups: dict[str, dict[str, Listed]] = {}
    for line in table.splitlines():
        if line.startswith(" "):
            module, name, summary = line.split(maxsplit=2)
            groups[[*groups][-1]][name] = Listed(f"{module}_commands", summary)
        else:
            groups[line] = {}
    return groups


GROUPS = _groups(_TABLE)
#: Name -> command, in the same order.
COMMANDS: dict[str, Listed] = {
    name: listed for group in GROUPS.values() for name, listed in group.items()
}
