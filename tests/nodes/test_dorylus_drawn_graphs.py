"""Dorylus on drawn graphs: isolated vertices, intervals without ghosts, lone parts.

Trained weights are held against a dense matrix of the whole graph and torch's autograd,
with nothing of emu's in it but the first weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.graph_data.intervals import cut_intervals, interval_counts
from emu.graph_data.raw_graph import build_structure
from emu.graph_data.sampling import Structure
from emu.graph_data.whole_graph import Aggregation
from emu.prediction.simulation import simulate
from emu.problem import Cluster, Machine, Placement, Problem, Realization, Schedule
from emu.systems.dorylus.replay import replay_training
from emu.systems.dorylus.section import DorylusJobSection
from emu.systems.system import systems
from emu.training.graph_model import initial_parameters
from tests.graph_data.parts import whole_of
from tests.nodes.test_dorylus_programs import drive
from tests.systems.sections import context_of, section_of

FEATURES, HIDDEN, CLASSES, EPOCHS = 3, 4, 2, 4
CONTEXT = context_of([])


@dataclass(frozen=True, eq=False)
class _Drawn:
    """A data set of drawn edges; a graph's every second vertex is trained."""

    structure: Structure
    owner: np.ndarray
    parts: int
    classes: int = CLASSES
    feature_length: int = FEATURES

    @property
    def vertices(self) -> int:
        return len(self.owner)

    @property
    def train(self) -> np.ndarray:
        return np.arange(0, self.vertices, 2)

    @property
    def train_count(self) -> int:
        return len(self.train)

    @property
    def labels(self) -> np.ndarray:
        return (np.arange(self.vertices) * 5 // 3 % CLASSES).astype(np.int32)

    def gather(self, vertices: Any) -> Any:
        return np.stack([np.cos(vertices), np.sin(2 * vertices), 0.1 * vertices], 1)


def drawn(pairs: list[tuple[int, int]], owner: list[int]) -> _Drawn:
    sources, destinations = np.array(pairs, np.int64).reshape(-1, 2).T
    structure = build_structure(
        sources, destinations, vertices=len(owner), origin="drawn"
    )
    return _Drawn(structure, np.array(owner, np.int32), max(owner) + 1)


def section_on(
    data: _Drawn, kind: str, intervals: int, staleness: int = -1, **more: Any
) -> DorylusJobSection:
    """Return a job on a data set, ``pipe`` where no staleness is stated."""
    layers = more.pop("layers", 2)
    section = section_of(
        "dorylus",
        machines=[f"g{k}" for k in range(data.parts)],
        intervals=intervals,
        parameter_servers=["p"],
        epochs=EPOCHS,
        model={"kind": kind, "hidden": HIDDEN, "layers": layers},
        mode="async" if staleness >= 0 else "pipe",
        staleness=max(staleness, 0),
        optimizer={"name": "sgd", "lr": 0.5},
        precision="float64",
        **more,
    )
    assert isinstance(section, DorylusJobSection)
    return section


def simulated(section: DorylusJobSection, seed: int) -> Schedule:
    """Return a schedule with drawn times."""
    job = section.build(CONTEXT)
    servers = section.ranks([])
    lambdas = section.lambdas_of(servers)
    slots = {"threads": 1, "lambdas": 2}
    cluster = Cluster(
        tuple(Machine(name, 20.0, 20.0, slots=slots) for name in servers)
        + tuple(Machine(name, 10.0, 10.0) for name in (*lambdas, "p"))
    )
    where = Placement(tuple(cluster.index(task.pinned or "") for task in job.tasks))
    rng = np.random.default_rng(seed)
    times = rng.uniform(0.5, 4, (len(job.tasks), job.iterations))
    times[[task.gate for task in job.tasks]] = 0
    volumes = rng.uniform(0, 8, (len(job.edges), job.iterations))
    volumes[list(job.control)] = 0
    return simulate(Problem(cluster, job, where), Realization(times, volumes), "oes")


def trained(section: DorylusJobSection, data: _Drawn, schedule: Schedule) -> Any:
    """Return the weights of the programs, and those of a replay of their reads."""
    form = Aggregation.of_model(section.settings(CONTEXT)["model"])
    graph = whole_of(data.structure, data.owner, data.parts, form)
    patches: Iterator[Any] = (
        mock.patch(f"{module}.{name}", found)
        for module, name, found in (
            ("emu_nodes.dorylus.graph_server", "open_parts", lambda _: (data, graph)),
            ("emu_nodes.dorylus.programs", "open_for", lambda _: data),
            ("emu_nodes.dorylus.task", "open_for", lambda _: data),
            ("emu.systems.dorylus.replay", "open_for", lambda _: data),
        )
    )
    with next(patches), next(patches), next(patches), next(patches):
        programs, _ = drive(schedule)
        followed, _ = replay_training(section, CONTEXT, schedule)
    results = {name: program.result() for name, program in programs.items()}
    return systems()["dorylus"].trained(schedule.problem.job, results), followed


def dense_training(data: _Drawn, section: DorylusJobSection) -> Any:
    """Return the weights that a dense matrix of the graph trains to."""
    import torch

    indptr, indices = data.structure.indptr, data.structure.indices
    matrix = torch.eye(data.vertices, dtype=torch.float64)
    for v in range(data.vertices):
        matrix[v, indices[indptr[v] : indptr[v + 1]].astype(int)] = 1.0
    degree = matrix.sum(1)
    normal = matrix / (degree[:, None] * degree[None, :]).sqrt()
    labels = torch.from_numpy(data.labels).long()
    flat = torch.from_numpy(initial_parameters(section.settings(CONTEXT), data))  # type: ignore[arg-type]
    for _ in range(EPOCHS):
        flat = flat.detach().requires_grad_()
        hidden, at = torch.from_numpy(data.gather(np.arange(data.vertices))), 0
        for layer in range(section.model.layers):
            width = CLASSES if layer + 1 == section.model.layers else HIDDEN
            size = hidden.shape[1] * width
            z = hidden @ flat[at : at + size].view(width, -1).T
            at += size
            weights = normal
            if section.attends:
                of, to = flat[at : at + width], flat[at + width : at + 2 * width]
                at += 2 * width
                scores = (z @ of)[None, :] + (z @ to)[:, None]
                scores = torch.where(scores > 0, scores, 0.2 * scores)
                scores = scores.masked_fill(matrix == 0, -torch.inf)
                weights = torch.softmax(scores, 1)
            hidden = weights @ z
            if layer + 1 < section.model.layers:
                hidden = torch.tanh(hidden)
        rows = torch.log_softmax(hidden, 1)[data.train]
        loss = -rows[range(data.train_count), labels[data.train]].mean()
        (gradient,) = torch.autograd.grad(loss, flat)
        flat = flat - 0.5 * gradient
    return flat.detach().numpy()


SHAPES = st.fixed_dictionaries(
    {
        "layers": st.integers(1, 3),
        "launch": st.sampled_from([{}, {"cold": "1 s"}]),
        "receivers": st.sampled_from(["server", "interval"]),
    }
)


@st.composite
def datasets(draw: st.DrawFn) -> tuple[_Drawn, int]:
    """Draw a graph in parts, with isolated vertices, and a number of intervals."""
    parts, intervals = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    least = [part for part in range(parts) for _ in range(intervals)]
    owner = draw(st.permutations(least + draw(st.lists(st.sampled_from(least)))))
    ends = st.integers(0, len(owner) - 1)
    return drawn(draw(st.lists(st.tuples(ends, ends), max_size=30)), owner), intervals


@settings(max_examples=25, deadline=None)
@given(
    found=datasets(),
    kind=st.sampled_from(["gcn", "gat"]),
    more=SHAPES,
    seed=st.integers(0, 99),
)
def test_drawn_graphs_equal_a_dense_matrix(
    found: tuple[_Drawn, int], kind: str, more: dict[str, Any], seed: int
) -> None:
    data, intervals = found
    section = section_on(data, kind, intervals, **more)
    weights, followed = trained(section, data, simulated(section, seed))
    expected = dense_training(data, section)
    assert np.abs(weights - expected).max() <= 1e-12
    assert np.abs(followed - expected).max() <= 1e-12


@settings(max_examples=25, deadline=None)
@given(
    found=datasets(),
    kind=st.sampled_from(["gcn", "gat"]),
    staleness=st.integers(0, 2),
    more=SHAPES,
    first_epoch=st.sampled_from(["sync", "free"]),
    seed=st.integers(0, 99),
)
def test_stale_reads_of_drawn_graphs_equal_one_process_with_them(
    found: tuple[_Drawn, int],
    kind: str,
    staleness: int,
    more: dict[str, Any],
    first_epoch: str,
    seed: int,
) -> None:
    data, intervals = found
    more = {**more, "first_epoch": first_epoch}
    section = section_on(data, kind, intervals, staleness, **more)
    weights, followed = trained(section, data, simulated(section, seed))
    assert np.abs(weights - followed).max() <= 1e-12


@pytest.mark.parametrize("kind", ["gcn", "gat"])
@pytest.mark.parametrize("staleness", [-1, 1])
@pytest.mark.parametrize(
    ("pairs", "lone"),
    [
        ([], range(4)),
        ([(0, 1), (1, 4), (4, 5), (5, 0)], [1, 3]),
        ([(2, 3), (6, 7), (3, 6)], [0, 2]),
        ([(0, 1), (2, 3), (4, 5), (6, 7)], range(4)),
    ],
    ids=["isolated", "half", "other half", "components"],
)
def test_intervals_without_ghosts(
    pairs: list[tuple[int, int]], lone: Any, staleness: int, kind: str
) -> None:
    """Vertices 0 to 3 and 4 to 7 on two servers, two to an interval."""
    data = drawn(pairs, [0, 0, 0, 0, 1, 1, 1, 1])
    cut = cut_intervals(data.structure, data.owner, 2, 2, "contiguous")
    counts = interval_counts(data.structure, cut, 2, 2, sources=True)
    for i in lone:
        assert not counts.ghosts[i].any()
        assert not counts.sources[i].any()
    section = section_on(data, kind, 2, staleness)
    weights, followed = trained(section, data, simulated(section, 1))
    assert np.abs(weights - followed).max() <= 1e-12
    if staleness < 0:
        assert np.abs(weights - dense_training(data, section)).max() <= 1e-12


def test_an_empty_interval_is_refused() -> None:
    data = drawn([(0, 1)], [0, 0, 1])
    with pytest.raises(ValueError, match="part 1 has 1 vertices, fewer than 2"):
        cut_intervals(data.structure, data.owner, 2, 2, "contiguous")
