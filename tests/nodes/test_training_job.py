"""Node programs together: the weights and the bytes of a whole job."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emu.graph_data import BatchPlan, open_for
from emu.prediction.placement.ring_order import with_placed_ring
from emu.problem import Cluster, Job, Machine, Placement, Problem
from emu.systems.dgtp.volumes import realize_volumes
from emu.training import reference_training
from emu_nodes.program import Payload
from tests.nodes.one_process import drive, small_job


@pytest.mark.parametrize("sampling", ["oneshot", "multiround"])
@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize(
    ("precision", "tolerance"), [("float32", 1e-5), ("float64", 1e-12)]
)
def test_weights_equal_the_reference(
    sampling: str,
    servers: int,
    precision: str,
    tolerance: float,
) -> None:
    job = small_job(
        20, sampling=sampling, parameter_servers=servers, precision=precision
    )
    run = drive(job)
    expected, losses = reference_training(job.settings, 20)

    assert run.parameters.dtype == precision
    np.testing.assert_allclose(run.parameters, expected, rtol=tolerance, atol=0)
    reported = np.mean([run.reports["w0", 19]["loss"], run.reports["w1", 19]["loss"]])
    assert reported == pytest.approx(losses[19], rel=tolerance)
    assert losses[19] < losses[0]


@pytest.mark.parametrize("kind", ["gcn", "gat", "gin"])
def test_weights_of_every_model_equal_the_reference(kind: str) -> None:
    model = {"kind": kind, "hidden": 16, "layers": 2, "heads": 4}
    job = small_job(6, model=model, parameter_servers=2, precision="float64")
    expected, losses = reference_training(job.settings, 6)

    np.testing.assert_allclose(drive(job).parameters, expected, rtol=1e-12, atol=0)
    assert losses[5] < losses[0]


@pytest.mark.parametrize(
    ("precision", "tolerance"), [("float32", 1e-5), ("float64", 1e-12)]
)
@pytest.mark.parametrize(
    ("sync", "workers"), [("ring", 1), ("ring", 2), ("ring", 3), ("ring", 5),
                          ("placed ring", 5), ("halving_doubling", 4)]
)  # fmt: skip
def test_workers_that_sum_their_gradients_hold_the_weights_of_the_reference(
    sync: str,
    workers: int,
    precision: str,
    tolerance: float,
) -> None:
    model = {"hidden": 18, "layers": 2}
    settings: Any = {"workers": workers, "precision": precision, "model": model}
    job = small_job(5, sync=sync.removeprefix("placed "), **settings)
    job = on_two_machines(job) if sync.startswith("placed") else job
    run = drive(job)
    expected, _ = reference_training(job.settings, 5)

    assert workers == 1 or len(expected) % workers
    np.testing.assert_allclose(run.parameters, expected, rtol=tolerance, atol=tolerance)
    for rank in range(workers):
        held = run.programs[f"w{rank}"].result()["parameters"]
        np.testing.assert_array_equal(held, run.parameters)
    sent = sum(
        run.volumes[e].sum()
        for e, edge in enumerate(job.edges)
        if job.tasks[edge.source].kind == "all_reduce"
    )
    assert sent == 5 * 2 * (workers - 1) * expected.nbytes
    np.testing.assert_array_equal(
        run.volumes,
        np.where(_sent(job), realize_volumes(job, open_for(job.settings)), 0),
    )


def on_two_machines(job: Job) -> Job:
    """Return the job with its ring placed: ranks by turns on two machines."""
    machines = tuple(Machine(f"m{i}", 1.0, 1.0) for i in range(3))
    turns = [int(task.process_name[1:]) % 2 for task in job.tasks]
    problem = Problem(Cluster(machines), job, Placement(tuple(turns)))
    placed = with_placed_ring(problem).job
    assert placed.tasks[job.index("w1.ring0")].settings["rank"] == 3
    return placed


def _sent(job: Any) -> Any:
    counts = np.array(
        [0 if e.credit else n for e, n in zip(job.edges, job.flow_counts, strict=True)]
    )
    return np.arange(job.iterations) < counts[:, None]


def test_weights_do_not_depend_on_the_partitioner() -> None:
    metis = drive(small_job(2, partitioner="metis", parts=2))
    hashed = drive(small_job(2))

    np.testing.assert_array_equal(metis.parameters, hashed.parameters)


def test_weights_depend_on_the_batches() -> None:
    """The tolerances above mean something: other batches, other weights."""
    job = small_job(2, precision="float64")
    weights, _ = reference_training(job.settings, 2)
    others, _ = reference_training({**job.settings, "batch_size": 14}, 2)

    assert not np.allclose(weights, others, rtol=1e-5)


@pytest.mark.parametrize("sampling", ["oneshot", "multiround"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("compute", ["timed", "real"])
def test_sent_bytes_are_the_realized_volumes(
    sampling: str, precision: str, compute: str
) -> None:
    job = small_job(
        2,
        sampling=sampling,
        precision=precision,
        compute=compute,
        parameter_servers=2,
        epoch="shard",
    )
    run = drive(job)
    volumes = realize_volumes(job, open_for(job.settings))
    for at in np.argwhere(~_sent(job)).tolist():
        assert tuple(at) not in run.payloads

    np.testing.assert_array_equal(run.volumes, np.where(_sent(job), volumes, 0))


@pytest.mark.parametrize("sampling", ["oneshot", "multiround"])
def test_seeds_near_their_owner_train_to_the_weights_of_one_process(
    sampling: str,
) -> None:
    job = small_job(
        5, epoch="local", partitioner="metis", sampling=sampling, precision="float64"
    )
    run = drive(job)
    expected, _ = reference_training(job.settings, 5)
    by_number, _ = reference_training({**job.settings, "epoch": "shard"}, 5)

    np.testing.assert_allclose(run.parameters, expected, rtol=1e-12, atol=1e-12)
    assert not np.allclose(by_number, expected, rtol=1e-5)
    volumes = realize_volumes(job, open_for(job.settings))
    np.testing.assert_array_equal(run.volumes, np.where(_sent(job), volumes, 0))


def test_multiround_sends_the_same_mini_batches() -> None:
    runs = [drive(small_job(2, sampling=s)) for s in ("oneshot", "multiround")]

    def sent(run: Any) -> list[Payload]:
        names = [*run.job.edge_names]
        return [
            run.payloads[names.index(f"s{i}->w{i // 2}"), n]
            for i in range(4)
            for n in range(2)
        ]

    for oneshot, multiround in zip(*map(sent, runs), strict=True):
        assert oneshot.keys() == multiround.keys()
        for name, array in oneshot.items():
            np.testing.assert_array_equal(array, multiround[name])


def test_the_stores_rows_are_the_features_of_the_batch() -> None:
    """Union over stores == X[S_0], and no row comes twice."""
    job = small_job(1)
    run, dataset = drive(job), open_for(job.settings)
    plan = BatchPlan.from_settings(job.settings)
    batch = plan.batch(dataset.structure, dataset.train, 2, 0)
    names = [*job.edge_names]
    rows = [run.payloads[names.index(f"g{g}->s2"), 0]["features"] for g in range(3)]
    by_owner = np.argsort(dataset.owner[batch.vertices], kind="stable")

    np.testing.assert_array_equal(
        np.concatenate(rows), dataset.gather(batch.vertices[by_owner])
    )


def test_timed_workers_send_zeros_and_report_no_loss() -> None:
    run = drive(small_job(2, compute="timed"))
    names = [*run.job.edge_names]

    assert not run.payloads[names.index("w0->ps0"), 1]["gradient"].any()
    assert run.reports["w0", 1] == {}
