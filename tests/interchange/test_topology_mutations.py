"""One change of a valid file of a topology: the outcome changes, or it is refused.

A file is a list of tokens here: words of text, names and values of XML or JSON. One is
dropped, doubled, renamed, changed in a digit, or an unknown one is added. What a reader
has neither used nor counted would give the same outcome: that is what fails.
"""

from __future__ import annotations

import copy
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree import ElementTree as ET  # of texts of this file alone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.errors import EmulatorError
from emu.interchange.cluster_keys import cluster_keys
from emu.interchange.formats import is_mapping, read_topology, recognise_topology
from emu.interchange.topology import Answers
from emu.scenario.topology_file import read_mapping
from tests.interchange.test_boxes import NETWORK, TREE

#: What was done, and the text with it.
Mutants: TypeAlias = Iterator[tuple[str, str]]
Edit: TypeAlias = Callable[[Any], None]

#: Without what is left out anyhow: speeds of hosts.
PLATFORM = """\
<platform version="4.1"><zone id="w" routing="Full">
<cluster id="c" prefix="n" suffix=".x" radical="0-2" bw="10MBps" lat="1ms"
 bb_bw="25MBps" bb_lat="2ms" bb_sharing_policy="FATPIPE" sharing_policy="SHARED"
 limiter_link="15MBps" router_id="door"/>
<cluster id="t" prefix="t" suffix="" radical="3,5-7" bw="11MBps" lat="3ms"
 topology="TORUS" topo_parameters="2,2" sharing_policy="FATPIPE"/>
<zone id="f" routing="Floyd"><host id="A"/><host id="B"/><router id="R"/>
<link id="1" bandwidth="80Mbps" latency="4ms"/>
<link id="2" bandwidth="5MBps" latency="5ms" sharing_policy="SPLITDUPLEX"/>
<route src="A" dst="R" symmetrical="NO"><link_ctn id="1"/></route>
<link id="3" bandwidth="8MBps" latency="12ms" sharing_policy="FULLDUPLEX"/>
<route src="R" dst="A"  symmetrical="NO"><link_ctn id="3" direction="DOWN"/></route>
<route src="R" dst="B"><link_ctn id="2" direction="UP"/></route></zone>
<zone id="s" routing="Cluster"><router id="S"/><host id="C"/>
<cabinet id="k" prefix="k" suffix="" radical="1-2" bw="12MBps" lat="6ms"/>
<link id="5" bandwidth="6MBps" latency="8ms"/><host_link id="C" up="5" down="5"/>
<backbone id="b" bandwidth="13MBps" latency="7ms"/></zone>
<link id="wan" bandwidth="7MBps" latency="9ms" sharing_policy="FATPIPE"/>
<zoneRoute src="c" dst="f" gw_src="door" gw_dst="R"><link_ctn id="wan"/></zoneRoute>
<zoneRoute src="s" dst="f" gw_src="S" gw_dst="R"><link_ctn id="wan"/></zoneRoute>
<zoneRoute src="s" dst="c" gw_src="S" gw_dst="door"><link_ctn id="wan"/></zoneRoute>
<link id="7" bandwidth="3MBps" latency="11ms"/>
<bypassZoneRoute src="f" dst="s" gw_src="R" gw_dst="S"><link_ctn id="7"/>
</bypassZoneRoute></zone></platform>
"""
BOX = """\
\tGPU0\tGPU1\tGPU2\tNIC0\tNIC1
GPU0\t X \tNV4\tSYS\tPXB\tSYS
GPU1\tNV4\t X \tPHB\tNODE\tPIX
GPU2\tSYS\tPHB\t X \tSYS\tPIX
"""
FABRIC = {
    "devices": [
        {
            "name": "server",
            "components": [
                {"name": "npu", "choice": "npu", "count": 2},
                {"name": "nic", "choice": "nic", "count": 3},
            ],
            "links": [
                {
                    "name": "pcie",
                    "physical": {"bandwidth": {"gigabytes_per_second": 8}},
                }
            ],
            "edges": [
                {
                    "ep1": {"component": "npu"},
                    "ep2": {"component": "nic[0:2]"},
                    "scheme": "many2many",
                    "link": "pcie",
                }
            ],
        },
        {
            "name": "switch",
            "components": [
                {"name": "port", "choice": "port", "count": 4},
                {"name": "asic", "choice": "custom", "custom": {"type": "chip"}},
            ],
            "links": [{"name": "in"}],
            "connections": [f"asic.0.in.port.{number}" for number in range(4)],
        },
    ],
    "instances": [
        {"name": "host", "device": "server", "count": 2},
        {"name": "sw", "device": "switch", "count": 1},
    ],
    "links": [
        {
            "name": "wire",
            "physical": {
                "bandwidth": {
                    "choice": "gigabits_per_second",
                    "gigabits_per_second": 4,
                },
                "latency": {"choice": "us", "us": 2},
            },
        }
    ],
    "edges": [
        {
            "ep1": {"instance": "host[0]", "component": "nic[0:2]"},
            "ep2": {"instance": "sw", "component": "port[0:2]"},
            "scheme": "one2one",
            "link": "wire",
        },
        {
            "ep1": {"instance": "host[1]", "component": "nic[0:2]"},
            "ep2": {"instance": "sw", "component": "port[2:4]"},
            "scheme": "one2one",
            "link": "wire",
        },
    ],
}
ASTRA = NETWORK.format("Ring, Switch", "3, 4", "5, 6", "70, 80").replace("  #", " #")


def change(word: str) -> Iterator[str]:
    """Yield a word with another digit, or other letters."""
    for number, letter in enumerate(word):
        if letter.isdigit():
            other = str((int(letter) + 1) % 10)
            yield word[:number] + other + word[number + 1 :]
    yield f"{word}x"


def parse(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314


def drop(holder: Any, key: Any) -> None:
    holder.pop(key)


def rename(holder: Any, key: str) -> None:
    holder[f"{key}x"] = holder.pop(key)


def put(holder: Any, key: Any, value: object) -> None:
    holder[key] = value


def mutate_xml(text: str) -> Mutants:
    """Yield changes of each attribute and element."""
    for place, element in enumerate(parse(text).iter()):
        edits: list[tuple[str, Edit]] = [
            ("add an attribute to", partial(put, key="colour", value="red")),
        ]
        for key, value in element.attrib.items():
            edits.append((f"drop {key} of", partial(drop, key=key)))
            edits.append((f"rename {key} of", partial(rename, key=key)))
            edits += [
                (f"change {key} to {new} of", partial(put, key=key, value=new))
                for new in change(value)
            ]
        for what, edit in edits:
            root = parse(text)
            edit([*root.iter()][place].attrib)
            yield f"{what} {element.tag}", ET.tostring(root, "unicode")
        root = parse(text)
        [*root.iter()][place].tag += "x"
        yield f"rename {element.tag}", ET.tostring(root, "unicode")
        root = parse(text)
        ET.SubElement([*root.iter()][place], "colour")
        yield f"add an element to {element.tag}", ET.tostring(root, "unicode")
        for position in range(len(element)):
            root = parse(text)
            parent = [*root.iter()][place]
            parent.insert(position, copy.deepcopy(parent[position]))
            yield f"double {parent[position].tag}", ET.tostring(root, "unicode")
            del parent[position + 1], parent[position]
            yield f"drop {element[position].tag}", ET.tostring(root, "unicode")


def walk(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the keys that lead to each value within."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from walk(value[key], (*path, key))


def value_at(content: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        content = content[step]
    return content


def mutate_json(text: str) -> Mutants:
    """Yield changes of each key and value."""
    for path in walk(json.loads(text)):
        *above, key = path
        name = ".".join(map(str, path))
        edits: list[tuple[str, Edit]] = [("drop", partial(drop, key=key))]
        if isinstance(key, str):
            edits.append(("rename", partial(rename, key=key)))
            edits.append(("add beside", partial(put, key="colour", value="red")))
        value = value_at(json.loads(text), path)
        if not isinstance(value, dict | list):
            for new in change(str(value)):
                is_number = isinstance(value, int) and new.isdigit()
                typed = int(new) if is_number else new
                edits.append((f"change to {new}", partial(put, key=key, value=typed)))
        for what, edit in edits:
            content = json.loads(text)
            edit(value_at(content, (*above,)))
            yield f"{what} {name}", json.dumps(content)


def mutate_text(text: str) -> Mutants:
    """Yield changes of each line and word."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        rest = [*lines[:number], *lines[number + 1 :]]
        yield f"drop line {number}", "\n".join(rest)
        yield (
            f"double line {number}",
            "\n".join([*lines[:number], line, *lines[number:]]),
        )
        for word in re.finditer(r"[^\s\[\],=:]+", line):
            start, end = word.span()
            dropped = line[:start] + line[end:]
            news = [
                dropped,
                *(line[:start] + new + line[end:] for new in change(word[0])),
            ]
            for new in news:
                changed = [*lines[:number], new, *lines[number + 1 :]]
                yield f"line {number}: {new!r}", "\n".join(changed)


#: Name of the file -> text, answers, what makes its mutants, and those of no effect.
FILES: dict[str, tuple[str, Answers, Callable[[str], Mutants], str]] = {
    "platform.xml": (
        PLATFORM,
        Answers(),
        mutate_xml,
        # Names that no route has; any version 4.x; a backbone that limits nothing.
        (
            r"change id to \S+ of (cabinet|zone)|change version to 4\.\d+x? of"
            r"|change bb_bw to .* of|drop (suffix|id) of c"
        ),
    ),
    "box.txt": (BOX, Answers(boxes=2, nic=1e9), mutate_text, r"$^"),
    "topology.conf": (
        TREE,
        Answers(nic=1e9, uplink=2e9),
        mutate_text,
        r".*line 0|.*LinkSpeed=|.*s2x",
    ),
    "network.yml": (ASTRA, Answers(), mutate_text, r".*#"),
    "fabric.json": (
        json.dumps(FABRIC),
        Answers(),
        mutate_json,
        r"drop .*(scheme|choice|count)",  # to what it is by default
    ),
}


def outcome(name: str, text: str, answers: Answers) -> object:
    """Return all that a reader makes of a file and says of it, or why it does not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(text)
        try:
            row = recognise_topology(path)
            if row is None:
                return "is of no known format"
            content = read_mapping(path) if is_mapping(row) else None
            topology = read_topology(path, row, answers, content)
            return (
                cluster_keys(topology),
                topology.notes,
                sorted(topology.left_out.items()),
            )
        except EmulatorError as error:
            return str(error)


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_read(name: str) -> None:
    text, answers, _, _ = FILES[name]
    assert not isinstance(outcome(name, text, answers), str)


@pytest.mark.dear
@settings(max_examples=150)
@given(st.sampled_from([*FILES]), st.randoms(use_true_random=False))
def test_no_change_goes_unnoticed(name: str, random: Any) -> None:
    text, answers, mutate, without_effect = FILES[name]
    before = outcome(name, text, answers)
    what, mutant = random.choice([*mutate(text)])
    if re.search(without_effect, what) is None:
        assert outcome(name, mutant, answers) != before, what
