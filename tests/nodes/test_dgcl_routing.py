"""Rows along plans, device by device: gathered bitwise, gradients summed in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from emu.errors import NodeMisbehaved
from emu.graph_data import WholeGraph
from emu.graph_data.raw_graph import build_structure
from emu.graph_data.whole_graph import Aggregation
from emu.systems.dgcl.planner import GatherPlan, Needs, peer_to_peer
from emu.systems.dgcl.spst import spst
from emu_nodes.dgcl.programs import Tables
from tests.graph_data.parts import whole_of
from tests.nodes.test_dgcl_job import line

DEVICES = 4


def random_graph(seed: int) -> WholeGraph:
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, 24, (2, 60)).astype(np.int32)
    structure = build_structure(*ends, vertices=24, origin="test")
    owner = rng.permutation(np.arange(24) % DEVICES).astype(np.int32)
    return whole_of(structure, owner, DEVICES, Aggregation("mean", loops=True))


def plan_of(whole: WholeGraph, *, planned: bool) -> GatherPlan:
    parts = [whole.part(number) for number in range(DEVICES)]
    needs = Needs.of_parts([p.remote for p in parts], [p.owners for p in parts])
    if not planned:
        return peer_to_peer(needs, DEVICES)
    return spst(needs, line(DEVICES), seed=1)


def carry_out(
    whole: WholeGraph,
    plan: GatherPlan,
    values: list[NDArray[Any]],
    *,
    add: bool,
    arrival: int = 1,
) -> list[NDArray[Any]]:
    """Return the rows of all devices; parts arrive in ascending order, or not."""
    tables = [Tables(n, whole.part(n), plan) for n in range(DEVICES)]
    rows = [one.begin(own) for one, own in zip(tables, values, strict=True)]
    for stage in range(plan.stages):
        parts: list[dict[int, Any]] = [{} for _ in range(DEVICES)]
        for at, sender, receiver, _ in [*plan][::arrival]:
            if at == stage:
                sent = tables[sender].sent[stage, receiver]
                parts[receiver][sender] = rows[sender][sent]
        for one, own, found in zip(tables, rows, parts, strict=True):
            one.take_in(own, stage, found, add=add)
    return rows


@given(st.integers(0, 500), st.booleans())
def test_gathered_rows_are_those_of_the_graph(seed: int, planned: bool) -> None:  # noqa: FBT001
    whole = random_graph(seed)
    everything = np.random.default_rng(seed).standard_normal((24, 3))
    own = [everything[whole.part(number).local] for number in range(DEVICES)]

    plan = plan_of(whole, planned=planned)
    found = carry_out(whole, plan, own, add=False)

    for number, rows in enumerate(found):
        vertices = whole.part(number).vertices
        assert (rows[: len(vertices)] == everything[vertices]).all()


@given(st.integers(0, 500), st.booleans(), st.booleans())
def test_gradients_add_up_to_those_of_all_readers(
    seed: int,
    planned: bool,  # noqa: FBT001
    atomic: bool,  # noqa: FBT001
) -> None:
    whole = random_graph(seed)
    rng = np.random.default_rng(seed)
    parts = [whole.part(number) for number in range(DEVICES)]
    shares = [rng.integers(-9, 9, (len(p.vertices), 2)) * 1.0 for p in parts]
    expected = np.zeros((24, 2))
    for part, share in zip(parts, shares, strict=True):
        np.add.at(expected, part.vertices, share)

    plan = plan_of(whole, planned=planned).reverse(atomic=atomic)
    found = carry_out(whole, plan, shares, add=True)

    for part, rows in zip(parts, found, strict=True):
        assert (rows[: len(part.local)] == expected[part.local]).all()


@pytest.mark.parametrize("planned", [True, False])
def test_sums_do_not_depend_on_who_was_first(planned: bool) -> None:  # noqa: FBT001
    whole = random_graph(3)
    rng = np.random.default_rng(0)
    shares = [
        rng.standard_normal((len(whole.part(n).vertices), 4)) for n in range(DEVICES)
    ]
    plan = plan_of(whole, planned=planned).reverse(atomic=True)

    first, second = (
        carry_out(whole, plan, shares, add=True, arrival=order) for order in (1, -1)
    )

    for one, other in zip(first, second, strict=True):
        assert (one == other).all()


def test_parts_are_taken_in_by_ascending_sender() -> None:
    whole = random_graph(3)
    transfers = [*plan_of(whole, planned=False)]

    for order in (1, -1):
        tables = Tables(0, whole.part(0), transfers[::order])

        assert [sender for sender, _ in tables.received[0]] == [1, 2, 3]


def test_missing_and_misshapen_rows_name_device_and_stage() -> None:
    whole = random_graph(3)
    plan = plan_of(whole, planned=False)
    part = whole.part(0)
    tables = Tables(0, part, plan)
    rows = tables.begin(np.zeros((len(part.local), 2)))

    with pytest.raises(NodeMisbehaved, match="device 1 sent nothing in stage 0"):
        tables.take_in(rows, 0, {}, add=False)
    with pytest.raises(NodeMisbehaved, match=r"device 1 sent rows of shape \(1, 9\)"):
        tables.take_in(rows, 0, {1: np.zeros((1, 9))}, add=False)
