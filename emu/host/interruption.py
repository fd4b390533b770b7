"""End a command on a signal: one line, status 130, nothing half-written.

Ctrl-C, SIGTERM and a lost terminal end a command alike, whatever it is doing. Within a
run the event loop receives them, which ends the run in good order; at all other times
they raise a KeyboardInterrupt here. That may come up in the middle of an import or of
a library's code, which swallows it or makes another error of it: what follows a signal
is its consequence, and what goes on regardless is ended.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from emu.host.files import discard_begun_files

#: As shells have it: 128 + SIGINT.
INTERRUPTED = 130
#: Signals that end a command.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
#: Wall seconds that the command has to end by itself.
_PATIENCE = 5.0
#: Wall seconds until it is raised again, if Python dropped it.
_AGAIN = 0.01
#: The line that was printed; one is enough.
_told: list[str] = []


class Interrupted(KeyboardInterrupt):
    """A signal came.

    A class of its own: CPython takes note of a plain KeyboardInterrupt wherever it
    crosses C code, and kills the process by SIGINT at its end, caught or not.
    """


class _Ending:
    """The handlers of a command: the signal that ends it, raised until it does."""

    def __init__(self) -> None:
        self.received = ""
        self._dropped = False

    def listen(self) -> None:
        sys.unraisablehook = self.unraisable
        # Let none kill an interpreter that takes its handlers, then itself, down.
        atexit.register(_ignore, (*_ENDING, signal.SIGALRM))
        signal.signal(signal.SIGALRM, self.overdue)
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.on_interrupt)

    def on_interrupt(self, number: int, _frame: FrameType | None) -> None:
        if not self.received:
            self.received = signal.Signals(number).name
            self._raise()

    def unraisable(self, report: sys.UnraisableHookArgs) -> None:
        # Python drops what is raised in a finalizer or in a callback of a weak
        # reference (imports have some), and prints it: raise it again outside.
        if isinstance(report.exc_value, Interrupted):
            self._dropped = True
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        elif not self.received:
            sys.__unraisablehook__(report)

    def overdue(self, _number: int, _frame: FrameType | None) -> None:
        if self._dropped:
            self._raise()
        discard_begun_files()
        tell(f"interrupted by {self.received}")
        os._exit(INTERRUPTED)

    def _raise(self) -> None:
        self._dropped = False
        signal.setitimer(signal.ITIMER_REAL, _PATIENCE)
        raise Interrupted(f"interrupted by {self.received}")


def one_line_at_a_signal(command: Callable[[], None]) -> None:
    """Run a command; at a signal, end the process with one line and status 130.

    A signal that this process was started to ignore, as by nohup, is ignored. This is
    no context manager: a signal between its handlers and the block, in the code of
    contextlib, would end in a traceback.

    Raises SystemExit when a signal came.
    """
    ending = _Ending()
    _told.clear()
    try:
        try:
            ending.listen()
            command()
        finally:
            _ignore(_ENDING)  # it has ended: nothing is interrupted any more
    except KeyboardInterrupt as interruption:
        tell(str(interruption) or "interrupted")
        sys.exit(INTERRUPTED)
    except BaseException:
        if not ending.received:
            raise
        tell(f"interrupted by {ending.received}")
        sys.exit(INTERRUPTED)


def _ignore(numbers: Sequence[signal.Signals]) -> None:
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def tell(line: str) -> None:
    """Print the one line of an interruption, unless it has been."""
    if not _told:
        _told.append(line)
        say(line)


def say(line: str) -> None:
    """Print a line on standard error, which may be closed."""
    with contextlib.suppress(OSError):
        print(f"emu: {line}", file=sys.stderr, flush=True)  # noqa: T201


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies, however it dies.

    Linux only; elsewhere a process ends when it sees its control connection end.
    """
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the request was in place
        os.kill(os.getpid(), signal.SIGKILL)


class StopWatch:
    """A look at whether a process, such as the parent, has been stopped for too long.

    A process that SIGSTOP has stopped neither dies nor closes what its children read.
    Without /proc nothing is seen: a child waits for its parent's end.
    """

    #: Wall seconds between two looks.
    PAUSE = 1.0

    def __init__(self, process: int, patience: float) -> None:
        self.patience = patience
        self._path = Path(f"/proc/{process}/stat")
        self._looks = 0

    def look(self) -> bool:
        """Return True where it was found stopped for ``patience`` wall seconds.

        Called every `PAUSE`. Looks are counted, not seconds: where this process stood
        still as well, both may go on.
        """
        state = ""
        with contextlib.suppress(OSError):
            # Its name stands before, in brackets, and may have some.
            _, _, fields = self._path.read_text().rpartition(") ")
            state = fields[:1]
        self._looks = self._looks + 1 if state in ("T", "t") else 0
        return self._looks * self.PAUSE > self.patience


class Overdue(BaseException):
    """A deadline is over. Code that catches every Exception does not catch this."""


#: Wall seconds after which a deadline is raised again, where code dropped it.
_ONCE_MORE = 0.5


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """End a block after so many wall seconds, even where it sleeps.

    Raises Overdue when it took longer, and ValueError when this is not the main thread,
    the only one that signals interrupt.
    """

    def overdue(_number: int, _frame: FrameType | None) -> None:
        raise Overdue

    began = time.monotonic()
    handler = signal.signal(signal.SIGALRM, overdue)
    rest, _ = signal.setitimer(signal.ITIMER_REAL, seconds, _ONCE_MORE)
    try:
        yield
    except Interrupted:
        rest = _PATIENCE  # the timer that came with it
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler)
        if rest:
            seconds_gone = time.monotonic() - began
            signal.setitimer(signal.ITIMER_REAL, max(rest - seconds_gone, _AGAIN))
