"""Machines of namespaces: each its own host, and nothing left of any of them."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from emu.errors import RunError
from emu.lab.machines.lab import Lab, LabMachine
from emu.lab.machines.nic import Sharing
from emu.prediction.analysis.traffic import count_bytes, messages

pytestmark = [pytest.mark.netns, pytest.mark.usefixtures("_a_lab_can_be_had")]

PAIR = [LabMachine("left", 12.5e6, 12.5e6), LabMachine("right", 12.5e6, 2.5e6)]


def output(lab: Lab, machine: str, *command: str) -> str:
    """Return what a command prints in a machine."""
    with tempfile.TemporaryFile("w+") as file:
        program = lab.start(machine, command, output=file.fileno())
        while program.code is None:
            lab.wait(5.0)
        file.seek(0)
        return file.read()


def networks() -> set[str]:
    """Return the network namespaces that any process is in."""
    found = set()
    for process in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(str(process.readlink()))
        except OSError:
            continue
    return found


def gone(before: set[str]) -> bool:
    """Wait until no namespace is left beyond those of before."""
    patience = time.monotonic() + 5.0
    while networks() - before and time.monotonic() < patience:
        time.sleep(0.02)
    return not networks() - before


def test_every_machine_is_a_host_of_its_own() -> None:
    before = networks()
    with Lab(PAIR) as lab:
        assert output(lab, "right", "hostname") == "right\n"
        hosts = output(lab, "left", "cat", "/etc/hosts").splitlines()
        assert f"{lab.address('right')} right" in hosts
        output(lab, "left", "touch", "/dev/shm/mine")  # noqa: S108
        assert output(lab, "right", "ls", "/dev/shm") == ""  # noqa: S108
        assert int(output(lab, "left", "sh", "-c", "echo $$")) < 10
    assert gone(before)


@pytest.mark.untimed
def test_two_labs_at_a_time_have_the_same_addresses() -> None:
    with Lab(PAIR) as one, Lab(PAIR) as other:
        assert one.address("left") == other.address("left")
        assert output(other, "left", "hostname") == "left\n"


SEND = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 7000), 20) as there:
    there.sendall(bytes(int(sys.argv[2])))
    there.shutdown(socket.SHUT_WR)
    there.recv(1)
"""
RECEIVE = """
import socket, time
with socket.create_server(("", 7000)) as door:
    print("ready", flush=True)
    there, _ = door.accept()
    first = size = 0
    while data := there.recv(1 << 16):
        first = first or time.monotonic()
        size += len(data)
    print(size, time.monotonic() - first, flush=True)
"""


def read_pcap(path: Path) -> list[tuple[float, bytes]]:
    """Return times and headers of a pcap file, as its specification says."""
    content, found, place = path.read_bytes(), [], 24
    order, *_, network = struct.unpack_from("<IHHIIII", content)
    assert (order, network) == (0xA1B23C4D, 1)  # nanoseconds, Ethernet
    while place < len(content):
        whole, part, kept, length = struct.unpack_from("<IIII", content, place)
        assert kept <= length
        found.append((whole + part / 1e9, content[place + 16 : place + 16 + kept]))
        place += 16 + kept
    return found


@pytest.mark.parametrize("sharing", [Sharing.FAIR, Sharing.TCP])
def test_the_slower_nic_is_the_rate_of_a_plain_connection(
    sharing: Sharing, tmp_path: Path
) -> None:
    """2.5 MB/s into ``right``: 5 MB take two seconds, give or take a burst."""
    pcap = tmp_path / "traffic.pcap" if sharing is Sharing.TCP else None
    # A source port of anybody's names one of the two.
    known = [("left", "right")] * 2 if sharing is Sharing.FAIR else []
    with Lab(PAIR, sharing=sharing, connections=known) as lab:
        capture = lab.capture(pcap)
        size, seconds = carried(lab, 5_000_000)
        packets, traffic = capture.close(0.0), lab.counters.traffic()
        (_, (_, dropped)), _ = lab.counters.queues()

    # A queue of its own holds the window of a connection; one queue for all overflows.
    assert (dropped == 0) is (sharing is Sharing.FAIR)
    assert size == 5_000_000
    # The rate of the NIC is a ceiling whatever else this computer does.
    assert 5e6 / seconds < 2.5e6 * 1.02
    assert 1.0 < traffic["right"]["in_bytes"] / 5e6 < 1.10
    assert capture.lost == 0
    # What was delivered is what was received, but for segments that were sent again.
    assert 1.0 <= count_bytes(packets, 2)[0, 1] / 5e6 < 1.05
    assert messages(packets)["bytes"].sum() == packets["bytes"].sum()
    spent = packets["time"][-1] - packets["time"][0]
    assert spent == pytest.approx(seconds, abs=0.1)
    if pcap is not None:
        seen = read_pcap(pcap)
        assert [at for at, _ in seen] == sorted(at for at, _ in seen)
        began, ended = tmp_path.stat().st_mtime, pcap.stat().st_mtime
        assert began < seen[0][0] < seen[-1][0] < ended
        lengths = [
            struct.unpack_from(">H", header, 16)[0] - 20 - header[46] // 16 * 4
            for _, header in seen
        ]
        assert [length for length in lengths if length] == packets["bytes"].tolist()
        flags = [header[47] & 2 for _, header in seen]
        assert flags[:2] == [2, 2]  # both ends' SYN: what has no payload is there, too


def test_a_nic_changes_while_a_program_sends() -> None:
    """At 2.5 MB/s 0.6 MB take 0.24 s, at 0.5 MB/s 1.2 s; the queue holds 0.06 MB."""
    with Lab(PAIR) as lab:
        lab.change_nic(LabMachine("right", 12.5e6, 0.5e6))
        _, slow = carried(lab, 600_000)
        lab.change_nic(PAIR[1])
        _, fast = carried(lab, 600_000)

    assert 0.6e6 / slow < 0.5e6 * 1.15
    assert fast < slow / 2


def test_a_connection_keeps_to_the_rate_that_it_is_assigned() -> None:
    """Half of what the slower NIC could: 0.6 MB/s from the moment that it is set."""
    sharing = Sharing.ASSIGNED
    with Lab(PAIR, sharing=sharing, connections=[("left", "right")] * 2) as lab:
        paces = lab.paces("left")
        paces.set({0: 0.6e6, 1: 0.6e6})  # a source port of anybody's names either
        _, seconds = carried(lab, 600_000)
        paces.close()

    assert 0.6e6 / seconds < 0.6e6 * 1.05


def carried(lab: Lab, volume: int) -> tuple[int, float]:
    """Send bytes from left to right; return how many came, in how many seconds."""
    with tempfile.TemporaryFile("w+") as file:
        receiver = lab.start(
            "right", [sys.executable, "-c", RECEIVE], output=file.fileno()
        )
        while "ready" not in Path(f"/proc/self/fd/{file.fileno()}").read_text():
            time.sleep(0.02)
        address = lab.address("right")
        lab.start("left", [sys.executable, "-c", SEND, address, str(volume)])
        while receiver.code is None:
            lab.wait(5.0)
        file.seek(0)
        size, seconds = file.read().split()[1:]
    return int(size), float(seconds)


@pytest.mark.untimed
def test_a_command_that_does_not_exist_is_named_with_its_machine() -> None:
    with Lab(PAIR) as lab, pytest.raises(RunError, match=r"right.*No such file"):
        lab.start("right", ["/no/such/program"])


@pytest.mark.untimed
def test_exit_codes_and_signals_are_passed_on() -> None:
    with Lab(PAIR) as lab:
        three = lab.start("left", ["sh", "-c", "exit 3"])
        sleeper = lab.start("right", ["sleep", "60"])
        while three.code is None:
            lab.wait(5.0)
        lab.signal(sleeper, signal.SIGTERM)
        while sleeper.code is None:
            lab.wait(5.0)

    assert (three.code, sleeper.code) == (3, -signal.SIGTERM)


def test_a_program_that_daemonises_and_ignores_signals_dies_with_its_machine() -> None:
    before = networks()
    script = "trap '' TERM HUP INT; setsid sleep 600 & exec sleep 600"
    with Lab(PAIR) as lab:
        lab.start("left", ["sh", "-c", script])
    assert gone(before)


HOLD = """
import sys, time
from emu.lab.machines.lab import Lab, LabMachine
with Lab([LabMachine(f"m{i}", 1e7, 1e7) for i in range(3)]) as lab:
    lab.start("m1", ["sh", "-c", "setsid sleep 600 & exec sleep 600"])
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("victim", ["command", "keeper", "holder", "at once"])
def test_nothing_is_left_after_a_kill_of_any_process(victim: str) -> None:
    before = networks()
    command = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE)
    assert command.stdout is not None
    with command:
        if victim != "at once":
            assert command.stdout.readline() == b"up\n"
        below = psutil.Process(command.pid).children(recursive=True)
        chosen = {
            "command": [psutil.Process(command.pid)],
            "keeper": below[:1],
            "holder": below[-3:-2],
            "at once": [psutil.Process(command.pid), *below],
        }[victim]
        for process in chosen:
            process.kill()
        if victim == "holder":
            # One machine has gone; the command finds out when it asks.
            command.kill()
        elif victim == "keeper":
            patience = time.monotonic() + 5.0
            while networks() - before and time.monotonic() < patience:
                time.sleep(0.02)
            assert not networks() - before
            command.kill()
    assert gone(before)


@pytest.mark.untimed
def test_a_socket_of_the_control_network_listens_here() -> None:
    with Lab(PAIR) as lab:
        address, listening = lab.listen()
        host, port = address.split(":")
        code = f"import socket; socket.create_connection(('{host}', {port}), 5)"
        with listening:
            listening.settimeout(10.0)
            lab.start("left", [sys.executable, "-c", code])
            there, peer = listening.accept()
            there.close()

        assert peer[0] == lab.address("left", "control")


@pytest.mark.untimed
@pytest.mark.parametrize(
    "machines", [[], [LabMachine("a", 1e7, 1e7), LabMachine("a", 1e7, 1e7)]]
)
def test_machines_need_names_of_their_own(machines: list[LabMachine]) -> None:
    with pytest.raises(ValueError, match="a name of its own"):
        Lab(machines)


HOST = """
import os
from emu.lab.machines import netlink
from emu.lab.machines.lab import Lab, LabMachine
from emu.lab.machines.namespaces import NEW_NET, become_root, unshare
if os.geteuid():
    become_root()
unshare(NEW_NET)
taken = [netlink.address("lo", "10.77.0.1", 16), netlink.change_link("lo")]
netlink.Netlink().send(taken)
with Lab([LabMachine("a", 1e7, 1e7)]) as lab:
    program = lab.start("a", ["hostname"], output=1)
    while program.code is None:
        lab.wait(5.0)
    print(lab.address("a"))
"""


@pytest.mark.untimed
def test_a_host_whose_own_network_uses_the_addresses_of_the_lab() -> None:
    command = [sys.executable, "-c", HOST]
    said = subprocess.run(command, capture_output=True, text=True, check=False)

    assert said.stdout == "a\n10.77.0.1\n", said.stderr


WITHIN = """
import sys
from emu.lab.machines.lab import Lab, LabMachine
deeper = int(sys.argv[1])
with Lab([LabMachine(f"m{deeper}", 1e7, 1e7)]) as lab:
    then = [sys.executable, "-c", sys.argv[2], "0", ""] if deeper else ["hostname"]
    program = lab.start(f"m{deeper}", then, output=1)
    while program.code is None:
        lab.wait(5.0)
"""


@pytest.mark.untimed
def test_a_lab_within_a_lab() -> None:
    command = [sys.executable, "-c", WITHIN, "1", WITHIN]
    said = subprocess.run(command, capture_output=True, text=True, check=False)

    assert said.stdout == "m0\n", said.stderr


STRANGER = """
import os, sys
from emu.lab.machines import exec as machine_exec
os.setuid(65534)
sys.exit(machine_exec.main())
"""


@pytest.mark.untimed
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_nobody_elses_machine_is_entered() -> None:
    with Lab(PAIR) as lab:
        command = [sys.executable, "-c", STRANGER, str(lab.holders["left"]), "true"]
        said = subprocess.run(command, capture_output=True, text=True, check=False)

    assert said.returncode != 0
    assert "RunError: only who started the lab, or root" in said.stderr


@pytest.mark.untimed
def test_64_machines_know_each_other() -> None:
    many = [LabMachine(f"m{number}", 1e6, 1e6) for number in range(64)]
    with Lab(many, sharing=Sharing.TCP) as lab:
        assert len(output(lab, "m63", "cat", "/etc/hosts").splitlines()) == 65


def test_jumbo_packets_into_a_slow_nic() -> None:
    with Lab(PAIR, mtu=9000) as lab:
        size, seconds = carried(lab, 600_000)

    assert size == 600_000
    assert size / seconds < 2.5e6 * 1.2
