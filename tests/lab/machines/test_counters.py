"""Ports of a lab's programs, by what the kernel tells of their processes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from emu.lab.machines import counters
from emu.lab.machines.counters import _ports, _program_of
from emu.lab.machines.programs import PROGRAM

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

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
