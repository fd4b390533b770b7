"""Decisions of a host by a number or a word: watches, timers, names, characters."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

import emu
from emu.errors import DataError
from emu.host import confinement, first_moments, input_file, interruption
from emu.host.files import (
    check_folder,
    check_writable,
    discard_begun_files,
    remove,
    whole_file,
    write_atomic,
)
from emu.host.input_file import (
    ALWAYS_ALLOWED,
    check_shape,
    map_member,
    read_array_header,
    read_json,
    read_packed,
    read_packed_text,
)
from emu.host.interruption import Interrupted, Overdue, StopWatch, deadline, say, tell
from emu.host.this_host import (
    Host,
    create_memory,
    loopback_address,
    memory,
    module_command,
    name_of_clock,
    this_host,
    version_of_emu,
)


def test_a_process_is_stopped_for_more_than_the_patience_of_looks_in_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name may have brackets; t is how a debugger stops it."""
    states = iter("TTTSTtTTRTT")
    monkeypatch.setattr(Path, "read_text", lambda _: f"7 (a) T) {next(states)} 1 2")
    watch = StopWatch(7, patience=2.0)
    assert [watch.look() for _ in range(9)] == [
        *(False, False, True),
        *(False, False, False, True, True),
        False,
    ]
    watch.patience = 1.0
    assert [watch.look(), watch.look()] == [False, True]

    def gone(_: Path) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", gone)
    assert [watch.look() for _ in range(9)] == [False] * 9


@pytest.fixture
def alarms() -> Iterator[list[int]]:
    """Note alarms, and leave no timer."""
    seen: list[int] = []
    handler = signal.signal(signal.SIGALRM, lambda number, _: seen.append(number))
    yield seen
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, handler)


def test_a_block_that_outlasts_the_timer_around_it_sets_it_off_soon(
    alarms: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundredth of a second later; a signal's own timer has five seconds."""
    set_timers: list[tuple[float, ...]] = []
    real = signal.setitimer

    def set_timer(which: Any, *seconds: float) -> tuple[float, float]:
        set_timers.append(seconds)
        return real(which, *seconds)

    signal.setitimer(signal.ITIMER_REAL, 100.0)
    monkeypatch.setattr(signal, "setitimer", set_timer)
    times = iter([50.0, 350.0, 400.0, 401.5])
    clock = SimpleNamespace(monotonic=lambda: next(times))
    monkeypatch.setattr(interruption, "time", clock)
    with deadline(500.0):
        pass
    assert set_timers == [(500.0, 0.5), (0.0,), (0.01,)]

    set_timers.clear()
    with pytest.raises(Interrupted), deadline(500.0):
        raise Interrupted
    assert set_timers[-1] == (3.5,)
    assert len(alarms) <= 1


def test_a_deadline_ends_what_catches_every_exception(alarms: list[int]) -> None:

    def wait() -> None:
        with deadline(0.01):
            while True:
                with contextlib.suppress(Exception):  # as libraries do
                    signal.pause()

    with pytest.raises(Overdue):
        wait()
    assert alarms == []


def test_one_line_tells_of_an_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interruption, "_told", [])
    tell("interrupted by SIGTERM")
    tell("interrupted by SIGINT")
    say("more")
    assert capsys.readouterr().err == "emu: interrupted by SIGTERM\nemu: more\n"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "its reader was killed, perhaps for want of memory"),
        (signal.SIGKILL, "its reader was killed, perhaps for want of memory"),
        (3 << 8, "is damaged: its reader ends with status 3"),
        (signal.SIGBUS, "is damaged: its reader ends with SIGBUS"),
        (signal.SIGXCPU, "takes more than 70 s of CPU to read, the limit for a file"),
    ],
)
def test_an_end_without_an_answer_is_explained(status: int, words: str) -> None:
    bounds = confinement._Bounds(memory=2_500_000_000, seconds=70, are_lifted=False)
    assert bounds.explain(status).startswith(words)
    assert bounds.explain_memory().startswith("takes more than 2.5 GB of memory to")


def test_a_folder_is_one_or_can_be_made(tmp_path: Path) -> None:
    check_folder(tmp_path)
    check_folder(tmp_path / "a" / "b")
    file = tmp_path / "file"
    file.write_text("x")
    for path in (file, file / "a" / "b"):
        with pytest.raises(DataError, match=f"^{file}: .*: this is no folder$"):
            check_folder(path)
    dangling = tmp_path / "link"
    dangling.symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"link: .*: this is no folder"):
        check_folder(dangling / "a")


def test_a_folder_that_may_not_be_written_into_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are made where one may both write and enter."""
    asked: list[tuple[Path, int]] = []

    def access(path: Path, mode: int) -> bool:
        asked.append((path, mode))
        return False

    monkeypatch.setattr(os, "access", access)
    with pytest.raises(DataError, match="Permission denied"):
        check_folder(tmp_path / "a")
    assert asked == [(tmp_path, 3)]


def test_a_file_whose_folder_is_made_before_it_may_be_written(tmp_path: Path) -> None:
    made = tmp_path / "a" / "b"
    check_writable(made / "file", made=made)
    check_writable(tmp_path / "a" / "file", made=made)
    assert [*tmp_path.iterdir()] == []
    with pytest.raises(DataError, match="No such file or directory"):
        check_writable(tmp_path / "c" / "file", made=made)
    with pytest.raises(DataError, match="No such file or directory"):
        check_writable(made / "file")
    with pytest.raises(DataError, match="this is a folder"):
        check_writable(tmp_path)
    check_writable(tmp_path / "file")
    assert [*tmp_path.iterdir()] == []


def test_files_that_are_begun_go_where_the_process_ends(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def write() -> None:
        with whole_file(path) as partial:
            partial.write_text("new")
            assert partial.name == f".file.{os.getpid()}.partial"
            discard_begun_files()
            assert not partial.exists()

    with pytest.raises(DataError, match="cannot be written: No such file"):
        write()
    assert path.read_text() == "old"
    write_atomic(path, "whole é")
    assert path.read_bytes() == "whole é".encode()
    assert [*tmp_path.iterdir()] == [path]
    remove(path)
    with pytest.raises(DataError, match="file: cannot be removed: No such file"):
        remove(path)


def test_packed_bytes_are_known_by_their_content(tmp_path: Path) -> None:
    """And bounded before and after they are unpacked."""
    plain = tmp_path / "plain.gz"
    plain.write_bytes(b"\xef\xbb\xbfabc")
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbfabc", mtime=0))
    for path in (plain, packed):
        assert read_packed(path) == b"\xef\xbb\xbfabc"
        assert read_packed_text(path) == "abc"
    assert read_packed_text(plain, most=6) == "abc"
    size = packed.stat().st_size
    with pytest.raises(DataError, match=f"has {size} bytes, at most 6 are read"):
        read_packed_text(packed, most=6)
    packed.write_bytes(gzip.compress(b"a" * 99, mtime=0))
    assert len(read_packed_text(packed, most=99)) == 99
    with pytest.raises(DataError, match="unpacks to more than 98 bytes"):
        read_packed_text(packed, most=98)


def test_a_packed_file_unpacks_to_a_hundred_times_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros behind what is packed count as its size, and are nothing unpacked."""
    assert ALWAYS_ALLOWED == 1 << 24
    monkeypatch.setattr(input_file, "ALWAYS_ALLOWED", 0)
    path = tmp_path / "packed"
    packed = gzip.compress(bytes(100_000))
    path.write_bytes(packed.ljust(1000, b"\0"))
    assert read_packed(path) == bytes(100_000)
    path.write_bytes(packed.ljust(999, b"\0"))
    with pytest.raises(DataError, match="has 999 bytes and unpacks to a hundred times"):
        read_packed(path)


def test_keys_of_json_are_there_once_where_that_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"a": {"b": 1, "c": 2, "c": 3}}')
    assert read_json(path, unique_keys=False) == {"a": {"b": 1, "c": 3}}
    with pytest.raises(DataError, match=r'x\.json: "c" is there twice: keep one'):
        read_json(path, unique_keys=True)
    path.write_text('{"a": {"b": 1}, "b": {"a": 2}}')
    assert read_json(path, unique_keys=True)["b"] == {"a": 2}
    packed = tmp_path / "x.json.gz"
    packed.write_bytes(gzip.compress(b'{"a": 1, "a": 2}'))
    with pytest.raises(DataError, match='"a" is there twice'):
        read_json(packed, unique_keys=True)
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read_json(tmp_path)


def test_what_is_found_of_a_wrong_shape_is_shown_in_part() -> None:
    """Forty characters of the value, and of each step to it."""
    with pytest.raises(DataError) as raised:
        check_shape({"k" * 99: "x" * 99}, dict[str, int], Path("x.json"))
    _, place, words = str(raised.value).split(": ")
    assert len(place) == 40
    assert words.endswith(", found '" + "x" * 39)


def test_the_first_of_several_places_is_named() -> None:
    with pytest.raises(DataError, match=r"x\.json: a: .*, found 'one'$"):
        check_shape({"a": "one", "b": "two"}, dict[str, int], Path("x.json"))


def test_objects_of_python_are_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([None]), allow_pickle=True)
    problem = "Python objects, which are never unpickled"
    content = io.BytesIO((tmp_path / "x.npy").read_bytes())
    with pytest.raises(ValueError, match=problem):
        read_array_header(content)


def test_arrays_of_no_extent_or_a_wrong_one(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((0, 3)))
    head = path.read_bytes()
    path.write_bytes(head.replace(b"(0, 3)", b"(-1,3)"))
    with path.open("rb") as file, pytest.raises(ValueError, match=r"shape \(-1, 3\)"):
        read_array_header(file)
    np.save(path, np.arange(4, dtype=np.int16))
    content = path.read_bytes()
    # Another array may stand before it in a file.
    path.write_bytes(b"before" + content)
    with path.open("rb") as file:
        file.seek(6)
        assert map_member(file).tolist() == [0, 1, 2, 3]


def test_characters_that_an_encoding_lacks_are_written_plainly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Blocks are bars, lines are dashes, and others what Python writes of them."""
    changed: list[Any] = []
    fake = SimpleNamespace(
        SIG_IGN=signal.SIG_IGN,
        SIG_UNBLOCK="unblock",
        getsignal={2: None, 1: signal.SIG_IGN, 15: None}.get,
        signal=lambda number, _: changed.append(number),
        pthread_sigmask=lambda *mask: changed.append(mask),
    )
    stream = SimpleNamespace(reconfigure=lambda **stated: changed.append(stated))
    monkeypatch.setattr(first_moments, "signal", fake)
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setattr("sys.stderr", stream)
    first_moments.begin()

    assert changed == [
        *[{"errors": "emu"}] * 2,
        *(signal.SIGINT, signal.SIGTERM),
        ("unblock", (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)),
    ]
    told = "\u2580\u2588\u2591\u259f \u2500\u2502\u257f\u253c µ ± \u25a0 é a"
    plain = told.encode("ascii", "emu").decode()
    assert plain == r"##.# -|-- u +- \u25a0 \xe9 a"
    assert "é\u2026b".encode("latin-1", "emu") == "é...b".encode("latin-1")
    with pytest.raises(UnicodeDecodeError):
        b"\xff".decode("utf-8", "emu")


def test_a_host_is_replaced_for_a_block() -> None:
    host = Host(monotonic=lambda: 1.0)
    other = Host(monotonic=lambda: 2.0, process_id=lambda: 7)

    def fail() -> None:
        with host.replace(other):
            assert (host.monotonic(), host.process_id()) == (2.0, 7)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (host.monotonic(), host.process_id()) == (1.0, os.getpid())
    assert this_host.precise_timers()


def test_a_version_of_a_tree_has_what_git_calls_its_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The commit is of the package's tree; without git the version stands alone."""
    asked: list[list[str]] = []

    def run(command: list[str], **_: Any) -> Any:
        asked.append(command)
        if len(asked) > 1:
            raise subprocess.TimeoutExpired(command, 10.0)
        return SimpleNamespace(stdout="1234567-dirty\n")

    monkeypatch.setattr(Path, "exists", lambda path: path.name == ".git")
    monkeypatch.setattr(subprocess, "run", run)
    tree = Path(emu.__file__).parents[1]
    ask = version_of_emu.__wrapped__
    assert ask() == f"{emu.__version__}+1234567-dirty"
    assert ask() == emu.__version__
    assert asked[0][:3] == ["git", "-C", str(tree)]


def test_clocks_have_a_name_where_the_kernel_tells_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert name_of_clock() == f"{boot} {os.readlink('/proc/self/ns/time')}"  # noqa: PTH115

    def fail(_: object, *__: object) -> str:
        raise OSError(errno.ENOENT, "no /proc")

    monkeypatch.setattr(Path, "read_text", fail)
    assert name_of_clock() == ""
    available = psutil.virtual_memory().available
    assert memory("total") == psutil.virtual_memory().total > available
    monkeypatch.setattr(psutil, "virtual_memory", fail)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: fail(None))
    assert memory("total") is None


def test_a_host_reaches_itself_by_the_family_that_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert loopback_address() == "127.0.0.1"

    def fail(*_: object) -> socket.socket:
        raise OSError(errno.EADDRNOTAVAIL, "no IPv4")

    monkeypatch.setattr(socket, "create_server", fail)
    assert loopback_address() == "::1"


def test_shared_memory_has_a_path_by_which_others_open_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for lacks_memfd in (False, True):
        if lacks_memfd:
            monkeypatch.delattr(os, "memfd_create")
        descriptor, path = create_memory()
        os.write(descriptor, b"shared")
        assert Path(path).read_bytes() == b"shared"
        assert path.startswith("/proc/") != lacks_memfd
        if lacks_memfd:
            Path(path).unlink()
        os.close(descriptor)


def test_modules_are_run_by_this_interpreter_wherever_it_stands() -> None:
    command = module_command("emu.cli", "run", "x")
    assert command[1:] == ["-P", "-m", "emu.cli", "run", "x"]
    assert Path(command[0]).exists()
