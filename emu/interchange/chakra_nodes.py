"""Nodes of Chakra execution traces, from protobuf or JSON.

Schema: et_def.proto of github.com/mlcommons/chakra, where a message with the metadata
stands first and a node per message follows, each behind its length; or the same
messages as JSON, one after the other, in a list, or under ``workload_graph``.
"""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from emu.errors import DataError
from emu.host.input_file import MOST_TEXT, read_packed, unique_mapping
from emu.interchange.protobuf import (
    FIXED,
    INTEGER,
    REAL,
    SIGNED,
    TEXT,
    UNKNOWN,
    Schema,
    decode,
    read_messages,
)
from emu.interchange.workload import MOST_NODES, Data

#: Types of nodes by number; those of later versions are called by it.
KINDS = (
    "INVALID",
    "METADATA",
    "MEM_LOAD",
    "MEM_STORE",
    "COMP",
    "COMM_SEND",
    "COMM_RECV",
    "COMM_COLL",
    "STORAGE",
    "BATCH",
    "CHECKPOINT",
)
COLLECTIVES = (
    "ALL_REDUCE",
    "REDUCE",
    "ALL_GATHER",
    "GATHER",
    "SCATTER",
    "BROADCAST",
    "ALL_TO_ALL",
    "REDUCE_SCATTER",
    "REDUCE_SCATTER_BLOCK",
    "BARRIER",
)
#: Kinds of values by the number of the first field; lists have the number behind it.
_KINDS_OF_VALUES = {
    **dict.fromkeys((3, 5), REAL),
    **dict.fromkeys((7, 9, 11, 13, 27), INTEGER),
    **dict.fromkeys((15, 17), SIGNED),
    **dict.fromkeys((19, 21, 23, 25), FIXED),
    **dict.fromkeys((29, 31), TEXT),
}
_SINGLE_VALUES: Schema = {
    number: ("value", kind) for number, kind in _KINDS_OF_VALUES.items()
}
_LISTS_OF_VALUES: Schema = {
    number + 1: ("list", {1: ("values", kind)})
    for number, kind in _KINDS_OF_VALUES.items()
}
_ATTRIBUTE: Schema = {
    1: ("name", TEXT),
    2: ("doc_string", None),
    **_SINGLE_VALUES,
    **_LISTS_OF_VALUES,
}
#: Start, inputs and outputs (None) are of no number here.
_NODE: Schema = {
    1: ("id", INTEGER),
    2: ("name", TEXT),
    3: ("type", INTEGER),
    4: ("ctrldeps", INTEGER),
    5: ("datadeps", INTEGER),
    7: ("durationmicros", INTEGER),
    10: ("attr", _ATTRIBUTE),
    6: ("starttimemicros", None),
    8: ("inputs", None),
    9: ("outputs", None),
}
#: Begin of JSON. A brace alone may be the length of a first message of 123 bytes, whose
#: tag is a newline.
_JSON = re.compile(rb'\s*(\[\s*)?\{\s*"')
#: What parts two values of JSON.
_GAP = re.compile(r"[\s,]*")
#: End of a name whose number is of a version and would pass for a rank.
VERSION_IN_NAME = re.compile(r"\d\.\d+\.\d+\.\w+(\.gz)?$")
#: Keys of an attribute's value, in protobuf, JSON of it, and PyTorch's own traces.
_VALUE = re.compile(r"^(value|list)$|(Val|_val|List|_list)$")
_IN_ATTRIBUTE = re.compile(rf"{_VALUE.pattern}|^(name|type|doc_?[sS]tring)$")
#: The metadata, whose attributes stood in field 1 before there was a version.
_METADATA: Schema = {
    1: ("version", TEXT),
    2: ("attr", _ATTRIBUTE),
}
_VERSIONS = ("0.0.4", "1.")
_SINGLE = ("id", "name", "type", "durationmicros")
#: Keys of nodes that are no attributes, in lower case without underscores.
_OWN = {
    "id",
    "name",
    "type",
    "nodetype",
    "ctrldeps",
    "datadeps",
    "durationmicros",
    "runtime",
    "attr",
    "starttimemicros",
    "inputs",
    "outputs",
}


class Node(NamedTuple):
    """A node of a trace."""

    number: int
    kind: str
    """One of `KINDS`."""
    data: list[int]
    control: list[int]
    """Nodes that it depends on."""
    micros: float
    attributes: Data


class Trace(NamedTuple):
    """The trace of one rank."""

    metadata: Data
    nodes: list[Node]
    left_out: Counter[str]
    """Fields that no reader asked for, and how often."""


def rank_files(path: Path, copies: int = 0) -> list[Path]:
    """Return the file of every rank: NAME.0.et, NAME.1.et, ... of one, or copies of it.

    A number behind others, as in ``chakra.0.0.4.et``, is of a version.

    Raises DataError when one between them is missing, or there twice.
    """
    if copies:
        return [path] * copies
    match = re.fullmatch(r"(.*\.)(\d+)(\.\w+(?:\.gz)?)", path.name)
    if match is None or VERSION_IN_NAME.search(path.name):
        return [path]
    begin, _, end = match.groups()
    pattern = re.compile(rf"{re.escape(begin)}(\d+){re.escape(end)}")
    ranks = dict[int, Path]()
    for entry in path.parent.iterdir():
        if name_match := pattern.fullmatch(entry.name):
            rank = int(name_match[1])
            if rank in ranks:
                names = sorted([ranks[rank].name, entry.name])
                problem = f"has rank {rank} twice beside it: {' and '.join(names)}"
                raise DataError(problem, path=path)
            ranks[rank] = entry

    # A gap would put all later ranks onto other machines.
    highest = max(ranks)
    missing = [rank for rank in range(highest) if rank not in ranks]
    if missing:
        name = f"{begin}{missing[0]}{end}"
        problem = f"is one of ranks 0 to {highest}, {name} is missing"
        raise DataError(problem, path=path)
    # By number: by name rank 10 would stand before rank 2.
    ranks_in_order = sorted(ranks)
    return [ranks[rank] for rank in ranks_in_order]


def read_nodes(path: Path, *, large: bool = False) -> Trace:
    """Return the trace of one rank.

    Raises DataError when it is damaged, of another version, or has more than
    `MOST_NODES` where it is not ``large``.
    """
    most_bytes = None if large else MOST_TEXT
    content = read_packed(path, most_bytes).removeprefix(codecs.BOM_UTF8)
    trace = Trace(metadata={}, nodes=[], left_out=Counter())
    try:
        name = path.name.removesuffix(".gz")
        is_json = name.endswith(".json") or _JSON.match(content) is not None
        rows = _json_rows(content.decode()) if is_json else _rows(content)
        for row in rows:
            _take_row(trace, row)
            # Within the loop: ten million nodes are refused before all are read.
            if len(trace.nodes) > MOST_NODES and not large:
                raise DataError(
                    f"has more than {MOST_NODES:,} nodes, some 2 kB of memory "
                    "each: add --large",
                    path=path,
                )
        # Some files state the version among their metadata.
        version = trace.metadata.get("schema")
        _check_version([version])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataError(f"is no Chakra trace: {error!s:.200}", path=path) from error

    if not trace.nodes:
        raise DataError("holds no node", path=path)
    # Dependencies name ids: of two nodes of one id nobody knows which is meant.
    numbers = {node.number for node in trace.nodes}
    if len(numbers) < len(trace.nodes):
        raise DataError("has two nodes of one id", path=path)
    return trace


def _take_row(trace: Trace, row: Data) -> None:
    """Take in a node, or metadata."""
    trace.left_out.update(_unknown_fields(row))
    # JSON of protobuf leaves out zeros: a node may lack its id, or its type.
    if row.keys() & {"id", "type", "nodetype"}:
        trace.nodes.append(_node(row))
    else:
        stated_attributes = row.get("attr") or []
        attributes = map(_attribute, stated_attributes)
        trace.metadata.update(attributes)


def _node(row: Data) -> Node:
    number_or_name = row.get("nodetype", 0)
    kind = str(row.get("type", number_or_name)).upper()
    kind = kind.removesuffix("_NODE")
    if kind.isdecimal():
        number = int(kind)
        kind = f"type {number}"
        if number < len(KINDS):
            kind = KINDS[number]

    attributes: Data = {}
    stated_attributes = row.get("attr") or []
    for name, value in map(_attribute, stated_attributes):
        if name in attributes:
            node_id = row.get("id", 0)
            raise ValueError(f"node {node_id} states {name} twice")
        attributes[name] = value

    node_number = whole(row.get("id", 0), "an id")
    # To JSON of other writers null is a list of nothing.
    data = row.get("datadeps") or []
    control = row.get("ctrldeps") or []
    micros = row.get("durationmicros") or row.get("runtime")
    return Node(
        number=node_number,
        kind=kind,
        data=[whole(number, "a dependency") for number in data],
        control=[whole(number, "a dependency") for number in control],
        micros=float(micros or 0),
        attributes=attributes,
    )


def whole(value: Any, name: str) -> int:
    """Return a whole number, or the one that a text states.

    Raises ValueError where it is none: int() would cut 0.5 to the id 0.
    """
    number = int(value)
    if isinstance(value, float) and number != value:
        raise ValueError(f"{name} is {value}, write a whole number")
    return number


def _unknown_fields(row: Data) -> Iterator[str]:
    """Yield the fields of protobuf, of a node and its attributes, beyond the schema."""
    for name in row:
        if name.startswith(UNKNOWN):
            yield f"{name} of a node"
    for message in row.get("attr") or []:
        for name in message:
            if not _IN_ATTRIBUTE.search(name):
                yield f"{name} of an attribute"


def _rows(content: bytes) -> Iterator[Data]:
    """Yield the metadata and the nodes as `decode` has them."""
    messages = read_messages(content)
    first_message = next(messages, b"")
    metadata = decode(first_message, _METADATA)
    # Attributes where the version should be begin with their own tag, a newline.
    versions = metadata.pop("version", [])
    printable_versions = [version for version in versions if version.isprintable()]
    _check_version(printable_versions)
    yield metadata

    for message in messages:
        row: Data = decode(message, _NODE)
        for name in _SINGLE:
            # Protobuf writes no zero, and of a field that comes twice the last counts.
            values = row.get(name, [0])
            row[name] = values[-1]
        yield row


def _check_version(versions: list[Any]) -> None:
    for version in versions:
        if version and not str(version).startswith(_VERSIONS):
            raise ValueError(f"it is of version {version!r}, 0.0.4 and 1 are read")


def _json_rows(text: str) -> Iterator[Data]:
    """Yield the metadata and the nodes by keys in lower case without underscores."""
    decoder = json.JSONDecoder(object_pairs_hook=unique_mapping)
    place = 0
    while place < len(text):
        gap = _GAP.match(text, place)
        if gap:
            place = gap.end()
        if place == len(text):
            break

        # `json.loads` refuses a second value behind the first.
        value, place = decoder.raw_decode(text, place)
        parts = value if isinstance(value, list) else [value]
        for part in parts:
            for row in _rows_of(part):
                yield _plain_row(row)


def _rows_of(part: Data) -> list[Data]:
    """Return a node alone, or what stands beside a list of nodes and these."""
    for key in ("workload_graph", "nodes"):
        if key in part:
            metadata = {name: value for name, value in part.items() if name != key}
            return [metadata, *part[key]]
    return [part]


def _plain_row(row: Data) -> Data:
    """Return a node of JSON as `decode` has it; its other keys are attributes."""
    _check_version([row.get("version"), row.get("schema")])
    plain: Data = {}
    attributes = []
    for key, value in row.items():
        lower_key = key.lower()
        short = lower_key.replace("_", "")
        if short in _OWN:
            plain[short] = value
        else:
            attributes.append({"name": key, "value": value})

    stated_attributes = plain.get("attr") or []
    plain["attr"] = [*stated_attributes, *attributes]
    return plain


def _attribute(message: Data) -> tuple[str, Any]:
    """Return name and value of an attribute, by whatever type it is stated.

    Raises ValueError when it has no value, or several.
    """
    name = message["name"]
    is_decoded = isinstance(name, list)
    if is_decoded:
        name = name[0]

    values = [value for key, value in message.items() if _VALUE.search(key)]
    if len(values) != 1:
        raise ValueError(f"attribute {name!r:.40} has {len(values)} values")
    value = values[0]
    if is_decoded and isinstance(value, list):
        value = value[0]
    if isinstance(value, dict):
        value = value.get("values", [])
    return str(name), value
