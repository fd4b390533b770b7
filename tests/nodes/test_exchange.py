"""Collectives with bytes: who has what in the end, and what is noticed where not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import NodeMisbehaved
from emu.problem import Cluster, Job, Machine, Realization
from emu.problem.workloads.collectives import ALGORITHMS, Send, list_steps
from emu.systems.custom.section import CustomJobSection
from emu.systems.job_section import BuildContext
from emu_nodes import timed
from emu_nodes.exchange import Step, _sends_by_edge
from emu_nodes.program import EdgeSpec
from tests.nodes.one_process import build, drive

PAIRS = [(kind, how) for kind, some in ALGORITHMS.items() for how in some]


def job_with(
    kind: str, how: str, n: int, *, scale: float = 1.0, **keys: Any
) -> tuple[Job, Realization]:
    """Return a job of three iterations with one collective, and its volumes."""
    names = [f"w{rank}" for rank in range(n)]
    one = {"among": names, "algorithm": how, "volume": "4096 B", **keys}
    section = CustomJobSection.model_validate(
        {
            "system": "custom",
            "iterations": 3,
            "tasks": [{"name": name, "time": "1 s"} for name in names],
            "collectives": [{kind: one}],
        }
    )
    context = BuildContext(("m",), None, seed=7, byte_scale=scale)
    job, cluster = section.build(context), Cluster((Machine("m", 1.0, 1.0),))
    return job, section.realize(job, context, cluster, {})


def ranks_of(how: str, n: int) -> int:
    return 1 << n.bit_length() - 1 if how == "halving_doubling" else n


SIZE = st.floats(0, 5000).map("{!r} B".format)
SIZES = st.one_of(SIZE, st.lists(SIZE, min_size=3, max_size=3))


@pytest.mark.dear
@pytest.mark.parametrize(("kind", "how"), PAIRS)
@given(
    n=st.integers(2, 9),
    volume=SIZES,
    scale=st.floats(0.01, 4),
    segments=st.integers(1, 3),
    lag=st.integers(1, 2),
)
def test_everybody_has_what_it_should_and_sends_what_is_stated(
    kind: str, how: str, n: int, volume: Any, scale: float, segments: int, lag: int
) -> None:
    """Steps check their outcome themselves; the tests below try that they do."""
    keys: dict[str, Any] = {"volume": volume, "segments": segments, "lag": lag}
    job, realization = job_with(kind, how, ranks_of(how, n), scale=scale, **keys)
    sent = drive(job).volumes

    np.testing.assert_array_equal(sent, np.rint(realization.volumes * scale))


@pytest.mark.parametrize(("kind", "how"), PAIRS)
def test_one_wrong_byte_of_any_send_is_noticed(
    kind: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, realization = job_with(kind, how, 4)
    payload, wrong = Step.payload, set[int]()

    def disturbed(self: Step, output: Any, iteration: int, made: Any) -> Any:
        content = payload(self, output, iteration, made)
        if iteration != 1 or output.edge not in wrong:
            return content
        body = content["bytes"].copy()
        body[-1] += 1
        return {"bytes": body}

    monkeypatch.setattr(Step, "payload", disturbed)
    moving = np.flatnonzero(realization.volumes[:, 1])
    sends, segments = sum(map(len, list_steps(kind, how, 4))), 1 + (kind == "allreduce")
    assert len(moving) == sends * segments
    for edge in moving.tolist():
        wrong = {edge}
        with pytest.raises(NodeMisbehaved, match=r"chunk \d+ after iteration 1"):
            drive(job)


def test_what_is_brought_is_of_its_rank_chunk_and_iteration_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And has all its bytes: 0.29 of 100 real ones each are 29, not 28.99."""
    job, _ = job_with("allreduce", "ring", 3, scale=100.0, volume="87 B")
    brought, found = Step._brought, dict[tuple[int, int, int], bytes]()
    sizes = set[int]()

    def noted(self: Step, rank: int, chunk: int, iteration: int) -> Any:
        content = brought(self, rank, chunk, iteration)
        found[rank, chunk, iteration] = content.tobytes()
        sizes.add(self._real_bytes(0.29))
        return content

    monkeypatch.setattr(Step, "_brought", noted)
    drive(job)

    assert len({*found.values()}) == len(found) == 3 * 3 * 3
    assert sizes == {29}


@pytest.mark.parametrize("kind", ["allreduce", "reduce_scatter"])
def test_a_share_added_twice_or_left_out_is_noticed(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_in = Step._take_in

    def twice(self: Step, *what: Any) -> None:
        take_in(self, *what)
        if self._rank == 1 and self._step == 1:
            take_in(self, *what)

    def never(self: Step, *what: Any) -> None:
        if self._rank != 1 or self._step != 1:
            take_in(self, *what)

    for fault in (twice, never):
        monkeypatch.setattr(Step, "_take_in", fault)
        with pytest.raises(NodeMisbehaved, match="has a wrong chunk"):
            drive(job_with(kind, "ring", 4)[0])


@pytest.mark.parametrize("how", ALGORITHMS["broadcast"])
def test_a_chunk_that_never_came_is_noticed(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last rank passes nothing on: no other would miss it."""
    take_in = Step._take_in

    def never(self: Step, *received: Any) -> None:
        if self._rank != 3:
            take_in(self, *received)

    monkeypatch.setattr(Step, "_take_in", never)
    with pytest.raises(NodeMisbehaved, match=r"rank 3 .* has a wrong chunk 0"):
        drive(job_with("broadcast", how, 4)[0])


def test_a_pool_has_room_for_what_any_iteration_sends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Windows of it may begin anywhere, and rows may be longer than chunks."""
    for volume in (["10 B", "90000 B", "20 B"], ["80000 B", "10 B", "20 B"]):
        monkeypatch.setattr(timed, "_pools", {})
        job, _ = job_with("broadcast", "direct", 2, volume=volume)
        built = build(job).programs.values()
        (sender,) = (
            step
            for step in built
            if isinstance(step, Step) and step._sends and step._takes == {}
        )
        longest = max(map(max, sender._rows.values()))
        assert len(sender._pool) == timed.POOL + longest


def test_nothing_is_kept_of_an_iteration_that_is_over() -> None:
    run = drive(job_with("allgather", "ring", 3)[0])

    steps = [program for program in run.programs.values() if isinstance(program, Step)]
    assert steps
    assert all(step._chunks == {} for step in steps)


def test_of_several_sends_between_two_ranks_edges_have_the_order() -> None:
    """However the edges are listed; those from others than ranks have none."""
    edges = [
        EdgeSpec(number, peer, "worker", 0, 3)
        for number, peer in ((8, "b"), (5, "a"), (2, "b"), (6, "stranger"))
    ]
    first, second, other = (Send(0, 1, chunk, chunk + 1) for chunk in range(3))
    found = _sends_by_edge(
        edges, {"a": 2, "b": 1}, [(1, first), (2, other), (1, second)]
    )

    assert found == {2: first, 5: other, 8: second}


def test_what_is_too_short_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = Step.payload

    def short(*what: Any) -> Any:
        return {"bytes": payload(*what)["bytes"][:5]}

    monkeypatch.setattr(Step, "payload", short)
    with pytest.raises(NodeMisbehaved, match="sent 5 bytes, not the 1024 of its"):
        drive(job_with("reduce_scatter", "direct", 4)[0])


@pytest.mark.parametrize(("length", "is_copied"), [(4, False), (6, True)])
def test_a_chunk_that_fills_its_row_is_sent_without_a_copy(
    length: int, *, is_copied: bool
) -> None:
    """A longer row has bytes of the pool behind the chunk."""
    chunk = np.array([1, 2, 3, 4], np.uint8)
    step: Any = SimpleNamespace(
        _sends={5: Send(0, 1, 2, 3)},
        _rows={5: [0, length]},
        _pool=np.array([7, 8, 9], np.uint8),
    )
    output: Any = SimpleNamespace(edge=5)
    body = Step.payload(step, output, 1, {2: chunk})["bytes"]

    assert body.tolist() == [1, 2, 3, 4, 7, 8][:length]
    assert np.shares_memory(body, chunk) is not is_copied
