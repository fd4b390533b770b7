"""What is set for a thread is what the kernel then has."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import socket
import struct
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from emu.emulation.network.tuning import (
    SEGMENT,
    SLICE_NS,
    _outcome,
    short_slice,
    tune_process,
    tune_socket,
)
from emu.emulation.shaping import Pace

_SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}
_LAYOUT = struct.Struct("=IIQiIQQQ")  # struct sched_attr; the slice is the runtime


def slice_of_this_thread() -> int:
    """Return the nanoseconds that the kernel has for the calling thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    room = ctypes.create_string_buffer(_LAYOUT.size)
    number = _SCHED_GETATTR[platform.machine()]
    assert libc.syscall(number, 0, room, _LAYOUT.size, 0) == 0
    return int(_LAYOUT.unpack(room.raw)[5])


needs_slices = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in _SCHED_GETATTR,
    reason="sched_getattr is not known here",
)


def test_what_the_kernel_refuses_is_told_with_its_reason() -> None:
    ctypes.set_errno(errno.EPERM)

    assert _outcome(0, "1 ms") == "1 ms"
    assert _outcome(-1, "1 ms") == "refused (Operation not permitted)"


def test_several_segments_find_room_in_a_window_on_loopback() -> None:
    """And all that a sender sends at once in one of them."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        sender = stack.enter_context(socket.socket())
        tune_socket(sender)
        sender.connect(server.getsockname())
        length = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    assert SEGMENT // 2 < length <= SEGMENT
    assert length > Pace().lead_bytes


@needs_slices
def test_a_coordinator_has_short_turns_during_its_run_alone() -> None:
    def slices() -> list[int]:
        found = [slice_of_this_thread()]
        with short_slice():
            found.append(slice_of_this_thread())
        return [*found, slice_of_this_thread()]

    with ThreadPoolExecutor(1) as loop:
        before, during, after = loop.submit(slices).result()
    if during == before:
        pytest.skip("this kernel does not take slices")
    assert during == SLICE_NS
    assert after == before


@pytest.mark.skipif(sys.platform != "linux", reason="policies of threads are Linux's")
def test_a_thread_keeps_the_policy_that_it_was_given() -> None:
    def policy() -> int:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        with short_slice():
            pass
        return os.sched_getscheduler(0)

    with ThreadPoolExecutor(1) as loop:
        assert loop.submit(policy).result() == os.SCHED_BATCH


@needs_slices
def test_the_thread_of_a_loop_has_short_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)  # of all threads
    with ThreadPoolExecutor(1) as loop:
        said = loop.submit(tune_process).result()["scheduler_slice"]
        if "refused" in said:
            pytest.skip(f"this kernel does not take slices: {said}")

        assert loop.submit(slice_of_this_thread).result() == SLICE_NS
