"""Hostile frames into the ports of a run that goes on."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.emulation.coordinator.emulated import Acts, golden, run
from tests.leftovers import Leftovers
from tools.attacks.ports import attack, ports_of

pytestmark = [pytest.mark.emulation, pytest.mark.untimed]
FRAMES = 400


def test_hostile_frames_change_nothing(tmp_path: Path, leftovers: Leftovers) -> None:
    """Into the coordinator and six processes; `tools/hostile ports` sends 10,000."""
    problem, realization = golden(3)
    sent: Counter[tuple[str, int]] = Counter()

    def assault() -> None:
        ports = ports_of(psutil.Process())
        sent.update(asyncio.run(attack(ports, FRAMES, np.random.default_rng(19))))

    thread = threading.Thread(target=assault)
    act = Acts("began", thread.start, problem)
    done = run(problem, realization, tmp_path, act, time_scale=0.05)
    thread.join()
    leftovers.note()
    log = (tmp_path / "agent.log").read_text(errors="replace")

    assert len(sent) == 7  # of the coordinator and of each process
    assert sum(sent.values()) > FRAMES / 4
    assert "Traceback" not in log
    assert "refused" in log
    assert not np.isnan(done.schedule.task_end).any()
    crossed = ~np.isnan(done.schedule.flow_bytes)
    np.testing.assert_array_equal(
        done.schedule.flow_bytes[crossed], realization.volumes[crossed]
    )
