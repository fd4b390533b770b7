"""A cache of the tests' own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from emu.problem.job import TIMED
from emu_nodes.timed_selector import TimedLoop, TimedSelector
from tests.emulation.launch.specs import edge_end, process_spec, process_task


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def timed_loop() -> asyncio.AbstractEventLoop:
    """Return the loop of w0, which runs task 5 and sends over edge 4, and w1, of 6."""
    first = process_spec("w0", process_task(TIMED, task=5, outputs=(edge_end(4),)))
    second = process_spec("w1", process_task(TIMED, task=6))
    specs = [first, second]
    return TimedLoop(TimedSelector(specs))


def pytest_asyncio_loop_factories() -> dict[
    str, Callable[[], asyncio.AbstractEventLoop]
]:
    """Return the loop on which tests of nodes run, by name."""
    return {"timed": timed_loop}
