"""Parts of Dorylus' programs, each with what comes and goes stated by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import NodeMisbehaved
from emu.systems.dorylus.deaths import ANSWERS, DIES, IDLE, LATE
from emu_nodes.dorylus import programs
from emu_nodes.dorylus.programs import (
    Answer,
    Apply,
    ApplyBack,
    Begin,
    Call,
    Gather,
    Held,
    Late,
    OnServer,
    Recall,
    Scatter,
    Stash,
    WeightUpdate,
    _Tensor,
)
from emu_nodes.dorylus.task import Computed, Nothing, Weights, sum_gradients
from emu_nodes.program import EdgeSpec, TaskSpec


def edge(number: int, peer: str, kind: str, **known: Any) -> EdgeSpec:
    """Return an edge of five iterations without lag."""
    stated: dict[str, Any] = {"lag": 0, "sent": 5}
    return EdgeSpec(number, peer, kind, **stated | known)


def task(kind: type, role: str = "", **fields: Any) -> Any:
    """Return a program without data, of interval 4 and layer 1 of two."""
    made: Any = object.__new__(kind)
    job_settings = {
        "model": {"kind": "plain_gcn", "layers": 2},
        "stream": 1,
        "fuse": True,
        "rematerialize": False,
        "staleness": 1,
    }
    brief = TaskSpec(
        name="t",
        kind=role,
        iterations=5,
        inputs=fields.pop("inputs", ()),
        outputs=fields.pop("outputs", ()),
        settings=fields.pop("settings", {}),
        job_settings=job_settings | fields.pop("job_settings", {}),
        first=fields.pop("first", 0),
    )
    made._brief = brief
    made._process = {}
    made._figures = {}
    made._reads = {}
    made._ends = None
    made.interval = 4
    made.layer = 1
    for name, field in fields.items():
        setattr(made, name, field)
    return made


def rows(*values: float) -> Any:
    """Return rows of one number each."""
    return np.array(values).reshape(-1, 1)


@pytest.mark.parametrize(
    ("end", "version", "loss", "sent"),
    [
        (ANSWERS, [8], {"loss": 12.0}, {"answer": {"z": 5}, "held": {}}),
        (LATE, [8], {}, {"answer": {}, "held": {"z": 5}}),
        (DIES, [8], {}, {"answer": {}, "held": {}}),
        (IDLE, None, {}, {"answer": {}, "held": {}}),
    ],
)
def test_a_lambda_sends_what_its_end_leaves(
    end: str, version: list[int] | None, loss: dict[str, float], sent: dict[str, Any]
) -> None:
    """Each of six parts, three in each of two intervals, has a loss of 2."""
    source = edge(1, "c", "call")
    made = task(
        _Tensor,
        "apply",
        inputs=(source,),
        _ends=[ANSWERS, end],
        last=True,
        count=6,
        part=0,
        parts=1,
    )
    made.weights = lambda _iteration, _inputs: Weights(rows(1.0), 8)
    outcome = Computed({"z": np.array([5])}, gradient=rows(3.0), loss=2.0)
    made.compute = lambda *_: outcome
    made._process["server"] = None  # it does not run there
    payload = made.work(1, {1: {"ah": rows(1.0)}})

    found = payload.get("version")
    assert (None if found is None else found.tolist()) == version
    assert made.report() == loss
    for kind, arrays in sent.items():
        content = made.payload(edge(2, "x", kind), 1, payload)
        assert {name: int(array[0]) for name, array in content.items()} == arrays
    has_gradient = end in {ANSWERS, LATE}
    for kind in ("gradient_sum", "weight_update"):
        content = made.payload(edge(2, "x", kind), 1, payload)
        assert [*content] == ["gradient"] * has_gradient
    if version is not None:
        assert made.payload(edge(2, "x", "stash"), 1, payload) == {"version": found}
    assert made.payload(edge(2, "x", "other"), 1, payload) == {}


@pytest.mark.parametrize(
    ("kind", "fuse", "last", "compares", "computes"),
    [
        ("apply", True, True, True, True),
        ("apply", False, True, True, False),
        ("apply_back", False, True, True, True),
        ("apply", True, False, True, False),
        ("apply", True, True, False, False),
    ],
)
def test_scores_are_compared_once(
    kind: str, *, fuse: bool, last: bool, compares: bool, computes: bool
) -> None:
    made = task(_Tensor, kind, job_settings={"fuse": fuse}, last=last)
    made.compares = compares
    assert made.computes_loss is computes


def test_parts_of_a_chunk_use_one_version_and_add_up() -> None:
    """Gradients 1, 10 and 100, losses 2, 20 and 200; answers are of each part alone."""
    process: dict[str, Any] = {}
    asked: list[int] = []

    def weights(iteration: int, _inputs: object) -> Weights:
        asked.append(iteration)
        return Weights(rows(7.0), 3)

    found = []
    for part in range(3):
        made = task(_Tensor, "apply", part=part, parts=3, _process=process)
        made.weights = weights
        outcome = Computed({"z": rows(part)}, rows(10.0**part), 2 * 10.0**part)
        made.compute = lambda *_, outcome=outcome: outcome
        found.append(made._compute_part(2, {}, {}))

    assert asked == [2]
    assert {version.version for version, _ in found} == {3}
    assert [float(each.gradient[0, 0]) for _, each in found] == [1.0, 11.0, 111.0]
    assert [each.loss for _, each in found] == [2.0, 22.0, 222.0]
    assert [float(each.answer["z"][0, 0]) for _, each in found] == [0.0, 1.0, 2.0]
    assert process["held"] == {}


def test_a_task_of_the_server_pulls_and_answers_there() -> None:
    calls: list[Any] = []

    def pull(*given: Any) -> Any:
        calls.append(given)
        return {"ah": rows(2.0)}

    server = SimpleNamespace(pull=pull, take_back=lambda **given: calls.append(given))
    made = task(
        _Tensor, "apply_back", last=False, part=0, parts=1, _process={"server": server}
    )
    made.weights = lambda *_: Weights(rows(7.0), 3)
    answer = {"gradient": rows(9.0)}
    made.compute = lambda *_: Computed(answer)
    payload = made.work(2, {})

    step = ("apply_back", 1)
    taken = {"step": step, "interval": 4, "epoch": 2, "answer": answer}
    assert calls == [(step, 4, 2), taken]
    assert [*payload] == ["version", "answer.gradient"]


def test_forward_weights_are_the_stashed_the_read_or_the_first() -> None:
    """An update of lag 1 in iteration 6 is version 5, or the one that was read."""
    update = edge(3, "u", "weight_update", lag=1)
    stash = edge(4, "s", "stash")
    made = task(Apply, inputs=(update, stash), first=6)
    made._process["initial"] = ["first of 0", "first of 1"]
    came = {3: {"weights": rows(1.0)}, 4: {"weights": rows(2.0)}}
    stashed = made.weights(6, came)
    assert (stashed.array.tolist(), stashed.version) == ([[2.0]], 0)
    assert not np.shares_memory(stashed.array, came[4]["weights"])
    del came[4]
    made._reads = {3: 2}
    assert made.weights(6, came).version == 2
    made._reads = {}
    newest = made.weights(6, came)
    assert (newest.array.tolist(), newest.version) == ([[1.0]], 5)
    assert not np.shares_memory(newest.array, came[3]["weights"])
    first = made.weights(6, {})
    assert (first.array, first.version) == ("first of 1", 5)


def test_backward_weights_are_stashed_or_none() -> None:
    made = task(ApplyBack, inputs=(edge(4, "s", "stash"),))
    made._process["initial"] = [rows(0.0), rows(1.0, 2.0)]
    assert made.weights(2, {4: {"weights": rows(5.0)}}).array.tolist() == [[5.0]]
    none = made.weights(2, {})
    assert (none.array.shape, none.version) == ((0, 1), -1)


@pytest.mark.parametrize(
    ("last", "rematerialize", "names"),
    [(False, False, ["h", "z"]), (False, True, ["h"]), (True, False, ["z"])],
)
def test_a_forward_pass_answers_with_what_is_needed_on_the_way_back(
    names: list[str], *, last: bool, rematerialize: bool
) -> None:
    made = task(
        Apply,
        "apply",
        last=last,
        activation="relu",
        job_settings={"rematerialize": rematerialize, "fuse": False},
    )
    pulled = {"ah": np.array([[1.0, 2.0], [1.0, -3.0]])}
    outcome = made.compute(pulled, np.array([[1.0], [2.0]]))
    assert [*outcome.answer] == names
    if "z" in names:
        assert outcome.answer["z"].tolist() == [[5.0], [-5.0]]
    if "h" in names:
        assert outcome.answer["h"].tolist() == [[5.0], [0.0]]


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("has_z", [True, False])
def test_a_backward_pass_goes_through_the_slope(layer: int, *, has_z: bool) -> None:
    """Relu of z = (5, -5) lets only the first row of gradients through."""
    made = task(ApplyBack, last=False, activation="relu", layer=layer)
    weights = np.array([[1.0], [2.0]])
    pulled = {
        "ah": np.array([[1.0, 2.0], [1.0, -3.0]]),
        "gradient": np.array([[3.0], [7.0]]),
    }
    if has_z:
        pulled["z"] = np.array([[5.0], [-5.0]])
    outcome = made.compute(pulled, weights)
    assert outcome.gradient.tolist() == [[3.0], [6.0]]
    answer = {name: array.tolist() for name, array in outcome.answer.items()}
    assert answer == ({"gradient": [[3.0, 6.0], [0.0, 0.0]]} if layer else {})


def test_a_stash_has_weights_of_the_version_that_was_used() -> None:
    """Below the weights of a GAT stand two rows of attention, for its edges."""
    held = {2: rows(1.0, 2.0, 3.0), 5: rows(4.0, 5.0, 6.0)}
    asked = edge(1, "i4", "apply")
    for kind, role, expected in (
        ("plain_gcn", "apply_back", [[4.0], [5.0], [6.0]]),
        ("plain_gat", "apply_back", [[4.0]]),
        ("plain_gat", "edge_apply", [[5.0], [6.0]]),
        ("plain_gat", "edge_apply_back", [[5.0], [6.0]]),
    ):
        made = task(
            Stash,
            inputs=(asked,),
            settings={"for": role},
            job_settings={"model": {"kind": kind, "layers": 2}},
            _process={"versions": [{}, held]},
        )
        version = {1: {"version": np.array([5])}}
        assert made.work(0, version)["weights"].tolist() == expected
    made = task(Stash, inputs=(asked,), _process={"versions": [{}, held]})
    with pytest.raises(NodeMisbehaved, match=r"i4 used version 3 .*held are \[2, 5\]"):
        made.work(0, {1: {"version": np.array([3])}})
    made._ends = [IDLE]
    assert made.work(0, {}) == {}


def test_an_update_keeps_as_many_versions_as_may_be_in_use() -> None:
    """A staleness of 1 needs three: two epochs apart, and the one being made."""
    stepped: list[Any] = []
    held: dict[int, Any] = {-1: rows(9.0)}
    made = task(
        WeightUpdate,
        inputs=(edge(1, "a", "apply"), edge(2, "b", "apply")),
        _held=held,
        _weights=rows(9.0),
        _most=3,
        _optimizer=SimpleNamespace(step=lambda flat: stepped.append(flat.tolist())),
    )
    for epoch in range(4):
        came = {1: {"gradient": rows(epoch)}, 2: {"gradient": rows(10.0)}}
        assert made.work(epoch, came)["weights"].tolist() == [[9.0]]
        assert held[epoch].tolist() == [[9.0]]
    assert stepped == [[10.0], [11.0], [12.0], [13.0]]
    assert sorted(held) == [1, 2, 3]

    made._brief = TaskSpec("t", "", 9, (), (), {}, made._brief.job_settings, first=7)
    made._optimizer.restore = stepped.append
    made.restore({"u": {"moments": 1}})
    assert stepped[-1] == {"moments": 1}
    assert [*held] == [6]


@pytest.mark.parametrize(("staleness", "most"), [(0, 2), (2, 4)])
def test_an_update_begins_with_a_copy_of_the_first_weights(
    staleness: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = np.arange(4.0).reshape(2, 2)
    given: list[Any] = []
    monkeypatch.setattr(programs, "make_optimizer", lambda _, flat: given.append(flat))
    brief = TaskSpec("t", "", 9, (), (), {"layer": 1}, {"staleness": staleness})
    made: Any = WeightUpdate(brief, {"versions": [{}, {-1: first}]})
    assert made._most == most
    assert given[0].tolist() == [0.0, 1.0, 2.0, 3.0]
    given[0][0] = 7.0
    assert made.result()["weights"].tolist() == [[7.0, 1.0], [2.0, 3.0]]
    assert first[0, 0] == 0.0


def test_gradients_of_one_chunk_count_once_and_attention_stands_below() -> None:
    """The first of two lambdas of chunk a counts, and lambda c has sent nothing."""
    inputs = (
        edge(1, "a.1", "apply"),
        edge(2, "e.1", "edge_apply"),
        edge(3, "a.2", "apply"),
        edge(4, "b.1", "apply"),
        edge(5, "c.1", "apply"),
        edge(6, "f.1", "edge_apply_back"),
    )
    came = {n: {"gradient": rows(10.0**n)} for n in (1, 2, 3, 4, 6)} | {5: {}}
    made = task(Nothing, inputs=inputs)
    total = sum_gradients(made._brief, came)
    assert total.tolist() == [[10_010.0], [1_000_100.0]]
    assert came[1]["gradient"].tolist() == [[10.0]]
    with pytest.raises(NodeMisbehaved, match="t has no gradient to sum"):
        sum_gradients(made._brief, {5: {}})


@pytest.mark.parametrize(
    ("stream", "peer", "expected"),
    [
        (1, "l.first", [1.0, 2.0, 3.0, 4.0, 5.0]),
        (2, "l.first", [1.0, 2.0, 3.0]),
        (2, "l.second", [4.0, 5.0]),
    ],
)
def test_a_chunk_in_two_parts_has_the_larger_one_first(
    stream: int, peer: str, expected: list[float]
) -> None:
    pulled: list[Any] = []

    def pull(*given: Any) -> Any:
        pulled.append(given)
        return {"ah": rows(1.0, 2.0, 3.0, 4.0, 5.0)}

    made = task(
        Call, job_settings={"stream": stream}, server=SimpleNamespace(pull=pull)
    )
    found = made.payload(edge(1, peer, "apply"), 3, {})
    assert found["ah"].ravel().tolist() == expected
    assert pulled == [(("apply", 1), 4, 3)]
    assert made.payload(edge(1, "x", "answer"), 3, {}) == {}


def test_a_lambda_is_launched_again_where_one_has_not_answered() -> None:
    asked: dict[Any, int] = {}
    server = SimpleNamespace(asked=asked, pull=lambda *_: {"ah": rows(1.0)})
    settings = {"tensor": 6, "attempt": 2}
    made = task(Recall, _ends=[IDLE, ANSWERS], settings=settings, server=server)
    out = edge(1, "l", "apply")
    for iteration, count in ((0, 0), (1, 1)):
        assert made.work(iteration, {}) == {}
        assert len(made.payload(out, iteration, {})) == count
    assert asked == {(4, 1, 6): 2}


def test_an_answer_joins_parts_and_skips_who_has_not_answered() -> None:
    """Answers are joined in the order of edges, and none come in the last step."""
    taken: list[Any] = []
    server = SimpleNamespace(take_back=lambda **given: taken.append(given))
    inputs = (
        edge(1, "x", "call"),
        edge(2, "a", "apply"),
        edge(3, "b", "apply_back"),
        edge(4, "c", "apply_back"),
    )
    made = task(Answer, inputs=inputs, server=server)
    came = {1: {"h": 0}, 2: {}, 3: {"h": rows(1.0)}, 4: {"h": rows(2.0, 3.0)}}
    made.work(2, came)
    made.work(3, {2: {}, 3: {}})
    assert [(t["step"], t["interval"], t["epoch"]) for t in taken] == [
        (("apply_back", 1), 4, 2),
        (("apply", 1), 4, 3),
    ]
    assert taken[0]["answer"]["h"].ravel().tolist() == [1.0, 2.0, 3.0]
    assert taken[1]["answer"] == {}


def test_late_answers_are_handed_over_and_dropped_by_their_number() -> None:
    """Only in the epochs in which their lambda answers late."""
    taken: list[Any] = []
    outcomes = [False, True, False]

    def take(**given: Any) -> bool:
        taken.append(given)
        return outcomes.pop(0)

    settings = {"tensor": 6, "attempt": 2, "of": "apply_back"}
    ends = [LATE, ANSWERS, LATE, LATE]
    made = task(
        Late,
        settings=settings,
        _ends=ends,
        server=SimpleNamespace(take=take),
        _dropped=0,
    )
    for epoch in range(4):
        assert made.work(epoch, {1: {"h": rows(epoch)}}) == {}
    assert [call["chunk"] for call in taken] == [(4, n, 6) for n in (0, 2, 3)]
    assert {call["number"] for call in taken} == {2}
    assert {call["step"] for call in taken} == {("apply_back", 1)}
    assert taken[1]["answer"]["h"].tolist() == [[2.0]]
    assert made.result()["dropped"].tolist() == [2]
    held = task(Held)
    assert held.work(0, {1: {"h": 5}}) == {"h": 5}
    assert held.work(0, {}) == {}


def test_rows_are_gathered_of_others_first_and_its_own_last() -> None:
    inputs = (
        edge(1, "s", "scatter"),
        edge(2, "g", "ghosts"),
        edge(3, "x", "answer"),
        edge(4, "b", "begin"),
        edge(5, "t", "scatter_back"),
    )
    came: Any = {n: {"of": n} for n in (1, 2, 3, 4, 5)}
    made = task(Begin, inputs=inputs)
    assert [payload["of"] for payload in made.rows(came)] == [2, 1, 4, 5]
    assert made.work(0, came) == {"of": 5}
    assert made.payload(edge(1, "x", "gather_back"), 0, {"a": 1}) == {"a": 1}
    assert made.payload(edge(1, "x", "answer"), 0, {"a": 1}) == {}


def test_what_is_gathered_has_a_name_of_its_direction() -> None:
    """Features never change: their sums are made once."""
    values: dict[str, Any] = {}
    server = SimpleNamespace(
        values=lambda interval, epoch: values if (interval, epoch) == (4, 2) else {},
        assemble=lambda payloads: sum(payload["n"] for payload in payloads),
    )
    inputs = (edge(1, "s", "scatter"), edge(2, "g", "ghosts"))
    came: Any = {1: {"n": 3}, 2: {"n": 4}}
    fields: dict[str, Any] = {"inputs": inputs, "server": server}
    made = task(Gather, _name="gathered", _constant=None, **fields)
    made._sums = lambda vectors: 10 * vectors
    made.work(2, came)
    task(Gather, _name="ah0", _constant="sums", **fields).work(2, {})
    assert values == {"gathered": 70, "ah0": "sums"}


def test_rows_go_whole_within_a_server_and_as_ghosts_to_others() -> None:
    server = SimpleNamespace(
        values=lambda *_: {"h": "rows of h", "z1": "rows of z"},
        ghosts=lambda *given: given,
        ghost_rows=lambda *given: sought.append(given),
    )
    sought: list[Any] = []
    outputs = (
        edge(1, "ghosts_2", "ghosts"),
        edge(2, "ghosts_3", "ghosts"),
        edge(3, "gather4", "gather"),
    )
    made = task(Scatter, outputs=outputs, server=server, _server=2, _value="h")
    made.servers = {1: 2, 2: 3}
    within, beyond, none = outputs
    assert made.payload(within, 0, {}) == {"rows4": "rows of h"}
    assert made.payload(none, 0, {}) == {"rows4": "rows of h"}
    assert made.payload(beyond, 0, {}) == (4, 3, "rows of h")

    for kind, role, value in (
        ("plain_gcn", "scatter", "h"),
        ("plain_gat", "scatter", "z1"),
        ("plain_gat", "scatter_back", "gradient"),
    ):
        brief = TaskSpec(
            name="t",
            kind=role,
            iterations=5,
            inputs=(),
            outputs=outputs,
            settings={"server": 2, "interval": 4, "layer": 1},
            job_settings={"model": {"kind": kind}},
        )
        scatter: Any = Scatter(brief, {"server": server})
        assert scatter._value == value
        assert scatter.servers == {1: 2, 2: 3}
    assert sought == [(4, 3)] * 3


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("plain_gcn", "GraphServer"), ("plain_gat", "AttentionServer")],
)
def test_tasks_of_a_server_share_it(
    kind: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    for name in ("GraphServer", "AttentionServer"):
        monkeypatch.setattr(
            programs, name, lambda *given, name=name: made.append((name, *given))
        )
    settings = {"model": {"kind": kind}}
    brief = TaskSpec("t", "", 5, (), (), {"server": 7}, settings)
    process: dict[str, Any] = {}
    OnServer(brief, process)
    OnServer(brief, process)
    assert made == [(expected, settings, 7)]


def test_a_part_of_a_chunk_has_no_loss_until_the_last() -> None:
    """The last part tells 16: a loss of 2 from each of two parts, times four."""
    process: dict[str, Any] = {"server": None}
    found = []
    for part in range(2):
        made = task(
            _Tensor,
            "apply",
            inputs=(edge(1, "c", "call"),),
            last=True,
            count=4,
            part=part,
            parts=2,
            _process=process,
        )
        made.weights = lambda *_: Weights(rows(7.0), 3)
        made.compute = lambda *_: Computed({}, rows(1.0), 2.0)
        made.work(2, {1: {"ah": rows(1.0)}})
        found.append(made.report())
    assert found == [{}, {"loss": 16.0}]


def test_an_update_of_attention_sends_the_weights_above_it() -> None:
    made = task(
        WeightUpdate,
        job_settings={"model": {"kind": "plain_gat", "layers": 2}},
        inputs=(edge(1, "a", "apply"), edge(2, "b", "edge_apply")),
        _held={},
        _weights=rows(1.0, 2.0, 3.0),
        _most=3,
        _optimizer=SimpleNamespace(step=lambda _: None),
    )
    came = {1: {"gradient": rows(1.0)}, 2: {"gradient": rows(2.0, 3.0)}}
    assert made.work(0, came)["weights"].tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("kind", "settings", "last", "parts"),
    [
        ("apply", {"layer": 0}, False, (0, 1)),
        ("apply", {"layer": 1, "part": 1}, True, (1, 2)),
    ],
)
def test_a_tensor_task_knows_its_layer_and_its_part(
    kind: str, settings: dict[str, int], parts: tuple[int, int], *, last: bool
) -> None:
    """Three servers of four intervals have 12 chunks; streams have two parts."""
    job_settings = {
        "model": {"layers": 2, "activation": "relu"},
        "parts": 3,
        "intervals": 4,
        "stream": 2,
    }
    brief = TaskSpec("t", kind, 5, (), (), settings, job_settings)
    made: Any = _Tensor(brief, {"initial": []})
    assert (made.last, made.count) == (last, 12)
    assert (made.part, made.parts) == parts


def test_a_task_sends_while_its_edges_do_and_asks_stashes_with_nothing() -> None:
    """Only a forward pass names the version that a stash is to have."""
    outputs = (edge(1, "x", "answer", sent=2), edge(2, "s", "stash"))
    for role, stashed in (("apply", {"n": 2}), ("apply_back", {})):
        made = task(Nothing, role, outputs=outputs)
        made.work = lambda *_: "made"
        made.payload = lambda output, *_: {"n": output.edge}
        assert made.run(1, {}) == {1: {"n": 1}, 2: stashed}
        assert made.run(2, {}) == {2: stashed}
    assert task(Nothing).end_of(3) == ANSWERS
