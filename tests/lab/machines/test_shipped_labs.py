"""The labs that we ship run to their end, and become scenarios."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.lab.fit_run import fit_run

pytestmark = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.timeout(600),  # programs start in dilated time
    pytest.mark.usefixtures("_a_lab_can_be_had"),
]
#: Packages that a lab needs, and iterations that warm up.
LABS = {
    "ddp": ("torch", 2),
    "http_ps": ("http", 1),
    "pyg": ("torch_geometric", 2),
    "mpi": ("mpi4py", 1),
    "ray": ("ray", 2),
}


@pytest.mark.parametrize("name", LABS)
def test_a_shipped_lab_becomes_a_scenario(name: str, tmp_path: Path) -> None:
    package, skip = LABS[name]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install '.[lab,ray]'")

    done = CliRunner().invoke(app, ["lab", name, "--runs", str(tmp_path)])

    assert done.exit_code == 0, done.output
    (run,) = tmp_path.iterdir()
    fit = fit_run(run, skip=skip, mark="step ")
    assert fit.iterations > 5
