"""Which system is fastest at published sizes: a map over machines and NICs, per graph.

    tools/study published_winners OUT [--jobs 2] [--whole] [--only reddit]

Graphs are drawn at the size of products, Reddit and papers100M, by the scenarios
`table_*.yaml`: rates, 16 GB of memory in every GPU, 512 seeds per step. Every
mini-batch system on all of the machines, by training vertices per second; with --whole
every one that trains on the whole graph. What does not fit is refused, and named below.
The colour of a field is the winner, the number how many times as fast as the next it
is: OUT/map.png.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch
from PIL import Image

from emu.experiment.question import Answer, answer
from emu.experiment.system_rows import list_questions
from emu.report.plot_style import COLOURS, style
from emu.scenario import Scenario, load
from emu.scenario.scenario_file import loads
from tools.runner import Study, Work

SYSTEMS = ("distdgl", "data_parallel", "p3.none", "p3.A", "salient_plus_plus",
           "rapid_gnn", "whole_graph")  # fmt: skip
#: The same of those that train on the whole graph.
WHOLE = ("partition_parallel", "pipegcn", "bns_gcn", "adaqp", "dgcl", "dorylus.pipe",
         "neutron_tp")  # fmt: skip
GRAPHS = {
    "products": "table_products",
    "reddit": "table_reddit",
    "papers100m": "table_papers100m",
}
COUNTS = (2, 4, 8)
#: Of every machine, Gbit/s.
BANDWIDTHS = (10, 25, 100)
#: Seeds of a step, on however many machines.
SEEDS = 512


@dataclass(frozen=True)
class Field:
    """The first two systems at one point, and training vertices per second."""

    case: str
    graph: str
    machines: int
    bandwidth: int
    first: str
    second: str
    """Empty where no other fits."""
    rate: float
    ahead: float
    refused: str
    """Systems that do not fit, with commas."""


def list_options(parser: ArgumentParser) -> None:
    """Add which systems are compared."""
    parser.add_argument("--whole", action="store_true", help="on the whole graph")


def work(options: Namespace) -> Iterator[Work[Field]]:
    """Yield a graph on so many machines: all NICs see the same batches."""
    systems = WHOLE if options.whole else SYSTEMS
    for graph in GRAPHS:
        for count in COUNTS:
            case = f"{graph} {count}"
            yield case, partial(measure, case, graph, count, systems)


def scenario_of(graph: str, count: int, bandwidth: int) -> Scenario:
    """Return the table of a graph on equal machines."""
    content: dict[str, Any] = load(GRAPHS[graph]).to_json()
    first, *_ = content["cluster"]["machines"]
    machine = first | {"name": "m", "count": count, "nic": f"{bandwidth} Gbit/s"}
    content["cluster"] = {"machines": [machine]}
    content["training_scales"] = None
    content["job"] |= {
        "machines": None,
        "workers": count,
        "batch_size": SEEDS // count,
    }
    return loads(json.dumps(content))


def measure(case: str, graph: str, count: int, systems: Sequence[str]) -> list[Field]:
    """Return a row per NIC."""
    fields = []
    for bandwidth in BANDWIDTHS:
        scenario = scenario_of(graph, count, bandwidth)
        machines = scenario.stated_cluster.names
        rows: list[Answer] = []
        for system in systems:
            questions = list_questions(scenario, system, machines=machines)
            rows += map(answer, questions)
        found = [row for row in rows if not row.refused]
        found.sort(key=lambda row: -row.samples_per_second)
        refused = [row.system for row in rows if row.refused]
        fields.append(_field_of(case, graph, count, bandwidth, found, refused))
    return fields


def _field_of(
    case: str,
    graph: str,
    count: int,
    bandwidth: int,
    found: Sequence[Answer],
    refused: Sequence[str],
) -> Field:
    """Return the row of a point, whose systems are sorted by their rate."""
    rates = [row.samples_per_second for row in found]
    return Field(
        case=case,
        graph=graph,
        machines=count,
        bandwidth=bandwidth,
        first=found[0].system if found else "none fits",
        second=found[1].system if len(found) > 1 else "",
        rate=rates[0] if found else 0.0,
        ahead=rates[0] / rates[1] if len(found) > 1 else 1.0,
        refused=", ".join(refused),
    )


def table(rows: list[Field], options: Namespace) -> Iterator[str]:
    """Yield a map per graph, as text; draw all of them."""
    draw(rows, WHOLE if options.whole else SYSTEMS, options.out / "map.png")
    for graph in GRAPHS:
        fields = {
            (row.machines, row.bandwidth): row for row in rows if row.graph == graph
        }
        if not fields:
            continue
        yield f"{graph}: machines; Gbit/s of every NIC"
        yield " " * 4 + "".join(f"{bandwidth:>26}" for bandwidth in BANDWIDTHS)
        for count in COUNTS:
            cells = [_cell_of(fields.get((count, rate))) for rate in BANDWIDTHS]
            yield f"{count:>4}" + "".join(f"{cell:>26}" for cell in cells)
        refused = defaultdict[str, list[str]](list)
        for (count, _), row in fields.items():
            if row.refused and str(count) not in refused[row.refused]:
                refused[row.refused].append(str(count))
        for systems, counts in refused.items():
            if systems:
                yield f"do not fit on {', '.join(counts)} machines: {systems}"


def _cell_of(row: Field | None) -> str:
    return f"{row.first} {row.ahead:.2f} x" if row else "-"


def draw(rows: list[Field], systems: Sequence[str], out: Path) -> None:
    """Draw a map per graph into one picture."""
    with style(dark=False):
        from matplotlib.figure import Figure  # noqa: PLC0415 -- after the style

        figure = Figure(figsize=(9, 3.4), layout="constrained")
        axes = figure.subplots(1, len(GRAPHS), squeeze=False)[0]
        for axis, graph in zip(axes, GRAPHS, strict=True):
            of_graph = [row for row in rows if row.graph == graph]
            _draw_graph(axis, of_graph, systems)
            axis.set_title(graph)
            axis.set_xlabel("NIC, Gbit/s")
        axes[0].set_ylabel("machines")
        colours = dict(zip(systems, COLOURS, strict=True))
        patches = [Patch(color=colours[name], label=name) for name in systems]
        figure.legend(handles=patches, loc="outside lower center", ncols=4)
        figure.savefig(out, dpi=90)
    Image.open(out).quantize(200).save(out, optimize=True)  # a third of the bytes


def _draw_graph(axis: Any, rows: Sequence[Field], systems: Sequence[str]) -> None:
    """Draw the fields of one graph."""
    picture = np.ones((len(COUNTS), len(BANDWIDTHS), 3))
    for row in rows:
        place = COUNTS.index(row.machines), BANDWIDTHS.index(row.bandwidth)
        if row.first in systems:
            # White where both are equal, the full colour from twice as fast on.
            shade = min(max(row.ahead - 1.0, 0.15), 1.0) if row.second else 1.0
            colour = np.array(to_rgb(COLOURS[systems.index(row.first)]))
            picture[place] = 1 - shade * (1 - colour)
        text = f"{row.ahead:.2f}" if row.second else row.first
        axis.text(*place[::-1], text, ha="center", va="center", fontsize=8)
    axis.imshow(picture, origin="lower", aspect="auto")
    axis.grid(visible=False)
    axis.set_xticks(range(len(BANDWIDTHS)), map(str, BANDWIDTHS))
    axis.set_yticks(range(len(COUNTS)), map(str, COUNTS))


STUDY = Study(
    row=Field, work=work, table=table, options=list_options, settled=("whole",)
)
