"""Which commands can be forked, and what a process that was forked runs."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence

AGENT = "emu.emulation.launch"
RANKS = "emu.virtual.rank.rank_main"
FORK_SERVER = "from emu.emulation.launch.fork_server import main; main()"
#: What is imported ahead of each module. Not that module itself: runpy runs it anew.
IMPORTS = {
    AGENT: (
        "emu.emulation.launch.agent",
        "emu.emulation.launch.signals",
        "emu.host.first_moments",
        "emu_nodes.runtime",
        "encodings.idna",
        "numpy.random",
        "torch",
        "emu.graph_data",
    ),
    RANKS: (
        "emu.virtual.control",
        "torch",
        "torch._dynamo",
        "torch._inductor",
        "torch.distributed.rpc",
        "torch.nn.parallel",
        "torch.optim",
        "emu.virtual.rank.deposits",
        "emu.virtual.rank.rank_clock",
        "emu.virtual.rank.rank_end",
        "emu.virtual.rank.takeover",
    ),
}


def module_of(command: Sequence[str]) -> str:
    """Return the module that a command runs which can be forked; empty of another."""
    interpreter, *rest = command
    if interpreter == sys.executable and rest[:2] == ["-P", "-m"] and len(rest) > 2:
        module = rest[2]
        if module in IMPORTS:
            return module
    return ""


def is_fork_server(command: Sequence[str]) -> bool:
    """Return True for the command by which an agent starts its fork server."""
    return [*command] == [sys.executable, "-P", "-c", FORK_SERVER]


def run_main(command: Sequence[str]) -> int:
    """Run the module of a command; return its exit status."""
    try:
        if is_fork_server(command):
            sys.argv = ["-c"]
            from emu.emulation.launch.fork_server import main

            main()
        else:
            module, *arguments = command[3:]
            sys.argv = [module, *arguments]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return _status(end.code)
    return 0


def _status(code: object) -> int:
    if isinstance(code, int):
        return code
    if code is not None:
        sys.stderr.write(f"{code}\n")
    return int(code is not None)
