"""Runs that meet a limit of memory, of message lengths, or of this host."""

from __future__ import annotations

import os
import signal
import socket
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from emu.errors import RunError
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Task,
)
from tests.emulation.coordinator.emulated import Acts, emulable, golden, run
from tests.leftovers import Leftovers

pytestmark = [
    pytest.mark.emulation,
    pytest.mark.untimed,
    pytest.mark.timeout(180),
]


def ahead(iterations: int) -> tuple[Problem, Realization]:
    """Return a source that runs ahead of a slow destination, without a window."""
    cluster = Cluster((Machine("m0", 100.0, 100.0), Machine("m1", 100.0, 100.0)))
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), iterations)
    problem = Problem(cluster, job, Placement((0, 1)))
    times = np.array([[0.1] * iterations, [20.0] * iterations])
    realization = Realization(times, np.full((1, iterations), 40.0))
    return emulable(problem, realization), realization


def test_unlimited_credit_meets_the_memory_limit(
    tmp_path: Path, leftovers: Leftovers
) -> None:
    problem, realization = ahead(8)
    with pytest.raises(RunError, match=r"b .*a->b.*credit_window") as caught:
        run(problem, realization, tmp_path, memory_limit=3.2e6)
    leftovers.note()

    assert "iteration" in str(caught.value)


def test_a_name_that_nobody_knows_cannot_be_listened_on(tmp_path: Path) -> None:
    """It said: Unknown error -2."""
    problem, realization = golden(1)
    with pytest.raises(RunError, match=r"^cannot listen on -:0: [^U]"):
        run(problem, realization, tmp_path, listen="-")


def test_long_job_can_be_launched(tmp_path: Path, leftovers: Leftovers) -> None:
    problem, realization = ahead(100_000)  # 1.5 MB of times and lengths for one agent
    note = Acts("began", partial(os.kill, os.getpid(), signal.SIGINT), problem)
    with pytest.raises(KeyboardInterrupt, match="while running"):
        run(problem, realization, tmp_path, note)
    leftovers.note()


def test_port_in_use(tmp_path: Path) -> None:
    problem, realization = golden(1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RunError, match=f"127.0.0.1:{port}.*in use"):
            run(problem, realization, tmp_path, port=port)


def test_unwritable_log(tmp_path: Path) -> None:
    problem, realization = golden(1)
    with pytest.raises(RunError, match="cannot start an agent"):
        run(problem, realization, tmp_path / "absent")
