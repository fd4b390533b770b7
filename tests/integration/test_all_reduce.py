"""Workers that sum gradients among themselves, over sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from emu.runs.array_files import read_weights
from emu.training import reference_training
from tests.integration.scenarios import carried_out, tiny_training, written

if TYPE_CHECKING:
    from pathlib import Path

ITERATIONS, WORKERS = 4, 3


@pytest.mark.emulation
@pytest.mark.untimed
def test_all_workers_hold_the_weights_of_one_process(tmp_path: Path) -> None:
    document = tiny_training(ITERATIONS, workers=WORKERS, sync="ring", ring="placed")
    file = written(document, tmp_path)
    run = carried_out(file, tmp_path, "placement.policy=round_robin")
    job = run.outcome.run.schedule.problem.job
    expected, losses = reference_training(job.settings, ITERATIONS)

    results = run.outcome.run.results
    weights = [results[f"w{rank}"]["parameters"] for rank in range(WORKERS)]
    np.testing.assert_allclose(weights[0], expected, rtol=1e-5, atol=1e-5)
    for others in weights[1:]:
        np.testing.assert_array_equal(others, weights[0])
    kept = [part.ravel() for part in read_weights(run.path).values()]
    np.testing.assert_array_equal(np.concatenate(kept), weights[0], strict=True)
    assert [point["loss"] for point in run.result["training"]] == pytest.approx(
        losses, rel=1e-5
    )
    assert run.result["accuracy"].keys() >= {"train", "test"}
    (sent,) = (f for f in run.result["edges"] if f["from"] == f["to"] == "all_reduce")
    summed = np.nansum(
        [
            run.outcome.run.schedule.flow_bytes[e].sum()
            for e, edge in enumerate(job.edges)
            if job.tasks[edge.source].kind == "all_reduce"
        ]
    )
    assert summed == ITERATIONS * 2 * (WORKERS - 1) * expected.nbytes
    assert 0 < sent["bytes"] < summed  # within a machine it is free
    crossing = [
        job.edge_names[e]
        for e, hops in enumerate(run.outcome.run.schedule.problem.hops)
        if hops and ".ring0->" in job.edge_names[e]
    ]
    assert sorted(crossing) == ["w1.ring0->w0.got0", "w2.ring0->w1.got0"]
