"""Best moves against whole searches and bounds, and searches against larger budgets.

    tools/study moves_and_bounds OUT [--draws N] [--nodes N] [--budgets N]

On both shipped scenarios, each as DistDGL places it, and the testbed's job on N
clusters of its size (NICs, cores, GPUs and memory drawn as for the paper's
simulations): the best move or swap, the search that ``policy: best`` carries out, the
lower bound over all placements (a number of nodes at most, so that load changes
nothing), and the CPU time of each. All makespans are of the same times and volumes.

``--budgets N``: on N drawn clusters and jobs of up to 100 tasks, none of them used to
choose the search's settings, what `best_placement` finds with its own budget, with ten
times as much, and what ETP finds with the paper's 10,000 candidates; all simulated.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np

from emu.array_types import Ints
from emu.errors import PlacementError
from emu.prediction.core import lib, pointer
from emu.prediction.placement import best_placement, place
from emu.prediction.placement.bound import placement_bound
from emu.prediction.placement.moves import Neighbour
from emu.prediction.placement.space import Space
from emu.prediction.placement.symmetry import find_symmetry, hub_followers
from emu.prediction.simulation import makespan
from emu.problem import Cluster, Placement, Problem, Profile, Realization
from emu.problem.fields.cluster_section import ClusterSection
from emu.reproduction.drawn_machines import draw_machines
from emu.scenario import load, prepare
from emu.systems.dgtp.section import DgtpJobSection
from emu.systems.job_section import BuildContext
from tools.runner import Study, Work

SHIPPED = ("testbed_products", "demo")
#: Share of a makespan below which a gain is none.
WORTH = 0.01


def draw_cluster(count: int, draws: np.random.Generator) -> Cluster:
    """Return machines as the DGTP paper draws them."""
    machines = {"machines": draw_machines(count, draws)}
    return ClusterSection.model_validate(machines).build()


@dataclass(frozen=True)
class Found:
    """One figure of one cluster: a makespan or a CPU time, seconds, or a count."""

    case: str
    what: str
    value: float


def options(parser: ArgumentParser) -> None:
    """Add how many clusters are drawn."""
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=300, help="of the bound, at most")
    parser.add_argument("--budgets", type=int, default=0, help="drawn jobs, likewise")


def work(options: Namespace) -> Iterator[Work[Found]]:
    """Yield every cluster."""
    found_on("", *next(problems(0))[1:], nodes=1)  # compiles
    for name, problem, run in problems(options.draws):
        yield name, partial(found_on, name, problem, run, nodes=options.nodes)
    for draw in range(options.budgets):
        yield f"budgets {draw}", partial(budgets_on, draw)


def found_on(
    name: str, problem: Problem, run: Realization, *, nodes: int
) -> list[Found]:
    """Try moves, search and bound on a placed problem; ``run`` has reference times."""
    job, cluster = problem.job, problem.cluster
    profile = Profile(run.times, run.volumes)
    began = time.process_time()
    near = [replace(problem, placement=n.placement) for n in neighbours(problem, run)]
    moved = [makespan(one, one.stretch(run), "oes") for one in near]
    moving = time.process_time()
    best = place("best", job, cluster, profile=profile)
    searching = time.process_time()
    bound = placement_bound(job, cluster, run, nodes=nodes)
    bounding = time.process_time()
    start = makespan(problem, problem.stretch(run), "oes")
    figures = {
        "start": start,
        "moved": min(start, *moved),
        "searched": _makespan(problem, run, best.placement),
        "bound": bound,
        "moves": len(near),
        "move seconds": moving - began,
        "search seconds": searching - moving,
        "bound seconds": bounding - searching,
    }
    return [Found(name, what, value) for what, value in figures.items()]


def neighbours(problem: Problem, realization: Realization) -> Iterator[Neighbour]:
    """Yield every feasible placement one move or one swap away.

    On 100 drawn clusters the best reached 76 % of what a search gains in the median,
    single tasks 2 %.

    A unit moves, or a worker with its samplers (`hub_followers`): these change places
    with teams of equal size, member by member. Of several placements that differ by
    interchangeable tasks only, the first one.

    Raises ValueError when ``realization`` does not fit the job.
    """
    space = Space(problem.job, problem.cluster)
    if space.placement(space.machines(problem.placement)) != problem.placement:
        space = Space(problem.job, problem.cluster, apart=True)
    symmetry = find_symmetry(space, realization)
    here = space.machines(problem.placement)
    keys = set()

    def is_new(machines: Ints) -> bool:
        canonical = machines.copy()
        lib.canonicalise(symmetry.core, pointer(canonical))
        is_old = canonical.tobytes() in keys
        keys.add(canonical.tobytes())
        return not is_old and space.fits(machines)

    is_new(here)
    teams = [np.array([hub, *followers]) for hub, followers in hub_followers(space)]
    alone = list(np.arange(here.size)[:, None])
    for machines in _near(here, [*alone, *teams], len(problem.cluster.machines)):
        if is_new(machines):
            placement = space.placement(machines)
            yield Neighbour.of(problem, placement)


def _near(here: Ints, teams: list[Ints], machines: int) -> Iterator[Ints]:
    for team in teams:
        for machine in range(machines):
            near = here.copy()
            near[team] = machine
            yield near
    for one, other in combinations(teams, 2):
        if one.size == other.size:
            near = here.copy()
            near[one], near[other] = here[other], here[one]
            yield near


def _makespan(problem: Problem, run: Realization, placement: Placement) -> float:
    there = replace(problem, placement=placement)
    return makespan(there, there.stretch(run), "oes")


def problems(draws: int) -> Iterator[tuple[str, Problem, Realization]]:
    """Yield name, placed problem and reference realization of every cluster."""
    placed = {"placement": {"policy": "distdgl"}, "expect": None}
    for name in SHIPPED:
        own = prepare(load(name, placed))
        yield name, own.problem, own.problem.reference(own.realization)
    testbed = prepare(load(SHIPPED[0], placed))
    job, names = testbed.problem.job, [m.name for m in testbed.problem.cluster.machines]
    run = testbed.problem.reference(testbed.realization)
    for draw in range(draws):
        rng = np.random.default_rng([16, draw])
        while True:
            drawn = draw_cluster(len(names), rng).machines
            named = [
                replace(m, name=name) for m, name in zip(drawn, names, strict=True)
            ]
            cluster = Cluster(tuple(named))
            try:
                placement = place("distdgl", job, cluster).placement
            except PlacementError:
                continue
            break
        yield f"drawn {draw}", Problem(cluster, job, placement), run


def budgets_on(draw: int) -> list[Found]:
    """Search with one and with ten budgets, and by ETP, on a drawn cluster and job."""
    problem, run = drawn_job(np.random.default_rng([29, draw]))
    job, cluster = problem.job, problem.cluster
    began = time.process_time()
    best = best_placement(job, cluster, run, seed=draw)
    seconds = time.process_time() - began
    much = best_placement(job, cluster, run, seed=draw, transfers=10 * best.budget)
    profile = Profile(run.times, run.volumes)
    etp = place("etp", job, cluster, profile=profile, seed=draw)
    figures = {"tasks": len(job.tasks), "seconds": seconds}
    for what, one in (("best", best), ("best of ten", much), ("etp", etp)):
        figures[what] = _makespan(problem, run, one.placement)
    return [Found(f"budgets {draw}", what, value) for what, value in figures.items()]


def drawn_job(rng: np.random.Generator) -> tuple[Problem, Realization]:
    """Return a drawn job of DGTP on a drawn cluster that holds it, placed by IFS."""
    while True:
        count = int(rng.integers(2, 17))
        machines = tuple(
            replace(machine, name=f"m{i}")
            for i, machine in enumerate(draw_cluster(count, rng).machines)
        )
        section = DgtpJobSection.model_validate(
            {
                "system": "dgtp",
                "dataset": "products-like",
                "model": {"hidden": 4, "layers": 2},
                "fanouts": "all",
                "batch_size": 2,
                "workers": int(rng.integers(1, 2 * count)),
                "samplers_per_worker": int(rng.integers(1, 3)),
                "iterations": int(rng.integers(5, 41)),
                "demands": {"worker": {"gpu": 1, "cpu": 1}, "sampler": {"cpu": 2}},
            }
        )
        names = tuple(machine.name for machine in machines)
        job = section.build(BuildContext(names, None, seed=0))
        cluster = Cluster(machines)
        try:
            placement = place("ifs", job, cluster).placement
        except PlacementError:
            continue
        shapes = (len(job.tasks), job.iterations), (len(job.edges), job.iterations)
        mean = {task.kind: rng.uniform(0.002, 0.1) for task in job.tasks}
        times = np.array([[mean[task.kind]] for task in job.tasks])
        sent = {task.kind: 10 ** rng.uniform(5.5, 8.0) for task in job.tasks}
        volumes = np.array([[sent[job.tasks[e.source].kind]] for e in job.edges])
        run = Realization(
            times * rng.lognormal(0.0, 0.2, shapes[0]),
            volumes * rng.lognormal(0.0, 0.2, shapes[1]),
        )
        return Problem(cluster, job, placement), run


def table(rows: list[Found], _: Namespace) -> Iterator[str]:
    """Yield the shipped scenarios, quantiles of the drawn ones, and the budgets."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        found.setdefault(row.case, {})[row.what] = row.value
    for name in SHIPPED:
        if name in found:
            values = ", ".join(f"{k} {v:.4g}" for k, v in found[name].items())
            yield f"{name}: share {share(found[name]):.1%}, {values}"
    if drawn := [one for name, one in found.items() if name.startswith("drawn ")]:
        yield from quantiles(drawn)
    if budgets := [one for name, one in found.items() if name.startswith("budgets ")]:
        yield from losses(budgets)


def share(found: dict[str, float]) -> float:
    """Return the gain of the best move or swap over that of the search."""
    gain = found["start"] - found["searched"]
    return (found["start"] - found["moved"]) / gain if gain else float("nan")


def quantiles(found: list[dict[str, float]]) -> Iterator[str]:
    """Yield quantiles of what was found on several clusters."""
    yield f"{len(found)} drawn clusters{'least':>33}{'5 %':>9}{'median':>9}{'95 %':>9}"
    gaining = [f for f in found if f["searched"] < (1 - WORTH) * f["start"]]
    yield _row("best move or swap: gain", (1 - f["moved"] / f["start"] for f in found))
    yield _row("search: gain", (1 - f["searched"] / f["start"] for f in found))
    yield _row(f"share of it, where above {WORTH:.0%}", map(share, gaining))
    left = (1 - f["bound"] / min(f["moved"], f["searched"]) for f in found)
    yield _row("left to gain at most (bound)", left)
    for what in ("move seconds", "search seconds", "bound seconds", "moves"):
        yield _row(what, (f[what] for f in found), "9.3g")
    good = sum(f["moved"] <= f["searched"] * (1 + WORTH) for f in found)
    yield f"the search gains more than {WORTH:.0%} on {len(gaining)}"
    yield f"one move or swap is within {WORTH:.0%} of the search on {good}"


def _row(what: str, values: Iterable[float], style: str = "9.1%") -> str:
    known = list(values)
    row = np.quantile(known, (0.0, 0.05, 0.5, 0.95)) if known else ()
    return f"{what:<44}" + "".join(f"{value:{style}}" for value in row)


def losses(found: list[dict[str, float]]) -> Iterator[str]:
    """Yield how much a budget costs, and what it loses against ten."""
    worse = np.array([one["best"] / one["best of ten"] - 1 for one in found])
    etp = np.array([one["best"] / one["etp"] - 1 for one in found])
    slowest = max(found, key=lambda one: one["seconds"])
    sizes = [one["tasks"] for one in found]
    yield f"{len(found)} drawn jobs of {min(sizes):.0f} to {max(sizes):.0f} tasks"
    within = np.mean(worse <= 0.02)
    yield f"within 2 % of ten budgets: {within:.1%}, worst {max(worse):.1%}"
    yield f"against ETP: worst {max(etp):+.1%}, mean {np.mean(etp):+.1%}"
    yield f"CPU: {slowest['seconds']:.1f} s at most, with {slowest['tasks']:.0f} tasks"


STUDY = Study(
    row=Found,
    work=work,
    table=table,
    options=options,
    line=lambda row: row.case,
    settled=("nodes",),
)
