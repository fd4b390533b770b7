"""Machines of a lab before they are started: plans, addresses, requests."""

from __future__ import annotations

import platform
import signal
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from emu.errors import RunError
from emu.lab.machines import lab as lab_module
from emu.lab.machines import nic_check
from emu.lab.machines.lab import CONTROL, Lab, LabMachine, Paces
from emu.lab.machines.nic import NicPlan, Sharing

PAIR = [LabMachine("a", 12.5e6, 2.5e6), LabMachine("b", 1.25e6, 12.5e6)]


class Host:
    """A machine's end of the control connection: notes what it is asked."""

    def __init__(self, name: str, process: int) -> None:
        self.name = name
        self.process = process
        self.asked: list[dict[str, Any]] = []
        self.answers: list[Any] = []
        self.ended: list[Any] = []

    def ask(self, *_: Any, **request: Any) -> Any:
        """Note a request; answer as is stated, else nothing."""
        self.asked.append(request)
        return self.answers.pop(0) if self.answers else ({}, ())


def held(lab: Lab) -> tuple[Host, list[Host]]:
    """Return the switch, process 10, and machines, 11 and so on, of a lab."""
    hosts = [Host(m.name, 11 + n) for n, m in enumerate(lab.machines)]
    switch = Host("the switch", 10)
    given: Any = lab
    given._holders = hosts
    given._switch = switch
    return switch, hosts


def test_addresses_are_numbered_from_one_in_two_networks() -> None:
    """The 256th machine is 1.0, and a path of one is that of who holds it."""
    lab = Lab([LabMachine(f"m{n}", 1e6, 1e6) for n in range(300)])
    held(lab)
    assert lab.address("m0") == "10.77.0.1"
    assert lab.address("m254", CONTROL) == "10.78.0.255"
    assert lab.address("m255") == "10.77.1.0"
    assert lab.path_in("m255", "/etc/hosts") == "/proc/266/root/etc/hosts"
    assert lab.holders["m1"] == 12


@pytest.mark.parametrize(
    ("machines", "problem"),
    [
        ([], "1 to 1000 machines"),
        ([PAIR[0], PAIR[0]], "1 to 1000 machines"),
        ([LabMachine("a", 1e6, 1e6, 0.5), LabMachine("b", 1e6, 1e6)], "or of none"),
        ([LabMachine(f"m{n}", 1e6, 1e6) for n in range(1001)], "1 to 1000 machines"),
    ],
)
def test_machines_that_are_no_lab_are_refused(
    machines: list[LabMachine], problem: str
) -> None:
    """A thousand are the most, and cores are of all or of none."""
    with pytest.raises(ValueError, match=problem):
        Lab(machines)
    assert (
        len(Lab([LabMachine(f"m{n}", 1e6, 1e6) for n in range(1000)]).machines) == 1000
    )


def test_settings_of_tcp_are_by_the_nic_of_each_way() -> None:
    """The limit of unsent bytes follows the NIC out, and a window the NIC in."""
    plain = Lab(PAIR, congestion_control="cubic")
    settings = {"tcp_congestion_control": "cubic", "tcp_no_metrics_save": "1"}
    assert plain._sysctl("b") == settings

    ends = [("a", "b"), ("b", "a"), ("a", "b")]
    paced = Lab(PAIR, sharing=Sharing.ASSIGNED, connections=ends)
    assert paced._sysctl("a")["tcp_notsent_lowat"] == "130697"
    assert paced._sysctl("b")["tcp_notsent_lowat"] == "13069"
    fair = Lab(PAIR, connections=ends)
    windows = [fair._sysctl(name)["tcp_rmem"] for name in "ab"]
    # Queues of 20 ms, in payload.
    assert windows == ["4096 49999 49999", "4096 249999 249999"]
    assert [plan.numbered for plan in fair._plans[0]] == [(0, 2), (1,)]
    assert [plan.numbered for plan in fair._plans[1]] == [(1,), (0, 2)]


def test_a_nic_that_changes_is_told_to_the_machine_and_to_the_switch() -> None:
    """Its queue keeps what was let go for it; in a lab of any ports it shrinks."""
    for connections, is_kept in (((("a", "b"), ("b", "a")), True), ((), False)):
        lab = Lab(PAIR, connections=connections)
        switch, (a, b) = held(lab)
        (_, old_in), (_, _) = lab._plans[0], lab._plans[1]
        _, before = lab._plans[1]

        lab.change_nic(LabMachine("b", 2.5e6, 1.25e6))

        plan_out, plan_in = lab._plans[1]
        assert lab._plans[0][1] is old_in
        assert plan_out.rate == 2613950
        assert plan_in.rate == 1306975
        assert (plan_in.queue == before.queue) == is_kept
        (asked,) = switch.asked
        assert (asked["do"], asked["device"], asked["again"]) == (
            "shape",
            "data-1",
            True,
        )
        assert NicPlan(**asked["plan"]) == plan_in
        shape, tcp = b.asked
        assert (shape["do"], shape["device"], shape["again"]) == ("shape", "data", True)
        assert NicPlan(**shape["plan"]) == plan_out
        assert tcp == {"do": "set_tcp", "settings": lab._sysctl("b")}
        assert a.asked == []
        # A larger queue takes the place of a smaller one in any case.
        lab.change_nic(LabMachine("b", 2.5e6, 25e6))
        assert lab._plans[1][1].queue > before.queue


def test_programs_that_end_are_told_once_with_their_codes() -> None:
    """A signal goes to those that have not ended, on their machines."""
    lab = Lab(PAIR)
    _, (a, b) = held(lab)
    answers: Any = [({"started": 15}, ()), ({"started": 25}, ())]
    a.answers, b.answers = answers[:1], answers[1:]
    first = lab.start("a", ["true"], environment={"X": "1"})
    second = lab.start("b", ["sleep", "9"])
    assert (first.number, second.number, second.process) == (0, 1, 25)
    (started,) = a.asked
    assert (started["do"], started["number"], started["command"]) == (
        "start",
        0,
        ["true"],
    )
    assert started["environment"] == {"X": "1"}

    a.ended.append(SimpleNamespace(number=0, code=3))
    assert lab.wait(0.0) == [first]
    assert (first.code, second.code, a.ended) == (3, None, [])
    a.asked.clear()
    b.asked.clear()
    lab.signal_all(signal.SIGTERM)
    assert a.asked == []
    assert b.asked == [{"do": "signal", "number": 1, "signal_number": 15}]


@pytest.mark.parametrize(
    ("way", "ends", "address", "limit"),
    [
        # Twice the rate on the wire of 12.5 MB/s, and of 2.5 MB/s.
        ("out", ("a", "the switch"), "10.77.255.254", 26_139_502),
        ("in", ("the switch", "a"), "10.77.0.1", 5_227_900),
    ],
)
def test_a_direction_is_tried_between_its_machine_and_the_switch(
    way: str, ends: tuple[str, str], address: str, limit: int
) -> None:
    """Who receives listens there; TCP paces the sender at twice the NIC's rate."""
    lab = Lab(PAIR)
    switch, (a, _) = held(lab)
    by_name = {host.name: host for host in (switch, a)}
    sending, receiving = (by_name[name] for name in ends)
    listening = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(listening.getsockname())
    receiving.answers = [({"port": 77}, (listening.detach(),))]
    sending.answers = [({}, (sender.detach(),))]

    trial = lab._trial(nic_check.NicDirection("a", way, 1.0))

    assert receiving.asked == [{"do": "listen", "host": address, "port": 0}]
    assert sending.asked == [{"do": "connect", "host": address, "port": 77}]
    with trial.sender, trial.receiver:
        assert trial.sender.getblocking()
        assert trial.receiver.getblocking()
        assert trial.sender.getsockopt(socket.SOL_SOCKET, 47) == limit


def test_what_is_off_is_tried_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """All directions are tried at once; counters begin anew behind that."""
    lab = Lab(PAIR, time_scale=2.0)
    switch, _ = held(lab)
    switch.answers = [({}, ())]
    tried: list[list[str]] = []
    restarted = []
    given: Any = lab
    given.counters = SimpleNamespace(restart=lambda: restarted.append(1))
    given._trial = lambda direction: direction

    def measure(directions: list[nic_check.NicDirection]) -> list[float]:
        tried.append([f"{d.machine} {d.way}" for d in directions])
        off = 0.5 if len(tried) == 1 else 1.0
        shares = [1.0, off, 1.0, 1.0] if len(directions) == 4 else [off]
        return [share * d.target for share, d in zip(shares, directions, strict=True)]

    monkeypatch.setattr(nic_check, "measure_throughput", measure)
    check = lab.check_nics(0.01)

    assert tried == [["a out", "a in", "b out", "b in"], ["a in"]]
    assert check.shares == {"a": {"out": 1.0, "in": 1.0}, "b": {"out": 1.0, "in": 1.0}}
    assert restarted == [1]
    assert 0 <= check.seconds < 60
    assert switch.asked == [
        {"do": "address", "addresses": {"data": "10.77.255.254"}},
        {"do": "set_tcp", "settings": {"tcp_tso_rtt_log": "0"}},
    ]


def test_rates_of_leaves_are_sent_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates name the device and the leaf by number, and leave in one message."""
    monkeypatch.setattr(lab_module, "pace", lambda *arguments: arguments)
    sent: list[Any] = []
    kernel: Any = SimpleNamespace(send=sent.append, close=lambda: sent.append("closed"))
    plan: Any = "plan"
    paces = Paces(kernel, 7, plan)
    paces.set({3: 1.5, 1: 2.5})
    paces.close()
    assert sent == [[(7, 3, "plan", 1.5), (7, 1, "plan", 2.5)], "closed"]


@pytest.mark.parametrize(
    ("problem", "remedy"),
    [
        ("RTNETLINK: No such file or directory", "load the module"),
        ("it is not to be", "run it as root"),
    ],
)
def test_what_a_lab_needs_is_told_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, problem: str, remedy: str
) -> None:
    """Nothing is missing where two machines can be had."""

    def fail(_: Lab) -> None:
        raise RunError(problem)

    monkeypatch.setattr(Lab, "__enter__", fail)
    (needs,) = lab_module.missing_needs()
    assert needs.startswith(f"{problem}; ")
    assert needs.endswith(remedy)
    monkeypatch.setattr(Lab, "__enter__", lambda lab: lab)
    monkeypatch.setattr(Lab, "__exit__", lambda *_: None)
    assert lab_module.missing_needs() == []
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    (needs,) = lab_module.missing_needs()
    assert "Linux namespaces" in needs
