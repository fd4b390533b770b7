"""Which system is fastest: a map over bandwidth and feature length, per cluster, graph.

    tools/study winners OUT [--jobs 2] [--whole] [--only "four products-like"]

Every mini-batch system on the machines on which it is fastest, by training vertices per
second, by the rates of `table.yaml`; with --whole every one that trains on the whole
graph. The two classes learn otherwise from a vertex, and are compared to an accuracy
alone. The colour of a field is the winner, its shade by how much it is ahead of the
next: OUT/map.png.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_rgb
from PIL import Image

from emu.experiment.system_rows import compare_systems
from emu.report.plot_style import COLOURS, style
from emu.scenario import load
from emu.scenario.scenario_file import loads
from tools.runner import Study, Work

SYSTEMS = ("distdgl", "data_parallel", "p3.none", "p3.A", "one_machine")
#: The same of those that train on the whole graph.
WHOLE = ("dgcl", "dorylus.pipe", "dorylus.async")
#: Of the fastest NIC, Gbit/s.
BANDWIDTHS = (1, 5, 25, 100)
#: 100, 602 and 128 are those of the three graphs.
LENGTHS = (32, 100, 128, 602, 1600)
GRAPHS = {"products-like": 0.004, "reddit-like": 0.03, "papers100m-like": 0.0002}
#: Machines by name: how many, and their share of the bandwidth.
CLUSTERS: dict[str, dict[str, tuple[int, float]]] = {
    "four": {"fast": (2, 1.0), "slow": (2, 0.2)},
    "two racks": {"a": (2, 1.0), "b": (2, 1.0)},
    "sixteen": {"m": (16, 1.0)},
}


@dataclass(frozen=True)
class Winner:
    """The first two systems at one point, and training vertices per second."""

    case: str
    cluster: str
    graph: str
    bandwidth: float
    length: int
    first: str
    second: str
    rate: float
    ahead: float


def list_options(parser: ArgumentParser) -> None:
    """Add which systems are compared."""
    parser.add_argument("--whole", action="store_true", help="on the whole graph")


def work(options: Namespace) -> Iterator[Work[Winner]]:
    """Yield every point."""
    for cluster in CLUSTERS:
        for graph in GRAPHS:
            for bandwidth in BANDWIDTHS:
                for length in LENGTHS:
                    point = cluster, graph, bandwidth, length
                    case = f"{cluster} {graph} {bandwidth} Gbit/s {length}"
                    systems = WHOLE if options.whole else SYSTEMS
                    yield case, partial(measure, case, systems, *point)


def content_of(cluster: str, graph: str, bandwidth: float, length: int) -> Any:
    """Return the scenario of a point: `table.yaml` with these keys."""
    content = load("table").to_json()
    one, *_ = content["cluster"]["machines"]
    machines = [
        one | {"name": name, "count": count, "nic": f"{share * bandwidth} Gbit/s"}
        for name, (count, share) in CLUSTERS[cluster].items()
    ]
    content["cluster"] = {"machines": machines}
    if cluster == "two racks":
        content["cluster"]["racks"] = [
            {"name": f"rack-{name}", "machines": [f"{name}0", f"{name}1"],
             "uplink": f"{bandwidth / 4} Gbit/s"}
            for name in CLUSTERS[cluster]
        ]  # fmt: skip
    dataset = {"name": graph, "scale": GRAPHS[graph], "feature_length": length}
    content["job"] |= {"dataset": dataset, "iterations": 10, "workers": 4}
    return content


def measure(
    case: str,
    systems: Sequence[str],
    cluster: str,
    graph: str,
    bandwidth: float,
    length: int,
) -> list[Winner]:
    """Return the row of a point."""
    content = content_of(cluster, graph, bandwidth, length)
    rows = compare_systems(loads(json.dumps(content)), systems)
    there = [row for row in rows if not row.refused]
    first, second, *_ = sorted(there, key=lambda row: -row.samples_per_second)
    best, next_best = (row.samples_per_second for row in (first, second))
    point = case, cluster, graph, bandwidth, length
    return [Winner(*point, first.system, second.system, best, best / next_best)]


def table(rows: list[Winner], options: Namespace) -> Iterator[str]:
    """Yield a map per cluster and graph, as text; draw all of them."""
    draw(rows, WHOLE if options.whole else SYSTEMS, options.out / "map.png")
    for cluster in CLUSTERS:
        for graph in GRAPHS:
            mine = _by_place(rows, cluster, graph)
            if not mine:
                continue
            yield f"{cluster}, {graph}: columns of features; Gbit/s of the fastest NIC"
            yield " " * 8 + "".join(f"{length:>22}" for length in LENGTHS)
            for bandwidth in BANDWIDTHS:
                cells = [
                    f"{row.first} {row.ahead:.2f} x" if row else "-"
                    for length in LENGTHS
                    for row in [mine.get((bandwidth, length))]
                ]
                yield f"{bandwidth:>8}" + "".join(f"{cell:>22}" for cell in cells)


def _by_place(
    rows: list[Winner], cluster: str, graph: str
) -> dict[tuple[float, int], Winner]:
    mine = (row for row in rows if (row.cluster, row.graph) == (cluster, graph))
    return {(row.bandwidth, row.length): row for row in mine}


def draw(rows: list[Winner], systems: Sequence[str], out: Path) -> None:
    """Draw all maps into one picture, a row of them per cluster."""
    with style(dark=False):
        from matplotlib.figure import Figure  # noqa: PLC0415 -- after the style

        figure = Figure(figsize=(9, 8), layout="constrained")
        axes = figure.subplots(len(CLUSTERS), len(GRAPHS), squeeze=False)
        for axis, (cluster, graph) in zip(
            axes.flat, ((c, g) for c in CLUSTERS for g in GRAPHS), strict=True
        ):
            mine = _by_place(rows, cluster, graph)
            picture = np.ones((len(BANDWIDTHS), len(LENGTHS), 3))
            for (bandwidth, length), row in mine.items():
                place = BANDWIDTHS.index(int(bandwidth)), LENGTHS.index(length)
                # White where both are equal, the full colour from twice as fast on.
                shade = min(max(row.ahead - 1.0, 0.1), 1.0)
                colour = np.array(to_rgb(COLOURS[systems.index(row.first)]))
                picture[place] = 1 - shade * (1 - colour)
                axis.text(*place[::-1], f"{row.ahead:.2f}", ha="center", va="center")
            axis.imshow(picture, origin="lower", aspect="auto")
            axis.grid(visible=False)
            axis.set_xticks(range(len(LENGTHS)), map(str, LENGTHS))
            axis.set_yticks(range(len(BANDWIDTHS)), map(str, BANDWIDTHS))
            axis.set_title(f"{cluster} machines, {graph}" if cluster != "two racks"
                           else f"{cluster}, {graph}")  # fmt: skip
        for axis in axes[-1]:
            axis.set_xlabel("columns of features")
        for axis in axes[:, 0]:
            axis.set_ylabel("fastest NIC, Gbit/s")
        patches = [
            mpl.patches.Patch(color=COLOURS[n], label=name)
            for n, name in enumerate(systems)
        ]
        figure.legend(handles=patches, loc="outside lower center", ncols=len(patches))
        figure.savefig(out, dpi=80)
    Image.open(out).quantize(200).save(out, optimize=True)  # a third of the bytes


STUDY = Study(
    row=Winner, work=work, table=table, options=list_options, settled=("whole",)
)
