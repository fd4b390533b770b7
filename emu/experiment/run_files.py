"""Files of a run directory: its manifest, its records, and result.json."""

from __future__ import annotations

import importlib.metadata
import math
import platform
import time

import numpy as np

from emu.array_types import Array, Floats
from emu.emulation.coordinator import EmulatedRun
from emu.emulation.coordinator.settings import RunSettings
from emu.emulation.shaping import pace_at
from emu.emulation.wire.frame_layout import ROWS
from emu.experiment.run_result import Parts, RunResult
from emu.experiment.scale_search import ScaleChoice
from emu.host.this_host import version_of_emu
from emu.lab.kernel_network import burst_of
from emu.runs.array_files import REALIZATION, REPORTS, SCHEDULED, write_weights
from emu.runs.result import VERSION, Result
from emu.runs.run_directory import RunDirectory
from emu.scenario import Scenario
from emu.scenario.realize import with_figures

#: Libraries whose version may change a number, or how fast a run is.
_VERSIONS = ("numpy", "torch", "pymetis", "uvloop", "msgpack")


def manifest(
    scenario: Scenario, settings: RunSettings, choice: ScaleChoice | None = None
) -> Result:
    """Return all that is needed to run this again."""
    versions = dict[str, str | None]()
    for library in _VERSIONS:
        try:
            versions[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            versions[library] = None  # torch, where no job trains

    return {
        "version": VERSION,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "scenario": with_figures(scenario).to_json(),
        "emulation": {
            **settings.to_json(),
            "bucket_bytes": pace_at(settings.time_scale).lead_bytes,
            "hosts": settings.hosts,
            "burst": burst_of(scenario),
        },
        "emu": version_of_emu(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "versions": versions,
        **({} if choice is None else {"auto_scale": choice.to_json()}),
        **scenario.job.manifest(),
    }


def write_down(directory: RunDirectory, result: RunResult, weights: Parts) -> None:
    """Write everything that the run left; result.json last, so that it means all."""
    run = result.run
    if weights:
        write_weights(directory.path, weights)
    directory.write_json("simulated.json", result.replayed.to_json())
    statistics = {}
    for process, counts in run.statistics.items():
        # Only the error budget reads the log of flows.
        totals = {key: value for key, value in counts.items() if key != "flows"}
        statistics[process] = totals
    processes = {
        "hosts": run.hosts,
        "tuning": run.tuning,
        "startup": run.startup,
        "wall_seconds": run.wall,
        "statistics": statistics,
    }
    directory.write_json("processes.json", processes)

    if run.schedule.rates is not None:
        directory.write_arrays("rates.npz", **vars(run.schedule.rates))
    directory.write_arrays(REALIZATION, **vars(run.realization))
    directory.write_arrays(REPORTS, **_reports(run))
    # Every frame by its sender, by its receiver, and its arrival as it was reported;
    # when the tasks that had it began, and when the coordinator was at work.
    directory.write_arrays(
        "frames.npz",
        **{name: getattr(run, name) for name in ROWS},
        notified=run.arrivals,
        began=run.began,
        board=run.board,
        turns=run.turns,
    )
    directory.write_lines("training.csv", _training_lines(run))
    # Into the content itself, so that --json prints what the file holds.
    result.content["records"] = directory.digests()
    directory.write_json("result.json", result.content)


def _reports(run: EmulatedRun) -> dict[str, Array]:
    """Return the arrays of reports.npz: what result.json is computed again from."""
    schedule = run.schedule
    arrays = {}
    for name in SCHEDULED:
        column = getattr(schedule, name)
        if column is not None:
            arrays[name] = column
    reads = schedule.reads
    if reads is None:
        # No npz file holds None.
        reads = np.empty((0, 0), np.int64)
    arrays["reads"] = reads
    arrays["late"] = run.late
    arrays["cpu"] = run.cpu

    arrays["sends"] = log_of_sends(run)
    return arrays


def log_of_sends(run: EmulatedRun) -> Floats:
    """Return the log of sends of all processes, one after the other."""
    logs = b"".join(counts["flows"] for counts in run.statistics.values())
    return np.frombuffer(logs, "<f8")


def _training_lines(run: EmulatedRun) -> list[str]:
    """Return the lines of training.csv: run time, task, iteration, figure, value."""
    lines = ["time,task,iteration,figure,value"]
    for instant, task, iteration, figures in run.reports:
        for figure, value in figures.items():
            number = float(value)
            if figure == "loss" and math.isnan(number):
                number = math.inf  # readers drop NaN, and with it steps
            if figure == "loss" or math.isfinite(number):
                lines.append(f"{instant!r},{task},{iteration},{figure},{number!r}")
    return lines
