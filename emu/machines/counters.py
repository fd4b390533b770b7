"""The kernel's counts of every machine, read from outside: nothing there wakes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emu.machines.namespace_client import Holder


def tcp_counts(process: int) -> dict[str, int]:
    """Return TCP's counts in the network of a process since its start.

    ``segments`` that were sent, ``retransmitted`` ones, and ``timeouts``, each of which
    stops a connection for 0.2 s or more.
    """
    counted: dict[str, int] = {}
    for name in ("snmp", "netstat"):
        lines = Path(f"/proc/{process}/net/{name}").read_text().splitlines()
        for keys, values in zip(lines[::2], lines[1::2], strict=True):
            pairs = zip(keys.split()[1:], values.split()[1:], strict=True)
            counted |= {key: int(value) for key, value in pairs}
    return {
        "segments": counted["OutSegs"],
        "retransmitted": counted["RetransSegs"],
        "timeouts": counted["TCPTimeouts"],
    }


def device_counts(process: int) -> dict[str, list[int]]:
    """Return bytes and packets that each device of a network received, and sent."""
    found = {}
    for line in Path(f"/proc/{process}/net/dev").read_text().splitlines()[2:]:
        name, figures = line.split(":")
        counts = [int(figure) for figure in figures.split()]
        found[name.strip()] = [counts[0], counts[1], counts[8], counts[9]]
    return found


class Counters:
    """Reads what the kernel counts of all machines of a lab that is up.

    Parameters
    ----------
    network
        Name of the limited network: of every machine's NIC, and of the switch's devices
        with the number of the machine.
    """

    def __init__(self, switch: Holder, holders: Sequence[Holder], network: str) -> None:
        self._switch, self._holders = switch, holders
        self._names = [f"{network}-{number}" for number in range(len(holders))]
        self._out = [holder.open_netlink([network]) for holder in holders]
        self._into, self._devices = switch.open_netlink(self._names)

    def traffic(self) -> dict[str, dict[str, int]]:
        """Return bytes and packets that crossed each NIC, as the switch counted them.

        By machine: ``out_bytes``, ``out_packets``, ``in_bytes``, ``in_packets``, with
        all headers.
        """
        devices = device_counts(self._switch.process)
        keys = ("out_bytes", "out_packets", "in_bytes", "in_packets")
        return {
            holder.name: dict(zip(keys, devices[name], strict=True))
            for holder, name in zip(self._holders, self._names, strict=True)
        }

    def tcp(self) -> dict[str, dict[str, int]]:
        """Return the `tcp_counts` of each machine."""
        return {holder.name: tcp_counts(holder.process) for holder in self._holders}

    def queues(self) -> tuple[list[list[int]], list[list[int]]]:
        """Return packets that queues dropped so far, and bytes that wait in them now.

        Each for out of and into every machine.

        Raises
        ------
        OSError
            When a machine has gone.
        """
        ways = (
            [kernel.queue(index) for kernel, (index,) in self._out],
            [self._into.queue(index) for index in self._devices],
        )
        dropped, waiting = ([[one[i] for one in way] for way in ways] for i in (0, 1))
        return dropped, waiting

    def close(self) -> None:
        """Let go of the sockets."""
        for kernel, _ in self._out:
            kernel.close()
        self._into.close()
