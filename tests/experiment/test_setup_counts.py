"""Bytes that are moved before time 0, counted again per receiver."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.emulation.wire.frame_layout import FRAME_ROWS
from emu.errors import NodeMisbehaved
from emu.experiment import setup_counts
from emu.experiment.setup_counts import (
    _sum_received,
    check_setup,
    count_cached_bytes,
    list_parameter_bytes,
)
from emu.scenario import Experiment, prepare
from emu.scenario.scenario_file import load, loads
from emu.systems.setup import WEIGHTS, Transfer
from emu.systems.system import list_transfers
from emu_nodes.dgtp.job_data import JobData

TEXT = """
cluster: {machines: [{name: m, count: 3, nic: 1 Gbit/s}]}
job:
  system: dgtp
  dataset: {name: products-like, scale: 0.001}
  model: {hidden: 8, layers: 2}
  fanouts: [3, 4]
  batch_size: 8
  iterations: 6
  workers: 2
  samplers_per_worker: 2
  times: {sampler: 1 ms, worker: 1 ms, graph_store: 1 ms, parameter_server: 1 ms}
  cache: {policy: degree, size: 40 kB}
placement:
  policy: explicit
  tasks: {s0: m0, s1: m0, w0: m0, s2: m0, s3: m1, w1: m2, ps0: m1}
"""
#: Real bytes of two layers of GraphSAGE: 100 features, width 8, 47 classes.
PARAMETERS = 4 * (2 * 100 * 8 + 8 + 2 * 8 * 47 + 47)


def experiment(*changes: str) -> Experiment:
    """Return one with samplers on two of three machines."""
    return prepare(load(loads(TEXT), changes))


def records(of: Experiment) -> tuple[dict[str, Any], Any]:
    """Return statistics and frames of parameters that came six times to each worker."""
    job = of.problem.job
    names = [task.name for task in job.tasks]
    ends = [(names[edge.source], names[edge.destination]) for edge in job.edges]
    edges = [ends.index(("ps0", worker)) for worker in ("w0", "w1")]
    payloads = [
        {"edge": edge, "kind": "parameters", "bytes": 6 * PARAMETERS} for edge in edges
    ]
    frames = np.zeros(12, FRAME_ROWS)
    frames["edge"] = np.repeat(edges, 6)
    frames["bytes"] = PARAMETERS
    return {"w": {"received": {"payloads": payloads}}}, frames


@pytest.mark.parametrize("policy", ["degree", "vip"])
@pytest.mark.parametrize("size", ["40 kB", "600 kB"])
def test_a_sound_set_up_has_its_second_counts(policy: str, size: str) -> None:
    """Two caches, of 100 rows or of all that others own, and weights of two workers."""
    sound = experiment(f"job.cache={{policy: {policy}, size: {size}}}")
    count, faults = check_setup(sound, *records(sound))

    assert (count, faults) == (4, [])


def test_edges_of_other_payloads_or_several_sizes_have_no_parameters() -> None:
    """The first worker reads labels beside; the second has versions of two lengths."""
    job = experiment().problem.job
    statistics, frames = records(experiment())
    sizes = list_parameter_bytes(job, statistics, frames)
    assert sizes == {("ps0", "w0"): PARAMETERS, ("ps0", "w1"): PARAMETERS}

    payloads = statistics["w"]["received"]["payloads"]
    first_edge = payloads[0]["edge"]
    labels = {"edge": first_edge, "kind": "labels", "bytes": 8}
    payloads.append(labels)
    sizes = list_parameter_bytes(job, statistics, frames)
    assert sizes == {("ps0", "w1"): PARAMETERS}
    frames["bytes"][-1] = PARAMETERS + 4
    assert list_parameter_bytes(job, statistics, frames) == {}


def test_caches_that_change_and_weights_that_no_edge_carries_have_none() -> None:
    changing = experiment("job.cache.policy=lru")
    assert check_setup(changing, {}, np.zeros(0, FRAME_ROWS)) == (0, [])


@pytest.mark.parametrize(
    ("cause", "word"),
    [
        (WEIGHTS, f"weights from ps0 to w0 is {PARAMETERS / 2}"),
        ("cached rows", "cached rows of m0 is 20000.0"),
    ],
)
def test_half_of_what_is_moved_is_seen(
    cause: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the definition that senders and receivers share."""

    def halve(job: Any) -> list[Transfer]:
        return [
            transfer._replace(size=transfer.size / 2)
            if transfer.cause == cause
            else transfer
            for transfer in list_transfers(job)
        ]

    monkeypatch.setattr(setup_counts, "list_transfers", halve)
    sound = experiment()
    _, faults = check_setup(sound, *records(sound))

    assert len(faults) == 2
    assert word in faults[0].sentence


def test_a_hit_that_a_cache_does_not_hold_is_named() -> None:
    """As of a row that its own machine has, which no store sends it."""
    held = np.array([2, 5, 9])
    JobData.check_hits("s0", np.array([2, 9]), held)
    with pytest.raises(NodeMisbehaved, match="cache of s0 counts vertex 10 as a hit"):
        JobData.check_hits("s0", np.array([5, 10]), held)


def test_a_cache_holds_no_row_that_a_store_of_its_machine_owns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stores own 50, 20 and 30 of 100 rows, the first and the last of them on m0.

    Samplers of both machines have room for 40 rows.
    """
    owner = np.repeat([0, 1, 2], [50, 20, 30])
    dataset = SimpleNamespace(owner=owner, parts=3, vertices=100, feature_length=8)
    cache = SimpleNamespace(policy="degree", rows=40)
    plan = SimpleNamespace(from_settings=lambda *_: cache)
    monkeypatch.setattr(setup_counts, "open_for", lambda _: dataset)
    monkeypatch.setattr(setup_counts, "CachePlan", plan)
    monkeypatch.setattr(setup_counts, "feature_bytes", lambda _: 2)
    kinds = {"g0": "graph_store", "g1": "graph_store", "g2": "graph_store"}
    kinds |= {"s0": "sampler", "s1": "sampler", "s2": "sampler"}
    tasks = [SimpleNamespace(name=name, kind=kind) for name, kind in kinds.items()]
    job: Any = SimpleNamespace(settings={"cache": {}}, tasks=tasks)
    homes = {"g0": "m0", "g1": "m1", "g2": "m0", "s0": "m0", "s1": "m1", "s2": "m0"}

    found = [*count_cached_bytes(job, homes)]
    assert found == [("m0", 16.0 * 20), ("m1", 16.0 * 40)]
    job.settings = {}
    assert [*count_cached_bytes(job, homes)] == []


def test_cached_rows_are_those_that_other_machines_send_to_one() -> None:
    """Machine m0 gets 3 bytes that count; ghosts and rows of its own do not."""
    rows = [
        ("cached rows", "g1", "s0", 1.0),
        ("cached rows", "g1", "s1", 2.0),
        ("cached rows", "g0", "s0", 4.0),
        ("ghost features", "g1", "s0", 16.0),
        ("cached rows", "g0", "s2", 32.0),
    ]
    transfers = [Transfer(*row) for row in rows]
    homes = {"g0": "m0", "g1": "m1", "s0": "m0", "s1": "m0", "s2": "m1"}
    assert _sum_received(transfers, homes, "m0") == 3.0
    assert _sum_received(transfers, homes, "m1") == 32.0


def test_weights_that_come_in_two_parts_are_added_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def part(job: Any) -> list[Transfer]:
        halves = [row._replace(size=row.size / 2) for row in list_transfers(job)]
        return [*halves, *halves]

    monkeypatch.setattr(setup_counts, "list_transfers", part)
    sound = experiment()

    assert check_setup(sound, *records(sound)) == (4, [])
