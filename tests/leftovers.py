"""What every emulated test is held to: nothing of a run is left when it is over."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.warm_agents import WARM

HERE = Path(__file__).parent
sys.path.insert(
    0, str(HERE.parent)
)  # tests.emulation.coordinator.emulated and its like


#: Folder of a virtual run, named by the process that made it.
_VIRTUAL = re.compile(r"emu-virtual-(\d+)-")


def shared_memory() -> set[str]:
    """Return what lies in shared memory; not of virtual runs that are under way.

    Tests beside this one, in other workers, have these.
    """
    names = {path.name for path in Path("/dev/shm").glob("*")}  # noqa: S108
    runs = {name: _VIRTUAL.match(name) for name in names}
    return {
        name
        for name, run in runs.items()
        if not (run and psutil.pid_exists(int(run[1])))
    }


def listening() -> set[int]:
    return {
        connection.laddr.port
        for connection in psutil.Process().net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }


class Leftovers:
    """Notes whom a run started; afterwards they must be gone.

    Who forks agents or ranks stays for those of later runs.
    """

    def __init__(self) -> None:
        self.seen: dict[int, psutil.Process] = {}

    def note(self) -> list[psutil.Process]:
        """Remember everything that this process has started, and return it."""
        below = psutil.Process().children(recursive=True)
        warm = {process.pid for process in WARM}
        found = [process for process in below if process.pid not in warm]
        self.seen.update({process.pid: process for process in found})
        return found

    def alive(self) -> list[psutil.Process]:
        """Return what was noted and still lives."""
        processes = []
        for process in self.seen.values():
            with contextlib.suppress(psutil.NoSuchProcess):  # it ends meanwhile
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    processes.append(process)
        return processes


@pytest.fixture
def leftovers(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Leftovers]:
    """Check processes, ports, shared memory and temporary files after the test."""
    # Before TMPDIR is another: what pytest makes there would go with this test.
    tmp_path_factory.getbasetemp()
    scratch = tempfile.mkdtemp(prefix="emu-test-")  # short: it holds a unix socket
    monkeypatch.setenv("TMPDIR", scratch)
    monkeypatch.setattr(tempfile, "tempdir", scratch)
    paths = [
        str(HERE / "emulation/coordinator/programs"),
        os.environ.get("PYTHONPATH", ""),
    ]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    memory, ports, leftovers = shared_memory(), listening(), Leftovers()
    yield leftovers
    patience = time.monotonic() + 5.0  # the kernel reaps, it does not say when
    while (alive := leftovers.alive()) and time.monotonic() < patience:
        time.sleep(0.05)
    left = list(Path(scratch).iterdir())
    shutil.rmtree(scratch)
    assert alive == []
    assert left == []
    assert listening() == ports
    assert shared_memory() - memory == set()
