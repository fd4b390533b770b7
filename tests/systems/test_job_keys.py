"""Keys that all jobs have: sizes at their bounds, shares, places, lengths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from emu.errors import ScenarioError
from emu.problem import Cluster, Machine, Task
from emu.problem.fields.cluster_section import ClusterSection
from emu.systems import job_section
from emu.systems.device_memory import demand_devices
from emu.systems.job_section import JobSection, name_problems, whole_kinds
from emu.systems.training_section import lacking_memory
from tests.systems.sections import _RATES, context_of, job_of, section_of


def edges_of(workers: int, servers: int, samplers: int = 1) -> int:
    """Return the edges of a dgtp job with two stores, each store to each sampler."""
    return (2 + 1) * workers * samplers + 2 * workers * servers


@pytest.mark.parametrize(
    ("keys", "most", "found"),
    [
        # Of 8 workers and 5 servers: 24 + 80 edges.
        ({"workers": 8, "parameter_servers": 5}, 104, None),
        (
            {"workers": 8, "parameter_servers": 5},
            103,
            ("workers", "found 8, which make 104", "write 7 or fewer"),
        ),
        (
            {"workers": 5, "parameter_servers": 8},
            15 + 80 - 1,
            ("parameter_servers", "found 8, which make 95", "write 7 or fewer"),
        ),
        # One worker would make 3 + 16: that alone is too much, but of servers one fits.
        (
            {"workers": 9, "parameter_servers": 8},
            18,
            ("workers", "found 9, which make 171", "write fewer"),
        ),
        (
            {"workers": 2, "parameter_servers": 9},
            10,
            ("parameter_servers", "found 9, which make 42", "write 1 or fewer"),
        ),
    ],
)
def test_the_largest_key_that_can_be_made_to_fit_is_named(
    monkeypatch: pytest.MonkeyPatch,
    keys: dict[str, int],
    most: int,
    found: tuple[str, ...] | None,
) -> None:
    monkeypatch.setattr(job_section, "MOST_EDGES", most)
    section = section_of("dgtp", **keys)
    assert section.least_edges("ab") == edges_of(*keys.values())
    problems = [*section.size_problems("ab")]
    if found is None:
        assert problems == []
        return
    ((trail, problem),) = problems
    key, begin, end = found
    assert trail == ("job", key)
    assert problem.startswith(begin)
    assert problem.endswith(end)


@pytest.mark.parametrize(("most", "advice"), [(140, ""), (139, "19"), (6, "0")])
def test_flows_are_edges_times_steps(
    monkeypatch: pytest.MonkeyPatch, most: int, advice: str
) -> None:
    monkeypatch.setattr(job_section, "MOST_FLOWS", most)
    section = section_of("dgtp", workers=1, parameter_servers=2, iterations=20)
    assert section.least_edges("ab") == 7
    problems = dict(section.size_problems("ab"))
    if not advice:
        assert problems == {}
        return
    words = f"found 20, with 7 edges or more 140 flows, at most {most} are simulated"
    assert problems == {("job", "iterations"): f"{words}: write {advice} or fewer"}


def test_of_epochs_their_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_section, "MOST_FLOWS", 1)
    section = section_of("dgcl", epochs=3)
    ((trail, problem),) = section.size_problems("ab")
    assert trail == ("job", "epochs")
    assert problem.startswith("found 3, with ")
    sampled = section_of("dgtp", iterations=None, epochs=5)
    ((trail, _),) = sampled.size_problems("ab")
    assert trail == ("job", "epochs")


@pytest.mark.parametrize(
    ("system", "keys", "words"),
    [
        ("dgtp", {"iterations": 1}, "1 iteration"),
        ("dgtp", {"iterations": 2}, "2 iterations"),
        ("dgtp", {"iterations": None, "epochs": 1}, "1 epoch"),
        ("dgcl", {"epochs": 2}, "2 epochs"),
    ],
)
def test_a_length_is_said_in_what_is_stated(
    system: str, keys: dict[str, Any], words: str
) -> None:
    section = section_of(system, **keys)
    assert section.length == words
    assert section.of_steps(7).length.startswith("7 ")


@pytest.mark.parametrize(
    ("keys", "vertices", "batches"),
    [
        # Three epochs of 10 vertices by two samplers of four seeds.
        ({"epochs": 3}, 10, 3 * 3),
        ({"epochs": 3}, 8, 3 * 2),
        ({"epochs": 3, "epoch": "replicate"}, 9, 3 * 3),
        # Four samplers share: 2 of 11 vertices each, and 4 of 17.
        ({"epochs": 3, "epoch": "shard"}, 11, 3 * 1),
        ({"epochs": 3, "epoch": "local"}, 17, 3 * 1),
        ({"epochs": 3, "epoch": "shard"}, 20, 3 * 2),
        ({"epochs": 3, "epoch": "shard"}, 3, 3 * 1),
        ({"iterations": 5}, 10, 5),
    ],
)
def test_epochs_take_as_many_batches_as_a_sampler_walks(
    keys: dict[str, Any], vertices: int, batches: int
) -> None:
    stated = {"iterations": None, "batch_size": 8, "samplers_per_worker": 2, **keys}
    section = section_of("dgtp", workers=2, **stated)
    context = replace(context_of("ab"), train_vertices=vertices)
    assert section.count_batches(context) == batches
    if "epochs" in keys:
        with pytest.raises(ValueError, match="counted in training vertices"):
            section.count_batches(context_of("ab"))


def test_samplers_share_the_time_of_a_batch_and_stores_have_that_of_an_iteration() -> (
    None
):
    section = section_of("dgtp", batch_size=12, samplers_per_worker=3)
    assert section.sampler_batch == 4
    for kind in ("sampler", "sampler_hop", "sampler_fetch"):
        assert section.share(kind) == pytest.approx(1 / 3)
    for kind in ("graph_store", "worker", "graph_store_hop"):
        assert section.share(kind) == 1.0


@pytest.mark.parametrize(
    ("system", "features", "places"),
    [
        ("dgtp", None, ("host", "host")),
        ("p3", None, ("device", "device")),
        ("p3", "host", ("host", "host")),
        ("dgtp", "device", ("device", "device")),
        ("dgtp", {"a": "device"}, ("device", "host")),
        ("dgtp", {"default": "device", "a": "host"}, ("host", "device")),
        ("p3", {"a": "host"}, ("host", "device")),
    ],
)
def test_features_lie_where_the_machine_or_the_system_says(
    system: str, features: Any, places: tuple[str, str]
) -> None:
    section = section_of(system, features=features)
    assert tuple(section.place_on(name) for name in "ab") == places
    pools = tuple(section.pool_of("graph_store", name) for name in "ab")
    assert pools == tuple({"host": "cpu", "device": "gpu"}[place] for place in places)
    assert section.pool_of("sampler") == "cpu"


@pytest.mark.parametrize(
    ("pcie", "kind", "features", "brings"),
    [
        ("80 ps", "worker", "host", True),
        ("80 ps", "worker", "device", False),
        ("80 ps", "sampler", "host", False),
        ("80 ps", "model_forward", {"default": "device", "a": "host"}, True),
        (None, "worker", "host", False),
    ],
)
def test_rows_are_brought_from_the_host_where_that_takes_time(
    pcie: str | None, kind: str, features: Any, *, brings: bool
) -> None:
    rates = {**_RATES, "collect_device": "3 ns", "collect": "2 ns"}
    if pcie:
        rates["pcie"] = pcie
    section = section_of("dgtp", rates=rates, features=features)
    task = Task("t", kind, pinned="a")
    assert section.brings_rows(task) is brings
    collect = section.rates_of(task, "default")["collect"]
    assert collect == (pytest.approx(80e-12) if brings else 2e-9)
    on_device = replace(task, takes="gpu")
    collect = section.rates_of(on_device, "default")["collect"]
    assert collect == (pytest.approx(80e-12) if brings else 3e-9)


@pytest.mark.parametrize(
    ("batch", "samplers", "advice"),
    [
        (12, 3, ""),
        (13, 3, "write batch_size: 12 or 15"),
        (14, 3, "write batch_size: 12 or 15"),
        # Nothing is shared by more samplers than there are seeds.
        (2, 3, "write batch_size: 3"),
    ],
)
def test_a_batch_that_cannot_be_shared_evenly_is_told_the_nearest(
    batch: int, samplers: int, advice: str
) -> None:
    section = section_of("dgtp", batch_size=batch, samplers_per_worker=samplers)
    problem = section._sharing_problem()
    assert problem.endswith(advice)
    assert bool(problem) == bool(advice)


CLUSTER = ClusterSection.model_validate(
    {
        "machines": [
            {"name": "a", "nic": "1 Gbit/s", "gpu": 1},
            {"name": "b", "nic": "1 Gbit/s"},
            {"name": "c", "nic": "1 Gbit/s", "gpu": 1},
        ]
    }
)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"features": "device"}, "b has no gpu"),
        ({"features": {"a": "device"}}, ""),
        ({"features": {"b": "device"}}, "b has no gpu"),
        ({"features": {"x": "device"}}, "no machine 'x'"),
        ({"features": {"default": "host"}}, ""),
        ({"features": "device", "machines": ["a", "c"]}, ""),
        ({"features": "host"}, ""),
    ],
)
def test_features_on_devices_need_machines_that_have_one(
    keys: dict[str, Any], words: str
) -> None:
    problem = section_of("dgtp", **keys)._device_problem(CLUSTER)
    assert problem.startswith(words)
    assert bool(problem) == bool(words)


def test_names_of_machines_are_known_and_stand_once() -> None:
    found = [*name_problems("machines", ["a", "x", "b", "a"], "ab")]
    assert [(trail[-1], problem.partition(",")[0]) for trail, problem in found] == [
        (0, "'a' occurs 2 times"),
        (1, "no machine 'x'"),
        (3, "'a' occurs 2 times"),
    ]


def test_a_kind_is_scaled_as_a_whole_or_not_at_all() -> None:
    tasks = {"s0": "sampler", "s1": "sampler", "w0": "worker"}
    assert whole_kinds(tasks, {"s0", "s1"}) == {"sampler"}
    assert whole_kinds(tasks, {"w0"}) == {"worker"}
    assert whole_kinds(tasks, {"s0", "w0"}) == set()


def test_memory_that_lacks_is_what_is_needed_over_what_a_machine_states() -> None:
    machines = (
        Machine("a", 1.0, 1.0, resources={"memory": 100.0}),
        Machine("b", 1.0, 1.0),
    )
    assert lacking_memory(Cluster(machines), "a", 130.0) == 30.0
    assert lacking_memory(Cluster(machines), "a", 90.0) == -10.0
    assert lacking_memory(Cluster(machines), "b", 1e30) < 0


@pytest.mark.parametrize(
    ("partitioner", "machines", "planned"),
    [("metis", "ab", {"partition"}), ("metis", "a", set()), ("hash", "ab", set())],
)
def test_a_graph_is_partitioned_before_time_0_where_metis_cuts_it(
    partitioner: str, machines: str, planned: set[str]
) -> None:
    keys: dict[str, Any] = {"partitioner": partitioner}
    settings = dict(job_of("dgtp", machines, **keys).settings)
    settings["dataset"] = {**settings["dataset"], "scale": 0.0005}
    assert section_of("dgtp", **keys).planning(settings).keys() == planned


def test_devices_are_reserved_where_any_machine_states_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = job_of("dgtp", "ab")
    section = section_of("dgtp")
    asked = []

    def memory(_: JobSection, *__: object) -> dict[str, Any]:
        asked.append(1)
        return {"w0": {"weights": 60.0}}

    monkeypatch.setattr(type(section), "device_memory", memory)
    without = Cluster((Machine("a", 1.0, 1.0), Machine("b", 1.0, 1.0)))
    assert section.reserve_devices(job, context_of("ab"), without) is job
    assert not asked
    one = replace(
        without,
        machines=(
            without.machines[0],
            Machine("b", 1.0, 1.0, resources={"gpu_memory": 50.0}),
        ),
    )
    # Emulated bytes are a third of the real ones.
    context = replace(context_of("ab"), byte_scale=3.0)
    found = section.reserve_devices(job, context, one)
    assert found.tasks[found.index("w0")].demands["gpu_memory"] == 20.0


def test_more_than_the_only_devices_have_is_refused() -> None:
    job = job_of("dgtp", "ab")
    small = Cluster(
        tuple(Machine(name, 1.0, 1.0, resources={"gpu_memory": 9.0}) for name in "ab")
    )
    with pytest.raises(ScenarioError, match="of gpu_memory are needed on a"):
        demand_devices(job, small, {"w0": {"weights": 10.0}}, 1.0)
