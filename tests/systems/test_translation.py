"""Jobs in the words of every system: seeds, times and machines by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from emu.errors import ScenarioError
from emu.problem.fields.cluster_section import ClusterSection
from emu.systems.translation import (
    CommonJob,
    machines_key,
    refuse_stores,
    roomy_machines,
    write_common,
    write_whole_graph,
)

TIMES: dict[str, Any] = {
    "graph_store": 10.0,
    "sampler": 2.0,
    "worker": {"default": 6.0, "quick": 3.0},
    "parameter_server": 7.0,
    "all_reduce": 5.0,
}


def common_of(**keys: Any) -> CommonJob:
    """Return two workers of 12 seeds each, beside three stores on five machines."""
    stated = {
        "same": {"model": {"kind": "gcn"}, "samplers_per_worker": 2},
        "workers": 2,
        "batch_size": 12,
        "machines": ("a", "b"),
        "stores": 3,
        "everywhere": ("a", "b", "c", "d", "e"),
        "stated": None,
        "partitioner": "hash",
        "by_hops": False,
        "demands": {"replica": {"cpu": 2.0, "memory": 1000.0}, "graph_store": {}},
        "times": TIMES,
        "step": 0.5,
        "first_layer": 0.25,
        **keys,
    }
    return CommonJob(**stated)


@pytest.mark.parametrize(
    ("workers", "stores", "batch"),
    [
        (2, 3, 12),
        (4, 6, 6),
        (1, 1, 24),
        # Six seeds are 1.2 of each of five workers' two samplers: one, and 1.6 are two.
        (10, 5, 2),
        (7, 3, 4),
        (100, 3, 2),
    ],
)
def test_as_many_seeds_are_spread_over_other_workers(
    workers: int, stores: int, batch: int
) -> None:
    """Times of batches go with their seeds, those of stores with their share."""
    found = common_of().spread(workers, stores)

    assert (found.workers, found.stores, found.batch_size) == (workers, stores, batch)
    growth = batch / 12
    assert found.times["sampler"] == pytest.approx(2 * growth)
    assert found.times["worker"] == pytest.approx(
        {"default": 6 * growth, "quick": 3 * growth}
    )
    assert found.times["graph_store"] == pytest.approx(10 * 3 / stores)
    assert found.times["parameter_server"] == 7.0
    assert found.times["all_reduce"] == 5.0


def test_one_sampler_has_the_seeds_where_no_number_is_stated() -> None:
    found = common_of(same={"model": {}}).spread(8, 3)
    assert found.batch_size == 3


def test_phases_share_a_workers_time_by_their_operations() -> None:
    """Layer 1 is a quarter: 1, 3, 6 and 1 parts of 11; stores add to the first."""
    phases = common_of().phases()
    names = ("model_forward", "data_forward", "data_backward", "model_backward")
    parts = dict(zip(names, (1, 3, 6, 1), strict=True))
    added = {"model_forward": 10.0, "model_backward": 0.5}
    for name, part in parts.items():
        more = added.get(name, 0.0)
        expected = {"default": 6 * part / 11 + more, "quick": 3 * part / 11 + more}
        assert phases[name] == pytest.approx(expected), name


def test_phases_that_are_stated_stay() -> None:
    names = ("model_forward", "data_forward", "data_backward", "model_backward")
    stated = {name: float(number) for number, name in enumerate(names, 1)}
    phases = common_of(times={**TIMES, **stated}).phases()
    assert phases == {
        "model_forward": 11.0,
        "data_forward": 2.0,
        "data_backward": 3.0,
        "model_backward": 4.5,
    }
    # Of some of them alone nothing follows: all are then of the worker's time.
    some = common_of(times={**TIMES, "data_forward": 99.0}).phases()
    assert some == common_of().phases()
    without = common_of(times={"data_forward": 99.0, "graph_store": 1.0}).phases()
    assert without == {"data_forward": 99.0}


@pytest.mark.parametrize(
    ("owners", "stores"), [({}, 5), ({"stores": "auto"}, 5), ({"stores": 2}, 3)]
)
def test_stores_are_on_all_machines_that_take_part_unless_apart(
    owners: dict[str, Any], stores: int
) -> None:
    common = common_of(owners=owners)
    assert common.stores_on("vwxyz") == stores
    if stores == 3:
        with pytest.raises(ScenarioError, match="p3 has no graph stores"):
            refuse_stores(common, "p3")
    else:
        refuse_stores(common, "p3")


def test_machines_are_written_where_these_are_not_all() -> None:
    assert machines_key(common_of()) == {"machines": ["a", "b"]}
    assert machines_key(common_of(machines=("a", "b", "c", "d", "e"))) == {}


@pytest.mark.parametrize("rates", [None, {"step": "1 ns"}])
def test_demands_and_times_are_written_with_their_units(rates: Any) -> None:
    same = {"model": {}} if rates is None else {"model": {}, "rates": rates}
    common = common_of(same=same)
    keys = write_common(common, {"worker": TIMES["worker"]}, "replica", "graph_store")
    expected: dict[str, Any] = {
        **same,
        "batch_size": 12,
        "demands": {"worker": {"cpu": 2.0, "memory": "1 kB"}},
    }
    if rates is None:
        expected["times"] = {"worker": {"default": "6 s", "quick": "3 s"}}
    assert keys == expected


def test_a_whole_graph_job_has_the_same_model_and_epochs() -> None:
    model = {"kind": "gcn", "hidden": 8, "layers": 3, "dropout": 0.5}
    same = {"model": model, "rates": {"step": "1 ns"}, "fanouts": [2], "precision": "x"}
    common = common_of(same=same, epochs=4)
    keys = write_whole_graph(common, "dgcl", "gcn", "gin")
    assert keys == {
        "rates": {"step": "1 ns"},
        "precision": "x",
        "model": {
            "kind": "gcn",
            "hidden": 8,
            "layers": 3,
            "norm": "mean",
            "activation": "relu",
        },
        "epochs": 4,
        "machines": ["a", "b", "c", "d", "e"],
    }
    stated = common_of(same={**same, "model": {"kind": "gin"}}, stated=("d", "b"))
    keys = write_whole_graph(stated, "dgcl", "gcn", "gin")
    assert keys["machines"] == ["d", "b"]
    assert keys["model"] == {"kind": "gin", "activation": "relu"}


@pytest.mark.parametrize(
    ("keys", "key", "words"),
    [
        (
            {"model": {}, "rates": {}},
            "job.model.kind",
            "trains gcn or gin on the whole",
        ),
        ({"model": {"kind": "gin"}}, "job.times", "say nothing of the whole graph"),
    ],
)
def test_what_a_whole_graph_job_cannot_be(
    keys: dict[str, Any], key: str, words: str
) -> None:
    with pytest.raises(ScenarioError, match=words) as error:
        write_whole_graph(common_of(same=keys), "dgcl", "gcn", "gin")
    assert error.value.key == key


CLUSTER: dict[str, Any] = {
    "machines": [
        {"name": "a", "nic": {"in": "1 Gbit/s", "out": "9 Gbit/s"}, "gpu": 1, "cpu": 4},
        {"name": "b", "nic": {"in": "3 Gbit/s", "out": "1 Gbit/s"}, "gpu": 1, "cpu": 4},
        {"name": "c", "nic": "2 Gbit/s", "gpu": 1, "cpu": 4, "device": "quick"},
        {"name": "d", "nic": "3 Gbit/s", "gpu": 1, "cpu": 1},
        {"name": "e", "nic": "9 Gbit/s", "cpu": 4},
        {"name": "f", "nic": "3 Gbit/s", "gpu": 1, "cpu": 4},
    ]
}


@pytest.mark.parametrize(
    ("workers", "among", "expected"),
    [
        # The quicker device, then what takes in most, then the order of the file.
        (1, "abcdef", "c"),
        (2, "abcdef", "bc"),
        (3, "abcdef", "bcf"),
        (9, "abcdef", "abcf"),
        (2, "afde", "af"),
    ],
)
def test_workers_stand_where_they_take_the_least_time(
    workers: int, among: str, expected: str
) -> None:
    cluster = ClusterSection.model_validate(CLUSTER)
    needed = {"cpu": 2.0}
    times = {"worker": {"default": 4.0, "quick": 1.0}}
    job: Any = SimpleNamespace(times=SimpleNamespace(by_kind=lambda: times), rates=None)
    found = roomy_machines(job, cluster, needed, workers, among)
    assert found == tuple(expected)
    # Rates say it by their products.
    times["worker"] = {"default": 1.0, "quick": 4.0}
    job.rates = SimpleNamespace(multiply={"default": 4.0, "quick": 1.0})
    assert roomy_machines(job, cluster, needed, workers, among) == tuple(expected)
    with pytest.raises(ScenarioError, match="no machine has room"):
        roomy_machines(job, cluster, needed, workers, "de")
