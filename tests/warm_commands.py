"""Commands that are forked, where users start interpreters of their own.

A command spends 0.6 s of CPU on imports before it does anything, 2 s where it trains.
Here it is a copy of the process of which agents are copies, for tests that need a
command in a process of its own: to kill it, or to know what it leaves. Tests of how an
interpreter starts, of its environment or of what is imported start one.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.warm_agents import WarmProcess
from tests.warm_process import Forked


class WarmCommands(NamedTuple):
    """Starts commands as copies of the process of which agents are copies."""

    warm: WarmProcess

    def start(self, *words: str, **options: Any) -> Forked:
        """Return the process of ``emu`` and words, as `start_module` does."""
        return self.start_module("emu", *words, **options)

    def start_module(self, module: str, *words: str, **options: Any) -> Forked:
        """Return the process of a module, which has options of a subprocess.

        Its streams lead nowhere, its environment is that of this process, but where
        options say something else. Besides ``emu`` there are agents,
        ``emu.emulation.launch``.
        """
        with Path(os.devnull).open("r+b") as nothing:
            streams = dict.fromkeys(("stdin", "stdout", "stderr"), nothing)
            settings = {"env": os.environ, **streams, **options}
            return self.warm.fork(["-m", module, *words], settings)

    def run(
        self, *words: str, cwd: Path, env: Mapping[str, str] = os.environ
    ) -> subprocess.CompletedProcess[str]:
        """Return how ``emu`` and words ended in a folder, and what it printed."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = self.start(*words, cwd=cwd, env=env, stdout=out, stderr=err)
            try:
                code = process.wait_here()
            except BaseException:  # as where a test has timed out
                process.kill()
                process.wait_here()
                raise
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(words, code, out.read(), err.read())


@pytest.fixture(scope="session")
def warm_commands(warm_agents: WarmProcess) -> WarmCommands:
    """Return what starts the commands of this session."""
    return WarmCommands(warm_agents)
