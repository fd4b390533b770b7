"""Systems whose samplers ask for rows: weights and bytes, and which rows come when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.graph_data import BatchPlan, Dataset, open_for
from emu.systems.job_section import BuildContext
from emu.training import reference_training
from tests.nodes.one_process import JobRun, drive
from tests.systems.sections import section_of

KEYS: dict[str, Any] = {
    "dataset": {"name": "products-like", "scale": 0.0005, "seed": 3},
    "model": {"hidden": 5, "layers": 2},
    "fanouts": [3, 4],
    "batch_size": 4,
    "iterations": 7,
    "epoch": "replicate",
    "precision": "float64",
    "times": {"sampler": "0 s", "worker": "0 s"},
}


def run(system: str, machines: int = 3, **keys: Any) -> JobRun:
    """Run a job of a system, and hold weights and bytes against what it states."""
    section = section_of(system, **{**KEYS, **keys})
    names = tuple(f"m{rank}" for rank in range(machines))
    context = BuildContext(names, None, seed=5, compute="real")
    job = section.build(context)
    done = drive(job)
    stated = section.realize(job, context, None, {}).volumes
    for edge, row in enumerate(stated):
        sent = 0 if job.edges[edge].credit else job.flow_counts[edge]
        np.testing.assert_array_equal(done.volumes[edge, :sent], row[:sent])
    expected, _ = reference_training(job.settings, job.iterations)
    np.testing.assert_allclose(done.parameters, expected, rtol=1e-12, atol=1e-12)
    return done


CACHES = st.one_of(
    st.none(),
    st.builds(
        lambda policy, share, window: {
            "policy": policy,
            "share": share,
            **({"window": window} if policy in ("window", "hot") else {}),
        },
        st.sampled_from(["degree", "vip", "lru", "window", "hot"]),
        st.sampled_from([0.01, 0.1, 0.9]),
        st.integers(1, 9),
    ),
)


@pytest.mark.dear
@given(
    system=st.sampled_from(["salient_plus_plus", "rapid_gnn", "whole_graph"]),
    machines=st.integers(2, 4),
    partitioner=st.sampled_from(["metis", "hash"]),
    samplers=st.sampled_from([1, 2]),
    epoch=st.sampled_from(["replicate", "local"]),
    cache=CACHES,
)
def test_any_cache_learns_and_weighs_as_stated(
    system: str, machines: int, samplers: int, **keys: Any
) -> None:
    run(system, machines, samplers_per_worker=samplers, **keys)


def test_half_numbers_are_those_of_a_graph_whose_features_are_rounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The base, on features that were rounded before, is the same training."""
    found = run("salient_plus_plus").parameters
    settings = section_of("data_parallel", **KEYS, partitioner="metis")
    context = BuildContext(("a", "b", "c"), None, seed=5)
    exact, _ = reference_training(settings.build(context).settings, 7)
    gather = Dataset.gather
    rounded = lambda *args: gather(*args).astype(np.float16).astype(np.float32)  # noqa: E731
    monkeypatch.setattr(Dataset, "gather", rounded)
    expected, _ = reference_training(settings.build(context).settings, 7)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert np.abs(found - exact).max() > 1e-6


def test_bytes_of_each_edge_are_those_of_a_count_by_hand() -> None:
    """Sampler 1 on machine 1; rows of a window are those in most of its batches."""
    cache = {"policy": "hot", "share": 0.1, "window": 3}
    done = run("rapid_gnn", cache=cache)
    job = done.job
    data = open_for(job.settings)
    plan = BatchPlan.from_settings(job.settings)
    owner = np.asarray(data.owner)
    train = plan.walk(data)
    batches = [plan.batch(data.structure, train, 1, n).vertices for n in range(12)]

    def hot(window: int) -> set[int]:
        counts = dict.fromkeys(sorted({*np.concatenate(batches).tolist()}), 0)
        for batch in batches[3 * window : min(3 * window + 3, 7)]:
            for vertex in batch.tolist():
                counts[vertex] += owner[vertex] != 1
        needed = [vertex for vertex in counts if counts[vertex]]
        needed.sort(key=lambda vertex: -counts[vertex])
        return {*needed[: int(0.1 * data.vertices / 3)]}

    row = 8 * data.feature_length
    for number, edge in enumerate(job.edges):
        ends = job.tasks[edge.source].name, job.tasks[edge.destination].name
        for n in range(job.flow_counts[number]):
            held = hot(n // 3)
            lacks = [v for v in batches[n].tolist() if v not in held]
            asked = sum(owner[v] == 0 for v in lacks)
            ahead = sum(owner[v] == 0 for v in hot(n // 3 + 1)) if n in (0, 3) else 0
            stated = {
                ("s1.fetch", "g0"): 8 * (asked + ahead),
                ("g0", "s1"): row * (ahead if edge.lag else asked),
            }
            if ends in stated:
                assert done.volumes[number, n] == stated[ends], (ends, n)
