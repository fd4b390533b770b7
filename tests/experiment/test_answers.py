"""Figures of answers over seeds, by hand, and which of several answers is a row."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from emu.errors import EmulatorError, ScenarioError
from emu.experiment import draw as draw_module
from emu.experiment import question as question_module
from emu.experiment import system_rows, systems
from emu.experiment.draw import Draw, time_draw
from emu.experiment.question import Answer, Question
from emu.experiment.refusal import reason
from emu.experiment.row_machines import RecentRows, Row, Sources, Trial
from emu.experiment.scaled_steps import FoundSteps, Trend
from emu.experiment.system_rows import Workers, best_of
from emu.experiment.systems import Target
from emu.prediction.analysis.throughput import Speed
from emu.scenario.virtual_training import NotReached
from emu.training.looks import Look

MINI = {"model": {}, "batch_size": 5, "workers": 3}
WHOLE: dict[str, Any] = {"model": {}}


def scenario_of(**keys: Any) -> Any:
    content: dict[str, Any] = {
        "seed": 3,
        "job": SimpleNamespace(system="dgtp", trains=True),
        "curve_files": {},
        "training_scales": None,
    }
    return SimpleNamespace(**content | keys)


def draw_of(seconds: float, speed: Speed, look: Look | None = None) -> Draw:
    curve = ((seconds, 0.5),) if look else ()
    scenario: Any = f"scenario of {seconds:g} s"
    return Draw(scenario, seconds, speed, look, curve)


def answer_of(
    draws: dict[int, Draw], settings: Any, refused: EmulatorError | None = None
) -> Any:
    """Return an answer on a data set of 120 training vertices."""
    job = SimpleNamespace(settings=settings)
    ready: Any = SimpleNamespace(problem=SimpleNamespace(job=job), placing={})
    question = Question(scenario_of(), "p3")
    answer = Answer(question, draws=draws, ready=ready, refused=refused)
    vars(answer)["train"] = 120
    return answer


def test_rates_of_seeds_are_averaged_and_an_epoch_is_by_their_mean() -> None:
    """10 and 30 vertices a second: 20 in the mean, and 6 s for 120."""
    draws = {
        3: draw_of(8.0, Speed(1.0, 10.0), Look(4, 60, 0.5)),
        4: draw_of(12.0, Speed(2.5, 30.0), Look(9, 90, 0.6)),
    }
    found = answer_of(draws, MINI)
    assert found.samples_per_second == found.rate == 20.0
    assert (found.epoch_seconds, found.iteration_seconds) == (6.0, 1.75)
    assert (found.makespan, found.seeds_per_step) == (10.0, 15)
    assert found.makespans == {3: 8.0, 4: 12.0}
    assert (found.steps, found.epochs) == (6.5, 75 / 120)
    assert found.scenario == "scenario of 8 s"
    assert found.curves == {3: ((8.0, 0.5),), 4: ((12.0, 0.5),)}
    assert found.trains
    assert not found.whole_graph


def test_a_step_on_whole_graphs_sees_all_vertices() -> None:
    draws = {3: draw_of(8.0, Speed(4.0, None)), 4: draw_of(8.0, Speed(2.0, None))}
    found = answer_of(draws, WHOLE)
    assert found.samples_per_second == (30.0 + 60.0) / 2
    assert (found.seeds_per_step, found.whole_graph) == (120, True)
    assert found.looks == {}
    instant = answer_of({3: draw_of(0.0, Speed(0.0, None))}, WHOLE)
    assert (instant.samples_per_second, instant.rate) == (inf, None)
    nothing = answer_of({3: draw_of(8.0, Speed(4.0, 7.0))}, {})
    assert (nothing.trains, nothing.rate, nothing.seeds_per_step) == (False, None, None)
    assert not nothing.whole_graph


def test_a_refusal_has_no_end_and_the_curve_that_came_short() -> None:
    error = NotReached("no")
    error.curve = ((1.0, 0.2),)
    found = answer_of({}, MINI, error)
    assert (found.makespan, found.curves) == (inf, {3: ((1.0, 0.2),)})
    with pytest.raises(NotReached):
        found.checked()
    other = answer_of({4: draw_of(8.0, Speed(1.0, 10.0))}, MINI)
    both = replace(other, missed=("a",)).beside(replace(found, missed=("b",)))
    assert both.refused is error
    assert both.missed == ("a", "b")
    assert [*other.beside(answer_of({3: 1}, MINI)).draws] == [4, 3]  # type: ignore[dict-item]


def test_a_reason_is_the_first_line_without_its_file() -> None:
    error = ScenarioError("no room\nfor it", file="a.yaml", key="job")
    assert reason(error) == "no room"


def test_steps_of_a_target_are_found_where_a_file_states_them() -> None:
    curves = scenario_of(curve_files={"p3": "p3.csv", "dgtp": "own.csv"})
    target = Target(0.5)
    recorded = Question(curves, "p3", target=target)
    assert (recorded.curve_file, recorded.trains_smaller) == ("p3.csv", False)
    assert recorded.has_steps
    assert Question(curves, target=target).curve_file == "own.csv"
    assert Question(curves, "p3").curve_file is None
    scales = scenario_of(training_scales=[0.1], curve_files={"p3": "p3.csv"})
    smaller = Question(scales, "dgcl", target=target)
    assert (smaller.trains_smaller, smaller.has_steps) == (True, True)
    assert not Question(scales, "p3", target=target).trains_smaller
    assert not Question(scales, "dgcl").has_steps
    assert not Question(scenario_of(), "dgcl", target=target).has_steps


def test_seeds_that_follow_are_answered_on_the_machines_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def answer_first(_: Question) -> Any:
        return answer_of({3: 1}, MINI)  # type: ignore[dict-item]

    def answer_seed(question: Question, seed: int) -> Any:
        asked.append((question.row, seed))
        return answer_of({seed: seed}, MINI)  # type: ignore[dict-item]

    monkeypatch.setattr(question_module, "_answer_first", answer_first)
    monkeypatch.setattr(question_module, "_answer_seed", answer_seed)
    found = question_module.answer(Question(scenario_of(), "dgtp", seeds=3))
    assert [*found.draws] == [3, 4, 5]
    assert asked == [("p3", 4), ("p3", 5)]


TREND = Trend((1.0,), (3,), 2.0, estimate=12.0, low=9.0, high=15.0)


def test_a_draw_takes_its_steps_and_the_looks_at_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Steps take 2 s: 12 of them, and two looks of 3 s where these are counted."""
    monkeypatch.setattr(draw_module, "speed_of", lambda *_, **__: Speed(2.0, 9.0))
    monkeypatch.setattr(draw_module, "epoch_of", lambda _: None)
    monkeypatch.setattr(draw_module, "look_seconds", lambda _: 3.0)
    monkeypatch.setattr(
        draw_module, "time_looks", lambda *_: ((4.0, 0.4), (8.0, 0.5), (9.0, 0.6))
    )
    copied: Any = SimpleNamespace(model_copy=lambda update: update.keys())
    reached = Look(3, 30, 0.5)
    trained = SimpleNamespace(reached=reached, looks=[1], stated=None, scenario=copied)
    job = SimpleNamespace(settings={})
    schedule: Any = SimpleNamespace(
        problem=SimpleNamespace(job=job), task_end=None, length=40.0, makespan=50.0
    )

    def drawn(target: Target | None, found: FoundSteps | None = None) -> Draw:
        ready: Any = trained
        return time_draw(ready, schedule, target, found)

    plain = drawn(Target(0.5))
    assert (plain.makespan, plain.reached, plain.trend) == (50.0, reached, None)
    assert [seconds for seconds, _ in plain.curve] == [4.0, 8.0, 9.0]
    counted = drawn(Target(0.5, counts_looks=True))
    assert counted.makespan == 59.0
    assert [seconds for seconds, _ in counted.curve] == [7.0, 14.0, 18.0]
    looks = [Look(5, 50, 0.3), Look(12, 120, 0.5)]
    steps = drawn(Target(0.5), FoundSteps(looks, TREND))
    assert (steps.makespan, steps.reached, steps.trend) == (24.0, looks[1], TREND)
    assert steps.curve == ((10.0, 0.3), (24.0, 0.5))
    seen = drawn(Target(0.5, counts_looks=True), FoundSteps(looks))
    assert seen.makespan == 30.0
    assert drawn(None).makespan == 50.0
    trained.stated = SimpleNamespace(model_copy=lambda update: "as stated")  # noqa: ARG005
    assert drawn(None).scenario == "as stated"  # type: ignore[comparison-overlap]

    def fail(_: object) -> float:
        raise ScenarioError("no rates")

    # Without looks nobody asks how long they take.
    monkeypatch.setattr(draw_module, "look_seconds", fail)
    trained.looks = []
    assert drawn(Target(0.5, counts_looks=True)).curve == ()


@pytest.mark.parametrize(
    ("settings", "is_drawn", "error"),
    [(WHOLE, True, 0.25), (MINI, True, 0.0), ({}, True, 0.0), (WHOLE, False, 0.0)],
)
def test_rows_that_parts_read_are_unsure_on_whole_drawn_graphs_alone(
    settings: Any,
    is_drawn: bool,  # noqa: FBT001
    error: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Graph:
        ghost_error = 0.25

    monkeypatch.setattr(draw_module, "DrawnGraph", Graph if is_drawn else str)
    monkeypatch.setattr(draw_module, "open_for", lambda _: Graph())
    job: Any = SimpleNamespace(settings=settings)
    assert draw_module._ghost_error(job) == error


def row_of(
    name: str, seconds: float, rate: float, target: Target | None = None, **keys: Any
) -> Any:
    answer = answer_of({3: draw_of(seconds, Speed(1.0, rate))}, MINI, keys.get("error"))
    question = Question(scenario_of(), name, {"job.x": name}, target=target)
    return replace(answer, question=question)


def test_the_best_of_a_row_has_the_most_vertices_or_the_shortest_time() -> None:
    """System b is first at the target; without a target a sees more vertices."""
    for target, best in ((None, "a"), (Target(0.5), "b")):
        rows = [row_of("c", 9.0, 5.0, target), row_of("a", 7.0, 30.0, target)]
        rows.append(row_of("b", 4.0, 20.0, target))
        error = ScenarioError("no")
        rows.append(row_of("d", 1.0, 99.0, target, error=error))
        found = best_of(rows)
        assert found.system == best
        seconds = [seconds for _, seconds in found.tried]
        assert seconds == [9.0, 7.0, 4.0, None]
        assert [settings["job.x"] for settings, _ in found.tried] == [*"cabd"]


def nearest(share: float, seconds: float = 2.0) -> NotReached:
    error = NotReached("not reached")
    error.nearest = share
    error.seconds = seconds
    return error


def test_of_refusals_that_which_came_nearest_is_told() -> None:
    target = Target(0.9, within=8)
    rows = [
        row_of("a", 1.0, 1.0, error=ScenarioError("no room")),
        row_of("b", 1.0, 1.0, error=nearest(0.0)),
        row_of("c", 1.0, 1.0, error=nearest(0.75, 65.0)),
        row_of("d", 1.0, 1.0, error=nearest(0.5)),
    ]
    assert best_of(rows).system == "c"
    # Who trained came nearer than who did not, even to nothing.
    assert best_of(rows[:2]).system == "b"
    error: Any = system_rows._failure_of(rows, target)
    assert error.file == "--to accuracy=0.9"
    assert "within 8 epochs: c came nearest, 75.00% after 65 s; write" in error.problem
    assert system_rows._failure_of(rows, None) is rows[2].refused
    assert system_rows._failure_of(rows[2:3], target) is rows[2].refused
    assert system_rows._failure_of(rows[:1], target) is rows[0].refused
    others = [rows[0], row_of("e", 1.0, 1.0, error=ScenarioError("no way"))]
    assert system_rows._failure_of(others, target) is rows[0].refused


def test_rows_are_warned_of_where_none_of_their_settings_can_be() -> None:
    told: list[str] = []
    errors = [ScenarioError(f"reason {number}") for number in range(4)]
    questions = [Question(scenario_of(), row) for row in ("a", "a", "b", "b", "c")]

    def warn(row: str, error: EmulatorError) -> None:
        told.append(f"{row}: {error}")

    planned: Any = [errors[0], questions[1], errors[1], errors[2], questions[4]]
    system_rows._warn_of(questions, planned, warn)
    assert told == ["b: reason 2"]
    # Where nothing can be, that is the error of all.
    told.clear()
    system_rows._warn_of(questions[:2], errors[:2], warn)
    assert told == []


def test_the_row_whose_machines_others_have_is_the_first_that_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusals = {name: ScenarioError(f"no {name}") for name in "ab"}
    asked = []

    def list_questions(_: object, name: str, *, target: Any) -> Any:
        return [Question(scenario_of(), name, target=target)]

    def answer(question: Question) -> Any:
        asked.append(question.target)
        error = refusals.get(question.row)
        return row_of(question.row, 1.0, 1.0, error=error)

    monkeypatch.setattr(system_rows, "list_questions", list_questions)
    monkeypatch.setattr(system_rows, "answer", answer)
    target = Target(0.5)
    first: Any = system_rows._first_of(None, ["a", "c", "d"], target)  # type: ignore[arg-type]
    assert first.system == "c"
    assert asked == [None, None]
    with pytest.raises(ScenarioError, match="no a"):
        system_rows._first_of(None, ["a", "b"], target)  # type: ignore[arg-type]
    with pytest.raises(ScenarioError, match="write two"):
        system_rows._first_of(None, [], target)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "free", "chosen", "everywhere"),
    [
        (9.0, True, False, 9.0),
        (7.0, True, True, None),
        (8.0, True, False, 8.0),
        (7.0, False, False, 7.0),
    ],
)
def test_a_row_is_on_all_machines_where_that_is_free_and_faster(
    seconds: float,
    free: bool,  # noqa: FBT001
    chosen: bool,  # noqa: FBT001
    everywhere: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The row takes 8 s on its own machines, and stays there without room on all."""
    job = SimpleNamespace(system="dgtp", ranks=lambda names: [*names])
    cluster = SimpleNamespace(names=("m0", "m1"))
    scenario = scenario_of(job=job, stated_cluster=cluster)
    asked = []

    def answer(question: Question) -> Any:
        asked.append(question.machines)
        return row_of("p3", seconds, 1.0)

    monkeypatch.setattr(system_rows, "answer", answer)
    row = row_of("p3", 8.0, 1.0)
    ready = SimpleNamespace(placing={"machines": ["m1"]}, problem=row.ready.problem)
    question = Question(scenario, "p3", machines=("m1",))
    row = replace(row, question=question, ready=ready, tried=(({}, 1.0),))
    found = system_rows._beside_all_machines(row, free)
    assert asked == [("m0", "m1")]
    assert (found.chosen, found.everywhere) == (chosen, everywhere)
    assert found.makespan == (seconds if chosen else 8.0)
    assert found.tried == row.tried

    with monkeypatch.context() as without_room:
        error = ScenarioError("no room")
        refusal = row_of("p3", 1.0, 1.0, error=error)
        without_room.setattr(system_rows, "answer", lambda _: refusal)
        assert system_rows._beside_all_machines(row, free) is row

    asked.clear()
    ready.placing["machines"] = ["m1", "m0"]
    assert system_rows._beside_all_machines(row, free) is row
    alone = replace(row, question=replace(question, row="one_machine"))
    ready.placing["machines"] = ["m1"]
    assert system_rows._beside_all_machines(alone, free) is alone
    refused = replace(row, refused=ScenarioError("no"))
    assert system_rows._beside_all_machines(refused, free) is refused
    assert asked == []


def test_work_is_told_as_it_is_done_and_an_error_ends_it() -> None:
    told: list[str] = []
    workers = Workers(1, told.append)
    assert workers.share("rows", lambda a, b: a * b, [(2, 3), (4, 5)]) == [6, 20]
    assert told == ["rows: 0 of 2", "rows: 1 of 2", "rows: 2 of 2"]

    def fail(_: object) -> None:
        raise ScenarioError("no")

    with pytest.raises(ScenarioError, match="no"):
        workers.share("rows", fail, [(1,)])


def test_a_later_set_of_machines_has_to_be_worthwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A quarter faster is just not; where nothing can be, one machine says why."""
    monkeypatch.setattr("emu.experiment.row_machines.WORTHWHILE", 0.25)
    row = Row(scenario_of(), "dgtp", {}, per_machine=False)
    trials = [Trial(("a",), 8.0), Trial(("b",), 6.0), Trial(("c",), 5.9)]
    assert row.choose(trials[:2]) == ("a",)
    assert row.choose(trials) == ("c",)
    assert row.choose([]) is None
    errors = [ScenarioError(f"no {number}") for number in range(2)]
    refused = [Trial((str(n),), refused=error) for n, error in enumerate(errors)]
    assert row.choose(refused) is None
    assert row.choose([*refused, trials[0]]) == ("a",)
    alone = Row(scenario_of(), "one_machine", {}, per_machine=False)
    with pytest.raises(ScenarioError, match="no 1"):
        alone.choose(refused)
    assert alone.choose([]) is None


def test_eight_scenarios_on_some_machines_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    def fewer(_: object, machines: Any) -> Any:
        made.append(machines)
        return SimpleNamespace(machines=machines)

    monkeypatch.setattr("emu.experiment.row_machines._fewer", fewer)
    source: Any = SimpleNamespace()
    sources = Sources()
    sets = [(f"m{number}",) for number in range(9)]
    parts = [sources.on_machines(source, names) for names in sets[:8]]
    assert sources.on_machines(source, sets[0]) is parts[0]
    sources.on_machines(source, sets[8])
    assert sources.on_machines(source, sets[1]) is parts[1]
    assert sources.on_machines(source, sets[0]) is not parts[0]
    assert made == [*sets, sets[0]]


def test_the_fastest_trial_is_kept_where_the_row_is_as_long_as_the_file() -> None:
    """The first trial of 3 s is kept, but none for a target or an accuracy."""
    seconds = {"a": 4.0, "b": 3.0, "c": 3.0}

    class Tried:
        def try_on(self, machines: Any, earlier: float) -> Trial:
            (name,) = machines
            earliers.append(earlier)
            ready: Any = f"ready on {name}"
            return Trial(machines, seconds[name], ready=ready)

    rows: Any = [Tried()]
    pieces = [(0, (name,)) for name in seconds]
    open_end = scenario_of(until=None)
    for scenario, target, kept in (
        (open_end, None, "ready on b"),
        (open_end, Target(0.5), None),
        (scenario_of(until=0.5), None, None),
    ):
        earliers: list[float] = []
        question = Question(scenario, "p3", target=target)
        attempts = system_rows._Attempts([question], rows, pieces)
        for number, machines in pieces:
            assert attempts.try_on(number, machines).ready is None
        found: Any = attempts.ready_on(0, ("b",))
        assert found == kept
        assert attempts.ready_on(0, ("c",)) is None
        assert earliers == [inf, 4.0, 3.0]


def test_the_rows_that_were_asked_for_last_are_kept() -> None:
    rows = RecentRows(most=2)
    scenario = scenario_of()
    first, second, third = (
        Row(scenario, "dgtp", {"seed": seed}, per_machine=False) for seed in range(3)
    )
    assert rows.first_like(first) is first
    assert rows.first_like(second) is second
    assert rows.first_like(replace(first)) is first
    assert rows.first_like(third) is third
    assert rows.first_like(replace(second)) is second
    again = replace(first)
    assert rows.first_like(again) is again


@pytest.mark.parametrize(
    ("walk", "row", "settings", "words"),
    [
        ("local", "p3", MINI, "as the file (local)"),
        ("shard", "p3", MINI, "shard"),
        ("local", "", MINI, "local"),
        ("local", "p3", {}, ""),
        (None, "p3", MINI, ""),
    ],
)
def test_a_walk_is_that_of_the_file_or_another(
    walk: str | None, row: str, settings: Any, words: str
) -> None:
    found = answer_of({}, settings)
    found.ready.scenario = SimpleNamespace(job=SimpleNamespace(epoch=walk))
    file_job = SimpleNamespace(system="dgtp", epoch="local")
    question = Question(scenario_of(job=file_job), row)
    assert replace(found, question=question)._walk == words


def test_keys_go_before_a_translation_or_to_the_system_that_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file knows `model.hidden` and `epochs`; the system `plan` and `epochs`."""

    class Model(BaseModel):
        hidden: int = 8

    class Job(BaseModel):
        model: Model = Model()
        epochs: int = 3

    for fields, epochs_goes in (
        ({"plan", "epochs", "depth"}, "after"),
        ({"plan", "epochs", "depth", "iterations"}, "before"),
    ):
        section = SimpleNamespace(model_fields=dict.fromkeys(fields))
        monkeypatch.setattr(systems, "section_type", lambda _, of=section: of)
        keys = ["seed", "cluster.plan", "job.model.hidden", "job.other", "job.epochs"]
        keys += ["job.plan", "job.plan.other"]
        before, after = systems._split(
            scenario_of(job=Job()), "dgcl", dict.fromkeys(keys, 1)
        )
        expected = ["seed", "cluster.plan", "job.model.hidden", "job.other"]
        if epochs_goes == "before":
            expected.append("job.epochs")
        assert [*before] == expected
        assert {*before} | {*after} == {*keys}
        assert not {*before} & {*after}
