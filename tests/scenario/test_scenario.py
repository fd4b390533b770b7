"""From a good file to cluster, job, settings and back."""

from __future__ import annotations

import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import ScenarioError
from emu.problem.fields.section import Section
from emu.problem.workloads import window_of
from emu.scenario import (
    Scenario,
    build_job,
    find_errors,
    load,
    realize,
    write_scenario,
)
from emu.scenario.document import read_document
from emu.scenario.run_sections import LabFile
from emu.scenario.scenario_file import loads
from emu.scenario.schema import json_schema
from tests import draws

SCENARIOS = sorted((Path(__file__).parents[2] / "scenarios").glob("*.yaml"))
GOLDEN = next(path for path in SCENARIOS if path.stem == "golden")
TESTBED = next(path for path in SCENARIOS if path.stem == "testbed_products")


@pytest.mark.usefixtures("short_draws")
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_every_shipped_scenario_is_good_and_survives_a_round_trip(
    path: Path, tmp_path: Path
) -> None:
    if "amazon" in path.stem and "EMU_DATA" not in os.environ:
        pytest.skip("EMU_DATA names no graphs")
    scenario = load(path)
    smaller: dict[str, Any] = {}
    # Files of graphs that take 4 to 24 s of CPU to draw train on parts of them.
    if scenario.training_scales and draws.SHARE > 1:
        smaller["job.dataset.scale"] = 2 * max(scenario.training_scales)
    assert find_errors(path, smaller) == []
    resolved = tmp_path / "resolved.json"
    resolved.write_text(json.dumps(scenario.to_json()))

    assert load(resolved) == scenario


def test_machines_are_named_and_counted() -> None:
    cluster = load(TESTBED).to_cluster()

    assert [m.name for m in cluster.machines] == ["fast0", "fast1", "slow0", "slow1"]
    assert [m.bandwidth_in for m in cluster.machines] == [6.25e9] * 2 + [1.25e9] * 2
    assert cluster.machines[0].resources == {"cpu": 8, "gpu": 2, "memory": 48e9}


def _scenario(**sections: Any) -> Scenario:
    job = {"system": "custom", "iterations": 1, "tasks": [{"name": "a", "time": "1 s"}]}
    defaults = {"name": "x", "cluster": {"machines": [{"nic": "1 B/s"}]}, "job": job}
    return Scenario.model_validate(defaults | sections)


def test_machines_without_a_name_are_numbered_through() -> None:
    machines = [{"nic": "1 B/s", "count": 2}, {"nic": {"in": "2 B/s", "out": "3 B/s"}}]
    cluster = _scenario(cluster={"machines": machines}).to_cluster()

    assert [machine.name for machine in cluster.machines] == ["m0", "m1", "m2"]
    assert cluster.machines[2].bandwidth_in == 2
    assert cluster.machines[2].bandwidth_out == 3


def test_further_resources_are_numbers_or_sizes() -> None:
    machines = [{"nic": "1 B/s", "disk": "1 TB", "fpga": 2}]
    cluster = _scenario(cluster={"machines": machines}).to_cluster()

    assert cluster.machines[0].resources == {"disk": 1e12, "fpga": 2}


def test_overrides_change_lists_sections_and_defaults() -> None:
    scenario = load(
        GOLDEN,
        [
            "job.iterations=10",
            "job.tasks[0].time=[1 s, 2 s, 1 s, 1 s, 1 s, 1 s, 1 s, 1 s, 1 s, 1 s]",
            "placement.tasks.w0=m1",
            "emulation.deadline=1 s",
            "expect=null",
            "name=other",
        ],
    )

    assert scenario.job.iterations == 10
    assert realize(scenario, build_job(scenario)).times[0, 1] == 2
    assert scenario.placement.tasks["w0"] == "m1"
    assert scenario.emulation.deadline == 1
    assert scenario.expect.makespan is None
    assert scenario.name == "other"


def test_one_credit_window_is_that_of_every_command() -> None:
    """The run's 4, unless the file says another one or that there is none."""
    windows = {
        stated: window_of(
            build_job(load(GOLDEN, ["job.iterations=5", f"job.credit_window={stated}"]))
        )
        for stated in ("2", "unlimited", "null")
    }

    assert windows == {"2": 2, "unlimited": None, "null": 4}
    assert (
        load(GOLDEN, ["job.credit_window=null"]).to_json()["job"]["credit_window"] == 4
    )


def test_custom_tasks_are_told_their_payloads() -> None:
    task = build_job(load(GOLDEN)).tasks[0]

    assert task.settings == {"payload_bytes": [[2_000_000] * 3] * 2}


def test_programs_are_told_what_they_need() -> None:
    job = build_job(load(TESTBED, ["seed=7"]))

    assert job.settings == {
        "system": "dgtp",
        "dataset": {
            "name": "products-like",
            "scale": 0.05,
            "seed": 7,
            "normalise": False,
            "root": "",
            "feature_length": None,
        },
        "partitioner": "metis",
        "model": {"kind": "sage", "hidden": 256, "layers": 3, "heads": 1},
        "fanouts": [5, 10, 15],
        "batch_size": 100,
        "sampler_batch_size": 50,
        "parts": 4,
        "workers": 6,
        "samplers_per_worker": 2,
        "parameter_servers": 1,
        "optimizer": {"name": "adam", "lr": 0.001, "half_life": None},
        "sampling": "oneshot",
        "precision": "float32",
        "epoch": "replicate",
        "compute": "timed",
        "seed": 7,
    }


@pytest.mark.parametrize(
    ("epoch", "train", "iterations"),
    [("replicate", 1000, 2 * 20), ("replicate", 1001, 2 * 21), ("shard", 1000, 2 * 2)],
)
def test_epochs_become_iterations(epoch: str, train: int, iterations: int) -> None:
    scenario = load(
        TESTBED, ["job.iterations=null", "job.epochs=2", f"job.epoch={epoch}"]
    )

    assert scenario.to_job(train_vertices=train).iterations == iterations
    with pytest.raises(ValueError, match="how many"):
        scenario.to_job()


def test_multiround_needs_times_of_its_hops() -> None:
    with pytest.raises(ScenarioError) as caught:
        load(TESTBED, ["job.sampling=multiround"])
    assert caught.value.key == "job.times.graph_store_hop"
    load(TESTBED, ["job.sampling=multiround"], timed=False)


names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
seconds = st.floats(0, 1e9).map(lambda value: f"{value!r} s")
sizes = st.floats(0, 1e15).map(lambda value: f"{value!r} B")


@st.composite
def custom_scenarios(draw: st.DrawFn) -> dict[str, Any]:
    iterations = draw(st.integers(1, 4))

    def each(values: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
        return values | st.lists(values, min_size=iterations, max_size=iterations)

    tasks = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    rates = st.floats(1e-3, 1e12).map(lambda value: f"{value!r} B/s")
    return {
        "name": draw(names),
        "seed": draw(st.integers(0, 2**40)),
        "cluster": {"machines": [{"nic": draw(rates), "cpu": draw(st.floats(0, 99))}]},
        "job": {
            "system": "custom",
            "iterations": iterations,
            "tasks": [{"name": name, "time": draw(each(seconds))} for name in tasks],
            "flows": [
                {"from": first, "to": second, "volume": draw(each(sizes)), "lag": 1}
                for first in tasks
                for second in tasks[:2]
            ],
        },
        "expect": {"replay_error": draw(st.floats(0, 1)), "makespan": draw(seconds)},
    }


@given(custom_scenarios())
def test_a_resolved_scenario_loads_back_equal(data: dict[str, Any]) -> None:
    scenario = Scenario.model_validate(data)
    text = json.dumps(scenario.to_json(), allow_nan=False)

    assert Scenario.model_validate(json.loads(text)) == scenario


def _conforms(  # noqa: PLR0911 - one exit per keyword
    value: Any, schema: dict[str, Any], root: dict[str, Any]
) -> bool:
    """Judge ``value`` by the part of JSON Schema that the schema uses."""
    if "$ref" in schema:
        return _conforms(value, root["$defs"][schema["$ref"].split("/")[-1]], root)
    for words in ("anyOf", "oneOf"):
        options = schema.get(words)
        if options and not any(_conforms(value, one, root) for one in options):
            return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "const" in schema and value != schema["const"]:
        return False
    kinds: dict[str, Any] = {
        "object": dict, "array": list, "string": str, "integer": int,
        "number": (int, float), "boolean": bool, "null": type(None),
    }  # fmt: skip
    if "type" in schema and not isinstance(value, kinds[schema["type"]]):
        return False
    if isinstance(value, dict):
        known = schema.get("properties", {})
        further = schema.get("additionalProperties", True)
        return set(schema.get("required", ())) <= value.keys() and all(
            _conforms(item, known.get(key, further), root)
            if key in known or isinstance(further, dict)
            else further
            for key, item in value.items()
        )
    if isinstance(value, list):
        return len(value) >= schema.get("minItems", 0) and all(
            _conforms(item, schema.get("items", {}), root) for item in value
        )
    if isinstance(value, str):
        return re.search(schema.get("pattern", ""), value) is not None
    return not isinstance(value, int | float) or (
        schema.get("minimum", value) <= value <= schema.get("maximum", value)
    )


def _plain(path: Path) -> Any:
    return read_document(path).data


_schema = cache(json_schema)  # 0.6 s each; only read


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_shipped_scenarios_conform_to_the_schema(path: Path) -> None:
    schema = _schema()
    data = _plain(path)

    assert _conforms(data, schema, schema)
    assert _conforms(load(path).to_json(), schema, schema)


@pytest.mark.parametrize(
    ("trail", "value"),
    [
        (("cluster", "machines", 0, "nic"), "fast"),
        (("cluster", "machines", 0, "nic"), 50),
        (("job", "iterations"), 0),
        (("job", "tasks", 0, "time"), 1),
        (("job", "tasks", 0, "tme"), "1 s"),
        (("schedule", "policy"), "oess"),
        (("unknown",), 1),
        (("name",), "a/b"),
        (("job", "tasks", 0, "name"), "g 0"),
        (("job",), None),
        (("training_scales",), [0.1, 0.2]),
        (("cluster", "routes"), [{"from": [], "to": "m1", "through": ["out", "in"]}]),
    ],
)
def test_the_schema_refuses_what_loading_refuses(
    trail: tuple[str | int, ...], value: Any
) -> None:
    schema, data = _schema(), _plain(GOLDEN)
    place = data
    for step in trail[:-1]:
        place = place[step]
    place[trail[-1]] = value
    # None stands for a key that is not there.
    stated = {key: section for key, section in data.items() if section is not None}

    assert not _conforms(stated, schema, schema)


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        ("dgcl_dgx1", "times", {"forward": ["a"]}),
        ("dgcl_dgx1", "times", {"forward": {"a100": "1 s"}}),
        ("demo", "fanouts", [10**8]),
    ],
)
def test_the_schema_refuses_what_loading_a_training_refuses(
    path: str, key: str, value: Any
) -> None:
    schema = _schema()
    data = _plain(GOLDEN.with_name(f"{path}.yaml"))
    data["job"][key] = value

    with pytest.raises(ScenarioError, match=key):
        loads(json.dumps(data))
    assert not _conforms(data, schema, schema)


def test_defaults_of_the_schema_are_what_a_file_may_state() -> None:
    """Editors write them, and docs show them: 30 for a time is an error, 30 s none."""
    schema = _schema()
    sections = {"": schema, **schema["$defs"]}

    assert sections["EmulationSection"]["properties"]["deadline"]["default"] == "30 s"
    assert [
        (name, key)
        for name, section in sections.items()
        for key, value in section.get("properties", {}).items()
        if value.get("default") is not None
        and not _conforms(value["default"], value, schema)
    ] == []


def test_the_schema_takes_a_rate_as_the_nic_of_an_event() -> None:
    schema, data = _schema(), _plain(GOLDEN)
    data["events"] = [{"at": "1 s", "machine": "m0", "nic": "20 Mbit/s"}]
    assert loads(json.dumps(data)).events[0].nic is not None
    assert _conforms(data, schema, schema)

    data["events"][0]["nic"] = "none"
    with pytest.raises(ScenarioError, match="a NIC stays"):
        loads(json.dumps(data))
    assert not _conforms(data, schema, schema)


def test_keys_with_a_shorthand_are_described() -> None:
    """They lost their text, for editors and in docs/scenarios.md."""
    definitions = _schema()["$defs"]
    for section, key in (
        ("MachineSection", "nic"),
        ("EventSection", "nic"),
        ("RouteSection", "from"),
        ("DgtpJobSection", "dataset"),
    ):
        assert definitions[section]["properties"][key]["description"]


def test_the_stand_in_of_several_jobs_is_no_word_of_a_file() -> None:
    data = _plain(GOLDEN)
    data["job"] = {"system": "several"}
    with pytest.raises(ScenarioError) as caught:
        loads(json.dumps(data))
    assert caught.value.key == "job.system"
    assert "found system 'several', known: adaqp" in caught.value.problem
    assert "whole_graph" in caught.value.problem
    assert "whole_graph, several" not in caught.value.problem


def test_where_there_are_no_links_an_unknown_one_says_so() -> None:
    data = _plain(GOLDEN)
    data["events"] = [{"at": "1 s", "link": "r0 up", "bandwidth": "1 B/s"}]
    with pytest.raises(ScenarioError, match="no link 'r0 up', there are none"):
        loads(json.dumps(data))


def test_every_reference_of_the_schema_leads_somewhere() -> None:
    schema = _schema()
    text = json.dumps(schema)

    for part in text.split('"$ref": "#/$defs/')[1:]:
        assert part.split('"')[0] in schema["$defs"]
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_no_section_of_labs_hides_one_of_scenarios() -> None:
    """Two classes of one name would be one entry of the schema."""
    ours = Scenario.model_json_schema(by_alias=True)["$defs"]
    labs = LabFile.model_json_schema(by_alias=True)["$defs"]

    for name in ours.keys() & labs.keys():
        assert ours[name] == labs[name], name


def test_keys_are_described_below_them_in_their_sections_and_those_extended() -> None:
    defined = _schema()["$defs"]
    text = "Size with its unit."

    assert defined["Resources"]["properties"]["memory"]["description"] == text
    assert "description" in _schema()["properties"]["placement"]
    # Those that may be written shorter as well, such as the NIC of a machine.
    for section in defined.values():
        for key, value in section.get("properties", {}).items():
            assert "description" in value, key


def test_a_section_made_at_a_prompt_is_without_descriptions() -> None:
    made: dict[str, Any] = {"Section": Section, "__name__": "__main__"}
    exec('class Own(Section):\n    key: int\n    """What it is."""\n', made)  # noqa: S102

    assert "description" not in made["Own"].model_json_schema()["properties"]["key"]


@pytest.mark.parametrize("size", ["0 B", "1 kB"])
def test_the_memory_in_flight_has_room_for_a_buffer(size: str) -> None:
    """Processes ended with a traceback in the log, and the error named no key."""
    with pytest.raises(ScenarioError, match=r"memory_limit: .*write 4096 B or more"):
        load("golden", {"emulation.memory_limit": size})
    load("golden", {"emulation.memory_limit": "4096 B"})


def test_a_scenario_is_written_as_its_file_is_named(tmp_path: Path) -> None:
    """Write JSON where the name says so: YAML there is refused by every command."""
    scenario = load("golden")
    for name in ("golden.json", "golden.yaml", "golden.txt"):
        write_scenario(tmp_path / name, scenario)
        assert load(tmp_path / name).to_json() == scenario.to_json()
