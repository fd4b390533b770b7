"""Public names of ``import emu``, and what importing it costs and sets."""

from __future__ import annotations

import ast
import gc
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import emu
from emu.scenario.document import collect_seldom
from tests.integration.scenarios import tiny_training

PUBLIC = [
    "Scenario",
    "Schedule",
    "__version__",
    "audit",
    "compare",
    "explain",
    "load",
    "load_run",
    "loads",
    "place",
    "run",
    "setup",
    "simulate",
]

#: Takes from 20 ms to 2 s to import, each; none is needed to say what emu can do.
HEAVY = {
    "aiohttp",
    "asyncio",
    "dgl",
    "matplotlib",
    "numpy",
    "pandas",
    "psutil",
    "pydantic",
    "rich",
    "ruamel",
    "highspy",
    "pooch",
    "requests",
    "scipy",
    "torch",
    "uvloop",
}
#: Of these, what a simulation of a custom job does without.
NOT_SIMULATED = HEAVY - {"numpy", "pydantic", "rich", "ruamel"}


def loaded_by(code: str) -> set[str]:
    """Return the packages that a fresh interpreter has imported after ``code``."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}


def calling(*arguments: str) -> str:
    """Return the code that calls the command line as a user does."""
    return (
        f"import sys; sys.argv = ['emu', *{arguments!r}]\n"
        "from emu.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
    )


def test_the_public_names_are_these() -> None:
    assert emu.__all__ == PUBLIC
    assert dir(emu) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there_and_explained(name: str) -> None:
    found = getattr(emu, name)

    assert found.__doc__


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'simulation_of'"):
        _ = emu.simulation_of


def test_the_package_is_typed() -> None:
    assert (Path(emu.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize(
    "code", ["import emu", calling("--help"), calling("--version")]
)
def test_what_emu_can_do_is_said_without_heavy_imports(code: str) -> None:
    assert loaded_by(code) & HEAVY == set()


@pytest.mark.parametrize("command", ["policies", "placements"])
def test_policies_are_explained_without_numpy_or_a_scenario(command: str) -> None:
    """Typer itself imports pydantic, for the values of options."""
    loaded = loaded_by(calling(command))

    assert loaded & HEAVY <= {"pydantic"}


def test_a_simulation_imports_no_sockets_charts_or_frameworks() -> None:
    assert loaded_by(calling("simulate", "golden")) & NOT_SIMULATED == set()


def test_a_training_job_is_placed_and_explained_without_torch(tmp_path: Path) -> None:
    job = tiny_training(2, partitioner="metis")
    (tmp_path / "tiny.json").write_text(json.dumps(job))

    missing = "import sys; sys.modules['torch'] = sys.modules['dgl'] = None\n"
    for command in ("place", "explain"):
        done = missing + calling(command, str(tmp_path / "tiny.json"))
        assert "emu" in loaded_by(done)


def test_the_threshold_is_raised_and_comes_back() -> None:
    before = gc.get_threshold()

    with collect_seldom():
        assert gc.get_threshold()[0] > before[0]
    with pytest.raises(ValueError, match="no number"), collect_seldom():
        int("no number")

    assert gc.get_threshold() == before


PROGRAM = """
import os
from typer.main import get_command
from emu.cli.app import app
get_command(app).get_command(None, "simulate")
import numpy
assert numpy.ones((600, 600)) @ numpy.ones((600, 600)) is not None
print(len(os.listdir("/proc/self/task")), os.environ.get("OPENBLAS_NUM_THREADS"))
"""


@pytest.mark.parametrize("stated", ["", "2"])
def test_numpy_computes_in_one_thread_unless_told(stated: str) -> None:
    name = "OPENBLAS_NUM_THREADS"
    around = {key: value for key, value in os.environ.items() if key != name}
    around |= {name: stated} if stated else {}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=around, check=True, capture_output=True
    )
    threads, kept = found.stdout.decode().split()
    assert kept == (stated or "None")
    if not stated:
        assert threads == "1"


def _imports_of(file: Path) -> set[tuple[str, str]]:
    """Return module and name of everything that a file takes from emu."""
    imports = set[tuple[str, str]]()
    for node in ast.walk(ast.parse(file.read_text())):
        module = getattr(node, "module", None) or ""
        if isinstance(node, ast.ImportFrom) and module.startswith("emu"):
            imports |= {(module, alias.name) for alias in node.names}
    return imports


def test_programs_of_shipped_scenarios_import_what_is_there() -> None:
    folder = Path(emu.__file__).parent.parent / "scenarios"
    imports = set[tuple[str, str]]()
    for file in folder.rglob("*.py"):
        imports |= _imports_of(file)
    assert ("emu.graph_data.dataset", "open_dataset") in imports

    missing = [
        (module, name)
        for module, name in sorted(imports)
        if not hasattr(import_module(module), name)
    ]
    assert missing == []
