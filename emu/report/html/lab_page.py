"""A lab as tables and as a page: programs, messages, NICs, losses, host over time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Group
from rich.table import Table

from emu.array_types import Array, Ints, Records
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
from emu.report.lanes import Crossings, pack_columns, pack_lanes_per_group
from emu.report.terminal import facts_table, plain_table
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
            percent = 100 * sum(shares) / len(shares)
            mean = f"{percent:.0f} %"
            table.add_row(f"{machine} {direction}", mean, signs)
    return table


def nic_table(lab: LabResult) -> Table:
    """Return the traffic of every NIC, with all headers, and TCP's losses there."""
    columns = [
        "NIC",
        ">capacity",
        ">bytes",
        ">packets",
        ">dropped",
        ">segments",
        ">sent again",
        ">timeouts",
    ]
    table = plain_table("what crossed, with all headers", *columns)
    for name, counts in lab["traffic"].items():
        rates = lab["nics"][name]
        drops = lab["dropped"][name]
        # TCP counts by machine: it stands once, beside the first of the two ways.
        tcp_counts = [f"{count:,}" for count in lab["tcp"][name].values()]
        for direction in ("out", "in"):
            packets = counts[f"{direction}_packets"]
            table.add_row(
                f"{name} {direction}",
                format_rate(rates[direction]),
                format_size(counts[f"{direction}_bytes"]),
                f"{packets:,}",
                f"{drops[direction]:,}",
                *tcp_counts,
            )
            tcp_counts = []

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
    if run["stopped"]:
        ending += ", asked to at the end"
    return ending


def matrix_table(crossed: LabResult) -> Table:
    """Return the payload from each machine to each."""
    title = (
        f"payload from row to column: {crossed['connections']} directions of "
        f"connections, {crossed['messages']} messages"
    )
    columns = [f">{name}" for name in crossed["bytes"]]
    table = plain_table(title, "from", *columns)
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
    found: Records
    """Messages by time, the largest where there are too many to draw."""
    edge: Ints
    """By message, a position in ``edges``."""
    edges: list[tuple[int, int, str]]
    """Positions of two tasks, and what this direction is called."""


def lab_data(
    lab: LabResult,
    traffic: Traffic,
    talks: Talks,
    samples: Mapping[str, Array],
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
    starts = [run["start"] for run in runs]
    ends = [run["end"] or seconds for run in runs]
    return pack_columns(
        row=np.arange(len(runs)),
        iteration=np.zeros(len(runs), np.int64),
        start=np.array(starts, float),
        end=np.array(ends, float),
    )


def _rate_curves(traffic: Traffic, seconds: float) -> list[Charts]:
    """Return the rate over time of every NIC, out and in, machine by machine."""
    machines = len(traffic.machines)
    # Shares of a NIC that carries 1 byte per second are bytes per second.
    unit_rates = np.ones((2, machines, _POINTS))
    rates = nic_use(traffic.packets, unit_rates, seconds)
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
    places = [rows[end].astype(np.int64) for end in _ENDS]
    ends = np.stack(places, axis=1)
    ports = 2 * ends + np.arange(2)  # out of the source, into the destination
    port = ports.ravel()
    numbers = np.arange(len(rows))
    message: Ints = np.repeat(numbers, 2)

    first = rows["first"]
    last = rows["last"]
    lane, lanes = pack_lanes_per_group(
        first[message],
        end=last[message],
        group=port,
        groups=2 * machines,
    )
    crossed = Crossings(
        flow=message,
        port=port,
        lane=lane,
        lanes=lanes,
    )
    return pack_flows(
        edge=talks.edge,
        iteration=np.arange(len(rows)),
        start=first,
        end=last,
        size=rows["bytes"],
        crossed=crossed,
    )


def talks_of(runs: list[LabResult], traffic: Traffic) -> Talks:
    """Return the programs of lab.json, and the messages between them."""
    rows = messages(traffic.packets)
    if len(rows) > MOST_MESSAGES:
        # Positions are sorted again, so that messages stay in the order of time.
        by_size = np.argpartition(rows["bytes"], -MOST_MESSAGES)
        largest = by_size[-MOST_MESSAGES:]
        rows = rows[np.sort(largest)]

    tasks, owner = _tasks(runs, traffic)
    source, destination = [owner[rows[end], rows[f"{end}_port"]] for end in _ENDS]
    # A pair of tasks is one number, so that NumPy finds those that are equal.
    pair_of_message = source * len(tasks) + destination
    pairs, edge = np.unique(pair_of_message, return_inverse=True)
    names = []
    for task in tasks:
        machine = traffic.machines[task["machine"]]
        names.append(f"{task['name']} on {machine}")
    edges = []
    for pair in pairs.tolist():
        sender, receiver = divmod(pair, len(tasks))
        name = f"{names[sender]}->{names[receiver]}"
        edges.append((sender, receiver, name))
    return Talks(
        tasks=tasks,
        found=rows,
        edge=edge,
        edges=edges,
    )


def _tasks(runs: list[LabResult], traffic: Traffic) -> tuple[list[Charts], Ints]:
    """Return the programs, with one unknown per machine, and the owner of each port."""
    names = traffic.machines
    tasks = []
    position_of: dict[tuple[int, str], int] = {}
    for position, run in enumerate(runs):
        name = run["machine"]
        if name not in names:
            problem = f"programs: names {name!r}, which traffic.npz lacks"
            raise DataError(problem, path="lab.json")
        machine = names.index(name)
        program = run["program"]
        position_of[machine, program] = position
        task = {
            "name": program,
            "kind": program,
            "machine": machine,
            "note": how_ended(run),
        }
        tasks.append(task)

    # A port whose program was never seen belongs to the unknown one of its machine.
    # TCP has 16 bits for a port: a table of all is 0.5 MB per machine.
    owner = np.empty((len(names), 1 << 16), np.int64)
    for machine in range(len(names)):
        owner[machine] = len(tasks)
        tasks.append({"name": UNKNOWN, "kind": UNKNOWN, "machine": machine})
    for machine, port, number in traffic.owners.tolist():
        program = traffic.programs[number]
        owner_position = position_of.get((machine, program))
        if owner_position is not None:
            owner[machine, port] = owner_position
    return tasks, owner


def _ports(lab: LabResult, traffic: Traffic) -> list[Charts]:
    """Return both directions of every NIC; since when it carried what."""
    ports = []
    for machine, name in enumerate(traffic.machines):
        changes = [event for event in lab["events"] if event["machine"] == name]
        for row, direction in enumerate(("out", "in")):
            limits = [(0.0, float(traffic.nics[row, machine]))]
            limits += [(event["time"], event[f"nic_{direction}"]) for event in changes]
            rates = [rate for _, rate in limits]
            port = {
                "name": f"{name} {direction}",
                "capacity": max(rates),
                "machine": machine,
                "direction": direction,
                "limits": limits,
            }
            ports.append(port)

    return ports


def _counts(machines: Sequence[str], samples: Mapping[str, Array]) -> Iterator[Charts]:
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
                columns = pack_columns(time=time, rate=rate)
                curves.append({"name": name, **columns})
        yield {
            "title": title,
            "unit": unit,
            "curves": curves,
        }


def _list_nics(machines: Sequence[str], counts: Array) -> Iterator[tuple[str, Array]]:
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
    data = lab_data(lab, traffic=traffic, talks=talks, samples=samples)

    matrix = ""
    if "crossed" in lab:
        matrix = table(matrix_table(lab["crossed"]))
    senders = ""
    if talks.edges:
        senders = table(_talks(talks))
    doubts = _doubts(run, lab, len(talks.found))
    parts = [
        figures(lab_facts(lab)),
        section("doubt", "What went wrong", doubts),
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
    machines = len(lab["nics"])
    subject = f"{machines} machines, sharing {lab['sharing']}, {pace}"
    title = page_title(run.name, subject)
    return run.name, title + "".join(parts), data


def _no_traffic(lab: LabResult) -> Traffic:
    """Return what is known of a lab whose packets are not."""
    names = tuple(lab["nics"])
    nics = lab["nics"]
    rates = []
    for direction in ("out", "in"):
        row = [nics[name][direction] for name in names]
        rates.append(row)

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
        log = log_name(program, machine)
        doubts.append(
            f"{program} failed first, on {machine} (code {failure['code']}): "
            f"its output is {run.name}/{log}"
        )

    gain = lab.get("early_seconds", 0.0)
    if gain > MOST_GAINED * duration_of(lab):
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
    loss = lab.get("capture", {}).get("lost")
    if loss:
        doubts.append(
            f"{loss:,} packets were not noted: {FILE} and this page lack them"
        )
    count = crossing.get("messages", 0)
    if count > drawn:
        doubts.append(f"the largest {drawn:,} of {count:,} messages are drawn")
    return bullets(doubts)


def _talks(talks: Talks) -> Table:
    """Return messages by sender and receiver: how many, how large, how long."""
    columns = [
        "from → to",
        ">messages",
        ">bytes",
        ">median bytes",
        ">median length",
        ">median answer after",
    ]
    table = plain_table("who sent to whom", *columns)

    rows = talks.found
    answers = answer_times(rows)  # not a number where none came
    lengths = rows["last"] - rows["first"]
    for number, (_, _, name) in enumerate(talks.edges):
        is_sent = talks.edge == number
        sizes = rows["bytes"][is_sent]
        waits = answers[is_sent]
        waits = waits[~np.isnan(waits)]

        total = int(sizes.sum())
        median_size = int(np.median(sizes))
        median_length = np.median(lengths[is_sent])
        cells = [
            name.replace("->", " → "),
            f"{len(sizes):,}",
            format_size(total),
            format_size(median_size),
            format_duration(median_length),
        ]
        # The median of no answers would be no number, with a warning.
        if len(waits):
            median_wait = np.median(waits)
            cells.append(format_duration(median_wait))
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
