"""Ranks of virtual clusters are copies of one process that has imported torch."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emu.host.this_host import module_command
from emu.virtual import run_virtual
from tests.warm_agents import WarmProcess

RANKS = module_command("emu.virtual.rank.rank_main")


class _Ranks:
    """The process of which ranks are forked, as `subprocess` has its own."""

    def __init__(self, warm: WarmProcess, command: list[str], **options: Any) -> None:
        if [*command[: len(RANKS)]] != RANKS or options["stdin"] != subprocess.DEVNULL:
            raise ValueError(command)
        with Path(os.devnull).open("rb") as nothing:
            self._forked = warm.fork(command[2:], {**options, "stdin": nothing})
        self.pid = self._forked.pid

    def wait(self) -> int:
        """Wait until it has ended; return its status."""
        return self._forked.wait_here()


@pytest.fixture(scope="session")
def warm_ranks() -> Iterator[WarmProcess]:
    """Return who has the ranks of this session forked."""
    ranks = WarmProcess("ranks")
    yield ranks
    ranks.close()


@pytest.fixture(autouse=True, scope="module")
def ranks_are_warm(warm_ranks: WarmProcess) -> Iterator[None]:
    """Fork ranks from one process: 1.7 s of CPU for each run that imports torch."""

    def start(command: list[str], **options: Any) -> _Ranks:
        return _Ranks(warm_ranks, command, **options)

    commands = SimpleNamespace(Popen=start, DEVNULL=subprocess.DEVNULL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_virtual, "subprocess", commands)
        yield


@pytest.fixture(autouse=True)
def ranks_are_cold(request: pytest.FixtureRequest) -> Iterator[None]:
    """Start ranks as commands do, in tests that are `cold`."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("cold") is not None:
            patch.setattr(run_virtual, "subprocess", subprocess)
        yield
