"""A program, called with COUNT PORT...: another user who only connects.

It gives up root, opens so many connections to each port, opens anew what is closed,
and says what it holds; it leaves when its standard input ends.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401 -- out of reach afterwards
import os
import resource
import select
import socket
import sys

NOBODY = 65534


def main() -> None:
    """Hold the connections until told to leave."""
    count, ports = int(sys.argv[1]), [int(port) for port in sys.argv[2:]]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    held = []
    for port in ports:
        for _ in range(count):
            with contextlib.suppress(OSError):
                held.append(socket.create_connection(("127.0.0.1", port), 10))
    sys.stdout.write(f"{len(held)}\n")
    sys.stdout.flush()
    select.select([sys.stdin], [], [])


if __name__ == "__main__":
    main()
