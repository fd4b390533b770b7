"""What an agent says of its host: cores, memory, and what its networks carry."""

from __future__ import annotations

import os
import platform
import socket
import threading
import time
from typing import Any

import psutil

_SENT = 16 << 20  # bytes over loopback: 10 ms, long enough to be past the first ones
_PATIENCE = 5.0  # wall seconds


def describe_host(address: str = "") -> dict[str, Any]:
    """Return what the manifest says of this host; msgpack-able.

    Parameters
    ----------
    address
        Of this host, by which others reach it: whose NIC is described.
    """
    return {
        "name": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "cpus": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1,
        "memory": psutil.virtual_memory().total,
        "pid": os.getpid(),
        **nic_of(address),
    }


def nic_of(address: str) -> dict[str, Any]:
    """Return name and stated bytes per second of the NIC that has an address.

    Without a speed where the kernel states none, as of loopback and many virtual ones.
    """
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address == address for each in addresses):
            stats = psutil.net_if_stats().get(name)
            speed = 125_000.0 * stats.speed if stats and stats.speed else None
            return {"nic": name} | ({} if speed is None else {"nic_speed": speed})
    return {}


def loopback_rate() -> float | None:
    """Return bytes per second of one TCP connection within this host, measured now.

    None where there is no loopback.
    """
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), _PATIENCE) as sender,
            server.accept()[0] as receiver,
        ):
            receiver.settimeout(_PATIENCE)
            sending = threading.Thread(target=sender.sendall, args=(bytes(_SENT),))
            left, buffer = _SENT, bytearray(1 << 18)
            begun = time.monotonic()
            sending.start()
            while left > 0 and (count := receiver.recv_into(buffer)):
                left -= count
            took = time.monotonic() - begun
            sending.join()
    except OSError:
        return None
    return (_SENT - left) / took
