"""First steps of a command, before its imports: it can be interrupted from now on."""

import codecs
import os
import signal
import sys

#: Streams of the descriptors 0, 1, 2.
_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
#: Signals that end a command.
_ENDING = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)


#: What is drawn, where a terminal's encoding has none of it.
_PLAIN = {
    "░": ".",
    "±": "+-",
    "→": "->",
    "…": "...",
    "\u00d7": "x",
    "µ": "u",
    "μ": "u",
    "≤": "<=",
    "≥": ">=",
    "·": ".",
    "\u2013": "-",
    "—": "-",
    "│": "|",
    "┃": "|",
}


def _write_plainly(error: UnicodeError) -> tuple[str, int]:
    """Return ASCII for characters that cannot be encoded, and where to go on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(map(_plain, text)), error.end


def _plain(character: str) -> str:
    """Return a bar for a block, a dash for a line, and else what Python writes."""
    if "\u2580" <= character <= "\u259f":
        return _PLAIN.get(character, "#")
    if "\u2500" <= character < "\u2580":
        return _PLAIN.get(character, "-")
    return _PLAIN.get(character) or ascii(character)[1:-1]


def begin() -> None:
    """Open descriptors 0 to 2 where they are closed, and answer signals with a line.

    Standard output and error write in ASCII what their encoding lacks.

    A closed one would be that of the next file or socket that is opened, which then
    gets what is printed.
    """
    for number, (name, mode) in enumerate(_STREAMS):
        _open_where_closed(number)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115

    codecs.register_error("emu", _write_plainly)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="emu")

    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_interrupt)
    # Those that came while this process became this program are answered now.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


def hold_signals() -> None:
    """Hold signals back until `begin` of the program that this process becomes.

    A new program begins without handlers: what came before its `begin` killed an agent
    without a word.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)


def _open_where_closed(number: int) -> None:
    """Have a descriptor lead nowhere where it is closed."""
    try:
        os.fstat(number)
    except OSError:
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
        os.set_inheritable(number, True)


def _on_interrupt(number: int, _frame: object) -> None:
    """End at once: nothing has been begun yet."""
    os.write(2, f"emu: interrupted by {signal.Signals(number).name}\n".encode())
    os._exit(130)
