"""Models of one's own over sockets, real and padded, in both systems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.runs.audit_inputs import read_to_audit
from emu.systems.system import systems
from emu.training import evaluate, reference_training
from tests.integration.scenarios import SCENARIOS, carried_out, tiny_training, written
from tests.training.programs import SAGE, TORCH

pytestmark = [pytest.mark.emulation, pytest.mark.untimed, pytest.mark.timeout(300)]

ITERATIONS = 4


def document(system: str, folder: Path, program: str) -> dict[str, Any]:
    (folder / "net.py").write_text(program)
    model = {"program": "net.py:Net", "args": {"hid_size": 8, "p": 0.5}}
    found = tiny_training(ITERATIONS, model=model, precision="float64")
    del found["job"]["times"]["worker"]
    if system == "data_parallel":
        kept = ("graph_store", "sampler")
        times = {kind: found["job"]["times"][kind] for kind in kept}
        found["job"] |= {"system": system, "times": times}
        del found["job"]["workers"], found["job"]["samplers_per_worker"]
    return found


@pytest.mark.parametrize(
    ("system", "compute", "program"),
    [
        ("dgtp", "real", SAGE),
        ("data_parallel", "padded", TORCH),
    ],
)
def test_weights_equal_one_process(
    system: str, compute: str, program: str, tmp_path: Path
) -> None:
    if program is SAGE:
        pytest.importorskip("dgl")
    file = written(document(system, tmp_path, program), tmp_path)
    run = carried_out(file, tmp_path, f"emulation.compute={compute}")
    job = run.outcome.run.schedule.problem.job
    found = systems()[job.settings["system"]].trained(job, run.outcome.run.results)
    expected, losses = reference_training(job.settings, ITERATIONS)

    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    curve = [point["loss"] for point in run.result["training"]]
    np.testing.assert_allclose(curve, losses, rtol=1e-12)
    assert run.result["accuracy"] == evaluate(job.settings, expected)
    assert [one["program"] for one in run.result["models"]] == ["net.py:Net"]


def test_an_audit_trains_again_without_the_file(tmp_path: Path) -> None:
    file = written(document("dgtp", tmp_path, TORCH), tmp_path)
    run = carried_out(file, tmp_path)
    (tmp_path / "net.py").write_text("raise SystemExit")
    subject = read_to_audit(run.path)
    report = subject.audit(subject.tolerance, 1e-6, training=True)

    assert report.checked["training"] == ITERATIONS + 1  # and the weights
    assert not [one for one in report.violations if one.constraint == "training"]


def test_the_shipped_example_learns(tmp_path: Path) -> None:
    changes = ("job.iterations=10", "emulation.time_scale=1")
    run = carried_out(SCENARIOS / "own_model.yaml", tmp_path, *changes)
    losses = [point["loss"] for point in run.result["training"]]

    assert losses[-1] < 0.9 * losses[0]
    assert run.result["models"][0]["parameters"] == 2 * 100 * 32 + 32 + 64 * 47 + 47
