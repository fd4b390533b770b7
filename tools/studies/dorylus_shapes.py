"""Dorylus in time and money: quotas, staleness, threads, servers, to an accuracy.

    tools/study dorylus_shapes OUT [--accuracy 0.88] [--most 400]

The shipped scenario dorylus_amazon (EMU_DATA has the graph) in virtual time. Epochs
that each staleness needs are found by training with the reads of its schedule at the
largest quota, and hold at every other; the table compares the paper, the picture
tradeoff.png shows makespan and cost with the Pareto front.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from emu.report.plot_style import new_figure, palette, save, style
from emu.scenario import load, prepare
from emu.scenario.cost import cost_of
from tools.runner import Study

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes

    from tools.runner import Work

SCENARIO = "scenarios/dorylus_amazon.yaml"
#: Name -> mode and S.
MODES = {"no_pipe": ("no_pipe", 0), "pipe": ("pipe", 0)} | {
    f"S={s}": ("async", s) for s in range(2)
}
QUOTAS = (1, 2, 3, 4, 6, 8)
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
    )


def options(parser: ArgumentParser) -> None:
    """Add the accuracy that ends a training, and the epochs that bound it."""
    parser.add_argument("--accuracy", type=float, default=0.88, help="of test vertices")
    parser.add_argument("--most", type=int, default=400, help="epochs at most")


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
    for mode in ("pipe", "S=0", "S=1"):
        yield f"quota {QUOTAS[-1]} {mode}", partial(quotas, options, mode)


def alone(group: str, mode: str, at: int, changes: dict[str, Any]) -> list[Point]:
    """Return one point."""
    return [simulated(group, mode, at, changes)]


def quotas(options: Namespace, mode: str) -> list[Point]:
    """Return the points of all quotas, with the epochs that the largest needs."""
    until = {"accuracy": f"{100 * options.accuracy:g} %", "split": "test"}
    stated = {"job.epochs": options.most, "until": until}
    most = simulated("quota", mode, QUOTAS[-1], stated)
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
    points = [row for row in rows if row.group == "quota"]
    most = {row.mode: row for row in points if row.at == QUOTAS[-1]}
    for mode, paper in (("S=0", "1.00 to 1.14"), ("S=1", "1.07 to 1.58")):
        if {mode, "pipe"} <= most.keys():
            more = most[mode].epochs / most["pipe"].epochs
            faster = most["pipe"].seconds / most[mode].seconds
            yield f"| epochs of {mode} over pipe | {paper} | {more:.2f} |"
            yield f"| time of pipe over {mode} | 1.23, 1.00 | {faster:.2f} |"
    for row in most.values():
        beyond = 1 - row.servers / row.dollars
        yield f"| cost beyond servers, {row.mode} | 13 to 59 % | {beyond:.0%} |"
    if points:
        draw(points, options.accuracy, options)
        fast, cheap, best = (
            min(points, key=key)
            for key in (lambda p: p.seconds, lambda p: p.dollars, lambda p: -p.value)
        )
        yield f"\nfastest {fast.case}; cheapest {cheap.case}; most value {best.case}"
        yield f"Pareto front: {', '.join(point.case for point in pareto(points))}"
        yield from tuned_lines(points)
    for row in rows:
        yield (
            f"{row.case:22} {row.epochs:4} epochs {row.seconds:9.3f} s "
            f"{1e3 * row.dollars:8.3f} m$ value {row.value:8.2f}"
        )


STUDY = Study(row=Point, work=work, table=table, options=options, settled=("accuracy",))
