"""Names are input: no place where one goes can be broken by it."""

from __future__ import annotations

import dataclasses
import html.parser
import io
import json
import re
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from typing_extensions import override

from emu.errors import DataError, ScenarioError
from emu.names import SHOWN, check_name, file_part, for_terminal, printable
from emu.problem import Cluster, Problem
from emu.report.dashboard.server import metrics, page
from emu.report.html.page import write_report
from emu.report.run_tables import run_tables
from emu.report.terminal import terminal
from emu.report.trace import write_trace
from emu.runs.recorded_run import load_run
from emu.runs.run_directory import RunDirectory
from emu.scenario.scenario_file import loads
from emu.testing import two_machine_example
from tests.report.dashboard.replay import Replay
from tests.report.drawn_run import write_run_of

NASTY = [
    "[/x]",
    "[red]",
    "\x1b[2J",
    "{{script}}",
    "{{facts}}",
    "<b>",
    "</script><script>alert(1)</script>",
    "../../x",
    "a/b",
    "a\nb",
    "$\\frac$",
    'quote"\\',
    "\u202e right to left",
    "\ud800",
    "&amp;",
    ":smile:",
    "x" * 300,
    "x" * 301,
    " ",
    "名前",
]
names = st.one_of(st.sampled_from(NASTY), st.text(min_size=1, max_size=40))


@given(names)
@example("x" * SHOWN)
@example("x" * (SHOWN + 1))
def test_name_that_is_taken_is_shown_as_it_is(name: str) -> None:
    odd = len(name) > SHOWN or not name.strip() or not name.isprintable()
    if odd:
        with pytest.raises(ValueError, match=r"name|printed") as caught:
            check_name(name)
        assert str(caught.value).isprintable()
    else:
        assert printable(name) == check_name(name) == for_terminal(name)


@given(names)
def test_name_in_a_path_stays_where_it_is_put(name: str) -> None:
    part = file_part(name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{part}-1"
        path.mkdir()

        assert path.resolve().parent == Path(folder).resolve()
        assert RunDirectory.create(name, Path(folder)).path.parent == Path(folder)
    assert part.isprintable()
    assert len(part.encode()) <= 100


@given(st.text())
def test_terminal_gets_no_orders(text: str) -> None:
    shown = for_terminal(text)

    assert shown.count("\n") == text.count("\n")
    assert shown.replace("\n", "").isprintable()


def renamed(name: str) -> Problem:
    """Return the example with machines of a name's kind."""
    problem, _ = two_machine_example(2)
    first, *others = problem.cluster.machines
    machines = (dataclasses.replace(first, name=name), *others)
    return Problem(Cluster(machines), problem.job, problem.placement)


class Scripts(html.parser.HTMLParser):
    """Counts the elements of a page that browsers would obey."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Note an element."""
        self.tags.append(tag)


def tags(text: str) -> list[str]:
    """Return the elements of a page, in their order."""
    parser = Scripts()
    parser.feed(text)
    return parser.tags


def taken(name: str) -> bool:
    try:
        check_name(name)
    except ValueError:
        return False
    return name != "m1"


PLAIN = "machine"


def drawn(name: str, folder: Path) -> tuple[list[str], str, str]:
    """Write, read and draw a run with a machine of that name; return what was shown."""
    run, result = write_run_of(folder, renamed(name), two_machine_example(2)[1])
    assert run.parent == folder
    recorded = load_run(run)
    assert recorded.problem.cluster.machines[0].name == name
    shown = io.StringIO()
    terminal(shown).print(run_tables(result))
    report = write_report(run).read_text("utf-8")
    json.loads(write_trace(run).read_text("utf-8"))
    return tags(report), report, shown.getvalue()


@cache
def plain_elements() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        return drawn(PLAIN, Path(folder))[0]


@settings(deadline=None, max_examples=8, suppress_health_check=list(HealthCheck))
@given(names.filter(taken))
@example("[/x]")
@example("</script><b>{{script}}")
@example('$\\frac$ & "x"')
def test_report_trace_and_tables_take_every_name(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        elements, _, shown = drawn(name, Path(folder))
    assert elements == plain_elements()
    assert "\x1b" not in shown
    if len(name) < 20 and name == " ".join(name.split()):
        assert f"{name}." in shown or name in shown


@settings(deadline=None, max_examples=20)
@given(names.filter(taken))
@example("{{script}}")
@example("</script><b>")
def test_live_page_and_metrics_take_every_name(name: str) -> None:
    replay = Replay()
    live = replay.live
    plain = page(live)
    live.problem = renamed(name)
    shown = page(live)
    facts = re.search(r'id="facts">(.*?)</script>', shown, re.DOTALL)

    assert facts is not None
    assert json.loads(facts[1])["machines"][0] == name
    assert tags(shown) == tags(plain)
    status = live.status()
    ports = [port.model_copy(update={"port": name}) for port in status.ports[:1]]
    text = metrics(status.model_copy(update={"ports": ports}))
    sample = r'[a-z_]+(\{([a-z_]+="([^"\\\n]|\\["\\n])*",?)*\})? \S+'
    lines = [line for line in text.split("\n")[:-1] if not line.startswith("#")]
    assert all(re.fullmatch(sample, line) for line in lines)


SCENARIO = """
name: {scenario}
cluster: {{machines: [{{name: {machine}, nic: 1 MB/s}}, {{name: b, nic: 1 MB/s}}]}}
job: {{system: custom, iterations: 1, tasks: [{{name: t, time: 1 s}}]}}
"""


@pytest.mark.parametrize("where", ["scenario", "machine"])
@pytest.mark.parametrize("name", ["\x1b[2J", "a\nb", "\u202e", "x" * 300])
def test_scenario_with_a_name_of_no_use_is_one_printable_error(
    where: str, name: str
) -> None:
    given_names = {"scenario": "s", "machine": "a"} | {where: json.dumps(name)}
    with pytest.raises(ScenarioError) as caught:
        loads(SCENARIO.format(**given_names))

    assert for_terminal(str(caught.value)).replace("\n", "").isprintable()


@pytest.mark.parametrize("name", ["../../x", "/etc", "a\\b"])
def test_data_set_is_no_path(name: str) -> None:
    document = (
        "name: s\n"
        "cluster: {machines: [{name: a, nic: 1 GB/s}]}\n"
        "job: {system: dgtp, iterations: 1, workers: 1, batch_size: 8,"
        " fanouts: [2, 2], model: {hidden: 8},"
        f" dataset: {{name: {json.dumps(name)}}}}}\n"
    )
    with pytest.raises(ScenarioError, match=r"dataset\.name"):
        loads(document)


def test_run_directory_of_somebody_else_has_names_too(tmp_path: Path) -> None:
    problem, realization = two_machine_example(2)
    run, _ = write_run_of(tmp_path, problem, realization)
    stated = json.loads((run / "problem.json").read_text())
    stated["machines"][0]["name"] = "\x1b[2J"
    (run / "problem.json").write_text(json.dumps(stated))
    with pytest.raises(DataError, match="cannot be printed"):
        load_run(run)
