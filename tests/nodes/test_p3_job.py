"""P3 and data parallel training, all programs in one process: weights and bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.graph_data import BatchPlan, open_for
from emu.prediction.simulation import simulate
from emu.problem.payloads import payload_kind
from emu.scenario import prepare
from emu.scenario.scenario_file import loads
from emu.systems.data_parallel.section import DataParallelJobSection
from emu.systems.p3.job import PIPELINES
from emu.systems.p3.section import P3JobSection
from emu.systems.system import systems
from emu.training import reference_training
from tests import draws
from tests.nodes.one_process import drive

TEXT = """\
cluster:
  machines: [{count: 3, nic: 10 Gbit/s}]
job:
  system: p3
  dataset: {name: products-like, scale: 0.001, seed: 3}
  model: {hidden: 6, layers: 2}
  fanouts: [4, 6]
  batch_size: 12
  iterations: 6
  optimizer: {name: sgd, lr: 0.5}
  precision: float64
  pipeline: none
  times:
    {sampler: 0 s, model_forward: 0 s, data_forward: 0 s, data_backward: 0 s,
     model_backward: 0 s, sampler_hop: 0 s, graph_store_hop: 0 s}
seed: 7
emulation: {compute: padded}
"""


def parameters(run: Any) -> Any:
    """Return all parameters, after holding those of all ranks against each other."""
    job = run.job
    names = [
        task.name for task in job.tasks if task.kind in ("model_forward", "worker")
    ]
    results = {name: run.programs[name].result() for name in names}
    for name, held in results.items():
        upper = "upper" if "upper" in held else "parameters"
        first = results[names[0]][upper]
        np.testing.assert_allclose(held[upper], first, rtol=1e-12, err_msg=name)
    return systems()[job.settings["system"]].trained(job, results)


def check(*overrides: str, policy: str = "", descends: bool = True) -> Any:
    """Hold weights against one process, and bytes against the formulas.

    ``policy``: tasks run in the order of its schedule; ``descends``: whether the loss
    of the last step has to be below that of the first.
    """
    scenario = loads(TEXT, overrides)
    assert isinstance(scenario.job, P3JobSection | DataParallelJobSection)
    job, batches = scenario.to_job(), scenario.job.iterations or 0
    starts = None
    if policy:
        experiment = prepare(scenario)
        made = simulate(experiment.problem, experiment.realization, policy)
        starts = made.task_start
    run = drive(job, starts)
    pipeline = PIPELINES[job.settings.get("pipeline", "none")]
    expected, losses = reference_training(job.settings, batches, pipeline.missed)
    double = job.settings["precision"] == "float64"
    tolerance = 1e-12 if double else 1e-5

    found = parameters(run)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    assert losses[-1] < losses[0] or not descends
    dataset = open_for(job.settings)
    volumes = scenario.job.realize_sampled(
        job,
        dict.fromkeys((task.kind for task in job.tasks), 0.0),
        scenario.build_context(dataset.train_count),
        scenario.to_cluster(),
    ).volumes
    sent = np.zeros_like(volumes)
    for edge, count in enumerate(job.flow_counts):
        sent[edge, : 0 if job.edges[edge].credit else count] = 1
    np.testing.assert_array_equal(run.volumes, volumes * sent)
    return run


TIMED = (
    "job.times={sampler: 2 ms, model_forward: 3 ms, data_forward: 5 ms, "
    "data_backward: 4 ms, model_backward: 1 ms}"
)


@pytest.mark.parametrize("pipeline", ["none", "A"])
@pytest.mark.parametrize("policy", ["oes", "fifo"])
def test_twenty_steps_are_the_same_in_the_order_of_any_schedule(
    policy: str, pipeline: str
) -> None:
    nics = "cluster.machines=[{nic: 1 Mbit/s}, {nic: 30 kbit/s}, {nic: 1 Mbit/s}]"
    changes = [nics, TIMED, "job.iterations=20", f"job.pipeline={pipeline}"]
    check(*changes, policy=policy)


@pytest.mark.parametrize("machines", [1, 2, 3, 4])
def test_unpipelined_equals_one_process(machines: int) -> None:
    """100 columns do not divide by 3."""
    check(f"cluster.machines[0].count={machines}")


@pytest.mark.parametrize(
    "overrides",
    draws.rarely_but(
        3,
        [
            ["job.push=derived"],
            ["job.samplers_per_worker=2"],
            ["job.samplers_per_worker=3", "job.push=derived", "job.features=host"],
            ["job.samplers_per_worker=2", "job.structure=hashed", "job.pipeline=A"],
            ["job.samplers_per_worker=2", "job.columns=[2,0,1]", "job.push=derived"],
            [
                "job.samplers_per_worker=2",
                "job.model={kind: gat, hidden: 6, layers: 2}",
            ],
            ["job.features=host", "job.cache=1", "job.columns=[1]"],
            ["job.features=host", "job.columns=[0,3,1]", "job.pipeline=B"],
            ["job.structure=hashed", "job.credit_window=1"],
            ["job.structure=hashed", "job.pipeline=A", "job.cache=1"],
            ["job.cache=1"],
            ["job.cache=2", "cluster.machines[0].count=4"],
            ["job.columns=[2,0,1]"],
            ["job.dataset.feature_length=130"],
            ["job.machines=[m2,m0]"],
            ["job.optimizer=adam", "job.precision=float32"],
            ["job.fanouts=all", "job.batch_size=3"],
            ["job.model.layers=3", "job.fanouts=[2,3,4]"],
            ["job.model={kind: gcn, hidden: 6, layers: 2}"],
            ["job.model={kind: gat, hidden: 6, layers: 2, heads: 2}"],
            ["job.model={kind: gin, hidden: 6, layers: 2}", "job.optimizer.lr=0.01"],
        ],
    ),
    ids=" ".join,
)
def test_other_shapes_equal_one_process(overrides: list[str]) -> None:
    check(*overrides)


@pytest.mark.parametrize("cache", [3, 1])
@pytest.mark.parametrize("pipeline", ["A", "B"])
def test_pipelines_equal_delayed_descent(pipeline: str, cache: int) -> None:
    run = check(f"job.pipeline={pipeline}", f"job.cache={cache}")

    kept = [run.reports["Mf0", cycle]["versions"] for cycle in range(6)]
    assert max(kept) == {"A": 3, "B": 3}[pipeline]


@pytest.mark.parametrize(("pipeline", "late"), [("none", 0), ("A", 2)])
def test_what_is_left_after_a_cut_learns_what_the_whole_job_has(
    pipeline: str, late: int
) -> None:
    """With the gradients of the mini-batches before it that weights have lacked."""
    keys = [f"job.pipeline={pipeline}", "job.optimizer=adam", "job.cache=1"]
    job = loads(TEXT, keys).to_job()
    whole = drive(job, cut=3)
    names = {name for name in whole.states["Mf1"] if ".gradient" in name}
    parts = ("own", "upper")
    assert names == {f"{part}.gradient{2 - n}" for n in range(late) for part in parts}

    rest = drive(job, cut=3, kept=whole)
    np.testing.assert_allclose(parameters(rest), parameters(whole), rtol=1e-12)
    whole.states["Mf1"].pop("own.gradient2", None)
    if late:
        with pytest.raises(ValueError, match="state without gradient 2 of own"):
            drive(job, cut=3, kept=whole)


def test_a_trial_that_ends_early_has_stepped_with_what_is_through() -> None:
    pipeline = PIPELINES["A"]
    job = loads(TEXT, ["job.pipeline=A"]).to_job()
    run = drive(replace(job, iterations=6))

    steps = 6 - pipeline.depth
    expected, _ = reference_training(job.settings, steps, pipeline.missed)
    np.testing.assert_allclose(parameters(run), expected, rtol=1e-12, atol=1e-12)
    assert 0 < steps < 6 < job.iterations


def test_a_sampler_counts_inputs_and_the_edges_of_the_first_layer() -> None:
    job = loads(TEXT, ["job.iterations=1"]).to_job()
    data = open_for(job.settings)
    plan = BatchPlan.from_settings(job.settings)
    batch = plan.batch(data.structure, plan.walk(data), sampler=1, iteration=0)
    sources, _ = batch.edges[0]
    figures = drive(job).reports["s1", 0]

    assert figures == {"input_vertices": len(batch.vertices), "edges": len(sources)}


@pytest.mark.parametrize("samplers", [1, 3])
def test_data_parallel_equals_one_process(samplers: int) -> None:
    each = f"job.samplers_per_worker={samplers}"
    check("job.system=data_parallel", "job.pipeline=null", each)


@pytest.mark.parametrize("samplers", [2, 3])
def test_samplers_give_every_system_the_same_weights(samplers: int) -> None:
    """The walk is the same: batches of 12 in shares, the last of an epoch short."""
    common = [f"job.samplers_per_worker={samplers}", "job.batch_size=36"]
    common += ["job.iterations=8"]
    dgtp = ["job.system=dgtp", "job.workers=3", "job.pipeline=null"]
    kinds = ("graph_store", "sampler", "worker", "parameter_server")
    dgtp += [f"job.times={{{', '.join(f'{kind}: 0 s' for kind in kinds)}}}"]
    pulled = ["job.system=data_parallel", "job.pipeline=null"]
    jobs = [loads(TEXT, [*common, *own]).to_job() for own in (dgtp, pulled, [])]
    found = [
        systems()[job.settings["system"]].trained(
            job, {name: one.result() for name, one in drive(job).programs.items()}
        )
        for job in jobs
    ]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-12, atol=1e-12)


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_drawn_shapes_equal_one_process(data: st.DataObject) -> None:
    machines = data.draw(st.integers(1, 4))
    members = data.draw(st.sampled_from([n for n in (1, 2, 3, 4) if machines % n == 0]))
    columns = data.draw(st.lists(st.integers(0, 2), min_size=members, max_size=members))
    samplers = data.draw(st.integers(1, 3))
    push, structure = data.draw(
        st.sampled_from(
            [
                ("derived", "replicated"),
                ("shipped", "replicated"),
                ("shipped", "hashed"),
            ]
        )
    )
    check(
        f"cluster.machines[0].count={machines}",
        f"job.cache={members}",
        f"job.columns={columns if any(columns) else 'even'}",
        f"job.samplers_per_worker={samplers}",
        f"job.batch_size={samplers * data.draw(st.integers(1, 5))}",
        f"job.push={push}",
        f"job.structure={structure}",
        f"job.features={data.draw(st.sampled_from(['host', 'device']))}",
        f"job.pipeline={data.draw(st.sampled_from(['none', 'A', 'B']))}",
        f"job.credit_window={data.draw(st.integers(1, 4))}",
        "job.optimizer.lr=0.01",
        descends=False,
    )


def test_no_row_of_features_travels() -> None:
    """Ids, edges and activations do, each under its name."""
    run = drive(loads(TEXT, ["job.pipeline=A", "job.iterations=3"]).to_job())
    kinds = {
        name.rstrip("0123456789").rstrip("."): array.shape[1:]
        for payload in run.payloads.values()
        for name, array in payload.items()
    }

    assert kinds == {
        "vertices": (), "source": (), "destination": (), "outputs": (), "inputs": (),
        "partial": (6,), "of_sum": (6,), "part": (),
    }  # fmt: skip
    assert kinds_of(run) == {"structure", "activations", "gradients"}


def test_data_parallel_training_pulls_features() -> None:
    job = loads(TEXT, ["job.system=data_parallel", "job.pipeline=null"]).to_job()

    assert kinds_of(drive(job)) == {"features", "gradients", "labels", "structure"}


def kinds_of(run: Any) -> set[str]:
    """Return what the payloads of all edges were."""
    return {payload_kind(name) for sent in run.payloads.values() for name in sent}


def test_timed_machines_send_zeros() -> None:
    run = drive(loads(TEXT, ["emulation.compute=timed", "job.pipeline=B"]).to_job())

    partial = [p["partial"] for p in run.payloads.values() if "partial" in p]
    assert partial
    assert not any(part.any() for part in partial)
    assert run.reports["Df0", 2] == {}
    # Versions of the weights are dropped as those that learn drop them.
    assert max(run.reports["Mf0", cycle]["versions"] for cycle in range(6)) == 3
