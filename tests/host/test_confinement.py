"""Readers of strangers' files: whatever these do, one line and bounded memory."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import resource
import signal
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError, EmulatorError, InfeasiblePlacement, ScenarioErrors
from emu.errors import ScenarioError as WrongScenario
from emu.graph_data.imported import import_graph
from emu.host import confinement
from emu.host.confinement import MEMORY_ALWAYS, MEMORY_PER_BYTE, confine
from emu.host.input_file import map_array
from emu.host.limits import large_files
from emu.interchange.measurement import read_measurement
from emu.interchange.workload_formats import read_workload
from emu.scenario import load, read_profile
from emu.scenario.topology_file import read_keys

Reader = Callable[[Path], object]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "stranger"
    path.write_bytes(b"12345")
    return path


@confine
def _arrays(path: Path) -> dict[str, object]:
    matrix = np.arange(12.0).reshape(3, 4)
    mapped = map_array(path)
    return {"matrix": matrix, "none": matrix[:0], "columns": mapped.T[1:], "of": [path]}


def test_arrays_come_back_as_private_copies_and_mapped_ones_mapped(
    tmp_path: Path,
) -> None:
    path = tmp_path / "numbers.npy"
    numbers = np.arange(6, dtype=np.int16).reshape(2, 3)
    np.save(path, numbers)
    result = _arrays(path)
    matrix = result["matrix"]
    columns = result["columns"]
    assert isinstance(matrix, np.ndarray)
    assert isinstance(columns, np.ndarray)
    np.testing.assert_array_equal(matrix, np.arange(12.0).reshape(3, 4))
    matrix[0, 0] = 5  # shared with nobody
    np.testing.assert_array_equal(columns, numbers.T[1:])
    assert not columns.flags.writeable
    assert result["of"] == [path]


def _raise(_path: Path, error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    "error",
    [
        DataError("is wrong", path="file"),
        ScenarioErrors([WrongScenario("is odd", file="a.yaml", line=3, key="job")]),
        InfeasiblePlacement("too small", resource="gpus", shortfall=2.0),
        FileNotFoundError(2, "No such file", "gone"),
    ],
)
def test_foreseen_errors_come_back_as_they_are(file: Path, error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        confine(_raise)(file, error)
    assert str(caught.value) == str(error)
    assert caught.value.args == error.args


def _die(_path: Path, number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(9)


def _take(_path: Path, size: int) -> int:
    return len(bytearray(size))


@pytest.mark.parametrize(
    ("read", "argument", "words"),
    [
        (_raise, KeyError("nodes"), "is damaged: 'nodes'"),
        (_raise, SystemExit(3), "is damaged: 3"),
        (_die, signal.SIGSEGV, "is damaged: its reader ends with SIGSEGV"),
        (_die, signal.SIGKILL, "its reader was killed"),
        (_die, signal.SIGXCPU, "takes more than 60 s of CPU"),
        (_take, MEMORY_ALWAYS * 2, r"takes more than 0.5 GB of memory .*--large"),
    ],
)
def test_whatever_happens_to_a_reader_is_one_line(
    file: Path, read: Callable[..., object], argument: object, words: str
) -> None:
    with pytest.raises(DataError, match=f"stranger: {words}"):
        confine(read)(file, argument)


def test_a_larger_file_and_large_lift_the_bound(file: Path) -> None:
    with large_files(lambda _: None):
        assert confine(_take)(file, MEMORY_ALWAYS * 2) == MEMORY_ALWAYS * 2
    size = MEMORY_ALWAYS // MEMORY_PER_BYTE * 3
    with file.open("r+b") as sparse:
        sparse.truncate(size)
    assert confine(_take)(file, MEMORY_ALWAYS * 2)


def test_lines_are_told_in_the_process_that_asked(file: Path) -> None:
    lines: list[str] = []

    @confine
    def read(_path: Path, tell: Callable[[str], None]) -> int:
        tell("1 row")
        tell("2 rows")
        return confine(_take)(_path, 3)  # in the same child

    assert read(file, tell=lines.append) == 3
    assert lines == ["1 row", "2 rows"]


def _packed(suffix: str, **members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/") + suffix, content)
    return stream.getvalue()


def _npy(shape: str, content: bytes = b"") -> bytes:
    head = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + content


def _varint(number: int) -> bytes:
    digits = b""
    while number > 127:
        digits += bytes([number & 127 | 128])
        number >>= 7
    return digits + bytes([number])


def _nested_message(depth: int) -> bytes:
    message = b""
    for _ in range(depth):
        message = b"\x52" + _varint(len(message)) + message
    return _varint(7) + b"\x0a\x050.0.4" + _varint(len(message)) + message


def _import(path: Path) -> None:
    import_graph(path, "stranger", feature_length=2, classes=2)


def _read_topology(path: Path) -> None:
    read_keys(path, {})


def _billion(entry: str) -> str:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    names = "*a{0}, *a{0}, *a{0}, *a{0}, *a{0}, *a{0}, *a{0}, *a{0}, *a{0}"
    lines += [f"a{n}: &a{n} [{names.format(n - 1)}]" for n in range(1, 12)]
    return "\n".join([*lines, f"{entry}: *a11"])


_EDGES = b"source target\n" + b"".join(b"u%d u%d\n" % (n, n + 1) for n in range(2000))
_COUNT = 2_000_000_000
_ZEROS = bytes(30_000_000)
_OPEN = b"[" * 100_000
_TOPOLOGY = (
    '<platform version="4.1"><zone id="z" routing="Full">{}</zone></platform>'.format
)
_RADICAL = (
    '<cluster id="c" prefix="h" suffix="" radical="0-{}" speed="1Gf" bw="1GBps" '
    'lat="1us"/>'.format
)
#: Reader, ending of the name, and content: long words, counts in heads, tokens and
#: messages in each other, opcodes, and zeros in archives.
_AMPLIFIERS: dict[str, tuple[Reader, str, bytes]] = {
    "word": (_import, "csv", _EDGES + b"w" * 50_000 + b" u0\n"),
    "words": (_import, "txt", b"\n".join([b"a b"] * 2000 + [b"z " * 60_000])),
    "metis": (_import, "graph", b"%d 3\n2 3\n1 3\n1 2\n" % _COUNT),
    "market": (
        _import,
        "mtx",
        b"%%%%MatrixMarket matrix coordinate pattern general\n%d %d 1\n1 2\n"
        % (_COUNT, _COUNT),
    ),
    "id": (_import, "txt", b"0 1\n1 %d\n" % _COUNT),
    "npy": (_import, "npy", _npy(f"({_COUNT}, 2)")),
    "npz": (_import, "npz", _packed(".npy", edges=_npy(f"({_COUNT}, 2)"))),
    "npz of zeros": (
        _import,
        "npz",
        _packed(".npy", edges=_npy(f"({len(_ZEROS) // 16}, 2)", _ZEROS)),
    ),
    "gzip": (_import, "csv.gz", gzip.compress(b"0,1\n" * 10_000_000, 9)),
    "opcode": (
        _import,
        "pt",
        _packed(
            "",
            **{
                "a__data.pkl": b"\x80\x05\x8e" + (1 << 33).to_bytes(8, "little"),
                "a__version": b"3",
            },
        ),
    ),
    "bytearray": (
        _import,
        "pt",
        _packed(
            "",
            **{
                "a__data.pkl": b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.",
                "a__version": b"3",
            },
        ),
    ),
    "dgl": (
        _import,
        "bin",
        b"\x2c\x45\x01\x3d\x2c\xe5\xe3\xdd\x02\0\0\0\0\0\0\0"
        + b"\xff\xff\xff\x7f" * 99,
    ),
    "radical": (_read_topology, "xml", _TOPOLOGY(_RADICAL(_COUNT)).encode()),
    "radicals": (
        _read_topology,
        "xml",
        _TOPOLOGY(_RADICAL("399" + ",0-399" * 9999)).encode(),
    ),
    "nested xml": (_read_topology, "xml", b"<platform>" + b"<zone>" * 100_000),
    "aliases": (_read_topology, "yaml", _billion("npus_count").encode()),
    "nested yaml": (_read_topology, "yaml", b"topology: " + _OPEN),
    "goal": (read_workload, "goal", b"num_ranks %d\nrank 0 {\n}\n" % _COUNT),
    "coflows": (read_workload, "txt", b"%d %d\n1 0 1 0 1 0:1\n" % (_COUNT, _COUNT)),
    "nested message": (read_workload, "et", _nested_message(30_000)),
    "message of zeros": (read_workload, "et", _nested_message(1) + bytes(3_000_000)),
    "nested json": (
        read_workload,
        "json",
        b'{"schemaVersion": "1.5", "workflow": ' + _OPEN,
    ),
    "tokens": (
        read_workload,
        "json",
        b'{"schemaVersion": "1.5", "workflow": {"tasks": [' + b"[]," * 1_000_000,
    ),
    "profile": (
        read_profile,
        "json",
        b'{"version": 1, "edges": {}, "settings": {}, "tasks": {"a": ['
        + b"0," * 2_000_000
        + b"0]}}",
    ),
    "measurement": (
        read_measurement,
        "csv",
        b"iteration,seconds\n" + b"0" * 5_000_000 + b",1\n",
    ),
    "scenario": (load, "yaml", _billion("job").encode()),
    "iterations": (
        load,
        "json",
        json.dumps({"cluster": {"machines": 10**400}}).encode(),
    ),
}


@pytest.fixture
def peaks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the bytes of memory that each child has held at the most."""
    sizes: list[int] = []

    def wait(child: int, options: int) -> tuple[int, int]:
        number, status, usage = os.wait4(child, options)
        sizes.append(usage.ru_maxrss * 1024)
        return number, status

    monkeypatch.setattr(os, "waitpid", wait)
    return sizes


def _held() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGESIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("name", _AMPLIFIERS)
def test_no_file_takes_more_than_its_size_allows(
    name: str,
    tmp_path: Path,
    peaks: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, ending, content = _AMPLIFIERS[name]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / f"stranger.{ending}"
    path.write_bytes(content)

    opened_here = []
    open_file = os.open

    def watch(target: str, *how: int) -> int:
        if target == str(path) and not confinement._files:
            opened_here.append(target)
        return open_file(target, *how)

    monkeypatch.setattr(os, "open", watch)
    held = _held()
    # A scenario is read at once: here it is measured like the others.
    reader = confine(read) if read is load else read
    with contextlib.suppress(EmulatorError):
        reader(path)
    assert not opened_here
    assert len(peaks) == 1
    assert peaks[0] - held <= MEMORY_ALWAYS + MEMORY_PER_BYTE * len(content)


@pytest.mark.parametrize("are_lifted", [False, True])
def test_a_reader_may_have_so_much_beyond_what_its_process_has(
    are_lifted: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process has 7 pages of data, and no core is written in any case."""
    limits: dict[int, int] = {}
    monkeypatch.setattr(confinement, "_lower", limits.__setitem__)
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    monkeypatch.setattr(Path, "read_text", lambda _: "1 2 3 4 5 7 6\n")
    bounds = confinement._Bounds(memory=1000, seconds=9, are_lifted=are_lifted)

    bounds.apply()

    bound = {
        resource.RLIMIT_CPU: 9,
        resource.RLIMIT_DATA: 7 * resource.getpagesize() + 1000,
    }
    none_written: dict[int, Any] = {resource.RLIMIT_CORE: (0, 0)}
    assert limits == none_written | ({} if are_lifted else bound)
