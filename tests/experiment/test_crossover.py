"""Where P3 stops to be the faster system."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import ScenarioError
from emu.experiment import crossover
from emu.experiment.bisection import middle
from emu.experiment.crossover import Crossover, Side, Values, find_crossover
from emu.experiment.question import Answer
from emu.experiment.row_figures import limits_of
from emu.experiment.system_rows import compare_systems
from emu.experiment.systems import as_system
from emu.graph_data import count_samples
from emu.report.system_tables import crossover_json, crossover_table
from emu.scenario import load, prepare
from emu.scenario.overrides import value_at
from emu.scenario.scenario_file import loads
from emu.units import RATE
from tests import draws
from tests.experiment.test_question import scenario_of
from tests.report.answers import answer_of

#: Few vertices of layer 1 reach many of layer 0: the network is all that counts.
TEXT = """\
cluster:
  machines: [{count: 2, nic: 100 Mbit/s}]
job:
  system: p3
  dataset: {name: products-like, scale: 0.005}
  model: {hidden: 16, layers: 2}
  fanouts: [20, 2]
  batch_size: 200
  iterations: 8
  push: derived
  machines: [m0, m1]
  times:
    {sampler: 0 s, model_forward: 0 s, data_forward: 0 s, data_backward: 0 s,
     model_backward: 0 s}
emulation: {compute: timed}
"""


def test_crossover_by_hidden_width() -> None:
    """Without computation the network decides, and pipelines hide nothing of it."""
    count_samples.cache_clear()
    found = find_crossover(
        loads(TEXT),
        "job.model.hidden",
        ("data_parallel", "p3"),
        Values.between("4", "1024"),
    )

    assert found.found
    assert found.above.value == found.below.value + 1
    assert found.below.best.system == "p3"
    assert found.above.best.system == "data_parallel"
    assert found.estimate == pytest.approx(found.below.value, rel=0.1)
    assert count_samples.cache_info().misses == 1  # for both systems, at every width
    for side in (found.below, found.above):
        for result in side.answers:
            changed = {"job.model.hidden": side.value}
            again = prepare(as_system(loads(TEXT), result.system, changed)).simulate()
            assert again.makespan == result.makespan
            assert result.makespan >= result.busiest_link


def test_the_table_shows_what_decides() -> None:
    """Over few mini-batches P3's pipeline has fewer per second and the best pace."""

    def measured(system: str, rate: float) -> Answer:
        limits = {"link m0 in": 0.09}
        return answer_of({0: 1.0}, system, rate, limits=limits, busiest_link=0.1)

    sides = [
        Side(hidden, (measured("p3", rate), measured("data_parallel", 72_000)))
        for hidden, rate in ((83, 73_480), (84, 71_000))
    ]
    table = crossover_table(Crossover("job.model.hidden", sides[0], sides[1], None, 2))
    shown = [[*column.cells] for column in table.columns]

    assert [side.best.system for side in sides] == ["p3", "data_parallel"]
    first, second = measured("p3", 70_000), measured("data_parallel", 70_000)
    assert Side(83, (first, second)).best is first
    assert Side(83, (second, first)).best is second
    assert ["73,480", "72,000", "71,000", "72,000"] in shown
    # A long key as a header would be broken in the middle of a word.
    assert str(table.title).endswith("by seeds per second; values of job.model.hidden")
    assert str(table.columns[0].header) == "value"


def test_the_title_names_machines_where_both_ends_have_the_same() -> None:
    def side(value: int, machines: list[str]) -> Any:
        answer = SimpleNamespace(
            system="p3",
            placing={"machines": machines, "machines_in_all": 2},
            samples_per_second=9.0,
            limit="latency",
            busiest_link=0.0,
        )
        return SimpleNamespace(value=value, best=answer, answers=(answer, answer))

    def title(high: list[str]) -> str:
        low_side = side(1, ["m0"])
        found = Crossover("job.x", low_side, side(9, high), None, 2)
        return str(crossover_table(found).title)

    assert title(["m0"]).startswith("p3 on m0 alone is faster at 1 and at 9,")
    assert title(["m0", "m1"]).startswith("p3 is faster at 1 and at 9,")


RATES = {
    "aggregate": "2 ns", "multiply": "20 ps", "sample": "300 ns", "collect": "10 ns",
    "step": "1 ns", "launch": "40 us",
}  # fmt: skip


@pytest.mark.parametrize("seed", draws.some(range(2), few=1))
def test_both_sides_are_rows_of_a_comparison(seed: int) -> None:
    """Each system on its own machines, of which one is slow."""
    rng = np.random.default_rng(seed)
    slow = {"name": "slow", "nic": f"{rng.integers(5, 40)} Mbit/s"}
    edit = {
        "cluster.machines": [{"count": 2, "nic": "1 Gbit/s"}, slow],
        "job.machines": None,
        "job.times": None,
        "job.rates": RATES,
        "job.dataset.scale": 0.002,
        "job.batch_size": 20,
    }
    scenario = loads(TEXT, edit)
    key = "job.dataset.feature_length"
    names = ("data_parallel", "p3")
    found = find_crossover(scenario, key, names, Values.between("8", "512"))

    for side in found.sides:
        rows = compare_systems(load(scenario, {key: side.value}), names)
        assert [row.makespan for row in rows] == [row.makespan for row in side.answers]
        assert [row.machines for row in rows] == [row.machines for row in side.answers]
        assert any("slow" not in row.machines for row in rows)
        best = max(rows, key=lambda row: row.samples_per_second)
        assert best.system == side.best.system
        assert crossover_json(found)["sides"][0]["machines"]


def test_a_key_that_a_system_lacks_is_refused() -> None:
    values = Values.between("1", "3")
    names = ("dgtp", "data_parallel")
    with pytest.raises(ScenarioError, match="changes nothing of data_parallel"):
        find_crossover(scenario_of(), "job.parameter_servers", names, values)


def test_no_crossover() -> None:
    found = find_crossover(
        loads(TEXT),
        "job.model.hidden",
        ("p3", "data_parallel"),
        Values.between("2", "4"),
    )

    assert not found.found
    assert found.estimate is None
    assert (found.below.value, found.above.value, found.simulations) == (2, 4, 4)
    assert crossover_json(found)["sides"][0]["best"] == "p3"


def test_systems_side_by_side() -> None:
    on_both = loads(TEXT)
    results = compare_systems(on_both, ["data_parallel", "p3"], seeds=2)

    assert [sorted(result.makespans) for result in results] == [[0, 1], [0, 1]]
    assert results[1].makespan < results[0].makespan
    ends = {"m0 in", "m0 out", "m1 in", "m1 out"}
    assert next(iter(results[0].limits)) in {f"link {end}" for end in ends}
    assert results[0].busiest[0] in ends
    with pytest.raises(ScenarioError, match="'dory' is not among the systems"):
        compare_systems(loads(TEXT), ["dory"])
    with pytest.raises(ScenarioError, match=r"whole graph: write job\.rates"):
        compare_systems(loads(TEXT), ["dgcl"])


def test_values() -> None:
    rates = Values.between("1 Gbit/s", "4 Gbit/s")

    assert rates.write(middle(1.0, 4.0, whole=False) or 0) == "2 Gbit/s"
    assert middle(2.0, 2.001, whole=False) is None
    assert Values.between("100 Mbit/s", "4 Gbit/s") == Values(0.1, 4.0, "Gbit/s")
    assert Values.around(32) == Values(2, 512, whole=True)
    assert Values.around(5) == Values(1, 80, whole=True)  # a sixteenth would be none
    assert middle(2, 4, whole=True) == 3
    assert middle(3, 4, whole=True) is None
    for low, high, message in (
        ("1 s", "2 ms", "must be more than 0 and less"),
        ("1 s", "2 MB", "1 s is no number of MB"),
        ("4", "4", "must be more than 0 and less"),
        ("a", "2", "are not two numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            Values.between(low, high)
    for value in ("fast", None, True, [1], "10"):
        with pytest.raises(ValueError, match="is no number"):
            Values.around(value)


@pytest.mark.parametrize("seed", range(8))
def test_values_around_that_of_the_file(seed: int) -> None:
    """By position, by name, and by the name of one of several equal machines."""
    rng = np.random.default_rng(seed)
    number, unit = int(rng.integers(1, 90)), rng.choice(["Mbit/s", "Gbit/s", "MB/s"])
    other = {"name": "other", "nic": "7 Mbit/s"}
    machines = [{"name": "m", "count": 2, "nic": f"{number} {unit}"}, other]
    first = int(rng.integers(2))
    scenario = loads(TEXT, {"cluster.machines": machines[:: 1 - 2 * first]})
    content = scenario.to_json()

    for where in (f"machines[{first}]", "machines.m0", "machines.m1"):
        found = Values.around(value_at(content, f"cluster.{where}.nic"))
        ends = [found.write(end) for end in (found.low, found.high)]
        assert [RATE.parse(end) for end in ends] == pytest.approx(
            [RATE.parse(f"{number} {unit}") * by for by in (1 / 16, 16)], rel=1e-5
        )
    batch = Values.around(value_at(content, "job.batch_size"))
    assert batch == Values(200 // 16, 200 * 16, whole=True)
    for key in ("cluster.machines.m2.nic", "job.modl", "cluster.machines[2].nic"):
        assert value_at(content, key) is None


def test_commands(tmp_path: Path) -> None:
    file = tmp_path / "both.yaml"
    file.write_text(TEXT)

    def said(*arguments: str) -> str:
        result = CliRunner().invoke(app, [arguments[0], str(file), *arguments[1:]])
        assert result.exit_code == 0, result.output
        return result.output

    key = ["--key", "job.model.hidden", "--range", "64,128"]
    found = json.loads(said("crossover", *key, "--json", "-"))
    table = said("crossover", *key)
    assert "is faster" in table
    assert "times of tasks are as stated" in table
    nic = ["--key", "cluster.machines[0].nic", "--range", "90 Mbit/s,100 Mbit/s"]
    assert "times of tasks" not in said("crossover", *nic)
    assert [side["value"] for side in found["sides"]] == [64, 128] or found["found"]
    shown = said("compare", "--systems", "data_parallel,p3")
    assert "data_parallel" in shown
    assert "seeds per s" in shown


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("job.modl", "unknown key 'modl', did you mean 'model'?"),
        ("job.tasks", "unknown key 'tasks', known: system, "),
        ("job.model.hidden.x", "job.model.hidden is 16, it has no x"),
        ("cluster.machines.nobody.cpu", "cluster.machines has no 'nobody', known: "),
        ("cluster.machines[0].latency", "a latency is one of a NIC, a link or a rack"),
        (
            "job.dataset.feature_length",
            "the file does not state it: write --range LOW,HIGH",
        ),
    ],
)
def test_a_key_that_the_file_does_not_state(
    tmp_path: Path, key: str, problem: str
) -> None:
    """Nobody stated the 0 that looks for the key."""
    file = tmp_path / "both.yaml"
    file.write_text(TEXT)

    wrong = CliRunner().invoke(app, ["crossover", str(file), "--key", key])

    assert wrong.exit_code == 2
    assert f"emu: --key {key}: {problem}" in wrong.output


@pytest.mark.parametrize("seed", range(6))
def test_what_limits_a_chain_is_its_longest_link(seed: int) -> None:
    """Of a chain of tasks on machines of their own all links are on the path."""
    rng = np.random.default_rng(seed)
    times = rng.permutation([1, 3, 7, 20]).tolist()
    sizes = rng.permutation([2, 5, 12]).tolist()
    tasks = [{"name": f"t{n}", "time": f"{time} s"} for n, time in enumerate(times)]
    flows = [
        {"from": f"t{n}", "to": f"t{n + 1}", "volume": f"{size} B"}
        for n, size in enumerate(sizes)
    ]
    scenario = {
        "cluster": {"machines": [{"name": f"m{n}", "nic": "1 B/s"} for n in range(4)]},
        "job": {"system": "custom", "iterations": 1, "tasks": tasks, "flows": flows},
        "placement": {
            "policy": "explicit",
            "tasks": {f"t{n}": f"m{n}" for n in range(4)},
        },
    }
    # No link of the chain is twice on it; a NIC's rate is 1 B/s, so bytes are seconds.
    longest = max([*times, *sizes])
    at = times.index(longest)

    ready = prepare(loads(json.dumps(scenario), name="c.json"))
    found = limits_of(ready, ready.simulate())

    assert sum(found.values()) == pytest.approx(1)
    share = longest / sum([*times, *sizes])
    assert next(iter(found)) == f"path m{at}"
    assert found[f"path m{at}"] == pytest.approx(share)


def test_a_value_that_cannot_be_names_the_option_that_decides() -> None:
    """Sixteen times the batch is more than the graph has training vertices."""
    scenario = loads(TEXT)
    values = Values.around(200)
    with pytest.raises(ScenarioError, match=r"983 or fewer; --range LOW,HIGH") as error:
        find_crossover(scenario, "job.batch_size", ("data_parallel", "p3"), values)
    assert error.value.file == "--key job.batch_size"
    # It already shows where the file is written for a system.
    with pytest.raises(ScenarioError, match=r"0\.5.*; --range LOW,HIGH"):
        find_crossover(
            scenario, "job.batch_size", ("data_parallel", "p3"), Values(0.5, 2)
        )


def test_a_crossover_and_its_estimate_are_two_changes_along_one_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first is as fast up to 40, where both are equal; links are equal at 20."""
    asked: list[tuple[str, int]] = []

    def measured(_: object, system: str, settings: dict[str, Any]) -> Any:
        (value,) = settings.values()
        asked.append((system, value))
        speed, load = {"a": (40, 20), "b": (value, value)}[system]
        return SimpleNamespace(
            system=system, samples_per_second=speed, busiest_link=load
        )

    monkeypatch.setattr(crossover, "measure", measured)
    monkeypatch.setattr(crossover, "as_variant", lambda *row: row)
    values = Values.between("1", "100")
    told: list[str] = []
    none = cast("Any", None)
    found = find_crossover(none, "job.x", ("a", "b"), values, told.append)
    assert told[:3] == [
        "job.x 1, value 1",
        "job.x 100, value 2",
        "job.x 10, value 3",
    ]

    assert (found.below.value, found.above.value) == (40, 41)
    assert (found.below.best.system, found.above.best.system) == ("a", "b")
    # The first has as few bytes as the second from 20 on.
    assert found.estimate == 19
    assert found.found
    assert len(asked) == len({*asked}) == found.simulations

    # Where the best does not change, the ends of the range are returned.
    low = find_crossover(
        cast("Any", None), "job.x", ("a", "b"), Values.between("1", "15")
    )
    assert [side.value for side in low.sides] == [1, 15]
    assert (low.found, low.estimate) == (False, None)


def test_several_jobs_have_no_crossover() -> None:
    """A key of the one job that there is not would be refused beside theirs."""
    job = {"system": "custom", "iterations": 2, "tasks": [{"name": "w", "time": "1 s"}]}
    jobs = [{"name": name, "job": job} for name in "ab"]
    scenario = loads(
        json.dumps({"cluster": {"machines": [{"nic": "1 Gbit/s"}]}, "jobs": jobs})
    )
    values = Values.between("1", "3")
    with pytest.raises(ScenarioError, match="several jobs cannot be compared"):
        find_crossover(scenario, "job.iterations", ("data_parallel", "p3"), values)


def test_an_estimate_is_seen_between_values_that_were_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Links of the first carry more at both ends, and less from 20 to 60."""

    def measured(_: object, system: str, settings: dict[str, Any]) -> Any:
        (value,) = settings.values()
        load = value if value <= 60 else 0
        speed, load = {"a": (40, 20), "b": (value, load)}[system]
        return SimpleNamespace(
            system=system, samples_per_second=speed, busiest_link=load
        )

    monkeypatch.setattr(crossover, "measure", measured)
    monkeypatch.setattr(crossover, "as_variant", lambda *row: row)
    none = cast("Any", None)
    found = find_crossover(none, "job.x", ("a", "b"), Values.between("1", "100"))
    assert (found.below.value, found.estimate) == (40, 19)

    # Beyond 60 the second sends nothing: its bytes are nowhere those of the first.
    beyond = Values.between("30", "100")
    jump = find_crossover(none, "job.x", ("a", "b"), beyond)
    assert (jump.below.value, jump.estimate) == (40, None)


def test_a_seed_has_no_crossover() -> None:
    values = Values.between("1", "3")
    for key in ("seed", "job.dataset.seed"):
        with pytest.raises(ScenarioError, match="numbers draws"):
            find_crossover(loads(TEXT), key, ("data_parallel", "p3"), values)


def test_an_error_of_another_key_is_told_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No other range would mend it."""
    error = ScenarioError("2 or more", file="job.workers", key="job.workers")

    def refuse(*_: Any) -> Answer:
        raise error

    monkeypatch.setattr(crossover, "measure", refuse)
    values = Values.between("4", "8")
    names = ("data_parallel", "p3")
    with pytest.raises(ScenarioError) as found:
        find_crossover(loads(TEXT), "job.model.hidden", names, values)
    assert found.value is error


def test_values_are_whole_where_both_ends_are_and_have_no_unit() -> None:
    assert Values.between("1", "4") == Values(1.0, 4.0, whole=True)
    assert Values.between("1.5", "4") == Values(1.5, 4.0)
    assert Values.between("1", "4.5") == Values(1.0, 4.5)
    assert Values.between("1 s", "4 s") == Values(1.0, 4.0, "s")
    assert Values.around(0.5) == Values(0.03125, 8.0)
    nic = {"in": "2 Gbit/s", "out": "2 Gbit/s"}
    assert Values.around(nic) == Values(0.125, 32.0, "Gbit/s")
    with pytest.raises(ValueError, match="is no number"):
        Values.around({**nic, "out": "3 Gbit/s"})
    with pytest.raises(ValueError, match="must be more than 0 and less"):
        Values.between("0", "4")

    assert repr(Values(1, 9, whole=True).write(4.0)) == "4"
    assert repr(Values(1, 9).write(4.5)) == "4.5"
    assert Values(1, 9, "s").write(1.23456789) == "1.23457 s"
