"""What ``emu validate`` calls good, ``emu simulate`` does not fail on."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from emu.errors import ScenarioError
from emu.prediction.placement import PLACEMENT_POLICIES
from emu.prediction.scheduling import RATE_POLICIES
from emu.scenario import find_errors, load, prepare

CUSTOM: dict[str, Any] = {
    "cluster": {
        "machines": [
            {"name": "a", "cpu": 4, "memory": "8 GB", "nic": "10 B/s"},
            {"name": "b", "cpu": 2, "nic": {"in": "5 B/s", "out": "9 B/s"}},
        ]
    },
    "job": {
        "system": "custom",
        "iterations": 3,
        "credit_window": 2,
        "tasks": [
            {"name": "g0", "kind": "graph_store", "time": "1 s", "pin": "a"},
            {
                "name": "s0",
                "kind": "sampler",
                "time": ["1 s"] * 3,
                "demands": {"cpu": 2},
            },
            {"name": "w0", "kind": "worker", "time": "1 s", "demands": {"cpu": 1}},
        ],
        "flows": [
            {"from": "g0", "to": "s0", "volume": "40 B"},
            {"from": "s0", "to": "w0", "volume": ["4 B"] * 3},
            {"from": "w0", "to": "s0", "lag": 1, "volume": "4 B"},
        ],
    },
    "placement": {"policy": "explicit", "tasks": {"s0": "b", "w0": "a"}},
    "schedule": {"policy": "oes"},
    "emulation": {"time_scale": 2.0, "byte_scale": "auto", "max_error": "1 %"},
    "expect": {"makespan": "1 s", "tolerance": 0.5},
    "seed": 3,
}
DGTP: dict[str, Any] = {
    "cluster": {"machines": [{"name": "m", "count": 2, "cpu": 6, "nic": "1 Mbit/s"}]},
    "job": {
        "system": "dgtp",
        "dataset": {"name": "products-like", "scale": 0.0005},
        "model": {"hidden": 4, "layers": 2},
        "fanouts": [2, 3],
        "batch_size": 8,
        "workers": 2,
        "samplers_per_worker": 2,
        "demands": {"sampler": {"cpu": 1}},
        "times": {
            "graph_store": "1 ms", "sampler": "1 ms", "worker": "1 ms",
            "parameter_server": "1 ms", "graph_store_hop": "1 ms",
            "sampler_hop": "1 ms", "sampler_fetch": "1 ms",
        },
        "iterations": 2,
        "sampling": "oneshot",
    },
    "placement": {"policy": "etp", "iterations": 20, "tasks": {"s1": "m1"}},
    "seed": 1,
}  # fmt: skip

WORDS = [
    "a", "b", "m0", "m1", "g0", "s0", "w0", "ps0", "x", "", "a/b", "c d", "unlimited",
    "auto", "1 s", "0 s", "2 min", "40 B", "0 B", "1e300 B", "1e-300 s", "1 Gbit/s",
    "5 %", "multiround", "shard", "hash", "padded", "custom", "dgtp", "cora",
    "reddit-like", *PLACEMENT_POLICIES, *RATE_POLICIES,
]  # fmt: skip
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from([0, 1, 2, 3, 7, 17, -1, 0.5, 1e-9, None, True, [], {}]),
    st.lists(st.sampled_from(["1 s", "2 s", "4 B", 3, "a"]), max_size=4),
    st.dictionaries(st.sampled_from(["cpu", "s0", "w0", "name", "fpga"]),
                    st.sampled_from([1, 9, "a", "m1", "1 GB"]), max_size=2),
)  # fmt: skip


def _trails(node: Any, trail: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if not isinstance(node, dict | list):
        return
    for key in node if isinstance(node, dict) else range(len(node)):
        yield (*trail, key)
        yield from _trails(node[key], (*trail, key))


def _like(value: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of the same kind, of which many are good."""
    if isinstance(value, bool | float | int):
        return st.sampled_from([0, 1, 2, 3, 4, 6, 12, 0.5])
    if isinstance(value, str) and " " in value:
        _, unit = value.split()
        return st.sampled_from(
            [f"0 {unit}", f"1 {unit}", f"1e9 {unit}", f"1e-9 {unit}"]
        )
    return st.sampled_from(WORDS) if isinstance(value, str) else VALUES


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a scenario with one to three values changed, removed, renamed or doubled."""
    document: dict[str, Any] = copy.deepcopy(draw(st.sampled_from([CUSTOM, DGTP])))
    for _ in range(draw(st.integers(1, 3))):
        trails = list(_trails(document))
        *above, key = draw(st.sampled_from(trails))
        place: Any = document
        for step in above:
            place = place[step]
        change = draw(
            st.sampled_from(
                ["like", "like", "like", "like", "set", "drop", "double", "name"]
            )
        )
        if change == "like":
            place[key] = draw(_like(place[key]))
        elif change == "set":
            place[key] = draw(VALUES)
        elif change == "drop":
            del place[key]
        elif isinstance(place, list):
            place.append(copy.deepcopy(place[key]))
        else:
            place[draw(st.sampled_from(["name", "lag", "pin", "count", key]))] = place[
                key
            ]
    return document


@pytest.mark.filterwarnings("error::RuntimeWarning")
@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(document=mutated())
def test_what_is_good_can_be_simulated(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    job = document.get("job")
    dataset = job.get("dataset") if isinstance(job, dict) else None
    scale = dataset.get("scale", 0) if isinstance(dataset, dict) else 0
    assume(not isinstance(scale, int | float) or scale < 0.01)  # half a graph: 100 s
    file = tmp_path / "mutated.json"
    file.write_text(json.dumps(document))
    try:
        errors = find_errors(file)
    except ScenarioError:
        return
    if not errors:
        schedule = prepare(load(file)).simulate()
        assert schedule.makespan >= 0
        return
    for error in errors:
        assert error.problem
        assert "\n" not in str(error)
