"""Write what-ifs of `what_if` as keys and values of their scenario.

A simulation of the file with these keys and values gives the makespan reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from emu.errors import PlacementError, ScenarioError
from emu.prediction.placement import best_placement
from emu.prediction.placement.place import SEARCHES
from emu.problem import Job, Placement, Problem, Realization
from emu.scenario.document import step_text
from emu.scenario.experiment import prepare
from emu.scenario.machine_choice import machines_words, on_machines
from emu.scenario.placements import following_placement, place, premise_of_moves
from emu.scenario.realize import build_job
from emu.scenario.scaled_values import (
    scale_events,
    scale_latency,
    scale_nic,
    scale_value,
    write_nic,
)
from emu.scenario.scenario_file import load
from emu.systems import Edit
from emu.systems.system import content_of
from emu.units import DURATION, RATE, SIZE

if TYPE_CHECKING:
    from emu.prediction.analysis.what_if import Change
    from emu.scenario.scenario import Scenario

#: Tasks above which one more machine is not tried: 117 take 14 s of CPU per kind.
MOST_TASKS = 100
#: Vertices above which no graph is partitioned again: 122,000 take 12 s with what the
#: samplers then sample.
MOST_PARTED = 250_000
#: Vertices above which no way along other links is planned: 245,000 take 0.5 s for
#: each of some 30 changes.
MOST_PLANNED = 100_000


def placement_edit(scenario: Scenario, policy: str) -> Edit:
    """Return the edit that has all tasks of all jobs placed by another policy.

    What an explicit placement spells out pins nothing elsewhere.
    """
    sections = {"": scenario.placement}
    if scenario.placed_by == "sequential":
        sections = {}
        for position, item in enumerate(scenario.jobs):
            sections[f"jobs[{position}]."] = item.placement
    edit: Edit = {}
    for key, section in sections.items():
        edit[f"{key}placement.policy"] = policy
        if section.is_explicit and policy != section.policy:
            edit[f"{key}placement.tasks"] = None
    return edit


class ScenarioEdits:
    """Writes changes of a scenario's run as edits of the scenario.

    ``measured``: whether times and volumes are those of a run, not those of the
    scenario. ``chosen``: whether its machines are those that ``best`` has chosen.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        measured: bool = False,
        chosen: bool = False,
    ) -> None:
        self._scenario = scenario
        self._cluster = scenario.stated_cluster
        self._measured = measured
        self._chosen = chosen
        #: What was not tried, and why.
        self.notes: list[str] = []

    premise_of_moves = staticmethod(premise_of_moves)

    def reorder_rings(self, problem: Problem) -> Problem:
        """Return the problem with rings in the order that its placement asks for."""
        return following_placement(self._scenario, problem)

    def best(self, problem: Problem, reference: Realization) -> Placement:
        """Return the placement that ``placement.policy: best`` finds.

        Raises PlacementError when there is no placement.
        """
        scenario = self._scenario
        if scenario.jobs:
            outcome = best_placement(
                problem.job,
                problem.cluster,
                reference,
                scenario.schedule.rule,
                seed=scenario.seed,
            )
            return outcome.placement

        if scenario.placed_by == "best" and not self._measured:
            return problem.placement  # it is that already
        edit = placement_edit(scenario, "best")
        outcome = place(
            scenario=self._load(edit),
            job=problem.job,
            cluster=problem.cluster,
            realization=reference,
        )
        return outcome.placement

    def _load(self, edit: Edit) -> Scenario:
        """Return the scenario with an edit, of which nothing is expected."""
        return load(self._scenario, edit | {"expect": None})

    def content_of(self, kinds: tuple[str, str]) -> str:
        """Return the content of flows between two kinds of task, a plural."""
        system = self._scenario.job.system
        return content_of(system, kinds)

    def add_edit(self, change: Change) -> Change:
        """Return a change with its keys and values, and where its tasks stand.

        Without where the scenario has no such keys: single tasks and bytes of training,
        times and bytes from a profile. Tasks that follow from links, as those of a plan
        do, are built anew; those of a run were not measured, and have no keys then.
        """
        edit = self._write(change)
        if edit is None:
            return change
        edit |= self.standing(change.problem)
        if change.kind != "network" or not self._planned:
            return replace(change, edit=edit)
        if self._measured or self._vertices > MOST_PLANNED:
            note = "other links were not tried: rows would take another plan's way"
            if note not in self.notes:
                self.notes.append(note)
            return change
        return self._prepare(change, edit)

    def _prepare(self, change: Change, edit: Edit) -> Change:
        """Return a change with an edit and what preparing that makes of it."""
        scenario = self._load(edit)
        experiment = prepare(scenario)
        return replace(
            change,
            edit=edit,
            problem=experiment.problem,
            realization=experiment.realization,
        )

    @cached_property
    def _planned(self) -> list[Scenario]:
        """Return the jobs that follow from the links, as scenarios of their own."""
        return [part for part in self._parts if part.job.shaped_by_data]

    @cached_property
    def _parts(self) -> list[Scenario]:
        """Return every job as a scenario of its own."""
        parts = [part for _, part in self._scenario.parts()]
        return parts or [self._scenario]

    @cached_property
    def _vertices(self) -> int:
        """Vertices of all graphs that tasks follow from."""
        from emu.graph_data import open_for  # noqa: PLC0415 - 0.1 s

        count = 0
        for job in map(build_job, self._planned):
            dataset = open_for(job.settings)
            count += len(dataset.owner)
        return count

    def standing(self, problem: Problem) -> Edit:
        """Return where the tasks of ``problem`` stand as an edit."""
        edit = dict(self._scenario.job.machine_keys())
        jobs = self._scenario.jobs
        if jobs:
            # Each job states where its tasks stand: nothing is left to place jointly.
            edit["place_jobs"] = "sequential"
            edit["joint_cost"] = None
            edit["placement"] = None
        for position, item in enumerate(jobs):
            # A weight is refused without the ``joint_cost`` that it is for.
            if item.weight:
                edit[f"jobs[{position}].weight"] = None

        machines: dict[str, str] = {}
        for process, members in problem.job.units.items():
            first = members[0]
            home = problem.placement.machine_of[first]
            machine = problem.cluster.machines[home]
            machines[process] = machine.name
        for key, prefix, _ in self._scenario.each_job():
            tasks = {}
            for process, machine_name in machines.items():
                if process.startswith(prefix):
                    name = process.removeprefix(prefix)
                    tasks[name] = machine_name
            edit[f"{key}placement"] = {"policy": "explicit", "tasks": tasks}
        return edit

    def fewer_machines(self, base: Change) -> Iterator[Change]:
        """Yield ``base`` on the machines that ``best`` chooses, placed anew.

        Nothing where it is on those already, or they are no choice.
        """
        job = self._scenario.job
        states_machines = job.movable_on is not None
        is_chosen = self._scenario.placed_by == "best" and not states_machines
        if is_chosen or self._chosen or self._measured:
            return

        edit = placement_edit(self._scenario, "best")
        if states_machines:
            edit["job.machines"] = None
        scenario = self._load(edit)
        names = self._cluster.names
        if on_machines(scenario, names) is None:
            return

        experiment = prepare(scenario)
        present = set(base.problem.machine_of_task.values())
        machines = set(experiment.placing["machines"])
        if machines == present:
            return
        words = machines_words(experiment.placing)
        if machines < present:
            absent = present - machines
            absent_names = [name for name in names if name in absent]
            words = f"without {', '.join(absent_names)}"
        edit |= experiment.scenario.job.machine_keys()
        # With the deaths of ``base``, which come to other tasks there.
        yield replace(
            base,
            kind="machine",
            what=f"{words}, placed by best",
            problem=experiment.problem,
            realization=experiment.realization,
            edit=edit,
        )

    def faster_rates(self, base: Change) -> Iterator[Change]:
        """Yield ``base`` with each rate of operations halved, where rates are stated.

        The one that brings most decides how systems compare on these devices.
        """
        rates = self._scenario.job.operation_rates
        if rates is None or self._measured:
            return
        for name, rate in rates.stated.items():
            halved = scale_value(DURATION, rate, 0.5)
            edit = {f"job.rates.{name}": halved}
            change = replace(base, kind="compute", what=f"rate {name} twice as fast")
            # Placed anew beside a cache, a rate twice as fast came out slower.
            edit |= self.standing(base.problem)
            yield self._prepare(change, edit)

    def placed_anew(self, changes: Iterable[Change]) -> Iterator[Change]:
        """Yield changes of the rule for rates, each with the placement found under it.

        As they are where a placement does not depend on the rule, is that of a run, or
        takes long to find.
        """
        searches = any(part.placement.policy in SEARCHES for part in self._parts)
        for change in changes:
            job = change.problem.job
            is_small = len(job.tasks) <= MOST_TASKS
            is_quick = is_small and not job.fixed
            if self._measured or not searches or not is_quick:
                yield self.add_edit(change)
                continue

            edit = dict(self._scenario.job.machine_keys())
            edit |= self._policy(change)
            candidate = self._prepare(change, edit)
            yield replace(candidate, what=f"{change.what}, placed anew")

    def more_machines(self, base: Change) -> Iterator[Change]:
        """Yield ``base`` with one more machine of every kind, and all placed anew.

        It is a copy in everything but its name: section, rack, routes. Nothing is
        yielded where no task may move and none is added, nor where the scenario would
        have to state more: the way between two machines without NICs.
        """
        job = base.problem.job
        is_large = len(job.tasks) > MOST_TASKS
        if is_large and not job.fixed:
            self._note_untried(f"to place {len(job.tasks)} tasks again takes too long")
            return

        kinds: list[object] = []
        for name, position in self._cluster.names_and_positions():
            edit, kind = self._one_more(name, position)
            # Of equal machines one is tried.
            if kind in kinds:
                continue
            kinds.append(kind)
            edit |= placement_edit(self._scenario, "best")
            try:
                scenario = self._load(edit)
                # What rules out one kind of machine rules out all.
                if not self._can_be_tried(scenario, job):
                    return
                experiment = prepare(scenario)
            # A copy of this kind needs more keys, such as routes; others may not.
            except (ScenarioError, PlacementError):
                continue

            # What a run took is known for the new placement, too, where tasks are the
            # same.
            realization = experiment.realization
            if self._measured:
                reference = base.problem.reference(base.realization)
                realization = experiment.problem.stretch(reference)
            yield replace(
                base,
                kind="machine",
                what=f"one more machine like {name}, placed by best",
                problem=experiment.problem,
                realization=realization,
                edit=edit,
            )

    def _note_untried(self, problem: str) -> None:
        self.notes.append(f"one more machine was not tried: {problem}")

    def _can_be_tried(self, edited: Scenario, job: Job) -> bool:
        """Return True where times and volumes of ``edited`` are known or soon found."""
        if self._vertices > MOST_PLANNED:
            vertices = f"{self._vertices:,} vertices"
            self._note_untried(f"to plan for {vertices} again takes too long")
            return False

        variant = build_job(edited)
        names = [task.name for task in job.tasks]
        names_of_variant = [task.name for task in variant.tasks]
        has_same_tasks = names == names_of_variant
        if has_same_tasks and variant.edge_names == job.edge_names:
            # As many tasks, all of them pinned: the machine would stay empty.
            if job.fixed:
                return False
        elif self._measured or self._scenario.profile is not None:
            self._note_untried("it would have tasks without measured times")
            return False
        return self._can_be_parted(variant, job)

    def _can_be_parted(self, variant: Job, job: Job) -> bool:
        """Return True where no large graph has to be partitioned for a variant."""
        from emu.graph_data import open_for  # noqa: PLC0415 - 0.1 s

        for name in job.job_names:
            settings = job.settings_of(name)
            # As many parts are prepared already.
            settings_of_variant = variant.settings_of(name)
            if settings.get("parts") == settings_of_variant.get("parts"):
                continue
            dataset = open_for(settings)
            count = len(dataset.owner)
            if count > MOST_PARTED:
                self._note_untried(
                    "it would have a graph store, and to partition "
                    f"{count:,} vertices again takes too long"
                )
                return False
        return True

    def _one_more(self, name: str, position: int) -> tuple[Edit, object]:
        """Return the edit, and what tells the machine from those of another kind."""
        cluster = self._cluster
        # A name that the cluster has not.
        number = 1
        while f"{name}+{number}" in cluster.names:
            number += 1
        another = f"{name}+{number}"
        machine = cluster.machines[position]
        section = machine.model_dump(mode="json", exclude_unset=True)
        section |= {"name": another, "count": 1}
        last = len(cluster.machines)
        edit: Edit = {f"cluster.machines[{last}]": section}
        job_machines = self._scenario.job.movable_on
        if job_machines:
            edit["job.machines"] = [*job_machines, another]

        lists: dict[str, Sequence[str]] = {}
        for i, rack in enumerate(cluster.racks):
            lists[f"racks[{i}].machines"] = rack.machines
        for i, route in enumerate(cluster.routes):
            lists[f"routes[{i}].from"] = route.sources
            lists[f"routes[{i}].to"] = route.destinations
        # Equal sections are two kinds where racks or routes differ.
        keys = [key for key, machines in lists.items() if name in machines]
        for key in keys:
            machines = lists[key]
            edit[f"cluster.{key}"] = [*machines, another]
        unnamed = section | {"name": ""}
        return edit, (unnamed, keys)

    def _network(self, change: Change) -> Edit | None:
        cluster = self._cluster
        links = change.problem.links
        factor = change.factor
        names = {links[port].name for port in change.rows}
        edit = self._links_of_jobs(names, factor)
        if edit is None:
            return None

        scaled = partial(scale_nic, names=names, factor=factor)
        nics = {}
        for name, machine in cluster.by_name.items():
            nic = scaled(machine.nic, f"{name} out", f"{name} in")
            if nic:
                nics[name] = nic
        edit |= self._nics(nics)
        for i, link in enumerate(cluster.links):
            if link.name in names:
                rate = link.bandwidth * factor
                edit[f"cluster.links[{i}].bandwidth"] = RATE.exact(rate)
        for i, rack in enumerate(cluster.racks):
            outward = f"{rack.name} up"
            inward = f"{rack.name} down"
            uplink = scaled(rack.uplink, outward, inward)
            if uplink:
                edit[f"cluster.racks[{i}].uplink"] = uplink
        edit |= scale_events(self._scenario.events, names, factor)
        return edit

    def _latency(self, change: Change) -> Edit:
        cluster = self._cluster
        factor = change.factor
        nics = {}
        for name, machine in cluster.by_name.items():
            nic = machine.nic
            latency = scale_latency(nic.latency, factor)
            if latency != nic.latency:
                nics[name] = write_nic(nic.inward, nic.outward, latency)
        edit = self._nics(nics)

        for i, link in enumerate(cluster.links):
            if link.latency:
                seconds = link.latency * factor
                edit[f"cluster.links[{i}].latency"] = DURATION.exact(seconds)
        for i, rack in enumerate(cluster.racks):
            latency = scale_latency(rack.latency, factor)
            if latency != rack.latency:
                content = latency.model_dump(mode="json", by_alias=True)
                edit[f"cluster.racks[{i}].latency"] = content

        scale = partial(scale_value, DURATION, factor=factor)
        for key, _, job in self._scenario.each_job():
            job_edit = job.scale_latencies(scale)
            edit |= _below(key, job_edit)
        return edit

    def _links_of_jobs(self, links: set[str], factor: float) -> Edit | None:
        """Return keys of jobs for the links that they bring along; None without."""
        cluster = self._cluster
        # Links that no section of the cluster states: those that jobs bring along.
        stated_links = {link.name for link in cluster.links}
        rest = links - stated_links
        for name in cluster.names:
            rest -= {f"{name} out", f"{name} in"}
        for rack in cluster.racks:
            rest -= {f"{rack.name} up", f"{rack.name} down"}

        edit: Edit = {}
        scale = partial(scale_value, RATE, factor=factor)
        for key, _, job in self._scenario.each_job():
            job_edit, names = job.scale_links(cluster, links, scale)
            edit |= _below(key, job_edit)
            rest -= names
        if rest:
            return None
        return edit

    def _nics(self, nics: Mapping[str, object]) -> Edit:
        """Return the NICs of some machines; one of several equal ones by its name."""
        groups: dict[int, list[str]] = {}
        for name, position in self._cluster.names_and_positions():
            group = groups.setdefault(position, [])
            group.append(name)

        by_position: Edit = {}
        by_name: Edit = {}
        for name, nic in nics.items():
            step = step_text(name)
            by_name[f"cluster.machines.{step}.nic"] = nic

        for position, names in groups.items():
            states = {str(nics.get(name)) for name in names}
            if len(states) > 1:
                # To write out equal machines moves those behind them.
                return by_name
            first = names[0]
            if first in nics:
                by_position[f"cluster.machines[{position}].nic"] = nics[first]
        return by_position

    def _compute(self, change: Change) -> Edit | None:
        if self._scenario.profile is not None:
            return None
        tasks = change.problem.job.tasks
        names = {tasks[row].name for row in change.rows}
        edit: Edit = {}
        times: list[object] = []  # a time of 0 that a run took longer than is no key

        def scale(time: Any) -> Any:
            values = [time]
            if isinstance(time, dict):
                values = list(time.values())
            elif isinstance(time, tuple):
                values = list(time)
            times.extend(filter(None, values))
            return scale_value(DURATION, time, change.factor)

        for key, prefix, job in self._scenario.each_job():
            kinds = {}
            names_of_job = set()
            for task in tasks:
                if not task.name.startswith(prefix):
                    continue
                name = task.name.removeprefix(prefix)
                kinds[name] = task.kind
                if task.name in names:
                    names_of_job.add(name)
            job_edit, scaled_names = job.scale_times(kinds, names_of_job, scale)
            edit |= _below(key, job_edit)
            names -= {prefix + name for name in scaled_names}
        # Tasks that are left over have no key of their own: half a change is none.
        if names or not times:
            return None
        return edit

    def _policy(self, change: Change) -> Edit:
        name = change.policy.removesuffix("_by_job")
        share = "flow" if name == change.policy else "job"
        return {"schedule.policy": name, "schedule.share": share}

    def _write(self, change: Change) -> Edit | None:
        """Return a change as keys and values; None where the scenario has none."""
        writers: dict[str, Callable[[Change], Edit | None]] = {
            "network": self._network,
            "latency": self._latency,
            "compute": self._compute,
            "policy": self._policy,
            "events": self._events,
            "bytes": self._bytes,
            "window": self._window,
        }
        write = writers.get(change.kind, self._slots)
        return write(change)

    def _events(self, change: Change) -> Edit:  # noqa: ARG002 - as all writers
        keys = ("events", "failures")
        return {key: None for key in keys if getattr(self._scenario, key)}

    def _bytes(self, change: Change) -> Edit | None:
        if self._scenario.profile is not None:
            return None
        scale = partial(scale_value, SIZE, factor=change.factor)
        flows = list(change.rows)
        return self._scenario.job.scale_volumes(flows, scale) or None

    def _window(self, change: Change) -> Edit:
        edit: Edit = {}
        for key, _, job in self._scenario.each_job():
            window = job.credit_window
            if not isinstance(window, int):
                continue
            wider: int | str = "unlimited"
            if not math.isinf(change.factor):
                wider = int(change.factor) * window
            edit[f"{key}job.credit_window"] = wider
        return edit

    def _slots(self, change: Change) -> Edit | None:
        slots = {}
        for row in change.rows:
            machine = change.problem.cluster.machines[row]
            slots[machine.name] = machine.slots[change.pool]
        edit: Edit = {}
        for name, position in self._cluster.names_and_positions():
            if name in slots:
                key = f"cluster.machines[{position}].slots.{change.pool}"
                edit[key] = slots[name]
        return edit or None


def _below(job: str, edit: Edit) -> Edit:
    """Return the edit of a job with the key of its job before every other."""
    return {job + key: value for key, value in edit.items()}
