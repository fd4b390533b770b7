"""Seeds per iteration, and the time of a mini-batch, however many samplers share it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.errors import DataError, ScenarioError
from emu.graph_data import BatchPlan, open_for
from emu.prediction.analysis.throughput import pace, seeds_per_iteration
from emu.problem import Profile, Schedule
from emu.scenario import ProfileFile, Scenario, build_job, prepare, realize
from emu.scenario.scenario_file import loads
from emu.training.looks import epoch_of

TRAIN = 393
"""Training vertices of products-like at scale 0.002."""
TIMES = {
    "graph_store": 0.02,
    "sampler": 0.12,
    "worker": 0.04,
    "parameter_server": 0.005,
}
HOPS = {"graph_store_hop": 0.001, "sampler_hop": 0.024, "sampler_fetch": 0.048}


def stated(**job: Any) -> Scenario:
    times = TIMES | HOPS
    if job.get("system", "dgtp") != "dgtp":
        phases = ("model_forward", "data_forward", "data_backward", "model_backward")
        times = {"sampler": 0.12, **dict.fromkeys(phases, 0.01)}
    whole = {
        "system": "dgtp",
        "dataset": {"name": "products-like", "scale": 0.002},
        "model": {"hidden": 8, "layers": 2},
        "fanouts": [2, 3],
        "iterations": 6,
        "times": {kind: f"{seconds} s" for kind, seconds in times.items()},
    }
    machines = [{"name": "m", "count": 3, "nic": "10 Gbit/s"}]
    content = {"cluster": {"machines": machines}, "job": {**whole, **job}}
    return loads(json.dumps(content), name="seeds")


@settings(max_examples=10, deadline=None)
@given(
    each=st.integers(1, 6),
    share=st.integers(1, 20),
    workers=st.integers(1, 3),
    sampling=st.sampled_from(["oneshot", "multiround"]),
)
def test_samplers_share_the_time_of_a_whole_mini_batch(
    each: int, share: int, workers: int, sampling: str
) -> None:
    """Their times add up to the stated one, and seeds per iteration stay the same."""
    ready = prepare(
        stated(
            workers=workers,
            samplers_per_worker=each,
            batch_size=each * share,
            sampling=sampling,
        )
    )
    job = ready.problem.job
    spent: dict[tuple[str, int], float] = {}
    for task, row in zip(job.tasks, ready.realization.times, strict=True):
        if task.kind in ("sampler", "sampler_hop", "sampler_fetch"):
            key = task.name.partition(".")[2] or "sampler", task.settings["worker"]
            spent[key] = spent.get(key, 0.0) + float(row[0])
    kinds = {"sampler": 0.12, "hop1": 0.024, "hop2": 0.024, "fetch": 0.048}
    for (name, _), seconds in spent.items():
        assert seconds == pytest.approx(kinds[name])

    schedule = ready.simulate()
    found = pace(schedule, epoch_of(job.settings))
    assert found.samples_per_second == pytest.approx(rate_of(schedule))


def rate_of(schedule: Schedule, behind: int = 0) -> float:
    """Return seeds per second over whole epochs, from every batch; of one extrapolated.

    ``behind``: cycles of a pipeline that begin, and that end, no mini-batch.
    """
    settings = schedule.problem.job.settings
    plan, train = BatchPlan.from_settings(settings), open_for(settings).train
    drawn, steps = 0, 0
    while (
        drawn
        < plan.seeds_after(len(train), np.array([plan.steps_per_epoch(len(train))]))[0]
    ):
        drawn += sum(len(plan.seeds(train, s, steps)) for s in range(plan.samplers))
        steps += 1
    ends = schedule.task_end.max(axis=0, where=~np.isnan(schedule.task_end), initial=0)
    full = ends[behind : len(ends) - behind]
    epochs = max((len(full) - 1) // steps, 1)
    last = min(epochs * steps, len(full) - 1)
    return float(drawn / steps * last / (full[last] - full[0]))


@pytest.mark.parametrize(
    ("job", "seeds"),
    [
        ({"system": "data_parallel", "batch_size": 20}, 60),
        ({"system": "p3", "batch_size": 20, "pipeline": "none"}, 60),
        ({"system": "p3", "batch_size": 20, "pipeline": "A"}, 60),
        ({"system": "p3", "batch_size": 20, "pipeline": "B"}, 60),
        ({"system": "p3", "batch_size": 20, "machines": ["m0", "m2"]}, 40),
        ({"workers": 2, "samplers_per_worker": 4, "batch_size": 20}, 40),
    ],
)
def test_seeds_of_every_system_are_those_of_its_workers(
    job: dict[str, Any], seeds: int
) -> None:
    """Over the time between ends of cycles in which every phase works."""
    schedule = prepare(stated(**job)).simulate()
    found = pace(schedule, epoch_of(schedule.problem.job.settings))
    ends = schedule.task_end.max(axis=0, where=~np.isnan(schedule.task_end), initial=0)
    depth = {"A": 2, "B": 3}.get(str(job.get("pipeline")), 0)
    if job.get("machines"):
        depth = 2  # pipeline A is the default
    full = ends[depth:6]
    assert len(ends) == 6 + depth
    between = (full[-1] - full[0]) / (len(full) - 1)

    assert found.iteration_seconds == pytest.approx(between)
    assert seeds_per_iteration(schedule.problem.job.settings) == seeds
    assert found.samples_per_second == pytest.approx(rate_of(schedule, depth))


@pytest.mark.parametrize("system", ["dgtp", "data_parallel", "p3"])
@pytest.mark.parametrize("epoch", ["replicate", "shard"])
def test_a_mini_batch_above_the_training_set_is_refused(
    system: str, epoch: str
) -> None:
    """One seed more than a worker's samplers can draw without a repetition."""
    shape = {"workers": 3, "samplers_per_worker": 2} if system == "dgtp" else {}
    each, samplers = (2, 6) if system == "dgtp" else (1, 3)
    most = TRAIN // samplers * each if epoch == "shard" else TRAIN - TRAIN % each
    job = {"system": system, "epoch": epoch, "iterations": 3, **shape}

    ready = prepare(stated(**job, batch_size=most))
    plan = BatchPlan.from_settings(ready.problem.job.settings)
    train = open_for(ready.problem.job.settings).train
    assert len(set(plan.seeds(train, 0, 0).tolist())) == most // each
    with pytest.raises(
        ScenarioError, match=rf"seeds:1: job.batch_size: .* write {most} or fewer"
    ):
        prepare(stated(**job, batch_size=most + each))


def test_of_several_jobs_the_one_with_too_large_a_mini_batch_is_named() -> None:
    alone = stated(batch_size=10, workers=1).to_json()
    jobs = [
        {"name": name, "job": {**alone["job"], "batch_size": size}}
        for name, size in (("a", 10), ("b", TRAIN + 1))
    ]
    both = loads(json.dumps({"cluster": alone["cluster"], "jobs": jobs}))
    with pytest.raises(ScenarioError, match=r"jobs\[1\].job.batch_size: 394 seeds"):
        prepare(both)


def replace_scale(scenario: Scenario, scale: float) -> Scenario:
    emulation = scenario.emulation.model_copy(update={"byte_scale": scale})
    return scenario.model_copy(update={"emulation": emulation})


@pytest.mark.parametrize(
    ("key", "other"),
    [("samplers_per_worker", 1), ("batch_size", 8), ("fanouts", [3, 3])],
)
def test_a_profile_of_other_mini_batches_is_refused(key: str, other: Any) -> None:
    """The names of its tasks fit: only its settings show whose times they are."""
    shape = {
        "workers": 2,
        "samplers_per_worker": 2,
        "batch_size": 20,
        "fanouts": [2, 3],
    }
    job = build_job(stated(**shape))
    times = realize(stated(**shape), job)
    measured = ProfileFile.of(job, Profile(times.times, times.volumes))

    again = measured.profile(job, 1.0)
    # At another scale the same samples are as many real bytes: counted independently.
    scaled = realize(replace_scale(stated(**shape), 0.01), job)
    np.testing.assert_allclose(measured.profile(job, 0.01).volumes, scaled.volumes)
    np.testing.assert_array_equal(again.times, times.times)
    with pytest.raises(DataError, match=f"was measured with {key}"):
        measured.profile(build_job(stated(**{**shape, key: other})), 1.0)
