"""Times, bytes, work and memory of P3 by hand, where no two machines are alike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import ScenarioError
from emu.problem import Task
from emu.problem.workloads import SampleCounts
from emu.scenario import prepare
from emu.scenario.scenario_file import loads
from emu.systems.device_memory import COLUMNS
from emu.systems.p3 import memory
from emu.systems.p3.builder import P3Builder
from emu.systems.p3.operations import _Phases, split_layer
from emu.systems.p3.volumes import SplitModel, p3_realization, split_model
from tests.systems.sections import _RATES, context_of, section_of
from tests.systems.test_p3_section import P3

FOUR = ("m0", "m1", "m2", "m3")
#: Of 8 features: six columns on the first machine of a group, two on the second.
SHARES = {"cache": 2, "columns": (3.0, 1.0)}
MODEL = {"kind": "gcn", "hidden": 5, "layers": 2}
SPLIT = SplitModel(feature_length=8, first_width=5, upper=31, pulled_width=5)
TIMES = {
    "sampler": 1.0,
    "model_forward": 2.0,
    "data_forward": 3.0,
    "data_backward": 4.0,
    "model_backward": 8.0,
}


def builder_of(batches: int = 2, **keys: Any) -> P3Builder:
    section = section_of("p3", iterations=batches, **{**SHARES, **keys})
    return P3Builder(section, context_of(FOUR))


def counts_of(sampler: int) -> list[SampleCounts]:
    """Return two mini-batches of a sampler: sizes grow with its number."""
    batches = []
    for number in range(2):
        more = 10 * sampler + number
        batch = SampleCounts(
            owned=(20 + more, 1),
            edges=300 + 3 * more,
            seeds=2,
            outputs=7 + more,
            first_edges=200 + more,
            frontier_owned=((2, 0), (6 + more, 1)),
            answered=((100 + 2 * more, 0), (200 + more, 0)),
        )
        batches.append(batch)
    return batches


COUNTS = [counts_of(sampler) for sampler in range(4)]


def test_phases_take_their_time_in_the_cycles_of_their_batches() -> None:
    """Phases of pipeline B are 0 to 3 cycles behind; layer 1 is split by columns."""
    builder = builder_of(pipeline="B")
    realization = p3_realization(builder, TIMES, COUNTS, SPLIT)
    names = [task.name for task in builder.tasks()]
    seconds = dict(zip(names, realization.times.tolist(), strict=True))

    assert seconds["s0"] == [1, 1, 0, 0, 0]
    assert seconds["Mf0"] == [3, 3, 0, 0, 0]
    assert seconds["Mf1"] == [1, 1, 0, 0, 0]
    assert seconds["Df3"] == [0, 3, 3, 0, 0]
    assert seconds["Db1"] == [0, 0, 4, 4, 0]
    assert seconds["Mb2"] == [0, 0, 0, 12, 12]
    assert seconds["Mb3"] == [0, 0, 0, 4, 4]


def test_flows_go_in_the_cycles_of_who_sends_them() -> None:
    """Each destination of 7, 8, ... has 5 numbers; ids and edges have 8 bytes."""
    builder = builder_of(pipeline="B")
    realization = p3_realization(builder, TIMES, COUNTS, SPLIT)
    names = builder.job({}).edge_names
    sizes = dict(zip(names, realization.volumes.tolist(), strict=True))

    assert sizes["s1->Mf0"] == [8 * (31 + 210), 8 * (32 + 211), 0, 0, 0]
    assert sizes["s1->Mf1"] == [8 * (31 + 330), 8 * (32 + 333), 0, 0, 0]
    assert sizes["Mf0->Df1"] == [4 * 5 * 17, 4 * 5 * 18, 0, 0, 0]
    assert sizes["Db3->Mb2"] == [0, 0, 4 * 5 * 37, 4 * 5 * 38, 0]
    assert sizes["Mf3->Df2"] == [4 * 5 * 27, 4 * 5 * 28, 0, 0, 0]


def test_a_sampler_gives_its_machine_what_it_derives_where_that_has_columns() -> None:
    def sizes(columns: tuple[float, ...]) -> dict[str, list[float]]:
        builder = builder_of(pipeline="none", push="derived", columns=columns)
        volumes = p3_realization(builder, TIMES, COUNTS, SPLIT).volumes
        names = builder.job({}).edge_names
        return dict(zip(names, volumes.tolist(), strict=True))

    own = [8 * (31 + 330), 8 * (32 + 333)]
    assert sizes((1.0, 0.0))["s1->Mf1"] == own
    # Of its peer, sampler 0, the structure of layer 1.
    both = [own[0] + 8 * (21 + 200), own[1] + 8 * (22 + 201)]
    assert sizes((1.0, 1.0))["s1->Mf1"] == both


@pytest.mark.parametrize(
    ("kind", "first_width", "upper", "pulled"),
    [
        # Bias and layer 2: 5 x 3 weights each, and 3 of bias.
        ("gcn", 5, 5 + 15 + 3, 4 * 7 * 5),
        ("sage", 10, 5 + 30 + 3, 4 * 7 * 5),
        ("gin", 5, 5 + 25 + 5 + 15 + 3 + 9 + 3, 4 * 7 * 5),
        # Two vectors of attention per layer; inputs are pulled, not sums.
        ("gat", 5, 10 + 5 + 15 + 6 + 3, 4 * 21 * 5),
    ],
)
def test_what_is_split_by_columns_and_what_is_pulled(
    kind: str, first_width: int, upper: int, pulled: int
) -> None:
    split = split_model({**MODEL, "kind": kind}, 8, 3, 4)
    assert (split.first_width, split.upper) == (first_width, upper)
    assert split.pulled_width == 5
    assert split.pull_bytes(COUNTS[0][0]) == pulled


def phases_of(builder: P3Builder, **keys: Any) -> _Phases:
    model = {**MODEL, **keys}
    return _Phases(builder, model, 8, 3, COUNTS, steps=(5, 31))


def work_of(phases: _Phases, kind: str, **place: int) -> list[dict[str, Any]]:
    amounts = phases.of_task(Task("t", kind, settings=place))
    return [{name: np.asarray(count).tolist() for name, count in work.items()}
            for work in amounts]  # fmt: skip


def test_a_phase_works_on_its_columns_of_all_batches_of_its_group() -> None:
    """Rows of 6 columns are made shorter, to 5, before they are added up; of 2 not."""
    phases = phases_of(builder_of())
    forward = work_of(phases, "model_forward", rank=2)
    assert forward[0] == {"launch": 1.0}
    assert forward[1] == {
        "aggregate": [220 * 5, 221 * 5],
        "multiply": [41 * 6 * 5, 42 * 6 * 5],
        "launch": 0.0,
    }
    assert forward[2]["multiply"] == [51 * 6 * 5, 52 * 6 * 5]
    # On the device it collects the rows as well, of both.
    assert forward[3] == {"collect": [4 * 6 * (41 + 51), 4 * 6 * (42 + 52)]}

    narrow = work_of(phases, "model_backward", rank=1)
    # Sums of features are there from the forward pass.
    assert narrow[1] == {
        "aggregate": [0, 0],
        "multiply": [7 * 2 * 5, 8 * 2 * 5],
        "launch": 0.0,
    }
    assert narrow[-1] == {"step": 5.0 * 2}
    assert len(forward) == len(narrow) == 4


def test_the_rest_of_a_batch_is_its_machines_own() -> None:
    """Layer 2 of rank 3 has 160 edges of 5 numbers; back it has two products."""
    phases = phases_of(builder_of())
    (rest, second) = work_of(phases, "data_forward", rank=3)
    assert rest == {"aggregate": 0.0, "multiply": 0.0, "launch": 1.0}
    assert second == {
        "aggregate": [160 * 3, 162 * 3],
        "multiply": [37 * 5 * 3, 38 * 5 * 3],
        "launch": 1.0,
    }
    *_, back, step = work_of(phases, "data_backward", rank=3)
    assert back["multiply"] == [2 * 37 * 5 * 3, 2 * 38 * 5 * 3]
    assert step == {"step": 31.0}


@pytest.mark.parametrize(
    ("keys", "drawn"),
    [
        ({}, [[330, 333]]),
        # Its peer's batches as well, which no machine needs that has no columns.
        ({"push": "derived"}, [[330, 333], [300, 303]]),
        ({"push": "derived", "columns": (1.0, 0.0)}, [[330, 333]]),
        ({"structure": "hashed"}, []),
    ],
)
def test_a_sampler_draws_its_batches_and_those_that_it_derives(
    keys: dict[str, Any], drawn: list[list[int]]
) -> None:
    phases = phases_of(builder_of(**keys))
    works = work_of(phases, "sampler", sampler=1, rank=1)
    assert [work["sample"] for work in works] == drawn


def test_owners_draw_the_edges_of_a_hop_of_all_samplers() -> None:
    phases = phases_of(builder_of(structure="hashed"))
    (work,) = work_of(phases, "graph_store_hop", store=0, hop=1)
    by_sampler = [[100, 102], [120, 122], [140, 142], [160, 162]]
    assert work["sample"] == np.sum(by_sampler, axis=0).tolist()
    (inner,) = work_of(phases, "graph_store_hop", store=0, hop=2)
    assert inner["sample"] == [4 * 200 + 60, 4 * 201 + 60]


def test_attention_weighs_every_source_behind_the_sum() -> None:
    """The layer has 21 inputs, 7 destinations with a loop each, and 200 edges."""
    linear, rest = split_layer("gat", (6, 5), counts_of(0)[:1])
    assert linear.forward == {"aggregate": 0.0, "multiply": [21 * 6 * 5], "launch": 1.0}
    assert rest.forward == {"aggregate": [207 * 5], "multiply": 0.0, "launch": 1.0}
    # Back, products of gradients of weights and rows; features need none of theirs.
    assert linear.backward(first=True)["multiply"] == [21 * 6 * 5]
    assert rest.backward(first=False)["aggregate"] == [207 * 5]


def test_a_machine_without_columns_works_on_none() -> None:
    phases = phases_of(builder_of(columns=(1.0, 0.0)))
    assert work_of(phases, "model_forward", rank=1) == []
    assert work_of(phases, "model_backward", rank=1) == []
    assert len(work_of(phases, "model_forward", rank=0)) == 4


def test_columns_that_come_over_pcie_are_collected_by_the_phase_as_well() -> None:
    rates = {**_RATES, "pcie": "80 ps"}
    phases = phases_of(builder_of(features="host", rates=rates))
    collected = work_of(phases, "model_forward", rank=1)[-1]
    assert collected == {"collect": [4 * 2 * (21 + 31), 4 * 2 * (22 + 32)]}


def test_columns_of_the_host_are_collected_by_a_store() -> None:
    phases = phases_of(builder_of(features="host"))
    assert "collect" not in work_of(phases, "model_forward", rank=0)[-1]
    (work,) = work_of(phases, "graph_store", rank=1)
    assert work == {"collect": [4 * 2 * (21 + 31), 4 * 2 * (22 + 32)]}


@pytest.mark.parametrize(
    ("keys", "batches", "versions"),
    [
        ({"pipeline": "none"}, 1, 0),
        ({"pipeline": "A"}, 3, 2),
        ({"pipeline": "B"}, 4, 3),
        ({"pipeline": "A", "features": "host"}, 3, 2),
    ],
)
def test_memory_of_a_device_by_hand(
    monkeypatch: pytest.MonkeyPatch,
    keys: dict[str, Any],
    batches: int,
    versions: int,
) -> None:
    """The second batch counts: its layers are 5 and 3 wide, with a gradient each."""
    dataset = SimpleNamespace(feature_length=8, classes=3, vertices=90)
    monkeypatch.setattr(memory, "open_for", lambda _: dataset)
    monkeypatch.setattr(memory, "count_job", lambda *_: COUNTS)
    settings = {
        "model": MODEL,
        "optimizer": {"name": "sgd"},
        "precision": "float32",
    }
    job: Any = SimpleNamespace(settings=settings)
    found = memory.count_memory(builder_of(**keys), job, SPLIT)

    def layers(more: int) -> int:
        return 8 * (300 + 3 * more) + 2 * 4 * ((7 + more) * 5 + 2 * 3)

    def first_layer(more: int, columns: int) -> int:
        return 4 * columns * (21 + more) + 8 * (200 + more) + 4 * 5 * (7 + more)

    for rank, columns, group in ((0, 6, (0, 1)), (1, 2, (0, 1)), (2, 6, (2, 3))):
        own = layers(10 * rank + 1)
        of_group = sum(first_layer(10 * peer + 1, columns) for peer in group)
        expected = {
            "weights": 2 * 4 * (5 * columns + 31) + versions * 31 * 4,
            "mini-batches": batches * (own + of_group),
        }
        if "features" not in keys:
            expected[COLUMNS] = 90 * columns * 4
        assert found[f"Mf{rank}"] == expected


def test_stated_columns_may_leave_machines_without() -> None:
    """Four machines cannot share 3 features evenly, but three may have one each."""
    stated = ["job.dataset.feature_length=3", "job.columns=[1, 1, 1, 0]"]
    prepare(loads(P3, stated))
    with pytest.raises(ScenarioError, match="4 machines cannot share 3 features"):
        prepare(loads(P3, stated[:1]))
    prepare(loads(P3, ["job.dataset.feature_length=4"]))
