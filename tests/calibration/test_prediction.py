"""Predictions and scales, from a host that was never measured."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from emu.calibration import HostProfile, Load, choose_time_scale, load_of, predict
from emu.calibration.host_demand import Demand, peak_rate, union_length
from emu.calibration.perturbed_replay import LateReplay
from emu.calibration.scale_search import choose_byte_scale
from emu.problem import Realization
from emu.simulation import simulate
from emu.testing import two_machine_example

if TYPE_CHECKING:
    from numpy.typing import NDArray

HOST = HostProfile(
    name="h", measured="then", cores=2, memory=24e9, throughput=5e9,
    cpu_per_byte=0.2e-9, wake_cpu=60e-6, event_cpu=50e-6,
    timer_overshoot=(30e-6, 100e-6), finish_error=(150e-6, 500e-6),
    round_trip=(60e-6, 300e-6), loaded_round_trip=(80e-6, 400e-6),
    process_seconds=0.015, process_memory=12e6,
)  # fmt: skip


def evenly(moments: int = 5000, **parts: float) -> Demand:
    """Return demand that comes at even intervals over 10 emulated seconds."""
    names = ("tasks", "payload", "paced", "work", "room")
    values = {"flows": 0.5} | dict.fromkeys(names, 0.0) | parts
    return Demand(
        time=np.linspace(0.0, 10.0, moments, endpoint=False),
        **{name: np.full(moments, value) for name, value in values.items()},
    )


class AddedUp(LateReplay):
    """A chain of flows that end at these times: what is late adds up."""

    def __init__(self, *ends: float) -> None:
        self.flow_ends, self.task_ends = np.array(ends), np.empty((0, 1))
        self.flow_lengths = np.zeros(len(ends))
        self._slight = 1e-6

    @override
    def error(self, flows: NDArray[np.float64], tasks: NDArray[np.float64]) -> float:
        return float(flows.sum() + tasks.sum()) / 10.0


LOAD = Load(
    makespan=10.0, processes=20, largest=1e9, peak_rate=6e9,
    sending=40.0, demand=evenly(payload=1e7),
    replay=AddedUp(*np.arange(0.1, 10.05, 0.1)),
)  # fmt: skip


def test_the_load_of_the_example_is_read_off_its_simulation() -> None:
    """Per iteration 4 * 40 + 2 * 60 + 2 * 10 bytes; two NICs carry 20 B/s together."""
    load = load_of(*two_machine_example(3))

    assert load.makespan == 38.0
    assert load.processes == 6
    assert load.peak_rate == 20.0
    assert 0 < load.sending <= 6 * 38.0


def test_the_demand_of_the_example_is_every_byte_flow_and_task() -> None:
    schedule = simulate(*two_machine_example(3), record_rates=True)
    demand = load_of(*two_machine_example(3), work=np.full((6, 3), 0.5)).demand

    handoffs = 8 * 3 - 1 - len(schedule.flows())  # of 8 edges, one has a lag of 1
    assert demand.flows.sum() == len(schedule.flows()) + handoffs / 2
    assert demand.tasks.sum() == 18
    assert demand.payload.sum() == 3 * 300 - 10  # the last parameters go nowhere
    assert demand.work.sum() == 9.0
    at = tuple(schedule.flows().T)
    lengths = schedule.flow_end[at] - schedule.flow_start[at]
    assert demand.paced.sum() == pytest.approx(lengths.sum())
    assert demand.room.sum() == pytest.approx(np.sum(two_machine_example(3)[1].times))
    assert (np.diff(demand.time) >= 0).all()


def test_without_rates_there_is_no_peak() -> None:
    with pytest.raises(ValueError, match="no rates"):
        peak_rate(simulate(*two_machine_example(1)))


@given(st.floats(0.5, 100))
def test_time_scale_stretches_wall_time_and_shrinks_the_error(scale: float) -> None:
    burst = dataclasses.replace(LOAD, demand=at_once())
    slow = predict(burst, HOST, time_scale=2 * scale, byte_scale=0.01)
    fast = predict(burst, HOST, time_scale=scale, byte_scale=0.01)

    assert slow.wall == pytest.approx(2 * fast.wall)
    assert slow.error < fast.error
    assert slow.late_flows <= fast.late_flows
    assert slow.bandwidth == pytest.approx(fast.bandwidth / 2)
    assert slow.cpu <= fast.cpu


def test_more_than_the_host_can_carry_has_no_bounded_error() -> None:
    too_fast = predict(LOAD, HOST, time_scale=1.0, byte_scale=1.0)

    assert too_fast.error == math.inf
    assert too_fast.to_json()["error"] is None


def test_a_burst_makes_a_run_late_where_even_demand_does_not() -> None:
    even = dataclasses.replace(LOAD, demand=evenly(), replay=AddedUp(0.0, 5.0))
    at_once = evenly()
    burst = dataclasses.replace(
        even,
        demand=dataclasses.replace(at_once, time=np.where(at_once.time < 5, 0.0, 5.0)),
    )
    options = {"time_scale": 1.0, "byte_scale": 0.01}

    calm, crowded = predict(even, HOST, **options), predict(burst, HOST, **options)

    assert crowded.cpu == pytest.approx(calm.cpu)
    # 2,500 halves of flows of 0.43 ms each on 1.9 cores, twice: what is in the middle
    # of each is late by 0.0271 together beyond the leads; the worst draw is later.
    assert 0.0287 < crowded.error - calm.error < 2 * 0.0287


def test_work_that_outlasts_its_time_on_busy_cores_is_an_error() -> None:
    between = dataclasses.replace(LOAD, replay=AddedUp(0.25))  # no flow waits
    idle = dataclasses.replace(between, demand=evenly(20, work=0.05, room=0.2))
    crowded = dataclasses.replace(between, demand=evenly(20, work=0.3, room=0.2))
    options = {"time_scale": 1.0, "byte_scale": 0.01}

    assert predict(idle, HOST, **options).error < 0.01
    assert predict(crowded, HOST, **options).error > 0.03


@given(st.floats(0.002, 0.1))
def test_the_smallest_scale_that_is_exact_enough_is_chosen(max_error: float) -> None:
    chosen = choose_time_scale(LOAD, HOST, max_error=max_error, byte_scale=0.1)
    below = predict(
        LOAD, HOST, time_scale=chosen.time_scale * 0.88, byte_scale=0.1
    )  # fmt: skip

    assert chosen.error <= 0.6 * max_error
    busy = below.cpu > 0.6 or below.bandwidth > HOST.bandwidth
    assert below.error > 0.6 * max_error or busy


def test_no_scale_is_chosen_that_fills_the_host_with_traffic() -> None:
    heavy = dataclasses.replace(LOAD, peak_rate=1e12, replay=AddedUp(9.0))
    chosen = choose_time_scale(heavy, HOST, max_error=0.05, byte_scale=0.1)

    assert 0.8 * HOST.bandwidth < chosen.bandwidth <= HOST.bandwidth


def test_real_work_is_never_hurried() -> None:
    little = dataclasses.replace(LOAD, replay=AddedUp(9.0))
    options = {"max_error": 0.05, "byte_scale": 1e-6}

    assert choose_time_scale(little, HOST, **options).time_scale < 1
    assert choose_time_scale(little, HOST, least=1.0, **options).time_scale == 1.0


def test_what_no_scale_makes_exact_gets_the_best_there_is() -> None:
    crowded = dataclasses.replace(LOAD, sending=10.0 * 2000)
    chosen = choose_time_scale(crowded, HOST, max_error=0.01, byte_scale=0.1)

    assert chosen.cpu > 0.6


def at_once(moments: int = 5000) -> Demand:
    """Return demand that comes all at 5 s: half a second's work of two cores."""
    return dataclasses.replace(evenly(moments), time=np.full(moments, 5.0))


class Flips(LateReplay):
    """An order that any lateness flips: an error that no time scale makes smaller."""

    def __init__(self) -> None:
        self.flow_ends, self.task_ends = np.array([5.0]), np.empty((0, 1))
        self.flow_lengths = np.zeros(1)
        self._slight, self.repeated = 1e-9, 0

    @override
    def error(self, flows: NDArray[np.float64], tasks: NDArray[np.float64]) -> float:
        self.repeated += 1
        return 0.02 if flows[0] > 0 else 0.0


def test_no_wall_time_is_spent_on_what_more_of_it_does_not_make_exact() -> None:
    fragile = dataclasses.replace(LOAD, demand=at_once(), replay=Flips())
    chosen = choose_time_scale(fragile, HOST, max_error=0.01, byte_scale=0.1)
    below = predict(fragile, HOST, time_scale=chosen.time_scale / 2, byte_scale=0.1)

    assert chosen.error == chosen.sensitivity == pytest.approx(0.02)
    assert below.error == math.inf


def test_flows_that_wait_for_less_than_their_lead_are_in_time() -> None:
    """5,000 halves of 0.43 ms: what ends then is late by 0 to 0.54 s, all alike.

    Of that 0.006 are the lead, 0.002 are tolerated; of a flow of 30 s, 0.3 are.
    """
    burst = dataclasses.replace(LOAD, processes=0, sending=0.0, demand=at_once())
    replay = AddedUp(5.0, 5.0)
    replay.flow_lengths = np.array([0.1, 30.0])
    options = {"time_scale": 1.0, "byte_scale": 0.01}

    both = predict(dataclasses.replace(burst, replay=replay), HOST, **options)
    before = dataclasses.replace(burst, replay=AddedUp(4.9))

    late = 1 - 0.008 / 0.5375, 1 - 0.306 / 0.5375
    assert both.late_flows == pytest.approx(np.mean(late), rel=1e-6)
    assert predict(before, HOST, **options).late_flows == 0.0


def test_a_job_that_takes_no_time_gets_a_scale() -> None:
    problem, _ = two_machine_example(1)
    nothing = Realization(
        np.zeros((len(problem.job.tasks), 1)), np.zeros((len(problem.job.edges), 1))
    )

    chosen = choose_time_scale(
        load_of(problem, nothing), HOST, max_error=0.01, byte_scale=1.0
    )

    assert (chosen.wall, chosen.error, chosen.late_flows) == (0.0, 0.0, 0.0)


@given(st.floats(0.45, 0.65))
def test_no_more_flows_are_late_than_may_be(share: float) -> None:
    burst = dataclasses.replace(LOAD, demand=at_once(400), replay=AddedUp(5.0, 6.0))
    options = {"max_error": 1.0, "byte_scale": 0.1}

    chosen = choose_time_scale(burst, HOST, max_late_flows=share, **options)
    careless = choose_time_scale(burst, HOST, max_late_flows=1.0, **options)

    assert chosen.late_flows <= 0.6 * share < careless.late_flows
    assert chosen.time_scale > careless.time_scale
    below = predict(burst, HOST, time_scale=0.88 * chosen.time_scale, byte_scale=0.1)
    assert below.late_flows > 0.6 * share
    hopeless = choose_time_scale(burst, HOST, max_late_flows=0.05, **options)
    assert hopeless == careless


def test_no_more_is_drawn_than_decides() -> None:
    replay = Flips()
    fragile = dataclasses.replace(LOAD, demand=at_once(), replay=replay)
    options = {"time_scale": 100.0, "byte_scale": 0.1}

    assert replay.sensitivity == pytest.approx(0.02)
    before = replay.repeated
    predict(fragile, HOST, **options)
    whole = replay.repeated - before
    found = predict(fragile, HOST, tolerable=0.01, **options)

    assert whole == 8
    assert replay.repeated == before + whole + 1
    assert found.error == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("volumes", "scale"),
    [([], 1.0), ([0.0], 1.0), ([40.0, 40.0, 60.0], 25_000.0), ([1e9], 1e-3)],
)
def test_byte_scale_makes_payloads_of_a_megabyte(
    volumes: list[float], scale: float
) -> None:
    assert choose_byte_scale(volumes) == scale


def test_no_payload_becomes_huge() -> None:
    assert max([1.0, 1.0, 1e4]) * choose_byte_scale([1.0, 1.0, 1e4]) <= 32e6


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=20)
)
def test_union_length_counts_every_unit_once(spans: list[tuple[int, int]]) -> None:
    rows = np.array([[start, start + length] for start, length in spans], dtype=float)
    covered = {unit for start, length in spans for unit in range(start, start + length)}

    assert union_length(rows) == len(covered)
