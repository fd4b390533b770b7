"""Files of strangers, read in a process of their own within bounds of memory and time.

A reader cannot know what a file makes a library do: a word of 100 kB in a table, a
count in a head or an opcode of a pickle may ask for gigabytes. So a reader of
such files is one that `confine` has made. A child reads, its limits follow from the
size of the file, and arrays come back through memory that both share.
"""

from __future__ import annotations

import contextlib
import functools
import io
import mmap
import os
import pickle
import resource
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn, Self, TypeGuard, TypeVar

import numpy as np
from typing_extensions import ParamSpec, override

from emu.array_types import Array
from emu.errors import DataError, EmulatorError
from emu.host.interruption import die_with_parent
from emu.host.limits import are_large
from emu.names import printable

Given = ParamSpec("Given")
Result = TypeVar("Result")
Tell = Callable[[str], None]

#: Bytes of memory that any file may take, and that it may take per byte of its size.
MEMORY_ALWAYS = 1 << 29
MEMORY_PER_BYTE = 100
#: Seconds of CPU likewise.
_SECONDS_ALWAYS = 60
_SECONDS_PER_BYTE = 20e-6
#: A handler of the command would print its line twice.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
_REMEDY = "the limit for a file of its size: --large lifts it for files of your own"
#: What is read, in a child: what it calls is confined already.
_files: list[Path] = []


class _Answer(NamedTuple):
    """A message of a child: lines to tell, and at the end a result or an error."""

    kind: str
    """``line``, ``result`` or ``error``."""
    content: Any
    """The line or the error; of a result its pickle."""
    sizes: tuple[int, ...] = ()
    """Bytes of the arrays of a result, which lie in shared memory one by one."""


@dataclass(frozen=True)
class _Bounds:
    """Limits of a child."""

    memory: int
    """Bytes beyond those of the process that it is a copy of."""
    seconds: int
    """CPU seconds."""
    are_lifted: bool

    @classmethod
    def of(cls, paths: Iterable[Path]) -> Self:
        """Return the limits for files, by the bytes of all."""
        size = sum(map(_size, paths))
        return cls(
            memory=MEMORY_ALWAYS + MEMORY_PER_BYTE * size,
            seconds=int(_SECONDS_ALWAYS + _SECONDS_PER_BYTE * size),
            are_lifted=are_large(),
        )

    def apply(self) -> None:
        """Hold this process to them; only its soft limits change."""
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if self.are_lifted:
            return
        _lower(resource.RLIMIT_CPU, self.seconds)
        # Without /proc there is no telling what the process has: macOS.
        with contextlib.suppress(OSError):
            statm = Path("/proc/self/statm").read_text()
            data_pages = int(statm.split()[5])
            held_bytes = data_pages * resource.getpagesize()
            _lower(resource.RLIMIT_DATA, held_bytes + self.memory)

    def explain_memory(self) -> str:
        """Return what is said where memory did not suffice."""
        memory = f"{self.memory / 1e9:.1f} GB of memory"
        return f"takes more than {memory} to read, {_REMEDY}"

    def explain(self, status: int) -> str:
        """Return why a child ended without an answer, by its exit status."""
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGXCPU:
            return f"takes more than {self.seconds} s of CPU to read, {_REMEDY}"
        # The kernel kills where memory of all processes runs out.
        if code in (0, -signal.SIGKILL):
            return "its reader was killed, perhaps for want of memory"
        name = signal.Signals(-code).name if code < 0 else f"status {code}"
        return f"is damaged: its reader ends with {name}"


def confine(read: Callable[Given, Result]) -> Callable[Given, Result]:
    """Return a reader of strangers' files that does its work in a process of its own.

    Its files are its arguments that are paths; bounds follow from the bytes of all, of
    folders with what is below. Under `large_files` there are none. What it returns is
    pickled, arrays apart: they are shared, and mapped files stay mapped. Lines for its
    argument ``tell`` are told in this process. One confined reader may call another.

    The reader raises what it foresees (EmulatorError, OSError), and DataError of its
    first file where it takes too much memory or time, is killed, or raises anything
    else.
    """

    @functools.wraps(read)
    def read_apart(*values: Given.args, **named: Given.kwargs) -> Result:
        if _files:
            return read(*values, **named)
        arguments = (*values, *named.values())
        paths = [value for value in arguments if _is_path(value)]
        return _read_apart(
            read,
            values=values,
            named=named,
            paths=paths,
        )

    return read_apart


def _is_path(value: object) -> TypeGuard[Path]:
    return isinstance(value, Path)


def _read_apart(
    read: Callable[..., Result],
    values: tuple[Any, ...],
    named: dict[str, Any],
    paths: list[Path],
) -> Result:
    bounds = _Bounds.of(paths)
    tell = named.get("tell")
    with _open_memory() as memory:
        answers, answers_of_child = os.pipe()
        child = _fork()
        if child == 0:
            _files.extend(paths)
            with os.fdopen(answers_of_child, "wb") as stream:
                if tell:
                    named["tell"] = functools.partial(_send, stream, "line")
                work = functools.partial(read, *values, **named)
                _answer(work, stream, memory, bounds)

        os.close(answers_of_child)
        with os.fdopen(answers, "rb") as stream, _reap(child) as statuses:
            answer = _receive(stream, tell)
        if answer is None:
            raise DataError(bounds.explain(statuses[0]), path=paths[0])
        if answer.kind == "error":
            raise answer.content
        result: Result = _restore(answer, memory)
        return result


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all below a folder; 0 of what is missing."""
    if not path.is_dir():
        return path.stat().st_size if path.exists() else 0
    files = (file for file in path.rglob("*") if file.is_file())
    return sum(file.stat().st_size for file in files)


def _open_memory() -> BinaryIO:
    """Return memory without a name that a child shares; a file without memfd."""
    if not hasattr(os, "memfd_create"):
        return tempfile.TemporaryFile()
    return os.fdopen(os.memfd_create("emu-arrays", os.MFD_CLOEXEC), "w+b")


def _fork() -> int:
    with warnings.catch_warnings():
        # Threads of the parent hold no lock that a reader takes: it computes alone.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


@contextlib.contextmanager
def _reap(child: int) -> Iterator[list[int]]:
    """Wait for a child at the end of a block, and add its status to a list.

    A block that was interrupted ends it.
    """
    statuses: list[int] = []
    try:
        yield statuses
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        _, status = os.waitpid(child, 0)
        statuses.append(status)


def _receive(stream: BinaryIO, tell: Tell | None) -> _Answer | None:
    """Return the last answer of a child, None where it died; pass lines on."""
    while True:
        try:
            answer = _Answer(*pickle.load(stream))  # noqa: S301 - of our own process
        except (EOFError, pickle.UnpicklingError):
            return None
        if answer.kind != "line":
            return answer
        if tell is not None:
            tell(answer.content)


def _restore(answer: _Answer, memory: BinaryIO) -> Any:
    """Return a result whose arrays are private copies of what a child has written."""
    # One byte more than all: nothing cannot be mapped.
    length = sum(answer.sizes) + 1
    memory.truncate(length)
    # Pages are copied as they are written to.
    pages = mmap.mmap(memory.fileno(), length, access=mmap.ACCESS_COPY)
    content = memoryview(pages)

    buffers = []
    begin = 0
    for size in answer.sizes:
        buffers.append(content[begin : begin + size])
        begin += size
    return pickle.loads(answer.content, buffers=buffers)  # noqa: S301 - as above


def _send(stream: BinaryIO, *answer: Any) -> None:
    pickle.dump(answer, stream)
    stream.flush()


def _answer(
    work: Callable[[], Any],
    stream: BinaryIO,
    memory: BinaryIO,
    bounds: _Bounds,
) -> NoReturn:
    """Read in this child, answer, and end it."""
    try:
        die_with_parent()
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        try:
            bounds.apply()
            answer = _pack(work(), memory)
        except BaseException as error:  # noqa: BLE001 - whatever a library raises
            answer = _Answer("error", _failure(error, bounds))
        _send(stream, *answer)
    finally:
        # Without what the parent does at its end: flush, hooks, finalizers.
        os._exit(0)


def _pack(result: Any, memory: BinaryIO) -> _Answer:
    """Return an answer with a result, whose arrays are written to shared memory."""
    content = io.BytesIO()
    sizes = []

    def write(buffer: pickle.PickleBuffer) -> None:
        with buffer.raw() as data:
            sizes.append(memory.write(data))

    _Pickler(content, protocol=5, buffer_callback=write).dump(result)
    memory.flush()
    return _Answer("result", content.getvalue(), tuple(sizes))


def _lower(kind: int, bound: int) -> None:
    _, most = resource.getrlimit(kind)
    is_lower = most == resource.RLIM_INFINITY or bound < most
    soft = bound if is_lower else most
    resource.setrlimit(kind, (soft, most))


def _failure(error: BaseException, bounds: _Bounds) -> Exception:
    """Return an error that can be pickled, of what reading raised."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))  # words take memory, too
    path = _files[0]
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError) and not bounds.are_lifted:
            return DataError(bounds.explain_memory(), path=path)
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, EmulatorError | OSError):
        return error
    text = printable(str(error)) or type(error).__name__
    return DataError(f"is damaged: {text}", path=path)


class _Pickler(pickle.Pickler):
    """Pickles with arrays of mapped files as their place in the file."""

    @override
    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, np.ndarray):
            return NotImplemented
        owner = obj
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        if not isinstance(owner, np.memmap):
            return NotImplemented
        return _map, _place(obj, owner)


def _place(view: Array, mapped: np.memmap[Any, Any]) -> tuple[Any, ...]:
    """Return the arguments by which `_map` makes a view of a mapped file again."""
    address, _ = view.__array_interface__["data"]
    begin, _ = mapped.__array_interface__["data"]
    offset = mapped.offset + address - begin
    return (
        str(mapped.filename),
        view.shape,
        view.dtype,
        offset,
        view.strides,
    )


def _map(
    path: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    offset: int,
    strides: tuple[int, ...],
) -> Array:
    content = np.memmap(path, np.uint8, "r")
    return np.ndarray(
        shape,
        dtype,
        buffer=content,
        offset=offset,
        strides=strides,
    )
