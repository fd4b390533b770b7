"""Programs on a virtual cluster and emu's own systems, on equal premises."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.studies import virtual_programs

pytest.importorskip("torch", reason="ranks need torch")


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_messages_without_latency_take_what_the_system_takes(tmp_path: Path) -> None:
    """Rows, gradients and weights of PipeGCN, all of which leave at once."""
    found = virtual_programs.run("boundary", 4, tmp_path, 6, "0 s", ("ring",))
    shorter = virtual_programs.boundary(4, 3, tmp_path, "0 s")
    longer = virtual_programs.boundary(4, 6, tmp_path, "0 s")

    step = (longer.makespan - shorter.makespan) / 3
    assert found.step == pytest.approx(step, rel=1e-5)
    assert found.job == pytest.approx(0, abs=1e-9)


def test_parts_of_a_difference_add_up() -> None:
    row = virtual_programs.Compared("p", 14.0, 10.0, 12.0, 9.5, 9.0, 1.0, 1.0, 0.0)
    latency, gloo, rest = row.parts
    assert (latency, gloo, rest) == pytest.approx((0.15, 0.3, -0.05))
    assert latency + gloo + rest == pytest.approx(row.virtual / row.system - 1)
