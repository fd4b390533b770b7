"""Pytest plugin: scenarios as tests.

``@pytest.mark.emu("scenario.yaml", sets={...}, makespan_error="1 %", trust="trusted")``
carries a scenario out before the test; the fixture ``emu_run`` is what it left. Keys of
``expect`` may be stated as arguments. Run directories lie in ``emu_runs`` (an option
of the ini file, ``runs`` by default) and stay only where a test failed.

A busy host makes no red test: where it took the trust of a run away, or was busy with
other programs while a test marked ``emu_retry`` failed, the test is carried out anew,
twice at most, and then skipped as inconclusive (failed with ``--emu-strict``).
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from _pytest.runner import runtestprotocol

if TYPE_CHECKING:
    from emu.runs.recorded_run import RecordedRun
    from emu.scenario import Scenario

_ATTEMPT = pytest.StashKey["_Attempt"]()
_MARKS = ("emu", "emu_retry")
#: How often a test is carried out at most, and wall seconds after which no more.
_ATTEMPTS = 3
_PATIENCE = 60.0
#: Share of the cores that other programs use, from which on a host counts as busy: a
#: choice between what a desktop's services take and half a core of two.
_OTHERS = 0.1
_INCONCLUSIVE = "inconclusive: the host was too busy"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini option ``emu_runs`` and what to do about a busy host."""
    parser.addini("emu_runs", "directory of the runs of failed tests", default="runs")
    group = parser.getgroup("emu")
    group.addoption(
        "--emu-strict",
        action="store_true",
        help="fail what is inconclusive because the host was too busy",
    )
    group.addoption(
        "--emu-inconclusive",
        metavar="SHARE",
        help="fail if more of the marked tests are inconclusive, such as 10%%",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Describe the markers."""
    config.addinivalue_line(
        "markers",
        "emu(scenario, sets={}, trust='trusted', **expect): run a scenario of emu",
    )
    config.addinivalue_line(
        "markers", "emu_retry: what a busy host makes fail is tried again"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the scenario of a marked test also where the test does not ask for it."""
    for item in items:
        if item.get_closest_marker("emu") is not None:
            names: list[str] = getattr(item, "fixturenames", [])
            if "emu_run" not in names:
                names.append("emu_run")


@pytest.fixture
def emu_run(request: pytest.FixtureRequest) -> Iterator[RecordedRun]:
    """Carry the marked scenario out; return the run, and keep it if the test fails."""
    # Imported late, as below: pytest loads this plugin for tests of others, too.
    import emu
    from emu.errors import DataError, PlacementError, ScenarioError

    scenario, trust = _scenario_of_marker(request)
    runs = Path(request.config.rootpath, request.config.getini("emu_runs"))
    try:
        run = emu.run(scenario, runs=runs)
    except (ScenarioError, DataError, PlacementError) as error:
        # The message names the key: a traceback through emu would only hide it.
        raise pytest.fail.Exception(f"emu: {error}", pytrace=False) from None
    verdict = run.result["verdict"]
    request.node.user_properties += [
        ("emu_makespan", run.makespan),
        ("emu_verdict", verdict["trust"]),
    ]

    from emu.experiment.expectations import find_misses, punctual
    from emu.trust.verdict import Trust

    attempt = request.node.stash[_ATTEMPT]
    attempt.run = run
    attempt.problems = find_misses(scenario.expect, run.result)
    # Judged once more as if nothing had been late: what is met then, lateness has
    # spoiled.
    attempt.by_host = not find_misses(scenario.expect, punctual(run.result))
    # Levels stand from best to worst.
    order = [*Trust]
    if order.index(Trust(verdict["trust"])) > order.index(Trust(trust)):
        reasons = "; ".join(verdict["reasons"])
        problem = f"the run is {verdict['trust']}, expected {trust}: {reasons}"
        attempt.problems.append(problem)
    yield run
    if not attempt.failed:
        attempt.remove_run()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Any:
    """Carry out a marked test, again where the host made it fail."""
    # Without a mark pytest's own protocol goes on; with one, True ends it.
    if not any(map(item.get_closest_marker, _MARKS)):
        return None
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = _attempt_until_quiet(item, nextitem)
    for report in reports:
        if item.stash[_ATTEMPT].busy and report.failed:
            _call_inconclusive(item, report, reports)
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _attempt_until_quiet(
    item: pytest.Item, nextitem: pytest.Item | None
) -> list[pytest.TestReport]:
    """Return the reports of the last attempt: one that no busy host has failed."""
    reports: list[pytest.TestReport] = []
    deadline = time.monotonic() + _PATIENCE
    for _ in range(_ATTEMPTS):
        if _ATTEMPT in item.stash:  # undo it, with fixtures that ran beside
            with contextlib.suppress(Exception):
                item.session._setupstate.teardown_exact(None)  # noqa: SLF001 - no other way
            item.stash[_ATTEMPT].remove_run()
            _drop_properties(item)
        item.stash[_ATTEMPT] = _Attempt()
        # Not logged yet: what fails may be carried out anew.
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if not item.stash[_ATTEMPT].busy or time.monotonic() > deadline:
            break

    return reports


def _call_inconclusive(
    item: pytest.Item,
    report: pytest.TestReport,
    reports: list[pytest.TestReport],
) -> None:
    """Make a skipped test of one that a busy host has failed, unless told otherwise."""
    text = f"{_INCONCLUSIVE}: {item.stash[_ATTEMPT].busy}"
    if item.config.getoption("emu_strict"):
        report.sections.append(("emu", text))
        return
    item.stash[_ATTEMPT].remove_run()
    # An inconclusive test must leave no makespan in tables made of the report.
    for phase in reports:
        _drop_properties(phase)
    path, line, _ = item.location
    report.outcome = "skipped"
    report.longrepr = (path, (line or 0) + 1, text)


def _drop_properties(owner: pytest.Item | pytest.TestReport) -> None:
    """Take the properties of an attempt off again."""
    owner.user_properties = [
        (name, value)
        for name, value in owner.user_properties
        if not name.startswith("emu_")
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Fail a test whose run is not as its marker says, before its own lines."""
    # Here and not in the fixture, where a failure would count as an error of setup.
    attempt = item.stash.get(_ATTEMPT, None)
    if attempt is not None and attempt.problems:
        pytest.fail("\n".join(attempt.problems), pytrace=False)


def _scenario_of_marker(request: pytest.FixtureRequest) -> tuple[Scenario, str]:
    """Return the scenario of the marker and the least trust."""
    import emu
    from emu.errors import EmulatorError
    from emu.problem.fields.suggestion import nearest
    from emu.scenario.run_sections import ExpectSection
    from emu.scenario.scenario_file import list_scenarios
    from emu.trust.verdict import Trust

    marker = request.node.get_closest_marker("emu")
    options = {} if marker is None else dict(marker.kwargs)
    names = [*marker.args] if marker else []
    if "scenario" in options:
        names.append(options.pop("scenario"))
    if len(names) != 1:
        _refuse("emu_run needs a scenario, write @pytest.mark.emu('scenario.yaml')")
    sets = options.pop("sets", {})
    trust = options.pop("trust", "trusted")
    if not hasattr(sets, "items"):
        _refuse(f"sets is {sets!r}, write for example sets={{'job.iterations': 20}}")
    levels = [str(level) for level in Trust]
    if trust not in levels:
        _refuse(f"trust is {trust!r}, {nearest(str(trust), levels)}")
    keys = [*ExpectSection.model_fields, "sets", "trust"]
    for key in options:
        if key not in keys:
            _refuse(f"unknown key {key!r}, {nearest(key, keys)}")

    folder = request.path.parent
    name = str(names[0])
    source: str | Path = folder / name
    if not Path(source).exists():
        source = name
        scenarios = list_scenarios()
        if name not in scenarios:
            files = [path.name for path in sorted(folder.glob("*.yaml"))]
            _refuse(f"no scenario {name!r}, {nearest(name, [*files, *scenarios])}")
    expectations = {f"expect.{key}": value for key, value in options.items()}
    try:
        return emu.load(source, {**sets, **expectations}), trust
    except EmulatorError as error:
        line = f"@pytest.mark.emu: {error}"
        raise pytest.fail.Exception(line, pytrace=False) from None


def _refuse(problem: str) -> NoReturn:
    pytest.fail(f"@pytest.mark.emu: {problem}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the error budget and the run directory to the report of a failed test."""
    report = yield
    attempt = item.stash.get(_ATTEMPT, None)
    if attempt is None or call.excinfo is None or not report.failed:
        return report
    attempt.failed = True
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if folder is None or not _guards_fired(folder):
        attempt.busy = attempt.why_busy(call.excinfo.value)
    if attempt.run is not None and report.when == "call":
        item.user_properties.append(("emu_run", str(attempt.run.path)))
        report.sections.append(("emu", _describe(attempt.run)))
    return report


def _guards_fired(folder: Path) -> bool:
    """Return True where a guard fired in a run below a folder: no fault of a host."""
    from emu.errors import EmulatorError
    from emu.host.input_file import read_json

    has_fired = False
    for path in folder.rglob("result.json"):
        with contextlib.suppress(
            EmulatorError, OSError, ValueError, KeyError, TypeError
        ):
            has_fired |= read_json(path)["verdict"]["cause"] == "guards"
    return has_fired


def _describe(run: RecordedRun) -> str:
    """Return headline, error budget and directory of a run, in lines."""
    from emu.report.run_tables import budget_table, headline
    from emu.report.terminal import terminal

    text = io.StringIO()
    console = terminal(text)
    console.print(headline(run.result))
    if any(run.result["error_budget"].values()):
        console.print(budget_table(run.result))
    console.print(f"run directory: {run.path}", soft_wrap=True)
    return text.getvalue()


class _Attempt:
    """One of the times that a marked test is carried out."""

    def __init__(self) -> None:
        self.run: RecordedRun | None = None
        #: What the marker asks for and the run is not.
        self.problems: list[str] = []
        #: True where it had met all of that with nothing late.
        self.by_host = False
        self.failed = False
        #: Reason for which the host is to blame for the failure.
        self.busy = ""
        self._others = _OtherPrograms()

    def remove_run(self) -> None:
        """Remove the run directory, where there is one."""
        if self.run is not None:
            shutil.rmtree(self.run.path, ignore_errors=True)

    def why_busy(self, error: BaseException) -> str:
        """Return why the host is to blame for ``error``; empty where it is not.

        The verdict of the marker's run decides, and where there is none what other
        programs took.
        """
        from emu.errors import RunError

        # Other exceptions, such as a missing key, come from no lateness.
        may_be_late = isinstance(
            error, (AssertionError, RunError, TimeoutError, subprocess.TimeoutExpired)
        )
        if self.problems:
            may_be_late = self.by_host
        if not may_be_late:
            return ""
        if self.run is None:
            return self._others.busy()
        verdict = self.run.result["verdict"]
        return "; ".join(verdict["reasons"]) if verdict["cause"] == "host" else ""


class _OtherPrograms:
    """Processor time that others than this process and its own take, from now on."""

    def __init__(self) -> None:
        self._began = self._spent()

    def busy(self) -> str:
        """Return their share of the cores until now; empty where it was quiet."""
        pairs = zip(self._spent(), self._began, strict=True)
        everybody, ours, cores = (end - begin for end, begin in pairs)
        share = (everybody - ours) / cores if cores > 0 else 0.0
        if share <= _OTHERS:
            return ""
        return f"other programs took {share:.0%} of its cores"

    @staticmethod
    def _spent() -> tuple[float, float, float]:
        """Return seconds that all programs had, that ours had, and of all cores."""
        import psutil

        times = psutil.cpu_times()
        everybody = times.user + times.system + getattr(times, "nice", 0.0)
        # What the hypervisor gave to other guests is as lost as what programs took.
        everybody += getattr(times, "steal", 0.0)
        process = psutil.Process()
        # Of itself and of its children that have ended, in user and in system mode.
        ours = sum(process.cpu_times()[:4])
        for child in process.children(recursive=True):
            # A child may end while it is asked.
            with contextlib.suppress(psutil.Error):
                ours += sum(child.cpu_times()[:4])
        # The first eight: times of guests, behind them, are counted in `user` already.
        return everybody, ours, sum(times[:8])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print how many marked tests were inconclusive."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in _github_lines(terminalreporter, config):
            terminalreporter.write_line(line)
    inconclusive, count = _count_marks(terminalreporter)
    if inconclusive or (count and config.getoption("emu_inconclusive")):
        terminalreporter.write_line(
            f"emu: {inconclusive} of {count} marked tests {_INCONCLUSIVE}"
        )


def _github_lines(terminalreporter: Any, config: pytest.Config) -> Iterator[str]:
    """Yield what GitHub shows beside the line of each marked test that is not good."""
    home = os.environ.get("GITHUB_WORKSPACE", config.rootpath)
    levels = {"failed": "error", "error": "error", "skipped": "warning"}
    for kind, level in levels.items():
        for report in terminalreporter.stats.get(kind, ()):
            if not _has_mark(report):
                continue
            path, line, name = report.location
            file = _escaped(os.path.relpath(config.rootpath / path, home), ":,")
            title = _escaped(f"{name}: {kind}", ":,")
            place = f"file={file},line={(line or 0) + 1},title={title}"

            reason = report.longreprtext
            if isinstance(report.longrepr, tuple):
                reason = report.longrepr[2]
            texts = [text for section, text in report.sections if section == "emu"]
            message = _escaped("\n".join([reason, *texts]))
            yield f"::{level} {place}::{message}"


def _has_mark(report: Any) -> bool:
    return any(mark in report.keywords for mark in _MARKS)


def _escaped(text: str, signs: str = "") -> str:
    """Return a text as commands of GitHub's workflows take it."""
    for sign in f"%\r\n{signs}":
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a session in which too many tests were inconclusive."""
    limit = session.config.getoption("emu_inconclusive")
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if limit and reporter is not None:
        from emu.units import RATIO

        inconclusive, count = _count_marks(reporter)
        if inconclusive > RATIO.parse(limit) * count:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _count_marks(reporter: Any) -> tuple[int, int]:
    """Return the number of inconclusive marked tests, and that of all marked ones."""
    with_mark = [
        report.nodeid
        for kind in ("passed", "failed")
        for report in reporter.stats.get(kind, ())
        if _has_mark(report)
    ]
    inconclusive = {
        report.nodeid
        for report in reporter.stats.get("skipped", ())
        # Tests may be skipped for other reasons: the text tells.
        if isinstance(report.longrepr, tuple) and _INCONCLUSIVE in report.longrepr[2]
    }
    return len(inconclusive), len({*with_mark, *inconclusive})
