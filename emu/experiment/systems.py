"""One scenario as several systems: the same training, in the keys of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

from pydantic import BaseModel

from emu.errors import EmulatorError, ScenarioError
from emu.graph_data import BatchPlan, count_samples, open_for
from emu.names import file_part
from emu.prediction.analysis.throughput import seeds_per_iteration
from emu.problem.fields.cluster_section import ClusterSection
from emu.problem.fields.suggestion import nearest
from emu.problem.workloads import PARTS
from emu.problem.workloads.operations import count_layers
from emu.runs.run_directory import disk_errors
from emu.scenario import Scenario, build_job, load
from emu.scenario.realize import read_job_profile
from emu.scenario.scenario_file import write_scenario
from emu.systems import Edit, Keys
from emu.systems.job_section import JobSection
from emu.systems.system import Variant, section_type, systems
from emu.systems.training_section import PHASES, TrainingSection
from emu.systems.translation import SAME_KEYS, CommonJob, Translation
from emu.units import DURATION, RATIO

#: Keys of a section with their values, as JSON has them.
Settings: TypeAlias = Mapping[str, Any]

#: What is of a file as it stands: its figures, keys of its rows, and curves of these.
_OF_FILE: Edit = {
    "expect": None,
    "systems": None,
    "accuracy": None,
    "training_scales": None,
}
#: Passes over the training set in which a target has to be reached.
WITHIN = 100


@dataclass(frozen=True)
class Target:
    """Accuracy that a training has to reach, as ``until`` of a scenario means it."""

    accuracy: float
    split: str = "valid"
    within: int = WITHIN
    """Passes over the training set that are tried at most."""
    counts_looks: bool = False
    """True where training waits while it is looked at."""

    @classmethod
    def parse(cls, text: str, within: int = WITHIN) -> Target:
        """Return the target of ``accuracy=0.88``, ``accuracy=88 %,split=test``.

        Raises ScenarioError when it is not written so.
        """
        option = f"--to {text}"
        words = {}
        for part in text.split(","):
            key, _, value = part.partition("=")
            words[key.strip()] = value.strip()
        splits = ("train", "valid", "test")
        split = words.get("split", "valid")
        unknown = words.keys() - {"accuracy", "split"}
        if unknown or split not in splits:
            names = "|".join(splits)
            problem = f"write accuracy=0.88, and split={names} after a comma"
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
        refuse_drawn(scenario)
        settings = _settings_of(scenario)
        accuracy = RATIO.exact(self.accuracy)
        edit: Edit = {
            "until": {"accuracy": accuracy, "split": self.split},
            "job.epochs": self.within,
        }
        if seeds := seeds_per_iteration(settings):
            steps = _steps_of_pass(settings, seeds)
            edit["job.iterations"] = self.within * steps
            edit["job.epochs"] = None
        return load(scenario, edit)


def refuse_drawn(scenario: Scenario) -> None:
    """Raise ScenarioError where nothing trains, as a drawn graph has no features."""
    dataset = getattr(scenario.job, "dataset", None)
    if getattr(dataset, "drawn", False):
        problem = (
            "nothing trains on a drawn graph: state a recorded curve, accuracy: {ROW: "
            "FILE}, or training_scales: [0.005, 0.01, 0.02], or write false and a scale"
        )
        raise scenario.origin.error(("job", "dataset", "drawn"), problem)


def _settings_of(scenario: Scenario) -> Settings:
    """Return the settings of a scenario's job, whose data set need not be there."""
    return scenario.to_job(train_vertices=1, pins=False).settings


def _steps_of_pass(settings: Settings, seeds: int) -> int:
    """Return the steps of so many seeds that see every training vertex."""
    # Rounded up, since a last, short batch is a step as well.
    seen_vertices = open_for(settings).train_count
    return -(-seen_vertices // seeds)


def variant_named(name: str) -> Variant:
    """Return the row of that name, of a system or a way to run it.

    Raises ScenarioError when there is none.
    """
    rows = _variants()
    plain = list_translatable()
    if name in rows or name in plain:
        return rows.get(name, Variant(name))
    systems_alone = sorted({*plain} - rows.keys())
    names = ", ".join([*rows, *systems_alone])
    problem = f"{name!r} is not among the systems that can be compared: all, {names}"
    raise ScenarioError(problem)


def _variants() -> dict[str, Variant]:
    """Return the rows of every system, by name."""
    rows: dict[str, Variant] = {}
    names = list_translatable()
    for name in names:
        # A system without variants is a row of its own name.
        variants = systems()[name].variants
        if not variants:
            variants = {name: Variant(name)}
        for row, variant in variants.items():
            # Two packages may call a row alike: neither may hide the other.
            is_of_other = row in names and row != name
            row_name = row
            if row in rows or is_of_other:
                row_name = f"{name}.{row}"
            rows[row_name] = variant

    return rows


def list_variants(names: Sequence[str]) -> list[str]:
    """Return the rows that ``--systems`` names: ``all`` are those of every system.

    Raises ScenarioError when there is no such row.
    """
    rows: list[str] = []
    for name in names:
        if name == "all":
            rows += _variants()
        else:
            variant_named(name)  # its error
            rows.append(name)
    return [*dict.fromkeys(rows)]


def list_translatable() -> list[str]:
    """Return the systems that a scenario can be turned into."""
    table = systems()
    return [name for name in table if table[name].translation is not None]


def list_sources() -> list[str]:
    """Return the systems whose files say all that others have to know."""
    return [name for name in list_translatable() if translation_of(name).read]


def as_variant(
    scenario: Scenario, name: str, overrides: Mapping[str, object] | None = None
) -> Scenario:
    """Return a scenario as a row of a table of systems (`System.variants`).

    Raises ScenarioError, DataError as `as_system`; of an override that ``systems`` of
    the file states, with its key there.
    """
    overrides = overrides or {}
    try:
        return _as_variant(scenario, name, overrides)
    except ScenarioError as error:
        row_error = _error_of_row(scenario, name, overrides, error)
        if row_error is None:
            raise
        raise row_error from error


def _error_of_row(
    scenario: Scenario,
    name: str,
    overrides: Mapping[str, object],
    error: ScenarioError,
) -> ScenarioError | None:
    """Return an error of an override at the place in ``systems`` that states it.

    Returns None where ``systems`` states nothing there.
    """
    # What a row states itself comes before what its system does.
    for row in (name, variant_named(name).system):
        stated = flatten(scenario.systems.get(row, {}), "job.")
        for key in stated.keys() & overrides.keys():
            is_item = error.key.startswith((f"{key}.", f"{key}["))
            if error.key == key or is_item:
                _, *words = key.split(".")
                return scenario.origin.error(("systems", row, *words), error.problem)
    return None


def _as_variant(
    scenario: Scenario, name: str, overrides: Mapping[str, object]
) -> Scenario:
    """Return a scenario as a row; raises as `as_system`."""
    variant = variant_named(name)
    before, after = _split(scenario, variant.system, overrides)
    plain = as_system(scenario, system=variant.system, overrides=before, settings=after)
    edit = dict(variant.edit)
    if not edit:
        return plain
    if "job.epoch" in edit and getattr(plain.job, "epochs", None):
        # Its epochs have other steps: every row has as many steps.
        edit["job.iterations"] = build_job(plain).iterations
        edit["job.epochs"] = None
    return load(plain, edit)


def source_of(
    scenario: Scenario, name: str, overrides: Mapping[str, object]
) -> Scenario:
    """Return the file of a row with those overrides that it knows itself."""
    system = variant_named(name).system
    before, _ = _split(scenario, system, overrides)
    return load(scenario, {**before, **_OF_FILE})


def _split(
    scenario: Scenario, system: str, overrides: Mapping[str, object]
) -> tuple[Edit, Edit]:
    """Return what is changed before a translation, and keys of ``system`` alone."""
    fields = section_type(system).model_fields
    before = {}
    after = {}

    for key, value in overrides.items():
        section, *parts = key.split(".")
        is_of_file = _knows(scenario.job, parts)
        if parts == ["epochs"] and "iterations" not in fields:
            # Passes over a whole graph are its steps: those of mini-batches are others.
            is_of_file = False

        if section != "job" or is_of_file or parts[0] not in fields:
            before[key] = value
        else:
            after[key] = value

    return before, after


def _knows(section: object, parts: Sequence[str]) -> bool:
    """Return True where a section has a key, which may be of a section in it."""
    if not parts or not isinstance(section, BaseModel):
        return True
    name, _, _ = parts[0].partition("[")
    if name not in type(section).model_fields:
        return False
    content = getattr(section, name)
    return _knows(content, parts[1:])


def check_rows(scenario: Scenario) -> None:
    """Raise ScenarioError where the file names neither row nor system.

    It does so in ``systems`` and ``accuracy``.
    """
    names = {*_variants(), *list_translatable()}
    trails = [("systems", name) for name in scenario.systems]
    if isinstance(scenario.accuracy, dict):
        trails += [("accuracy", name) for name in scenario.accuracy]
    for section, name in trails:
        if name not in names:
            hint = nearest(str(name), names)
            problem = f"no such row or system, {hint}"
            raise scenario.origin.error((section, name), problem)


def check_one_job(scenario: Scenario) -> None:
    """Raise ScenarioError where a scenario has several jobs: no system is its own."""
    if scenario.jobs:
        problem = "several jobs cannot be compared as systems, write one: job"
        raise scenario.origin.error(("jobs",), problem)


def as_system(
    scenario: Scenario,
    system: str,
    overrides: Mapping[str, object] | None = None,
    settings: Mapping[str, object] | None = None,
) -> Scenario:
    """Return a scenario as another system, with as many seeds per iteration.

    A system that trains on the whole graph has as many passes over it. ``overrides``
    are keys before it is translated, as for `load`, ``settings`` those of the system
    that it becomes. Raises ScenarioError when either cannot be translated, times are
    those of a profile, or the changed scenario is wrong; DataError when the data set is
    needed (for epochs, or the phases of P3) and is missing, or the profile is, or is of
    another job.
    """
    origin = scenario.origin  # with the lines of the file, which changes lose
    check_one_job(scenario)
    edit_before = {**(overrides or {}), **_OF_FILE}
    scenario = load(scenario, edit_before)
    if system not in list_translatable():
        variant_named(system)  # its error
    if scenario.job.system == system:
        return load(scenario, settings) if settings else scenario

    if problem := _problem_of_source(scenario.job.system):
        raise origin.error(("job", "system"), problem)
    if scenario.profile is not None:
        means = _mean_times(scenario)
        problem = "is of one system, to compare several write its means instead: "
        raise origin.error(("profile",), f"{problem}job.times={means}")

    target = translation_of(system)
    try:
        common = common_job(scenario, target)
        edit: Edit = {"job": {"system": system, **target.write(common)}}
        if scenario.placement.tasks:  # by names that the other's tasks do not have
            edit["placement"] = None
        edit.update(settings or {})
        return load(scenario, edit)
    except ScenarioError as error:
        # Of keys that no file has: the section was written here.
        is_of_section = error.file.startswith("job={")
        if error.file and not is_of_section:
            raise
        file = origin.document.file if origin.document else "the scenario"
        raise ScenarioError(
            error.problem, file=f"{file} as {system}", key=error.key
        ) from error


def _problem_of_source(source: str) -> str:
    """Return why files of a system are not translated, empty where they are."""
    sources = list_sources()
    if source in sources:
        return ""
    names = ", ".join(sources)
    if source in list_translatable():
        return (
            f"{source!r} says nothing of mini-batches: write the file of a system "
            f"that does, which is turned into all others: {names}"
        )
    return f"{source!r} is not among the systems that can be compared: {names}"


def translation_of(system: str) -> Translation:
    """Return how a system is written in the words of all."""
    make = cast("Callable[[], object]", systems()[system].translation)
    translation = make()
    if not isinstance(translation, Translation):
        found = type(translation).__name__
        raise EmulatorError(f"system {system}: its translation is a {found}")
    return translation


def read_job(job: JobSection, cluster: ClusterSection) -> Keys:
    """Return a job in common words; its file says all of them."""
    read = cast("Callable[..., Keys]", translation_of(job.system).read)
    return read(job, cluster)


def _mean_times(scenario: Scenario) -> str:
    """Return the mean times of a scenario's profile by kind, as ``job.times``."""
    job = build_job(scenario)
    section = cast("TrainingSection", scenario.job)
    profile = read_job_profile(scenario, job)
    kinds = [task.kind for task in job.tasks]
    means = []
    for kind in sorted(set(kinds)):
        rows = [task_kind == kind for task_kind in kinds]
        by_task = profile.times[rows].mean(axis=1)
        mean = float(by_task.mean())
        share = section.share(kind)
        # A key states the time of a whole mini-batch, which samplers share (A5).
        written_mean = DURATION.format(mean / share)
        means.append(f"{kind}: {written_mean}")

    all_means = ", ".join(means)
    return f"{{{all_means}}}"


def common_job(scenario: Scenario, target: Translation) -> CommonJob:
    """Return the job of a scenario in common words, as far as ``target`` uses them."""
    job = cast("TrainingSection", scenario.job)
    fields = job.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    same = {key: fields[key] for key in SAME_KEYS if key in fields}
    batches = job.iterations
    if batches is None:
        built = build_job(scenario)
        batches = built.settings.get("batches", built.iterations)
    # Epochs of another system may have other steps: steps are what all share.
    same["iterations"] = batches

    settings = _settings_of(scenario)
    epochs = 0
    if target.counts_epochs:  # passes that so many mini-batches begin
        seeds = seeds_per_iteration(settings) or 1
        steps = _steps_of_pass(settings, seeds)
        epochs = -(-batches // steps)
    times = job.times.by_kind()
    machines = scenario.cluster.build().machines
    # Dorylus has its parameter servers on the fastest of them.
    by_nic = sorted(machines, key=lambda machine: -machine.bandwidth_out)
    names = [name for name, _ in scenario.cluster.names_and_positions()]
    first_layer = _share_to_split(
        target,
        settings=settings,
        model=fields["model"],
        times=times,
    )
    return CommonJob(
        same=same,
        epochs=epochs,
        by_nic=tuple(machine.name for machine in by_nic),
        gpus=scenario.cluster.has_gpus,
        batch_size=job.batch_size,
        everywhere=tuple(names),
        stated=getattr(job, "machines", None),
        partitioner=getattr(job, "partitioner", "hash"),
        times=times,
        first_layer=first_layer,
        **read_job(job, scenario.cluster),
    )


def _share_to_split(
    target: Translation,
    settings: Settings,
    model: Settings,
    times: Settings,
) -> float:
    """Return the share of layer 1 where a worker's time has to be split, else 0."""
    by_phase = all(phase in times for phase in PHASES)
    # P3 takes no program, and says so itself.
    has_whole_time = "worker" in times and "hidden" in model
    if by_phase or not (target.splits_first_layer and has_whole_time):
        return 0.0
    return _first_layer_share(settings)


def _first_layer_share(settings: Settings) -> float:
    """Return the share of layer 1 in a forward pass, of one sampled mini-batch."""
    dataset = open_for(settings)
    plan = replace(BatchPlan.from_settings(settings), samplers=1)
    (counts,) = count_samples(dataset, plan, 1)
    layers = count_layers(
        settings["model"],
        feature_length=dataset.feature_length,
        classes=dataset.classes,
        counts=counts,
    )
    works = []
    for layer in layers:
        operations = layer.forward
        # A multiplication and an addition each.
        multiplications = 2 * operations["multiply"]
        work = multiplications + operations["aggregate"]
        works.append(float(work[0]))

    return works[0] / sum(works)


def edits(scenario: Scenario, translated: Scenario) -> dict[str, tuple[Any, Any]]:
    """Return key -> (what it was, what it is) of what a translation states otherwise.

    None where there is no such key, or one system has the default of a key of its own.
    Beside the keys stand the parameters of a layer where the models differ in these.
    """
    before = _keys_of(scenario)
    after = _keys_of(translated)
    stated_before = _keys_of(scenario, exclude_defaults=True)
    stated_after = _keys_of(translated, exclude_defaults=True)
    changes = {}
    for key in dict.fromkeys([*stated_before, *stated_after]):
        # A key is there where it is stated, or both have it and one states it.
        is_shared = key in before and key in after
        was = None
        now = None
        if is_shared or key in stated_before:
            was = before.get(key)
        if is_shared or key in stated_after:
            now = after.get(key)
        if was != now:
            changes[key] = (was, now)

    parameters_before = _list_parameters(scenario)
    parameters_after = _list_parameters(translated)
    if parameters_before != parameters_after:
        changes["parameters of a layer"] = (parameters_before, parameters_after)
    return changes


def _keys_of(scenario: Scenario, *, exclude_defaults: bool = False) -> Keys:
    """Return job and placement of a scenario by key."""
    content = scenario.model_dump(
        mode="json",
        include={"job", "placement"},
        exclude_none=True,
        exclude_defaults=exclude_defaults,
    )
    return flatten(content)


def _list_parameters(scenario: Scenario) -> list[str]:
    """Return names of a layer's parameters; empty for a program, which tells none."""
    section = scenario.job
    if isinstance(section, TrainingSection):
        # Its settings have it as it is; to build a job of 64 machines takes 0.1 s.
        kind = getattr(section.model, "kind", "")
    else:
        settings = _settings_of(scenario)
        model = settings.get("model", {})
        kind = model.get("kind", "")
    return [*PARTS.get(kind, ())]


def flatten(found: Settings, prefix: str = "") -> Keys:
    """Return nested values by the keys that lead to them, with dots between these."""
    flat: Keys = {}
    for key, value in found.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def write_rows(
    folder: Path, name: str, rows: Iterable[tuple[str, Mapping[int, Scenario]]]
) -> list[list[str]]:
    """Write the scenarios of a comparison, for ``emu simulate``; makes the folder.

    ``name`` is that of the scenario that they vary; a row has a name, and scenarios by
    seed. Returns the files of every row: those of further seeds end in ``-seedN``.
    Raises DataError when they cannot be written.
    """
    with disk_errors("cannot be made", folder):
        folder.mkdir(parents=True, exist_ok=True)

    files: list[list[str]] = []
    # Two rows may have names that are one when they are written as files.
    stems = Counter[str]()
    for row, scenarios in rows:
        row_part = row.replace(", ", "-")
        stem = f"{file_part(name)}-{file_part(row_part)}"
        stems[stem] += 1
        count_alike = stems[stem]
        if count_alike > 1:
            stem += f"-{count_alike}"
        files.append([])
        for count, (seed, scenario) in enumerate(scenarios.items()):
            suffix = f"-seed{seed}" if count else ""
            file = folder / f"{stem}{suffix}.yaml"
            write_scenario(file, scenario)
            files[-1].append(str(file))
    return files
