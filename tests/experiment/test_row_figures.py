"""Figures of a row beside slow sums: time that spans cover, and what each rate is."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from emu.experiment.row_figures import RowOperations, _covered, busy_of
from emu.experiment.systems import as_variant
from emu.prediction.analysis.critical_path import Cause, ChainLink
from emu.scenario import load, prepare
from emu.systems.dorylus.steps import PARAMETER_KINDS
from tests.experiment.test_target import FILE, scenario_of


def sum_covered(spans: list[tuple[float, float]]) -> float:
    """Return the seconds that some span covers, from one end of a span to the next."""
    ends = sorted({end for span in spans for end in span})
    covered = 0.0
    for begin, end in pairwise(ends):
        if any(first <= begin and end <= last for first, last in spans):
            covered += end - begin
    return covered


def test_a_long_span_covers_short_ones_that_begin_within_it() -> None:
    spans = [(0.0, 5.0), (1.0, 2.0), (3.0, 4.0), (6.0, 8.0), (7.0, 7.5)]
    starts, ends = np.array([*spans, (np.nan, np.nan)]).T
    assert _covered(starts, ends) == sum_covered(spans) == 7.0


def test_machines_of_layers_are_busy_by_their_mean() -> None:
    ready = prepare(as_variant(scenario_of(machines=["a0", "b"]), "dorylus.pipe"))
    schedule = ready.simulate()
    spans: dict[str, list[tuple[float, float]]] = {}
    for row, task in enumerate(ready.problem.job.tasks):
        if "layer" in task.settings and task.kind not in PARAMETER_KINDS:
            ends = zip(schedule.task_start[row], schedule.task_end[row], strict=True)
            spans.setdefault(ready.tasks[task.name], []).extend(ends)
    shares = [sum_covered(row) / schedule.length for row in spans.values()]
    assert len(set(shares)) == 2
    assert busy_of(schedule) == pytest.approx(np.mean(shares))

    # Of no time there is no share.
    nothing = replace(
        schedule,
        task_start=np.zeros_like(schedule.task_start),
        task_end=np.zeros_like(schedule.task_end),
    )
    assert busy_of(nothing) is None


#: Rates of two devices that no operation has in common.
RATES = {
    name: {"quick": f"{2 + number} ps", "default": f"{50 + number} ps"}
    for number, name in enumerate(FILE["job"]["rates"])
}
MACHINES = [
    {"name": "a", "nic": "5 Gbit/s", "device": "quick"},
    {"name": "b", "nic": "1 Gbit/s"},
]


def test_a_task_has_the_rates_of_the_device_of_its_machine() -> None:
    keys: dict[str, Any] = {"cluster.machines": MACHINES, "job.rates": RATES}
    ready = prepare(load(scenario_of(), keys))
    operations = RowOperations(ready)
    devices = {"a": "quick", "b": "default"}
    for number, task in enumerate(ready.problem.job.tasks):
        device = devices[ready.tasks[task.name]]
        picoseconds = RATES["aggregate"][device].removesuffix(" ps")
        rate = operations.rates_on(ready.problem, number)["aggregate"]
        assert rate == pytest.approx(1e-12 * float(picoseconds))


def test_operations_are_of_real_bytes_whatever_the_emulated_ones() -> None:
    plain = RowOperations(prepare(scenario_of()))
    scaled = RowOperations(prepare(load(scenario_of(), {"emulation.byte_scale": 4})))
    assert plain.counts is not None
    assert scaled.counts is not None
    np.testing.assert_allclose(scaled.counts, plain.counts, rtol=1e-12)


@pytest.mark.parametrize("pipeline", ["none", "A", "B"])
def test_epochs_of_p3_have_the_operations_of_as_many_iterations(pipeline: str) -> None:
    keys = {"workers": None, "system": "p3", "pipeline": pipeline}
    in_epochs = prepare(scenario_of(**keys, epochs=1, iterations=None))
    batches = in_epochs.problem.job.settings["batches"]
    in_iterations = prepare(scenario_of(**keys, iterations=batches))

    operations = RowOperations(in_epochs)
    same_operations = RowOperations(in_iterations)
    assert operations.counts is not None
    np.testing.assert_array_equal(operations.counts, same_operations.counts)


def test_a_credit_is_a_slot_of_the_machine_that_waits() -> None:
    ready = prepare(scenario_of())
    schedule = ready.simulate()
    operations = RowOperations(ready)
    task = len(ready.problem.job.tasks) - 1
    name = [*ready.tasks.values()][task]
    for cause in (Cause.SLOT, Cause.CREDIT):
        link = ChainLink(cause, start=0.0, end=1.0, task=task, iteration=0)
        assert operations.name_causes(link, schedule) == {f"slot {name}": 1.0}


def test_what_moves_is_named_by_its_link_and_what_has_left_is_latency() -> None:
    ready = prepare(scenario_of())
    schedule = ready.simulate()
    operations = RowOperations(ready)
    name = ready.problem.links[1].name
    named = {Cause.TRANSFER: f"link {name}", Cause.LATENCY: "latency"}
    for cause, words in named.items():
        port = 1 if cause is Cause.TRANSFER else -1
        link = ChainLink(cause, start=0.0, end=1.0, edge=0, iteration=0, port=port)
        assert operations.name_causes(link, schedule) == {words: 1.0}
