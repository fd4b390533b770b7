"""A lab as tables and as a page: programs, messages, NICs, losses, host over time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.table import Table

from emu.errors import DataError
from emu.prediction.analysis.traffic import (
    PACKET,
    Traffic,
    answer_times,
    messages,
    nic_use,
)
from emu.report.facts import lab_facts
from emu.report.html.chart_data import Charts, pack_flows
from emu.report.html.markup import bullets, chart, figures, page_title, section, table
from emu.report.terminal import facts_table, plain_table
from emu.report.trace import Crossings, pack_columns, pack_lanes_per_group
from emu.runs.array_files import FILE, read_samples, read_traffic
from emu.runs.lab_file import LabResult, duration_of, log_name, read_lab
from emu.units import format_duration, format_rate, format_size

#: From nothing to a full NIC.
_LEVELS = " ▁▂▃▄▅▆▇█"


def lab_tables(result: LabResult) -> Group:
    """Return the tables of ``lab.json``: how it went, what crossed every NIC."""
    tables = [facts_table(lab_facts(result)), nic_table(result)]
    if traffic := result.get("crossed"):
        length = format_duration(traffic["bin_seconds"], 2)
        columns = ("NIC", ">mean", f"over time, {length} a sign")
        use = plain_table("NICs in use", *columns)
        most = len(_LEVELS) - 1
        for machine, ways in traffic["nic_use"].items():
            for way, shares in ways.items():
                signs = [_LEVELS[math.ceil(most * min(one, 1.0))] for one in shares]
                mean = f"{100 * sum(shares) / len(shares):.0f} %"
                use.add_row(f"{machine} {way}", mean, "".join(signs))
        tables += [matrix_table(traffic), use]
    return Group(*tables)


def nic_table(lab: LabResult) -> Table:
    """Return the traffic of every NIC, with all headers, and TCP's losses there."""
    columns = (">capacity", ">bytes", ">packets", ">dropped")
    tcp_counted = (">segments", ">sent again", ">timeouts")
    title = "what crossed, with all headers"
    table = plain_table(title, "NIC", *columns, *tcp_counted)
    for name, counts in lab["traffic"].items():
        tcp = [f"{count:,}" for count in lab["tcp"][name].values()]
        for way in ("out", "in"):
            rate = lab["nics"][name][way]
            size = counts[f"{way}_bytes"]
            cells = [f"{name} {way}", format_rate(rate), format_size(size)]
            cells.append(f"{counts[f'{way}_packets']:,}")
            cells.append(f"{lab['dropped'][name][way]:,}")
            table.add_row(*cells, *(tcp if way == "out" else ()))
    return table


def program_table(lab: LabResult) -> Table:
    """Return when every program began and ended, and how."""
    columns = (">start", ">end", ">took", "how it ended", "output")
    table = plain_table("programs", "program", "machine", *columns)
    for run in lab["programs"]:
        names = (run["program"], run["machine"])
        start = run["start"]
        end = run["end"]
        times = [start] if end is None else [start, end, end - start]
        cells = [*map(format_duration, times), "", ""][:3]
        table.add_row(*names, *cells, how_ended(run), log_name(*names))
    return table


def how_ended(run: LabResult) -> str:
    """Return the end of a program of lab.json, in words."""
    code = run["code"]
    if code is None:
        return "did not end"
    note = ", asked to at the end" if run["stopped"] else ""
    return f"signal {-code}{note}" if code < 0 else f"exit code {code}{note}"


def matrix_table(crossed: LabResult) -> Table:
    """Return the payload from each machine to each."""
    title = f"payload from row to column: {crossed['connections']} directions of "
    title += f"connections, {crossed['messages']} messages"
    table = plain_table(title, "from", *(f">{name}" for name in crossed["bytes"]))
    for source, row in crossed["bytes"].items():
        table.add_row(source, *(format_size(n) if n else "" for n in row.values()))
    return table


#: Points of a NIC's curve: a screen shows some 700.
_POINTS = 600
#: Messages that are drawn, the largest of them: the page holds 60 bytes for each.
MOST_MESSAGES = 200_000
#: Share of a lab that may be wrong before it is named.
MOST_GAINED = 0.05
#: Program of ports that were never seen in use.
UNKNOWN = "unknown"
_WAYS = ("source", "destination")


@dataclass(frozen=True)
class Talks:
    """Messages, and the programs that they went between."""

    tasks: list[Charts]
    """Programs on machines, as the page's script takes them."""
    found: NDArray[np.void]
    """Messages by time, the largest where there are too many to draw."""
    edge: NDArray[np.int64]
    """By message, a position in ``edges``."""
    edges: list[tuple[int, int, str]]
    """Positions of two tasks, and what this direction is called."""


def lab_data(
    lab: LabResult, traffic: Traffic, talks: Talks, samples: Mapping[str, NDArray[Any]]
) -> Charts:
    """Return machines, programs, messages, and curves of NICs, losses and waits."""
    seconds = duration_of(lab)
    runs = lab["programs"]
    count = len(traffic.machines)
    rate_of = nic_use(traffic.packets, np.ones((2, count, _POINTS)), seconds)
    time = np.linspace(0.0, seconds, _POINTS, endpoint=False)
    return {
        "clock": "time (s)",
        "counted": "message",
        "iterations": max(len(talks.found), 1),
        "machines": list(traffic.machines),
        "tasks": talks.tasks,
        "edges": talks.edges,
        "ports": _ports(lab, traffic),
        "end": seconds,
        "runs": [
            {
                "name": "measured",
                "makespan": seconds,
                "tasks": pack_columns(
                    row=np.arange(len(runs)),
                    iteration=np.zeros(len(runs), np.int64),
                    start=np.array([run["start"] for run in runs], float),
                    end=np.array([run["end"] or seconds for run in runs], float),
                ),
                "flows": _pack_messages(talks, count),
                "chain": [],
                "curves": {
                    "moved": [
                        pack_columns(time=time, rate=rate_of[way, m])
                        for m in range(count)
                        for way in (0, 1)
                    ]
                },
            }
        ],
        "training": [],
        "counts": [*_counts(traffic.machines, samples)],
    }


def _pack_messages(talks: Talks, machines: int) -> Charts:
    """Return messages at both NICs that they cross."""
    all_messages = talks.found
    machine = np.stack([all_messages[way].astype(np.int64) for way in _WAYS], axis=1)
    port = (2 * machine + np.arange(2)).ravel()
    at: NDArray[np.int64] = np.repeat(np.arange(len(all_messages)), 2)
    first = all_messages["first"]
    last = all_messages["last"]
    lanes = pack_lanes_per_group(first[at], last[at], port, 2 * machines)
    flows = talks.edge, np.arange(len(all_messages)), first, last, all_messages["bytes"]
    return pack_flows(*flows, Crossings(at, port, *lanes))


def talks_of(runs: list[LabResult], traffic: Traffic) -> Talks:
    """Return the programs of lab.json, and the messages between them."""
    all_messages = messages(traffic.packets)
    if len(all_messages) > MOST_MESSAGES:
        rows = np.argpartition(all_messages["bytes"], -MOST_MESSAGES)[-MOST_MESSAGES:]
        all_messages = all_messages[np.sort(rows)]
    tasks, at = _tasks(runs, traffic)
    ends = [at[all_messages[way], all_messages[f"{way}_port"]] for way in _WAYS]
    pairs, edge = np.unique(ends[0] * len(tasks) + ends[1], return_inverse=True)
    names = [f"{task['name']} on {traffic.machines[task['machine']]}" for task in tasks]
    two = [divmod(pair, len(tasks)) for pair in pairs.tolist()]
    edges = [(source, to, f"{names[source]}->{names[to]}") for source, to in two]
    return Talks(tasks, all_messages, edge, edges)


def _tasks(
    runs: list[LabResult], traffic: Traffic
) -> tuple[list[Charts], NDArray[np.int64]]:
    """Return the programs, with one unknown per machine, and the owner of each port."""
    names = traffic.machines
    for run in runs:
        if run["machine"] not in names:
            problem = f"names {run['machine']!r}, which traffic.npz lacks"
            raise DataError(f"programs: {problem}", path="lab.json")
    tasks = [
        dict.fromkeys(("name", "kind"), run["program"])
        | {"machine": names.index(run["machine"]), "note": how_ended(run)}
        for run in runs
    ]
    numbers = {(task["machine"], task["name"]): n for n, task in enumerate(tasks)}
    at = np.empty((len(names), 1 << 16), np.int64)
    for machine in range(len(names)):
        at[machine] = len(tasks)
        tasks.append({"name": UNKNOWN, "kind": UNKNOWN, "machine": machine})
    for machine, port, program in traffic.owners.tolist():
        if (machine, traffic.programs[program]) in numbers:
            at[machine, port] = numbers[machine, traffic.programs[program]]
    return tasks, at


def _ports(lab: LabResult, traffic: Traffic) -> list[Charts]:
    """Return both directions of every NIC; since when it carried what."""
    ports = []
    for machine, name in enumerate(traffic.machines):
        changes = [event for event in lab["events"] if event["machine"] == name]
        for way, direction in enumerate(("out", "in")):
            limits = [(0.0, float(traffic.nics[way, machine]))]
            limits += [(event["time"], event[f"nic_{direction}"]) for event in changes]
            port: Charts = {"name": f"{name} {direction}"}
            port |= {"capacity": max(rate for _, rate in limits), "machine": machine}
            ports.append({**port, "direction": direction, "limits": limits})
    return ports


def _counts(
    machines: Sequence[str], samples: Mapping[str, NDArray[Any]]
) -> Iterator[Charts]:
    """Yield plots of what was counted: by title and unit, curves with their names.

    Without curves that are nothing but zero.
    """
    if not samples:
        return
    time = samples["time"]
    span = np.maximum(np.diff(time), 1e-9)
    cores = [("computing", samples["ran"]), ("waiting", samples["waited"])]
    ways = [
        (f"{name} {direction}", way, number)
        for number, name in enumerate(machines)
        for way, direction in enumerate(("out", "in"))
    ]
    again = zip(machines, samples["retransmitted"].T, strict=True)
    timeouts = zip(machines, samples["timeouts"].T, strict=True)
    drops = [(name, samples["dropped"][:, way, n]) for name, way, n in ways]
    queues = [(name, samples["queued"][:, way, n]) for name, way, n in ways]
    for title, unit, counts in (
        ("programs at cores", "cores", cores),
        ("segments sent again", "1/s", again),
        ("timeouts of connections", "1/s", timeouts),
        ("packets that queues dropped", "1/s", drops),
        ("bytes in queues", "kB", queues),
    ):
        curves = []
        for name, count in counts:
            rate = np.append(np.diff(count) / span, 0.0)
            rate = count / 1e3 if unit == "kB" else rate
            if rate.any():
                curves.append({"name": name, **pack_columns(time=time, rate=rate)})
        yield {"title": title, "unit": unit, "curves": curves}


def lab_parts(run: Path, missing: list[str]) -> tuple[str, str, Charts]:
    """Return title, sections and chart data; what is missing is named in the list.

    Raises DataError when lab.json cannot be read.
    """
    lab = read_lab(run)
    try:
        samples = read_samples(run)
    except DataError as error:
        samples = {}
        missing.append(str(error))
    try:
        traffic = read_traffic(run)
    except DataError as error:  # not noted, or damaged: the page lacks it
        missing.append(str(error))
        names = tuple(lab["nics"])
        nics = [[lab["nics"][name][way] for name in names] for way in ("out", "in")]
        nothing: Any = np.zeros(0, PACKET), np.zeros((0, 3), np.int64)
        traffic = Traffic(nothing[0], names, np.array(nics), (), nothing[1])
    talks = talks_of(lab["programs"], traffic)
    data = lab_data(lab, traffic, talks, samples)
    matrix = table(matrix_table(lab["crossed"])) if "crossed" in lab else ""
    text = table(_talks(talks)) if talks.edges else ""
    parts = [
        figures(lab_facts(lab)),
        section("doubt", "What went wrong", _doubts(run, lab, len(talks.found))),
        chart("gantt", "What ran when, and what was said", _GANTT),
        section("matrix", "Payload from row to column", matrix),
        chart("ports", "Rate through every NIC", _PORTS),
        chart("counts", "Losses, queues, and the host", _COUNTS),
        section("programs", "Programs", table(program_table(lab))),
        section("talks", "Who sent to whom", text, note=_TALKS),
        section("nics", "NICs and TCP, with all headers", table(nic_table(lab))),
    ]
    scale = lab.get("time_scale", 1.0)
    pace = "in real time" if scale == 1 else f"{scale:g} wall seconds to a second"
    of = f"{len(lab['nics'])} machines, sharing {lab['sharing']}, {pace}"
    return run.name, page_title(run.name, of) + "".join(parts), data


def _doubts(run: Path, lab: LabResult, drawn: int) -> str:
    """Return the warnings to read before the figures; nothing if all went well."""
    doubts = list[str]()
    crossing = lab.get("crossed", {})
    if failure := lab["failed"]:
        program = failure["program"]
        machine = failure["machine"]
        doubts.append(
            f"{program} failed first, on {machine} (code {failure['code']}): "
            f"its output is {run.name}/{log_name(program, machine)}"
        )
    if (gain := lab.get("early_seconds", 0.0)) > MOST_GAINED * duration_of(lab):
        doubts.append(
            f"a machine computed for {format_duration(gain)} less than its cpu says: "
            "after a pause, a program has up to a millisecond of CPU at full speed"
        )
    if lab["waited_share"] > MOST_GAINED:
        doubts.append(
            f"programs waited for a core {lab['waited_share']:.0%} of their computing: "
            "state cpu: N of every machine and lab.time_scale: auto"
        )
    if queues := crossing.get("shared_queues"):
        doubts.append(
            f"{queues} pairs of connections met in one queue of a NIC: each had less "
            "than its fair share meanwhile"
        )
    if loss := lab.get("capture", {}).get("lost"):
        line = f"{loss:,} packets were not noted: {FILE} and this page lack them"
        doubts.append(line)
    if (count := crossing.get("messages", 0)) > drawn:
        doubts.append(f"the largest {drawn:,} of {count:,} messages are drawn")
    return bullets(doubts)


def _talks(talks: Talks) -> Table:
    """Return messages by sender and receiver: how many, how large, how long."""
    columns = (">messages", ">bytes", ">median bytes", ">median length")
    title = "who sent to whom"
    grid = plain_table(title, "from → to", *columns, ">median answer after")
    all_messages = talks.found
    waits = answer_times(talks.found)
    for number, (_, _, name) in enumerate(talks.edges):
        mine = talks.edge == number
        sizes = all_messages["bytes"][mine]
        own = waits[mine]
        answers = own[~np.isnan(own)]
        length = np.median((all_messages["last"] - all_messages["first"])[mine])
        cells = [name.replace("->", " → "), f"{len(sizes):,}"]
        cells += [format_size(int(n)) for n in (sizes.sum(), np.median(sizes))]
        cells.append(format_duration(length))
        cells += [format_duration(np.median(answers))] if len(answers) else []
        grid.add_row(*cells)
    return grid


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
