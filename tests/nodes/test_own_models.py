"""Models of one's own in distributed jobs, against a loop that torch and dgl run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emu.graph_data import BatchPlan, open_for
from emu.host.stream_key import stream_key
from emu.training import initial_parameters, reference_training
from tests import draws
from tests.nodes.one_process import drive, small_job
from tests.training.programs import PROGRAMS, model_of

ITERATIONS = 5


def blocks_of(name: str, batch: Any) -> list[Any]:
    """Return the blocks of a mini-batch as dgl's own sampler would hand them over."""
    import torch

    found = []
    for number, (source, to) in enumerate(batch.edges):
        outer, inner = batch.sizes[number : number + 2]
        if name == "adjs":
            ends = torch.tensor(np.array([source, to]), dtype=torch.int64)
            found.append((ends, None, (outer, inner)))
        else:
            dgl = pytest.importorskip("dgl")
            known = (torch.tensor(source), torch.tensor(to))
            found.append(
                dgl.create_block(known, num_src_nodes=outer, num_dst_nodes=inner)
            )
    return found


def trained_alone(name: str, settings: dict[str, Any], p: float) -> NDArray[Any]:
    """Train a program with torch's optimiser and loss in one loop; nothing of emu's."""
    import torch

    space: dict[str, Any] = {"__name__": "program"}
    exec(PROGRAMS[name], space)  # noqa: S102 - text of this folder
    dataset, plan = open_for(settings), BatchPlan.from_settings(settings)
    module = space["Net"](dataset.feature_length, hid_size=16, p=p, **{
        "sage": {"out_size": 47}, "gcn": {"n_classes": 47}, "gat": {"num_classes": 47},
        "torch": {"out_channels": 47}, "adjs": {"out_channels": 47}}[name])  # fmt: skip
    module = module.double()
    first = torch.tensor(initial_parameters(settings, dataset))
    torch.nn.utils.vector_to_parameters(first, module.parameters())
    adam = torch.optim.Adam(module.parameters(), lr=settings["optimizer"]["lr"])
    each = settings["samplers_per_worker"]
    for iteration in range(ITERATIONS):
        adam.zero_grad()
        for worker in range(settings["workers"]):
            key = stream_key(settings["seed"], 7, worker, iteration)
            torch.manual_seed(int(key))
            for sampler in range(worker * each, (worker + 1) * each):
                batch = plan.batch(dataset.structure, dataset.train, sampler, iteration)
                x = torch.tensor(dataset.gather(batch.vertices)).double()
                y = torch.tensor(dataset.labels[batch.seeds]).long()
                blocks = blocks_of(name, batch)
                scores = module(x, blocks) if name == "adjs" else module(blocks, x)
                loss = torch.nn.functional.cross_entropy(scores, y)
                (loss / each / settings["workers"]).backward()
        adam.step()
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy()


@pytest.mark.parametrize(
    ("name", "p", "sync"),
    draws.grid(PROGRAMS, [0.0, 0.5], ["parameter_server", "ring"]),
)
def test_weights_equal_one_process(name: str, p: float, sync: str) -> None:
    if name not in ("torch", "adjs"):
        pytest.importorskip("dgl")
    job = small_job(
        ITERATIONS,
        model=model_of(name, p=p),
        precision="float64",
        parameter_servers=2,
        sync=sync,
    )
    settings = dict(job.settings)
    found = drive(job).parameters

    alone = trained_alone(name, settings, p)
    np.testing.assert_allclose(found, alone, rtol=1e-12, atol=1e-12)
    reference, losses = reference_training(settings, ITERATIONS)
    np.testing.assert_allclose(found, reference, rtol=1e-12, atol=1e-14)
    assert losses[-1] < losses[0]


def test_without_dgl_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of dgl, or what stands in for them where it is not installed."""
    pytest.importorskip("dgl")
    job = small_job(ITERATIONS, model=model_of("torch"), precision="float64")
    with_dgl = drive(job).parameters
    monkeypatch.setattr("emu.training.own_model._dgl", lambda: None)

    np.testing.assert_array_equal(drive(job).parameters, with_dgl)


def test_timed_tasks_send_as_many_bytes() -> None:
    real, timed = (
        drive(small_job(2, model=model_of("torch"), compute=compute)).volumes
        for compute in ("real", "timed")
    )

    np.testing.assert_array_equal(real, timed)
