"""Every value of every JSON file of a run, changed: an answer or one error of ours."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from emu.errors import DataError, EmulatorError
from emu.report.trace import write_trace
from emu.runs.recorded_run import load_run, with_simulated_rates
from emu.runs.to_audit import read_to_audit
from tests.report.recorded import write_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = ("problem.json", "result.json", "simulated.json", "manifest.json")
VALUES: list[Any] = [None, True, -1, 0, 1, 10**6, 2**63, 1e300, float("nan"), -0.5]
VALUES += ["", "x", "1 GB", [], [1], {}, {"a": 1}]


def places(value: Any, trail: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield trail
    items = value.items() if isinstance(value, dict) else ()
    for key, inner in enumerate(value) if isinstance(value, list) else items:
        yield from places(inner, (*trail, key))


def changed(content: Any, trail: tuple[Any, ...], value: Any) -> Any:
    if not trail:
        return value
    made = copy.deepcopy(content)
    inner = made
    for step in trail[:-1]:
        inner = inner[step]
    if value is FILES:  # nothing: the key is gone
        del inner[trail[-1]]
    else:
        inner[trail[-1]] = value
    return made


def use(run: Path) -> None:
    """Do what audit, explain, plot and trace begin with."""
    read = load_run(run)
    _ = read.policy, repr(read)
    if read.simulated is not None:
        with_simulated_rates(read)
    write_trace(run, run / "trace.json")
    subject = read_to_audit(run)
    subject.audit(subject.tolerance, 1e-6)


@pytest.mark.parametrize("name", FILES)
def test_a_changed_value_gives_an_answer_or_one_error(
    name: str, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run")
    good = json.loads((run / name).read_text())
    trails = [*places(good)]
    rng = np.random.default_rng(len(name))
    refused = 0
    for _ in range(150):
        trail = trails[rng.integers(len(trails))]
        value = [*VALUES, FILES][rng.integers(len(VALUES) + 1)]
        if not trail and value is FILES:
            continue
        (run / name).write_text(json.dumps(changed(good, trail, value)))
        try:
            use(run)
        except EmulatorError:
            refused += 1
    assert refused or name == "manifest.json"


@pytest.mark.parametrize("by", [-1, 1, 2, 50])
def test_an_edited_lag_is_named(by: int, tmp_path: Path) -> None:
    """Every edge between machines, one after the other."""
    run = write_run(tmp_path / "run")
    good = json.loads((run / "problem.json").read_text())
    problem = load_run(run).problem
    for number, hops in enumerate(problem.hops):
        if hops:
            lag = problem.job.edges[number].lag
            edited = changed(good, ("edges", number, "lag"), lag + by)
            (run / "problem.json").write_text(json.dumps(edited))
            with pytest.raises(DataError, match=r"problem\.json|result\.json"):
                read_to_audit(run)
