"""First steps of a command, before its imports: it can be interrupted from now on."""

import os
import signal
import sys

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def begin() -> None:
    """Open descriptors 0 to 2 where they are closed, and answer signals with a line.

    A closed one would be that of the next file or socket that is opened, which then
    gets what is printed.
    """
    for number, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            nothing = os.open(os.devnull, os.O_RDWR)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupted)


def _interrupted(number: int, _frame: object) -> None:
    """End at once: nothing has been begun yet."""
    os.write(2, f"emu: interrupted by {signal.Signals(number).name}\n".encode())
    os._exit(130)
