"""Programs of parts, in one process: weights, bytes and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import NodeMisbehaved
from emu.problem.workloads.exchange import is_exact
from emu.systems.job_section import BuildContext
from emu.training.exchanged import train_exchanged
from tests.nodes.one_process import JobRun, drive
from tests.systems.sections import section_of

KEYS: dict[str, Any] = {
    "dataset": {"name": "products-like", "scale": 0.0003, "seed": 3},
    "precision": "float64",
    "epochs": 5,
}


def run(system: str, parts: int = 3, compute: str = "real", **keys: Any) -> JobRun:
    """Run a job of a system, and hold its bytes against what it stated."""
    section = section_of(system, **{**KEYS, **keys})
    machines = tuple(f"m{rank}" for rank in range(parts))
    context = BuildContext(machines, None, seed=5, compute=compute)
    job = section.build(context)
    done = drive(job)
    stated = section.realize(job, context, None, {}).volumes
    for edge, row in enumerate(stated):
        sent = job.flow_counts[edge]
        np.testing.assert_array_equal(done.volumes[edge, :sent], row[:sent])
    return done


def check(done: JobRun, first_epoch: int = 0) -> None:
    """Hold weights and losses against one process, to the last bit.

    ``first_epoch``: with which the job went on.
    """
    job = done.job
    expected, losses = train_exchanged(job.settings, job.iterations)
    first = "layer0" if any(t.kind == "layer0" for t in job.tasks) else "layer1"
    last = f"layer{job.settings['model']['layers']}"
    ranks = range(job.settings["parts"])
    for rank in ranks:
        found = done.programs[f"d{rank}.{first}"].result()["parameters"]
        if not is_exact(job.settings):
            np.testing.assert_array_equal(found, expected)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    holders = [
        task.name
        for task in job.tasks
        if "parameters" in done.programs[task.name].result()
    ]
    assert sorted(holders) == [f"d{rank}.{first}" for rank in ranks]
    for epoch, loss in enumerate(losses[first_epoch:], first_epoch):
        told = [done.reports[f"d{rank}.{last}", epoch]["loss"] for rank in ranks]
        assert np.mean(told) == pytest.approx(loss, rel=1e-12)


@pytest.mark.parametrize(
    ("system", "keys"),
    [
        ("partition_parallel", {}),
        ("pipegcn", {}),
        ("pipegcn", {"smooth_features": 0.95, "smooth_gradients": 0.5}),
        ("bns_gcn", {"rate": 0.3}),
        ("adaqp", {"bits": 2}),
        ("sancus", {"staleness": 2}),
        ("sancus", {"staleness": 1, "kept_gradients": True}),
    ],
)
def test_weights_and_bytes_are_as_stated(system: str, keys: dict[str, Any]) -> None:
    model = {"kind": "sage", "hidden": 5, "layers": 3}
    check(run(system, model=model, **keys))


TERMS = st.fixed_dictionaries(
    {
        "age": st.integers(0, 3),
        "every": st.integers(1, 3),
        "whole": st.booleans(),
        "bits": st.sampled_from([None, 2, 4, 8]),
        "smoothing": st.sampled_from([0.0, 0.9]),
    }
)


@pytest.mark.dear
@given(
    rows=TERMS,
    gradients=TERMS,
    share=st.sampled_from([1.0, 0.4, 0.001]),
    cached=st.booleans(),
    layers=st.integers(1, 3),
    parts=st.integers(1, 3),
)
def test_any_terms_train_and_weigh_as_stated(
    *,
    rows: dict[str, Any],
    gradients: dict[str, Any],
    share: float,
    cached: bool,
    layers: int,
    parts: int,
) -> None:
    if share < 1:
        rows = {**rows, "whole": False}
        gradients = {**gradients, "whole": False}
    done = run(
        "partition_parallel",
        parts,
        rows=rows,
        gradients=gradients,
        share=share,
        cache_features=cached,
        model={"kind": "gcn", "hidden": 4, "layers": layers},
    )
    check(done)


def test_what_is_left_after_a_cut_learns_what_the_whole_job_has() -> None:
    model = {"kind": "sage", "hidden": 5, "layers": 2}
    job = run("partition_parallel", model=model, optimizer="adam").job
    whole = drive(job, cut=2)
    check(drive(job, cut=2, kept=whole), first_epoch=2)


def test_zeros_that_are_timed_weigh_as_much() -> None:
    for system in ("bns_gcn", "adaqp"):
        run(system, compute="timed")


def test_rows_that_were_not_drawn_are_refused() -> None:
    done = run("bns_gcn", rate=0.5)
    reader = next(t for t in done.job.tasks if t.name == "d1.layer2")
    program: Any = done.programs[reader.name]
    position = done.job.index(reader.name)
    inputs = {}
    for number, edge in enumerate(done.job.edges):
        if edge.destination == position:
            inputs[number] = {**done.payloads.get((number, 0), {})}
    wrong = next(number for number in inputs if "ids" in inputs[number])
    inputs[wrong]["ids"] = inputs[wrong]["ids"] + 1
    with pytest.raises(NodeMisbehaved, match="not drawn"):
        program.run(0, inputs)
    inputs[wrong]["ids"] = inputs[wrong]["ids"] - 1
    inputs[wrong]["rows"] = inputs[wrong]["rows"][1:]
    with pytest.raises(NodeMisbehaved, match="of shape"):
        program.run(0, inputs)
