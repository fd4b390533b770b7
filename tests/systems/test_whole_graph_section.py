"""Keys of systems that train on the whole graph: settings, and what is refused."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import ValidationError

from emu.errors import ScenarioError
from emu.problem.fields.cluster_section import ClusterSection
from emu.scenario.scenario_file import loads
from emu.systems.job_section import BuildContext
from emu.systems.model_section import ModelSection
from emu.systems.whole_graph_section import (
    TimePerLayer,
    WholeGraphModelSection,
    WholeGraphSection,
    layer_time,
)


class Example(WholeGraphSection):
    """A system of these keys and a time."""

    system: Literal["example"] = "example"
    forward: TimePerLayer = (0.0,)


def section(**changes: Any) -> Example:
    stated = {
        "dataset": "products-like",
        "model": {"hidden": 8, "layers": 2},
        "epochs": 3,
    }
    return Example.model_validate({**stated, **changes})


def problems(found: WholeGraphSection, machines: int = 4) -> dict[str, str]:
    cluster = ClusterSection.model_validate(
        {"machines": [{"count": machines, "nic": "10 Gbit/s"}]}
    )
    return {".".join(map(str, at)): said for at, said in found.problems(cluster)}


def test_settings_are_those_that_programs_and_data_sets_read() -> None:
    found = section(partitioner="hierarchical", boxes=[1, 2], machines=["b", "c", "d"])
    context = BuildContext(("a", "b", "c", "d"), None, seed=7)

    settings = found.whole_graph_settings(context)

    assert problems(section()) == {}
    assert settings["dataset"]["seed"] == 7
    assert (settings["parts"], settings["boxes"]) == (3, [1, 2])
    assert settings["model"] == {
        "kind": "gcn",
        "hidden": 8,
        "layers": 2,
        "norm": "symmetric",
        "activation": "relu",
    }
    assert found.iterations == 3
    assert found.length == "3 epochs"


@pytest.mark.parametrize(
    ("kind", "norm", "expected"),
    [
        ("gcn", None, "symmetric"),
        ("gcn", "mean", "mean"),
        ("sage", None, "mean"),
        ("commnet", "symmetric", "symmetric"),
        ("gin", None, "sum"),
    ],
)
def test_the_norm_follows_from_the_kind(kind: str, norm: Any, expected: str) -> None:
    model = WholeGraphModelSection.model_validate(
        {"kind": kind, "norm": norm, "hidden": 4, "layers": 1}
    )

    assert model.settings()["norm"] == expected


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        ({"partitioner": "hierarchical"}, "job.partitioner",
         "without boxes to cut between first: write for example boxes: [2, 2], or"),
        ({"boxes": [2, 2]}, "job.boxes", "found boxes for metis, which knows none"),
        ({"boxes": [2, 1], "partitioner": "hierarchical"}, "job.boxes",
         "found boxes of 3 machines, 4 hold a part"),
        ({"model": {"kind": "gin", "norm": "mean", "hidden": 8, "layers": 2}},
         "job.model.norm", "found mean for gin, which sums"),
        ({"machines": ["m0", "m9"]}, "job.machines.1", "no machine 'm9'"),
    ],
)  # fmt: skip
def test_keys_that_contradict_each_other(
    changes: dict[str, Any], key: str, message: str
) -> None:
    assert message in problems(section(**changes))[key]


@pytest.mark.parametrize("key", ["fanouts", "batch_size", "iterations"])
def test_keys_of_sampled_systems_are_refused_and_explained(key: str) -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        section(**{key: 5})

    assert key in Example.foreign


def test_times_are_one_or_one_per_layer() -> None:
    one, two = section(forward="2 ms"), section(forward=["2 ms", {"default": "1 s"}])

    assert [layer_time(one.forward, layer) for layer in (0, 1)] == [0.002, 0.002]
    assert layer_time(two.forward, 1) == {"default": 1.0}
    assert [*two.layer_problems("forward", two.forward)] == []
    (found,) = two.layer_problems("forward", (1.0, 1.0, 1.0))
    assert "found 3 times for a model of 2 layers" in found[1]
    for example in (one, two):
        assert Example.model_validate(example.model_dump()) == example


SAMPLED = """\
cluster:
  machines: [{count: 4, nic: 10 Gbit/s}]
job:
  system: data_parallel
  dataset: {name: products-like, scale: 0.001}
  model: {kind: gcn, norm: NORM, hidden: 8, layers: 2}
  fanouts: [3, 2]
  batch_size: 16
  iterations: 3
  times: {sampler: 1 ms, worker: 4 ms}
"""


def test_sampled_systems_take_the_mean_alone() -> None:
    model = loads(SAMPLED.replace("NORM", "mean")).job.model  # type: ignore[attr-defined]
    assert isinstance(model, ModelSection)
    assert "norm" not in model.model_dump()

    with pytest.raises(ScenarioError, match="a sampled block does not have") as found:
        loads(SAMPLED.replace("NORM", "symmetric"))
    assert found.value.key == "job.model.norm"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fanouts: [5, 10]", "system dgcl has no fanouts, nothing is sampled"),
        ("batch_size: 10", "system dgcl has no batch_size, there are no mini-batches"),
        ("iterations: 10", "system dgcl has no iterations, an iteration is an epoch"),
        ("partitioner: hierarchical", "found hierarchical without boxes"),
    ],
)
def test_a_scenario_says_what_a_whole_graph_needs(line: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message) as found:
        loads(WHOLE + f"  {line}\n")
    assert found.value.key == f"job.{line.partition(':')[0]}"


WHOLE = """\
cluster: {topology: dgx1}
job:
  system: dgcl
  dataset: products-like
  model: {hidden: 8, layers: 2}
  epochs: 3
  times: {forward: 1 ms, backward: 2 ms}
"""
