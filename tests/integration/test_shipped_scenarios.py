"""The scenarios that come with emu, shortened, over sockets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.scenarios import SCENARIOS, Carried, attempts, carried_out

pytestmark = [pytest.mark.emulation, pytest.mark.slow, pytest.mark.timeout(400)]


def test_the_demo_learns(tmp_path: Path) -> None:
    runs: list[Carried] = []

    def once() -> float:
        changes = ("job.iterations=8", "expect=null")
        runs.append(carried_out(SCENARIOS / "demo.yaml", tmp_path, *changes))
        return abs(float(runs[-1].result["replay_error"]))

    assert attempts(once, 0.05)[-1] <= 0.05
    result = runs[-1].result
    assert result["processes"] == 23
    losses = [point["loss"] for point in result["training"]]
    assert len(losses) == 8
    assert losses[-1] < 0.8 * losses[0]


def test_etp_beats_distdgl_on_the_testbed_over_sockets(tmp_path: Path) -> None:
    """1 minute; the full scenario is 20 iterations long."""
    runs: dict[str, Carried] = {}

    def once() -> float:
        for policy in ("distdgl", "etp"):
            runs[policy] = carried_out(
                SCENARIOS / "testbed_products.yaml",
                tmp_path,
                "job.iterations=6",
                f"placement.policy={policy}",
                "expect=null",
            )
        return max(abs(float(run.result["replay_error"])) for run in runs.values())

    assert attempts(once, 0.03)[-1] <= 0.03
    distdgl, etp = runs["distdgl"].result, runs["etp"].result
    assert etp["replayed_makespan"] < distdgl["replayed_makespan"]
    assert etp["makespan"] < distdgl["makespan"]
