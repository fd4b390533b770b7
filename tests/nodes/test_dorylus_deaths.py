"""Weights of Dorylus where lambdas die or answer too late: what is dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.systems.dorylus.deaths import LATE
from emu_nodes.dorylus import programs
from emu_nodes.dorylus.graph_server import GraphServer
from emu_nodes.program import Payload, TaskSpec
from tests import draws
from tests.nodes.test_dorylus_programs import ADAM, drive, replay, run

SHORT = (ADAM, "job.epochs=6")
DYING = "job.dying_lambdas={share: 20 %, attempts: 9}"


@pytest.mark.parametrize(
    ("change", "mode"),
    draws.rarely_but(
        2,
        [
            ("job.lambdas=1", "pipe"),
            ("job.lambdas=1", "no_pipe"),
            ("job.launch={cold: 30 ms, warm: 3 ms}", "no_pipe"),
            ("job.launch={cold: 30 ms, warm: 3 ms}", "pipe"),
            ("job.parameter_servers=[ps, g0]", "pipe"),
            ("job.parameter_servers=[ps, g0]", "no_pipe"),
            ("job.model={hidden: 6, layers: 3}", "no_pipe"),
            ("job.model={hidden: 6, layers: 3}", "pipe"),
            ("job.fuse=false", "pipe"),
            ("job.fuse=false", "no_pipe"),
            ("job.rematerialize=true", "no_pipe"),
            ("job.rematerialize=true", "pipe"),
        ],
        several=True,
    ),
)
def test_weights_are_those_without_deaths_to_the_bit(mode: str, change: str) -> None:
    _equal_weights(*SHORT, f"job.mode={mode}", change)


def test_weights_of_attention_are_too() -> None:
    gat = ("job.model={kind: gat, hidden: 3}", "job.times.edge_apply=15 ms")
    _equal_weights(*SHORT, "job.mode=pipe", "job.epochs=2", *gat)


def _equal_weights(*changes: str) -> None:
    *_, expected, _ = run(*changes)
    found, schedule, weights, payloads = run(*changes, DYING)
    np.testing.assert_array_equal(weights, expected, strict=True)
    job = found.problem.job
    assert any(task.kind == "late" for task in job.tasks)
    for (edge, n), payload in payloads.items():
        ends = (job.edges[edge].source, job.edges[edge].destination)
        one, other = (job.tasks[end].process_name for end in ends)
        if not job.control[edge] and one != other:
            sent = sum(array.nbytes for array in payload.values())
            assert sent == found.realization.volumes[edge, n], job.edge_names[edge]
    programs_of, _ = drive(schedule)
    late = [task for task in job.tasks if task.kind == "late"]
    for task in late:
        dropped = programs_of[task.name].result()["dropped"]
        assert dropped == task.settings["ends"].count(LATE) > 0


@settings(deadline=None, max_examples=4)
@given(
    share=st.floats(0.01, 0.3), late=st.floats(0, 1), seed=st.integers(0, 999),
    staleness=st.integers(0, 2),
)  # fmt: skip
def test_async_equals_one_process_with_its_reads(
    share: float, late: float, seed: int, staleness: int
) -> None:
    dying = f"job.dying_lambdas={{share: {share}, late: {late}, attempts: 20}}"
    changes = (*SHORT, f"seed={seed}", f"job.staleness={staleness}", dying)
    found, schedule, weights, _ = run(*changes)
    assert np.abs(weights - replay(found, schedule)[0]).max() <= 1e-12


def _all_summed(brief: TaskSpec, inputs: Mapping[int, Payload]) -> Any:
    """Sum what came, copies too."""
    came = [inputs[one.edge] for one in brief.inputs if one.edge in inputs]
    return sum(payload["gradient"] for payload in came if "gradient" in payload)


def test_gradients_that_are_not_dropped_change_the_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes = (*SHORT, "job.mode=pipe")
    *_, expected, _ = run(*changes)
    monkeypatch.setattr(programs, "sum_gradients", _all_summed)
    *_, same, _ = run(*changes, "job.dying_lambdas={share: 20 %, late: 0, attempts: 9}")
    *_, other, _ = run(*changes, DYING)
    np.testing.assert_array_equal(same, expected)  # who dies has sent none
    assert np.abs(other - expected).max() > 1e-3


def test_an_answer_of_an_earlier_lambda_is_dropped_by_its_number() -> None:
    server = GraphServer.__new__(GraphServer)
    server.asked, server._values = {}, {}
    chunk, step = (0, 3, 1), ("apply", 0)
    first, second = ({"h": np.full(1, float(n))} for n in (1, 2))
    server.asked[chunk] = 2
    assert not server.take(chunk, 1, step, first)
    assert server.take(chunk, 2, step, second)
    assert not server.take(chunk, 1, step, first)
    assert server.values(0, 3)["h"] == 2
    assert server.take((0, 4, 1), 1, step, first)
