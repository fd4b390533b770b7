"""Fits by calls: programs whose dependencies are known, at NICs of other rates."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import emu
from emu.lab.fitting.calls import find_senders
from emu.lab.fitting.causes import GOT, FittedSteps
from emu.lab.fitting.fitted_job import write_fit
from emu.lab.fitting.iterations import fit_traffic
from emu.lab.fitting.steps import ALL, FULL
from emu.prediction.analysis.traffic import (
    CALL,
    OWNER,
    PACKET,
    PART,
    RECEIVE,
    SEND,
    Traffic,
)
from emu.scenario.scenario_file import loads

STEPS = 14
#: Bytes per second of the NICs that are fitted, and bytes of a message.
RATE = 5e6
SIZE = 100 * FULL
NOTE = 200


class Recorder:
    """Packets and calls of two processes on machines 0 and 1, one thread each."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._packets: list[tuple[float, int, int, int, int, int]] = []
        self._calls: list[tuple[float, float, int, int, int]] = []

    def send(self, sender: int, begin: float, size: int) -> float:
        """Send bytes in one call; return when the last is there."""
        self._calls.append((begin, begin + 2e-5, size, SEND, sender))
        sizes = [FULL] * (size // FULL) + [size % FULL] * bool(size % FULL)
        end = begin
        ports = (4000, 5000) if sender == 0 else (5000, 4000)
        for part in sizes:
            end += part / self._rate
            self._packets.append((end, sender, 1 - sender, *ports, part))
        return end

    def receive(self, receiver: int, begin: float, arrival: float, size: int) -> float:
        """Receive from a moment on; return when all has been read."""
        end = max(begin, arrival) + 2e-5
        self._calls.append((begin, end, size, RECEIVE, receiver))
        return end

    def traffic(self) -> Traffic:
        """Return what was recorded."""
        calls = np.zeros(len(self._calls), CALL)
        for name, values in zip(
            ("begin", "end", "bytes", "kind", "machine"),
            zip(*self._calls, strict=True),
            strict=True,
        ):
            calls[name] = values
        calls["program"] = calls["machine"]
        calls["process"] = 100 + calls["machine"]
        calls["thread"] = calls["process"]
        calls["port"] = 4000 + 1000 * calls["machine"]
        calls["peer"] = 1 - calls["machine"]
        calls["peer_port"] = 5000 - 1000 * calls["machine"]
        packets = np.array(self._packets, PACKET)
        return Traffic(
            packets=packets[np.argsort(packets["time"], kind="stable")],
            machines=("m0", "m1"),
            nics=np.full((2, 2), self._rate),
            programs=("source", "sink"),
            owners=np.array([(0, 4000, 0), (1, 5000, 1)], OWNER),
            calls=calls[np.argsort(calls["begin"], kind="stable")],
        )


def overlapping(
    rate: float, think: float, seed: int = 0
) -> tuple[Traffic, list[float]]:
    """Return a sink that computes while bytes come, reads them, and lets go on.

    And when each of its iterations began.
    """
    rng = np.random.default_rng(seed)
    recorder = Recorder(rate)
    began = []
    source = sink = 0.1
    for _ in range(STEPS):
        began.append(source)
        arrival = recorder.send(0, source, SIZE)
        ready = sink + think * rng.uniform(0.98, 1.02)
        read = recorder.receive(1, ready, arrival, SIZE)
        sink = read + 0.004
        note = recorder.send(1, sink, NOTE)
        source = recorder.receive(0, source + 1e-3, note, NOTE) + 0.002
    return recorder.traffic(), began


def period(traffic: Traffic, began: list[float], rate: float) -> float:
    """Return the seconds of an iteration that a fit predicts at another rate."""
    marks = {ALL: np.array([*began, began[-1] + began[-1] - began[-2]]) - 1e-4}
    found = fit_traffic(traffic, marks=marks)
    assert isinstance(found, FittedSteps)
    document = write_fit("fitted", found, traffic)
    nic = f"{rate:.0f} B/s"
    changes = {f"cluster.machines[{n}].nic": nic for n in (0, 1)}
    schedule = emu.simulate(loads(json.dumps(document), changes, name="fitted.json"))
    ends = schedule.task_end[:, 3:]
    return float((ends[:, -1] - ends[:, 0]).max() / (ends.shape[1] - 1))


@pytest.mark.parametrize("think", [0.005, 0.04, 0.1])
@pytest.mark.parametrize("rate", [1e6, 2e6, 2e7])
def test_what_is_computed_while_bytes_come_is_no_gap_behind_them(
    think: float, rate: float
) -> None:
    """Fitted by order alone it comes after the bytes: up to 40 % off."""
    traffic, began = overlapping(RATE, think)
    _, others = overlapping(rate, think)

    expected = (others[-1] - others[3]) / (STEPS - 4)
    assert period(traffic, began, rate) == pytest.approx(expected, rel=0.03)


def test_order_alone_takes_what_is_computed_meanwhile_for_an_answer() -> None:
    traffic, began = overlapping(RATE, 0.1)
    _, others = overlapping(1e6, 0.1)

    blind = replace(traffic, calls=np.empty(0, CALL))

    expected = (others[-1] - others[3]) / (STEPS - 4)
    assert abs(period(blind, began, 1e6) / expected - 1) > 0.1


def test_packets_are_of_the_calls_that_sent_their_bytes() -> None:
    """A note in the last packet of a message is of its own call; a lost one is late."""
    packets = np.array(
        [
            (1.001, 0, 1, 4000, 5000, FULL),
            (1.002, 0, 1, 4000, 5000, FULL),
            (1.2, 0, 1, 4000, 5000, FULL),  # what was lost crosses again
            (1.201, 0, 1, 4000, 5000, 100),
            (2.001, 0, 1, 4000, 5000, 48),
        ],
        PACKET,
    )
    rows = [
        (1.0, 1.0005, 2000, PART),
        (1.0006, 1.0007, FULL + 52 - 2000 + FULL - 52, SEND),
        (1.0008, 1.0009, 148, SEND),
        (2.0, 2.0001, 48, SEND),
    ]
    calls = np.zeros(len(rows), CALL)
    for name, values in zip(
        ("begin", "end", "bytes", "kind"), zip(*rows, strict=True), strict=True
    ):
        calls[name] = values
    calls["port"], calls["peer"], calls["peer_port"] = 4000, 1, 5000
    traffic = Traffic(
        packets=packets,
        machines=("m0", "m1"),
        nics=np.full((2, 2), 1e9),
        programs=("a", "b"),
        owners=np.array([(0, 4000, 0), (1, 5000, 1)], OWNER),
        calls=calls,
    )

    sent = find_senders(traffic)

    # The rest of the first message, which went in a second call, is of the first.
    assert sent.call[:2].tolist() == [0, 0]
    assert sent.next_call[1] == 0
    assert sent.call[-1] == 3
    assert sent.taken[1] == pytest.approx(1.0007)


def test_a_step_waits_for_one_receipt() -> None:
    traffic, began = overlapping(RATE, 0.04)
    marks = {ALL: np.array([*began, 2 * began[-1] - began[-2]]) - 1e-4}

    found = fit_traffic(traffic, marks=marks)

    assert isinstance(found, FittedSteps)
    for row in found.causes:
        moments = [cause.moment for cause in row]
        assert moments.count(GOT) == 1
    (number,) = (n for n in found.computing if found.steps[n].source == (1, 1))
    computing = found.computing[number]
    assert np.median(computing.seconds) == pytest.approx(0.04, rel=0.05)
