"""Find files that ship with emu by name: scenarios, labs, documents."""

from __future__ import annotations

from pathlib import Path

from emu.errors import ScenarioError
from emu.fields.suggestion import nearest

_PACKAGE = Path(__file__).resolve().parents[1]
#: File of a lab in its folder, beside the programs that it runs.
LAB = "lab.yaml"


def _shipped(folder: str, pattern: str) -> list[Path]:
    """Return files that lie in the package of a wheel, or beside that of a checkout."""
    inside = _PACKAGE / f"shipped_{folder}"
    home = inside if inside.is_dir() else _PACKAGE.parent / folder
    return sorted(home.glob(pattern))


def shipped_scenarios() -> dict[str, Path]:
    """Return name -> file of every scenario that ships with emu, sorted."""
    return {path.stem: path for path in _shipped("scenarios", "*.yaml")}


def shipped_labs() -> dict[str, Path]:
    """Return name -> file of every lab that ships with emu, sorted."""
    return {path.parent.name: path for path in _shipped("scenarios", f"*/{LAB}")}


def shipped_documents() -> dict[str, Path]:
    """Return name -> file of every document that ships with emu, sorted."""
    return {path.stem: path for path in _shipped("docs", "*.md")}


def locate(source: str | Path) -> Path:
    """Return the file that is meant: a path, or the name of a shipped scenario or lab.

    A file of that name in the working directory comes first, as does a folder with a
    lab in it.

    Raises
    ------
    ScenarioError
        When ``source`` is a bare name, and neither a file nor a scenario is called so.
    """
    path = Path(source)
    if (path / LAB).is_file():
        return path / LAB
    if path.is_file() or path.suffix or path.parent != Path():
        return path
    known = shipped_scenarios() | shipped_labs()
    if path.name in known:
        return known[path.name]
    raise ScenarioError(
        "there is no such file; of the scenarios that ship with emu, "
        f"{nearest(path.name, known)}",
        file=str(source),
    )
