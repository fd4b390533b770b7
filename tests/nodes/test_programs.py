"""Node programs one by one: what they refuse, and the bytes of custom jobs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import NodeMisbehaved
from emu.graph_data import open_for
from emu.host.stream_key import stream_key
from emu.prediction.core import lib, pointer
from emu.problem import Task
from emu.problem.workloads.all_reduce import NamedEdge
from emu.systems.custom.job import CustomFlow, CustomTask, custom_job
from emu_nodes.program import Copy, Payload, task_brief
from emu_nodes.timed import Timed, seed_of
from tests.emulation.launch.specs import process_task
from tests.nodes.one_process import build, drive, small_job


def payloads_into(run: Any, task: str, iteration: int) -> dict[int, Payload]:
    """Return what ``task`` received in a finished run."""
    job = run.job
    return {
        edge: run.payloads[edge, iteration - job.edges[edge].lag]
        for edge in job.in_edges(job.index(task))
        if (edge, iteration - job.edges[edge].lag) in run.payloads
    }


def replaced(inputs: dict[int, Payload], edge: int, **tensors: Any) -> Any:
    return {**inputs, edge: {**inputs[edge], **tensors}}


def test_a_sampler_refuses_rows_that_do_not_fit() -> None:
    job = small_job(1)
    inputs = payloads_into(drive(job), "s0", 0)
    edge = min(inputs)
    sampler = build(job).programs["s0"]

    with pytest.raises(NodeMisbehaved, match="g0 sent s0 features"):
        sampler.run(0, replaced(inputs, edge, features=inputs[edge]["features"][1:]))
    with pytest.raises(NodeMisbehaved, match="not features"):
        sampler.run(0, {**inputs, edge: {}})


def test_a_worker_refuses_parameters_of_another_version() -> None:
    job = small_job(3)
    run = drive(job)
    worker = build(job).programs["w0"]
    stale = {**payloads_into(run, "w0", 2)}
    parameters = next(e for e in stale if job.edges[e].lag == 1)
    stale[parameters] = run.payloads[parameters, 0]

    with pytest.raises(NodeMisbehaved, match=r"parameters\.0.*not parameters\.1"):
        worker.run(2, stale)


@pytest.mark.parametrize(
    "wrong",
    [
        {"labels": np.zeros(2, np.int32)},
        {"source_0": np.array([10**6], np.int32)},
        {"features": np.zeros((3, 100), np.float32)},
    ],
)
def test_a_worker_refuses_blocks_that_contradict_each_other(
    wrong: dict[str, Any],
) -> None:
    job = small_job(1)
    inputs = payloads_into(drive(job), "w1", 0)
    edge = min(inputs)

    with pytest.raises(NodeMisbehaved, match="s2"):
        build(job).programs["w1"].run(0, replaced(inputs, edge, **wrong))


def test_a_server_refuses_a_gradient_of_another_size() -> None:
    job = small_job(1)
    inputs = payloads_into(drive(job), "ps0", 0)
    wrong = replaced(inputs, min(inputs), gradient=np.zeros(3, np.float32))

    with pytest.raises(NodeMisbehaved, match="w0 sent gradient of shape"):
        build(job).programs["ps0"].run(0, wrong)


@pytest.mark.parametrize("vertex", [-1, 10**9])
def test_a_store_refuses_vertices_that_are_not_there(vertex: int) -> None:
    job = small_job(1, sampling="multiround")
    run, fresh = drive(job), build(job)
    for task, name in (("g1", "vertices"), ("g1.hop1", "frontier")):
        inputs = payloads_into(run, task, 0)
        wrong = replaced(inputs, min(inputs), **{name: np.array([vertex])})

        with pytest.raises(NodeMisbehaved):
            fresh.programs[task].run(0, wrong)

    # Nor one that counts from the end, and would be of this very store.
    dataset = open_for(job.settings)
    own = int(np.flatnonzero(dataset.owner == 1)[0])
    inputs = payloads_into(run, "g1", 0)
    alias = np.array([own - dataset.vertices])
    with pytest.raises(NodeMisbehaved, match="vertices of other stores"):
        fresh.programs["g1"].run(0, replaced(inputs, min(inputs), vertices=alias))


@pytest.mark.parametrize("sampling", ["oneshot", "multiround"])
def test_a_sampler_tells_of_its_batch_and_keeps_nothing_of_it(sampling: str) -> None:
    job = small_job(2, sampling=sampling)
    run = drive(job)
    sampler: Any = run.programs["s1"]
    batch = sampler._data.batch(1, 1)

    figures = run.reports["s1", 1]
    assert figures["input_vertices"] == batch.sizes[0] > batch.sizes[-1]
    assert figures["edges"] == sum(len(source) for source, _ in batch.edges)
    assert sampler._growing == {}


def test_stores_count_what_they_send_to_all_samplers() -> None:
    job = small_job(1, sampling="multiround")
    run = drive(job)
    for task, name, figure in (
        ("g1", "features", "rows"),
        ("g1.hop1", "source", "edges"),
    ):
        position = job.index(task)
        sent = [run.payloads[edge, 0][name] for edge in job.out_edges(position)]
        assert len(sent) > 1
        assert run.reports[task, 0][figure] == sum(map(len, sent))


def test_a_sampler_refuses_edges_to_vertices_it_never_asked_for() -> None:
    job = small_job(1, sampling="multiround")
    run, fresh = drive(job), build(job)
    fresh.programs["s0.hop1"].run(0, {})
    inputs = payloads_into(run, "s0.hop2", 0)
    edge = min(inputs)
    strangers = np.full_like(inputs[edge]["destination"], 2**40)

    with pytest.raises(NodeMisbehaved, match="not in the frontier"):
        fresh.programs["s0.hop2"].run(0, replaced(inputs, edge, destination=strangers))


def test_iterations_may_overlap_in_a_multiround_sampler() -> None:
    """The credit window lets hop 1 of n + 1 run before the batch of n is done."""
    job = small_job(2, sampling="multiround")
    run, fresh = drive(job), build(job)
    for task in ("s0.hop1", "s0.hop2"):
        for n in (0, 1):
            fresh.programs[task].run(n, payloads_into(run, task, n))
    for n in (0, 1):
        fresh.programs["s0.fetch"].run(n, payloads_into(run, "s0.fetch", n))
        sent = fresh.programs["s0"].run(n, payloads_into(run, "s0", n))
        ((edge, payload),) = sent.items()
        for name, array in payload.items():
            np.testing.assert_array_equal(array, run.payloads[edge, n][name])


def test_custom_payloads_are_seeded_bytes_of_the_prescribed_length() -> None:
    tasks = [CustomTask(Task("a", "task"), 1.0), CustomTask(Task("b", "task"), 1.0)]
    flows = [
        CustomFlow(NamedEdge("a", "b"), (40.0, 3_000_000.0, 0.0)),
        CustomFlow(NamedEdge("b", "a", lag=1), 7.0),
    ]
    job = custom_job(tasks, flows, 3, byte_scale=0.5, settings={"seed": 5})
    run = drive(job)

    np.testing.assert_array_equal(run.volumes, [[20, 1_500_000, 0], [4, 4, 0]])
    first, second = run.payloads[0, 0]["bytes"], run.payloads[0, 1]["bytes"]
    assert not np.array_equal(first, second[:20])
    np.testing.assert_array_equal(drive(job).payloads[0, 1]["bytes"], second)
    assert len(np.unique(second)) == 256


def test_a_timed_task_must_know_what_to_send() -> None:
    tasks = [CustomTask(Task("a", "task"), 1.0), CustomTask(Task("b", "task"), 1.0)]
    job = custom_job(tasks, [CustomFlow(NamedEdge("a", "b"), 1.0)], 1)

    with pytest.raises(ValueError, match="a has 0 rows"):
        build(job)


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**31),
    st.integers(0, 2**62),
    st.integers(1, 2**40),
)
def test_windows_begin_at_the_key_of_seed_edge_and_iteration(
    seed: int, edge: int, iteration: int, period: int
) -> None:
    start = lib.window_start(seed, edge, iteration, period)

    assert start == int(stream_key(seed, edge, iteration)) % period


@pytest.mark.parametrize("byte", [0, 70_000, 1_499_999])
def test_bytes_of_the_right_number_and_the_wrong_content_are_refused(
    byte: int,
) -> None:
    tasks = [CustomTask(Task("a", "task"), 1.0), CustomTask(Task("b", "task"), 1.0)]
    job = custom_job(tasks, [CustomFlow(NamedEdge("a", "b"), 1.5e6)], 2, byte_scale=1.0)
    right = payloads_into(drive(job), "b", 1)[0]["bytes"]
    wrong = right.copy()
    wrong[byte] ^= 1
    program = build(job).programs["b"]
    assert isinstance(program, Timed)
    sink = program.sinks()[0]

    def bring(iteration: int, body: Any) -> None:
        lib.expect_body(sink.core, iteration)
        for begin in range(0, len(body), 100_000):
            part = body[begin : begin + 100_000]
            lib.compare(sink.core, begin, pointer(part), len(part))
        sink.finish({"bytes": len(body)})

    bring(1, right)
    begin = byte - byte % 100_000
    begin += (byte - begin) // 65_536 * 65_536
    place = f"from byte {begin} to {min(begin + 65_536, 1_500_000)}"
    expected = f"iteration 1 of a came with other bytes than its own, {place} at most"
    with pytest.raises(NodeMisbehaved, match=expected):
        bring(1, wrong)
    with pytest.raises(NodeMisbehaved, match="iteration 0 of a came with other bytes"):
        bring(0, right)
    bring(1, right)
    with pytest.raises(NodeMisbehaved, match=r"a sent \['rows'\], not bytes"):
        sink.finish({"rows": 1})


def test_a_sampler_refuses_features_of_other_vertices() -> None:
    job = small_job(1)
    inputs = payloads_into(drive(job), "s0", 0)
    edge = min(inputs)
    shuffled = np.roll(inputs[edge]["features"], 1, axis=0)

    with pytest.raises(NodeMisbehaved, match="g0 sent s0 other features"):
        build(job).programs["s0"].run(0, replaced(inputs, edge, features=shuffled))


def test_a_store_refuses_the_vertices_of_another_store() -> None:
    """Without it a row of zeros, or of another vertex, would be what is sent."""
    job = small_job(1, sampling="multiround")
    run, fresh = drive(job), build(job)
    own, others = (payloads_into(run, store, 0) for store in ("g1", "g0"))
    edge = min(own)
    asked = own[edge]["vertices"]
    strangers = others[min(others)]["vertices"]
    assert len(asked)
    assert len(strangers)

    for wrong in (strangers, np.append(asked, strangers[0]), strangers[-1:]):
        with pytest.raises(NodeMisbehaved, match="asked g1 for vertices of other"):
            fresh.programs["g1"].run(0, replaced(own, edge, vertices=wrong))
    fresh.programs["g1"].run(0, own)


@pytest.mark.parametrize("what", ["labels", "source_0", "source_1", "features"])
def test_a_worker_that_learns_nothing_looks_at_its_batches(
    what: str,
) -> None:
    """Under ``timed`` no loss would show other labels or edges."""
    job = small_job(2, compute="timed")
    run, worker = drive(job), build(job).programs["w0"]
    for n in (0, 1):
        inputs = payloads_into(run, "w0", n)
        worker.run(n, inputs)
        edge = next(e for e, sent in inputs.items() if what in sent)
        wrong = inputs[edge][what][::-1].copy()

        with pytest.raises(NodeMisbehaved, match="sent w0 other labels, edges"):
            [worker.run(n, replaced(inputs, edge, **{what: wrong})) for _ in range(20)]


def test_a_copy_has_the_state_of_the_cut_that_its_last_iteration_brought() -> None:
    """Updates of two iterations are on their way at a cut; most bring no state."""
    settings = {"of": "w0", "missed": 2}
    brief = task_brief(process_task("x:X", settings=settings), {}, 0)
    copy = Copy(brief, {})
    body = np.arange(3.0)
    copy.work(6, {9: {"x": body}})
    body[:] = -1.0

    assert {cut: state["x"].tolist() for cut, state in copy.kept.items()} == {
        4: [0.0, 1.0, 2.0]
    }
    copy.work(7, {9: {}})
    assert copy.kept == {}


def test_bytes_of_a_job_without_a_seed_are_those_of_seed_0() -> None:
    assert seed_of({}) == 0
    assert seed_of({"seed": -1}) == 2**64 - 1
    assert seed_of({"seed": 2**64 + 5}) == 5
