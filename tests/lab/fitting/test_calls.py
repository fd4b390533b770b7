"""Fits by calls: programs whose dependencies are known, at NICs of other rates."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import emu
from emu.lab.fitting.calls import Threads, _kernel_times, find_senders
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
    WAIT,
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


def calls_of(*rows: tuple[float, float, int, int, int, int]) -> Traffic:
    """Return calls of machine 0: seconds, kind, process, thread and peer."""
    calls = np.zeros(len(rows), CALL)
    names = ("begin", "end", "kind", "process", "thread", "peer")
    for name, values in zip(names, zip(*rows, strict=True), strict=bool(rows)):
        calls[name] = values
    return Traffic(
        packets=np.empty(0, PACKET),
        machines=("m0", "m1", "m2", "m3"),
        nics=np.full((2, 4), 1e6),
        programs=("a",),
        owners=np.empty(0, OWNER),
        calls=calls,
    )


def test_bytes_are_of_the_call_that_sent_them() -> None:
    """Three packets of 100 bytes: calls of 130, 70 (the rest of it), 50 and 50."""
    packets = np.array(
        [
            (1.0, 0, 1, 4000, 5000, 100),
            (1.001, 0, 1, 4000, 5000, 100),
            (1.002, 0, 1, 4000, 5000, 100),
            (1.003, 1, 0, 5000, 4000, 100),  # whose calls were not noted
            (0.99, 0, 1, 4000, 6000, 100),
        ],
        PACKET,
    )
    traffic = calls_of(
        (0.90, 0.91, SEND, 1, 1, 1),
        (0.92, 0.93, PART, 1, 1, 1),
        (0.94, 0.95, SEND, 1, 1, 1),
        (0.96, 0.97, RECEIVE, 1, 1, 1),
        (0.98, 0.99, SEND, 1, 1, 1),
        (0.995, 0.996, SEND, 1, 1, 1),
    )
    traffic.calls["port"], traffic.calls["peer_port"] = 4000, 5000
    traffic.calls["bytes"] = [130, 30, 40, 999, 50, 50]
    # A connection of its own, whose call is later than its packet.
    traffic.calls["peer_port"][5] = 6000

    sent = find_senders(replace(traffic, packets=packets))

    assert sent.call.tolist() == [0, 0, 4, -1, -1]
    assert sent.next_call.tolist() == [0, 1, 4, -1, -1]
    assert sent.split.tolist() == [0, 30, 0, 100, 100]
    assert sent.is_split.tolist() == [False, True, False, False, False]
    # The first of all left an idle kernel 0.1 ms before it had crossed.
    assert sent.called.tolist() == pytest.approx([0.9999, 0.90, 0.98, 1.003, 0.99])
    assert sent.next_called[:3].tolist() == pytest.approx([0.90, 0.92, 0.98])
    assert sent.taken.tolist() == pytest.approx([0.91, 0.95, 0.99, 1.003, 0.99])

    # The second packet: from its 30th byte on it is of call 1.
    places = np.array([0, 1, 1, 1])
    numbers, begun = sent.begun(places, np.array([99.0, 29.0, 30.0, 31.0]))
    assert numbers.tolist() == [0, 0, 1, 1]
    assert begun.tolist() == pytest.approx([0.9999, 0.90, 0.92, 0.92])
    some = sent.some(np.array([1, 4]))
    assert (some.call.tolist(), some.split.tolist()) == ([0, -1], [30, 100])


def test_an_idle_kernel_sent_a_packet_as_long_before_as_it_took_to_cross() -> None:
    """NICs need 1 ms for 100 bytes from m0 to m1, 2 ms to m2, 0.5 ms from m2 to m1."""
    packets = np.array(
        [
            (1.0, 0, 1, 1, 1, 100),
            (1.0041, 0, 1, 1, 1, 100),
            (1.0080, 0, 1, 1, 1, 100),  # 3.9 ms after another: not idle for 4
            (1.0100, 2, 1, 1, 1, 100),  # m1 took one 2 ms before
            (1.0200, 0, 2, 1, 1, 100),
        ],
        PACKET,
    )
    nics = np.array([[1e5, 1e6, 1e6], [1e6, 2e5, 5e4]])
    traffic = replace(calls_of(), packets=packets, nics=nics)

    left = _kernel_times(traffic)

    never = -np.inf
    assert left.tolist() == pytest.approx([0.999, 1.0031, never, never, 1.018])


def test_a_pause_is_what_a_thread_did_since_the_step_before() -> None:
    """It read from m1 and m2 at once, computed, sent a note, and read from m1 again."""
    threads = Threads(
        calls_of(
            (-0.5, -0.4, RECEIVE, 1, 1, 3),  # before that step
            (0.0, 0.01, SEND, 1, 1, 1),
            (0.1, 0.2, RECEIVE, 1, 1, 1),
            (0.15, 0.16, SEND, 1, 2, 1),  # of another thread
            (0.2004, 0.3, RECEIVE, 1, 1, 2),
            (0.35, 0.36, SEND, 1, 1, 3),
            (0.37, 0.38, PART, 1, 1, 3),
            (0.4, 0.5, RECEIVE, 1, 1, 1),
            (0.6, 0.7, SEND, 1, 1, 1),
            (0.8, 0.9, SEND, 1, 1, 1),
        )
    )
    pause = threads.pause(8, {1: None, 3: None, 8: None})

    assert (pause.before, pause.begun) == (1, 0.0)
    assert (pause.ready, pause.over) == (0.1, 0.5)
    assert (pause.groups, pause.sources, pause.is_woken) == (2, {1, 2}, False)

    at_once = threads.pause(9, {8: None})
    assert (at_once.before, at_once.begun, at_once.groups) == (8, 0.6, 0)
    assert np.isnan([at_once.ready, at_once.over]).all()
    of_all = threads.pause(8, {})
    assert (of_all.before, of_all.begun, of_all.ready) == (-1, -np.inf, -0.5)
    assert (of_all.groups, of_all.sources) == (3, {1, 2, 3})


@pytest.mark.parametrize(
    ("others", "over"),
    [
        # What the process received 3 ms before, or later, woke the thread itself.
        ([(0.8, 0.9975, RECEIVE)], 1.0),
        ([(0.8, 0.75, RECEIVE), (0.8, 1.1, RECEIVE)], 0.75),
        # A thread that had waited itself until 0.95 s woke it, and so on.
        ([(0.8, 0.9, RECEIVE), (0.85, 0.95, WAIT)], 0.9),
        ([(0.8, 0.9, RECEIVE), (0.8, 0.902, WAIT), (0.9, 0.95, WAIT)], 0.902),
        # Within 3 ms of one another they were woken by the same.
        ([(0.8, 0.9, RECEIVE), (0.85, 0.998, WAIT)], 0.9),
        ([], -np.inf),
        ([(0.0, 0.1, RECEIVE)] + [(0.2, t / 10, WAIT) for t in range(3, 10)], 0.6),
        # Who receives behind a wait was woken by the kernel: it is no link.
        ([(0.8, 0.95, WAIT), (0.951, 0.952, RECEIVE)], 0.952),
    ],
)
def test_a_woken_thread_waited_for_what_its_process_had_received(
    others: list[tuple[float, float, int]], over: float
) -> None:
    """Its wait ends at 1.0 s; calls of another process say nothing of it."""
    rows = [(begin, end, kind, 1, 2, 1) for begin, end, kind in others]
    foreign = [(0.5, 0.999, RECEIVE, 7, 7, 1), (0.5, 0.9, WAIT, 7, 8, 1)]
    own = [(0.7, 1.0, WAIT, 1, 1, 1), (1.2, 1.3, SEND, 1, 1, 1)]
    threads = Threads(calls_of(*rows, *foreign, *own))

    pause = threads.pause(len(rows) + 3, {})

    assert pause.is_woken
    assert (pause.over, pause.ready, pause.sources) == (over, 0.7, set())
