"""A run directory to go on from: its scenario, and the last cut that it keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from emu.errors import DataError, ScenarioError
from emu.experiment.attempts import read_last_cut
from emu.experiment.scale_search import ScaleChoice
from emu.host.input_file import one_error
from emu.prediction.simulation.attempts import later
from emu.problem.cut import Cut
from emu.runs.recorded_run import read_manifest
from emu.runs.run_directory import RunDirectory, apart, read_scenario
from emu.scenario import Experiment, Scenario, prepare
from emu.scenario.run_sections import UntilSection
from emu.training.looks import Look


@dataclass(frozen=True, eq=False)
class Beginning:
    """An experiment that is ready to be run, or what is left of it."""

    experiment: Experiment
    choice: ScaleChoice | None
    """Choice of its time scale, where trials have made one."""
    directory: RunDirectory | None = None
    start: Cut | None = None
    """Directory of the run that was cut off, and the cut that it goes on from."""


def resume_run(
    run: Path, stated: Callable[[], Scenario] | None, notify: Callable[[str], object]
) -> Beginning:
    """Return what is left to do of a run directory.

    ``stated`` loads the scenario as it is now; None takes it from the directory.
    ``notify`` gets a sentence on where it goes on, and on every checkpoint that is
    passed over.

    Raises ScenarioError when the scenario is another one now; names the keys that
    differ; DataError when it is no run that was cut off, keeps no checkpoints, or
    none of those that were committed can be used.
    """
    if not run.is_dir():
        raise DataError("is not a run directory", path=str(run))
    if (run / "result.json").exists():
        problem = "holds a result.json: this run has ended, nothing is left to do"
        raise DataError(problem, path=str(run))
    path = str(run / "manifest.json")
    manifest = read_manifest(run / "manifest.json")
    with one_error(path):
        scenario = Scenario.model_validate(manifest["scenario"])
        noted = manifest.get("auto_scale")
        choice = None if noted is None else ScaleChoice.from_json(noted)
    now = read_scenario(run, manifest) if stated is None else stated()
    now = _as_long(now, scenario, manifest.get("until"))
    if different := apart(now, manifest["scenario"]):
        raise ScenarioError(
            f"cannot go on with another scenario: {different[0]}",
            file=f"--resume {run}",
        )
    if scenario.checkpoint is None:
        problem = "its scenario states no checkpoint, so nothing was kept: run it anew"
        raise DataError(problem, path=path)
    experiment = with_until(prepare(scenario), manifest)
    start = read_last_cut(experiment, run, notify)
    last = experiment.problem.job.iterations
    place = f"goes on at iteration {start.iteration} of {last}"
    if start.iteration >= last:
        raise DataError(place, path=str(run))
    notify(place)
    with one_error(path):
        first, began = (manifest.get(key, 0) for key in ("first_iteration", "began"))
        before = experiment.beginning_at(first, began)
    began = before.time_of_cut(start.iteration)
    kills = {*manifest.get("killed", ())}
    coming = [kill for n, kill in enumerate(experiment.kills) if n not in kills]
    rest = experiment.beginning_at(start.iteration, began)
    rest = replace(rest, kills=later(coming, rest.first, began))
    return Beginning(rest, choice, RunDirectory(run), start)


def _as_long(now: Scenario, noted: Scenario, until: Any) -> Scenario:
    """Return a scenario with the length that ``until`` gave the noted one.

    It keeps its own where that is another.
    """
    if now.until is None or until is None:
        return now
    keys = type(noted.job).model_fields.keys() & {"iterations", "epochs"}
    length = {key: getattr(noted.job, key) for key in keys}
    job = now.job.model_copy(update=length)
    stated = now.until.model_dump(mode="json", exclude_none=True)
    other = None if stated == until else now.until
    return now.model_copy(update={"until": other, "job": job})


def with_until(experiment: Experiment, manifest: Mapping[str, Any]) -> Experiment:
    """Return an experiment with the accuracy that decided its length, if one did.

    ``manifest`` is that of its run: the scenario there has the length alone.
    """
    if not (stated := manifest.get("until")):
        return experiment
    until, reached = UntilSection.model_validate(stated), manifest.get("reached")
    look = Look(**reached) if isinstance(reached, dict) else None
    return replace(experiment, until=until, looks=(look,) if look else ())
