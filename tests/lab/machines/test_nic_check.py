"""NICs are measured before a run: arithmetic, and faults of the kernel."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from emu.cli import app
from emu.lab.machines.lab import Lab, LabMachine
from emu.lab.machines.nic import Sharing
from emu.lab.machines.nic_check import MOST_OFF, NicDirection, NicTries, slope

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
