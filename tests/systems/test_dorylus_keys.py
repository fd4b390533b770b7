"""Keys of Dorylus at their bounds: launches, stragglers, quotas, models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from emu.systems.dorylus.sections import (
    DorylusModelSection,
    LaunchSection,
    SlowLambdasSection,
    TunerSection,
)
from emu.systems.dorylus.steps import attention_steps, convolution_steps
from tests.systems.test_dorylus_job import shape_of


@pytest.mark.parametrize(
    ("keys", "takes_time"),
    [({}, False), ({"cold": "1 ms"}, True), ({"warm": "1 ms"}, True)],
)
def test_a_launch_is_a_task_where_either_takes_time(
    keys: dict[str, str], *, takes_time: bool
) -> None:
    assert LaunchSection.model_validate(keys).takes_time is takes_time


SLOW: dict[str, Any] = {
    "constant": [[1, 3, 3, 3], [1, 1, 1, 3], [3, 3, 3, 1]],
    "exponential": [
        [1.0, 4.7799, 1.631118, 1.060397],
        [1.0, 1.0, 1.0, 2.119194],
        [2.289227, 1.923859, 1.777811, 1.0],
    ],
}


@pytest.mark.parametrize("spread", SLOW)
def test_who_is_slow_by_a_seed_is_frozen(spread: str) -> None:
    """Three lambdas are drawn in four epochs."""
    section = SlowLambdasSection.model_validate(
        {"share": 0.5, "factor": 3.0, "spread": spread}
    )
    np.testing.assert_allclose(section.factors(5, (3, 4)), SLOW[spread], rtol=1e-5)


def test_a_period_is_a_millisecond_or_more() -> None:
    assert TunerSection.model_validate({"period": "1 ms"}).period == 0.001
    assert TunerSection().period == 1.0
    with pytest.raises(ValidationError, match="write 1 ms or more"):
        TunerSection.model_validate({"period": "0.999 ms"})


@pytest.mark.parametrize(
    ("keys", "quota"),
    [
        ({"intervals": 7}, 7),
        ({"intervals": 100}, 100),
        ({"intervals": 101}, 100),
        ({"intervals": 101, "lambdas": 101}, 101),
        ({"intervals": 7, "lambdas": 3}, 3),
        ({"intervals": 7, "lambdas": "auto"}, 7),
    ],
)
def test_a_quota_is_of_intervals_up_to_a_hundred(
    keys: dict[str, Any], quota: int
) -> None:
    assert shape_of(2, **keys).quota == quota


def test_models_have_no_biases_and_attention_has_no_norm() -> None:
    gcn = DorylusModelSection.model_validate({"hidden": 4})
    assert gcn.settings()["kind"] == "plain_gcn"
    assert gcn.settings()["norm"] == "symmetric"
    assert (gcn.layers, gcn.activation) == (2, "tanh")
    gat = DorylusModelSection.model_validate({"hidden": 4, "kind": "gat"})
    assert (gat.settings()["kind"], gat.settings()["norm"]) == ("plain_gat", "sum")


def test_graph_servers_are_machines_that_are_neither_lambdas_nor_serve_weights() -> (
    None
):
    section = shape_of(2, machines=None, parameter_servers=["p", "q"], intervals=2)
    names = ["g0", "p", "lambda0", "g1", "q", "lambda1"]
    assert section.ranks(names) == ("g0", "g1")
    assert section.lambdas_of(("g0", "g1")) == tuple(f"lambda{n}" for n in range(4))
    on_servers = section.model_copy(update={"backend": "cpu"})
    assert on_servers.lambdas_of(("g0", "g1")) == ()
    assert (section.lag, shape_of(2, mode="async", staleness=2).lag) == (1, 3)


def test_steps_of_an_epoch_in_their_order() -> None:
    """Features are not scattered, and get no gradient; of two layers one scatters."""

    def words(steps: list[Any]) -> str:
        return " ".join(f"{step.name}:{step.layer}" for step in steps)

    assert words(convolution_steps(1, fuse=True)) == "ga0:0 av0:0"
    assert words(convolution_steps(2, fuse=True)) == (
        "ga0:0 av0:0 sc:1 ga1:1 av1:1 dsc:1 dga:1 dav:0"
    )
    assert words(convolution_steps(3, fuse=False)) == (
        "ga0:0 av0:0 sc1:1 ga1:1 av1:1 sc2:2 ga2:2 av2:2 dav2:2 "
        "dsc2:2 dga2:2 dav1:1 dsc1:1 dga1:1 dav0:0"
    )
    assert words(attention_steps(2)) == (
        "av0:0 sc0:0 ae0:0 ga0:0 av1:1 sc1:1 ae1:1 ga1:1 "
        "dae1:1 dsc1:1 dga1:1 dav1:1 dae0:0 dsc0:0 dga0:0 dav0:0"
    )
    needs = {
        (step.name, rematerialize)
        for step in [*convolution_steps(2, fuse=False), *attention_steps(1)]
        for rematerialize in (False, True)
        if step.needs_weights(rematerialize=rematerialize)
    }
    assert needs == {
        *(("dav1", False), ("dav1", True), ("dav", True), ("dav0", True)),
        *(("ae0", False), ("ae0", True), ("dae0", False), ("dae0", True)),
    }
    early = [step.name for step in attention_steps(1) if step.launches_early]
    assert early == ["av0", "dae0", "dav0"]
