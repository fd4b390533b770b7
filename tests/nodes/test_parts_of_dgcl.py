"""Parts of DGCL's programs, each with what comes and goes stated by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu_nodes.dgcl import programs
from emu_nodes.dgcl.programs import (
    Carrier,
    Device,
    Gradient,
    Host,
    Layer,
    Pass,
    Received,
    Stage,
    Tables,
)
from emu_nodes.program import EdgeSpec, TaskSpec


def rows(*values: float) -> Any:
    """Return rows of one number each."""
    return np.array(values).reshape(-1, 1)


def part(local: int, held: int = 0, remote: int = 0) -> Any:
    """Return a part of so many vertices."""
    return SimpleNamespace(
        local=np.arange(local),
        held=np.arange(held),
        vertices=np.arange(local + held + remote),
    )


def device(kind: type = Device, **fields: Any) -> Any:
    """Return device 1 of three, of a model of three layers, without data."""
    made: Any = object.__new__(kind)
    made.rank, made.ranks, made.layers = 1, 3, 3
    made.parts = [part(2, 1, 3), part(3, 0, 2), part(4, 0, 1)]
    made._hidden, made._classes = 5, 7
    made._dataset = SimpleNamespace(feature_length=9)
    made._precision = np.dtype("float32")
    made._cached = True
    made._model = None
    made._rows, made._arrived = {}, {}
    made._process = {}
    made._features = rows(1.0, 2.0)
    made._gradient = rows(8.0)
    made._steps = 0
    for name, field in fields.items():
        setattr(made, name, field)
    return made


def forward(layer: int, iteration: int = 6) -> Pass:
    """Return a forward pass."""
    return Pass(layer, backward=False, iteration=iteration)


def backward(layer: int, iteration: int = 6) -> Pass:
    """Return a pass back with gradients."""
    return Pass(layer, backward=True, iteration=iteration)


def test_rows_of_a_device_are_its_part_s_and_then_those_it_relays() -> None:
    """Device 1 has vertices 4 and 8, reads 2, and relays 6 from device 0 to 2."""
    vertices = np.array([4, 8, 2])
    own: Any = SimpleNamespace(vertices=vertices, local=vertices[:2])
    transfers = [
        (1, 1, 2, np.array([6, 8])),
        (0, 2, 1, np.array([2])),
        (0, 0, 1, np.array([6])),
        (0, 1, 0, np.array([4])),
        (0, 0, 2, np.array([1])),  # not of this device
    ]
    tables = Tables(1, own, transfers)

    sent = {key: places.tolist() for key, places in tables.sent.items()}
    assert sent == {(0, 0): [0], (1, 2): [3, 1]}
    received = {
        stage: [(sender, places.tolist()) for sender, places in arrivals]
        for stage, arrivals in tables.received.items()
    }
    assert received == {0: [(0, [3]), (2, [2])]}

    values = tables.begin(rows(1.0, 2.0))
    assert values.tolist() == [[1.0], [2.0], [0.0], [0.0]]
    tables.take_in(values, 0, {0: rows(5.0), 2: rows(7.0)}, add=False)
    assert values.tolist() == [[1.0], [2.0], [7.0], [5.0]]
    tables.take_in(values, 0, {0: rows(50.0), 2: rows(70.0)}, add=True)
    assert values.tolist() == [[1.0], [2.0], [77.0], [55.0]]
    tables.take_in(values, 1, {}, add=True)  # nothing comes in this stage


def test_what_a_stage_brought_is_kept_until_the_next_takes_it_in() -> None:
    """Passes and stages apart, as copies; gradients add up, rows do not."""
    taken: list[Any] = []

    def take_in(**given: Any) -> None:
        taken.append(given)

    tables = SimpleNamespace(take_in=take_in)
    made = device(
        Carrier,
        _tables={(1, False): tables, (1, True): tables},
        _rows={forward(1): "rows", backward(1): "gradients"},
    )
    came = rows(1.0)
    made.receive(forward(1), 0, 5, came)
    made.receive(forward(1), 0, 7, rows(2.0))
    made.receive(forward(1), 1, 5, rows(3.0))
    made.receive(backward(1), 0, 5, rows(4.0))
    came[:] = 9.0
    made.enter(forward(1), 0)
    assert taken == []
    for key, stage in ((forward(1), 1), (backward(1), 1), (forward(1), 2)):
        made.enter(key, stage)
    made.enter(forward(1), 1)

    found = [
        {sender: float(array[0, 0]) for sender, array in call["parts"].items()}
        for call in taken
    ]
    assert found == [{5: 1.0, 7: 2.0}, {5: 4.0}, {5: 3.0}, {}]
    assert [call["stage"] for call in taken] == [0, 0, 1, 0]
    assert [call["add"] for call in taken] == [False, True, False, False]
    assert [call["values"] for call in taken] == ["rows", "gradients", "rows", "rows"]
    assert made._arrived == {}


def test_rows_of_a_stage_go_to_their_receiver() -> None:
    sent = {(2, 0): np.array([1]), (2, 3): np.array([2, 0])}
    tables = {(1, True): SimpleNamespace(sent=sent)}
    made = device(Carrier, _tables=tables, _rows={backward(1): rows(5.0, 6.0, 7.0)})
    assert made.send(backward(1), 2, 3).tolist() == [[7.0], [5.0]]
    assert made.send(backward(1), 2, 0).tolist() == [[6.0]]


def test_a_host_forgets_rows_after_the_last_stage() -> None:
    """A layer's plan has two stages: they are needed until the stage after those."""
    begun: list[Any] = []

    def begin(values: Any) -> Any:
        begun.append((values.shape, values.dtype))
        return "rows"

    tables = SimpleNamespace(begin=begin, take_in=lambda **_: None)
    made = device(
        Host,
        _tables={(0, False): tables, (2, False): tables},
        _plans=dict.fromkeys([(0, False), (2, False)], SimpleNamespace(stages=2)),
    )
    for layer in (0, 2):
        for stage in (0, 1):
            made.enter(forward(layer), stage)
            assert made._rows == {forward(layer): "rows"}
        made.enter(forward(layer), 2)
        assert made._rows == {}
    assert begun == [((0, 9), np.float32), ((0, 5), np.float32)]


@pytest.mark.parametrize(
    ("layer", "stage", "begins"), [(0, 0, True), (0, 1, False), (1, 0, False)]
)
def test_features_are_gathered_from_the_first_stage_of_the_first_layer(
    layer: int, stage: int, *, begins: bool
) -> None:
    tables = SimpleNamespace(
        begin=lambda first: ("begun", first), take_in=lambda **_: None
    )
    made = device(_features="features", _tables={(layer, False): tables})
    made._rows[forward(layer)] = "before"
    made.enter(forward(layer), stage)
    expected = ("begun", "features") if begins else "before"
    assert made._rows == {forward(layer): expected}


@pytest.mark.parametrize(
    ("layer", "cached", "gathered", "expected"),
    [
        (0, True, True, "features"),
        (0, False, True, 6),  # of the layer's part: two local, one held, three remote
        (0, False, False, "features"),  # of one device, which gathers none
        (1, True, True, 5),
    ],
)
def test_a_layer_reads_the_rows_of_its_part_without_relays(
    layer: int, expected: Any, *, cached: bool, gathered: bool
) -> None:
    made = device(_cached=cached, _features="features")
    values = np.arange(8.0).reshape(-1, 1)
    if gathered:
        made._rows[forward(layer)] = values
    found = made.gather(layer, 6)
    if isinstance(expected, str):
        assert found == expected
    else:
        assert found.tolist() == values[:expected].tolist()
        assert made._rows == {}


def noting(made: Any) -> list[Any]:
    """Let a device note what it begins, and which gradients go back."""
    noted: list[Any] = []
    made._begin = lambda key, values: noted.append((key, values.shape, values.dtype))
    made._backward = lambda layer, iteration, gradient: noted.append(
        (layer, iteration, gradient.shape)
    )
    return noted


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (0, (forward(1), (2, 5), np.float32)),
        (1, (forward(2), (3, 5), np.float32)),
        (2, (2, 6, (4, 7))),
    ],
)
def test_without_computation_layers_have_rows_of_their_size(
    layer: int, expected: Any
) -> None:
    """Rows of local vertices are hidden ones, and classes in the last layer."""
    made = device()
    noted = noting(made)
    made.gather = lambda *_: None
    assert made.forward(layer, 6) == {}
    assert noted == [expected]


def test_figures_are_shares_times_the_devices() -> None:
    """So that their mean over three devices is that of the graph."""
    score = SimpleNamespace(gradient=rows(2.0), loss=0.5, accuracy=0.25)
    calls: list[Any] = []

    def compute(layer: int, read: Any) -> Any:
        calls.append((layer, read))
        return rows(4.0)

    made = device(_model=SimpleNamespace(forward=compute, score=lambda _: score))
    noted = noting(made)
    made.gather = lambda layer, iteration: (layer, iteration)
    made.step = calls.append
    assert made.forward(0, 6) == {}
    assert made.forward(2, 6) == {"loss": 1.5, "accuracy": 0.75}
    assert calls == [6, (0, (0, 6)), (2, (2, 6))]
    assert noted == [(forward(1), (1, 1), np.float64), (2, 6, (1, 1))]


def test_a_device_steps_once_for_every_epoch_before() -> None:
    """Its attempt begins with epoch 2; without computation nothing is stepped."""
    stepped: list[Any] = []
    loaded: list[Any] = []
    made = device(
        _steps=2,
        optimizer=SimpleNamespace(step=stepped.append),
        parameters="parameters",
        _gradient="sum",
    )
    made.step(4)
    assert made._steps == 2
    made._model = SimpleNamespace(load=loaded.append)
    for epochs, steps in ((2, 0), (4, 2), (4, 2), (5, 3)):
        made.step(epochs)
        assert len(stepped) == steps
    assert stepped == ["sum"] * 3
    assert loaded == ["parameters"] * 4
    assert made._steps == 5


def test_gradients_of_a_layer_are_those_of_its_local_rows() -> None:
    """The backward pass of layer 1 takes the local gradients of layer 2."""
    made = device()
    values = np.arange(6.0).reshape(-1, 1)
    made._rows[backward(2)] = values
    seen: list[Any] = []
    made._backward = lambda *given: seen.append(given)
    made.backward(1, 6)
    ((layer, iteration, gradient),) = seen
    assert (layer, iteration, gradient.tolist()) == (1, 6, values[:3].tolist())
    assert made._rows == {}


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("computes", [True, False])
def test_gradients_go_back_to_the_first_layer_and_are_shared_there(
    ranks: int, monkeypatch: pytest.MonkeyPatch, *, computes: bool
) -> None:
    """One device shares nothing; zeros have the size of all rows that a layer reads."""
    shared: list[Any] = []
    monkeypatch.setattr(programs, "share_vector", lambda **given: shared.append(given))
    begun: list[Any] = []
    made = device(ranks=ranks)
    made._begin = lambda key, values: begun.append((key, values.shape))
    gone: list[Any] = []

    def go_back(layer: int, gradient: Any) -> Any:
        gone.append((layer, gradient))
        return rows(1.0, 2.0) if layer else None

    if computes:
        made._model = SimpleNamespace(backward=go_back, gradient="of the model")
    for layer in (2, 1, 0):
        made._backward(layer, 6, f"gradient {layer}")
        assert len(shared) == (ranks > 1 and not layer)

    sizes = [(2, 1), (2, 1)] if computes else [(5, 5), (5, 5)]
    assert begun == [(backward(2), sizes[0]), (backward(1), sizes[1])]
    assert gone == [(n, f"gradient {n}") for n in (2, 1, 0)] * computes
    vector = "of the model" if computes else made._gradient
    assert len(shared) == (ranks > 1)
    for given in shared:
        assert (given["task"], given["iteration"]) == ("w1", 6)
        assert given["vector"] is vector
        assert given["process"] is made._process


@pytest.mark.parametrize(("rank", "kind"), [(3, "Host"), (2, "Device"), (0, "Device")])
def test_the_machine_behind_all_devices_is_a_host(
    rank: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks of a machine share it; layers are counted from 1 in the job."""
    made: list[Any] = []
    for name in ("Host", "Device"):
        monkeypatch.setattr(
            programs, name, lambda *given, name=name: made.append((name, len(given)))
        )
    settings = {"rank": rank, "layer": 2}
    brief = TaskSpec("t", "", 5, (), (), settings, {"parts": 3})
    process: dict[str, Any] = {}
    tasks: list[Any] = [Layer(brief, process), Gradient(brief, process)]
    assert made == [(kind, 1 if kind == "Host" else 2)]
    assert [task._layer for task in tasks] == [1, 1]


def task_of(kind: type, role: str = "", layer: int = 1, **settings: Any) -> Any:
    """Return a task of a layer, counted from 0, with a carrier that notes calls."""
    made: Any = object.__new__(kind)
    inputs = (EdgeSpec(3, "d0", "gather", 0, 5),)
    made._brief = TaskSpec("t", role, 5, inputs, (), settings, {})
    made._layer = layer
    made.calls = []

    def note(name: str) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            made.calls.append((name, *given, *named.values()))
            return f"{name} made"

        return call

    names = ("forward", "backward", "step", "enter", "send", "receive")
    made._carrier = SimpleNamespace(**{name: note(name) for name in names})
    made._carrier.parameters = "parameters"
    made._carrier.optimizer = SimpleNamespace(
        state=lambda: {"moments": 1}, restore=note("restore")
    )
    return made


def test_tasks_carry_out_their_layer_and_stage() -> None:
    layer = task_of(Layer)
    layer.work(6, {})
    assert layer.report() == "forward made"
    assert layer.result() == {}
    first = task_of(Layer, layer=0)
    assert first.result() == {"parameters": "parameters"}
    assert first.state(4) == {"moments": 1}
    first.restore({"d2": {"moments": 2}})
    assert layer.calls == [("forward", 1, 6)]
    restored = ("restore", {"moments": 2})
    assert first.calls == [("step", 5), ("step", 4), restored]

    gradient = task_of(Gradient)
    gradient.work(6, {})
    assert gradient.calls == [("backward", 1, 6)]


@pytest.mark.parametrize(
    ("role", "key"),
    [("gather", forward(1)), ("scatter", backward(1))],
)
@pytest.mark.parametrize(
    ("peer", "receiver"),
    [("f0.2to1", 1), ("b3.10to12@3", 12), ("d1.layer2", None), ("f0.2to1.x", None)],
)
def test_a_stage_sends_rows_to_who_keeps_them(
    role: str, key: Pass, peer: str, receiver: int | None
) -> None:
    """Others are of its device: they share its memory."""
    stage = task_of(Stage, role, stage=2)
    assert stage.work(6, {}) == key
    content = stage.payload(EdgeSpec(4, peer, "gathered", 0, 5), 6, key)
    entered = ("enter", key, 2)
    if receiver is None:
        assert content == {}
        assert stage.calls == [entered]
    else:
        assert content == {"rows": "send made"}
        assert stage.calls == [entered, ("send", key, 2, receiver)]


@pytest.mark.parametrize(
    ("role", "key"), [("gathered", forward(1)), ("scattered", backward(1))]
)
def test_rows_that_came_are_kept_for_the_next_stage(role: str, key: Pass) -> None:
    received = task_of(Received, role, stage=2, sender=7)
    received.work(6, {3: {"rows": "rows"}})
    assert received.calls == [("receive", key, 2, 7, "rows")]


def test_a_rehearsal_goes_through_all_layers_and_back() -> None:
    """Rows are as many as layers read, gradients as many as the layer below has."""
    calls: list[Any] = []

    def go_on(layer: int, read: Any) -> Any:
        calls.append((layer, read.shape))
        return rows(layer)

    def go_back(layer: int, gradient: Any) -> Any:
        calls.append(("back", layer, len(gradient)))
        return np.zeros((5, 5)) if layer else None

    model: Any = SimpleNamespace(
        load=calls.append,
        forward=go_on,
        backward=go_back,
        score=lambda scores: SimpleNamespace(gradient=10 * scores),
    )
    made = device(parameters="parameters")
    made._rehearse(model)
    assert calls == [
        "parameters",
        *((0, (6, 9)), (1, (5, 5)), (2, (5, 5))),
        *(("back", 2, 1), ("back", 1, 3), ("back", 0, 2)),
    ]
