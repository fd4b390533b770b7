"""Ports of a lab's programs, by what the kernel tells of their processes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from emu.lab.machines import counters
from emu.lab.machines.counters import (
    CoreWaits,
    Counters,
    PortOwners,
    QuotaWaits,
    _ports,
    _program_of,
    _read_counts,
    off_quota,
    processes_below,
)
from emu.lab.machines.cpu_groups import CpuQuota
from emu.lab.machines.programs import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Mapping

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n"


def line(local: str, remote: str, socket: int) -> str:
    """Return a line of /proc/net/tcp."""
    return f"   0: {local} {remote} 0A 00000000:00000000 00:0 00000000 0 0 {socket} 1\n"


def test_ports_are_the_local_ones_of_the_sockets_of_a_process(tmp_path: Path) -> None:
    """Its sockets are 11 and 13; 12 is of another process, and 14 of no network."""
    (tmp_path / "fd").mkdir()
    for number, target in enumerate(("/dev/null", "socket:[11]", "socket:[13]")):
        (tmp_path / "fd" / str(number)).symlink_to(target)
    (tmp_path / "net").mkdir()
    here, there = "0100007F:1F90", "0200007F:0050"
    lines = [line(here, there, 11), line(there, here, 12)]
    (tmp_path / "net" / "tcp").write_text(HEAD + "".join(lines))
    assert _ports(tmp_path) == {0x1F90}

    of_six = line(f"{'0' * 32}:2710", f"{'0' * 32}:0000", 13)
    (tmp_path / "net" / "tcp6").write_text(HEAD + of_six)
    assert _ports(tmp_path) == {0x1F90, 10000}


def test_a_process_is_of_the_last_program_that_its_environment_names(
    tmp_path: Path,
) -> None:
    environment = [f"{PROGRAM}=a", "X=y=z", f"{PROGRAM}=b=c", ""]
    (tmp_path / "environ").write_bytes("\0".join(environment).encode())
    assert _program_of(tmp_path) == "b=c"
    (tmp_path / "environ").write_bytes(b"X=y\0")
    assert _program_of(tmp_path) is None


def test_tcp_s_counts_are_those_since_the_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = {
        "snmp": {"InSegs": 1, "OutSegs": 20, "RetransSegs": 4},
        "netstat": {"TCPTimeouts": 7, "TCPLostRetransmit": 2},
    }
    monkeypatch.setattr(counters, "_read_counts", lambda table: told[table.name])
    earlier = {"a": {"segments": 5, "retransmitted": 3, "timeouts": 1}}
    lab: Any = SimpleNamespace(
        _holders=[SimpleNamespace(name=name, process=1) for name in "ab"],
        _before=SimpleNamespace(tcp=earlier),
    )

    assert counters.Counters.tcp(lab) == {
        "a": {"segments": 15, "retransmitted": 1, "timeouts": 6},
        "b": {"segments": 20, "retransmitted": 4, "timeouts": 7},
    }


class Queue:
    """A socket to the kernel that tells drops and waiting bytes by device."""

    def __init__(self, told: Mapping[int, tuple[int, int]]) -> None:
        self.told = dict(told)
        self.is_closed = False

    def queue(self, index: int) -> tuple[int, int]:
        """Return what a device's queues dropped, and what waits in them."""
        return self.told[index]

    def close(self) -> None:
        """Note the end."""
        self.is_closed = True


class Machine:
    """A process that holds a machine, by name and number."""

    def __init__(self, name: str, process: int, queue: Queue, *devices: int) -> None:
        self.name = name
        self.process = process
        self.devices = list(devices)
        self.queue = queue
        self.asked: list[str] = []

    def open_netlink(self, names: list[str]) -> tuple[Queue, list[int]]:
        """Return the kernel's socket and the numbers of its devices."""
        self.asked += names
        return self.queue, self.devices


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that stands for /proc."""
    monkeypatch.setattr(
        counters, "Path", lambda path: tmp_path / str(path).removeprefix("/proc/")
    )
    return tmp_path


DEVICES = """Inter-|   Receive                    |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets
nic-1: 50 5 0 1 0 0 0 0 {sent} 7 0 0 0 0 0 0
  lo: 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9
nic-0:{received} 3 0 1 0 0 0 0 40 4 2 0 0 0 0 0
"""


def write_networks(proc: Path, *, received: int, sent: int, timeouts: int) -> None:
    """Write what the kernel tells of a switch, process 1, and machines 2 and 3."""
    (proc / "1" / "net").mkdir(parents=True, exist_ok=True)
    table = DEVICES.format(received=received, sent=sent)
    (proc / "1" / "net" / "dev").write_text(table)
    for process in (2, 3):
        network = proc / str(process) / "net"
        network.mkdir(parents=True, exist_ok=True)
        (network / "snmp").write_text(
            "Ip: Forwarding InReceives\nIp: 1 2\n"
            f"Tcp: InSegs OutSegs RetransSegs\nTcp: 8 {100 * process} {process}\n"
        )
        (network / "netstat").write_text(
            f"TcpExt: TCPLoss TCPTimeouts\nTcpExt: 1 {timeouts * process}\n"
        )


def test_counts_are_by_machine_and_way_and_since_the_restart(proc: Path) -> None:
    """The switch receives what a machine sends; its devices come in any order."""
    write_networks(proc, received=30, sent=60, timeouts=1)
    out = [Queue({5: (2, 0)}), Queue({6: (3, 0)})]
    into = Queue({8: (4, 0), 9: (5, 0)})
    machines = [Machine("a", 2, out[0], 5), Machine("b", 3, out[1], 6)]
    switch = Machine("switch", 1, into, 8, 9)
    given: Any = {"switch": switch, "holders": machines}
    counts = Counters(network="nic", **given)

    assert [machine.asked for machine in (*machines, switch)] == [
        ["nic"],
        ["nic"],
        ["nic-0", "nic-1"],
    ]
    assert counts.traffic() == {
        "a": {"out_bytes": 30, "out_packets": 3, "in_bytes": 40, "in_packets": 4},
        "b": {"out_bytes": 50, "out_packets": 5, "in_bytes": 60, "in_packets": 7},
    }
    assert counts.tcp()["b"] == {"segments": 300, "retransmitted": 3, "timeouts": 3}
    assert counts.queues() == ([[2, 3], [4, 5]], [[0, 0], [0, 0]])

    counts.restart()
    assert counts.queues() == ([[0, 0], [0, 0]], [[0, 0], [0, 0]])
    write_networks(proc, received=130, sent=65, timeouts=4)
    out[1].told[6] = (13, 700)
    into.told[8] = (24, 800)
    nothing = dict.fromkeys(("out_bytes", "out_packets", "in_bytes", "in_packets"), 0)
    assert counts.traffic() == {
        "a": nothing | {"out_bytes": 100},
        "b": nothing | {"in_bytes": 5},
    }
    assert counts.tcp() == {
        "a": {"segments": 0, "retransmitted": 0, "timeouts": 6},
        "b": {"segments": 0, "retransmitted": 0, "timeouts": 9},
    }
    assert counts.queues() == ([[0, 10], [20, 0]], [[0, 700], [800, 0]])
    assert counts._waiting() == 1500

    counts.close()
    assert [queue.is_closed for queue in (*out, into)] == [True] * 3


def test_counting_begins_once_queues_are_empty_or_a_second_is_over(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock goes by what is slept; a queue drains after 50 ms or never."""
    write_networks(proc, received=30, sent=60, timeouts=1)
    now = [100.0]
    out = Queue({5: (2, 10)})
    into = Queue({8: (0, 0)})

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if is_draining and now[0] > 100.05:
            out.told[5] = (3, 0)

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(counters, "time", clock)
    machine = Machine("a", 2, out, 5)
    given: Any = {"switch": Machine("switch", 1, into, 8), "holders": [machine]}
    counts = Counters(network="nic", **given)

    is_draining = True
    counts.restart()
    assert now[0] == pytest.approx(100.052, abs=0.003)
    assert counts.queues() == ([[0], [0]], [[0], [0]])

    is_draining = False
    out.told[5] = (7, 10)
    now[0] = 200.0
    counts.restart()
    assert now[0] == pytest.approx(201.0, abs=0.003)
    assert counts.queues() == ([[0], [0]], [[10], [0]])


def test_tables_of_the_kernel_are_pairs_of_lines(tmp_path: Path) -> None:
    """Names stand above their values, behind the name of the protocol."""
    table = tmp_path / "snmp"
    table.write_text("Ip: A B\nIp: 1 -2\nTcp: C\nTcp: 3\n")
    assert _read_counts(table) == {"A": 1, "B": -2, "C": 3}


def write_threads(proc: Path, process: int, *threads: str, below: str = "") -> None:
    """Write what the kernel tells of the threads of a process, and of its children."""
    for number, counts in enumerate(threads):
        folder = proc / str(process) / "task" / str(process + number)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schedstat").write_text(counts)
        (folder / "children").write_text(below if number else "")


def test_waits_are_of_all_processes_below_one(proc: Path) -> None:
    """Nanoseconds that each ran and waited, without those of whoever holds machines."""
    write_threads(proc, 10, "9 9 9", "9 9 9", below="20 30 ")
    write_threads(proc, 20, "1000000000 500000000 7", "3000000000 1000000000 7")
    write_threads(proc, 30, "0 0 0", "0 0 0", below="40")
    write_threads(proc, 40, "2000000000 250000000 1")
    assert sorted(processes_below(10)) == [20, 30, 40]

    waits = CoreWaits(10)
    assert waits.seconds() == (0.0, 0.0)
    write_threads(proc, 20, "1500000000 500000000 8", "3000000000 1750000000 8")
    write_threads(proc, 40, "damaged")
    waits.sample()
    assert waits.seen[20, 21] == (3_000_000_000, 1_750_000_000)
    assert waits.seen[40, 40] == (2_000_000_000, 250_000_000)
    assert waits.seconds() == pytest.approx((0.5, 0.75))
    assert waits.early == (0.0,)


@pytest.mark.parametrize(
    ("threads", "cores", "off"),
    [
        ([(1.0, 4.0), (0.5, 1.0)], 0.5, 2.0),  # ready for 5 s, of which it needs 3
        ([(1.0, 2.5), (0.5, 1.0)], 0.5, 0.5),
        ([(1.0, 0.25), (0.5, 0.25)], 0.5, -1.0),  # for 2 s together
        ([(1.0, 0.5), (0.5, 1.5)], 0.5, 0.0),  # for 3.5 s, and none beyond 3
        ([(1.0, 2.0), (0.5, 0.0)], 0.5, 0.0),
    ],
)
def test_machines_are_late_by_one_thread_and_early_by_all(
    threads: list[tuple[float, float]], cores: float, off: float
) -> None:
    """Threads that ran for 1.5 s together take 3 s on half a core."""
    assert off_quota(threads, cores) == off


def test_quotas_are_compared_every_25_of_the_longest_period(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Periods of 4 and 20 ms: half a second passes between two comparisons."""
    now = [50.0]
    monkeypatch.setattr(counters, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for root, process in ((10, 11), (20, 21)):
        write_threads(proc, root, "0 0 0", "0 0 0", below=str(process))
        write_threads(proc, process, "500000000 0 0")
    waits = QuotaWaits([(10, CpuQuota(1000, 4000)), (20, CpuQuota(10_000, 20_000))])
    # A quarter of a core is busy for 10 s, half a core computes in 1 s for 2.
    write_threads(proc, 11, "1500000000 9000000000 0")
    write_threads(proc, 21, "1500000000 0 0")

    now[0] = 50.499
    waits.sample()
    assert waits.seconds() == pytest.approx((4.0 + 2.0, 0.0))
    now[0] = 50.5
    waits.sample()
    assert waits.seconds() == pytest.approx((6.0, 10 - 4 - 0.004))
    assert waits.early == pytest.approx([0.0, 1.0 - 0.02])
    # Nothing new: what was compared once is not compared again.
    now[0] = 51.2
    waits.sample()
    assert waits.seconds() == pytest.approx((6.0, 10 - 4 - 0.004))


def test_ports_are_found_by_the_machine_that_holds_a_process(proc: Path) -> None:
    """One below machine m is of the program of its environment; others are of none."""
    write_threads(proc, 10, "0 0 0", "0 0 0", below="20 30 40")
    for process, environment in ((20, f"{PROGRAM}=train"), (30, "X=y")):
        folder = proc / str(process)
        (folder / "fd").mkdir(parents=True)
        (folder / "environ").write_text(environment)
        (folder / "fd" / "3").symlink_to("socket:[11]")
        (folder / "net").mkdir()
        table = HEAD + line("0100007F:1F90", "0200007F:0050", 11)
        (folder / "net" / "tcp").write_text(table)
    owners = PortOwners({"m": 10})

    owners.sample()

    assert owners.found == {("m", 8080, "train")}
