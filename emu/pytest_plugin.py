"""Pytest plugin: scenarios as tests.

``@pytest.mark.emu("scenario.yaml", sets={...}, makespan_error="1 %", trust="trusted")``
carries a scenario out before the test; the fixture ``emu_run`` is what it left. Keys of
``expect`` may be stated as arguments. Run directories lie in ``emu_runs`` (an option
of the ini file, ``runs`` by default) and stay only where a test failed.
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from emu.runs.recorded_run import RecordedRun
    from emu.scenario import Scenario

_RUN = pytest.StashKey["RecordedRun"]()
_PROBLEMS = pytest.StashKey[list[str]]()
_FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini option ``emu_runs``."""
    parser.addini("emu_runs", "directory of the runs of failed tests", default="runs")


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker."""
    config.addinivalue_line(
        "markers",
        "emu(scenario, sets={}, trust='trusted', **expect): run a scenario of emu",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a marked test carry its scenario out, also where it takes no fixture."""
    for item in items:
        names = item.fixturenames if isinstance(item, pytest.Function) else None
        if names is None or item.get_closest_marker("emu") is None:
            continue
        if "emu_run" not in names:
            names.append("emu_run")


@pytest.fixture
def emu_run(request: pytest.FixtureRequest) -> Iterator[RecordedRun]:
    """Carry the marked scenario out; return the run, and keep it if the test fails."""
    import emu

    scenario, trust = _stated(request)
    runs = Path(request.config.rootpath, request.config.getini("emu_runs"))
    run = emu.run(scenario, runs=runs)
    request.node.stash[_RUN] = run
    request.node.stash[_PROBLEMS] = _problems(scenario, run, trust)
    yield run
    if not request.node.stash.get(_FAILED, False):
        shutil.rmtree(run.path)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Fail a test whose run is not as its marker says, before its own lines."""
    if problems := item.stash.get(_PROBLEMS, []):
        pytest.fail("\n".join(problems), pytrace=False)


def _stated(request: pytest.FixtureRequest) -> tuple[Scenario, str]:
    """Return the scenario of the marker and the least trust."""
    import emu
    from emu.errors import EmulatorError
    from emu.scenario.shipped import shipped_scenarios

    marker = request.node.get_closest_marker("emu")
    if marker is None or len(marker.args) != 1:
        raise pytest.UsageError(
            "emu_run needs a scenario, write @pytest.mark.emu('scenario.yaml')"
        )
    options = dict(marker.kwargs)
    sets = dict(options.pop("sets", {}))
    trust = str(options.pop("trust", "trusted"))
    sets |= {f"expect.{key}": value for key, value in options.items()}
    name = str(marker.args[0])
    here = request.path.parent / name
    source = name if name in shipped_scenarios() and not here.exists() else here
    try:
        return emu.load(source, sets), trust
    except EmulatorError as error:
        raise pytest.UsageError(str(error)) from error


def _problems(scenario: Scenario, run: RecordedRun, trust: str) -> list[str]:
    from emu.analysis.verdict import Trust
    from emu.experiment.expectations import missed_expectations

    problems = missed_expectations(scenario, run.result)
    order = [str(level.value) for level in Trust]
    if trust not in order:
        raise pytest.UsageError(f"trust is {trust!r}, write one of {', '.join(order)}")
    verdict = run.result["verdict"]
    if order.index(verdict["trust"]) > order.index(trust):
        reasons = "; ".join(verdict["reasons"])
        problems.append(f"the run is {verdict['trust']}, expected {trust}: {reasons}")
    return problems


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the error budget and the run directory to the report of a failed test."""
    report = yield
    run = item.stash.get(_RUN, None)
    if run is not None and report.failed and report.when == "call":
        item.stash[_FAILED] = True
        report.sections.append(("emu", _told(run)))
    return report


def _told(run: RecordedRun) -> str:
    from emu.report.run_tables import budget_table, headline
    from emu.report.terminal import terminal

    text = io.StringIO()
    console = terminal(text)
    console.print(headline(run.result))
    if any(run.result["error_budget"].values()):
        console.print(budget_table(run.result))
    console.print(f"run directory: {run.path}", soft_wrap=True)
    return text.getvalue()
