"""What report.html of a large run costs: size, time to make, time to first paint.

    python tools/bench_report.py [flows] [directory]

The run is simulated: the shape of the paper's testbed, as many iterations as it takes.
First paint is measured in Chromium, where there is one.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from emu.problem import Problem, Realization
from emu.report.html import write_report
from emu.runs.array_files import write_realization
from emu.runs.result import VERSION, flow_rows, port_rows, relative_error, task_rows
from emu.runs.run_directory import RunDirectory
from emu.scenario import build_job, load, place
from emu.simulation import simulate
from tests.browser import CHROMIUM, Browser

_SCENARIO = Path(__file__).parent.parent / "scenarios" / "demo.yaml"


def placed(iterations: int) -> Problem:
    """Return the testbed's job, placed."""
    stated = [f"job.iterations={iterations}", "placement={policy: ifs}", "expect=null"]
    scenario = load(_SCENARIO, stated)
    job, cluster = build_job(scenario), scenario.to_cluster()
    return Problem(cluster, job, place(scenario, job, cluster).placement)


def drawn(problem: Problem, spread: float) -> Realization:
    """Return times and volumes like the testbed's, each spread around its mean."""
    rng = np.random.default_rng(7)
    shape = len(problem.job.tasks), problem.job.iterations
    times = 0.02 * rng.lognormal(0.0, spread, shape)
    shape = len(problem.job.edges), problem.job.iterations
    volumes = 25e6 * rng.lognormal(0.0, spread, shape)
    return Realization(times, volumes)


def write_run(parent: Path, flows: int) -> tuple[Path, int]:
    """Write a run directory with about so many flows; return it and how many."""
    remote = sum(bool(hops) for hops in placed(1).hops)
    problem = placed(-(-flows // remote))
    measured = drawn(problem, 0.31)
    emulated = simulate(problem, measured, "oes", record_rates=True)
    simulated = simulate(problem, drawn(problem, 0.30), "oes")
    assert emulated.rates is not None  # noqa: S101 - asked for
    directory = RunDirectory.create("large", parent)
    write_realization(directory.path, measured)
    directory.write_json("manifest.json", {"version": VERSION})
    directory.write_problem(problem)
    directory.write_json("simulated.json", simulated.to_json())
    directory.write_rates(emulated.rates)
    directory.write_lines("training.csv", ["time,task,iteration,figure,value"])
    times = emulated.task_end - emulated.task_start
    result = {
        "version": VERSION,
        "scenario": "large",
        "policy": "oes",
        "replayed_makespan": simulated.makespan,
        "replay_error": relative_error(emulated.makespan, simulated.makespan),
        "kinds": task_rows(problem, times, np.zeros_like(times)),
        "edges": flow_rows(emulated, simulated),
        "ports": port_rows(emulated),
        **emulated.to_json(),
    }
    directory.write_json("result.json", result)
    return directory.path, len(emulated.flows())


async def watch(report: Path) -> None:
    """Print when the page was drawn, and how long one frame takes while zooming."""
    async with Browser() as browser:
        page = await browser.open(report.as_uri())
        await page.until("document.documentElement.dataset.drawn")
        first = await page.value(
            "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        )
        whole = await page.value("document.documentElement.dataset.drawn")
        print(f"first contentful paint {first:.0f} ms, charts drawn {whole} ms")
        for share in (1.0, 0.1, 0.01):
            took = await page.value(
                f"view.range = [0, {share} * view.whole[1]];"
                "(() => { const t = performance.now();"
                "view.charts.forEach(chart => chart.draw());"
                "return [performance.now() - t, gantt.drawn]; })()"
            )
            print(f"frame at {share:.0%} of the time: {took[0]:.0f} ms, {took[1]} bars")
        if page.complaints:
            print("\n".join(page.complaints))


def main() -> None:
    """Measure."""
    flows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as temporary:
        parent = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(temporary)
        run, count = write_run(parent, flows)
        began = time.perf_counter()
        report = write_report(run)
        took = time.perf_counter() - began
        size = report.stat().st_size
        print(f"{count} flows: {size / 1e6:.1f} MB made in {took:.1f} s")
        if CHROMIUM is not None:
            asyncio.run(watch(report))


if __name__ == "__main__":
    main()
