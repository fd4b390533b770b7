"""Which system on which machines: against brute force, never worse than the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import EmulatorError, ScenarioError
from emu.experiment import advice as advice_module
from emu.experiment import advice_search, learning_rates
from emu.experiment.advice import Advice, _Levers, advise, find_target
from emu.experiment.job_shares import combine_counts, list_counts, share_machines
from emu.experiment.learning_rates import Learning, find_rate, list_rates, next_rate
from emu.experiment.levers import Lever, list_levers
from emu.experiment.prospects import Choice, Terms
from emu.experiment.question import Answer, Question, answer
from emu.experiment.systems import Target, as_variant, list_variants
from emu.prediction.analysis.throughput import job_times
from emu.scenario import Scenario, load, prepare
from emu.scenario.scenario_file import loads
from emu.scenario.virtual_training import NotReached, look_until, progress_along
from emu.training.looks import epoch_of
from emu.units import MONEY
from tests import draws

# Of seconds of processor time; more on a busy machine.
pytestmark = pytest.mark.timeout(600)

RATES = {
    "aggregate": "20 ps", "multiply": {"default": "4 ps", "old": "40 ps"},
    "sample": "3 ns", "collect": "200 ps", "step": "1 ns", "launch": "50 us",
}  # fmt: skip
JOB: dict[str, Any] = {
    "system": "dgtp",
    "workers": 3,
    "dataset": {"name": "products-like", "scale": 0.001},
    "model": {"kind": "gcn", "hidden": 16, "layers": 2},
    "fanouts": [4, 4],
    "batch_size": 16,
    "iterations": 5,
    "optimizer": {"name": "adam", "lr": 0.05},
    "rates": RATES,
}
FILE: dict[str, Any] = {
    "cluster": {
        "machines": [
            {"name": "a", "count": 2, "nic": "5 Gbit/s", "price": "1 $/h"},
            {"name": "b", "nic": "1 Gbit/s", "price": "0.2 $/h", "device": "old"},
        ]
    },
    "job": JOB,
    "placement": {"iterations": 50},
}
#: The two machines that are alike, alone.
TO = {"cluster": {"machines": FILE["cluster"]["machines"][:1]}}
WHOLE = {
    "system": "dgcl",
    "dataset": JOB["dataset"],
    "model": {**JOB["model"], "norm": "mean"},
    "epochs": 4,
    "rates": RATES,
}


def scenario_of(**keys: Any) -> Scenario:
    return loads(json.dumps({**FILE, **keys}), name="advice.json")


def without_prices() -> dict[str, Any]:
    machines = [dict(machine) for machine in FILE["cluster"]["machines"]]
    for machine in machines:
        del machine["price"]
    return {"cluster": {"machines": machines}}


def price_of(found: Answer) -> float:
    """Return the dollars of an epoch."""
    assert found.cost is not None
    _, schedule = found.first
    return float(found.cost["total"]) / schedule.makespan * found.epoch_seconds


def every_answer(
    scenario: Scenario, rows: Sequence[str], **keys: Any
) -> Iterator[Answer]:
    """Yield some rows on every set of machines, with the file's settings.

    Of sets that differ in which of the two machines `a` they have, one.
    """
    names = scenario.cluster.names
    subsets = [
        some
        for count in (1, 2, 3)
        for some in combinations(names, count)
        if "a0" in some or "a1" not in some
    ]
    for row, machines in product(rows, subsets):
        if row == "one_machine" and len(machines) > 1:
            continue
        question = Question(scenario, row, machines=machines, per_machine=True)
        found = answer(replace(question, **keys))
        if found.refused is None:
            yield found


@pytest.fixture(scope="module")
def advice() -> Advice:
    with pytest.MonkeyPatch.context() as patch:
        leave_changes_out(patch)
        return advise(scenario_of(), Terms(seeds=draws.count(2, few=1)))


@pytest.fixture(scope="module")
def every() -> list[Answer]:
    """Every mini-batch row of the file on every set of machines."""
    answers = every_answer(scenario_of(), list_variants(["all"]))
    return [found for found in answers if not found.whole_graph]


def leave_changes_out(patch: pytest.MonkeyPatch) -> None:
    """Leave out what limits and would change an advice: half of what one takes.

    The test of an accuracy asks for both, too.
    """
    patch.setattr(_Levers, "find_rate", lambda _: None)
    patch.setattr(_Levers, "find_changes", lambda _: [])


@pytest.fixture
def best_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_changes_out(monkeypatch)


#: The fastest system, the cheapest, one between them, and one of whole graphs.
FEW_ROWS = ["data_parallel", "dgcl", "dgtp", "p3.none"]
#: One that draws mini-batches and one of whole graphs that is asynchronous: rows of two
#: of the eleven classes of weights.
ROWS_OF_CLASSES = ["data_parallel", "dorylus.async"]


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search among a few systems: twenty take four times as long.

    For what the terms of an advice ask of it, whichever systems there are; that none
    is missed is asked of all of them.
    """
    monkeypatch.setattr(advice_search, "list_variants", lambda _: FEW_ROWS)


@pytest.fixture(scope="module")
def every_of_few(every: list[Answer]) -> list[Answer]:
    return [found for found in every if found.question.row in FEW_ROWS]


def test_no_system_of_its_class_is_better_on_any_machines(
    advice: Advice, every: list[Answer]
) -> None:
    least = min(one.epoch_seconds for one in every)

    assert advice.best.seconds <= least * (1 + 1e-9)
    assert isinstance(advice.stated, Choice)
    assert advice.best.seconds <= advice.stated.seconds
    times = [other.seconds for other in advice.others]
    assert times == sorted(times)
    assert not {choice.row for choice in advice.others} & {"dgcl", "dorylus.pipe"}
    assert "write --to" in str(advice.refused["dgcl"])


@pytest.mark.usefixtures("few_rows")
def test_the_cheapest_is_named_where_nothing_is_cheap_enough(
    every_of_few: list[Answer],
) -> None:
    with pytest.raises(ScenarioError) as refused:
        advise(scenario_of(), Terms(seeds=1, budget=1e-12))

    text = str(refused.value).partition("the cheapest is ")[2]
    cheapest = MONEY.parse(re.findall(r"and (\S+ \$)", text)[0])
    assert cheapest <= min(map(price_of, every_of_few)) * 1.01


@pytest.mark.usefixtures("best_alone", "few_rows")
def test_a_budget_is_kept_by_the_fastest_that_does(
    advice: Advice, every_of_few: list[Answer]
) -> None:
    # Less than the fastest of all costs: that one is out.
    assert advice.best.cost is not None
    prices = map(price_of, every_of_few)
    budget = max(price for price in prices if price < advice.best.cost * 0.99)
    fitting = [one.epoch_seconds for one in every_of_few if price_of(one) <= budget]

    found = advise(scenario_of(), Terms(seeds=1, budget=budget))
    assert found.best.cost is not None
    assert found.best.cost <= budget
    assert found.best.seconds <= min(fitting) * (1 + 1e-9)
    assert found.best.seconds >= advice.best.seconds * (1 - 1e-9)


def test_what_changes_an_advice_is_a_crossover(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the named figure on, the other of two systems is advised."""
    rows = ["data_parallel", "dgtp"]
    monkeypatch.setattr(advice_search, "list_variants", lambda _: rows)
    monkeypatch.setattr(_Levers, "find_rate", lambda _: None)
    scenario = scenario_of()
    levers = list_levers(scenario, priced=False)
    collecting = [lever for lever in levers if lever.name == "collecting"]
    monkeypatch.setattr(advice_module, "list_levers", lambda *_, **__: collecting)

    found = advise(scenario, Terms(seeds=1))
    (change,) = found.changes
    leave_changes_out(monkeypatch)

    # A rival is named with the settings by which it wins.
    assert ", cache degree " in change
    words = r"collecting down to (\S+) x as fast: (\S+) on "
    factor, rival = re.findall(words, change)[0]
    assert rival != found.best.row
    for nearer, row in ((0.9, rival), (1.1, found.best.row)):
        seconds = 200 / (float(factor) * nearer)
        edit = {"job.rates.collect": f"{seconds} ps"}
        changed = advise(load(scenario, edit), Terms(seeds=1))
        assert changed.best.row == row


def test_the_rate_whose_half_saves_most_is_named_with_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half an aggregation's time saves 2 of 8 s, and half the others less."""
    found = SimpleNamespace(scenario=scenario_of())
    choices: Any = [SimpleNamespace(answer=found), SimpleNamespace(answer=None)]
    levers = _Levers(None, choices)  # type: ignore[arg-type]
    edits = {}

    def judge(_: object, choice: Choice, edit: dict[str, Any]) -> Any:
        assert choice is choices[0]
        edits.update(edit)
        if "job.rates.sample" in edit:
            raise ScenarioError("no such rate")
        left = {"job.rates.aggregate": 6.0, "job.rates.step": 7.0}
        return (0.0, min([8.0, *(left.get(key, 8.0) for key in edit)])), ""

    monkeypatch.setattr(_Levers, "judge", judge)

    assert levers.find_rate() == ("aggregate", 0.25)
    assert edits["job.rates.aggregate"] == "1e-11 s"
    assert edits["job.rates.multiply"] == {"default": "2e-12 s", "old": "2e-11 s"}


def test_to_an_accuracy_no_row_rate_or_machines_are_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is written is simulated to the number that is printed.

    What would change it is asked of a figure with which all is trained anew, and of one
    that changes times alone: of all of them, as nightly, that was a third of the CPU.
    Of all systems, with all batches and fan-outs, the rest took three times as long.
    """
    few = ("hidden width", "collecting")
    rows = list_variants(["all"])

    def list_few(*asked: Any, **keys: Any) -> list[Lever]:
        return [lever for lever in list_levers(*asked, **keys) if lever.name in few]

    if draws.SHARE > 1:
        monkeypatch.setattr(advice_module, "list_levers", list_few)
        rows = ROWS_OF_CLASSES
        monkeypatch.setattr(advice_search, "list_variants", lambda _: rows)
        monkeypatch.setattr(advice_search, "_FACTORS", (1.0, 0.5))
        monkeypatch.setattr(advice_search, "_TUNED", 2)
    file, out = tmp_path / "file.json", tmp_path / "best.yaml"
    job = {**JOB, "workers": 2, "rates": {**RATES, "multiply": "4 ps"}}
    file.write_text(json.dumps({**FILE, **TO, "job": job}))
    arguments = ["advise", str(file), "--seeds", "1", "--to", "accuracy=0.5"]
    arguments += ["--within", "12", "--write", str(out)]
    arguments += ["--json", str(tmp_path / "advice.json")]

    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "advice.json").read_text())
    best = content["best"]
    assert best["seconds"] <= content["stated"]["seconds"]
    ready = prepare(load(out))
    assert ready.simulate().makespan == best["makespan"] == best["seconds"]
    assert ready.reached is not None
    assert ready.reached.accuracy >= 0.5

    target = Target(0.5, within=12)
    scenario = load(file)
    for rate in (0.1, 0.3):
        settings = {"job.optimizer.lr": rate}
        answers = every_answer(scenario, rows, settings=settings, target=target)
        for found in answers:
            assert best["seconds"] <= found.makespan * (1 + 1e-9), found.question
    assert {0.03, 0.1, 0.3} <= {*content["rates"]}


def test_the_target_is_what_the_file_reaches_in_its_own_length() -> None:
    job = {**JOB, "iterations": 40}
    scenario = scenario_of(job=job)
    target = find_target(scenario)
    ready = prepare(scenario)
    progress = progress_along(ready.scenario, ready.simulate)
    levels = progress.accuracy["valid"][: progress.spaced]
    held = max(min(levels[n : n + 3]) for n in range(len(levels) - 2))

    assert held - 0.001 < target.accuracy <= held
    until = {"accuracy": "70 %", "split": "test"}
    assert find_target(scenario_of(until=until)) == Target(0.7, "test")


def test_a_job_that_trains_nothing_has_no_accuracy() -> None:
    with pytest.raises(ScenarioError, match="--per-epoch"):
        find_target(load("golden"))
    with pytest.raises(ScenarioError, match="custom"):
        advise(load("golden"), Terms(seeds=1))


@pytest.mark.usefixtures("best_alone")
def test_no_setting_is_advised_that_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More parameter servers are better, and a ring, which has none, better still."""
    monkeypatch.setattr(advice_search, "list_variants", lambda _: ["dgtp"])
    times = {"graph_store": "20 ms", "sampler": "15 ms", "worker": "40 ms"}
    job = {
        "system": "dgtp",
        "workers": 3,
        "dataset": {"name": "products-like", "scale": 0.002},
        "model": {"hidden": 128, "layers": 2},
        "fanouts": [10, 10],
        "batch_size": 200,
        "iterations": 10,
        "times": times | {"parameter_server": "5 ms"},
    }
    room = {"cpu": 16, "gpu": 1, "memory": "64 GB", "nic": "10 Gbit/s"}
    alike = {"machines": [{"name": "a", "count": 3, **room}]}
    stated = loads(json.dumps({"cluster": alike, "job": job}), name="three.json")
    best = advise(stated, Terms(seeds=1)).best

    assert "parameter_servers" not in best.settings


@pytest.mark.usefixtures("best_alone")
def test_a_deadline_alone_asks_for_the_cheapest(
    advice: Advice, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = ["data_parallel", "dgtp"]
    monkeypatch.setattr(advice_search, "list_variants", lambda _: rows)
    slow = advice.best.seconds * 10

    cheap = advise(scenario_of(), Terms(seeds=1, deadline=slow))
    with pytest.raises(ScenarioError, match="the fastest is"):
        advise(scenario_of(), Terms(seeds=1, deadline=advice.best.seconds / 2))
    assert cheap.best.seconds <= slow
    assert cheap.best.cost is not None
    assert advice.best.cost is not None
    assert cheap.best.cost < advice.best.cost


def test_what_cannot_be_is_one_line() -> None:
    with pytest.raises(
        ScenarioError, match=r"cluster.machines: no machine has a price"
    ):
        advise(scenario_of(**without_prices()), Terms(budget=1.0))


def test_systems_that_a_file_cannot_be_say_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_Levers, "find_changes", lambda _: [])
    rows = ["dgcl", "dgtp", "p3.none", "dorylus.pipe", "p3.A"]
    monkeypatch.setattr(advice_search, "list_variants", lambda _: rows)
    times = {"sampler": "3 ms", "worker": "5 ms", "graph_store": "1 ms"}
    times |= {"parameter_server": "1 ms"}
    job = {**JOB, "times": times}
    del job["rates"]

    terms = Terms(seeds=1, staleness=0)
    found = advise(scenario_of(job=job, **without_prices()), terms)
    assert {"dgcl", "dorylus.pipe", "p3.A"} <= found.refused.keys()
    assert not found.refused.keys() & {"p3.none", "dgtp"}
    assert found.rate is not None
    assert found.best.cost is None


@given(st.floats(1.05, 15.0), st.booleans(), st.booleans())
def test_a_crossover_is_where_the_rival_begins_to_win(
    at: float,
    up: bool,  # noqa: FBT001
    whole: bool,  # noqa: FBT001
) -> None:
    now = 16.0
    lever = Lever("x", lambda value: {"x": value}, str, now, whole=whole)
    threshold = now * at if up else now / at

    def wins(edit: Any) -> bool:
        return bool(edit["x"] >= threshold if up else edit["x"] <= threshold)

    for end in lever.ends:
        if wins(lever.edit(end)):
            value = lever.find_value(end, wins)
            assert wins(lever.edit(value))
            apart = abs(value - threshold)
            assert apart < 1 if whole else apart / threshold < 0.011
            side = "from" if up else "down to"
            assert lever.words(value).startswith(f"x {side} ")


def test_levers_stay_within_what_a_file_can_state() -> None:
    job = {**JOB, "dataset": {**JOB["dataset"], "feature_length": 900}}
    scenario = scenario_of(job=job)
    levers = {lever.name: lever for lever in list_levers(scenario, priced=False)}
    features = levers["features"]

    assert features.ends == [56, 10_000]
    for end in features.ends:
        load(scenario, features.edit(end))
    with pytest.raises(ScenarioError):
        load(scenario, features.edit(10_001))


def test_a_network_is_faster_in_all_of_its_links() -> None:
    nics = [
        {
            "name": "a",
            "nic": {
                "in": "5 Gbit/s",
                "out": "2 Gbit/s",
                "latency": {"in": "1 ms", "out": "7 ms"},
            },
        },
        {"name": "b", "nic": {"in": "3 Gbit/s", "out": "4 Gbit/s"}},
    ]
    racks = [
        {"name": f"r{name}", "machines": [name], "uplink": {"in": "1 GB/s", "out": out}}
        for name, out in (("a", "2 GB/s"), ("b", "3 GB/s"))
    ]
    job = {**JOB, "rates": {**RATES, "multiply": "4 ps"}}
    scenario = scenario_of(cluster={"machines": nics, "racks": racks}, job=job)
    levers = {one.name: one for one in list_levers(scenario, priced=False)}
    faster = load(scenario, levers["network"].edit(4.0))

    was, now = (one.cluster.build().links for one in (scenario, faster))
    assert [one.capacity for one in now] == [4 * one.capacity for one in was]
    assert any("up" in one.name for one in was)
    assert levers["latency of NICs"].now == 7e-3


def test_the_dearest_machine_and_every_collecting_are_changed_alone() -> None:
    rates = {**RATES, "collect": "200 ps", "collect_device": "30 ps"}
    machines = [dict(machine) for machine in FILE["cluster"]["machines"]]
    machines[-1]["price"] = "4 $/h"
    scenario = scenario_of(cluster={"machines": machines}, job={**JOB, "rates": rates})
    levers = {lever.name: lever for lever in list_levers(scenario, priced=True)}

    dearer = load(scenario, levers["the dearest machines"].edit(2.0))
    prices = [machine.price for machine in dearer.stated_cluster.machines]
    assert prices == [1.0, 8.0]
    faster = load(scenario, levers["collecting"].edit(4.0))
    found: Any = faster.job.operation_rates
    assert (found.collect, found.collect_device) == pytest.approx((50e-12, 7.5e-12))


@pytest.mark.parametrize(
    ("stated", "grid"),
    [
        (0.01, [0.01, 0.003, 0.03, 0.1]),
        (0.03, [0.03, 0.01, 0.1, 0.3]),
        (0.05, [0.05, 0.03, 0.1, 0.3]),
        (1.0, [1.0, 0.3, 3.0, 10.0]),
    ],
)
def test_rates_are_tried_around_the_stated_one(
    stated: float, grid: list[float]
) -> None:
    assert list_rates(stated) == grid
    assert next_rate(max(grid), sorted(grid)) == pytest.approx(
        {0.1: 0.3, 0.3: 1.0, 10.0: 30.0}[max(grid)]
    )
    assert next_rate(grid[0], sorted(grid)) is None
    assert next_rate(0.05, [0.05, 0.1]) == 0.03


@pytest.mark.parametrize("system", ["data_parallel", draws.rarely("dgcl")])
def test_the_best_rate_is_the_one_with_the_fewest_steps(system: str) -> None:
    rates = {**RATES, "multiply": "4 ps"}
    job = {**JOB, "optimizer": {"name": "adam", "lr": 0.01}, "rates": rates}
    target = Target(0.5, within=24)
    plain = as_variant(scenario_of(job=job), system)
    found = find_rate(plain, target)

    steps = {}
    for rate in (0.003, 0.01, 0.03, 0.1, 0.3):
        with suppress(NotReached):
            scenario = target.end(load(plain, {"job.optimizer.lr": rate}))
            whole = scenario.model_copy(update={"until": None})
            steps[rate] = look_until(scenario, prepare(whole).simulate)[-1].step
    assert found.best.steps == min(steps.values())
    assert steps[found.best.rate] == found.best.steps
    kept = find_rate(plain, target, keep=True)
    assert [*kept.tried] == [0.01]
    early = find_rate(plain, target, found.best.passes - 1)
    assert early.best.passes > found.best.passes - 1


@pytest.mark.parametrize(("later", "most_passes"), [(0.1, 36), (0.25, 100)])
def test_trainings_that_stand_still_end(
    later: float, most_passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rates rest, or one still rises, far below the others that lead."""
    trained: list[int] = []

    def train(_: Any, __: Target, rate: float, passes: int) -> Learning:
        trained.append(passes)
        levels = np.full(100, 0.3)
        if rate == 0.003:
            levels = np.where(np.arange(100) < 12, 0.1, later)
        return Learning(rate, levels[: passes - 2])

    monkeypatch.setattr(learning_rates, "_train", train)
    monkeypatch.setattr(learning_rates, "count_steps", lambda _: 9)
    plain = scenario_of(job={**JOB, "optimizer": {"name": "adam", "lr": 0.01}})
    find_rate(plain, Target(0.6))

    assert max(trained) == most_passes


def test_a_target_that_nothing_reaches_is_refused_by_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = ["data_parallel", "dgcl"]
    monkeypatch.setattr(advice_search, "list_variants", lambda _: rows)
    seen: list[str] = []
    job = {**JOB, "workers": 2, "rates": {**RATES, "multiply": "4 ps"}}
    terms = Terms(target=Target(0.999, within=3), seeds=1)
    with pytest.raises(ScenarioError) as refused:
        advise(scenario_of(**TO, job=job), terms, seen.append)

    text = str(refused.value)
    assert "no system reaches it within 3 passes" in text
    assert re.search(r"whole graphs hold \d+\.\d% at best, with lr 0\.\d", text)
    assert re.search(r"mini-batches hold \d+\.\d% at best, with lr 0\.\d", text)
    counted = [re.findall(r"trainings so far: (\d+)", line) for line in seen]
    numbers = [int(number) for found in counted for number in found]
    assert numbers == sorted(numbers)
    assert numbers[-1] > 10


def test_collecting_is_faster_wherever_features_lie() -> None:
    rates = {**RATES, "collect_device": "40 ps"}
    stated = scenario_of(job={**JOB, "rates": rates})
    both = {lever.name: lever for lever in list_levers(stated, priced=False)}
    edit = both["collecting"].edit(2.0)
    faster = load(stated, edit).job.operation_rates
    assert faster is not None
    assert (faster.collect, faster.collect_device) == (100e-12, 20e-12)

    one = {lever.name: lever for lever in list_levers(scenario_of(), priced=False)}
    assert [*one["collecting"].edit(2.0)] == ["job.rates.collect"]


counts = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(0, 2)).filter(any),
    st.integers(1, 9).map(float),
    min_size=1,
    max_size=5,
)


@given(st.lists(counts, min_size=1, max_size=3), st.booleans())
def test_combinations_are_the_best_of_all(
    seconds: list[dict[tuple[int, ...], float]],
    sums: bool,  # noqa: FBT001
) -> None:
    aim: Any = sum if sums else max
    free = (2, 2)
    every = [
        aim(times[one] for times, one in zip(seconds, some, strict=True))
        for some in product(*seconds)
        if all(sum(column) <= 2 for column in zip(*some, strict=True))
    ]

    best = combine_counts(seconds, free, aim, 3)
    found = [aim(s[c] for s, c in zip(seconds, one, strict=True)) for one in best]
    assert found == sorted(every)[:3]


def test_many_machines_are_divided_in_halves() -> None:
    assert len(list_counts([["a", "b"], ["c"]])) == 5
    kinds = [[f"m{k}{n}" for n in range(4)] for k in range(4)]
    found = list_counts(kinds)

    assert {sum(one) for one in found} == {1, 2, 4, 8, 16}
    assert {(4, 4, 0, 0), (0, 0, 4, 4), (0, 2, 2, 0)} <= {*found}


@pytest.mark.parametrize("by_weight", [False, True])
def test_jobs_get_machines_of_their_own(by_weight: bool) -> None:  # noqa: FBT001
    parallel = {**JOB, "system": "data_parallel"}
    del parallel["workers"]
    jobs: list[dict[str, Any]] = [
        {"name": "x", "job": parallel},
        {"name": "y", "job": WHOLE},
    ]
    content = {"cluster": FILE["cluster"], "jobs": jobs}
    if by_weight:
        jobs[0]["weight"] = 5.0
        content |= {"place_jobs": "joint", "joint_cost": "weighted"}
    scenario = loads(json.dumps(content), name="jobs.json")

    found = share_machines(scenario)
    assert not isinstance(found.stated, EmulatorError)
    assert found.best.aim < found.stated.aim
    x, y = found.best.machines.values()
    assert not {*x} & {*y}
    times = found.best.seconds
    assert found.best.aim == (
        5 * times["x"] + times["y"] if by_weight else max(times.values())
    )
    ready = prepare(found.best.scenario)
    together = job_times(ready.simulate(), ready.realization, ready.policy, epoch_of)
    walk = epoch_of(ready.problem.job.settings_of("x"))
    assert walk is not None
    epochs = 5 / walk.steps * walk.seeds / 197
    assert together[0].seconds / epochs == pytest.approx(times["x"])
    assert together[1].seconds / 4 == pytest.approx(times["y"])
