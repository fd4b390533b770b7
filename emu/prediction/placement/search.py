"""A better search than the paper's: exhaustive where possible, else annealing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np

from emu.array_types import Floats, Ints
from emu.errors import InfeasiblePlacement, PlacementError
from emu.prediction.core import Record, lib, pointer
from emu.prediction.placement.baselines import deal_out, draw_machines, fill
from emu.prediction.placement.candidates import (
    Candidates,
    JobsCost,
    estimate,
    units_cost,
    walk_generator,
)
from emu.prediction.placement.distdgl import place_distdgl
from emu.prediction.placement.etp import REMEMBERED, STRIDE, new_chain
from emu.prediction.placement.packing import infeasibility
from emu.prediction.placement.space import PlacementResult, Progress, Space
from emu.prediction.placement.symmetry import find_symmetry, team_arrays
from emu.prediction.scheduling.policies import policy_named
from emu.problem import Cluster, Job, Placement, Realization


def endless(cluster: Cluster, policy: str) -> InfeasiblePlacement:
    """Return the error of a job that ends nowhere, under a rule for rates."""
    links = cluster.links
    cut_links = [links[port].name for port in links.steps.cut_for_good]
    if cut_links:
        names = ", ".join(cut_links[:4])
        return InfeasiblePlacement(
            f"no placement was found with which the job ends: {names} "
            "carries nothing any more, write for how long it is cut (events, for)"
        )

    # No link is cut for good here: the rules of emu give every flow a rate in time.
    if policy_named(policy).rates is not None:
        return InfeasiblePlacement(
            f"no placement was found with which the job ends: {policy} leaves flows "
            "without a rate for ever, or tasks wait for each other's slots",
            key="schedule.policy",
        )

    return InfeasiblePlacement(
        "no placement was found in which every task gets its slots: somewhere more are "
        "taken than given back, or tasks wait for each other's"
    )


# temperatures of a round, as part of the best makespan
HOT = 0.02
COLD = 0.0002
IFS_STARTS = 4
#: Proposals that a round takes at least. With 300 in place of the 40 to 150 of four
#: rounds, 84 % and not 80 % of 45 drawn jobs of 35 to 100 tasks came within 2 % of what
#: ten budgets find, the mean loss was 0.9 and not 1.3 %: a chain needs time to cool.
ROUND = 240
#: Proposals and temperatures of a sketch, as parts of its first estimate.
SKETCH = 0.1, 0.0005, 2_000
# What listing a space may cost: placements (2 MB for 20 units), and steps of 0.1 us. On
# workload A, 4^19 placements, giving up costs 0.1 s.
LISTED = 50_000
LISTING_STEPS = 1_000_000
_ROUNDING = 1e-9  # relative, of a limit


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """The settings of the improved search.

    Raises ValueError when a number is out of range.
    """

    transfers: int = 10_000
    """Candidates in all."""
    iterations: int = 20
    """Training iterations that are simulated for a makespan."""
    rounds: int = 4
    """Times at most that annealing begins anew, hot: from the best placement so far and
    from one that a random one is sketched into by turns."""
    sketches: int = 24
    """Placements that annealing under an estimate leads to, before any simulation."""
    exhaustive: bool = True
    """True where a space that can be listed is searched by ascending lower bound, which
    ends with a proof."""
    policy: str = "oes"
    """Rate policy of the simulation."""
    cost: JobsCost | None = None
    """Cost of several jobs to minimise, in place of the makespan."""

    def __post_init__(self) -> None:
        counts = {"transfers": 1, "iterations": 1, "rounds": 1, "sketches": 0}
        for name, least in counts.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be {least} or more")


def search_run(
    job: Job,
    cluster: Cluster,
    drawn: Realization,
    *,
    seed: int,
    options: SearchOptions,
    progress: Progress | None = None,
    known: Iterable[Placement] = (),
) -> PlacementResult:
    """Return the best feasible placement found within a number of candidates.

    Beyond ETP: it begins with the best of several simple placements and of those that
    an estimate leads to, asks that estimate before it simulates, stays feasible,
    moves tasks, swaps them, moves and swaps workers together with their samplers and
    deals two machines out anew, looks at one of several placements that differ by
    interchangeable tasks only, and cools down, in several rounds. A space that is small
    enough is listed and simulated in the order of its lower bounds; the first bound
    that is no better than the best makespan ends the search with a proof.

    Parameters
    ----------
    drawn
        The run that placements are judged by, with reference times.
    progress
        Called with candidates so far, all of them, and the best makespan.
    known
        Placements to begin with, if one of them is the best of the simple ones.

    Raises
    ------
    InfeasiblePlacement
        No placement exists.
    ValueError
        The realization does not fit the job, or there is no such rate policy.
    """
    # Separate first: where a pool is unlimited, who shares it need not stand together.
    separate = Space(job, cluster, apart=True)
    run = _Run(separate, drawn, options, walk_generator(seed))
    run.begin(known)
    is_listed = run.exhaust()
    some_ends = run.best < np.inf
    if not run.optimal and not (is_listed and some_ends):
        # Too many to list, or none ends: where processes share slots, the walk is over
        # teams of them, since most moves of one alone leave a pool in debt.
        joint = Space(job, cluster)
        has_fewer_units = len(joint.units) < len(separate.units)
        order = list(range(len(joint.free)))
        if has_fewer_units and fill(joint, order) is not None:
            run = _Run(joint, drawn, options, walk_generator(seed))
            run.begin(known)
        run.anneal(progress)

    if progress is not None:
        progress(run.proposed, options.transfers, run.best)
    if run.best == np.inf:
        raise endless(cluster, options.policy)
    return run.result()


class _Run:
    """One search: the chain that it carries on, and what it has found."""

    def __init__(
        self,
        space: Space,
        drawn: Realization,
        options: SearchOptions,
        rng: np.random.Generator,
    ) -> None:
        self.space = space
        self.options = options
        self.rng = rng
        self.arrays = Candidates(space, drawn, options.policy, options.cost)
        self.symmetry = find_symmetry(space, drawn)
        self.history: list[tuple[int, float]] = []
        self.optimal = False
        self.teams = team_arrays(space)
        self.state = rng.integers(2**64, size=1, dtype=np.uint64)

    def begin(self, known: Iterable[Placement]) -> None:
        """Start from the best of simple, ``known`` and sketched placements."""
        transfers = self.options.transfers
        starts = self._simple_starts()
        for placement in known:
            machines = self.space.machines(placement)
            starts.append(machines)

        # Each is simulated in the end: a quarter of the candidates at most.
        count = min(self.options.sketches, transfers // 4)
        stated_starts = tuple(starts)
        for machines in islice(cycle(stated_starts), count):
            sketched = self.sketch(machines)
            starts.append(sketched)
        if len(starts) > transfers:
            # Of a small budget the most promising ones are simulated.
            starts.sort(key=self._estimate)
            del starts[transfers:]

        self._begin_chain(starts)
        self.start = self.best
        self._note_best()

    def _begin_chain(self, starts: Sequence[Ints]) -> None:
        """Begin the chain at the best of some placements, of equal ones the first."""
        estimates = [self._estimate(machines) for machines in starts]
        promising_first = np.argsort(estimates, kind="stable")
        costs = np.full(len(starts), np.inf)
        for place in promising_first.tolist():
            # A simulation may stop where it has passed the best, but not one that takes
            # as long: it may be the first.
            limit = costs.min() * (1.0 + _ROUNDING)
            costs[place] = units_cost(self.arrays, starts[place], limit)

        best = int(costs.argmin())
        memory = min(self.options.transfers, REMEMBERED)
        self.chain: Record = new_chain(starts[best], float(costs[best]), memory)
        self.chain.tally[lib.PROPOSED] = len(starts)
        self.chain.tally[lib.SIMULATED] = len(starts)

    def _note_best(self) -> None:
        self.history.append((self.proposed, self.best))

    def _simple_starts(self) -> list[Ints]:
        space = self.space
        starts = []
        for _ in range(IFS_STARTS):
            order = self.rng.permutation(len(space.free))
            machines = fill(space, order.tolist())
            if machines is None:
                raise infeasibility(space)
            starts.append(machines)

        dealt_out = deal_out(space)
        starts.append(dealt_out)
        try:
            placement = place_distdgl(space.job, space.cluster)
            last_start = space.machines(placement)
        except PlacementError:  # not a job of workers with samplers
            last_start = draw_machines(space, self.rng)
        starts.append(last_start)
        return starts

    def _estimate(self, machines: Ints) -> float:
        machine_of = self.space.expand(machines)
        return estimate(self.arrays, machine_of)

    @property
    def best(self) -> float:
        """Makespan of the best placement so far."""
        return float(self.chain.cost[1])

    @property
    def proposed(self) -> int:
        """Candidates so far."""
        return int(self.chain.tally[lib.PROPOSED])

    def exhaust(self) -> bool:
        """Simulate by ascending bound until no bound is better than the best.

        False where placements, up to symmetry, are too many to list.
        """
        if not self.options.exhaustive or not self.space.units:
            return False

        units = len(self.space.units)
        table = np.empty((LISTED, units), np.int16)
        bounds = np.empty(LISTED)
        count = lib.list_all(
            self.arrays.core,
            self.symmetry.core,
            LISTED,
            LISTING_STEPS,
            pointer(table),
            pointer(bounds),
        )
        is_complete = bool(count >= 0)
        bounds_found = bounds[: max(count, 0)]
        best_first = np.argsort(bounds_found, kind="stable")
        for place in best_first.tolist():
            bound = bounds[place]
            if bound >= self.best:  # nor is any behind it, by ascending bound, better
                self.optimal = True
                return True
            if self.proposed >= self.options.transfers:
                return True
            machines = table[place].astype(np.int64)
            self._try(machines)

        self.optimal = is_complete
        return is_complete

    def _try(self, machines: Ints) -> None:
        """Simulate one more placement, and keep it where it is the best so far."""
        chain = self.chain
        chain.tally[lib.PROPOSED] += 1
        chain.tally[lib.SIMULATED] += 1
        # A simulation may stop where it has passed the best.
        makespan = units_cost(self.arrays, machines, self.best)
        if makespan < self.best:
            chain.cost[1] = makespan
            chain.best_machines[:] = machines
            self._note_best()

    def anneal(self, progress: Progress | None) -> None:
        """Cool down once per round."""
        if not self.space.units:
            return
        budget = self.options.transfers - self.proposed
        most_rounds = max(budget // ROUND, 1)
        rounds = min(self.options.rounds, most_rounds)
        for number in range(rounds):
            budget = self.options.transfers - self.proposed
            rounds_left = rounds - number
            # Rounded down: what is left over goes to the rounds that follow.
            steps = max(budget, 0) // rounds_left
            if number % 2:
                self._begin_anew()

            parts = np.geomspace(HOT, COLD, max(steps, 1))
            temperatures = self.best * parts[:steps]
            first = self.proposed + 1
            best = self._cool_down(temperatures, progress)
            _, best_before = self.history[-1]
            increase = np.diff(best, prepend=best_before)
            improving_steps = np.flatnonzero(increase < 0)
            for step in improving_steps.tolist():
                self.history.append((first + step, float(best[step])))

    def _begin_anew(self) -> None:
        """Have the chain go on from a sketch; the best placement stays noted."""
        machines = draw_machines(self.space, self.rng)
        sketched = self.sketch(machines)
        self.chain.machines[:] = sketched
        self.chain.cost[0] = units_cost(self.arrays, sketched)

    def _cool_down(
        self,
        temperatures: Floats,
        progress: Progress | None,
    ) -> Floats:
        """Propose once at each temperature; return the best makespan after each."""
        best = np.empty_like(temperatures)
        for first in range(0, len(temperatures), STRIDE):
            stride = slice(first, first + STRIDE)
            temperatures_now = temperatures[stride]
            best_now = best[stride]
            lib.anneal(
                self.arrays.core,
                self.symmetry.core,
                self.teams.core,
                pointer(self.state),
                self.chain.core,
                pointer(temperatures_now),
                len(temperatures_now),
                pointer(best_now),
            )
            self.arrays.job.check()
            if progress is not None:
                progress(self.proposed, self.options.transfers, self.best)
        return best

    def sketch(self, machines: Ints) -> Ints:
        """Return the result of annealing a placement under `estimate` alone."""
        best = machines.copy()
        temperatures = np.geomspace(*SKETCH)
        if self.space.units:
            lib.sketch(
                self.arrays.core,
                self.symmetry.core,
                self.teams.core,
                pointer(self.state),
                pointer(temperatures),
                len(temperatures),
                pointer(best),
            )
        return best

    def result(self) -> PlacementResult:
        """Return the result of the search."""
        tally = self.chain.tally
        return PlacementResult(
            placement=self.space.placement(self.chain.best_machines),
            policy="best",
            makespan=self.best,
            start_makespan=self.start,
            candidates=self.proposed,
            budget=self.options.transfers,
            accepted=int(tally[lib.ACCEPTED]),
            evaluations=int(tally[lib.SIMULATED]),
            iterations=self.options.iterations,
            history=tuple(self.history),
            optimal=self.optimal,
        )
