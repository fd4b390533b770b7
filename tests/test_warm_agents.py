"""Copies of a warm process are what commands would have started."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import psutil
import pytest

from emu.host.this_host import module_command
from tests.warm_agents import WarmProcess


@pytest.fixture
def said(tmp_path: Path) -> Iterator[BinaryIO]:
    """Return the file that takes what an agent prints."""
    with (tmp_path / "said").open("w+b") as file:
        yield file


async def begin(said: BinaryIO, *arguments: str) -> Any:
    """Start an agent, and return it running."""
    command = module_command("emu.emulation.launch", *arguments)
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=said,
        stdout=said,
        stderr=said,
        env={**os.environ, "EMU_TOKEN": "of these"},
        start_new_session=True,
    )


async def test_a_copy_has_what_its_command_would_have(
    said: BinaryIO, warm_agents: WarmProcess
) -> None:
    agent = await begin(said, "127.0.0.1:1", "--name=lonely", "--patience=60")
    process = psutil.Process(agent.pid)

    assert process.ppid() == warm_agents.pid
    assert "--name=lonely" in process.cmdline()
    assert "emu.emulation.launch" in process.cmdline()
    assert os.getsid(agent.pid) == agent.pid
    assert agent.returncode is None
    agent.kill()
    assert await agent.wait() == -9
    with pytest.raises(ProcessLookupError):
        agent.kill()


async def test_copies_that_end_at_once_are_all_reported(said: BinaryIO) -> None:
    """A handler of SIGCHLD that ran within itself waited for one of them twice."""
    for _ in range(3):
        agents = [await begin(said, "nowhere") for _ in range(8)]
        statuses = [await agent.wait() for agent in agents]
        assert statuses == [2] * 8


@pytest.mark.nightly
@pytest.mark.parametrize("cold", [False, pytest.param(True, marks=pytest.mark.cold)])
async def test_it_ends_and_speaks_as_its_command(
    *, cold: bool, said: BinaryIO, warm_agents: WarmProcess
) -> None:
    agent = await begin(said, "nowhere")

    assert {await agent.wait(), await agent.wait()} == {2}
    said.seek(0)
    assert b"'nowhere'" in said.read()
    assert bool(warm_agents.pid) != cold
