"""Dorylus in time and money: quotas, staleness, threads, servers, to an accuracy.

    tools/study dorylus_shapes OUT [--accuracy 0.88] [--most 1000] [--lr 0.01]

The shipped scenario dorylus_amazon (EMU_DATA has the graph) in virtual time. Epochs
that each staleness needs are found by training with the reads of its schedule at the
largest quota, and hold at every other; the table compares the paper. Of the pictures
tradeoff.png shows makespan and cost with the Pareto front, curves.png the training.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from emu.report.plot_style import new_figure, palette, save, style
from emu.scenario import load, prepare
from emu.scenario.experiment import cost_of
from emu.scenario.virtual_training import progress_along, step_ends
from emu.systems.dorylus import DORYLUS
from emu.systems.dorylus.remarks import ages_of_reads
from tools.runner import Study, Work

SCENARIO = "scenarios/dorylus_amazon.yaml"
#: Name -> mode and S.
MODES = {"no_pipe": ("no_pipe", 0), "pipe": ("pipe", 0)} | {
    f"S={s}": ("async", s) for s in range(2)
}
QUOTAS = (1, 2, 3, 4, 6, 8)
_MOST = f"quota {QUOTAS[-1]}"
#: Modes that are trained.
TRAINED = ("pipe", "S=0", "S=1")
#: In place of a quota where it is tuned.
TUNED = 0
THREADS = (1, 2, 4, 8)
SERVERS = (4, 8, 16)
#: Epochs of comparisons by epoch.
EPOCHS = 20


@dataclass(frozen=True)
class Point:
    """One simulated job; dollars by what they are for, seconds of its makespan."""

    case: str
    group: str
    mode: str
    at: int
    """Quota, 0 where it is tuned; threads or servers, by group."""
    epochs: int
    seconds: float
    servers: float
    lambdas: float
    parameter_servers: float
    quota: float
    """Mean quota of a server, over its looks where it is tuned."""
    fresh: float
    """Share of what gathers read that is of their epoch."""

    @property
    def dollars(self) -> float:
        """Cost in all."""
        return self.servers + self.lambdas + self.parameter_servers

    @property
    def value(self) -> float:
        """Reciprocal of seconds times dollars."""
        return 1 / (self.seconds * self.dollars)


def simulated(group: str, mode: str, at: int, changes: dict[str, Any]) -> Point:
    """Return the point of a variation of the scenario."""
    how, staleness = MODES[mode]
    stated = {"job.mode": how, "job.staleness": staleness, **changes}
    found = prepare(load(SCENARIO, stated))
    schedule = found.simulate()
    cost = cost_of(found.scenario, schedule)
    if cost is None:
        raise ValueError(f"{SCENARIO} has no prices")
    ages = ages_of_reads(schedule)
    return Point(
        f"{group} {at} {mode}",
        group,
        mode,
        at,
        found.problem.job.iterations,
        schedule.makespan,
        cost.servers,
        cost.lambdas,
        cost.parameter_servers,
        at if schedule.quotas is None else float(schedule.quotas.mean()),
        float(np.mean(ages == 0)) if len(ages) else 1.0,
    )


def options(parser: ArgumentParser) -> None:
    """Add the accuracy that ends a training, and the epochs that bound it."""
    parser.add_argument("--accuracy", type=float, default=0.88, help="of test vertices")
    parser.add_argument("--most", type=int, default=1000, help="epochs at most")
    parser.add_argument("--lr", type=float, help="of Adam; default: the scenario's")


def work(options: Namespace) -> Iterator[Work[Point]]:
    """Yield every case."""
    for mode in MODES:
        for at in THREADS:
            one: dict[str, Any] = {"job.threads": at, "job.epochs": EPOCHS}
            yield f"threads {at} {mode}", partial(alone, "threads", mode, at, one)
        for at in SERVERS:
            # A task of mean size has so much fewer vertices.
            part = {"gather": 32 / at, "apply": 80 / at, "scatter": 8 / at}
            one = {
                "cluster.machines[0].count": at,
                "job.times": {kind: f"{time:g} ms" for kind, time in part.items()},
                "job.epochs": EPOCHS,
            }
            yield f"servers {at} {mode}", partial(alone, "servers", mode, at, one)
    for mode in TRAINED:
        yield f"quota {QUOTAS[-1]} {mode}", partial(quotas, options, mode)
        yield f"curve {QUOTAS[-1]} {mode}", partial(curve, options, mode)
    for mode in ("S=0", "S=1"):
        yield f"receivers 1 {mode}", partial(together, options, mode)


def alone(group: str, mode: str, at: int, changes: dict[str, Any]) -> list[Point]:
    """Return one point."""
    return [simulated(group, mode, at, changes)]


def trained(options: Namespace) -> dict[str, Any]:
    """Return the changes that train until the accuracy."""
    until = {"accuracy": f"{100 * options.accuracy:g} %", "split": "test", "every": 5}
    rate = {"job.optimizer.lr": options.lr} if options.lr else {}
    return {"job.epochs": options.most, "until": until, **rate}


def together(options: Namespace, mode: str) -> list[Point]:
    """Return the point of one receiving task per server."""
    stated = {**trained(options), "job.receivers": "server"}
    return [simulated("receivers", mode, 1, stated)]


def curve(options: Namespace, mode: str) -> list[Point]:
    """Write loss and accuracy over simulated time until the accuracy is reached."""
    how, staleness = MODES[mode]
    stated = {"job.mode": how, "job.staleness": staleness, **trained(options)}
    found = prepare(load(SCENARIO, stated))
    schedule = found.simulate()
    epochs = found.problem.job.iterations
    made = progress_along(found.scenario, lambda: schedule, until=found.until)
    seen = np.full(epochs, np.nan)
    seen[made.looks - 1] = made.accuracy["valid"]
    rows = [step_ends(schedule, DORYLUS.step_kinds), made.loss, seen]
    np.savetxt(options.out / f"curve {mode}.txt", np.transpose(rows))
    return [simulated("curve", mode, QUOTAS[-1], {"job.epochs": epochs})]


def draw_curves(options: Namespace) -> None:
    """Draw loss and validation accuracy of all modes against time, and epochs."""
    paths = {mode: options.out / f"curve {mode}.txt" for mode in TRAINED}
    if not any(path.exists() for path in paths.values()):
        return
    with style(dark=False):
        figure = new_figure(4.2)
        panels = figure.subplots(2, 2, sharex="col", sharey="row")
        for (mode, path), colour in zip(
            paths.items(), palette(len(paths)), strict=True
        ):
            if not path.exists():
                continue
            time, loss, seen = np.loadtxt(path, ndmin=2).T
            at = np.flatnonzero(~np.isnan(seen))
            for row, values, where in ((0, loss, np.arange(len(loss))), (1, seen, at)):
                panels[row, 0].plot(
                    time[where], values[where], color=colour, label=mode
                )
                panels[row, 1].plot(1 + where, values[where], color=colour)
        panels[0, 0].set_ylabel("training loss (nats)")
        panels[1, 0].set_ylabel("validation accuracy")
        panels[1, 0].set_xlabel("simulated time (s)")
        panels[1, 1].set_xlabel("epoch")
        handles = panels[0, 0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside upper left", ncols=len(paths))
        save(figure, options.out / "curves.png")


def quotas(options: Namespace, mode: str) -> list[Point]:
    """Return the points of all quotas, with the epochs that the largest needs."""
    most = simulated("quota", mode, QUOTAS[-1], trained(options))
    return [most] + [
        simulated(
            "quota", mode, at, {"job.epochs": most.epochs, "job.lambdas": at or "auto"}
        )
        for at in (*QUOTAS[:-1], TUNED)
    ]


def pareto(points: Sequence[Point]) -> list[Point]:
    """Return the points than which none is both faster and cheaper, fastest first."""
    front: list[Point] = []
    for point in sorted(points, key=lambda one: (one.seconds, one.dollars)):
        if not front or point.dollars < front[-1].dollars:
            front.append(point)
    return front


def star(axes: tuple[Axes, Axes, Axes], point: Point, colour: str) -> None:
    """Mark in the three pictures where a tuned job is."""
    places = (
        (point.quota, point.seconds),
        (point.quota, point.dollars),
        (point.seconds, point.dollars),
    )
    for picture, (x, y) in zip(axes, places, strict=True):
        picture.plot(x, y, color=colour, marker="*", ms=9.0)


def annotate(axes: Axes, points: Sequence[Point]) -> None:
    """Write the quota beside every point."""
    for point in points:
        axes.annotate(
            str(point.at),
            (point.seconds, point.dollars),
            textcoords="offset points",
            xytext=(3, -9),
            fontsize=6,
            annotation_clip=True,
        )


def draw_front(axes: Axes, front: Sequence[Point]) -> None:
    """Join the points of the Pareto front."""
    seconds, dollars = [p.seconds for p in front], [p.dollars for p in front]
    axes.plot(seconds, dollars, color="grey", ls="--", label="Pareto front")


def draw(points: Sequence[Point], accuracy: float, options: Namespace) -> None:
    """Draw makespan and cost against the quota, and one against the other."""
    modes = dict.fromkeys(point.mode for point in points)
    with style(dark=False):
        figure = new_figure(3.0)
        time, money, both = figure.subplots(1, 3)
        for mode, colour in zip(modes, palette(len(modes)), strict=True):
            every = sorted((p for p in points if p.mode == mode), key=lambda p: p.at)
            own = [p for p in every if p.at != TUNED]
            label = f"{mode}: {own[0].epochs} epochs"
            at = [p.at for p in own]
            seconds, dollars = [p.seconds for p in own], [p.dollars for p in own]
            time.plot(at, seconds, color=colour, marker="o", label=label)
            money.plot(at, dollars, color=colour, marker="o")
            both.plot(seconds, dollars, color=colour, marker="o", ls="")
            for point in every[: len(every) - len(own)]:
                star((time, money, both), point, colour)
            annotate(both, own)
        draw_front(both, pareto(points))
        for axes in (time, money):
            axes.set_xlabel("quota of lambdas per server")
            axes.set_ylim(bottom=0)
        time.set_ylabel(f"time to {accuracy:.0%} (s)")
        money.set_ylabel("cost ($)")
        both.set_xlabel("time (s); by quota, star: tuned")
        both.set_ylabel("cost ($)")
        # The front is narrow.
        both.set_xlim(right=2 * min(p.seconds for p in points))
        both.set_ylim(top=2 * min(p.dollars for p in points))
        both.legend(loc="lower right")
        handles = time.get_legend_handles_labels()
        figure.legend(*handles, loc="outside upper left", ncols=len(modes))
        save(figure, options.out / "tradeoff.png")


def tuned_lines(points: Sequence[Point]) -> Iterator[str]:
    """Yield every tuned job beside the best quotas."""
    for tuned in (point for point in points if point.at == TUNED):
        own = [p for p in points if p.mode == tuned.mode and p.at != TUNED]
        swift = min(own, key=lambda p: p.seconds)
        dear = max(own, key=lambda p: p.value)
        yield (
            f"tuned {tuned.mode}: {tuned.quota:.1f} lambdas on average, "
            f"{tuned.seconds / swift.seconds:.2f} of the time of the best quota by "
            f"time, {swift.at}; {tuned.value / dear.value:.2f} of the value of the "
            f"best by value, {dear.at}"
        )


def table(rows: list[Point], options: Namespace) -> Iterator[str]:
    """Draw the picture; yield the paper beside what is here, then every point."""
    found = {row.case: row for row in rows}
    yield "| shape | paper | here |\n| --- | --- | --- |"
    base = found.get
    for mode, paper in (("no_pipe", "1.9"), ("S=0", "0.85"), ("S=1", "0.85")):
        pairs = [
            (base(f"threads {at} {mode}"), base(f"threads {at} pipe")) for at in THREADS
        ]
        here = ", ".join(f"{a.seconds / b.seconds:.2f}" for a, b in pairs if a and b)
        threads = ", ".join(map(str, THREADS))
        yield f"| epoch of {mode} over pipe, threads {threads} | {paper} | {here} |"
    few, many = (base(f"servers {at} S=0") for at in (SERVERS[0], SERVERS[-1]))
    if few and many:
        faster, dearer = few.seconds / many.seconds, many.dollars / few.dollars - 1
        here = f"{faster:.2f} x, {dearer:+.0%}"
        yield f"| 4 to 16 servers: faster, cost | 2.82 x, +5 % | {here} |"
    yield from trained_lines(found)
    draw_curves(options)
    points = [row for row in rows if row.group == "quota"]
    if points:
        draw(points, options.accuracy, options)
        yield from best_lines(points)
        yield from tuned_lines(points)
    for row in rows:
        yield (
            f"{row.case:22} {row.epochs:4} epochs {row.seconds:9.3f} s "
            f"{1e3 * row.dollars:8.3f} m$ value {row.value:8.2f}"
        )


def trained_lines(found: Mapping[str, Point]) -> Iterator[str]:
    """Yield epochs and cost to the accuracy, and what one receiver changes."""
    most = {
        mode: found[case] for mode in TRAINED if (case := f"{_MOST} {mode}") in found
    }
    for mode, paper in (("S=0", "1.00 to 1.14"), ("S=1", "1.07 to 1.58")):
        if {mode, "pipe"} <= most.keys():
            more = most[mode].epochs / most["pipe"].epochs
            faster = most["pipe"].seconds / most[mode].seconds
            yield f"| epochs of {mode} over pipe | {paper} | {more:.2f} |"
            yield f"| time of pipe over {mode} | 1.23, 1.00 | {faster:.2f} |"
    for row in most.values():
        beyond = 1 - row.servers / row.dollars
        yield f"| cost beyond servers, {row.mode} | 13 to 59 % | {beyond:.0%} |"
    for mode, each in most.items():
        if one := found.get(f"receivers 1 {mode}"):
            yield (
                f"| one receiver per server, {mode}: share read of its epoch, epochs | "
                f"| {one.fresh:.0%} for {each.fresh:.0%}, {one.epochs} for "
                f"{each.epochs} |"
            )


def best_lines(points: Sequence[Point]) -> Iterator[str]:
    """Yield the best of all quotas and modes."""
    fast, cheap, best = (
        min(points, key=key)
        for key in (lambda p: p.seconds, lambda p: p.dollars, lambda p: -p.value)
    )
    yield f"\nfastest {fast.case}; cheapest {cheap.case}; most value {best.case}"
    yield f"Pareto front: {', '.join(point.case for point in pareto(points))}"


STUDY = Study(
    row=Point, work=work, table=table, options=options, settled=("accuracy", "lr")
)
