"""Parts of vectors that ranks send and receive are copies: memory is used again."""

from __future__ import annotations

from typing import Any

import numpy as np

from emu_nodes.all_reduce import Receive, Step
from emu_nodes.program import EdgeSpec, TaskSpec


def brief(inputs: tuple[EdgeSpec, ...] = ()) -> TaskSpec:
    """Return the first place of the first of two ranks that sum a vector in a ring."""
    place = {"of": "w0", "rank": 0, "ranks": 2, "step": 0, "algorithm": "ring"}
    return TaskSpec(
        name="w0.ring0",
        kind="all_reduce",
        iterations=1,
        inputs=inputs,
        outputs=(),
        settings=place,
        job_settings={},
    )


def test_what_is_on_its_way_stays_when_its_vector_changes() -> None:
    vector = np.arange(4.0)
    process: dict[str, Any] = {"vectors of w0": {0: vector}}
    part = Step(brief(), process).work(0, {})["part"]
    sent = part.tolist()
    vector[:] = 9.0

    assert len(sent) == 2
    assert part.tolist() == sent


def test_what_was_received_stays_when_the_next_frame_lands() -> None:
    body = np.arange(2.0)
    process: dict[str, Any] = {}
    source = EdgeSpec(3, "w1.ring0", "all_reduce", 0, 1)
    Receive(brief((source,)), process).work(0, {3: {"part": body}})
    body[:] = 9.0

    assert process["parts of w0"][0, 0].tolist() == [0.0, 1.0]
