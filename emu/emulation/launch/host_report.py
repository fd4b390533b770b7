"""An agent's report on its host: cores, memory, and what its networks carry."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

import psutil

from emu.emulation.network.clock import BEAT, ClockLine, PeerClock
from emu.emulation.network.control import ControlConnection
from emu.emulation.network.rate_board import RateBoard
from emu.host.this_host import loopback_address, memory, this_host, version_of_emu

#: Pings before the first line, and of every beat: the surest of each counts.
_FIRST = 20
_PER_BEAT = 4
_APART = 0.01  # wall seconds from one ping to the next
_SENT = 16 << 20  # bytes over loopback: 10 ms, long enough to be past the first ones
_PATIENCE = 5.0  # wall seconds
#: How engines number what they start: mpirun, PMIx, PMI, srun, torchrun, a Job's pods.
_RANKS = (
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
    "GROUP_RANK",
    "JOB_COMPLETION_INDEX",
)


class ClockComparison:
    """Compares this host's clock with the coordinator's, if another, once a beat."""

    def __init__(
        self,
        connection: ControlConnection,
        board: RateBoard,
        clock_name: str,
    ) -> None:
        self._connection = connection
        self._board = board
        self._clock = PeerClock()
        self.same = clock_name != "" and this_host.name_of_clock() == clock_name
        self.line: ClockLine | None = None

    async def compare(self, pings: int = _FIRST) -> None:
        """Put the coordinator's clock on the board; raises EmulatorError without it."""
        if self.same:
            return

        pongs = self._connection.pongs
        pongs.clear()
        while pings > 0 or not pongs:  # at least one must be answered
            self._connection.ping()
            pings -= 1
            await asyncio.sleep(_APART)
        self._clock.note(pongs)
        self.line = self._clock.line(this_host.monotonic())
        if self.line is not None:
            self._board.publish_clock(self.line)

    async def keep(self) -> None:
        """Compare until cancelled."""
        while not self.same:
            await asyncio.sleep(BEAT)
            await self.compare(_PER_BEAT)

    def reading(self) -> list[float]:
        """Return the line as offset, drift, uncertainty; empty where there is none."""
        line = self.line
        if line is None:
            return []
        return [line.offset, line.drift, line.uncertainty]


def usable_cores() -> int:
    """Return the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe_host(address: str = "") -> dict[str, Any]:
    """Return the manifest's description of this host; msgpack-able."""
    return {
        "name": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "emu": version_of_emu(),
        "python": platform.python_version(),
        "cpus": usable_cores(),
        "memory": memory("total"),
        "pid": os.getpid(),
        **nic_of(address),
    }


def nic_of(address: str) -> dict[str, Any]:
    """Return name and stated bytes per second of the NIC that has an address.

    Without a speed where the kernel states none, as of loopback and many virtual ones.
    """
    for name, addresses in psutil.net_if_addrs().items():
        if any(candidate.address == address for candidate in addresses):
            with contextlib.suppress(OSError):  # /proc is not there
                stats = psutil.net_if_stats().get(name)
                if stats and stats.speed:
                    return {"nic": name, "nic_speed": 125_000.0 * stats.speed}
            return {"nic": name}
    return {}


def loopback_rate() -> float | None:
    """Return bytes per second of one TCP connection within this host, measured now.

    None where there is no loopback.
    """
    address = loopback_address()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET

    def send(sender: socket.socket) -> None:
        with contextlib.suppress(OSError):  # its end is seen by the receiver
            sender.sendall(bytes(_SENT))

    try:
        with (
            socket.create_server((address, 0), family=family) as server,
            socket.create_connection(server.getsockname()[:2], _PATIENCE) as sender,
            _accept(server, sender) as receiver,
        ):
            sending = threading.Thread(target=send, args=(sender,))
            rest = _SENT
            buffer = bytearray(1 << 18)
            start = time.monotonic()
            sending.start()
            try:
                while rest > 0 and (count := receiver.recv_into(buffer)):
                    rest -= count
                took = time.monotonic() - start
            finally:
                sending.join()
    except OSError:
        return None
    return (_SENT - rest) / took


def _accept(server: socket.socket, sender: socket.socket) -> socket.socket:
    """Return the other end of a connection; strangers, who may come first, are closed.

    Raises OSError when it does not come in time.
    """
    server.settimeout(_PATIENCE)
    while True:
        receiver, peer = server.accept()
        if peer == sender.getsockname():
            receiver.settimeout(_PATIENCE)
            return receiver
        receiver.close()


async def measure_host(address: str) -> dict[str, Any]:
    """Return `describe_host`, and what its loopback carries."""
    loopback = await asyncio.to_thread(loopback_rate)
    return {**describe_host(address), "loopback": loopback}


def own_host_name(environment: Mapping[str, str] = os.environ) -> str:
    """Return ``hostN`` where an engine gave the rank N, else the name of this host.

    Which hosts an engine hands out is not known before it does; ranks are.
    """
    for variable in _RANKS:
        rank = environment.get(variable, "")
        if rank.isascii() and rank.isdecimal():
            return f"host{rank}"
    return platform.node() or "host"
