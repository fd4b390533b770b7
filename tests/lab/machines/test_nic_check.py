"""NICs are measured before a run: arithmetic, and faults of the kernel."""

from __future__ import annotations

import math
import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from emu.cli import app
from emu.lab.machines import nic_check
from emu.lab.machines.lab import Lab, LabMachine
from emu.lab.machines.nic import Sharing
from emu.lab.machines.nic_check import MOST_OFF, NicDirection, NicTrial, NicTries, slope

OUT, IN = NicDirection("m", "out", 1000.0), NicDirection("m", "in", 1000.0)


@given(
    rate=st.floats(1e4, 1e9),
    step=st.integers(1, 30_000),
    at=st.floats(0.1, 0.9),
    stall=st.floats(0.0, 0.02),
)
def test_a_line_in_steps_has_its_slope_whatever_stalls_once(
    rate: float, step: int, at: float, stall: float
) -> None:
    """Bytes come in steps, seen 0.5 ms late at most; once nothing comes for a while."""
    step = min(step, int(rate * 0.25 / 40))
    looks, before = [], -1
    for tick in range(1, 500):
        now = tick * 0.5e-3
        fluid = rate * (now if now < at * 0.25 else max(at * 0.25, now - stall))
        count = math.floor(fluid / max(step, 1)) * max(step, 1)
        if count > before:
            looks.append((now, count))
            before = count

    assert slope(looks) == pytest.approx(rate, rel=0.03)


def test_too_few_looks_are_no_rate() -> None:
    assert slope([(0.0, 0), (0.1, 1)]) == 0.0


def test_who_is_off_is_tried_again_and_its_best_counts() -> None:
    tries = NicTries([OUT, IN], 0.01)
    tries.note(OUT, 1009.0)
    tries.note(IN, 800.0)
    assert tries.again == [IN]
    tries.note(IN, 1005.0)
    assert tries.again == []

    check = tries.check(0.5)
    assert check.shares == {"m": {"out": 1.009, "in": 1.005}}
    assert check.refusal("key") == ""


@pytest.mark.parametrize(("rate", "said"), [(980.0, "980 B/s"), (1020.0, "1.02 kB/s")])
def test_who_stays_off_is_refused_either_way(rate: float, said: str) -> None:
    tries = NicTries([OUT, IN], 0.01)
    tries.note(OUT, 1000.0)
    for count in range(1, 4):
        tries.note(IN, rate)
        assert tries.again == ([IN] if count < 3 else [])

    refusal = tries.check(0.5).refusal("lab.max_nic_error")
    assert refusal == (
        f"m in carries {said} of 1 kB/s on this host, 1 % may be: state what "
        "it can carry, or lab.max_nic_error above 2 %"
    )


def test_a_rate_that_reads_as_the_stated_one_is_told_as_a_share() -> None:
    tries = NicTries([IN], 1e-5)
    for _ in range(3):
        tries.note(IN, 1000.1)

    refusal = tries.check(0.5).refusal("lab.max_nic_error")
    assert refusal.startswith("m in carries 100.01 % of 1 kB/s on this host, 0.001 %")


def test_the_median_of_five_parts_is_the_slope() -> None:
    """Ten looks are enough: two for each part. The first look of all counts nothing."""
    steps = [1, 2, 4, 8, 16]
    looks = [(-5.0, 77)]
    for part, rate in enumerate(steps):
        looks += [(10.0 * part, 1000 * part), (10.0 * part + 3, 1000 * part + 3 * rate)]

    assert slope(looks) == pytest.approx(4.0)
    assert slope(looks[1:]) == 0.0
    assert slope([*looks, (50.0, 9000)]) > 4.0


def test_looks_are_not_counted_while_queues_fill_or_when_they_take_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenth of a second of one; then a look every half millisecond that is short."""
    now = [10.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    def count(step: int, long: float) -> int:
        counted.append(now[0])
        number = len(counted)
        now[0] += long if number % 4 == 0 else 1e-6
        return number // 2 * step

    slept: list[float] = []
    counted: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(nic_check, "time", clock)
    trials: Any = [SimpleNamespace(count=lambda: count(5, 60e-6))]

    (looks,) = nic_check._looks(trials, 0.2)

    assert slept[0] == pytest.approx(0.02)
    assert {round(seconds, 9) for seconds in slept[1:]} == {0.5e-3}
    assert counted[0] == pytest.approx(10.02)
    assert counted[-1] == pytest.approx(10.2, abs=2e-3)
    # Of looks 1, 2, 3 the first two show growth; 4 is long, and 5 shows what it saw.
    instants = [instant for instant, _ in looks[:4]]
    assert [seen for _, seen in looks[:4]] == [0, 5, 10, 15]
    assert instants == pytest.approx([counted[n] for n in (0, 1, 4, 5)])


def test_bytes_that_have_come_are_the_kernel_s_own_count() -> None:
    """The field of struct tcp_info that counts them, read over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
    trial = NicTrial(OUT, sender, receiver)
    sender.sendall(bytes(12_345))
    receiver.recv(12_345, socket.MSG_WAITALL)

    assert trial.count() == 12_345

    trial.end()
    sender.close()
    receiver.close()


@pytest.mark.parametrize(
    ("rates", "seconds"), [((1e6, 2e6), 0.25), ((43_440.0, 1e6), 2.0)]
)
def test_a_measurement_takes_as_long_as_the_slowest_needs_for_60_packets(
    monkeypatch: pytest.MonkeyPatch, rates: tuple[float, ...], seconds: float
) -> None:
    """Bytes come meanwhile, and nothing of a trial is open behind it."""
    trials = []
    for number, rate in enumerate(rates):
        with socket.create_server(("127.0.0.1", 0)) as server:
            sender = socket.create_connection(server.getsockname())
            receiver, _ = server.accept()
        trials.append(
            NicTrial(NicDirection(f"m{number}", "out", rate), sender, receiver)
        )
    asked = []

    def look(found: list[NicTrial], span: float) -> list[list[tuple[float, int]]]:
        asked.append(span)
        until = time.monotonic() + 5.0
        while min(trial.count() for trial in found) == 0 and time.monotonic() < until:
            time.sleep(1e-4)
        return [[(0.0, n * trial.count()) for n in range(11)] for trial in found]

    monkeypatch.setattr(nic_check, "_looks", look)
    monkeypatch.setattr(nic_check, "slope", lambda looks: float(looks[-1][1]))

    carried = nic_check.measure_throughput(trials)

    assert asked == [seconds]
    assert min(carried) > 0
    assert {end.fileno() for t in trials for end in (t.sender, t.receiver)} == {-1}


def test_a_direction_is_off_beyond_its_share_and_its_best_counts() -> None:
    """A direction at time scale 4 carries a quarter, and may be 3.1 % off at most."""
    slow = NicDirection("n", "out", 1024.0, time_scale=4.0)
    assert slow.target == 256.0
    for rate, is_off in ((264.0, False), (248.0, False), (265.0, True), (247.0, True)):
        tries = NicTries([slow], 0.03125)
        tries.note(slow, 200.0)
        tries.note(slow, rate)
        tries.note(slow, 400.0)
        check = tries.check(1.5)
        assert check.shares == {"n": {"out": rate / 256}}
        assert bool(check.off) == is_off
        assert (check.seconds, check.most) == (1.5, 0.03125)
        assert check.to_json() == {"seconds": 1.5, "shares": check.shares}


def test_a_refusal_names_the_first_and_counts_the_others() -> None:
    """The share that would do is that of the worst, above or below what is stated."""
    away = NicDirection("b", "out", 2000.0)
    tries = NicTries([OUT, IN, away], 0.01)
    for direction, rate in ((OUT, 1000.0), (IN, 900.0), (away, 2500.0)):
        tries.note(direction, rate)
    check = tries.check(0.5)

    assert check.off == (
        "m in carries 900 B/s of 1 kB/s on this host",
        "b out carries 2.5 kB/s of 2 kB/s on this host",
    )
    assert check.refusal("key") == (
        "m in carries 900 B/s of 1 kB/s on this host, and 1 more are off, 1 % may be: "
        "state what it can carry, or key above 25 %"
    )


PAIR = [LabMachine("left", 12.5e6, 2.5e6), LabMachine("right", 1.25e6, 12.5e6)]
netns = pytest.mark.usefixtures("_a_lab_can_be_had")


@netns
@pytest.mark.netns
@pytest.mark.parametrize("sharing", Sharing)
def test_nics_carry_what_is_stated_and_leave_no_count(sharing: Sharing) -> None:
    with Lab(PAIR, sharing=sharing) as lab:
        check = lab.check_nics(0.02)  # this host may be busy
        assert check.refusal("key") == ""
        counted = lab.counters.traffic()
        tcp, (dropped, waiting) = lab.counters.tcp(), lab.counters.queues()
    assert {name: {*ways} for name, ways in check.shares.items()} == {
        "left": {"out", "in"},
        "right": {"out", "in"},
    }
    assert max(count for ways in counted.values() for count in ways.values()) < 2000
    assert {count for each in tcp.values() for count in each.values()} == {0}
    assert (sum(map(sum, dropped)), sum(map(sum, waiting))) == (0, 0)


@netns
@pytest.mark.netns
@pytest.mark.parametrize(("way", "share"), [("out", 0.8), ("in", 1.1)])
def test_one_direction_that_the_kernel_got_wrong_is_named(
    way: str, share: float
) -> None:
    """A kernel that was told another rate than is stated: it alone is off."""
    rates = {"out": 12.5e6, "in": 2.5e6}
    rates[way] *= share
    with Lab(PAIR) as lab:
        lab.change_nic(LabMachine("left", rates["out"], rates["in"]))
        check = lab.check_nics(MOST_OFF)
    assert check.shares["left"][way] == pytest.approx(share, abs=0.02)
    assert any(line.startswith(f"left {way} carries") for line in check.off)


@netns
@pytest.mark.netns
def test_a_nic_that_no_host_carries_is_refused_with_what_this_one_does(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("lab")
    (folder / "lab.yaml").write_text(
        "cluster: {machines: [{name: m0, nic: 100 Gbit/s}]}\n"
    )
    command = ["lab", str(folder / "lab.yaml"), "--runs", str(folder), "--", "true"]
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 2, found.output
    assert "of 100 Gbit/s on this host" in " ".join(found.output.split())
