"""Write what-ifs of `what_if` as keys and values of their scenario.

A simulation of the file with these keys and values gives the makespan reported.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from emu.errors import PlacementError, ScenarioError
from emu.prediction.placement import best_placement
from emu.prediction.placement.place import SEARCHES
from emu.problem import Job, Placement, Problem, Realization
from emu.problem.fields.cluster_section import Latency
from emu.scenario.document import step_text
from emu.scenario.experiment import following_placement, place, prepare
from emu.scenario.machine_choice import machines_words, on_machines
from emu.scenario.realize import build_job
from emu.scenario.scenario_file import load
from emu.systems import Edit
from emu.systems.system import content_of
from emu.units import DURATION, RATE, SIZE, Quantity

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
    sections = [("", scenario.placement)]
    if scenario.placed_by == "sequential":
        jobs = enumerate(scenario.jobs)
        sections = [(f"jobs[{i}].", item.placement) for i, item in jobs]
    edit: Edit = {}
    for key, section in sections:
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
        self, scenario: Scenario, *, measured: bool = False, chosen: bool = False
    ) -> None:
        self._scenario = scenario
        self._cluster = scenario.stated_cluster
        self._measured = measured
        self._chosen = chosen
        #: What was not tried, and why.
        self.notes: list[str] = []

    def reorder_rings(self, problem: Problem) -> Problem:
        """Return the problem with rings in the order that its placement asks for."""
        return following_placement(self._scenario, problem)

    def best(self, problem: Problem, reference: Realization) -> Placement:
        """Return the placement that ``placement.policy: best`` finds.

        Raises PlacementError when there is no placement.
        """
        scenario = self._scenario
        job = problem.job
        cluster = problem.cluster
        if scenario.jobs:
            rule = scenario.schedule.rule
            seed = scenario.seed
            outcome = best_placement(job, cluster, reference, rule, seed=seed)
            return outcome.placement
        if scenario.placed_by == "best" and not self._measured:
            return problem.placement  # it is that already
        variant = self._load(placement_edit(scenario, "best"))
        return place(variant, job, cluster, reference).placement

    def _load(self, edit: Edit) -> Scenario:
        """Return the scenario with an edit, of which nothing is expected."""
        return load(self._scenario, edit | {"expect": None})

    def content_of(self, kinds: tuple[str, str]) -> str:
        """Return the content of flows between two kinds of task, a plural."""
        return content_of(self._scenario.job.system, kinds)

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
            self.notes += [note] if note not in self.notes else []
            return change
        return self._prepare(change, edit)

    def _prepare(self, change: Change, edit: Edit) -> Change:
        """Return a change with an edit and what preparing that makes of it."""
        experiment = prepare(self._load(edit))
        problem = experiment.problem
        realization = experiment.realization
        return replace(change, edit=edit, problem=problem, realization=realization)

    @cached_property
    def _planned(self) -> list[Scenario]:
        """Return the jobs that follow from the links, as scenarios of their own."""
        alone = [part for _, part in self._scenario.parts()] or [self._scenario]
        return [one for one in alone if one.job.shaped_by_data]

    @cached_property
    def _vertices(self) -> int:
        """Vertices of all graphs that tasks follow from."""
        from emu.graph_data import open_for  # noqa: PLC0415 - 0.1 s

        jobs = map(build_job, self._planned)
        return sum(len(open_for(job.settings).owner) for job in jobs)

    def standing(self, problem: Problem) -> Edit:
        """Return where the tasks of ``problem`` stand as an edit."""
        machines = problem.cluster.machines
        at = problem.placement.machine_of
        where = {p: machines[at[t]].name for p, (t, *_) in problem.job.units.items()}
        several = {"place_jobs": "sequential", "joint_cost": None, "placement": None}
        jobs = self._scenario.jobs
        edit: Edit = several if jobs else {}
        edit |= {f"jobs[{n}].weight": None for n, one in enumerate(jobs) if one.weight}
        for key, prefix, _ in self._scenario.each_job():
            tasks = {
                process.removeprefix(prefix): machine
                for process, machine in where.items()
                if process.startswith(prefix)
            }
            edit[f"{key}placement"] = {"policy": "explicit", "tasks": tasks}
        return self._scenario.job.machine_keys() | edit

    def fewer_machines(self, base: Change) -> Iterator[Change]:
        """Yield ``base`` on the machines that ``best`` chooses, placed anew.

        Nothing where it is on those already, or they are no choice.
        """
        job = self._scenario.job
        by_search = self._scenario.placed_by == "best" and job.movable_on is None
        if by_search or self._chosen or self._measured:
            return
        edit = placement_edit(self._scenario, "best")
        if job.movable_on is not None:
            edit["job.machines"] = None
        scenario = self._load(edit)
        names = self._cluster.names
        if on_machines(scenario, names) is None:
            return
        experiment = prepare(scenario)
        now = {*base.problem.machine_of_task.values()}
        machines = experiment.placing["machines"]
        without = [name for name in names if name in now and name not in machines]
        what = machines_words(experiment.placing)
        if {*machines} < now:
            what = f"without {', '.join(without)}"
        if {*machines} != now:
            edit |= experiment.scenario.job.machine_keys()
            run = experiment.problem, experiment.realization, base.policy
            yield type(base)("machine", f"{what}, placed by best", *run, edit=edit)

    def faster_rates(self, base: Change) -> Iterator[Change]:
        """Yield ``base`` with each rate of operations halved, where rates are stated.

        The one that brings most decides how systems compare on these devices.
        """
        rates = self._scenario.job.operation_rates
        if rates is None or self._measured:
            return
        for name, rate in rates.stated.items():
            edit: Edit = {f"job.rates.{name}": _scale_value(DURATION, rate, 0.5)}
            change = replace(base, kind="compute", what=f"rate {name} twice as fast")
            yield self._prepare(change, edit | self.standing(base.problem))

    def placed_anew(self, changes: Iterable[Change]) -> Iterator[Change]:
        """Yield changes of the rule for rates, each with the placement found under it.

        As they are where a placement does not depend on the rule, is that of a run, or
        takes long to find.
        """
        parts = [part for _, part in self._scenario.parts()] or [self._scenario]
        by_search = any(part.placement.policy in SEARCHES for part in parts)
        for change in changes:
            job = change.problem.job
            few = len(job.tasks) <= MOST_TASKS and not job.fixed
            if self._measured or not (by_search and few):
                yield self.add_edit(change)
                continue
            edit = self._scenario.job.machine_keys() | self._policy(change)
            anew = self._prepare(change, edit)
            yield replace(anew, what=f"{change.what}, placed anew")

    def more_machines(self, base: Change) -> Iterator[Change]:
        """Yield ``base`` with one more machine of every kind, and all placed anew.

        It is a copy in everything but its name: section, rack, routes. Nothing is
        yielded where no task may move and none is added, nor where the scenario would
        have to state more: the way between two machines without NICs.
        """
        job = base.problem.job
        tried = len(job.tasks) <= MOST_TASKS or job.fixed
        if not tried:
            self._note_untried(f"to place {len(job.tasks)} tasks again takes too long")
        kinds: list[object] = []
        for name, position in self._cluster.names_and_positions() if tried else ():
            edit, kind = self._one_more(name, position)
            if kind in kinds:
                continue
            kinds.append(kind)
            edit |= placement_edit(self._scenario, "best")
            try:
                scenario = self._load(edit)
                if not self._can_be_tried(scenario, job):
                    return
                experiment = prepare(scenario)
            except (ScenarioError, PlacementError):
                continue
            problem = experiment.problem
            realization = experiment.realization
            if self._measured:
                reference = base.problem.reference(base.realization)
                realization = problem.stretch(reference)
            what = f"one more machine like {name}, placed by best"
            more = replace(base, problem=problem, realization=realization, edit=edit)
            yield replace(more, kind="machine", what=what)

    def _note_untried(self, problem: str) -> bool:
        self.notes.append(f"one more machine was not tried: {problem}")
        return False

    def _can_be_tried(self, edited: Scenario, job: Job) -> bool:
        """Return True where times and volumes of ``edited`` are known or soon found."""
        if (count := self._vertices) > MOST_PLANNED:
            problem = f"to plan for {count:,} vertices again takes too long"
            return self._note_untried(problem)
        variant = build_job(edited)
        alike = [task.name for task in variant.tasks] == [t.name for t in job.tasks]
        alike = alike and variant.edge_names == job.edge_names
        if alike and job.fixed:
            return False
        if not alike and (self._measured or self._scenario.profile is not None):
            problem = "it would have tasks without measured times"
            return self._note_untried(problem)
        from emu.graph_data import open_for  # noqa: PLC0415 - 0.1 s

        for name in job.job_names:
            settings = job.settings_of(name)
            if settings.get("parts") == variant.settings_of(name).get("parts"):
                continue
            if (count := len(open_for(settings).owner)) > MOST_PARTED:
                problem = f"to partition {count:,} vertices again takes too long"
                problem = f"it would have a graph store, and {problem}"
                return self._note_untried(problem)
        return True

    def _one_more(self, name: str, position: int) -> tuple[Edit, object]:
        """Return the edit, and what tells the machine from those of another kind."""
        cluster = self._cluster
        texts = (f"{name}+{number}" for number in itertools.count(1))
        another = next(text for text in texts if text not in cluster.names)
        section = cluster.machines[position].model_dump(mode="json", exclude_unset=True)
        section |= {"name": another, "count": 1}
        edit: Edit = {f"cluster.machines[{len(cluster.machines)}]": section}
        if stated := self._scenario.job.movable_on:
            edit["job.machines"] = [*stated, another]
        lists: dict[str, Sequence[str]] = {
            f"racks[{i}].machines": rack.machines
            for i, rack in enumerate(cluster.racks)
        }
        for i, route in enumerate(cluster.routes):
            lists[f"routes[{i}].from"] = route.sources
            lists[f"routes[{i}].to"] = route.destinations
        beside = [key for key, machines in lists.items() if name in machines]
        edit |= {f"cluster.{key}": [*lists[key], another] for key in beside}
        return edit, (section | {"name": ""}, beside)

    def _network(self, change: Change) -> Edit | None:
        cluster = self._cluster
        factor = change.factor
        links = change.problem.links
        names = {links[port].name for port in change.rows}
        edit = self._links_of_jobs(names, factor)
        if edit is None:
            return None

        def scale_nic(nic: Any, out: str, into: str) -> Any:
            outward = nic.outward * (factor if out in names else 1.0)
            inward = nic.inward * (factor if into in names else 1.0)
            return write_nic(inward, outward, getattr(nic, "latency", Latency()))

        nics = {
            name: scale_nic(one.nic, f"{name} out", f"{name} in")
            for name, one in cluster.by_name.items()
            if {f"{name} out", f"{name} in"} & names
        }
        edit |= self._nics(nics)
        for i, link in enumerate(cluster.links):
            if link.name in names:
                rate = RATE.exact(link.bandwidth * factor)
                edit[f"cluster.links[{i}].bandwidth"] = rate
        for i, rack in enumerate(cluster.racks):
            up = f"{rack.name} up"
            down = f"{rack.name} down"
            if {up, down} & names:
                edit[f"cluster.racks[{i}].uplink"] = scale_nic(rack.uplink, up, down)
        for i, event in enumerate(self._scenario.events):
            out = f"{event.machine} out"
            into = f"{event.machine} in"
            if event.nic is not None and {out, into} & names:
                edit[f"events[{i}].nic"] = scale_nic(event.nic, out, into)
            elif event.bandwidth is not None and event.link in names:
                rate = RATE.exact(event.bandwidth * factor)
                edit[f"events[{i}].bandwidth"] = rate
        return edit

    def _latency(self, change: Change) -> Edit:
        cluster = self._cluster
        factor = change.factor
        nics = {
            name: write_nic(one.nic.inward, one.nic.outward, scaled)
            for name, one in cluster.by_name.items()
            if (scaled := _scale_latency(one.nic.latency, factor)) != one.nic.latency
        }
        edit = self._nics(nics)
        for i, link in enumerate(cluster.links):
            if late := link.latency:
                edit[f"cluster.links[{i}].latency"] = DURATION.exact(late * factor)
        for i, rack in enumerate(cluster.racks):
            if (scaled := _scale_latency(rack.latency, factor)) != rack.latency:
                both = scaled.model_dump(mode="json", by_alias=True)
                edit[f"cluster.racks[{i}].latency"] = both
        scale = partial(_scale_value, DURATION, factor=factor)
        for at, _, job in self._scenario.each_job():
            job_edit = job.scale_latencies(scale)
            edit |= {f"{at}{key}": value for key, value in job_edit.items()}
        return edit

    def _links_of_jobs(self, links: set[str], factor: float) -> Edit | None:
        """Return keys of jobs for the links that they bring along; None without."""
        cluster = self._cluster
        edit = dict[str, Any]()
        rest = links - {link.name for link in cluster.links}
        rest -= {f"{name} {way}" for name in cluster.names for way in ("out", "in")}
        rest -= {f"{r.name} {way}" for r in cluster.racks for way in ("up", "down")}
        scale = partial(_scale_value, RATE, factor=factor)
        for at, _, job in self._scenario.each_job():
            job_edit, keys = job.scale_links(cluster, links, scale)
            edit |= {f"{at}{key}": value for key, value in job_edit.items()}
            rest -= keys
        return None if rest else edit

    def _nics(self, nics: dict[str, Any]) -> Edit:
        """Return the NICs of some machines; one of several equal ones by its name."""
        cluster = self._cluster
        groups: dict[int, list[str]] = {}
        for name, position in cluster.names_and_positions():
            groups.setdefault(position, []).append(name)
        alike = [{str(nics.get(n)) for n in names} for names in groups.values()]
        keys = {name: f"machines.{step_text(name)}" for name in nics}
        if all(len(texts) == 1 for texts in alike):
            firsts = {names[0]: position for position, names in groups.items()}
            keys = {n: f"machines[{at}]" for n, at in firsts.items() if n in nics}
        return {f"cluster.{key}.nic": nics[name] for name, key in keys.items()}

    def _compute(self, change: Change) -> Edit | None:
        if self._scenario.profile is not None:
            return None
        tasks = change.problem.job.tasks
        names = {tasks[row].name for row in change.rows}
        edit: Edit = {}
        times: list[object] = []  # a time of 0 that a run took longer than is no key

        def scale(time: Any) -> Any:
            values = time.values() if isinstance(time, dict) else time
            values = values if isinstance(time, dict | tuple) else [time]
            times.extend(filter(None, values))
            return _scale_value(DURATION, time, change.factor)

        for at, prefix, job in self._scenario.each_job():
            own = {
                task.name.removeprefix(prefix): task.kind
                for task in tasks
                if task.name.startswith(prefix)
            }
            mine = {name for name in own if f"{prefix}{name}" in names}
            job_edit, keys = job.scale_times(own, mine, scale)
            edit |= {f"{at}{key}": value for key, value in job_edit.items()}
            names -= {f"{prefix}{name}" for name in keys}
        return edit if times and not names else None

    def _policy(self, change: Change) -> Edit:
        name = change.policy.removesuffix("_by_job")
        share = "flow" if name == change.policy else "job"
        return {"schedule.policy": name, "schedule.share": share}

    def _write(self, change: Change) -> Edit | None:
        """Return a change as keys and values; None where the scenario has none."""
        scenario = self._scenario
        edit = Edit()
        writers = {
            "network": self._network,
            "latency": self._latency,
            "compute": self._compute,
            "policy": self._policy,
        }
        if change.kind in writers:
            return writers[change.kind](change)
        match change.kind:
            case "events":
                keys = ("events", "failures")
                return {key: None for key in keys if getattr(scenario, key)}
            case "bytes":
                if scenario.profile is None:
                    scale = partial(_scale_value, SIZE, factor=change.factor)
                    edit = scenario.job.scale_volumes([*change.rows], scale)
            case "window":
                wide = math.isinf(change.factor)
                factor = change.factor
                return {
                    f"{at}job.credit_window": "unlimited"
                    if wide
                    else int(factor) * job.credit_window
                    for at, _, job in scenario.each_job()
                    if isinstance(job.credit_window, int)
                }
            case _:  # slots
                machines = change.problem.cluster.machines
                pool = change.pool
                more = {machines[m].name: machines[m].slots[pool] for m in change.rows}
                for name, p in self._cluster.names_and_positions():
                    if name in more:
                        edit[f"cluster.machines[{p}].slots.{pool}"] = more[name]
        return edit or None


def _scale_latency(latency: Latency, factor: float) -> Latency:
    scaled = {"in": latency.inward * factor, "out": latency.outward * factor}
    return Latency.model_validate({k: DURATION.exact(v) for k, v in scaled.items()})


def write_nic(inward: float, outward: float, latency: Latency) -> Any:
    """Return ``nic`` of a machine of these rates, in bytes per second."""
    both = {"in": RATE.exact(inward), "out": RATE.exact(outward)}
    if latency != Latency():
        return both | {"latency": latency.model_dump(mode="json", by_alias=True)}
    return both["in"] if inward == outward else both


def _scale_value(quantity: Quantity, stated: Any, factor: float) -> Any:
    """Return one value, one per iteration or one per device, times ``factor``."""
    if not factor:
        return f"0 {quantity.inside}"
    if isinstance(stated, dict):
        return {of: quantity.exact(value * factor) for of, value in stated.items()}
    if isinstance(stated, tuple):
        return [quantity.exact(value * factor) for value in stated]
    return quantity.exact(stated * factor)
