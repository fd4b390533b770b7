"""Jobs of ``system: dgtp`` drawn at random, on a made-up graph of 2,449 vertices.

Nobody computes: tasks take their stated times. What they send is really sampled, so
batches are small: a sampler's takes 0.1 ms to draw, and every store draws it too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from emu.workloads import parameter_count

if TYPE_CHECKING:
    from numpy.random import Generator

#: Of products-like at this scale; the graph is the same for all seeds, so that it is
#: prepared once per number of machines (50 ms, 1.5 MB) and not once per scenario.
_SCALE, _VERTICES, _FEATURES, _CLASSES = 0.001, 2449, 100, 47
_LAYERS = 2
#: Messages between stores and samplers per iteration: 16 machines with 16 samplers that
#: ask hop by hop have 1,536, of which 2 cores carry no three iterations in 1.5 s.
_MOST_MESSAGES = 320


def draw_dgtp(
    rng: Generator, machines: int, most: int, nic: float, *, multiround: bool
) -> tuple[dict[str, Any], dict[str, int], float]:
    """Return a job section, the machine of each process, and real per emulated bytes.

    Parameters
    ----------
    most
        Processes, at most.
    nic
        Bytes per second of the slowest machine. It has a store as all have, and if it
        held all others up for long, real work would outlast the tasks around it.
    multiround
        Whether samplers ask the stores hop by hop: tasks that share a process.
    """
    counts = _counts(rng, machines, most, multiround=multiround)
    seconds = {
        kind: float(rng.uniform(0.005, 0.05) * rng.lognormal(0.0, 0.5))
        for kind in _tasks(counts, machines, multiround=multiround)
    }
    each = counts["samplers_per_worker"]
    fanouts = [int(rng.integers(2, 6)), int(rng.integers(2, 9))]
    seeds = int(rng.integers(4, 25))
    hidden = int(rng.choice([8, 32, 128, 512]))
    job = {
        "system": "dgtp",
        "dataset": {"name": "products-like", "scale": _SCALE, "seed": 0},
        "partitioner": "hash",
        "model": {"hidden": hidden, "layers": _LAYERS},
        "fanouts": fanouts,
        "batch_size": seeds * each,
        **counts,
        "times": {
            # Drawn of one task; stated of a whole mini-batch, which samplers share.
            kind: f"{time * (each if kind.startswith('sampler') else 1)!r} s"
            for kind, time in seconds.items()
        },
        "sampling": "multiround" if multiround else "oneshot",
    }
    samplers = counts["workers"] * counts["samplers_per_worker"]
    computing = sum(
        seconds[kind] * number
        for kind, number in _tasks(counts, machines, multiround=multiround).items()
    )
    inputs = min(seeds * math.prod(1 + fanout for fanout in fanouts), _VERTICES)
    model = {"hidden": hidden, "layers": _LAYERS}
    parameters = parameter_count(model, _FEATURES, _CLASSES)
    real = 4 * 2 * (samplers * inputs * _FEATURES + counts["workers"] * parameters)
    byte_scale = real / (nic * computing * 10.0 ** float(rng.uniform(-1, 1)))
    movable = (
        [f"s{s}" for s in range(samplers)]
        + [f"w{w}" for w in range(counts["workers"])]
        + [f"ps{p}" for p in range(counts["parameter_servers"])]
    )
    return job, {name: int(rng.integers(machines)) for name in movable}, byte_scale


def _counts(
    rng: Generator, machines: int, most: int, *, multiround: bool
) -> dict[str, int]:
    """Return how many workers, samplers of each and parameter servers there are."""
    servers = int(rng.integers(1, 3))
    rounds = 2 + 2 * _LAYERS if multiround else 1
    samplers = max(_MOST_MESSAGES // (machines * rounds), 1)
    room = most - machines - servers
    workers = int(rng.integers(1, max(min(room // 3, samplers), 1) + 1))
    each = max(min(room // workers - 1, samplers // workers, 4), 1)
    return {
        "workers": workers,
        "samplers_per_worker": int(rng.integers(1, each + 1)),
        "parameter_servers": servers,
    }


def _tasks(
    counts: dict[str, int], machines: int, *, multiround: bool
) -> dict[str, int]:
    """Return the number of tasks of each kind."""
    samplers = counts["workers"] * counts["samplers_per_worker"]
    found = {
        "graph_store": machines,
        "sampler": samplers,
        "worker": counts["workers"],
        "parameter_server": counts["parameter_servers"],
    }
    if multiround:
        found["graph_store_hop"] = machines * _LAYERS
        found["sampler_hop"] = samplers * _LAYERS
        found["sampler_fetch"] = samplers
    return found
