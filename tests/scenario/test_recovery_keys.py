"""Keys of checkpoints: what is taken, and one clear error for the rest."""

from __future__ import annotations

import pytest

from emu.errors import PlacementError, ScenarioError
from emu.scenario import Experiment, Scenario, prepare
from emu.scenario.scenario_file import loads
from tests.testing.trial_cases import CASES


def stated(name: str, more: str) -> Scenario:
    return loads(f"name: {name}\n{CASES[name]}\n{more}\n")


@pytest.mark.parametrize(
    "name", ["dgtp", "ring", "data_parallel", "p3", "dgcl", "dorylus"]
)
@pytest.mark.parametrize("every", ["20 iterations", " 1 iteration"])
def test_a_checkpoint_is_read_and_written(name: str, every: str) -> None:
    scenario = stated(name, f"checkpoint: {{every: {every}}}")
    assert scenario.checkpoint is not None
    assert scenario.checkpoint.every == int(every.split(maxsplit=1)[0])
    again = Scenario.model_validate(scenario.to_json())
    assert again == scenario
    assert "checkpoint" not in stated(name, "").to_json()


def test_what_is_left_of_a_job_begins_with_its_cut() -> None:
    """Servers, which have state, wait for the first gradients of what is left."""
    more = "checkpoint: {every: 2 iterations}"
    text = CASES["dgtp"].replace("iterations: 3", "iterations: 12")
    whole = prepare(loads(f"name: dgtp\n{text}\n{more}\n"))
    left = whole.beginning_at(6, 1.5)

    assert whole.time_of_cut(0) == 0.0
    assert left.time_of_cut(6) == left.time_of_cut(4) == 1.5
    waited = left.simulate().task_start[left._keepers(), 0].max()
    assert left.time_of_cut(8) > 1.5 + waited > 1.5


def test_measured_work_is_kept_in_checkpoints_that_state_no_time() -> None:
    more = "checkpoint: {every: 2 iterations}\nemulation: {compute: real}"
    assert stated("dgtp", more).checkpoint is not None


@pytest.mark.parametrize("name", ["disturbed", "dorylus"])
def test_what_keeps_none_is_one_error(name: str) -> None:
    problem = "a custom job keeps .* data_parallel, dgcl, .* p3, .* and whole_graph do"
    more = "checkpoint: {every: 2 iterations}"
    if name == "dorylus":
        problem = "mode async keeps no checkpoints: write pipe"
    text = CASES[name].replace("mode: pipe", "mode: async")
    with pytest.raises(ScenarioError, match=problem) as found:
        loads(f"name: {name}\n{text}\n{more}\n")
    assert found.value.key == "checkpoint"


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("checkpoint: {every: 2}", "found 2, write for example '20 iterations'"),
        ("checkpoint: {every: 2 s}", "write for example '20 iterations'"),
        ("checkpoint: {every: 0 iterations}", "every"),
        ("checkpoint: {every: -1 iterations}", "write for example '20 iterations'"),
        ("checkpoint: {}", "every"),
        (
            "checkpoint: {every: 2 iterations, takes: 1 s}\nemulation: {compute: real}",
            "measured work has no stated times",
        ),
        ("checkpoint: {every: 2 iterations, to: host}", "known: disk, peer"),
    ],
)
def test_what_cannot_be_is_one_error(more: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem) as found:
        stated("dgtp", more)
    assert found.value.key.startswith("checkpoint")
    assert "\n" not in str(found.value)


def test_restarts_are_read_and_written() -> None:
    assert stated("p3", "").restarts == 0
    assert stated("p3", "on_failure: restart").restarts == 3
    scenario = stated("dorylus", "on_failure: restart\nmax_restarts: 5")
    assert scenario.restarts == 5
    assert Scenario.model_validate(scenario.to_json()) == scenario
    assert "on_failure" not in stated("p3", "on_failure: abort").to_json()


@pytest.mark.parametrize(
    ("more", "key", "problem"),
    [
        ("max_restarts: 2", "max_restarts", "write on_failure: restart"),
        ("on_failure: retry", "on_failure", "restart"),
        (
            "events: [{at: 1 s, kill: w0, recovery: 3 s}]",
            "events[0].recovery",
            "write on_failure: restart",
        ),
        (
            "events: [{at: 1 s, pause: m0, for: 1 s, recovery: 3 s}]",
            "events[0]",
            "or kill",
        ),
        ("on_failure: restart\nmax_restarts: 0", "max_restarts", "1"),
    ],
)
def test_restarts_that_cannot_be_are_one_error(
    more: str, key: str, problem: str
) -> None:
    with pytest.raises(ScenarioError, match=problem) as found:
        stated("dgtp", more)
    assert found.value.key == key


def test_a_kill_goes_with_checkpoints_and_restarts() -> None:
    kill = "events: [{at: 0.1 s, kill: w0}]"
    both = "checkpoint: {every: 1 iterations}\non_failure: restart"
    scenario = stated("dgtp", f"{kill}\n{both}\nrecovery: 0.5 s")
    assert scenario.recovery_time == 0.5
    assert Scenario.model_validate(scenario.to_json()) == scenario
    assert stated("dgtp", "").recovery_time == 2.0
    with pytest.raises(ScenarioError, match="write on_failure: restart") as found:
        stated("dgtp", "recovery: 2 s")
    assert found.value.key == "recovery"


PEER = "checkpoint: {every: 2 iterations, to: peer}"


def placed(more: str, machines: int = 3) -> Experiment:
    text = CASES["dgtp"].replace("count: 3", f"count: {machines}")
    text = text.replace("policy: round_robin", f"policy: round_robin{more}")
    return prepare(loads(f"name: dgtp\n{text}\n{PEER}\n"))


def test_a_copy_stands_on_the_next_machine_or_the_stated_one() -> None:
    tasks = placed("").tasks
    assert (tasks["ps0"], tasks["ps0.copy"]) == ("m1", "m2")
    tasks = placed(", tasks: {ps0: m2}").tasks
    assert (tasks["ps0"], tasks["ps0.copy"]) == ("m2", "m0")
    tasks = placed(", tasks: {ps0.copy: m0}").tasks
    assert (tasks["ps0"], tasks["ps0.copy"]) == ("m1", "m0")


@pytest.mark.parametrize(
    ("more", "machines", "problem"),
    [
        ("", 1, "ps0 stands on m, and no machine is next to it: add one, or write to"),
        (", tasks: {ps0.copy: m1}", 3, "ps0.copy stands where what it copies does: w"),
        (", tasks: {ps1.copy: m1}", 3, "no task 'ps1.copy', did you mean 'ps0.copy'"),
    ],
)
def test_a_copy_beside_what_it_copies_is_one_error(
    more: str, machines: int, problem: str
) -> None:
    with pytest.raises((PlacementError, ScenarioError), match=problem):
        placed(more, machines)


@pytest.mark.parametrize(("more", "optimal"), [("", True), (PEER, False)])
def test_no_search_proves_what_is_best_with_copies(
    more: str,
    optimal: bool,  # noqa: FBT001 -- a parameter of the test
) -> None:
    """It simulates the job without them."""
    text = CASES["dgtp"].replace("count: 3", "count: 2").replace("round_robin", "best")
    experiment = prepare(loads(f"name: dgtp\n{text}\n{more}\n"))
    assert experiment.placing["optimal"] == optimal


def test_functions_keep_no_copies() -> None:
    tasks = prepare(stated("dorylus", PEER)).tasks
    assert (tasks["wu0"], tasks["wu0.copy"]) == ("ps", "g0")
