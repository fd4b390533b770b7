"""Linux-only settings that transport and pacing gain from: probed, never required."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import socket
import struct
import sys
from collections.abc import Iterator

SLICE_NS = 100_000
#: Bytes of a segment at most, more than a sender sends at once. On loopback they would
#: be 64 KB, as large as the window that a receiver begins with. Of one that is half
#: open its kernel says nothing, and a sender waits for the room of a whole segment,
#: until its probe after 200 ms: every third run of `demo` at time scale 0.3.
SEGMENT = 20_000
SWITCH_INTERVAL = 0.0002
_PR_SET_TIMERSLACK = 29
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_TCP_CONGESTION: int | None = getattr(socket, "TCP_CONGESTION", None)


def tune_socket(sock: socket.socket) -> None:
    """Set what a data or control connection wants, where it can be set.

    No Nagle delay, and congestion control reno: bbr, the default of many hosts, paces
    on loopback too (0.62 of the throughput at 1.56 times the CPU time). Buffers stay at
    their defaults: 64 KB ones stall on delayed acknowledgements. To be called before
    the socket connects, which states the longest segment.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)
    if _TCP_CONGESTION is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, b"reno")


def tune_process() -> dict[str, str]:
    """Set what the calling thread, which runs the loop, wants.

    Returns what was applied for the manifest, which so says what a run went without.
    An EEVDF slice of 100 us takes the 5 ms p99 of a wake-up on a loaded machine to
    0.05 ms, a timer slack of 1 ns takes 10 us off each; a short switch interval lets
    the loop have the interpreter back from a compute thread.
    """
    # With slices of 1 ms 16 paced flows were 1.0 to 1.6 ms late beside 60 % load (90th
    # percentile), with 100 us 0.5 to 0.6 ms. A lower priority for compute threads keeps
    # the interpreter lock from their loop: a run beside two busy loops did not end.
    sys.setswitchinterval(SWITCH_INTERVAL)
    outcomes = {
        "scheduler_slice": "unavailable",
        "timer_slack": "unavailable",
        "switch_interval": f"{SWITCH_INTERVAL:g} s",
    }
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        status = _set_slice(SLICE_NS)
        if status is not None:
            outcomes["scheduler_slice"] = _outcome(status, f"{SLICE_NS} ns")
        status = libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)
        outcomes["timer_slack"] = _outcome(status, "1 ns")
    return outcomes


@contextlib.contextmanager
def short_slice() -> Iterator[None]:
    """Give the calling thread a slice as short as that of node processes.

    Who is woken by a thread of longer slices takes its core at once: a coordinator had
    to wait for it before each further order, 0.8 ms beside a load of 12, and 0.2 so.
    """
    _set_slice(SLICE_NS)
    try:
        yield
    finally:
        _set_slice(0)  # that of the system


def _set_slice(nanoseconds: int) -> int | None:
    """Set the slice of the calling thread; return the status, None: it cannot be set.

    0 is that of the system. A thread that was given another policy keeps it.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if sys.platform != "linux" or number is None:
        return None
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    attributes = ctypes.c_char_p(_scheduling_attributes(nanoseconds))
    status: int = libc.syscall(number, 0, attributes, 0)
    return status


def _scheduling_attributes(slice_ns: int) -> bytes:
    """Return a struct sched_attr with a slice as its runtime."""
    size = 48
    policy = flags = priority = deadline = period = 0
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    return struct.pack(
        "=IIQiIQQQ",
        size,
        policy,
        flags,
        nice,
        priority,
        slice_ns,
        deadline,
        period,
    )


def _outcome(status: int, value: str) -> str:
    if status == 0:
        return value
    reason = os.strerror(ctypes.get_errno())
    return f"refused ({reason})"
