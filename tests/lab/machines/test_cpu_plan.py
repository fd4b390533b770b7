"""Quotas by which machines compute as fast as they state, and how they were kept."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.lab.machines.counters import QuotaWaits, off_quota
from emu.lab.machines.cpu_groups import (
    LONGEST,
    QUOTA,
    SHORTEST,
    CpuQuota,
    plan_cpu,
    scale_for,
)
from emu.lab.machines.lab import LabMachine
from emu.lab.run import summary

CORES = st.floats(0.02, 64.0)
SCALES = st.floats(1.0, 60.0)


@given(cores=CORES, scale=SCALES)
def test_a_quota_is_the_share_of_a_core(cores: float, scale: float) -> None:
    """To within half a microsecond of quota and of period each."""
    share = cores / scale
    if share < QUOTA / LONGEST * 0.999:
        with pytest.raises(ValueError, match="10 ms at least"):
            plan_cpu(cores, scale)
    elif share > QUOTA / LONGEST * 1.001:
        plan = plan_cpu(cores, scale)
        assert plan.cores == pytest.approx(share, rel=1e-3)
        assert plan.quota >= QUOTA
        assert SHORTEST <= plan.period <= LONGEST


def test_a_quota_is_as_short_as_the_kernel_takes() -> None:
    """Unused quota is run at full speed after a pause: the less, the better."""
    assert (plan_cpu(1.0, 4.0).quota, plan_cpu(1.0, 4.0).period) == (1000, 4000)
    assert (plan_cpu(0.5, 16.0).quota, plan_cpu(0.5, 16.0).period) == (1000, 32000)
    assert (plan_cpu(3.0, 1.0).quota, plan_cpu(3.0, 1.0).period) == (6000, 2000)


@given(machines=st.lists(CORES, min_size=1, max_size=40), cores=st.floats(1.0, 128.0))
def test_the_chosen_scale_leaves_half_of_the_cores(
    machines: list[float], cores: float
) -> None:
    scale = scale_for(machines, cores)

    assert scale >= 1
    assert sum(machines) / scale <= cores / 2 * (1 + 1e-9)
    assert scale == 1 or sum(machines) / scale == pytest.approx(cores / 2)


@given(
    ran=st.lists(st.floats(0.0, 2.0), min_size=1, max_size=5),
    cores=st.floats(0.05, 1.0),
    beside=st.floats(0.0, 3.0),
)
def test_threads_that_take_turns_at_a_quota_are_as_late_as_others_made_them(
    ran: list[float], cores: float, beside: float
) -> None:
    """All are ready from the start, and the last ends when all has been computed."""
    needed = sum(ran) / cores
    waited = [needed + beside - own for own in ran]

    late = off_quota([*zip(ran, waited, strict=True)], cores)

    assert late == pytest.approx(beside, abs=1e-9)


@given(ran=st.floats(0.0, 2.0), cores=st.floats(0.05, 1.0), share=st.floats(0.0, 1.0))
def test_who_computes_at_full_speed_after_a_pause_is_early(
    ran: float, cores: float, share: float
) -> None:
    needed = ran / cores
    took = ran + share * (needed - ran)

    assert off_quota([(ran, took - ran)], cores) == pytest.approx(took - needed)


def test_a_machine_at_rest_is_neither() -> None:
    assert off_quota([], 0.5) == 0.0
    assert off_quota([(0.0, 0.0)] * 3, 0.5) == 0.0


@pytest.mark.parametrize(
    ("early", "trust"), [((0.0, 0.0), "trusted"), ((0.4, 0.3), "degraded")]
)
def test_what_machines_gained_by_their_pauses_is_in_the_verdict(
    early: tuple[float, ...], trust: str
) -> None:
    samples = {
        "time": np.array([0.0, 5.0]),
        "ran": np.array([0.0, 3.0]),
        "waited": np.array([0.0, 0.1]),
        "dropped": np.zeros((2, 2, 2), int),
    }
    machines = [LabMachine(name, 1e6, 1e6, 0.5) for name in "ab"]

    found = summary(machines, [], samples, early)

    assert (found["trust"], found["early_seconds"]) == (trust, max(early))
    assert found["early_share"] == pytest.approx(sum(early) / 2 / 5.0)


def test_each_look_forgives_a_period_of_waits_and_of_gains() -> None:
    """A quarter of a core, ready for 6 s and then for 1 s; beside it one at rest.

    It needs 4 s for each second that it ran.
    """
    quotas = [CpuQuota(1000, 4000), CpuQuota(1000, 20_000)]
    waits = QuotaWaits([(os.getpid(), quota) for quota in quotas])
    for place, (machine, _) in enumerate(waits._machines):
        machine.seen = {}
        machine._before = {}
        waits._before[place] = {}
    busy, _ = waits._machines[0]

    busy.seen = {(7, 7): (1_000_000_000, 5_000_000_000)}
    waits.judge()
    assert waits.seconds() == pytest.approx((4.0, 2.0 - 0.004))
    assert waits.early == [0.0, 0.0]

    busy.seen = {(7, 7): (2_000_000_000, 5_000_000_000)}
    waits.judge()
    assert waits.seconds() == pytest.approx((8.0, 2.0 - 0.004))
    assert waits.early == pytest.approx([3.0 - 0.004, 0.0])
