"""Tables of a lab run for a terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich.console import Group

from emu.report.facts import lab_facts
from emu.report.terminal import facts_table, plain_table
from emu.runs.lab_file import log_name
from emu.units import format_duration, format_rate, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

#: From nothing to a full NIC.
_LEVELS = " ▁▂▃▄▅▆▇█"


def lab_tables(result: dict[str, Any]) -> Group:
    """Return the tables of ``lab.json``: how it went, what crossed every NIC."""
    return Group(*_tables(result))


def _tables(result: dict[str, Any]) -> Iterator[Table]:
    yield facts_table(lab_facts(result))
    yield nic_table(result)
    if "crossed" in result:
        yield matrix_table(result["crossed"])
        yield _nics(result["crossed"])


def nic_table(lab: dict[str, Any]) -> Table:
    """Return the traffic of every NIC, with all headers, and TCP's losses there."""
    counted = (">capacity", ">bytes", ">packets", ">dropped")
    tcp_counted = (">segments", ">sent again", ">timeouts")
    title = "what crossed, with all headers"
    table = plain_table(title, "NIC", *counted, *tcp_counted)
    for name, counts in lab["traffic"].items():
        tcp = [f"{count:,}" for count in lab["tcp"][name].values()]
        for way in ("out", "in"):
            table.add_row(
                f"{name} {way}",
                format_rate(lab["nics"][name][way]),
                format_size(counts[f"{way}_bytes"]),
                f"{counts[f'{way}_packets']:,}",
                f"{lab['dropped'][name][way]:,}",
                *(tcp if way == "out" else [""] * len(tcp)),
            )
    return table


def program_table(lab: dict[str, Any]) -> Table:
    """Return when every program began and ended, and how."""
    columns = (">start", ">end", ">took", "how it ended", "output")
    table = plain_table("programs", "program", "machine", *columns)
    for run in lab["programs"]:
        start, end = run["start"], run["end"]
        table.add_row(
            run["program"],
            run["machine"],
            format_duration(start),
            "" if end is None else format_duration(end),
            "" if end is None else format_duration(end - start),
            how_ended(run),
            log_name(run["program"], run["machine"]),
        )
    return table


def how_ended(run: dict[str, Any]) -> str:
    """Return the end of a program of lab.json, in words."""
    code = run["code"]
    if code is None:
        return "did not end"
    stopped = ", asked to at the end" if run["stopped"] else ""
    return f"signal {-code}{stopped}" if code < 0 else f"exit code {code}{stopped}"


def matrix_table(crossed: dict[str, Any]) -> Table:
    """Return the payload from each machine to each."""
    table = plain_table(
        f"payload from row to column: {crossed['connections']} directions of "
        f"connections, {crossed['messages']} messages",
        "from",
        *(f">{name}" for name in crossed["bytes"]),
    )
    for source, row in crossed["bytes"].items():
        table.add_row(
            source, *(format_size(size) if size else "" for size in row.values())
        )
    return table


def _nics(crossed: dict[str, Any]) -> Table:
    """Return the use of every NIC over time."""
    length = format_duration(crossed["bin_seconds"], 2)
    table = plain_table("NICs in use", "NIC", ">mean", f"over time, {length} a sign")
    for machine, ways in crossed["nic_use"].items():
        for way, shares in ways.items():
            mean = sum(shares) / len(shares)
            table.add_row(f"{machine} {way}", f"{100 * mean:.0f} %", _signs(shares))
    return table


def _signs(shares: list[float]) -> str:
    most = len(_LEVELS) - 1
    return "".join(_LEVELS[math.ceil(most * min(share, 1.0))] for share in shares)
