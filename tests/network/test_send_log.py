"""When frames left, as it is handed over."""

from __future__ import annotations

import numpy as np

from emu.network import RunClock
from emu.network.send_log import SendLog


def test_the_send_log_speaks_emulated_seconds() -> None:
    log = SendLog()
    log.note(3, 7, finished=110.0, queued=104.0, informed=106.0, lag=0.5)

    rows = np.frombuffer(log.packed(RunClock(100.0, 2.0))).reshape(-1, 6)

    assert rows.tolist() == [[3.0, 7.0, 5.0, 2.0, 3.0, 0.25]]
