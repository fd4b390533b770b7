"""Dorylus training, all programs in one process: weights, bytes, what reads decide.

Of a GCN, and of a GAT, whose edges are computed by lambdas too.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.graph_data.sampling import Structure
from emu.prediction.simulation import simulate
from emu.problem import Job, Placement, Problem, Schedule
from emu.problem.payloads import OPAQUE, payload_kind
from emu.scenario import prepare
from emu.scenario.scenario_file import loads
from emu.systems.dorylus import replay as replay_module
from emu.systems.dorylus.replay import replay_training
from emu.systems.dorylus.section import DorylusJobSection
from emu.systems.system import systems
from emu.training import reference_training
from emu.training.interval_layers import flat_weights
from tests import draws
from tests.golden.cases import cases, problem_of
from tests.nodes.one_process import brief_of
from tests.systems.sections import context_of, section_of

TEXT = """\
cluster:
  machines:
    - {name: g, count: 3, nic: 1 Gbit/s}
    - {name: ps, nic: 1 Gbit/s}
job:
  system: dorylus
  dataset: {name: products-like, scale: 0.0003}
  model: {hidden: 6}
  machines: [g0, g1, g2]
  parameter_servers: [ps]
  intervals: 2
  mode: async
  epochs: 8
  optimizer: {name: sgd, lr: 0.5}
  precision: float64
  times: {gather: 8 ms, apply: 20 ms, scatter: 2 ms}
  slow_lambdas: {share: 30 %, factor: 4, spread: exponential}
emulation: {compute: padded}
"""


def drive(schedule: Schedule) -> tuple[dict[str, Any], dict[tuple[int, int], Any]]:
    """Run all programs in the order and with the reads of a schedule."""
    job = schedule.problem.job
    programs: dict[str, Any] = {}
    processes: dict[str, dict[str, Any]] = {}
    for position, task in enumerate(job.tasks):
        if not task.gate:
            module, _, name = task.program.partition(":")
            program = getattr(importlib.import_module(module), name)
            process = processes.setdefault(task.process_name, {})
            programs[task.name] = program(brief_of(job, position), process)
    place = {task: rank for rank, task in enumerate(job.order)}
    order = sorted(
        (schedule.task_start[j, n], n, place[j], j)
        for j, task in enumerate(job.tasks)
        for n in range(job.rounds[j])
        if not task.gate
    )
    payloads: dict[tuple[int, int], Any] = {}
    for _, n, _, j in order:
        program, inputs, reads = programs[job.tasks[j].name], {}, {}
        for edge in brief_of(job, j).inputs:
            if job.control[edge.edge]:
                continue
            at = n - edge.lag
            if job.edges[edge.edge].latest:
                assert schedule.reads is not None
                at = reads[edge.edge] = int(schedule.reads[edge.edge, n])
            if 0 <= at < edge.sent:
                payload = payloads[edge.edge, at]
                inputs[edge.edge] = {k: v.copy() for k, v in payload.items()}
        if reads:
            program.read(reads)
        for edge_number, payload in program.run(n, inputs).items():
            # What frames ask for, within a process or not.
            assert all(array.flags.c_contiguous for array in payload.values())
            payloads[edge_number, n] = payload
    return programs, payloads


def run(*changes: str) -> tuple[Any, Schedule, Any, Any]:
    """Return experiment, schedule, weights of the programs, and their payloads."""
    found = prepare(loads(TEXT, changes))
    schedule = found.simulate()
    programs, payloads = drive(schedule)
    job = found.problem.job
    results = {name: program.result() for name, program in programs.items()}
    weights = systems()["dorylus"].trained(job, results)
    return found, schedule, weights, payloads


def replay(found: Any, schedule: Schedule) -> tuple[Any, list[float]]:
    section = found.scenario.job
    assert isinstance(section, DorylusJobSection)
    return replay_training(section, found.scenario.build_context(), schedule)


_REFERENCES: dict[str, Any] = {}


def reference(settings: Mapping[str, Any], epochs: int) -> Any:
    """Return weights and losses of one process, trained once for what decides them."""
    decisive = ("dataset", "model", "optimizer", "precision", "seed")
    key = json.dumps([epochs, *(settings[one] for one in decisive)], sort_keys=True)
    if key not in _REFERENCES:
        _REFERENCES[key] = reference_training(settings, epochs)
    return _REFERENCES[key]


#: Beside `TEXT`; later changes hold.
GAT = (
    "job.epochs=4",
    "job.model={kind: gat, hidden: 6}",
    "job.times={gather: 8 ms, apply: 20 ms, scatter: 2 ms, edge_apply: 15 ms}",
)
PIPE, SIX = ("job.mode=pipe",), "job.epochs=6"
ADAM = "job.optimizer={name: adam, lr: 0.05}"
LAUNCH = "job.launch={cold: 30 ms, warm: 3 ms}"
TWO_SERVERS = "job.parameter_servers=[ps, g0]"
#: Of both models.
SHAPES = [
    ADAM,
    "job.partitioner=hash",
    "job.intervals=5",
    "job.interval_cut=balanced",
    "job.lambdas=1",
    TWO_SERVERS,
    LAUNCH,
]
GCN_SHAPES = [
    *SHAPES,
    "job.optimizer={name: sgd, lr: 0.5}",
    "job.model={hidden: 6, layers: 3, activation: relu}",
    "job.model={hidden: 6, norm: mean, layers: 1}",
    "job.fuse=false",
    "job.rematerialize=true",
    "job.stream=2",
]
GAT_SHAPES = [
    *SHAPES,
    "job.mode=no_pipe",
    "job.model={kind: gat, hidden: 6, layers: 3, activation: relu}",
]


@pytest.mark.parametrize(
    "changes",
    draws.rarely_but(
        3,
        [
            *((*PIPE, SIX, shape) for shape in GCN_SHAPES),
            *(("job.mode=no_pipe", SIX, shape) for shape in GCN_SHAPES[::3]),
            *((*GAT, *PIPE, shape) for shape in GAT_SHAPES),
        ],
    ),
    ids=" ".join,
)
def test_with_barriers_it_equals_one_process(changes: tuple[str, ...]) -> None:
    """The reference trains the whole graph by autograd: 1e-12 after 6 epochs."""
    found, _, weights, _ = run(*changes)
    epochs = found.problem.job.iterations
    expected, losses = reference(found.problem.job.settings, epochs)
    assert np.abs(weights - expected).max() <= 1e-12
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("backend", "changes"),
    draws.grid(["cpu", "gpu"], [PIPE, (*GAT, *PIPE), (*GAT, "job.mode=async")]),
)
def test_without_lambdas_it_equals_one_process(
    backend: str, changes: tuple[str, ...]
) -> None:
    plain = "job.slow_lambdas=null", f"job.backend={backend}"
    found, schedule, weights, _ = run(*changes, *plain)
    job = found.problem.job
    expected, _ = replay(found, schedule)
    if "job.mode=pipe" in changes:
        expected, _ = reference(job.settings, job.iterations)
    assert np.abs(weights - expected).max() <= 1e-12


#: Each beside one bound of staleness, and each bound beside several.
ASYNC_SHAPES = [
    (ADAM,),
    ("job.lambdas=1",),
    ("job.model={hidden: 6, layers: 3}",),
    ("job.rematerialize=true",),
    (TWO_SERVERS,),
    ("job.first_epoch=free",),
    (LAUNCH,),
    ("job.stream=2",),
    (*GAT, ADAM),
    (*GAT, "job.model={kind: gat, hidden: 6, layers: 3}"),
    (*GAT, TWO_SERVERS),
    (*GAT, "job.first_epoch=free"),
    (*GAT, LAUNCH),
]


@pytest.mark.parametrize(
    "changes",
    draws.rarely_but(
        4,  # of all bounds, and of both models
        [(f"job.staleness={n % 3}", *shape) for n, shape in enumerate(ASYNC_SHAPES)],
    ),
    ids=" ".join,
)
def test_async_equals_one_process_with_its_reads(changes: tuple[str, ...]) -> None:
    found, schedule, weights, _ = run(*changes)
    expected, _ = replay(found, schedule)
    assert np.abs(weights - expected).max() <= 1e-12


def test_one_receiver_per_server_equals_one_process_with_its_reads() -> None:
    found, schedule, weights, _ = run("job.intervals=22", "job.staleness=1")
    assert "in_0" in {task.name for task in found.problem.job.tasks}
    expected, _ = replay(found, schedule)
    assert np.abs(weights - expected).max() <= 1e-12


BOTH = pytest.mark.parametrize("model", [(), draws.rarely(GAT)], ids=["GCN", "GAT"])


@BOTH
def test_a_replay_of_pipe_is_the_reference(model: tuple[str, ...]) -> None:
    found = prepare(loads(TEXT, [*model, *PIPE]))
    job = found.problem.job
    weights, losses = replay(found, found.simulate())
    expected, other = reference(job.settings, job.iterations)
    assert np.abs(weights - expected).max() <= 1e-12
    np.testing.assert_allclose(losses, other, rtol=1e-12)


@BOTH
def test_staleness_changes_the_weights(model: tuple[str, ...]) -> None:
    """S = 0 is not synchronous; with one server of one interval it is."""
    _, _, pipe, _ = run(*model, *PIPE)
    _, _, stale, _ = run(*model, "job.staleness=0")
    assert np.abs(pipe - stale).max() > 1e-6
    one = ("job.machines=[g0]", "job.intervals=1", "job.epochs=4")
    found, _, alone, _ = run(*model, "job.staleness=0", *one)
    expected, _ = reference(found.problem.job.settings, 4)
    assert np.abs(alone - expected).max() <= 1e-12


@pytest.mark.parametrize(
    "changes",
    draws.rarely_but(
        2,
        [
            ("job.fuse=false",),
            ("job.rematerialize=true",),
            ("job.stream=2",),
            ("job.precision=float32",),
            (TWO_SERVERS,),
            ("job.model={hidden: 6, layers: 3}",),
            (*GAT, "job.precision=float32"),
            (*GAT, TWO_SERVERS),
            (*GAT, "job.model={kind: gat, hidden: 6, layers: 3}"),
            (*GAT, "job.partitioner=hash"),
        ],
    ),
    ids=" ".join,
)
def test_payloads_are_as_long_as_the_formulas_say(changes: tuple[str, ...]) -> None:
    found, _, _, payloads = run(*changes, "job.epochs=3")
    job, expected = found.problem.job, found.realization.volumes
    for (edge, n), payload in payloads.items():
        ends = job.edges[edge].source, job.edges[edge].destination
        if len({job.tasks[end].process_name for end in ends}) == 2:
            assert OPAQUE not in map(payload_kind, payload), [*payload]
            size = sum(array.nbytes for array in payload.values())
            assert size == expected[edge, n], job.edge_names[edge]


class _Ring:
    """The graph of golden_dorylus.json: 8 vertices on a ring, all of them trained."""

    vertices, classes, feature_length, parts, train_count = 8, 2, 2, 2, 8
    owner = np.repeat([0, 1], 4).astype(np.int32)
    labels = np.array([0, 1, 1, 0, 1, 0, 0, 1], np.int32)
    train = np.arange(8)
    structure = Structure(
        np.arange(0, 17, 2),
        np.array([[(v - 1) % 8, (v + 1) % 8] for v in range(8)], np.int32).ravel(),
    )

    def gather(self, vertices: Any) -> Any:
        return np.stack([np.cos(vertices), np.sin(2 * vertices)], axis=1)


@pytest.mark.parametrize("name", [case.name for case in cases("dorylus")])
def test_golden_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that follow from what was read, from two programs written by hand."""
    file = Path(__file__).parents[1] / "golden" / "golden_dorylus.json"
    found = json.loads(file.read_text())["cases"]
    (stated,) = [one["weights_after"] for one in found if one["name"] == name]
    (case,) = [one for one in cases("dorylus") if one.name == name]
    asynchronous = name.startswith("async")
    section = section_of(
        "dorylus",
        machines=["g0", "g1"],
        intervals=2,
        parameter_servers=["p"],
        epochs=4,
        mode="async" if asynchronous else "pipe",
        staleness=int(name[5]) if asynchronous else 0,
        model={"hidden": 2, "layers": 2},
        optimizer={"name": "sgd", "lr": 0.5},
        precision="float64",
    )
    context = context_of([])
    first = [
        np.array([[0.3, -0.2], [0.1, 0.4]]),
        np.array([[-0.5, 0.2], [0.3, 0.1]]),
    ]
    monkeypatch.setattr(replay_module, "open_for", lambda _: _Ring())
    monkeypatch.setattr(replay_module, "initial_weights", lambda *_: first)
    problem, realization = problem_of(case)
    schedule = simulate(problem, realization, "oes")
    log = _of_own_job(section.build(context), schedule)
    weights, _ = replay_training(section, context, log)
    expected = flat_weights([np.array(stated["W0"]), np.array(stated["W1"])])
    assert np.abs(weights - expected).max() <= 1e-12
    # Who has seen enough ends it.
    seen = []

    def watch(epoch: int, _: Any) -> bool:
        seen.append(epoch)
        return epoch == 1

    replay_training(section, context, log, watch)
    assert seen == [0, 1]


def _of_own_job(job: Job, schedule: Schedule) -> Schedule:
    """Return a schedule of the golden job as one of the same job from its builder."""
    other = schedule.problem.job
    tasks = [other.index(task.name) for task in job.tasks]
    edges = [other.edge_positions[name] for name in job.edge_names]
    cluster = schedule.problem.cluster
    homes = [(task.pinned or "").replace("lambda", "l") for task in job.tasks]
    placed = Placement(tuple(map(cluster.index, homes)))
    return Schedule(
        Problem(cluster, job, placed),
        schedule.task_start[tasks],
        schedule.task_end[tasks],
        schedule.flow_ready[edges],
        schedule.flow_start[edges],
        schedule.flow_end[edges],
        schedule.flow_bytes[edges],
        reads=None if schedule.reads is None else schedule.reads[edges],
    )
