"""Machines of a row of a table of systems: those that are given, or the fastest.

Seeds per iteration are the same on any number of machines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import TypeAlias

from emu.errors import DataError, EmulatorError, PlacementError, ScenarioError
from emu.experiment.least_time import is_slower, least_seconds
from emu.experiment.machine_memory import check_memory
from emu.experiment.systems import (
    as_variant,
    common_job,
    read_job,
    source_of,
    translation_of,
    variant_named,
)
from emu.prediction.placement.machine_sets import machine_sets
from emu.problem.fields.suggestion import nearest
from emu.scenario import Scenario, build_job, load, load_unbuilt, prepare
from emu.scenario.document import collect_seldom
from emu.scenario.experiment import WORTHWHILE, Experiment
from emu.scenario.virtual_training import seeds_seen
from emu.systems.job_section import JobSection
from emu.systems.replica_section import ReplicaSection
from emu.systems.training_section import TrainingSection
from emu.systems.whole_graph_section import WholeGraphSection

#: Names of machines.
Machines: TypeAlias = tuple[str, ...]

#: Sets of machines that are tried of a system with a worker per machine; of one that
#: is placed by a search on each.
_MOST_SETS = 16
_FEW_SETS = 6
_ROUNDING = 1e-9  # relative, of limits


@dataclass(frozen=True)
class Trial:
    """A row on one set of machines."""

    machines: Machines
    seconds: float = inf
    """Seconds per seed that is trained on: those of a step are rounded to whole ones
    per worker, so that steps differ."""
    refused: EmulatorError | None = None
    ready: Experiment | None = None
    """The experiment; None where it is refused, or is not kept."""


class Contest:
    """Times of trials so far, by place in the order of `Row.choose`, not in time."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}

    def note(self, place: int, trial: Trial) -> None:
        """Note the trial at a place; of one that is out of the contest, infinity."""
        self._seconds[place] = trial.seconds

    def limit(self, place: int) -> float:
        """Return seconds per seed with which the trial at a place cannot be chosen.

        Whether it is left out then changes no choice: an earlier one is as fast, so
        that it would not follow that one; or a later one would follow it, as well as
        any that it follows itself, and all between the two.
        """
        earlier = [self._seconds[known] for known in self._seconds if known < place]
        limit = min(earlier, default=inf)
        fastest_between = inf
        following = place + 1
        while following in self._seconds:
            seconds = self._seconds[following]
            # It follows all between, too, so that none of them tells the choices apart.
            if seconds < fastest_between * (1 - WORTHWHILE):
                # A little more, so that it is surely worth the change.
                worth_less = seconds / (1 - WORTHWHILE) * (1 + _ROUNDING)
                limit = min(limit, worth_less)
            fastest_between = min(fastest_between, seconds)
            following += 1
        return limit


#: Scenarios on some of their machines that are kept: rows come one after the other on
#: equal machines, and one of 64 takes up to 0.7 MB.
_KEPT_PARTS = 8


class Sources:
    """Scenarios that rows of a table have in common, each loaded once."""

    def __init__(self) -> None:
        self._equals: dict[str, Scenario] = {}
        # By the identity of the source, which is kept: another could have it later.
        self._parts: dict[tuple[int, Machines], tuple[Scenario, Scenario]] = {}

    def first_equal(self, source: Scenario) -> Scenario:
        """Return the first source that states the same; most rows have the same one."""
        content = json.dumps(source.to_json(), sort_keys=True)
        return self._equals.setdefault(content, source)

    def on_machines(self, source: Scenario, machines: Machines) -> Scenario:
        """Return a `first_equal` on some of its machines, as far as it lets them be."""
        key = (id(source), machines)
        kept = self._parts.get(key)
        if kept is None:
            kept = source, _fewer(source, machines)
            self._parts[key] = kept
            while len(self._parts) > _KEPT_PARTS:
                oldest = next(iter(self._parts))
                self._parts.pop(oldest, None)
        _, part = kept
        return part


@dataclass(frozen=True)
class Row:
    """A row of a table of systems, of one scenario."""

    scenario: Scenario
    name: str
    settings: Mapping[str, object]
    per_machine: bool
    """True where every mini-batch system has a worker on each machine."""
    sources: Sources = field(default_factory=Sources, compare=False, repr=False)
    """Scenarios that all rows of a table have in common."""

    @cached_property
    def plain(self) -> Scenario:
        """The row with its machines open; raises as `as_variant`.

        Also ScenarioError where one machine alone would own stores that stand apart.
        """
        plain = as_variant(self.scenario, self.name, self.settings)
        if not variant_named(self.name).alone:
            return plain
        if getattr(plain.job, "has_stores_apart", False):
            problem = (
                "one machine would own all of the graph: "
                f"systems: {{{self.name}: {{stores: auto}}}} lets it"
            )
            raise ScenarioError(problem, key="job.stores")
        if getattr(plain.job, "stores", None) is None:
            return plain

        # On one machine nobody else can own the graph.
        return load(plain, {"job.stores": None})

    @cached_property
    def source(self) -> Scenario:
        """The file with those settings that it knows itself."""
        source = source_of(self.scenario, self.name, self.settings)
        return self.sources.first_equal(source)

    def machine_sets(self) -> list[Machines]:
        """Return the sets of machines to try; none where they are no choice.

        They are none where the file states them, or times of a fixed number of parts;
        nor of dgtp on workers as stated: `emu.scenario.prepare` chooses then. Raises
        ScenarioError, DataError as `as_variant`.
        """
        plain = self.plain
        is_alone = variant_named(self.name).alone
        spreads = self._spreads(plain.job)
        if not is_alone:
            is_free = getattr(self.source.job, "machines", None) is None
            is_searched = plain.placed_by == "best" or spreads
            if not (is_free and is_searched):
                return []
        if not (spreads or _has_part_per_machine(plain.job)):
            return []

        if isinstance(plain.job, WholeGraphSection):
            names = plain.job.ranks(plain.stated_cluster.names)
        else:
            names = _list_roomy(self.source)
        if is_alone:
            return [(name,) for name in names]
        cluster = plain.cluster.build().only(names)
        most = _FEW_SETS if spreads else _MOST_SETS
        return machine_sets(build_job(plain), cluster, most)

    @collect_seldom()
    def try_on(self, machines: Sequence[str], limit: float = inf) -> Trial:
        """Return how fast it is on some machines, without deaths.

        ``limit``: seconds per seed with which it cannot be chosen (`Contest`): it is
        simulated no further, and whether its memory suffices is not asked.
        """
        names = tuple(machines)
        try:
            if limit < inf and self._is_beyond(names, limit):
                return Trial(names)
            scenario = self.on(names)
            ready = prepare(scenario)
            seeds = seeds_seen(ready.problem.job) or 1
            schedule = ready.simulate_within(limit * seeds * (1 + _ROUNDING))
            if schedule is None:
                return Trial(names)
            seconds_per_seed = schedule.makespan / seeds
            if seconds_per_seed >= limit:
                return Trial(names)
            check_memory(ready, schedule)
        except (ScenarioError, PlacementError, DataError) as error:
            # P3's columns do not fit, say, or an imported cut has more parts.
            return Trial(names, refused=error)

        return Trial(names, seconds_per_seed, ready=ready)

    def _is_beyond(self, machines: Machines, limit: float) -> bool:
        """Return True where it surely takes longer on some machines than a limit.

        Most do, and are known to before all their mini-batches are drawn: by the one
        with the slowest NIC, for which no job is built, or by the times of all tasks.
        """
        unbuilt = self.on(machines, built=False)
        is_beyond = is_slower(unbuilt, limit)
        if is_beyond is None:
            scenario = self.on(machines)
            is_beyond = least_seconds(scenario) > limit * (1 + _ROUNDING)
        return is_beyond

    def try_all(self) -> Machines | None:
        """Return the machines that it chooses; None where they are no choice."""
        contest = Contest()
        trials = []
        for place, names in enumerate(self.machine_sets()):
            trial = self.try_on(names, contest.limit(place))
            contest.note(place, trial)
            trials.append(trial)
        return self.choose(trials)

    def choose(self, trials: Sequence[Trial]) -> Machines | None:
        """Return the machines of the fastest trial; None where there is none.

        A later one has to be worthwhile. Raises the error of the last where no machine
        can be alone.
        """
        best = Trial(())
        for trial in trials:
            worthwhile = best.seconds * (1 - WORTHWHILE)
            if trial.seconds < worthwhile:
                best = trial

        if best.machines:
            return best.machines
        # A row with all machines open may fit where no set
        # did; one machine has no such choice.
        refusals = [trial.refused for trial in trials if trial.refused]
        if refusals and variant_named(self.name).alone:
            raise refusals[-1]
        return None

    def on(self, machines: Sequence[str] | None, *, built: bool = True) -> Scenario:
        """Return the scenario of the row on some machines; None: as the file has it.

        ``built``: False leaves out errors that only the built job shows.

        Raises ScenarioError, DataError as `as_variant`; also where machines cannot take
        part, or there are no such ones.
        """
        plain = self.plain
        if machines is None:
            return plain
        self._check(machines)
        job = plain.job
        has_parts = self._spreads(job) or _has_part_per_machine(job)
        if not has_parts:
            return plain if self._has_stores else _fewer(plain, machines)

        # A file of that system says itself what its machines do.
        is_same_system = self.source.job.system == job.system
        if isinstance(job, WholeGraphSection) and is_same_system:
            return load(plain, {"job.machines": [*machines]})
        return self._translate_again(machines, built=built)

    def _translate_again(self, machines: Sequence[str], *, built: bool) -> Scenario:
        """Return the row with what its translation says of these machines."""
        job = self.plain.job
        source = self.source
        is_whole = isinstance(job, WholeGraphSection)
        spreads = self._spreads(job)
        roomy = machines if is_whole else _list_roomy(source)
        if self._has_stores:  # others take part, too, and own the graph
            roomy_machines = [name for name in machines if name in roomy]
            machines = roomy_machines or machines
        without = [name for name in machines if name not in roomy]
        if without:
            names = ", ".join(without)
            problem = f"{names} has no room for a worker with its samplers"
            raise ScenarioError(problem, key="job.machines")

        # As many stores as machines, each of which takes what the file states of one.
        if not self._has_stores:
            source = self.sources.on_machines(source, tuple(machines))
        target = translation_of(job.system)
        all_machines = common_job(source, target)
        common = replace(all_machines, machines=tuple(machines))
        if is_whole or spreads:
            common = replace(common, stated=tuple(machines))
        if spreads:
            stores = common.stores_on(machines)
            common = common.spread(len(machines), stores)

        keys = ["machines", "batch_size", "times"]
        if is_whole:
            keys = ["machines", "parameter_servers"]
        if spreads:
            keys.append("workers")
        section = target.write(common)
        fields = type(job).model_fields
        edit = {f"job.{key}": section.get(key) for key in keys if key in fields}
        if not built:
            return load_unbuilt(self.plain, edit)
        return load(self.plain, edit)

    @property
    def _has_stores(self) -> bool:
        """True where the file says which machines own the graph."""
        return getattr(self.source.job, "stores", None) is not None

    def _spreads(self, job: JobSection) -> bool:
        mini_batches = isinstance(job, TrainingSection)
        return self.per_machine and mini_batches and not _has_part_per_machine(job)

    def _check(self, machines: Sequence[str]) -> None:
        names = self.scenario.stated_cluster.names
        if not machines:
            raise ScenarioError("found none, write one at least", key="job.machines")
        for name in machines:
            if name not in names:
                hint = nearest(name, names)
                problem = f"no machine {name!r}, {hint}"
                raise ScenarioError(problem, key="job.machines")


class RecentRows:
    """Rows that were asked for lately, each of which is translated once.

    An advice asks for a row again on every set of machines, and for further steps.

    Parameters
    ----------
    most
        Number of rows that are kept: those that were asked for first go first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # By the identity of the scenario, which its row keeps.
        self._rows: dict[tuple[int, str, str, bool], Row] = {}

    def first_like(self, row: Row) -> Row:
        """Return the first row of the very scenario that asks for the same."""
        # As written: true is no 1, and 1.0 none either.
        settings = repr(row.settings)
        key = (id(row.scenario), row.name, settings, row.per_machine)
        first = self._rows.setdefault(key, row)
        while len(self._rows) > self._most:
            oldest = next(iter(self._rows))
            self._rows.pop(oldest, None)
        return first


#: Those of a table of all systems, and some more.
RECENT_ROWS = RecentRows(most=40)


def _has_part_per_machine(job: JobSection) -> bool:
    """Return True where each machine that takes part has a worker, or a part.

    Stated times of parts of the whole graph are of as many parts as the file has.
    """
    if isinstance(job, WholeGraphSection):
        return job.rates is not None
    return isinstance(job, ReplicaSection)


def _list_roomy(scenario: Scenario) -> Machines:
    """Return the machines with room for a worker that samples as well."""
    job = scenario.job
    if "workers" in type(job).model_fields:  # as many as there are machines
        workers = len(scenario.cluster.names_and_positions())
        job = job.model_copy(update={"workers": workers})
    names: Machines = read_job(job, scenario.cluster)["machines"]
    return names


def _fewer(scenario: Scenario, machines: Sequence[str]) -> Scenario:
    """Return a scenario on some of its machines, where its system lets them be."""
    count = len(scenario.cluster.names_and_positions())
    fewer = scenario.job.on_machines(machines, count)
    if fewer is None or len(machines) == count:
        return scenario
    return load(scenario, fewer.machine_keys())
