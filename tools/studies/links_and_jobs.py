"""Golden cases of links, slots, rings, jobs, DGCL and Dorylus over sockets.

    tools/study links_and_jobs OUT [--only hops/two_racks] [--scale S]

Every case that has an exact result, under every policy that has one: hops, executors,
jobs, ring, dgcl and dorylus of tests/golden.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from functools import partial
from typing import Any

from emu.prediction.scheduling import RATE_POLICIES
from emu.scenario import prepare
from emu.scenario.scenario_file import loads
from tests.golden.as_scenario import as_scenario
from tests.golden.cases import cases, exactly
from tools.runner import Study, Work
from tools.trials.trial import Trial, attempt

#: Time scale of golden cases, and the wall seconds that each lasts at least.
_TIME_SCALE, _WALL = 0.25, 1.5


def options(parser: ArgumentParser) -> None:
    """Add how the cases are scaled."""
    parser.add_argument("--scale", type=float, help="time scale")


def work(options: Namespace) -> Iterator[Work[Trial]]:
    """Yield every golden case under every policy that has an exact result."""
    for file in ("hops", "executors", "jobs", "ring", "dgcl", "dorylus"):
        for case in cases(file):
            for policy in filter(RATE_POLICIES.__contains__, case.results):
                (exact,) = exactly([case.results[policy]["makespan"]])
                scale = options.scale or max(_TIME_SCALE, _WALL / exact)
                content = as_scenario(file, case)
                content |= {"name": case.name, "schedule": {"policy": policy}}
                content["emulation"] = {
                    "byte_scale": 50_000,
                    "deadline": "60 s",
                    "time_scale": float(scale),
                }
                name = f"{file}/{case}/{policy}"
                yield name, partial(run, options, name, content)


def run(options: Namespace, case: str, content: dict[str, Any]) -> list[Trial]:
    """Return the row of a scenario over sockets."""
    scenario = loads(json.dumps(content))
    return [attempt(case, prepare(scenario), options.out / "runs")]


def table(rows: list[Trial], _: Namespace) -> Iterator[str]:
    """Yield simulated and emulated makespan, error, verdict of every case."""
    for row in rows:
        yield (
            f"{row.case:44} {row.expected:10.5f} s {row.emulated:10.5f} s "
            f"{100 * row.makespan_error:+8.4f} % {row.trust} scale {row.time_scale:g}"
        )


STUDY = Study(row=Trial, work=work, table=table, options=options)
