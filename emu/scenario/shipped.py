"""Scenarios that ship with emu, found by name: ``emu run golden``."""

from __future__ import annotations

from pathlib import Path

from emu.errors import ScenarioError

_PACKAGE = Path(__file__).resolve().parents[1]
#: In an installed wheel they lie in the package, in a checkout beside it.
_HOMES = (_PACKAGE / "shipped_scenarios", _PACKAGE.parent / "scenarios")


def shipped_scenarios() -> dict[str, Path]:
    """Return name -> file of every scenario that ships with emu, sorted."""
    for home in _HOMES:
        if home.is_dir():
            return {path.stem: path for path in sorted(home.glob("*.yaml"))}
    return {}


def locate(source: str | Path) -> Path:
    """Return the file that is meant: a path, or the name of a shipped scenario.

    A file of that name in the working directory comes first.

    Raises
    ------
    ScenarioError
        When ``source`` is a bare name, and neither a file nor a scenario is called so.
    """
    path = Path(source)
    if path.exists() or path.suffix or path.parent != Path():
        return path
    known = shipped_scenarios()
    if path.name in known:
        return known[path.name]
    raise ScenarioError(
        "there is no such file; scenarios that ship with emu are called "
        f"{', '.join(known)}",
        file=str(source),
    )
