"""The page of a lab: programs, messages, NICs, losses and the host on one time line."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.analysis.traffic import PACKET, Traffic, answer_times
from emu.errors import DataError
from emu.report.html.lab_data import lab_data, talks_of
from emu.report.html.markup import chart, figure, section, table
from emu.report.lab_tables import matrix_table, nic_table, program_table
from emu.report.terminal import plain_table
from emu.runs.lab_file import read_lab
from emu.runs.traffic_file import FILE, read_samples, read_traffic
from emu.units import format_duration, format_size

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from emu.report.html.lab_data import Talks


def lab_parts(run: Path, missing: list[str]) -> tuple[str, str, dict[str, Any]]:
    """Return title, sections and chart data; what is missing is named in the list.

    Raises
    ------
    DataError
        When lab.json cannot be read.
    """
    lab = read_lab(run)
    try:
        samples = read_samples(run)
    except DataError as error:
        samples = {}
        missing.append(str(error))
    traffic = _traffic(run, lab, missing)
    talks = talks_of(lab["programs"], traffic)
    data = lab_data(lab, traffic, talks, samples)
    matrix = table(matrix_table(lab["crossed"])) if "crossed" in lab else ""
    said = table(_talks(talks)) if talks.edges else ""
    parts = [
        _headline(lab),
        section("doubt", "What went wrong", _doubts(run, lab, len(talks.found))),
        chart("gantt", "What ran when, and what was said", _GANTT),
        section("matrix", "Payload from row to column", matrix),
        chart("ports", "Rate through every NIC", _PORTS),
        chart("counts", "Losses, queues, and the host", _COUNTS),
        section("programs", "Programs", table(program_table(lab))),
        section("talks", "Who told whom", said, note=_TALKS),
        section("nics", "NICs and TCP, with all headers", table(nic_table(lab))),
    ]
    return run.name, _title(run, lab) + "".join(parts), data


def _traffic(run: Path, lab: dict[str, Any], missing: list[str]) -> Traffic:
    """Return the traffic; none where it was not noted or cannot be read."""
    try:
        return read_traffic(run)
    except DataError as error:
        missing.append(str(error))
    names = tuple(lab["nics"])
    nics = [[lab["nics"][name][way] for name in names] for way in ("out", "in")]
    nothing = np.zeros(0, PACKET)
    return Traffic(nothing, names, np.array(nics), (), np.zeros((0, 3), np.int64))


def _title(run: Path, lab: dict[str, Any]) -> str:
    said = f"{len(lab['nics'])} machines, sharing {lab['sharing']}, in real time"
    return f"<header><h1>{escape(run.name)}</h1><p>{escape(said)}</p></header>"


def _headline(lab: dict[str, Any]) -> str:
    waited = format_duration(lab["waited_seconds"])
    shown = [
        figure("wall time", format_duration(lab["wall_seconds"]), "of the programs"),
        figure(
            "verdict",
            lab["trust"],
            f"programs waited {waited} for a core, computed "
            f"{format_duration(lab['computed_seconds'])}",
        ),
        figure(
            "start of the machines", format_duration(lab["startup_seconds"]), "before"
        ),
    ]
    again = sum(counts["retransmitted"] for counts in lab["tcp"].values())
    timeouts = sum(counts["timeouts"] for counts in lab["tcp"].values())
    note = f"{timeouts} timeouts"
    shown.append(figure("segments sent again", f"{again:,}", note))
    dropped = sum(sum(ways.values()) for ways in lab["dropped"].values())
    shown.append(figure("dropped by queues", f"{dropped:,}", "packets"))
    if "crossed" in lab:
        crossed = lab["crossed"]
        payload = sum(sum(row.values()) for row in crossed["bytes"].values())
        note = f"{crossed['packets']:,} packets, {crossed['messages']:,} messages"
        shown.append(figure("payload", format_size(payload), note))
    return f"<div class=figures>{''.join(shown)}</div>"


def _doubts(run: Path, lab: dict[str, Any], drawn: int) -> str:
    """Return the warnings to read before the figures; nothing if all went well."""
    said = []
    if failed := lab["failed"]:
        log = f"{failed['program']}-{failed['machine']}.log"
        said.append(
            f"{failed['program']} failed first, on {failed['machine']} (code "
            f"{failed['code']}): its output is {run.name}/{log}"
        )
    if lab["trust"] != "trusted":
        said.append(
            f"programs waited for a core {lab['waited_share']:.0%} of their computing: "
            "with fewer machines, or slower NICs, this computer would be in it less"
        )
    if shared := lab.get("crossed", {}).get("shared_queues"):
        said.append(
            f"{shared} pairs of connections met in one queue of a NIC: each had less "
            "than its fair share meanwhile"
        )
    if lost := lab.get("capture", {}).get("lost"):
        said.append(f"{lost:,} packets were not noted: {FILE} and this page lack them")
    count = lab.get("crossed", {}).get("messages", 0)
    if count > drawn:
        said.append(f"the largest {drawn:,} of {count:,} messages are drawn")
    items = "".join(f"<li>{escape(text)}</li>" for text in said)
    return f"<ul>{items}</ul>" if items else ""


def _talks(talks: Talks) -> Table:
    """Return messages by sender and receiver: how many, how large, how long."""
    sizes = (">messages", ">bytes", ">median bytes")
    times = (">median length", ">median answer after")
    shown = plain_table("who told whom", "from → to", *sizes, *times)
    found, waits = talks.found, answer_times(talks.found)
    for number, (_, _, name) in enumerate(talks.edges):
        mine = talks.edge == number
        answered = waits[mine & ~np.isnan(waits)]
        shown.add_row(
            name.replace("->", " → "),
            f"{mine.sum():,}",
            format_size(int(found["bytes"][mine].sum())),
            format_size(int(np.median(found["bytes"][mine]))),
            format_duration(np.median((found["last"] - found["first"])[mine])),
            format_duration(np.median(answered)) if len(answered) else "",
        )
    return shown


_GANTT = (
    "Each machine: one lane per program, then the messages through its NIC, out and "
    "in, in the colour of the program that sent them. A message is what went one way "
    "of a connection until something came back, or nothing for 20 ms. Drag to zoom, "
    "Shift-drag to move, Ctrl-wheel to zoom at the pointer, double-click for "
    "everything. A click on a name keeps its lane at the top; SVG and CSV save what "
    "is shown."
)
_PORTS = (
    "Payload as the switch delivered it, after shaping. Dashed: what the NIC carries."
)
_COUNTS = (
    "Sampled twice a second. Waiting: programs that could compute, and had no core. "
    "What is nothing but zero is left out."
)
_TALKS = "An answer is the next message of the connection, if it goes the other way."
