"""Edits of a run directory, drawn at random: each makes one file say something else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Trail = tuple[Any, ...]

#: Files and how often each is drawn; result.json has the most numbers.
FILES = {
    "result.json": 6, "manifest.json": 2, "problem.json": 3, "scenario.txt": 1,
    "simulated.json": 1, "processes.json": 1, "realization.npz": 1, "reports.npz": 2,
    "rates.npz": 1, "frames.npz": 1, "training.csv": 1, "weights.npz": 1,
}  # fmt: skip
FACTORS = (0.97, 1.0001, 1.5, 0.0, -1.0)


def draw(rng: np.random.Generator, run: Path) -> str:
    """Edit one value of a run directory; return what was edited."""
    there = [name for name in FILES if (run / name).exists()]
    weights = np.array([FILES[name] for name in there], float)
    name = str(rng.choice(there, p=weights / weights.sum()))
    kinds: dict[str, Callable[[np.random.Generator, Path], str]]
    kinds = {".json": _json, ".npz": _npz, ".csv": _line, ".txt": _line}
    return f"{name}: {kinds[(run / name).suffix](rng, run / name)}"


def forge(run: Path) -> None:
    """Write the digests of the edited records into result.json."""
    path = run / "result.json"
    content = json.loads(path.read_text())
    content["records"] = RunDirectory(run).digests()
    path.write_text(json.dumps(content))


def leaves(value: Any, trail: Trail = ()) -> Iterator[Trail]:
    """Yield where every value that holds no others is."""
    if not isinstance(value, dict | list):
        yield trail
        return
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield from leaves(inner, (*trail, key))


def _json(rng: np.random.Generator, path: Path) -> str:
    content = json.loads(path.read_text())
    first = str(rng.choice([*content]))  # so that long lists are not all that is drawn
    found = list(leaves(content[first], (first,)))
    trail = found[rng.integers(len(found))] if found else (first,)
    inner = content
    for step in trail[:-1]:
        inner = inner[step]
    before = inner[trail[-1]]
    if rng.random() < 0.1 and isinstance(inner, dict):
        del inner[trail[-1]]
        after: Any = "nothing"
    else:
        after = inner[trail[-1]] = _other(rng, before)
    path.write_text(json.dumps(content))
    return f"{trail} is {after!r}, was {before!r}"


def _other(rng: np.random.Generator, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + int(rng.choice([-1, 1, 7]))
    if isinstance(value, float):
        return changed(rng, value)
    return f"{value}x" if isinstance(value, str) else 1


def changed(rng: np.random.Generator, value: float) -> float:
    """Return another number than ``value``, near it or not."""
    factor = float(rng.choice(FACTORS))
    return value * factor if value * factor != value else value + 0.01


def _npz(rng: np.random.Generator, path: Path) -> str:
    with np.load(path) as arrays:
        content = {name: arrays[name].copy() for name in arrays}
    filled = [name for name, array in content.items() if array.size]
    name = str(rng.choice(filled))
    array = content[name]
    column = str(rng.choice(array.dtype.names)) if array.dtype.names else ""
    flat = (array[column] if column else array).reshape(-1)
    if flat.dtype.kind in "fiu":
        numbers = np.flatnonzero(np.isfinite(flat))
        at = int(rng.choice(numbers)) if numbers.size else 0
        before = flat[at]
        is_float = flat.dtype.kind == "f"
        after = changed(rng, float(before)) if is_float else int(before) + 1
        flat[at] = 1.0 if not numbers.size else after
        if flat[at] == before:  # float32
            flat[at] = before + 1
    else:
        at, before = 0, flat[0]
        flat[0] = "x"
    if column:
        array[column] = flat.reshape(array.shape)
    else:
        content[name] = flat.reshape(array.shape)
    np.savez(path, **content)
    return f"{name}.{column}[{at}] is {flat[at]!r}, was {before!r}"


def _line(rng: np.random.Generator, path: Path) -> str:
    """Change a digit of a text file, or take a line away."""
    text = path.read_text()
    digits = [at for at, letter in enumerate(text) if letter.isdigit()]
    if not digits:
        path.write_text(text + "x\n")
        return "a line more"
    at = digits[rng.integers(len(digits))]
    other = str((int(text[at]) + int(rng.integers(1, 10))) % 10)
    path.write_text(text[:at] + other + text[at + 1 :])
    return f"character {at} is {other}, was {text[at]}"
