"""The check of leaks sees each kind of them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import leaks
from tests.leaks import Held, left_since


def a_thread(stack: ExitStack) -> None:
    go = threading.Event()
    thread = threading.Thread(target=go.wait, name="lost")
    thread.start()
    stack.callback(thread.join)
    stack.callback(go.set)


def a_process(stack: ExitStack) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    stack.callback(child.wait)
    stack.callback(child.kill)
    assert child.stdin is not None
    child.stdin.close()


def a_socket(stack: ExitStack) -> None:
    stack.enter_context(socket.socket())


def a_file(stack: ExitStack) -> None:
    stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115


def shared_memory(stack: ExitStack) -> None:
    descriptor = os.memfd_create("lost")
    stack.callback(os.close, descriptor)


@pytest.mark.parametrize(
    ("leak", "expected"),
    [
        (a_thread, "thread lost"),
        (a_process, "process "),
        (a_socket, ": socket:"),
        (a_file, "descriptor "),
        (shared_memory, "memfd:lost"),
    ],
)
def test_leak_is_seen(
    leak: Callable[[ExitStack], None], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaks, "PATIENCE", 0.02)
    before = Held.now()
    with ExitStack() as stack:
        leak(stack)
        found = left_since(before)
    assert len(found) == 1
    assert expected in found[0]
    assert left_since(before) == []


@pytest.mark.parametrize("leak", [a_socket, a_file, shared_memory])
@pytest.mark.parametrize("place", [0, 3])  # a file is known by this, or its inode
def test_leak_is_seen_where_another_file_was_closed(
    leak: Callable[[ExitStack], None], place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many are open as before: what is left has the number of the other."""
    monkeypatch.setattr(leaks, "PATIENCE", 0.02)
    with Path(__file__).open("rb") as other:
        other.seek(place)
        before = Held.now()
    with ExitStack() as stack:
        leak(stack)
        found = left_since(before)
    assert len(found) == 1
    assert found[0].startswith("descriptor ")


def test_what_was_there_before_is_no_leak() -> None:
    with ExitStack() as stack:
        a_thread(stack)
        a_socket(stack)
        assert left_since(Held.now()) == []
