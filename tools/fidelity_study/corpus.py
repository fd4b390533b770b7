"""Scenarios drawn at random, the same for the same seed, to show fidelity on.

Machines 2 to 16 with NICs up to 1:20 apart; DGTP jobs with one-shot and multi-round
sampling, custom ones of the shape of training and random graphs; from computing all the
time to moving bytes all the time; flows from crumbs to most of an iteration; every rate
policy, with and without credit windows. None needs a data file or computes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emu.scheduling import RATE_POLICIES
from tools.fidelity_study.custom_draws import draw_custom
from tools.fidelity_study.dgtp_draws import draw_dgtp

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

#: Policies that are a rule for rates; ``portfolio`` chooses one of them.
RULES = tuple(name for name in RATE_POLICIES if name != "portfolio")
#: Shapes of jobs; their number and that of the rules have no common factor, so that
#: every shape meets every rule within 52 seeds.
SHAPES = ("training", "oneshot", "graph", "multiround")
_GIGABIT = 1e9 / 8
_WINDOWS = (1, 2, 4, "unlimited")


def draw_scenario(seed: int, *, most_processes: int = 24) -> dict[str, Any]:
    """Return the content of a scenario file: a job that is placed explicitly.

    Parameters
    ----------
    seed
        Shapes and policies take turns with it, so that any run of seeds has them all.
    most_processes
        Processes of the job, at most; at least 8. There are at most a third as many
        machines: 48 allow all 16.

    Raises
    ------
    ValueError
        When fewer than 8 processes are allowed.
    """
    if most_processes < 8:
        raise ValueError("a job that trains has 8 processes or more")
    rng = np.random.default_rng([seed, 0x5EED])
    machines = min(int(rng.integers(2, 17)), most_processes // 3)
    names = [f"m{m}" for m in range(machines)]
    nics = _GIGABIT * rng.choice([1, 2, 5, 10, 20], machines)
    shape = SHAPES[seed % len(SHAPES)]
    job, placed, byte_scale = _job(rng, shape, nics, most_processes)
    return {
        "name": f"drawn-{seed}",
        "cluster": {
            "machines": [
                {"name": name, "nic": f"{nic!r} B/s"}
                for name, nic in zip(names, map(float, nics), strict=True)
            ]
        },
        "job": job
        | {
            "iterations": int(rng.integers(2, 6)),
            "credit_window": _WINDOWS[rng.integers(len(_WINDOWS))],
        },
        "placement": {
            "policy": "explicit",
            "tasks": {task: names[machine] for task, machine in placed.items()},
        },
        "schedule": {"policy": RULES[seed % len(RULES)]},
        "emulation": {"byte_scale": byte_scale},
        "seed": seed,
    }


def _job(
    rng: Generator, shape: str, nics: NDArray[np.float64], most: int
) -> tuple[dict[str, Any], dict[str, int], float | str]:
    """Return a job section, the machine of each process, and the byte scale."""
    if shape in {"oneshot", "multiround"}:
        slowest, multiround = float(nics.min()), shape == "multiround"
        return draw_dgtp(rng, len(nics), most, slowest, multiround=multiround)
    mean, training = float(nics.mean()), shape == "training"
    job, placed = draw_custom(rng, len(nics), most, mean, training=training)
    return job, placed, "auto"
