"""Sections of P3 and of data parallel training: errors, and what they mean."""

from __future__ import annotations

import pytest

from emu.errors import ScenarioError
from emu.scenario import prepare
from emu.scenario.scenario_file import loads

P3 = """\
cluster:
  machines: [{count: 4, nic: 10 Gbit/s}]
job:
  system: p3
  dataset: {name: products-like, scale: 0.001}
  model: {hidden: 8, layers: 2}
  fanouts: [3, 2]
  batch_size: 16
  iterations: 3
  push: derived
  times:
    {sampler: 1 ms, model_forward: 4 ms, data_forward: 1 ms, data_backward: 2 ms,
     model_backward: 3 ms}
emulation: {compute: timed}
"""
DATA_PARALLEL = P3.replace("p3", "data_parallel").replace("  push: derived\n", "")


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        ("iterations: 3", "iterations: 2", "job.iterations",
         "found 2 mini-batches, pipeline A has 3 under way: write 3 or more, or"),
        ("push: derived", "cache: 3", "job.cache",
         "found 3, which does not divide 4 machines, write one of 1, 2, 4"),
        ("push: derived", "columns: [1, 1]", "job.columns",
         "found 2 shares for 4 machines of a group, write one each"),
        ("push: derived", "columns: [0, 0, 0, 0]", "job.columns",
         "found only zeros: a machine must hold the columns"),
        ("push: derived", "columns: evn", "job.columns",
         "found 'evn', write a list or even"),
        ("push: derived", "columns: [1, -1, 1, 1]", "job.columns[1]",
         "found -1, write 0.0 or more"),
        ("push: derived", "machines: [m0, m7]", "job.machines[1]", "no machine 'm7'"),
        ("push: derived", "machines: [m0, m0]", "job.machines[0]",
         "'m0' occurs 2 times"),
        ("push: derived", "pipeline: C", "job.pipeline",
         "found 'C', known: none, A, B"),
        ("[3, 2]", "[3, 2, 1]", "job.fanouts", "found 3 for a model of 2 layers"),
        ("{hidden: 8, layers: 2}", "{kind: gat, hidden: 8, layers: 2, heads: 0}",
         "job.model.heads", "found 0, write 1 or more"),
        ("[3, 2]", "some", "job.fanouts", "found 'some', write a list or all"),
        ("emulation:", "profile: measured.json\nemulation:", "profile",
         "a profile knows no cycles of a pipeline, write job.times instead"),
        ("push: derived", "push: derived\n  structure: hashed", "job.push",
         "found derived, which needs the whole structure: write shipped"),
        ("push: derived", "structure: hashed", "job.times.sampler_hop",
         "found neither this time nor"),
        ("sampler: 1 ms, ", "", "job.times.sampler", "found neither this time nor"),
    ],
)  # fmt: skip
def test_errors(old: str, new: str, key: str, message: str) -> None:
    assert old in P3
    with pytest.raises(ScenarioError) as caught:
        loads(P3.replace(old, new))

    found = getattr(caught.value, "errors", (caught.value,))
    problem = next(error.problem for error in found if error.key == key)
    assert problem.startswith(message)


def test_more_machines_than_features() -> None:
    with pytest.raises(ScenarioError, match="4 machines cannot share 3 features"):
        prepare(loads(P3, ["job.dataset.feature_length=3"]))


def test_a_cache_beyond_the_memory() -> None:
    """2,449 vertices of 50 columns are 489.8 kB in float32, 89.8 kB too many."""
    small = P3.replace("count: 4", "count: 4, memory: 400 kB")
    prepare(loads(small))
    with pytest.raises(
        ScenarioError, match=r"50 of 100 columns are 489\.8 kB, 89\.8 kB"
    ):
        prepare(loads(small.replace("push: derived", "cache: 2")))


def test_one_scenario_as_both_systems() -> None:
    p3, pulled = (prepare(loads(text)) for text in (P3, DATA_PARALLEL))
    worker = pulled.problem.job.index("w0")

    assert pulled.realization.times[worker, 0] == pytest.approx(0.010)
    assert p3.problem.job.iterations == 5
    assert p3.simulate().makespan > 0
    # 2 * 8 * 100 weights of layer 1 stay where they are
    assert p3.problem.job.settings["model"] == pulled.problem.job.settings["model"]
    rings = [
        sum(
            realized.volumes[edge].sum() / job.iterations
            for name, edge in job.edge_positions.items()
            if "ring0->" in name
        )
        for job, realized in (
            (one.problem.job, one.realization) for one in (p3, pulled)
        )
    ]
    assert 0 < rings[0] < rings[1]


def test_all_neighbours() -> None:
    """Without sampling every batch has the edges of all its seeds."""
    whole = prepare(loads(P3, ["job.fanouts=all", "job.push=shipped"]))
    sampled = prepare(loads(P3, ["job.push=shipped"]))
    again = loads(P3.replace("[3, 2]", "all")).to_json()

    assert whole.realization.volumes.sum() > 2 * sampled.realization.volumes.sum()
    assert again["job"]["fanouts"] == "all"
    assert again["job"]["columns"] == "even"
