"""Systems of whole graphs in parts, over sockets: weights, and bytes as simulated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.systems.system import systems, trainer_of
from tests.integration.scenarios import carried_out, written
from tests.systems.test_exchange_section import FILE

JOB: Any = FILE["job"]

pytestmark = [pytest.mark.emulation, pytest.mark.untimed]


@pytest.mark.parametrize(
    ("system", "keys"),
    [
        ("neutron_star", {"dependencies": "cost"}),
        ("neutron_tp", {"model": {"kind": "gcn", "hidden": 4, "layers": 2}}),
    ],
)
def test_parts_weigh_and_learn_as_simulated(
    system: str, keys: dict[str, Any], tmp_path: Path
) -> None:
    machines = [{"name": f"m{n}", "nic": f"{10 ** (n + 1)} Mbit/s"} for n in range(3)]
    job = {**JOB, "system": system, "precision": "float64", **keys}
    emulation = {"compute": "real", "time_scale": 5, "deadline": "60 s"}
    document = {
        "name": "parts",
        "cluster": {"machines": machines},
        "job": job,
        "emulation": emulation,
    }
    run = carried_out(written(document, tmp_path), tmp_path)
    left = run.outcome.run
    job_of_run = left.schedule.problem.job
    settings = job_of_run.settings
    found = systems()[system].trained(job_of_run, left.results)
    expected, _ = trainer_of(settings)(settings, job_of_run.iterations)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    flows = tuple(left.schedule.flows().T)
    np.testing.assert_array_equal(
        run.outcome.predicted.flow_bytes[flows], left.schedule.flow_bytes[flows]
    )
