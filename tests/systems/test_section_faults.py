"""Sections and records of packages that are wrong: one error says whose and why."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

import pytest
from typer.testing import CliRunner
from typing_extensions import override

from emu.cli import app, scenario_commands
from emu.errors import EmulatorError
from emu.experiment import systems as translations
from emu.problem import Job
from emu.problem.fields.quantities import Count
from emu.scenario import load, prepare
from emu.systems import package_faults, system
from emu.systems.custom.section import CustomJobSection
from emu.systems.job_section import BuildContext, JobSection
from emu.systems.section_faults import problems_of, section_problem


class _Keyless(JobSection):
    @override
    def build(self, context: Any) -> Any:
        """Build nothing."""

    @override
    def realize(self, job: Any, context: Any, cluster: Any, measured: Any) -> Any:
        """Realize nothing."""


class _Sound(_Keyless):
    system: Literal["mine"]
    iterations: Count = 1
    credit_window: Count = 1


class _Timeless(_Keyless):
    system: Literal["mine"]
    credit_window: Count = 1


class _Unbuilt(JobSection):
    system: Literal["mine"]
    iterations: Count = 1
    credit_window: Count = 1


class _Narrow(_Sound):
    @override
    def build(self) -> Any:  # type: ignore[override]
        """Take no context."""


class _OfTwoSystems(_Sound):
    system: Literal["other", "mine"]  # type: ignore[assignment]


class _Selfless(_Sound):
    @classmethod
    @override
    def build(cls, context: Any) -> Any:
        """Build nothing, of the class."""

    @staticmethod
    @override
    def realize(job: Any, context: Any, cluster: Any, measured: Any) -> Any:
        """Take neither a job nor what else realizing needs."""


class _SelflessAndNarrow(_Sound):
    @classmethod
    @override
    def build(cls) -> Any:  # type: ignore[override]
        """Take no context."""


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        (_Sound, ""),
        (_OfTwoSystems, ""),
        (_Selfless, ""),
        (_SelflessAndNarrow, "has build()"),
        (None, "None is no subclass of emu.systems.job_section.JobSection"),
        (int, "int is no subclass of"),
        (_Keyless, "has no key system: write system: Literal['mine']"),
        (_Timeless, "has no key iterations"),
        (_Unbuilt, "has no method build"),
        (_Narrow, "has build(self)"),
    ],
)
def test_a_class_that_is_no_section_says_why(section: object, problem: str) -> None:
    found = section_problem(section, "mine")
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


def test_a_section_of_another_system_says_which_word_it_takes() -> None:
    assert "write system: Literal['yours']" in section_problem(_Sound, "yours")


def test_sections_that_ship_are_sound() -> None:
    for name, record in system.systems().items():
        assert section_problem(record.section(), name) == ""


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (None, "returns a NoneType"),
        ([("job.page", "is wrong")], "write a tuple of keys"),
        ([("job", "page", "is wrong")], "write a tuple of keys"),
        ([(("job", "page"), 5)], "write a tuple of keys"),
    ],
)
def test_an_answer_that_names_no_problem_names_its_system(
    answer: object, problem: str
) -> None:
    section: Any = SimpleNamespace(system="mine", problems=lambda _: answer)
    cluster: Any = None
    with pytest.raises(EmulatorError, match=f"system mine: problems .*{problem}"):
        list(problems_of(section, cluster))


def test_what_is_no_job_or_realization_names_its_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = load("golden", {"expect": None})
    with monkeypatch.context() as patch:
        patch.setattr(CustomJobSection, "realize", lambda *_: ([], []))
        with pytest.raises(EmulatorError, match="custom realizes a tuple, no Realiz"):
            prepare(scenario)
    monkeypatch.setattr(CustomJobSection, "build", lambda *_: None)
    with pytest.raises(EmulatorError, match="custom builds a NoneType, no Job"):
        load("golden", {"expect": None, "job.iterations": 2})


def test_what_is_no_translation_names_its_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = SimpleNamespace(translation=lambda: None)
    monkeypatch.setattr(translations, "systems", lambda: {"mine": record})
    with pytest.raises(EmulatorError, match="mine: its translation is a NoneType"):
        translations.translation_of("mine")


def test_a_record_whose_field_is_no_mapping_is_refused() -> None:
    words: Any = ["pages"]
    with pytest.raises(TypeError, match=r"System\.carries is no mapping but a list"):
        system.System("mine", lambda: _Sound, carries=words)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"carries": {"source->reader": "pages"}}, r"carries has 'source->reader': "),
        ({"carries": {("a", "b", "c"): "pages"}}, r"carries has \('a', 'b', 'c'\): "),
        ({"carries": {("a", "b"): 3}}, r"carries has .* write \(kind of source, "),
        ({"programs": {"reader": "emu_relay.program"}}, "write kind of task: 'module"),
        ({"programs": {1: "emu_relay.program:Relay"}}, "programs has 1: "),
    ],
)
def test_a_record_with_an_entry_that_nobody_looks_up_is_refused(
    fields: Any, problem: str
) -> None:
    with pytest.raises(TypeError, match=problem):
        system.System("mine", lambda: _Sound, **fields)


def test_a_job_that_does_not_name_its_system_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build = CustomJobSection.build

    def build_nameless(section: CustomJobSection, context: BuildContext) -> Job:
        job = build(section, context)
        return replace(job, settings={"seed": 1})

    monkeypatch.setattr(CustomJobSection, "build", build_nameless)
    with pytest.raises(EmulatorError, match=r"a Job whose .* None: write"):
        load("golden", {"expect": None, "job.iterations": 2})


def _point(package: str, value: str = "emu_mine:MINE", record: object = None) -> Any:
    """Return an entry point that a package brings, and that loads a record."""
    return SimpleNamespace(
        name="mine",
        value=value,
        group=system.GROUP,
        dist=SimpleNamespace(name=package),
        load=lambda: record,
    )


def test_two_packages_with_systems_of_one_name_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = system.System("mine", lambda: _Sound)
    points = [_point("emu-first", record=record), _point("emu-second", record=record)]
    monkeypatch.setattr(system, "entry_points", lambda **_: points)
    monkeypatch.setattr(system, "sorted", list, raising=False)
    with pytest.raises(EmulatorError, match=r"emu-second brings: .* emu-first "):
        system.systems.__wrapped__()


@pytest.mark.parametrize("value", ["", "a b c"])
def test_an_entry_point_that_names_no_module_says_whose_it_is(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [_point("emu-first", value)]
    monkeypatch.setattr(system, "entry_points", lambda **_: points)
    with pytest.raises(EmulatorError, match="emu-first brings: is no MODULE:NAME"):
        system.systems.__wrapped__()


def test_a_record_that_ends_the_process_is_an_error_of_its_entry_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load_record() -> None:
        raise SystemExit(3)

    point = _point("emu-first")
    point.load = load_record
    monkeypatch.setattr(system, "entry_points", lambda **_: [point])
    with pytest.raises(EmulatorError, match=r"mine = emu_mine:MINE .* SystemExit: 3"):
        system.systems.__wrapped__()


@pytest.mark.parametrize("code", ["{}['page']", "open('/no')", "exit(0)"])
def test_a_command_names_the_package_that_raises(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("emu_other.section")
    exec(f"def schema():\n    return {code}\n", module.__dict__)  # noqa: S102
    packages = {"emu_other": "other, which emu-other brings,"}
    monkeypatch.setattr(package_faults, "_packages", lambda: packages)
    monkeypatch.setitem(sys.modules, "emu_other.section", module)
    monkeypatch.setattr(scenario_commands, "file_schema", module.schema)

    ended = CliRunner().invoke(app, ["schema"])

    (line,) = ended.stderr.splitlines()
    if code.startswith("open"):  # whose file is named is right as it is
        assert line == "emu: /no: No such file or directory"
    else:
        assert ended.exit_code == 1
        assert line.startswith(
            "emu: system other, which emu-other brings, has an error"
        )


def test_a_module_without_its_name_is_blamed_by_who_reads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module: Any = ModuleType("emu_other.section")
    packages = {"emu_other": "other, which emu-other brings,"}
    monkeypatch.setattr(package_faults, "_packages", lambda: packages)
    with (
        pytest.raises(EmulatorError, match="other, which emu-other brings"),
        package_faults.name_package(),
    ):
        _ = module.TRANSLATION


def test_code_that_ends_the_process_is_an_error_of_its_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module: Any = ModuleType("emu_other.section")
    exec("def build():\n    raise SystemExit(0)\n", module.__dict__)  # noqa: S102
    packages = {"emu_other": "other, which emu-other brings,"}
    monkeypatch.setattr(package_faults, "_packages", lambda: packages)
    problem = "other, which emu-other brings, has an error .* SystemExit: 0"
    with (
        pytest.raises(EmulatorError, match=problem),
        package_faults.name_package(),
    ):
        module.build()
