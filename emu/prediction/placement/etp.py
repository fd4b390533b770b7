"""ETP, the paper's search for a better placement (Algorithm 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from emu.array_types import Floats, Ints
from emu.errors import InfeasiblePlacement
from emu.prediction.core import Record, lib, pointer, structure
from emu.prediction.placement.baselines import fill
from emu.prediction.placement.candidates import (
    Candidates,
    JobsCost,
    common_draws,
    units_cost,
    walk_generator,
)
from emu.prediction.placement.packing import infeasibility
from emu.prediction.placement.space import PlacementResult, Progress, Space
from emu.problem import Cluster, Job, Profile

# The Markov chain of ETP (Algorithm 3), walked in C: one call takes many proposals. The
# random numbers come in, so that the same chain can be walked with and without the
# tricks, in pieces, and on any number of cores.


def new_memory(entries: int, units: int) -> Record:
    """Return an empty `Memory` of core.h for about ``entries`` placements, no more."""
    # A power of two, at most half full: a place is a mask away, and probing is short.
    places = 1 << (2 * entries - 1).bit_length() if entries else 0
    return Record(
        "Memory",
        places=places,
        machines=np.zeros((places, units), dtype=np.int16),
        low=np.full(places, np.nan),
        high=np.full(places, np.nan),
        held=np.zeros(1, dtype=np.int64),
    )


def new_chain(machines: Ints, cost: float, remembered: int) -> Record:
    """Return a `Chain` of core.h that starts at a feasible placement of this cost."""
    return Record(
        "Chain",
        machines=machines.copy(),
        best_machines=machines.copy(),
        cost=np.array([cost, cost]),
        tally=np.zeros(lib.TALLY, dtype=np.int64),
        memory=new_memory(remembered, machines.size),
    )


#: One unit of cost, as part of the makespan of the first placement (IFS places workload
#: A at 4.2 s, so this is 10 ms). Of 8 seeds on workload A, 8 ended within about 1 % of
#: the best known with 0.3 %, none with 1 %, 6 with 0.2 %, 3 with 0.1 %; with the 0.25 %
#: chosen here four seeds ended at 2.549 to 2.571 s.
UNIT = 0.0025
REMEMBERED = 50_000  # placements: 5 MB for 20 tasks
STRIDE = 500  # proposals between two calls of ``progress``: 10 to 60 ms
#: Called with the machine of every unit, -1 of those that proposals to come may move,
#: and with the best placement so far. True ends the walk.
Hopeless: TypeAlias = Callable[[Ints, Ints], bool]
LOOKS = 20  # calls of it in a walk, about


@dataclass(frozen=True, kw_only=True)
class EtpOptions:
    """The settings of ETP; the defaults are the paper's, except for beta's unit.

    Raises ValueError when a number is out of range.
    """

    transfers: int = 10_000
    """I, the number of proposals."""
    iterations: int = 20
    """Training iterations that are simulated for T'."""
    mu: float = 1.0
    """Part by which a placement on the way may exceed a capacity, (22)."""
    beta: float = 0.1
    """Inverse temperature, (23), per unit of cost."""
    beta_unit: float | None = None
    """Seconds of one unit of cost; None is a quarter of a percent of the makespan of
    the first placement. The paper gives beta 0.1 and no unit. In seconds (1.0) it
    accepts some 95 % of all moves of a job that takes a few seconds, and the search is
    a random walk; a unit that scales with the job behaves alike for all (A19)."""
    simulate_all: bool = False
    """True to simulate also what a lower bound rejects already or what is remembered,
    and to go on where a simulation must be rejected. The accepted moves and the result
    are the same."""
    policy: str = "oes"
    """Rate policy of the simulation."""
    cost: JobsCost | None = None
    """Cost of several jobs to minimise, in place of the makespan."""

    def __post_init__(self) -> None:
        if self.transfers < 0:
            raise ValueError("transfers must be 0 or more")
        if self.iterations < 1:
            raise ValueError("iterations must be 1 or more")
        if not self.mu >= 0:
            raise ValueError(f"mu is {self.mu}, it must not be negative")
        has_valid_unit = self.beta_unit is None or self.beta_unit > 0
        if not self.beta > 0 or not has_valid_unit:
            raise ValueError("beta and beta_unit must be positive")


def search_etp(
    job: Job,
    cluster: Cluster,
    profile: Profile,
    *,
    seed: int = 0,
    options: EtpOptions | None = None,
    progress: Progress | None = None,
    hopeless: Hopeless | None = None,
) -> PlacementResult:
    """Return the best feasible placement that the paper's random walk meets.

    Every placement is simulated with the same draws from the profile, so that two
    placements differ by where tasks stand and not by luck (A20). A task without any
    machine to move to counts as a step (A21); a placement that exceeds a capacity may
    be walked through but is never the result (A22).

    Parameters
    ----------
    profile
        Times and volumes to draw the simulated iterations from.
    progress
        Called with proposals so far, proposals in all, and the best makespan.
    hopeless
        Ends the walk where it returns True; without a simulation before the first
        proposal.

    Raises
    ------
    InfeasiblePlacement
        No placement exists.
    ValueError
        The profile does not fit the job, or there is no such rate policy.

    References
    ----------
    .. [1] Luo, Bao, Wu, INFOCOM 2022, Alg. 3 and equations (21)-(23).
    """
    options = options or EtpOptions()
    rng = walk_generator(seed)
    run = common_draws(profile, seed, options.iterations)
    short = replace(job, iterations=options.iterations)
    space = Space(short, cluster)
    arrays = Candidates(space, run, options.policy, options.cost)
    order = rng.permutation(len(space.free))
    machines = fill(space, order.tolist())
    if machines is None:
        raise infeasibility(space)
    # Which task, which machine, acceptance of every proposal.
    draws = rng.random((options.transfers, 3))
    if hopeless is not None and len(machines):  # else nothing moves
        settled = _find_settled(machines, draws)
        if hopeless(settled, machines):
            return PlacementResult(space.placement(machines), "etp")

    chain = _begin(arrays, machines, options)
    first_cost = float(chain.cost[0])

    # Nothing is better than 0 s, of which no unit of cost is a part.
    if first_cost <= 0:
        draws = draws[:0]
    unit = options.beta_unit or first_cost * UNIT or 1.0
    rules = structure(
        "Rules",
        beta=options.beta / unit,
        mu=options.mu,
        simulate_all=options.simulate_all,
    )
    best = _walk_in_strides(arrays, rules, chain, draws, progress, hopeless)

    return PlacementResult(
        placement=space.placement(chain.best_machines),
        policy="etp",
        makespan=float(chain.cost[1]),
        start_makespan=first_cost,
        candidates=int(chain.tally[lib.PROPOSED]),
        budget=options.transfers,
        accepted=int(chain.tally[lib.ACCEPTED]),
        evaluations=int(chain.tally[lib.SIMULATED]),
        iterations=options.iterations,
        history=((0, first_cost), *_improvements(best, first_cost)),
    )


def _begin(arrays: Candidates, machines: Ints, options: EtpOptions) -> Record:
    """Return a chain at the first placement; raise InfeasiblePlacement if it hangs."""
    memory = 0
    # What is remembered is not simulated again, which `simulate_all` asks for.
    if not options.simulate_all:
        memory = min(options.transfers, REMEMBERED)
    first_cost = units_cost(arrays, machines)
    if first_cost == np.inf:
        raise InfeasiblePlacement("tasks of the first placement wait for slots forever")
    return new_chain(machines, first_cost, memory)


def _improvements(best: Floats, first_cost: float) -> Iterator[tuple[int, float]]:
    """Yield the proposals that were better than all before, and their makespans.

    Of some ten thousand proposals the history has these alone.
    """
    increase = np.diff(best, prepend=first_cost)
    improving_steps = np.flatnonzero(increase < 0)
    for step in improving_steps.tolist():
        yield step + 1, float(best[step])


def _find_settled(machines: Ints, draws: Floats) -> Ints:
    """Return the machines of units, -1 of those that some proposals may move."""
    moved_units = draws[:, 0] * machines.size
    settled = machines.copy()
    settled[moved_units.astype(np.int64)] = -1
    return settled


def _walk_in_strides(
    arrays: Candidates,
    rules: Any,
    chain: Record,
    draws: Floats,
    progress: Progress | None,
    hopeless: Hopeless | None,
) -> Floats:
    """Return the best makespan after every proposal that was made."""
    transfers = len(draws)
    best = np.full(transfers, chain.cost[0])
    if not len(arrays.space.units):  # nothing can move
        return best

    stride = STRIDE
    if hopeless is not None:
        stride = min(max(transfers // LOOKS, 1), STRIDE)
    for first in range(0, transfers, stride):
        end = min(first + stride, transfers)
        draws_now = draws[first:end]
        best_now = best[first:end]
        lib.walk(
            arrays.core,
            rules,
            chain.core,
            pointer(draws_now),
            len(draws_now),
            pointer(best_now),
        )
        arrays.job.check()
        if hopeless is not None:
            settled = _find_settled(chain.machines, draws[end:])
            if hopeless(settled, chain.best_machines):
                return best[:end]
        if progress is not None:
            best_so_far = float(chain.cost[1])
            progress(end, transfers, best_so_far)
    return best
