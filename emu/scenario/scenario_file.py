"""From a file to a checked scenario, or to every error in it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML

from emu.errors import NodeLost, PlacementError, ScenarioError, ScenarioErrors
from emu.host.files import write_atomic
from emu.host.foreign_code import CodeWithheld, code_of_others
from emu.host.input_file import one_error
from emu.host.interruption import say
from emu.host.limits import are_large, large_files
from emu.names import printable
from emu.problem.fields.section import Trail
from emu.problem.fields.suggestion import nearest
from emu.scenario import workload_file
from emu.scenario.consistency import (
    BUILT_JOB,
    Found,
    misspelt_keys,
    scenario_errors,
)
from emu.scenario.document import (
    Data,
    Document,
    Overrides,
    Source,
    collect_seldom,
    parse_document,
    read_document,
    values_in,
)
from emu.scenario.error_messages import MISSING, describe, either, trail_of, with_system
from emu.scenario.events_section import event_errors
from emu.scenario.experiment import prepare
from emu.scenario.overrides import apply_overrides
from emu.scenario.own_rules import is_program, rule_problem
from emu.scenario.preparation_errors import preparation_errors
from emu.scenario.program_texts import Texts, list_noted_texts, read_program, read_rule
from emu.scenario.run_sections import LabFile, name_errors
from emu.scenario.scenario import Scenario
from emu.scenario.topologies import expand_topology
from emu.systems import Problems
from emu.systems.package_faults import name_package

_PACKAGE = Path(__file__).resolve().parents[1]
#: File of a lab in its folder, beside the programs that it runs.
LAB = "lab.yaml"
#: Name of the file with the job of a virtual run, in its run directory.
RECORDED_JOB = "job.json"
#: The scenario of another run, in its run directory.
_SCENARIO_OF_RUN = "scenario.txt"
_NONE: Texts = {}
#: Values that are paths.
_MODEL: Trail = ("job", "model")
_OF_JOBS: tuple[Trail, ...] = (
    ("job", "dataset", "directory"),
    (*_MODEL, "program"),
)

#: Keys of a lab file; a scenario has others beside them.
LAB_KEYS = ("cluster", "lab", "events")
#: Errors of one file that are described; whoever has more mends these first.
_MOST_ERRORS = 200

#: What stands in for a section that is wrong, while the others are looked at.
_TASKS = [{"name": "t", "time": "0 s"}]
_STAND_INS: Data = {
    "cluster": {"machines": [{"nic": "1 B/s"}]},
    "job": {"system": "custom", "iterations": 1, "tasks": _TASKS},
}


def _list_shipped(folder: str, pattern: str) -> list[Path]:
    """Return files that lie in the package of a wheel, or beside that of a checkout."""
    inside = _PACKAGE / f"shipped_{folder}"
    home = _PACKAGE.parent / folder
    if inside.is_dir():
        home = inside
    return sorted(home.glob(pattern))


def list_scenarios() -> dict[str, Path]:
    """Return name -> file of every scenario that ships with emu, sorted."""
    files = _list_shipped("scenarios", "*.yaml")
    return {file.stem: file for file in files}


def list_labs() -> dict[str, Path]:
    """Return name -> file of every lab that ships with emu, sorted."""
    files = _list_shipped("scenarios", f"*/{LAB}")
    return {file.parent.name: file for file in files}


def list_documents() -> dict[str, Path]:
    """Return name -> file of every document that ships with emu, sorted."""
    documents: dict[str, Path] = {}
    for pattern in ("*.md", "contributing/*.md"):
        for file in _list_shipped("docs", pattern):
            documents[file.stem] = file
    return dict(sorted(documents.items()))


def has_recorded_job(path: Path) -> bool:
    """Return True of the run directory of a virtual run, which is no emulated one."""
    return (path / RECORDED_JOB).is_file()


def locate(source: str | Path) -> Path:
    """Return the file that is meant: a path, or the name of a shipped scenario or lab.

    A file of that name in the working directory comes first, as does a folder with a
    lab in it, or the run directory of a virtual run, of which its job is meant.

    Raises ScenarioError when ``source`` is a bare name, and neither a file nor a
    scenario is called so, or is no path at all.
    """
    if not isinstance(source, str | os.PathLike):
        raise _wrong_source(
            source,
            "the path of a file or the name of a scenario; of a text "
            "write emu.loads(TEXT)",
        )
    path = Path(source)
    if (path / LAB).is_file():
        return path / LAB
    if has_recorded_job(path):
        return path / RECORDED_JOB
    # What looks like a file is meant as one, even if it is missing: reading it says so.
    stands_alone = path.parent == Path()
    is_bare_name = stands_alone and not path.suffix
    if path.is_file() or not (is_bare_name or path.is_dir()):
        return path

    names = list_scenarios() | list_labs()
    if is_bare_name and path.name in names:
        return names[path.name]
    if path.is_dir():
        raise ScenarioError(_folder_problem(path), file=str(source))
    suggestion = nearest(path.name, names)
    problem = (
        "there is no such file; of the scenarios that ship with emu, " + suggestion
    )
    raise ScenarioError(problem, file=str(source))


def _folder_problem(path: Path) -> str:
    """Return what is wrong with a folder that has neither a lab nor a virtual run."""
    scenario = path / _SCENARIO_OF_RUN
    if scenario.is_file():
        return f"is the directory of a run, whose scenario is {scenario}"
    return f"is a folder without a {LAB}: name a file"


def _wrong_source(found: object, right: str) -> ScenarioError:
    excerpt = printable(repr(found), limit=60)
    return ScenarioError(f"found {excerpt}, write {right}")


def load(
    source: str | Path | Scenario,
    overrides: Overrides = (),
    *,
    timed: bool = True,
    large: bool = False,
) -> Scenario:
    """Return a scenario, with some of its keys replaced.

    Parameters
    ----------
    source
        A YAML or JSON file, the name of a scenario that ships with emu (``golden``), or
        a scenario that is loaded already.
    overrides
        ``{"cluster.machines[0].nic": "25 Gbit/s"}``, or a list of ``key.key=value`` as
        ``--set`` takes them, values read as YAML; applied in order, those of single
        machines, links and racks last. None takes the key away, so that its default
        holds.
    timed
        Whether every kind of task needs a time or a profile.
    large
        Lifts the limits that hold for files of strangers, for one of one's own: of
        size, values, edges, flows. A line says how much memory it will take.

    Raises
    ------
    ScenarioError
        With every error that shows before data are opened or tasks placed: file, line,
        key, what was found, what would be right.
    """
    if isinstance(source, Scenario):
        # Its paths were resolved when it was read: they are from here, not from its
        # folder.
        content = source.to_json()
        stated = Document(source.name, content)
        document = _apply_changes(stated, overrides, Path())
        return _good(document, timed=timed)

    tell = say if large else None
    with large_files(tell), collect_seldom(), _errors_of(source):
        document = _read(source, overrides)
        return _good(document, timed=timed)


def load_unbuilt(source: Scenario, overrides: Overrides) -> Scenario:
    """Return a scenario as `load`, of which only the built job would show some errors.

    A job of 64 machines takes 0.1 to 0.5 s to build, its keys 0.01 s to check.
    """
    stated = Document(source.name, source.to_json())
    document = _apply_changes(stated, overrides, Path())
    return _good(document, built=False)


@contextlib.contextmanager
def _errors_of(source: str | Path) -> Iterator[None]:
    """Make any error of reading a file one of that scenario, or of a package."""
    make_error = partial(ScenarioError, file=str(source))
    error_of_file = one_error(source, make_error)
    with error_of_file, name_package():
        yield


def load_lab(source: str | Path, overrides: Overrides = ()) -> LabFile:
    """Return the machines and programs of a lab file; a scenario's cluster will do.

    Raises ScenarioError for every error of the file: file, line, key, what was found,
    what would be right.
    """
    with _errors_of(source):
        document = _read(source, overrides)
        content = document.data
        data = {key: content[key] for key in LAB_KEYS if key in content}
        # Without ``lab``, which is refused there: scenarios may not have it.
        machines = dict(data)
        machines.pop("lab", None)
        problems = list(misspelt_keys(machines))
        # The cluster of a scenario will do, whose other keys are right where they are.
        if not _states_job(content):
            for key in content:
                if key not in LAB_KEYS and key != "name":
                    trail: Trail = (key,)
                    suggestion = nearest(key, LAB_KEYS)
                    problems.append((trail, f"unknown key {key!r}, {suggestion}"))

        try:
            file = LabFile.model_validate(data)
        except ValidationError as caught:
            problems += _describe_errors(caught, data, problems)
        else:
            problems += name_errors(file)
            problems += event_errors(file.events, file.cluster)
            if not problems:
                file.read_from(document)
                return file
        errors = _locate_errors(document, problems)
        raise _as_error(errors)


def _states_job(data: Data) -> bool:
    return "job" in data or "jobs" in data


def is_lab(source: str | Path, overrides: Overrides = ()) -> bool:
    """Return True where a file states a lab and no job.

    Raises ScenarioError when it cannot be read or parsed at all.
    """
    with _errors_of(source):
        document = _read(source, overrides)
    return "lab" in document.data and not _states_job(document.data)


def loads(
    text: str,
    overrides: Overrides = (),
    *,
    name: str = "scenario",
    timed: bool = True,
    large: bool = False,
) -> Scenario:
    """Return the scenario that ``text``, YAML or JSON, describes.

    ``overrides``, ``timed``, ``large``: as in `load`. ``name``: what the scenario is
    called in errors, and where it does not name itself. Raises ScenarioError as `load`.
    """
    if not isinstance(text, str):
        raise _wrong_source(text, "the text of a scenario")
    tell = say if large else None
    with large_files(tell), _errors_of(name):
        stated = parse_document(text, name)
        document = _apply_changes(stated, overrides, Path())
        return _good(document, timed=timed)


def write_scenario(path: Path, scenario: Scenario) -> None:
    """Write a scenario whole or not at all: as YAML, or JSON where it is named so.

    Raises DataError when it cannot be written.
    """
    content = scenario.to_json()
    if path.suffix == ".json":
        write_atomic(path, json.dumps(content, indent=1) + "\n")
        return
    text = io.StringIO()
    YAML().dump(content, text)
    write_atomic(path, text.getvalue())


def load_again(source: Source, noted: object = None) -> Scenario:
    """Return a scenario from its text, overrides and folder, as `load` did.

    ``noted``: the scenario as a run noted it: rules and models of which it has the text
    are not looked for in files, which may have gone. Raises ScenarioError as `load`.
    """
    # Its memory was said when it was read first.
    silent = _say_nothing if source.large else None
    with large_files(silent), _errors_of(source.file):
        stated = parse_document(source.text, source.file)
        texts = dict(list_noted_texts(noted))
        folder = Path(source.folder)
        document = _apply_changes(
            document=stated,
            overrides=source.overrides,
            folder=folder,
            noted=texts,
        )
        return _good(document)


def _say_nothing(_: str) -> None:
    """Say nothing of what was said before, or that nobody asked for."""


def _good(document: Document, *, timed: bool = True, built: bool = True) -> Scenario:
    scenario, errors = _check_document(document, timed=timed, built=built)
    if scenario is None or errors:
        raise _as_error(errors)
    scenario.read_from(document)
    return scenario


def _as_error(errors: list[ScenarioError]) -> ScenarioError:
    if len(errors) == 1:
        return errors[0]
    return ScenarioErrors(errors)


def _deaths(scenario: Scenario) -> Problems:
    """Yield the death that ends a job for good, which only simulating it tells.

    Nothing where that needs training, or code of others.
    """
    is_killed = any(event.kill for event in scenario.events)
    if scenario.until is not None or not scenario.states_deaths:
        return

    try:
        # A check asks nobody whether programs may run.
        with code_of_others(runs=False, tell=_say_nothing):
            experiment = prepare(scenario)
            experiment.attempts()
    except CodeWithheld:
        return
    except (NodeLost, ScenarioError) as error:
        # That code may not run in a check is no error of the file.
        if not isinstance(error.__cause__, CodeWithheld):
            key = "events" if is_killed else "failures"
            yield (key,), str(error)
    except PlacementError as error:
        steps = error.key.split(".")
        # The key goes into the error again where this is located.
        problem = str(error).removeprefix(f"{error.key}: ")
        yield tuple(steps), problem


def find_errors(path: str | Path, overrides: Overrides = ()) -> list[ScenarioError]:
    """Return every error of a file, in the order of its lines; none if it is good.

    Beyond `load` this finds data and profiles that are not there, that no placement
    exists, and that a death ends the job: what simulating the scenario would fail with,
    but for ``until``, which only training tells. Of code of others it looks at the text
    alone: nothing of it is run or imported. Raises ScenarioError when it cannot be read
    or parsed at all.
    """
    with _errors_of(path):
        document = _read(path, overrides)
        scenario, errors = _check_document(document)
        # All that follows builds the job, which wrong keys would fail in their own way.
        if scenario is None or errors:
            return errors

        problems: list[Found] = []
        section = scenario.schedule
        if is_program(section.policy):
            problem = rule_problem(section.policy, section.source)
            if problem:
                trail = ("schedule", "policy")
                problems.append((trail, f"{section.rule}: {problem}"))
        problems += preparation_errors(scenario)
        # Deaths are simulated, which needs a scenario with nothing else wrong.
        if not problems:
            problems += _deaths(scenario)
        return _locate_errors(document, problems)


def _check_document(
    document: Document,
    *,
    timed: bool = True,
    built: bool = True,
) -> tuple[Scenario | None, list[ScenarioError]]:
    data = document.data
    problems = list(misspelt_keys(data))
    scenario: Scenario | None = None
    try:
        scenario = Scenario.model_validate(data)
    except ValidationError as caught:
        problems += _describe_errors(caught, data, problems)

    wrong = {str(trail[0]) for trail, _ in problems if trail}
    # ``job`` is then a stand-in, and nothing that is found in it would be the file's.
    if "jobs" in wrong:
        wrong.add("job")
        # Where jobs are stated, and wrong, the file lacks no job beside them.
        problems = [row for row in problems if row[0] != ("job",) or "job" in data]
    subject = scenario or _without_sections(data, wrong)
    if subject is not None:
        left_out = wrong if built else {*wrong, BUILT_JOB}
        problems += scenario_errors(subject, left_out, timed=timed)
    return scenario, _locate_errors(document, problems)


def _without_sections(data: Data, wrong: Collection[str]) -> Scenario | None:
    """Return the scenario with defaults or stand-ins for sections that are wrong."""
    rest = {key: data[key] for key in data if key not in wrong}
    # So that one wrong section does not hide what is wrong with others.
    stand_ins = {"name": "partial", **_STAND_INS}
    if "jobs" in rest:
        del stand_ins["job"]
    with contextlib.suppress(ValidationError):
        return Scenario.model_validate(stand_ins | rest)
    return None


def _read(source: str | Path, overrides: Overrides) -> Document:
    path = locate(source)
    document = read_document(path)
    return _apply_changes(document, overrides, path.parent)


def _apply_changes(
    document: Document,
    overrides: Overrides,
    folder: Path,
    noted: Texts = _NONE,
) -> Document:
    """Return the document with its overrides; its paths are relative to ``folder``.

    ``noted``: texts of programs that are not read of their files.
    """
    source = Source(
        text=document.text,
        file=document.file,
        folder=str(folder),
        overrides=overrides,
        large=are_large(),
    )
    content = document.data
    is_workload = content.keys() >= workload_file.WORKLOAD_KEYS
    if is_workload:
        document = workload_file.workload_document(document)

    def decides_machines(trail: Trail) -> bool:
        return not _of_machines(trail)

    # First what decides which machines there are, then changes of single ones.
    apply_overrides(document, overrides, decides_machines)
    _drop_nulls(document.data)
    # Twice: a topology may stand beside no key that null takes away, and changes of
    # machines come after it.
    data = document.data
    expand_topology(document, folder)
    apply_overrides(document, overrides, _of_machines)
    _drop_nulls(data)
    # Behind the overrides: which makespan holds depends on policy and iterations.
    if is_workload:
        workload_file.expect_listed_makespan(data, content)
    if data.get("name") is None:
        path = Path(document.file)
        data["name"] = path.stem

    _resolve_paths(document, folder, noted)
    read_rule(document, folder, noted)
    # Without text it was a scenario already: nothing to read again.
    document.source = source if source.text else None
    return document


def _resolve_paths(document: Document, folder: Path, noted: Texts) -> None:
    """Make paths of the file ones from here, and read the texts of model programs."""
    data = document.data
    jobs = data.get("jobs")
    places: list[Trail] = [()]
    if isinstance(jobs, list):
        count = len(jobs)
        places += [("jobs", position) for position in range(count)]
    for place_of_job in places:
        for trail in _OF_JOBS:
            trail_of_path = (*place_of_job, *trail)
            document.resolve_path(trail_of_path, folder)
        model: Trail = (*place_of_job, *_MODEL)
        read_program(document, model, noted)

    document.resolve_path(("profile",), folder)
    document.resolve_path(("accuracy",), folder)
    curves = data.get("accuracy")
    if isinstance(curves, dict):
        for row in curves:
            document.resolve_path(("accuracy", row), folder)


def _of_machines(trail: Trail) -> bool:
    """Return True for places in the lists that a topology stands for."""
    return trail[0] == "cluster" and len(trail) > 2


def _drop_nulls(data: Any) -> None:
    """Remove keys without a value, so that ``--set key=null`` means the default."""
    if isinstance(data, dict):
        for key, value in list(data.items()):
            if value is None:
                del data[key]
    for value in values_in(data):
        if isinstance(value, dict | list):
            _drop_nulls(value)


def _describe_errors(
    caught: ValidationError,
    data: object,
    misspelt: list[Found],
) -> list[Found]:
    """Return the validation errors in our words, without those that only follow."""
    problems: dict[Trail, str] = {}
    first_errors = caught.errors()[:_MOST_ERRORS]
    for error in first_errors:
        error["loc"] = with_system(error["loc"], data)
        trail = trail_of(error, data)
        known_problem = problems.get(trail, "")
        problem = describe(error)
        problems[trail] = either(known_problem, problem)

    _keep_deepest(problems)
    for trail, _ in misspelt:
        problems.pop(trail, None)
    # Of a misspelt key the right one is missing as well: the first says it all.
    for trail, problem in list(problems.items()):
        match = re.fullmatch(r"unknown key .*, did you mean '(.*)'\?", problem)
        if match is None:
            continue
        right_trail = (*trail[:-1], match[1])
        right_problem = problems.get(right_trail, "")
        if right_problem.startswith(MISSING):
            del problems[right_trail]
    return list(problems.items())


def _keep_deepest(problems: dict[Trail, str]) -> None:
    """Remove what is said of a value as a whole where a part of it is wrong.

    It may be of several types, and is meant to be of the one that goes so far.
    """
    for trail in list(problems):
        depth = len(trail)
        if any(len(other) > depth and other[:depth] == trail for other in problems):
            del problems[trail]


def _locate_errors(document: Document, found: Iterable[Found]) -> list[ScenarioError]:
    def order(error: ScenarioError) -> tuple[bool, int]:
        # A key that is missing is often there, misspelt: the unknown one says more.
        return error.problem.startswith(MISSING), error.line

    errors = [document.error(trail, problem) for trail, problem in found]
    errors.sort(key=order)
    return errors
