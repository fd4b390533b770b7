"""Plain TCP flows between the machines of a lab, by programs that know nothing of emu.

Run in every machine: ``python kernel_flows.py ME BEGIN UNTIL`` reads a plan from
standard input, one flow per line: source, destination, address of the destination,
port, seconds after BEGIN (monotonic clock), bytes. Prints, for every flow that ended
here: port, seconds after BEGIN of its first and last byte, bytes received by UNTIL.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from dataclasses import dataclass

_PIECE = bytes(1 << 18)


@dataclass
class Flow:
    """One flow of a plan."""

    source: str
    destination: str
    address: str
    port: int
    start: float
    volume: int

    @classmethod
    def of(cls, line: str) -> Flow:
        """Read one line of a plan."""
        source, destination, address, port, start, volume = line.split()
        return cls(
            source, destination, address, int(port), float(start), int(float(volume))
        )


def send(flow: Flow, begin: float) -> None:
    """Connect at once, and send at the flow's time."""
    with socket.create_connection((flow.address, flow.port), timeout=30) as there:
        time.sleep(max(0.0, begin + flow.start - time.monotonic()))
        left = flow.volume
        with contextlib.suppress(ConnectionError):  # the receiver has seen enough
            while left:
                left -= there.send(memoryview(_PIECE)[: min(left, len(_PIECE))])


def receive(listening: socket.socket, flow: Flow, begin: float, until: float) -> None:
    """Take one flow, and print when it came."""
    there, _ = listening.accept()
    first = last = float("nan")
    got = 0
    with there:
        there.settimeout(0.05)
        while got < flow.volume and time.monotonic() < begin + until:
            try:
                came = len(there.recv(1 << 18))
            except TimeoutError:
                continue
            if not came:
                break
            last = time.monotonic() - begin
            first = last if not got else first
            got += came
    os.write(1, f"{flow.port} {first} {last} {got}\n".encode())  # whole lines


def main() -> None:
    """Send and receive what the plan says of this machine."""
    me, begin, until = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    flows = [Flow.of(line) for line in sys.stdin.read().splitlines()]
    work = []
    for flow in flows:
        if flow.destination == me:
            listening = socket.create_server(("", flow.port))
            arguments = listening, flow, begin, until
            work.append(threading.Thread(target=receive, args=arguments, daemon=True))
    for thread in work:
        thread.start()
    time.sleep(max(0.0, begin - 1.0 - time.monotonic()))  # everybody listens
    for flow in flows:
        if flow.source == me:
            work.append(threading.Thread(target=send, args=(flow, begin), daemon=True))
            work[-1].start()
    for thread in work:
        thread.join(max(0.1, begin + until + 0.3 - time.monotonic()))


if __name__ == "__main__":
    main()
