"""Which program of a lab had which TCP port, noted while its processes live."""

from __future__ import annotations

from pathlib import Path

from emu.machines.programs import MACHINE, PROGRAM
from emu.machines.run_delay import processes_below


class PortOwners:
    """Ports of all processes below one; a connection shorter than a pause is missed."""

    def __init__(self, root: int) -> None:
        self._root = root
        self.found: dict[tuple[str, int], str] = {}
        """Name of the program by machine and port, the first that was seen there."""

    def sample(self) -> None:
        """Read the ports of every process that lives now."""
        for process in processes_below(self._root):
            home = Path(f"/proc/{process}")
            try:
                given = _environment(home)
                if {MACHINE, PROGRAM} <= given.keys():
                    for port in _ports(home):
                        at = given[MACHINE], port
                        self.found.setdefault(at, given[PROGRAM])
            except OSError:  # it has ended
                continue


def _environment(home: Path) -> dict[str, str]:
    """Return the environment that a process began with."""
    lines = (home / "environ").read_bytes().decode(errors="replace").split("\0")
    return dict(line.split("=", 1) for line in lines if "=" in line)


def _ports(home: Path) -> set[int]:
    """Return the local TCP ports of a process, in the network that it is in."""
    sockets = set()
    for descriptor in (home / "fd").iterdir():
        target = str(descriptor.readlink())
        if target.startswith("socket:["):
            sockets.add(target[len("socket:[") : -1])
    if not sockets:
        return set()
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        if (home / "net" / table).exists()
        for line in (home / "net" / table).read_text().splitlines()[1:]
    ]
    return {int(row[1].rsplit(":")[-1], 16) for row in rows if row[9] in sockets}
