"""When bytes behind a lost segment can be read, beside a capture of the packets."""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.emulation.network.rx_timestamps import ArrivalReader
from emu.emulation.network.tuning import tune_socket
from emu.lab.machines.lab import Lab, LabMachine
from emu.lab.machines.nic import Sharing
from emu.report.trace import write_trace
from emu.runs.recorded_run import load_run
from tests.lab.machines.test_lab import read_pcap

pytestmark = [pytest.mark.netns, pytest.mark.usefixtures("_a_lab_can_be_had")]
#: A queue of 20 ms before the slower NIC loses some of the first 250 kB.
MACHINES = [LabMachine("fast", 6.25e6, 6.25e6), LabMachine("slow", 2.5e6, 2.5e6)]
SIZE = 250_000
#: Wall seconds: a tick of the kernel, the way from tap to socket, and how early a hole
#: may seem filled: one filled within a tick of its newest segment cannot be seen.
TICK = time.clock_getres(6)  # of CLOCK_MONOTONIC_COARSE
WAY = 1e-3
EARLY = TICK
#: Two ticks are added to the one in which the hole was filled, and a tick that came
#: late has moved the coarse clock by one more than the count in TCP_INFO.
LATE = 3 * TICK + WAY
#: Wall seconds that a late reader sleeps: longer, so that its own time would not pass.
REST = 0.015


LOSSY = {
    "cluster": {
        "machines": [
            {"name": "a", "nic": "50 Mbit/s"},
            {"name": "b", "nic": "20 Mbit/s"},
        ]
    },
    "job": {
        "system": "custom",
        "iterations": 3,
        "tasks": [
            {"name": "s", "time": "100 ms", "pin": "a"},
            {"name": "r", "time": "10 ms", "pin": "b"},
        ],
        "flows": [{"from": "s", "to": "r", "volume": "250 kB"}],
    },
    "schedule": {"policy": "maxmin"},
    "emulation": {"network": "kernel", "sharing": "tcp"},
}


@contextmanager
def connect(lab: Lab) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the ends of a connection from one machine to the other."""
    sending, receiving = lab._holders
    host = lab.address("slow")
    answer, (listening,) = receiving.ask(do="listen", host=host, port=0)
    with socket.socket(fileno=listening) as waiting:
        _, (descriptor,) = sending.ask(do="connect", host=host, port=answer["port"])
        receiver, _ = waiting.accept()
    sender = socket.socket(fileno=descriptor)
    with sender, receiver:
        tune_socket(sender)
        sender.setblocking(True)
        receiver.setblocking(False)
        yield sender, receiver


def receive_flow(receiver: socket.socket, reader: ArrivalReader, rest: float) -> float:
    """Return the time told of the last byte of a flow, read ``rest`` seconds late."""
    view = memoryview(bytearray(SIZE))
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, SIZE)
    count, told = 0, 0.0
    while count < SIZE:
        assert select.select([receiver], [], [], 20)[0]
        time.sleep(rest)
        size, told = reader.receive(view[count:])
        count += size
        missing = max(1, SIZE - count)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, missing)
    return told


def times_of_ends(pcap: Path, port: int) -> tuple[list[float], list[float]]:
    """Return when each flow was whole, and when its newest segment came."""
    segments = []
    for wall, header in read_pcap(pcap):
        length, source = struct.unpack_from(">H16xH", header, 16)
        (sequence,) = struct.unpack_from(">I", header, 38)
        payload = length - 20 - 4 * (header[46] >> 4)
        if source == port and payload > 0:
            segments.append((wall, sequence, payload))

    first = segments[0][1]
    whole: list[float] = []
    newest: dict[int, float] = {}
    ends_by_begin: dict[int, int] = {}
    read_to = 0
    for wall, sequence, payload in segments:
        begin = (sequence - first) % 2**32
        end = begin + payload
        ends_by_begin[begin] = max(ends_by_begin.get(begin, 0), end)
        if end % SIZE == 0:
            newest.setdefault(end // SIZE - 1, wall)
        for start in sorted(ends_by_begin):
            if start <= read_to:
                read_to = max(read_to, ends_by_begin.pop(start))
        whole += [wall] * (read_to // SIZE - len(whole))
    return whole, [newest[number] for number in range(len(whole))]


def test_a_flow_ends_when_the_segment_that_fills_its_hole_has_come(
    tmp_path: Path,
) -> None:
    """Flows read at once, and 15 ms late, over new connections that lose."""
    pcap = tmp_path / "traffic.pcap"
    told: dict[int, list[float]] = {}
    with Lab(MACHINES, sharing=Sharing.TCP) as lab:
        capture = lab.capture(pcap)
        for rest in [0.0, REST] * 4:
            with connect(lab) as (sender, receiver):
                reader = ArrivalReader(receiver)
                times = told.setdefault(sender.getsockname()[1], [])
                for _ in range(2):
                    sender.sendall(bytes(SIZE))
                    times.append(receive_flow(receiver, reader, rest))
        clocks = [time.monotonic() - time.time_ns() * 1e-9 for _ in range(20)]
        capture.close(0.0)

    holes = []
    for port, times in told.items():
        whole, newest = times_of_ends(pcap, port)
        for end, note, wall in zip(whole, newest, times, strict=True):
            holes.append(end - note)
            assert -EARLY < wall - max(clocks) - end < LATE < REST
    assert max(holes) > TICK  # by its newest segment's note it would have ended then


def test_each_flow_has_the_counts_of_both_kernels(tmp_path: Path) -> None:
    """Segments sent again, by flow, sum to what the machines' kernels count."""
    scenario = tmp_path / "lossy.yaml"
    scenario.write_text(json.dumps(LOSSY))
    result = CliRunner().invoke(app, ["run", str(scenario), "--runs", str(tmp_path)])
    assert result.exit_code == 0, result.output

    (path,) = tmp_path.glob("lossy-*")
    counts = load_run(path).counts
    hosts = json.loads((path / "processes.json").read_text())["hosts"]
    assert counts is not None
    total = sum(host["tcp"]["retransmitted"] for host in hosts)
    again = counts.retransmitted.sum()
    assert 0 < again <= total
    # The control network of a machine may have sent a segment again, too.
    assert total - again < 5
    slower = counts.round_trip[0].max()
    assert counts.least_round_trip[0].max() < 1e-3 < slower  # a queue of 20 ms
    (trace,) = [write_trace(path)]
    assert '"kernel":{"retransmitted":' in trace.read_text()
