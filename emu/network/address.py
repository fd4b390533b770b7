"""Addresses as people write them: HOST:PORT, with brackets around IPv6."""

from __future__ import annotations

import re

from emu.names import printable

_HOST = re.compile(r"[A-Za-z0-9._~-]+(%[A-Za-z0-9._-]+)?")
_ADDRESS = re.compile(r"(?:\[(?P<six>[^\]]*)\]|(?P<host>[^:\[\]]*))(?::(?P<port>.*))?")
_PORTS = 1 << 16


def parse_address(text: str, *, port: int | None = None) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, ``[IPV6]:PORT``.

    Parameters
    ----------
    port
        What may be left out; None if nothing may.

    Raises
    ------
    ValueError
        When it is no address; says what would be right.
    """
    found = _ADDRESS.fullmatch(text)
    six, host = (found["six"], found["host"]) if found else (None, None)
    stated = found["port"] if found else None
    known = bool(
        re.fullmatch(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?", six)
        if six is not None
        else _HOST.fullmatch(host or "")
    )
    if not known or (stated is None and port is None):
        optional = "[:PORT]" if port is not None else ":PORT"
        raise ValueError(
            f"{printable(text)!r} is not HOST{optional} or [IPV6]{optional}"
        )
    if stated is None:
        return six or host or "", port or 0
    if not (stated.isascii() and stated.isdecimal() and int(stated[:9]) < _PORTS):
        raise ValueError(
            f"{printable(text)!r}: the port is {printable(stated)!r}; "
            f"a port is a number from 0 to {_PORTS - 1}"
        )
    return six or host or "", int(stated)


def format_address(host: str, port: int) -> str:
    """Return an address as `parse_address` reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
