"""SimGrid as a peer: its C++ program on the same workload, where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from emu.problem import Problem, Realization

_RUN = re.compile(r"makespan (\S+) .* run (\S+) s flows")


def compiled_peer(source: Path, folder: Path) -> Path | str:
    """Return the peer's program, or in words why there is none."""
    if not source.is_file():
        return f"no {source.name} beside the workloads"
    compiler = shutil.which("g++")
    if compiler is None:
        return "no g++"
    program = folder / "simgrid_peer"
    done = subprocess.run(
        [compiler, "-O2", "-std=c++17", str(source), "-lsimgrid", "-o", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return "SimGrid is not installed (apt: libsimgrid-dev)"
    return program


def write_workload(path: Path, problem: Problem, realization: Realization) -> None:
    """Write a workload as the peer reads it."""
    job, machines = problem.job, problem.cluster.machines
    lines = [f"{len(machines)} {len(job.tasks)} {len(job.edges)} {job.iterations}"]
    lines += [f"{m.bandwidth_in!r} {m.bandwidth_out!r}" for m in machines]
    lines += [
        f"{machine} {seconds!r}"
        for machine, seconds in zip(
            problem.placement.machine_of, realization.times[:, 0].tolist(), strict=True
        )
    ]
    lines += [
        f"{edge.source} {edge.destination} {edge.lag} {' '.join(map(repr, volumes))}"
        for edge, volumes in zip(job.edges, realization.volumes.tolist(), strict=True)
    ]
    path.write_text("\n".join(lines))


def run_peer(
    program: Path, workload: Path, kind: str, iterations: int
) -> tuple[float, float]:
    """Return makespan and run time (without its setup), seconds.

    Raises
    ------
    RuntimeError
        When the peer prints something else.
    """
    command = [str(program), str(workload), kind, str(iterations)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = _RUN.search(done.stdout)
    if found is None:
        printed = (done.stdout + done.stderr)[-300:]
        raise RuntimeError(f"{program.name} printed {printed!r}")
    return float(found[1]), float(found[2])


def peer_seconds(
    program: Path, workload: Path, iterations: int, expected: float, rounds: int
) -> dict[str, float]:
    """Return the median run time of both kinds, after comparing makespans.

    The kinds are ``dag`` and ``actors``.

    Raises
    ------
    RuntimeError
        When the peer disagrees about the makespan.
    """
    times: dict[str, list[float]] = {"dag": [], "actors": []}
    for _ in range(rounds):
        for kind, taken in times.items():
            span, seconds = run_peer(program, workload, kind, iterations)
            if abs(span - expected) > 1e-6:
                raise RuntimeError(f"SimGrid has {span} s, we have {expected} s")
            taken.append(seconds)
    return {kind: float(np.median(taken)) for kind, taken in times.items()}
