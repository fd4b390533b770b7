"""Jobs of systems that train, drawn from a seed, whose times follow from rates.

Graphs have 1,224 to 4,898 vertices, so that a processor trains them in a fraction of
the stated times; models are wide enough that even sums of gradients fill packets. NICs
carry what an epoch sends in about as long as it computes; those of one job are up to
1:6 apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tests.fidelity.corpus import RULES
from tests.testing.draw import Draw

Content: TypeAlias = dict[str, Any]

#: Scales of products-like; each graph is prepared once per number of parts.
_SCALES = (0.0005, 0.001, 0.002)
_NIC = 2e6


def draw_system(system: str, seed: int) -> Content:
    """Return the content of a scenario file: a job of one of `SYSTEMS`, which trains.

    Weights are of double precision, so that they can be held against one process.

    Raises
    ------
    KeyError
        When it is another system.
    """
    draw = Draw(seed + 2**46)
    write_keys = SYSTEMS[system]
    machines = []
    for number in range(draw.count(2, 4)):
        nic = _NIC * draw.one(0.5, 1.0, 2.0, 3.0)
        machine = {"name": f"m{number}", "nic": f"{nic!r} B/s"}
        machines.append(machine)
    is_mixed = draw.chance(0.4)
    if is_mixed:
        machines[-1]["device"] = "old"
    optimizer = {"name": draw.one("adam", "sgd"), "lr": draw.one(0.001, 0.01)}
    dataset = {
        "name": "products-like",
        "scale": draw.one(*_SCALES),
        "feature_length": draw.one(50, 100, 200),
        "normalise": True,  # else sums of gin diverge in nine steps
        "seed": 0,
    }
    job = {
        "system": system,
        "dataset": dataset,
        "optimizer": optimizer,
        "precision": "float64",
        "rates": _draw_rates(draw, mixed=is_mixed),
    }
    return {
        "name": f"{system}-{seed}",
        "cluster": {"machines": machines},
        "job": {**job, **write_keys(draw)},
        "schedule": {"policy": draw.one(*RULES)},
        "emulation": {"compute": "padded", "byte_scale": 1.0},
        "seed": seed % 2**31,
    }


def _draw_rates(draw: Draw, *, mixed: bool) -> Content:
    """Return rates of operations, where machines are mixed also those of the old."""
    rates = {
        "aggregate": draw.one(0.03, 0.1),
        "multiply": draw.one(0.01, 0.03),
        "sample": draw.one(20.0, 60.0),
        "collect": draw.one(0.05, 0.2),
        "step": draw.one(1.0, 4.0),
        "launch": draw.one(1e4, 3e4),
    }
    slower = draw.one(1.5, 3.0)
    stated: Content = {}
    for name, rate in rates.items():
        stated[name] = f"{rate!r} us"
        if mixed:
            stated[name] = {"default": f"{rate!r} us", "old": f"{rate * slower!r} us"}
    return stated


def _draw_model(draw: Draw, *kinds: str) -> Content:
    """Return a model of two or three layers: one alone exchanges no rows."""
    kind = draw.one(*kinds)
    return {"kind": kind, "hidden": draw.one(32, 64), "layers": draw.count(2, 3)}


def _draw_whole(draw: Draw) -> Content:
    """Return what jobs on the whole graph state."""
    return {
        "model": _draw_model(draw, "gcn", "sage", "gin"),
        "epochs": draw.count(4, 6),
        "partitioner": draw.one("metis", "hash"),
    }


def _draw_sampled(draw: Draw) -> Content:
    """Return what jobs on mini-batches state."""
    model = _draw_model(draw, "sage", "gcn", "gat", "gin")
    return {
        "model": model,
        "fanouts": [draw.count(2, 5) for _ in range(model["layers"])],
        "batch_size": draw.one(4, 8, 12),
        "iterations": draw.count(5, 9),
        "samplers_per_worker": draw.one(1, 2),
        "epoch": draw.one("replicate", "local"),
        **draw.maybe(0.5, features=("host", "device")),
        **draw.maybe(0.6, credit_window=(1, 2, 4)),
    }


def _draw_partition_parallel(draw: Draw) -> Content:
    return {**_draw_whole(draw), "cache_features": draw.one(True, False)}


def _draw_pipegcn(draw: Draw) -> Content:
    smoothing = draw.maybe(0.5, smooth_features=0.95, smooth_gradients=0.5)
    return {**_draw_whole(draw), **smoothing}


def _draw_bns_gcn(draw: Draw) -> Content:
    return {**_draw_whole(draw), "rate": draw.one(0.1, 0.3, 0.7)}


def _draw_sancus(draw: Draw) -> Content:
    keys = {"staleness": draw.count(0, 3), "kept_gradients": draw.one(True, False)}
    return {**_draw_whole(draw), **keys}


def _draw_adaqp(draw: Draw) -> Content:
    return {**_draw_whole(draw), "bits": draw.one(2, 4, 8)}


def _draw_neutron_star(draw: Draw) -> Content:
    ways = "cost", "communicated", "cached"
    return {**_draw_whole(draw), "dependencies": draw.one(*ways)}


def _draw_neutron_tp(draw: Draw) -> Content:
    return {**_draw_whole(draw), "model": _draw_model(draw, "gcn")}


def _draw_salient(draw: Draw) -> Content:
    cache = {"policy": "vip", "share": draw.one(0.1, 0.32, 0.6)}
    kept = draw.maybe(0.5, cache=(cache, None), feature_type=("float16", "float32"))
    return {**_draw_sampled(draw), **kept, "partitioner": draw.one("metis", "hash")}


def _draw_rapid(draw: Draw) -> Content:
    share = draw.one(0.05, 0.16, 0.4)
    cache = {"policy": "hot", "share": share, "window": draw.count(1, 4)}
    owners = {"partitioner": draw.one("metis", "hash")}
    return {**_draw_sampled(draw), **owners, "cache": cache}


def _draw_apt(draw: Draw) -> Content:
    strategies = "auto", "gdp", "nfp", "snp", "dnp"
    model = _draw_model(draw, "sage", "gcn", "gin")
    keys = {"strategy": draw.one(*strategies), "partitioner": draw.one("metis", "hash")}
    fanouts = [draw.count(2, 5) for _ in range(model["layers"])]
    return {**_draw_sampled(draw), **keys, "model": model, "fanouts": fanouts}


#: System -> what draws the keys of its own.
SYSTEMS: dict[str, Callable[[Draw], Content]] = {
    "partition_parallel": _draw_partition_parallel,
    "pipegcn": _draw_pipegcn,
    "bns_gcn": _draw_bns_gcn,
    "sancus": _draw_sancus,
    "adaqp": _draw_adaqp,
    "neutron_star": _draw_neutron_star,
    "neutron_tp": _draw_neutron_tp,
    "salient_plus_plus": _draw_salient,
    "rapid_gnn": _draw_rapid,
    "whole_graph": _draw_sampled,
    "apt": _draw_apt,
}
