"""JSON Schema of the files that emu reads."""

from __future__ import annotations

from typing import Any, TypeAlias

from emu.problem.fields import quantities
from emu.scenario import run_sections as sections
from emu.scenario.scenario import Scenario
from emu.systems.system import section_types
from emu.units import DURATION, RATE

#: JSON Schema, or a part of one.
_Schema: TypeAlias = dict[str, Any]


def json_schema() -> _Schema:
    """Return the JSON Schema of scenarios; ``LabFile`` in its ``$defs`` is of labs."""
    schema = Scenario.model_json_schema(by_alias=True)
    lab = sections.LabFile.model_json_schema(by_alias=True)
    definitions = schema["$defs"]
    definitions.update(lab.pop("$defs"))
    definitions["LabFile"] = lab

    # A file states job or jobs, and ``name`` is by default that of the file.
    schema["required"] = ["cluster"]
    schema["oneOf"] = [{"required": ["job"]}, {"required": ["jobs"]}]
    # No jobs are no value of it, and stand for one that is not there.
    del schema["properties"]["jobs"]["default"]
    cluster = definitions["ClusterSection"]
    # A topology stands for the machines, which are then not required.
    keys = cluster.pop("required")
    states_machines = {"required": keys}
    states_topology = {"required": ["topology"]}
    cluster["anyOf"] = [states_machines, states_topology]

    shorthands = _shorthands(schema)
    for (section, key), short in shorthands.items():
        properties = definitions[section]["properties"]
        value = properties[key]
        # Editors show the text of a key, and not that of one of its alternatives.
        text = value.pop("description", None)
        alternatives = value.get("anyOf", [value])
        properties[key] = {"anyOf": [short, *alternatives]}
        if text is not None:
            properties[key]["description"] = text
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _shorthands(schema: _Schema) -> dict[tuple[str, str], _Schema]:
    """Return schemas of shorter values, by section and key."""
    # Validators that run before pydantic's take these, too, which its schema does not
    # show.
    uplink = quantities.text_schema(RATE, "40 Gbit/s")
    latency = quantities.text_schema(DURATION, "50 us")
    latency_of_rack = quantities.text_schema(DURATION, "5 us")
    changed_nic = quantities.text_schema(RATE, "20 Mbit/s")
    shorthands = {
        ("MachineSection", "nic"): _short_nic(schema),
        ("RackSection", "uplink"): uplink,
        ("MachineNic", "latency"): latency,
        ("RackSection", "latency"): latency_of_rack,
        ("EventSection", "nic"): changed_nic,
        ("RouteSection", "from"): {"type": "string"},
        ("RouteSection", "to"): {"type": "string"},
    }

    for section_type in section_types():
        if not section_type.trains:
            continue
        section = section_type.__name__
        text = {"type": "string", "examples": ["products-like"]}
        optimizer = {"enum": ["adam", "sgd"]}
        shorthands[section, "dataset"] = text
        shorthands[section, "optimizer"] = optimizer
        properties = schema["$defs"][section]["properties"]
        model = properties["model"]
        if "oneOf" in model:
            model["anyOf"] = model.pop("oneOf")
    return shorthands


def _short_nic(schema: _Schema) -> _Schema:
    """Return the schema of ``nic`` as a rate, ``none`` or a list."""
    rate = quantities.text_schema(RATE, "50 Gbit/s")
    machine = schema["$defs"]["MachineSection"]
    section = machine["properties"]["nic"]
    one_of_several = {"anyOf": [rate, section]}
    several = {
        "type": "array",
        "items": one_of_several,
        "minItems": 1,
    }
    no_nic = {"const": "none"}
    return {
        "anyOf": [rate, no_nic, several],
        "examples": ["50 Gbit/s"],
    }


def file_schema() -> _Schema:
    """Return the JSON Schema of what emu reads, for editors: a lab states ``lab``."""
    schema = json_schema()
    definitions = schema.pop("$defs")
    schemas = {"Scenario": schema, **definitions}
    return {
        "$schema": schema.pop("$schema"),
        "if": {"required": ["lab"]},
        "then": {"$ref": "#/$defs/LabFile"},
        "else": {"$ref": "#/$defs/Scenario"},
        "$defs": schemas,
    }
