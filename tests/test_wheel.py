"""The wheel has what an installed emu needs, and a page that works by itself."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with what the wheel holds."""
    pytest.importorskip("scikit_build_core", reason="builds the wheel: extra dev")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    # What was compiled for the last one is kept: 20 s of CPU where nothing changed.
    kept = ROOT / f".pytest_cache/wheel-{sys.implementation.cache_tag}"
    kept.mkdir(parents=True, exist_ok=True)
    build += ["--quiet", f"--config-settings=build-dir={kept / 'build'}"]
    build += ["--config-settings=cmake.define.PLAIN=ON"]  # it is imported, no more
    build += ["--wheel-dir", str(folder), "."]
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two workers may want it
        subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with ZipFile(wheel) as file:
        file.extractall(folder / "installed")
    return folder / "installed"


def _emu(installed: Path, folder: Path, *arguments: str) -> str:
    """Run the installed emu; its folder comes before that of these sources."""
    return subprocess.run(
        [sys.executable, "-m", "emu", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(installed)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_labs_come_by_name_from_an_installed_wheel(
    installed: Path, tmp_path: Path
) -> None:
    _emu(installed, tmp_path, "init", "distdgl")
    text = (tmp_path / "distdgl/lab.yaml").read_text()

    assert text.count("{folder}/train.py") == 2
    assert (tmp_path / "distdgl/train.py").is_file()
    said = _emu(installed, tmp_path, "validate", "distdgl", "distdgl/lab.yaml")
    assert said.count(": good") == 2


def test_documents_come_with_the_wheel(installed: Path, tmp_path: Path) -> None:
    docs = ROOT / "docs"
    paths = [*docs.glob("*.md"), *docs.glob("contributing/*.md")]
    names = sorted(path.stem for path in paths)
    told = _emu(installed, tmp_path, "docs")

    assert [line.split()[0] for line in told.splitlines()] == names
    text = _emu(installed, tmp_path, "docs", "scenarios").strip()
    assert text == (ROOT / "docs" / "scenarios.md").read_text().strip()


def test_the_package_page_names_its_authors_and_links_nothing_relative(
    installed: Path,
) -> None:
    (path,) = installed.glob("*.dist-info/METADATA")
    page = Parser().parsestr(path.read_text(encoding="utf-8"))

    assert page["Author"] == "The emu authors"
    assert page["Keywords"]
    assert "Typing :: Typed" in page.get_all("Classifier", [])
    links = re.findall(r"\]\(([^)]*)\)", str(page.get_payload()))
    assert [link for link in links if not link.startswith("http")] == []


def test_files_that_the_readme_names_are_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"`([A-Za-z_/]+\.(?:md|cff|py|yaml))`", text)

    assert "docs/commands.md" in named
    assert [n for n in named if "/" in n and not (ROOT / n).exists()] == []


@pytest.mark.nightly
@pytest.mark.netns
@pytest.mark.untimed  # beside those that have built the wheel
def test_a_lab_runs_from_an_installed_wheel(installed: Path, tmp_path: Path) -> None:
    _emu(installed, tmp_path, "init", "all_reduce")
    short = "lab.programs[0].run='{python} {folder}/train.py --help'"
    _emu(installed, tmp_path, "lab", "all_reduce/lab.yaml", "--set", short)

    (log,) = tmp_path.glob("runs/all_reduce-lab-*/trainer-m0.log")
    assert "--megabytes" in log.read_text(encoding="utf-8")
