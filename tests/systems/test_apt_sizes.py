"""Bytes and operations of APT's shares, where no two counts are equal."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.problem import Task
from emu.problem.workloads import SampleCounts
from emu.problem.workloads.all_reduce import NamedEdge
from emu.systems.apt import choice
from emu.systems.apt.choice import estimate, share_bytes
from emu.systems.apt.shares import ShareCounts, split
from emu.systems.apt.volumes import CountedJob
from emu.systems.device_memory import ROWS
from emu.systems.p3.operations import _Phases, split_layer
from emu.systems.p3.volumes import SplitModel

#: Of two samplers on two machines, in one mini-batch; rows by machine and owner.
SHARES = ShareCounts(
    destinations=np.array([[[3.0], [4.0]], [[5.0], [6.0]]]),
    edges=np.array([[[10.0], [20.0]], [[30.0], [40.0]]]),
    inputs=np.array([[[7.0], [8.0]], [[9.0], [11.0]]]),
    own=np.array([[[1.0], [2.0]], [[3.0], [4.0]]]),
    rows=np.array([[[100.0], [200.0]], [[300.0], [400.0]]]),
)
SAMPLES = (
    (
        SampleCounts(
            (1, 2),
            edges=50,
            seeds=2,
            outputs=9,
            first_edges=30,
            frontier_owned=((2, 0), (4, 5)),
            answered=((12, 8), (20, 10)),
        ),
    ),
    (
        SampleCounts(
            (3, 4),
            edges=80,
            seeds=3,
            outputs=11,
            first_edges=45,
            frontier_owned=((1, 2), (5, 6)),
            answered=((20, 15), (25, 20)),
        ),
    ),
)


def counted(
    strategy: str, kind: str = "sage", tasks: Sequence[Task] = ()
) -> CountedJob:
    settings = {
        "strategy": strategy,
        "precision": "float32",
        "samplers_per_worker": 1,
        "model": {"kind": kind, "hidden": 4, "layers": 2},
        "optimizer": {"name": "adam"},
    }
    dataset = SimpleNamespace(
        feature_length=5,
        classes=3,
        owner=np.array([0, 1, 1, 0, 1]),
        parts=2,
        vertices=5,
    )
    job = SimpleNamespace(settings=settings, iterations=1, tasks=tasks)
    return CountedJob(
        job=job,  # type: ignore[arg-type]
        dataset=dataset,  # type: ignore[arg-type]
        shares=SHARES,
        samples=SAMPLES,
        split=SplitModel(
            feature_length=5, first_width=8, upper=31, pulled_width=4, itemsize=4
        ),
        columns=(3, 2),
    )


@pytest.mark.parametrize(
    ("carries", "place", "size"),
    [
        ("share", (0, 1, 0), 8 * 4 + 8 * 20),
        # Where the batch is, what stands behind the first layer comes with it.
        ("share", (0, 0, 0), 8 * 3 + 8 * 10 + 8 * 9 + 8 * 20 + 4 * 7),
        ("share", (1, 1, 1), 8 * 6 + 8 * 40 + 8 * 11 + 8 * 35 + 4 * 11),
        ("ids", (0, 1), 8 * 200),
        ("ids", (1, 0), 8 * 300),
        # Of three columns on the first machine, two on the second.
        ("rows", (0, 1), 4 * 3 * 200),
        ("rows", (1, 0), 4 * 2 * 300),
        # Sums of the home's sampler that another machine adds up.
        ("sums", (0, 1), 4 * 4 * 4),
        ("sums", (1, 0), 4 * 4 * 5),
        # Of 31 and 8 * 5 numbers the first of two ranks' chunks is longer.
        ("upper", (0, 1, 2), 4 * 16),
        ("upper", (1, 2, 2), 4 * 15),
        ("first", (0, 1, 2), 4 * 20),
        ("", (), 0),
    ],
)
def test_bytes_are_of_what_an_edge_carries(
    carries: str, place: tuple[int, ...], size: float
) -> None:
    edge = NamedEdge("a", "b", carries=carries, place=place)

    assert counted("snp").volumes([edge]).tolist() == [[size]]


@pytest.mark.parametrize(
    ("strategy", "places"), [("gdp", 0), ("nfp", 0), ("snp", 3 + 4), ("dnp", 3 + 4)]
)
def test_a_machine_needs_places_of_its_sums_where_others_add_up(
    strategy: str, places: int
) -> None:
    """A machine also needs ids of 9 vertices and of 20 edges behind the first layer."""
    size = counted(strategy)._upper_bytes(0)

    assert size.tolist() == [8 * 9 + 8 * 20 + 4 * places]


def test_rows_of_a_machine_are_of_all_owners_and_its_columns() -> None:
    job = counted("gdp")

    assert job.row_bytes(0).tolist() == [4 * 3 * (100 + 200)]
    assert job.row_bytes(1).tolist() == [4 * 2 * (300 + 400)]
    assert [job.columns_on(rank) for rank in range(3)] == [3, 2, 3]
    assert list(job.samplers_of(1)) == [1]


def test_own_rows_are_multiplied_by_their_owner_alone() -> None:
    """Two of 3 and two of 5 destinations lie elsewhere; a row takes 12 products."""
    first, second = counted("snp")._shares_work(0)

    assert first.aggregate.tolist() == [10 * 3]
    assert first.multiply.tolist() == [(3 + 3 - 2) * 12]
    assert second.aggregate.tolist() == [30 * 3]
    assert second.multiply.tolist() == [(5 + 5 - 2) * 12]
    plain, _ = counted("snp", "gcn")._shares_work(0)
    assert plain.multiply.tolist() == [3 * 12]


@pytest.mark.parametrize(
    ("strategy", "drawn", "asked"),
    [("gdp", (50.0, 80.0), []), ("dnp", (20.0, 35.0), [[10 + 30], [20 + 40]])],
)
def test_edges_are_drawn_by_samplers_or_owners_of_destinations(
    strategy: str, drawn: tuple[float, ...], asked: list[Any]
) -> None:
    job = counted(strategy)
    for sampler, edges in enumerate(drawn):
        task = Task("s", "sampler", settings={"sampler": sampler})
        (work,) = job._work_of(task)
        assert list(work["sample"]) == [edges]
    found = []
    for rank in (0, 1):
        task = Task("f", "sampler_fetch", settings={"rank": rank})
        found += [work["sample"].tolist() for work in job._work_of(task)]
    assert found == asked


@pytest.mark.parametrize(
    ("strategy", "rows"), [("gdp", (2, 3)), ("snp", (2, 3)), ("nfp", (5, 5))]
)
def test_rows_on_a_device_are_those_of_its_owner_or_columns_of_all(
    strategy: str, rows: tuple[int, int]
) -> None:
    """Three columns on the first machine, two on the second; the host's take none."""
    tasks = [
        Task("g0", "graph_store", settings={"store": 0}, takes="gpu"),
        Task("g1", "graph_store", settings={"store": 1}, takes="gpu"),
        Task("g2", "graph_store", settings={"store": 0}, takes="cpu"),
    ]
    memory = counted(strategy, tasks=tasks).device_memory()
    first, second = rows
    assert memory == {"g0": {ROWS: 4.0 * 3 * first}, "g1": {ROWS: 4.0 * 2 * second}}


def test_a_machine_keeps_its_columns_and_all_upper_weights_and_its_batch() -> None:
    """Adam has four numbers for each parameter.

    Of a batch: rows that are fetched, structure and sums of all shares, and what the
    layers of the machine's own batch compute with its gradients, 4 and 3 numbers wide.
    """
    tasks = [
        Task(f"Mf{rank}", "model_forward", settings={"rank": rank}) for rank in (0, 1)
    ]
    memory = counted("snp", tasks=tasks).device_memory()

    shares = [8 * (10 + 30) + 16 * (3 + 5), 8 * (20 + 40) + 16 * (4 + 6)]
    fetched = [4 * 3 * (100 + 200), 4 * 2 * (300 + 400)]
    own = [8 * 50 + 8 * (9 * 4 + 2 * 3), 8 * 80 + 8 * (11 * 4 + 3 * 3)]
    for rank, columns in ((0, 3), (1, 2)):
        assert memory[f"Mf{rank}"] == {
            "weights": 4.0 * 4 * (8 * columns + 31),
            "a mini-batch": float(shares[rank] + fetched[rank] + own[rank]),
        }


@pytest.mark.parametrize("strategy", ["gdp", "snp"])
def test_phases_step_the_weights_that_they_have_and_begin_once(strategy: str) -> None:
    job = counted(strategy)
    for rank, columns in ((0, 3), (1, 2)):
        place = {"rank": rank}
        forward = list(job._work_of(Task("a", "model_forward", settings=place)))
        backward = list(job._work_of(Task("a", "model_backward", settings=place)))
        assert [work.get("launch") for work in forward] == [1.0, 0.0, 0.0]
        assert [work.get("launch") for work in backward] == [1.0, 0.0, 0.0, None]
        assert backward[-1] == {"step": 8.0 * columns}
        rest = list(job._work_of(Task("a", "data_backward", settings=place)))
        assert rest[-1] == {"step": 31.0}
        passes = list(job._work_of(Task("a", "data_forward", settings=place)))
        assert not any("step" in work for work in passes)
        # Back to the sum as well: its gradient is of owners of rows.
        for there, back in zip(passes, rest, strict=False):
            products = np.asarray(there["multiply"], float)
            assert np.asarray(back["multiply"]).tolist() == (2 * products).tolist()


@pytest.mark.parametrize(("layers", "width"), [(2, 8), (1, 3)])
def test_a_first_layer_that_is_the_last_is_as_wide_as_there_are_classes(
    layers: int, width: int
) -> None:
    model = {"kind": "gcn", "hidden": 8, "layers": layers}
    phases = _Phases(
        builder=None,  # type: ignore[arg-type]
        model=model,
        feature_length=5,
        classes=3,
        counts=SAMPLES,
        steps=(1, 2),
    )
    linear, _ = phases._split(2, SAMPLES[0])
    expected, _ = split_layer("gcn", (2, width), SAMPLES[0])

    assert linear.multiply.tolist() == expected.multiply.tolist() == [9 * 2 * width]
    assert linear.aggregate.tolist() == [30 * 2]


@pytest.mark.parametrize(
    ("strategy", "machine", "places", "sources", "ends", "own"),
    [
        # Of edges (source, end) with owners: 13 -> 10, 12 -> 12, 11 -> 12, 14 -> 10.
        ("snp", 0, [0, 2], [13, 12], [0, 1], [True, True]),
        ("snp", 1, [0, 1, 2], [11, 14], [2, 0], [False, True, False]),
        ("dnp", 0, [0, 2], [13, 12, 11, 14], [0, 1, 1, 0], [True, True]),
        ("dnp", 1, [1], [], [], [True]),
        ("nfp", 1, [0, 1, 2], [13, 12, 11, 14], [0, 2, 2, 0], [True] * 3),
    ],
)
def test_a_share_has_the_edges_and_destinations_of_its_machine(
    strategy: str,
    machine: int,
    places: list[int],
    sources: list[int],
    ends: list[int],
    own: list[bool],
) -> None:
    """Machine 0 owns 10, 12 and 13, machine 1 owns 11 and 14."""
    edges = (np.array([3, 2, 1, 4]), np.array([0, 2, 2, 0]))
    batch: Any = SimpleNamespace(
        edges=[edges], sizes=(5, 3, 1), vertices=np.array([10, 11, 12, 13, 14])
    )
    owner = np.zeros(15, np.int32)
    owner[[11, 14]] = 1
    found, share = split(batch, owner, strategy, machine)
    assert found.tolist() == places
    assert share.sources.tolist() == sources
    assert share.ends.tolist() == ends
    assert share.adds_own.tolist() == own
    assert share.destinations.tolist() == [[10, 11, 12][place] for place in places]


@pytest.mark.parametrize(
    ("strategy", "sizes"),
    [
        ("gdp", [[8 * (7 + 10), 8 * (8 + 20)], [8 * (9 + 30), 8 * (11 + 40)]]),
        ("nfp", [[8 * (7 + 10), 8 * (8 + 20)], [8 * (9 + 30), 8 * (11 + 40)]]),
        # An edge is its source, and the place of its end.
        ("snp", [[8 * (3 + 10), 8 * (4 + 20)], [8 * (5 + 30), 8 * (6 + 40)]]),
        # Owners of destinations draw the edges themselves.
        ("dnp", [[8 * 3, 8 * 4], [8 * 5, 8 * 6]]),
    ],
)
def test_structure_of_a_share_by_sampler_and_machine(
    strategy: str, sizes: list[list[int]]
) -> None:
    assert share_bytes(strategy, SHARES)[:, :, 0].tolist() == sizes


def test_an_estimate_has_the_most_of_each_term_of_any_machine() -> None:
    """Sampler 0 is of the first machine, of 1 s per byte, sampler 1 of the other, 3.

    Structure that goes both ways; rows of 10 bytes of others; sums of 2 bytes there
    and back.
    """
    structure = 3 * (8 * (4 + 20) + 8 * (5 + 30))
    rows = max(10 * 200, 3 * 10 * 300)
    sums = 2 * 3 * 2 * (4 + 5)
    assert estimate("snp", SHARES, 10, 2, [1, 3]) == structure + rows + sums
    unlike = max(5 * 10 * 200, 10 * 300)
    both = 5 * (8 * (4 + 20) + 8 * (5 + 30)) + 2 * 5 * 2 * (4 + 5)
    assert estimate("snp", SHARES, 10, 2, [5, 1]) == both + unlike


@pytest.mark.parametrize(
    ("length", "batches", "asked"),
    [
        (3, 9, {"snp", "dnp", "nfp"}),
        (2, 9, {"snp", "dnp"}),
        (4, 2, {"snp", "dnp", "nfp"}),
    ],
)
def test_a_dry_run_is_of_four_batches_and_of_strategies_that_can_be(
    monkeypatch: pytest.MonkeyPatch, length: int, batches: int, asked: set[str]
) -> None:
    """Fewer columns than machines would leave a machine without columns."""
    lengths = []
    strategies = set()

    def least(
        _dataset: object, _plan: object, strategy: str, count: int
    ) -> ShareCounts:
        strategies.add(strategy)
        lengths.append(count)
        return SHARES

    def counted(
        _dataset: object, _plan: object, names: list[str], count: int
    ) -> dict[str, ShareCounts]:
        lengths.append(count)
        return dict.fromkeys(names, SHARES)

    monkeypatch.setattr(choice, "count_least", least)
    monkeypatch.setattr(choice, "count_strategies", counted)
    dataset: Any = SimpleNamespace(feature_length=length, parts=3)
    plan: Any = None
    chosen = choice.choose(dataset, plan, batches, 10, 2, [1, 3])
    assert strategies == asked
    assert set(lengths) == {min(batches, 4)}
    assert chosen == "dnp"  # whose structure is the least
