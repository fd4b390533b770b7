"""The clock of a rank, of CPU seconds that a test states."""

from __future__ import annotations

import pytest

from emu.virtual.rank.rank_clock import RankClock
from emu.virtual.rank.thread_cpu import ThreadCpu


@pytest.fixture
def spend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let 3 s of CPU pass between two looks, whatever this computer did."""
    monkeypatch.setattr(ThreadCpu, "passed", lambda _: 3.0)
    monkeypatch.setattr(ThreadCpu, "mark", lambda _: 0.25)


@pytest.mark.usefixtures("spend")
def test_a_faster_machine_takes_less_time() -> None:
    clock = RankClock(speed=2.0, charge=None)
    assert clock.now() == 1.5
    with clock:
        assert clock.now() == 1.5
    assert clock.own_cpu == 0.25
    assert clock.now() == 3.0


@pytest.mark.usefixtures("spend")
def test_a_charge_takes_the_place_of_cpu_seconds() -> None:
    clock = RankClock(speed=2.0, charge=0.5)
    assert clock.now() == 0.0
    with clock, clock:
        assert clock.now() == 0.5
    assert clock.own_cpu == 0.25


@pytest.mark.usefixtures("spend")
def test_it_never_goes_back() -> None:
    clock = RankClock(speed=1.0, charge=0.0)
    clock.go_to(4.0)
    clock.go_to(3.0)
    assert clock.now() == 4.0
