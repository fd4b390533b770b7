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
    if crossing := result.get("crossed"):
        tables += [matrix_table(crossing), _use_table(crossing)]
    return Group(*tables)


def _use_table(crossing: LabResult) -> Table:
    """Return the mean use of every NIC, and its use over time as a sign per bin."""
    length = format_duration(crossing["bin_seconds"], 2)
    table = plain_table("NICs in use", "NIC", ">mean", f"over time, {length} a sign")
    highest = len(_LEVELS) - 1
    for machine, directions in crossing["nic_use"].items():
        for direction, shares in directions.items():
            # Rounded up, so that a blank is no use at all; bursts may be above 1.
            levels = [math.ceil(highest * min(share, 1.0)) for share in shares]
            signs = "".join(_LEVELS[level] for level in levels)
            mean = f"{100 * sum(shares) / len(shares):.0f} %"
            table.add_row(f"{machine} {direction}", mean, signs)
    return table


def nic_table(lab: LabResult) -> Table:
    """Return the traffic of every NIC, with all headers, and TCP's losses there."""
    table = plain_table(
        "what crossed, with all headers",
        *("NIC", ">capacity", ">bytes", ">packets", ">dropped"),
        *(">segments", ">sent again", ">timeouts"),
    )
    for name, counts in lab["traffic"].items():
        # TCP counts by machine: it stands once, beside the first of the two ways.
        tcp_counts = [f"{count:,}" for count in lab["tcp"][name].values()]
        for direction in ("out", "in"):
            table.add_row(
                f"{name} {direction}",
                format_rate(lab["nics"][name][direction]),
                format_size(counts[f"{direction}_bytes"]),
                f"{counts[f'{direction}_packets']:,}",
                f"{lab['dropped'][name][direction]:,}",
                *(tcp_counts if direction == "out" else ()),
            )
    return table


def program_table(lab: LabResult) -> Table:
    """Return when every program began and ended, and how."""
    table = plain_table(
        "programs",
        "program",
        "machine",
        ">start",
        ">end",
        ">took",
        "how it ended",
        "output",
    )
    for run in lab["programs"]:
        program = run["program"]
        machine = run["machine"]
        start = run["start"]
        end = run["end"]
        times = [format_duration(start), "", ""]
        if end is not None:
            times[1:] = [format_duration(end), format_duration(end - start)]

        log = log_name(program, machine)
        table.add_row(program, machine, *times, how_ended(run), log)
    return table


def how_ended(run: LabResult) -> str:
    """Return the end of a program of lab.json, in words."""
    code = run["code"]
    if code is None:
        return "did not end"
    # As of subprocess, a code below 0 is the number of the signal that ended it.
    ending = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"{ending}, asked to at the end" if run["stopped"] else ending


def matrix_table(crossed: LabResult) -> Table:
    """Return the payload from each machine to each."""
    title = f"payload from row to column: {crossed['connections']} directions of "
    title += f"connections, {crossed['messages']} messages"
    table = plain_table(title, "from", *(f">{name}" for name in crossed["bytes"]))
    for source, row in crossed["bytes"].items():
        sizes = [format_size(size) if size else "" for size in row.values()]
        table.add_row(source, *sizes)
    return table


#: Points of a NIC's curve: a screen shows some 700.
_POINTS = 600
#: Messages that are drawn, the largest of them: the page holds 60 bytes for each.
MOST_MESSAGES = 200_000
#: Share of a lab that may be wrong before it is named.
MOST_GAINED = 0.05
#: Program of ports that were never seen in use.
UNKNOWN = "unknown"
#: Fields of a message with the numbers of its two machines.
_ENDS = ("source", "destination")


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
    lab: LabResult,
    traffic: Traffic,
    talks: Talks,
    samples: Mapping[str, NDArray[Any]],
) -> Charts:
    """Return machines, programs, messages, and curves of NICs, losses and waits."""
    seconds = duration_of(lab)
    machines = len(traffic.machines)
    measurement = {
        "name": "measured",
        "makespan": seconds,
        "tasks": _pack_programs(lab["programs"], seconds),
        "flows": _pack_messages(talks, machines),
        "chain": [],
        "curves": {"moved": _rate_curves(traffic, seconds)},
    }

    return {
        "clock": "time (s)",
        "counted": "message",
        # The scripts count by iterations: here each message is one of its own.
        "iterations": max(len(talks.found), 1),
        "machines": list(traffic.machines),
        "tasks": talks.tasks,
        "edges": talks.edges,
        "ports": _ports(lab, traffic),
        "end": seconds,
        "runs": [measurement],
        "training": [],
        "counts": [*_counts(traffic.machines, samples)],
    }


def _pack_programs(runs: Sequence[LabResult], seconds: float) -> Charts:
    """Return when programs ran; those without an end ran until that of the lab."""
    return pack_columns(
        row=np.arange(len(runs)),
        iteration=np.zeros(len(runs), np.int64),
        start=np.array([run["start"] for run in runs], float),
        end=np.array([run["end"] or seconds for run in runs], float),
    )


def _rate_curves(traffic: Traffic, seconds: float) -> list[Charts]:
    """Return the rate over time of every NIC, out and in, machine by machine."""
    machines = len(traffic.machines)
    # Shares of a NIC that carries 1 byte per second are bytes per second.
    rates = nic_use(traffic.packets, np.ones((2, machines, _POINTS)), seconds)
    # A mean holds from the beginning of its span on.
    time = np.linspace(0.0, seconds, _POINTS, endpoint=False)
    return [
        # Machine by machine, out before in, as `_ports` has them: scripts match by
        # position.
        pack_columns(time=time, rate=rates[direction, machine])
        for machine in range(machines)
        for direction in (0, 1)
    ]


def _pack_messages(talks: Talks, machines: int) -> Charts:
    """Return messages at both NICs that they cross."""
    rows = talks.found
    ends = np.stack([rows[end].astype(np.int64) for end in _ENDS], axis=1)
    port = (2 * ends + np.arange(2)).ravel()  # out of the source, into the destination
    message: NDArray[np.int64] = np.repeat(np.arange(len(rows)), 2)

    first = rows["first"]
    last = rows["last"]
    lane, lanes = pack_lanes_per_group(
        first[message],
        end=last[message],
        group=port,
        groups=2 * machines,
    )
    return pack_flows(
        edge=talks.edge,
        iteration=np.arange(len(rows)),
        start=first,
        end=last,
        size=rows["bytes"],
        crossed=Crossings(flow=message, port=port, lane=lane, lanes=lanes),
    )


def talks_of(runs: list[LabResult], traffic: Traffic) -> Talks:
    """Return the programs of lab.json, and the messages between them."""
    rows = messages(traffic.packets)
    if len(rows) > MOST_MESSAGES:
        # Positions are sorted again, so that messages stay in the order of time.
        largest = np.argpartition(rows["bytes"], -MOST_MESSAGES)[-MOST_MESSAGES:]
        rows = rows[np.sort(largest)]

    tasks, owner = _tasks(runs, traffic)
    source, destination = (owner[rows[end], rows[f"{end}_port"]] for end in _ENDS)
    # A pair of tasks is one number, so that NumPy finds those that are equal.
    pairs, edge = np.unique(source * len(tasks) + destination, return_inverse=True)
    names = [f"{task['name']} on {traffic.machines[task['machine']]}" for task in tasks]
    edges = []
    for pair in pairs.tolist():
        sender, receiver = divmod(pair, len(tasks))
        edges.append((sender, receiver, f"{names[sender]}->{names[receiver]}"))
    return Talks(tasks=tasks, found=rows, edge=edge, edges=edges)


def _tasks(
    runs: list[LabResult], traffic: Traffic
) -> tuple[list[Charts], NDArray[np.int64]]:
    """Return the programs, with one unknown per machine, and the owner of each port."""
    names = traffic.machines
    tasks = []
    position_of: dict[tuple[int, str], int] = {}
    for position, run in enumerate(runs):
        if run["machine"] not in names:
            problem = f"names {run['machine']!r}, which traffic.npz lacks"
            raise DataError(f"programs: {problem}", path="lab.json")
        machine = names.index(run["machine"])
        program = run["program"]
        position_of[machine, program] = position
        tasks.append(
            {
                "name": program,
                "kind": program,
                "machine": machine,
                "note": how_ended(run),
            }
        )

    # A port whose program was never seen belongs to the unknown one of its machine.
    # TCP has 16 bits for a port: a table of all is 0.5 MB per machine.
    owner = np.empty((len(names), 1 << 16), np.int64)
    for machine in range(len(names)):
        owner[machine] = len(tasks)
        tasks.append({"name": UNKNOWN, "kind": UNKNOWN, "machine": machine})
    for machine, port, number in traffic.owners.tolist():
        task = position_of.get((machine, traffic.programs[number]))
        if task is not None:
            owner[machine, port] = task
    return tasks, owner


def _ports(lab: LabResult, traffic: Traffic) -> list[Charts]:
    """Return both directions of every NIC; since when it carried what."""
    ports = []
    for machine, name in enumerate(traffic.machines):
        changes = [event for event in lab["events"] if event["machine"] == name]
        for row, direction in enumerate(("out", "in")):
            limits = [(0.0, float(traffic.nics[row, machine]))]
            limits += [(event["time"], event[f"nic_{direction}"]) for event in changes]
            ports.append(
                {
                    "name": f"{name} {direction}",
                    "capacity": max(rate for _, rate in limits),
                    "machine": machine,
                    "direction": direction,
                    "limits": limits,
                }
            )
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
    # Two samples at once, as after a pause, are divided by a nanosecond.
    span = np.maximum(np.diff(time), 1e-9)
    cores = [("computing", samples["ran"]), ("waiting", samples["waited"])]
    resent = zip(machines, samples["retransmitted"].T, strict=True)
    timeouts = zip(machines, samples["timeouts"].T, strict=True)
    drops = _list_nics(machines, samples["dropped"])
    queues = _list_nics(machines, samples["queued"])

    for title, unit, counts in (
        ("programs at cores", "cores", cores),
        ("segments sent again", "1/s", resent),
        ("timeouts of connections", "1/s", timeouts),
        ("packets that queues dropped", "1/s", drops),
        ("bytes in queues", "kB", queues),
    ):
        curves = []
        for name, count in counts:
            if unit == "kB":  # a level, not a count that grows
                rate = count / 1e3
            else:
                # A rate holds from its sample to the next; the last sample has none.
                rate = np.append(np.diff(count) / span, 0.0)
            if rate.any():
                curves.append({"name": name, **pack_columns(time=time, rate=rate)})
        yield {"title": title, "unit": unit, "curves": curves}


def _list_nics(
    machines: Sequence[str], counts: NDArray[Any]
) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the counts of every NIC and way; shape (times, 2, machines)."""
    for number, name in enumerate(machines):
        for row, direction in enumerate(("out", "in")):
            yield f"{name} {direction}", counts[:, row, number]


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
        traffic = _no_traffic(lab)
    talks = talks_of(lab["programs"], traffic)
    data = lab_data(lab, traffic, talks, samples)

    matrix = table(matrix_table(lab["crossed"])) if "crossed" in lab else ""
    senders = table(_talks(talks)) if talks.edges else ""
    parts = [
        figures(lab_facts(lab)),
        section("doubt", "What went wrong", _doubts(run, lab, len(talks.found))),
        chart("gantt", "What ran when, and what was said", _GANTT),
        section("matrix", "Payload from row to column", matrix),
        chart("ports", "Rate through every NIC", _PORTS),
        chart("counts", "Losses, queues, and the host", _COUNTS),
        section("programs", "Programs", table(program_table(lab))),
        section("talks", "Who sent to whom", senders, note=_TALKS),
        section("nics", "NICs and TCP, with all headers", table(nic_table(lab))),
    ]
    scale = lab.get("time_scale", 1.0)
    pace = "in real time" if scale == 1 else f"{scale:g} wall seconds to a second"
    subject = f"{len(lab['nics'])} machines, sharing {lab['sharing']}, {pace}"
    return run.name, page_title(run.name, subject) + "".join(parts), data


def _no_traffic(lab: LabResult) -> Traffic:
    """Return what is known of a lab whose packets are not."""
    names = tuple(lab["nics"])
    rates = [
        [lab["nics"][name][direction] for name in names] for direction in ("out", "in")
    ]
    return Traffic(
        packets=np.zeros(0, PACKET),
        machines=names,
        nics=np.array(rates),
        programs=(),
        owners=np.zeros((0, 3), np.int64),
    )


def _doubts(run: Path, lab: LabResult, drawn: int) -> str:
    """Return the warnings to read before the figures; nothing if all went well."""
    doubts = list[str]()
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
    crossing = lab.get("crossed", {})

    if queues := crossing.get("shared_queues"):
        doubts.append(
            f"{queues} pairs of connections met in one queue of a NIC: each had less "
            "than its fair share meanwhile"
        )
    if loss := lab.get("capture", {}).get("lost"):
        doubts.append(
            f"{loss:,} packets were not noted: {FILE} and this page lack them"
        )
    if (count := crossing.get("messages", 0)) > drawn:
        doubts.append(f"the largest {drawn:,} of {count:,} messages are drawn")
    return bullets(doubts)


def _talks(talks: Talks) -> Table:
    """Return messages by sender and receiver: how many, how large, how long."""
    table = plain_table(
        "who sent to whom",
        *("from → to", ">messages", ">bytes", ">median bytes", ">median length"),
        ">median answer after",
    )

    rows = talks.found
    answers = answer_times(rows)  # not a number where none came
    lengths = rows["last"] - rows["first"]
    for number, (_, _, name) in enumerate(talks.edges):
        is_sent = talks.edge == number
        sizes = rows["bytes"][is_sent]
        waits = answers[is_sent]
        waits = waits[~np.isnan(waits)]

        cells = [
            name.replace("->", " → "),
            f"{len(sizes):,}",
            format_size(int(sizes.sum())),
            format_size(int(np.median(sizes))),
            format_duration(np.median(lengths[is_sent])),
        ]
        # The median of no answers would be no number, with a warning.
        if len(waits):
            cells.append(format_duration(np.median(waits)))
        table.add_row(*cells)
    return table


#: Notes below the titles of charts.
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
