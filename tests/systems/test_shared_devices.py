"""GPUs that collect rows in turn with training, and what dgtp says to other systems."""

from __future__ import annotations

from typing import Any

import pytest

from emu.problem.fields.cluster_section import ClusterSection
from emu.systems.dgtp.section import TRANSLATION
from tests.systems.sections import section_of
from tests.systems.test_translation import common_of

CLUSTER = ClusterSection.model_validate(
    {
        "machines": [
            {"name": "a", "nic": "1 Gbit/s", "gpu": 2.5, "cpu": 3.5},
            {"name": "b", "nic": "1 Gbit/s"},
            {"name": "c", "nic": "1 Gbit/s", "gpu": 4, "slots": {"gpu": 3, "x": 1}},
        ]
    }
)


@pytest.mark.parametrize(
    ("features", "shares"),
    [
        (None, False),
        ("host", False),
        ("device", True),
        ({"a": "device"}, True),
        ({"default": "device", "a": "host"}, True),
        ({"a": "host"}, False),
    ],
)
def test_gpus_take_turns_where_any_store_collects_on_one(
    features: Any, *, shares: bool
) -> None:
    """A machine has a slot for each GPU, or one if none is stated; given slots stay."""
    section = section_of("dgtp", features=features)
    slots = [dict(one.slots) for one in section.with_machines(CLUSTER).machines]
    gpus = [{"gpu": 2}, {"gpu": 1}, {}] if shares else [{}, {}, {}]
    assert slots == [
        {"cpu": 3, **gpus[0]},
        gpus[1],
        {"gpu": 3, "x": 1},
    ]
    assert section.pool_of("worker") == ("gpu" if shares else "")
    assert section.made_slots == ({"cpu", "gpu"} if shares else {"cpu"})


def read(**keys: Any) -> dict[str, Any]:
    stated = {
        "times": {
            "graph_store": "1 s",
            "sampler": "2 s",
            "worker": "3 s",
            "parameter_server": {"default": "4 s", "quick": "5 s"},
        },
        "workers": 2,
        "parameter_servers": 3,
        "samplers_per_worker": 2,
        "demands": {
            "worker": {"cpu": 1, "memory": "2 kB"},
            "sampler": {"cpu": 0.5, "memory": "1 kB"},
        },
        **keys,
    }
    assert TRANSLATION.read is not None
    return dict(TRANSLATION.read(section_of("dgtp", **stated), CLUSTER))


def test_a_replica_steps_the_whole_model_and_has_its_samplers_with_it() -> None:
    """Three servers step a third each; two samplers need their memory twice."""
    found = read()
    assert found["step"] == {"default": 12.0, "quick": 15.0}
    assert read(sync="ring")["step"] == 0.0
    assert found["demands"]["replica"] == {"cpu": 2.0, "memory": 4000.0}
    assert found["demands"]["worker"] == {"cpu": 1.0, "memory": 2000.0}
    assert (found["workers"], found["stores"], found["by_hops"]) == (2, 3, False)
    # Where machines have gpus a replica needs one; cores that are not stated are many.
    assert found["machines"] == ("a", "c")
    more = {"sampler_hop": "1 s", "graph_store_hop": "1 s", "sampler_fetch": "1 s"}
    times = dict.fromkeys(("graph_store", "sampler", "worker"), "1 s") | more
    hops = read(sampling="multiround", times=times)
    assert hops["by_hops"] is True
    assert hops["step"] == 0.0


@pytest.mark.parametrize(
    ("stores", "machines"),
    [(["b"], ("a",)), (["a"], ("c",)), (["a", "b", "c"], ("a",))],
)
def test_replicas_stand_beside_stores_of_their_own_machines(
    stores: list[str], machines: tuple[str, ...]
) -> None:
    """Workers stand among the stores where stores are on all machines."""
    found = read(stores=stores, workers=1, demands={})
    assert found["machines"] == machines
    assert found["stores"] == len(stores)


@pytest.mark.parametrize("by_hops", [False, True])
def test_what_other_systems_lack_begins_at_nothing(*, by_hops: bool) -> None:
    times = {"worker": 6.0, "sampler": 2.0, "sampler_hop": 0.5, "graph_store_hop": 0.25}
    keys = TRANSLATION.write(common_of(times=times, by_hops=by_hops))
    assert keys["sampling"] == ("multiround" if by_hops else "oneshot")
    # Five stores for two machines' three: no time of theirs is known.
    expected = {"graph_store": "0 us", "parameter_server": "0 us"}
    expected |= {"sampler": "2 s", "worker": "6 s"}
    if by_hops:
        expected |= {"sampler_fetch": "0 us"}
        expected |= {"sampler_hop": "500 ms", "graph_store_hop": "250 ms"}
    assert keys["times"] == expected
    assert (keys["workers"], keys["batch_size"]) == (2, 12)
    assert "machines" not in keys
    owners = {"stores": ["d", "e"]}
    apart = TRANSLATION.write(common_of(stated=("e", "a"), owners=owners))
    assert apart["machines"] == ["a", "d", "e"]
    assert apart["stores"] == ["d", "e"]
