"""Programs that cannot be trained, each with one error, and what is measured."""

from __future__ import annotations

import random  # noqa: TID251 - its state is looked at
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.graph_data import open_for
from emu.training import (
    OwnModel,
    build_model,
    evaluate,
    initial_parameters,
    reference_training,
    try_out,
)
from tests.training.programs import DGL, HEAD, PROGRAMS, TORCH, model_of

BODY = """
class Net(nn.Module):
    def __init__(self, in_size, out_size):
        super().__init__()
        self.linear = nn.Linear(in_size, out_size)

    def forward(self, blocks, x):
        scores = self.linear(x[: blocks[-1].num_dst_nodes()])
        return scores
"""
NET = HEAD + BODY


def told(settings: dict[str, Any], source: str, **args: object) -> str:
    settings["model"] = model_of("torch") | {"source": source, "args": args}
    with pytest.raises(DataError) as caught:
        try_out(settings)
    assert str(caught.value).startswith("torch.py:Net: ")
    assert "\n" not in str(caught.value)
    return caught.value.problem


WRONG: dict[str, tuple[Callable[[str], str], str]] = {
    "import": (
        lambda s: f"import no_such_library\n{s}",
        "No module named 'no_such_library': files beside it are not taken along, inst",
    ),
    "syntax": (lambda s: s.replace("class Net(", "class Net(("), "SyntaxError"),
    "null": (lambda s: f"{s}\0", "does not build a model: "),
    "exit": (lambda s: f"{s}\nraise SystemExit(3)", "SystemExit: 3 (line 13"),
    "raises": (
        lambda s: s.replace("super().__init__()", "super().__init__(); 1 / 0"),
        "does not build a model: ZeroDivisionError: division by zero (line 6 of",
    ),
    "another name": (
        lambda s: s.replace("class Net", "class Other"),
        "holds nothing to call by the name 'Net'; it defines Other",
    ),
    "a number": (lambda s: f"{s}\nNet = 3", "nothing to call by the name 'Net'"),
    "imported": (
        lambda s: f"{s}\nfrom os import abort as Net",
        "is neither a class of torch.nn.Module nor a function of this file: it is",
    ),
    "made": (
        lambda s: f"{s}\nfrom functools import partial\nNet = partial(exit, 3)",
        "is neither a class of torch.nn.Module nor a function of this file",
    ),
    "another class": (
        lambda s: f"{s}\nclass Net:\n  def __new__(cls): raise SystemExit(3)",
        "is neither a class of torch.nn.Module nor a function of this file: it is Net",
    ),
    "no module": (lambda _: "def Net(): return 3", "returns int, a torch.nn.Module"),
    "argument": (
        lambda s: s.replace("in_size, out_size", "in_size, out_size, width"),
        "needs width: write for example job.model.args: {width: 64}",
    ),
    "no parameters": (
        lambda s: s.replace("nn.Linear(in_size, out_size)", "None"),
        "has no parameters",
    ),
    "lazy": (
        lambda s: s.replace("nn.Linear(in_size, ", "nn.LazyLinear("),
        "does not build a model: ",
    ),
    "fewer classes": (
        lambda s: s.replace("out_size)\n\n", "out_size - 1)\n\n"),
        "returns shape (32, 46) torch.float64, one score per seed and class is needed",
    ),
    "all sources": (
        lambda s: s.replace("x[: blocks[-1].num_dst_nodes()]", "x"),
        "one score per seed and class is needed",
    ),
    "heads": (
        lambda s: s.replace("return scores", "return scores.unsqueeze(1)"),
        "returns shape (32, 1, 47)",
    ),
    "a pair": (
        lambda s: s.replace("return scores", "return scores, x"),
        "returns tuple",
    ),
    "half": (
        lambda s: s.replace("return scores", "return scores.float()"),
        "returns shape (32, 47) torch.float32, one score",
    ),
    "detached": (
        lambda s: s.replace("return scores", "return scores.detach()"),
        "fails in training: RuntimeError: element 0 of tensors does not require grad",
    ),
    "fails": (
        lambda s: s.replace("return scores", "return scores @ x"),
        "fails in training: RuntimeError: mat1 and mat2 shapes cannot be multiplied",
    ),
    "no blocks": (
        lambda s: s.replace("blocks, x", "x").replace("[: blocks[-1].num_", "[: x.num"),
        "fails in training: TypeError: ",
    ),
    "numpy in the constructor": (
        lambda s: f"import numpy as np\n{s}".replace(
            "out_size)\n\n",
            "out_size)\n        self.linear.weight.data *= "
            "np.random.default_rng().random()\n\n",
        ),
        "draws random numbers unseeded while it is built",
    ),
    "numpy": (
        lambda s: f"import numpy as np\n{s}".replace(
            "return scores", "return scores * np.random.default_rng().random()"
        ),
        "draws random numbers unseeded, or keeps values from call to call",
    ),
    "torch": (
        lambda s: s.replace(
            "return scores",
            "g = torch.Generator(); g.seed()\n"
            "        return scores * torch.rand(scores.shape, generator=g)",
        ),
        "draws random numbers unseeded",
    ),
    "the system": (
        lambda s: f"import os\n{s}".replace(
            "return scores", "return scores * os.urandom(1)[0]"
        ),
        "draws random numbers unseeded",
    ),
    "a counter": (
        lambda s: s.replace(
            "return scores",
            "self.calls = getattr(self, 'calls', 0) + 1\n"
            "        return scores * self.calls",
        ),
        "keeps values from call to call",
    ),
    "batch norm": (
        lambda s: s.replace(
            "nn.Linear(in_size, out_size)",
            "nn.Sequential(nn.Linear(in_size, out_size), nn.BatchNorm1d(out_size))",
        ),
        "changes its buffer linear.1.running_mean in training",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_trained_is_one_error(
    settings: dict[str, Any], case: str
) -> None:
    settings["batch_size"] = 40
    change, expected = WRONG[case]
    assert change(NET) != NET

    assert expected in told(settings, change(NET))


def test_an_argument_that_it_does_not_take(settings: dict[str, Any]) -> None:
    problem = "takes no 'hidden', it takes in_size, out_size: see job.model.args"
    assert told(settings, NET, hidden=3) == problem


def test_a_vertex_without_neighbours(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GraphConv of dgl refuses one, which is found before a run meets it."""
    pytest.importorskip("dgl")
    dataset = open_for(settings)
    indptr, indices = (np.array(a) for a in (dataset.structure.indptr,
                                             dataset.structure.indices))  # fmt: skip
    vertex = int(np.argmin(np.diff(indptr)))
    first, last = indptr[vertex : vertex + 2]
    indptr[vertex + 1 :] -= last - first
    lonely = type(dataset.structure)(indptr, np.delete(indices, np.s_[first:last]))
    monkeypatch.setattr(type(dataset), "structure", lonely)
    settings["model"] = model_of("sage")
    assert try_out({**settings, "batch_size": 13}).parameters > 0
    settings["model"] = model_of("gcn")
    with pytest.raises(DataError, match="0-in-degree"):
        try_out({**settings, "batch_size": 13})


@pytest.mark.parametrize("name", PROGRAMS)
def test_parameters_and_products_are_counted(
    settings: dict[str, Any], name: str
) -> None:
    if name not in ("torch", "adjs"):
        pytest.importorskip("dgl")
    settings["model"] = model_of(name)
    figures = try_out(settings)
    in_, hid, out = 100, 16, 47
    expected = {
        "sage": 2 * in_ * hid + hid + 2 * hid * out + out,
        "gcn": in_ * hid + hid + hid * out + out,
        "gat": 2 * (in_ * hid + 3 * hid) + 2 * hid * out + 3 * out,
        "torch": 2 * in_ * hid + hid + 2 * hid * out + out,
    }
    expected["adjs"] = expected["torch"]

    assert figures.parameters == expected[name]
    assert figures.seconds > 0
    assert figures.flops > 0


def test_flops_are_those_of_the_products(settings: dict[str, Any]) -> None:
    """Two per weight and seed forward, and two backward to the weights."""
    settings["model"] = model_of("torch") | {"source": NET, "args": {}}

    assert try_out(settings).flops == 4 * 100 * 47 * 12


def test_frozen_and_shared_parameters(settings: dict[str, Any]) -> None:
    source = NET.replace(
        "out_size)\n\n",
        "out_size)\n        self.same = self.linear\n"
        "        self.linear.bias.requires_grad_(False)\n"
        "        self.unused = nn.Linear(2, 3)\n\n",
    )
    settings["model"] = model_of("torch") | {"source": source, "args": {}}
    model = build_model(settings, open_for(settings))
    assert isinstance(model, OwnModel)
    assert model.shapes == {
        "linear.weight": (47, 100), "unused.weight": (3, 2), "unused.bias": (3,)
    }  # fmt: skip
    trained, losses = reference_training(settings, 4)

    assert losses[-1] < losses[0]
    first = initial_parameters(settings, open_for(settings))
    np.testing.assert_array_equal(trained[4700:], first[4700:])
    assert (trained[:4700] != first[:4700]).any()


def test_the_callers_random_numbers_are_left_alone(settings: dict[str, Any]) -> None:
    import torch

    settings["model"] = model_of("torch", p=0.5)
    model = OwnModel(settings, open_for(settings))
    del model
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002 - the state of the caller
    random.seed(1)
    before = str(np.random.get_state()), random.getstate()  # noqa: NPY002
    drawn = torch.rand(1)
    torch.manual_seed(1)
    reference_training(settings, 1)

    assert torch.rand(1) == drawn
    assert random.getstate() == before[1]
    assert str(np.random.get_state()) == before[0]  # noqa: NPY002


def test_dropout_differs_by_worker_and_iteration(settings: dict[str, Any]) -> None:
    settings["model"] = model_of("torch", p=0.5)
    dataset = open_for(settings)
    model = OwnModel(settings, dataset)
    from emu.training.own_model import _small_batch

    batch = _small_batch(settings, dataset)
    found = [model.gradient([batch], w, n)[1] for w in (0, 1) for n in (0, 1)]

    assert len(set(found)) == 4
    assert found == [model.gradient([batch], w, n)[1] for w in (0, 1) for n in (0, 1)]


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - {"gcn"}))
def test_accuracy_is_of_one_call_with_the_whole_graph(
    settings: dict[str, Any], name: str
) -> None:
    """As few vertices, each with all its neighbours, say it.

    Not of GraphConv, which divides by out-degrees that a block has not.
    """
    if name not in ("torch", "adjs"):
        pytest.importorskip("dgl")
    from emu.graph_data import ALL_NEIGHBOURS, BatchPlan, sample_batch
    from emu.training.layers import as_tensor
    from emu.training.reference import predict

    settings["model"] = model_of(name, p=0.5)
    parameters, _ = reference_training(settings, 3)
    dataset, plan = open_for(settings), BatchPlan.from_settings(settings)
    whole = predict(settings, dataset, parameters)
    model = OwnModel(settings, dataset)
    model.load(parameters)
    fanouts, stream = (ALL_NEIGHBOURS,) * 2, plan.stream(0, 0)
    some = sample_batch(
        dataset.structure, dataset.test[:20], fanouts=fanouts, stream=stream
    )
    rows = as_tensor(dataset.gather(some.vertices))
    found = model.predict(some.sizes, some.edges, rows)

    np.testing.assert_array_equal(found.numpy(), whole[dataset.test[:20]])
    assert set(evaluate(settings, parameters)) == {"train", "valid", "test"}


def test_a_vector_of_another_length_is_refused(settings: dict[str, Any]) -> None:
    settings["model"] = model_of("torch")
    model = OwnModel(settings, open_for(settings))

    with pytest.raises(ValueError, match="3 parameters for a model of"):
        model.load(np.zeros(3))


def test_what_a_program_prints_is_no_output(
    settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    settings["model"] = model_of("torch") | {"source": f"print('hi')\n{TORCH}"}
    OwnModel(settings, open_for(settings))

    assert capsys.readouterr().out == ""


def test_batch_norm_without_running_statistics(settings: dict[str, Any]) -> None:
    source = DGL + BODY.replace(
        "nn.Linear(in_size, out_size)",
        "nn.Sequential(nn.Linear(in_size, out_size),"
        " nn.BatchNorm1d(out_size, track_running_stats=False))",
    )
    pytest.importorskip("dgl")
    settings["model"] = model_of("torch") | {"source": source, "args": {}}

    assert try_out(settings).parameters == 47 * 101 + 2 * 47
