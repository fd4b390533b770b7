"""One scenario as several systems: the same training, in the keys of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from emu.errors import DataError, ScenarioError
from emu.graph_data import BatchPlan, count_samples, open_for
from emu.names import file_part
from emu.prediction.analysis.throughput import seeds_per_iteration
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.fields.suggestion import nearest
from emu.problem.workloads import PARTS
from emu.problem.workloads.operations import count_layers
from emu.scenario import Scenario, build_job, load
from emu.scenario.scenario_file import write_scenario
from emu.scenario.workload_file import read_profile
from emu.systems import Keys
from emu.systems.job_section import JobSection
from emu.systems.system import Variant, systems
from emu.systems.training_section import PHASES, TrainingSection
from emu.systems.translation import SAME_KEYS, CommonJob, Translation
from emu.units import DURATION, RATIO

#: Passes over the training set in which a target has to be reached.
WITHIN = 100


@dataclass(frozen=True)
class Target:
    """Accuracy that a training has to reach, as ``until`` of a scenario means it."""

    accuracy: float
    split: str = "valid"
    within: int = WITHIN
    """Passes over the training set that are tried at most."""

    @classmethod
    def parse(cls, text: str, within: int = WITHIN) -> Target:
        """Return the target of ``accuracy=0.88``, ``accuracy=88 %,split=test``.

        Raises ScenarioError when it is not written so.
        """
        option = f"--to {text}"
        pairs = (part.partition("=") for part in text.split(","))
        words = {key.strip(): value.strip() for key, _, value in pairs}
        splits = ("train", "valid", "test")
        split = words.get("split", "valid")
        if words.keys() - {"accuracy", "split"} or split not in splits:
            problem = f"write accuracy=0.88, and split={'|'.join(splits)} after a comma"
            raise ScenarioError(problem, file=option)
        try:
            accuracy = RATIO.parse(words.get("accuracy", ""))
        except ValueError as error:
            raise ScenarioError(str(error), file=option) from error
        if not 0 < accuracy <= 1:
            problem = f"found {accuracy:g}, write a share above 0, at most 1"
            raise ScenarioError(problem, file=option)
        return cls(accuracy, split, within)

    def end(self, scenario: Scenario) -> Scenario:
        """Return a scenario that trains until it is reached, at most so many passes.

        Looks are as many training vertices apart as there are, in every system. Raises
        DataError when the data set is missing or damaged.
        """
        settings = scenario.to_job(train_vertices=1, pins=False).settings
        until = {"accuracy": RATIO.exact(self.accuracy), "split": self.split}
        edit: dict[str, object] = {"until": until, "job.epochs": self.within}
        if seeds := seeds_per_iteration(settings):
            steps = -(-open_for(settings).train_count // seeds)
            edit |= {"job.iterations": self.within * steps, "job.epochs": None}
        return load(scenario, edit)


def variant_named(name: str) -> Variant:
    """Return the row of that name, of a system or a way to run it.

    Raises ScenarioError when there is none.
    """
    rows, plain = _variants(), list_translatable()
    if name in rows or name in plain:
        return rows.get(name, Variant(name))
    problem = f"{name!r} is not among the systems that can be compared: "
    others = sorted({*plain} - rows.keys())
    raise ScenarioError(f"{problem}all, {', '.join([*rows, *others])}")


def _variants() -> dict[str, Variant]:
    """Return the rows of every system, by name."""
    rows: dict[str, Variant] = {}
    for name in list_translatable():
        rows |= systems()[name].variants or {name: Variant(name)}
    return rows


def list_variants(names: Sequence[str]) -> list[str]:
    """Return the rows that ``--systems`` names: ``all`` are those of every system.

    Raises ScenarioError when there is no such row.
    """
    rows = [r for name in names for r in (_variants() if name == "all" else [name])]
    for row in rows:
        variant_named(row)
    return [*dict.fromkeys(rows)]


def list_translatable() -> list[str]:
    """Return the systems that a scenario can be turned into."""
    return [name for name, one in systems().items() if one.translation is not None]


def list_sources() -> list[str]:
    """Return the systems whose files say all that others have to know."""
    return [name for name in list_translatable() if translation_of(name).read]


def as_variant(
    scenario: Scenario, name: str, overrides: Mapping[str, object] | None = None
) -> Scenario:
    """Return a scenario as a row of a table of systems (`System.variants`).

    Raises ScenarioError, DataError as `as_system`.
    """
    variant = variant_named(name)
    before, after = _split(scenario, variant.system, overrides or {})
    plain = as_system(scenario, variant.system, before)
    edit = {**after, **variant.edit}
    if "job.epoch" in edit and getattr(plain.job, "epochs", None):
        # Its epochs have other steps: every row has as many steps.
        edit |= {"job.iterations": build_job(plain).iterations, "job.epochs": None}
    return load(plain, edit) if edit else plain


def source_of(
    scenario: Scenario, name: str, overrides: Mapping[str, object]
) -> Scenario:
    """Return the file of a row with those overrides that it knows itself."""
    before, _ = _split(scenario, variant_named(name).system, overrides)
    return load(scenario, {**before, "expect": None, "systems": None})


def _split(
    scenario: Scenario, system: str, overrides: Mapping[str, object]
) -> tuple[dict[str, object], dict[str, object]]:
    """Return what is changed before a translation, and keys of ``system`` alone."""
    before, after = dict[str, object](), dict[str, object]()
    for key, value in overrides.items():
        first, *parts = key.split(".")
        late = first == "job" and not _knows(scenario.job, parts)
        late = late and parts[0] in systems()[system].section().model_fields
        (after if late else before)[key] = value
    return before, after


def _knows(section: object, parts: Sequence[str]) -> bool:
    """Return True where a section has a key, which may be of a section in it."""
    if not parts or not isinstance(section, BaseModel):
        return True
    name = parts[0].partition("[")[0]
    own = name in type(section).model_fields
    return own and _knows(getattr(section, name), parts[1:])


#: Settings of one row that are tried at most: each is trained with every seed.
MOST_SETTINGS = 32


def list_settings(scenario: Scenario, name: str) -> list[dict[str, object]]:
    """Return every combination of what ``systems`` of a file states for a row.

    They are overrides as for `as_variant`; a row has those of its system too. A list is
    one of alternatives, unless the key itself takes one: then a list of lists is.
    Raises ScenarioError when a key is unknown, what makes the row is changed, or there
    are more than `MOST_SETTINGS`.
    """
    variant, choices = variant_named(name), dict[str, Sequence[object]]()
    section = systems()[variant.system].section().model_fields
    for row in dict.fromkeys((variant.system, name)):
        for key, value in _flat(scenario.systems.get(row, {}), "job.").items():
            word = key.split(".")[1]
            trail = "systems", row, word
            field = section.get(word) or type(scenario.job).model_fields.get(word)
            if field is None:
                problem = f"{variant.system} has no such key, {nearest(word, section)}"
                raise scenario.origin.error(trail, problem)
            if key in variant.edit:
                if row == variant.system:  # of its other rows
                    continue
                problem = f"is what makes the row {name}: leave it out"
                raise scenario.origin.error(trail, problem)
            several = isinstance(value, list) and bool(value)
            if several and "tuple" in str(field.annotation):
                several = all(isinstance(one, list) for one in value)
            choices[key] = value if several else [value]
    if (count := prod(map(len, choices.values()))) > MOST_SETTINGS:
        problem = f"{count} settings, write {MOST_SETTINGS} or fewer"
        raise scenario.origin.error(("systems", name), problem)
    return [dict(zip(choices, one, strict=True)) for one in product(*choices.values())]


def check_rows(scenario: Scenario) -> None:
    """Raise ScenarioError where ``systems`` of a file names neither row nor system."""
    names = {*_variants(), *list_translatable()}
    for name in scenario.systems:
        if name not in names:
            problem = f"no such row or system, {nearest(name, names)}"
            raise scenario.origin.error(("systems", name), problem)


def as_system(
    scenario: Scenario, system: str, overrides: Mapping[str, object] | None = None
) -> Scenario:
    """Return a scenario as another system, with as many seeds per iteration.

    A system that trains on the whole graph has as many passes over it. ``overrides``
    are keys before it is translated, as for `load`. Raises ScenarioError when either
    cannot be translated, times are those of a profile, or the changed scenario is
    wrong; DataError when the data set is needed (for epochs, or the phases of P3) and
    is missing, or the profile is, or is of another job.
    """
    origin = scenario.origin  # with the lines of the file, which changes lose
    changes: dict[str, object] = {"expect": None, "systems": None}
    scenario = load(scenario, {**(overrides or {}), **changes})
    if scenario.jobs:
        problem = "several jobs cannot be compared as systems, write one: job"
        raise origin.error(("jobs",), problem)
    if system not in list_translatable():
        variant_named(system)  # its error
    if scenario.job.system == system:
        return scenario
    if (source := scenario.job.system) not in list_sources():
        sources = ", ".join(list_sources())
        problem = f"{source!r} is not among the systems that can be compared: {sources}"
        if source in list_translatable():
            problem = (
                f"{source!r} says nothing of mini-batches: write the file of a system "
                f"that does, which is turned into all others: {sources}"
            )
        raise origin.error(("job", "system"), problem)
    if scenario.profile is not None:
        problem = "is of one system, to compare several write its means instead: "
        means = _mean_times(scenario)
        raise origin.error(("profile",), f"{problem}job.times={means}")
    target = translation_of(system)
    job = target.write(common_job(scenario, target))
    changes = {"job": {"system": system, **job}}
    if scenario.placement.tasks:  # by names that the other system's tasks do not have
        changes["placement"] = None
    return load(scenario, changes)


def translation_of(system: str) -> Translation:
    """Return how a system is written in the words of all."""
    return cast("Callable[[], Translation]", systems()[system].translation)()


def read_job(job: JobSection, cluster: ClusterSection) -> Keys:
    """Return a job in common words; its file says all of them."""
    read = cast("Callable[..., Keys]", translation_of(job.system).read)
    return read(job, cluster)


def _mean_times(scenario: Scenario) -> str:
    """Return the mean times of a scenario's profile by kind, as ``job.times``."""
    job = build_job(scenario)
    profile = read_profile(scenario.profile or "").profile(job)
    share, means = cast("TrainingSection", scenario.job).share, []
    for kind in sorted({task.kind for task in job.tasks}):
        rows = [task.kind == kind for task in job.tasks]
        mean = float(profile.times[rows].mean(axis=1).mean())
        means.append(f"{kind}: {DURATION.format(mean / share(kind))}")
    return f"{{{', '.join(means)}}}"


def common_job(scenario: Scenario, target: Translation) -> CommonJob:
    """Return the job of a scenario in common words, as far as ``target`` uses them."""
    job = cast("TrainingSection", scenario.job)
    fields = job.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    same = {key: fields[key] for key in SAME_KEYS if key in fields}
    batches = job.iterations
    if batches is None:
        built = build_job(scenario)
        batches = built.settings.get("batches", built.iterations)
    times = job.times.by_kind()
    by_phase = all(phase in times for phase in PHASES)
    # P3 takes no program, and says so itself.
    split = target.splits_first_layer and not by_phase
    split = split and "worker" in times and "hidden" in fields["model"]
    settings, epochs = scenario.to_job(train_vertices=1, pins=False).settings, 0
    if target.counts_epochs:  # passes that so many mini-batches begin
        seeds = seeds_per_iteration(settings) or 1
        epochs = -(-batches // -(-open_for(settings).train_count // seeds))
    machines = scenario.cluster.build().machines
    by_nic = sorted(machines, key=lambda machine: -machine.bandwidth_out)
    return CommonJob(
        same={**same, "iterations": batches},
        epochs=epochs,
        by_nic=tuple(machine.name for machine in by_nic),
        gpus=scenario.cluster.has_gpus,
        batch_size=job.batch_size,
        everywhere=tuple(name for name, _ in scenario.cluster.names_and_positions()),
        stated=getattr(job, "machines", None),
        partitioner=getattr(job, "partitioner", "hash"),
        times=times,
        first_layer=_first_layer_share(settings) if split else 0.0,
        **read_job(job, scenario.cluster),
    )


def _first_layer_share(settings: Mapping[str, Any]) -> float:
    """Return the share of layer 1 in a forward pass, of one sampled mini-batch."""
    dataset = open_for(settings)
    plan = replace(BatchPlan.from_settings(settings), samplers=1)
    (counts,) = count_samples(dataset, plan, 1)
    sizes = dataset.feature_length, dataset.classes, counts
    passes = [layer.forward for layer in count_layers(settings["model"], *sizes)]
    # A multiplication and an addition each.
    works = [float((2 * p["multiply"] + p["aggregate"])[0]) for p in passes]
    return works[0] / sum(works)


def edits(scenario: Scenario, translated: Scenario) -> dict[str, tuple[Any, Any]]:
    """Return key -> (what it was, what it is) of what a translation states otherwise.

    None where there is no such key, or one system has the default of a key of its own.
    Beside the keys stand the parameters of a layer where the models differ in these.
    """
    what: Any = {"mode": "json", "include": {"job", "placement"}, "exclude_none": True}
    both = scenario, translated
    whole = [_flat(one.model_dump(**what)) for one in both]
    own = [_flat(one.model_dump(**what, exclude_defaults=True)) for one in both]
    # A key is there where it is stated, or both have it and one states it.
    shared = whole[0].keys() & whole[1].keys()
    changes = {}
    for key in dict.fromkeys(key for one in own for key in one):
        known = [key in own[side] or key in shared for side in (0, 1)]
        was, now = (
            w.get(key) if k else None for w, k in zip(whole, known, strict=True)
        )
        if was != now:
            changes[key] = was, now
    layers = [_list_parameters(one) for one in both]
    if layers[0] != layers[1]:
        changes["parameters of a layer"] = layers[0], layers[1]
    return changes


def _list_parameters(scenario: Scenario) -> list[str]:
    """Return names of a layer's parameters; empty for a program, which tells none."""
    settings = scenario.to_job(train_vertices=1, pins=False).settings
    return [*PARTS.get(settings.get("model", {}).get("kind", ""), ())]


def _flat(found: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in found.items():
        name = f"{prefix}{key}"
        flat |= _flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat


def write_rows(
    folder: Path, name: str, rows: Iterable[tuple[str, Mapping[int, Scenario]]]
) -> list[list[str]]:
    """Write the scenarios of a comparison, for ``emu simulate``; makes the folder.

    ``name`` is that of the scenario that they vary; a row has a name, and scenarios by
    seed. Returns the files of every row: those of further seeds end in ``-seedN``.
    Raises DataError when they cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"cannot be made: {error.strerror}"
        raise DataError(problem, path=str(folder)) from error
    files: list[list[str]] = []
    stems = Counter[str]()
    for row, scenarios in rows:
        stem = f"{file_part(name)}-{file_part(row.replace(', ', '-'))}"
        stems[stem] += 1
        stem += f"-{stems[stem]}" if stems[stem] > 1 else ""
        files.append([])
        for count, (seed, scenario) in enumerate(scenarios.items()):
            file = folder / f"{stem}{f'-seed{seed}' if count else ''}.yaml"
            write_scenario(file, scenario)
            files[-1].append(str(file))
    return files
