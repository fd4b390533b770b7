"""Scenarios whose rule for rates is a class: found, loaded, refused, kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import emu
from emu.errors import DataError, ScenarioError
from emu.experiment.variants import compare_variants
from emu.host.foreign_code import import_program
from emu.prediction.rate_policies import GROUP
from emu.prediction.simulation import simulate
from emu.scenario import Scenario, find_errors, load, own_rules, prepare
from emu.scenario.own_rules import register_program
from emu.scenario.schema import json_schema
from tests.several_commands import carry_out

SHIPPED = Path(__file__).resolve().parents[2] / "scenarios"
SEBF = f"{SHIPPED / 'own_rule' / 'sebf.py'}:Sebf"
EQUAL = """
class Equal:
    def rates(self, flows, capacity):
        crossed = [link for flow in flows for link in flow.links]
        return [min(capacity[link] / crossed.count(link) for link in flow.links)
                for flow in flows]
"""


def written(folder: Path, policy: str = "mine.py:Equal", text: str = EQUAL) -> Path:
    """Write a rule and a scenario beside it that names the rule."""
    (folder / "mine.py").write_text(text)
    content = load("golden", {"expect": None}).to_json()
    file = folder / "own.json"
    file.write_text(json.dumps(content | {"schedule": {"policy": policy}}))
    return file


@pytest.mark.parametrize("policy", ["mine.py:Equal", "mine:Equal"])
def test_a_file_beside_the_scenario(tmp_path: Path, policy: str) -> None:
    file = written(tmp_path, policy)
    assert find_errors(file) == []
    experiment = prepare(load(file))

    assert experiment.simulate().makespan == 38.0
    assert experiment.policy.startswith("mine.py:Equal@")


SHORTEST = """
class Equal:
    def rates(self, flows, capacity):
        first = min(flows, key=lambda flow: flow.left)
        return [min(capacity[link] for link in flow.links) * (flow is first)
                for flow in flows]
"""


def test_a_rule_is_asked_of_flows_alone(tmp_path: Path) -> None:
    """Not when the last one has ended. 470 B go one by one, for 5 s nothing does."""
    experiment = prepare(load(written(tmp_path, text=SHORTEST)))

    assert experiment.simulate().makespan == 52.0


def test_an_installed_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    (site / "emu_drawn").mkdir(parents=True)
    (site / "emu_drawn" / "__init__.py").write_text("")
    (site / "emu_drawn" / "rules.py").write_text(EQUAL)
    monkeypatch.syspath_prepend(site)
    file = written(tmp_path, "emu_drawn.rules:Equal")
    assert find_errors(file) == []
    assert not [name for name in sys.modules if name.startswith("emu_drawn")]
    experiment = prepare(load(file))

    assert experiment.policy == "emu_drawn.rules:Equal"
    assert experiment.simulate().makespan == 38.0


def test_a_manifest_holds_the_text_whatever_becomes_of_the_file(tmp_path: Path) -> None:
    scenario = load(written(tmp_path))
    noted = json.loads(json.dumps(scenario.to_json()))
    (tmp_path / "mine.py").write_text("raise RuntimeError('changed')")
    again = Scenario.model_validate(noted)

    assert again.to_json() == noted
    assert again.schedule.source == EQUAL
    assert again.schedule.rule == scenario.schedule.rule
    assert prepare(again).simulate().makespan == 38.0
    assert load(scenario, {"job.iterations": 2}).schedule == scenario.schedule
    with pytest.raises(ScenarioError, match="RuntimeError: changed"):
        prepare(load(tmp_path / "own.json"))


def test_texts_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """The second gives every flow half: other runs of one process keep the first."""
    first = prepare(load(written(tmp_path)))
    halved = EQUAL.replace("min(", "0.5 * min(")
    second = prepare(load(written(tmp_path, text=halved)))

    assert second.simulate().makespan > first.simulate().makespan == 38.0
    assert first.policy != second.policy


def test_reading_a_run_or_a_scenario_runs_no_code(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    text = f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n{EQUAL}"
    scenario = load(written(tmp_path, text=text))
    _ = scenario.schedule.rule, repr(scenario), scenario.to_json()
    assert not mark.exists()
    prepare(scenario)
    assert mark.exists()


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ("oess", "found 'oess', did you mean 'oes'?"),
        ("sebf_mad", "did you mean 'sebf_madd'?"),
        ("mine.py", "found 'mine.py', write FILE.py:CLASS or MODULE:CLASS"),
        ("mine.py:", "write FILE.py:CLASS or MODULE:CLASS"),
        (":Equal", "write FILE.py:CLASS or MODULE:CLASS"),
        ("mine.py:a-b", "write FILE.py:CLASS or MODULE:CLASS"),
        ("other.py:Equal", "there is no file "),
    ],
)
def test_what_is_no_policy(tmp_path: Path, policy: str, problem: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(written(tmp_path, policy))

    assert caught.value.key == "schedule.policy"
    assert problem in caught.value.problem


BASED = EQUAL + "\nclass Mine({}):\n pass\n"
TAKES = EQUAL.replace("class Equal:", "class Equal:\n    def __init__(self, x): pass\n")


@pytest.mark.parametrize(
    ("policy", "text", "problem"),
    [
        ("mine.py:Equl", EQUAL, "nothing to call by the name 'Equl'; it defines Equal"),
        ("mine.py:Equal", "class Equal(:", "SyntaxError"),
        ("mine.py:Equal", "class Equal: pass", "has no method rates(flows, capacity)"),
        ("mine.py:Mine", BASED.format("object, int"), "has no method rates"),
        ("no_such_module:Equal", EQUAL, "No module named 'no_such_module'"),
        ("os.no_such_module:Equal", EQUAL, "No module named 'os.no_such_module'"),
        ("json:Equal", EQUAL, "nothing to call by the name 'Equal'"),
        ("time:sleep", EQUAL, "module time has no text"),
        # These listened, ended the process, opened a browser.
        ("http.server:test", EQUAL, "nothing to call by the name 'test'"),
        ("os:abort", EQUAL, "module os has no text"),
        ("antigravity:webbrowser", EQUAL, "nothing to call by the name 'webbrowser'"),
        ("http.server:HTTPServer", EQUAL, "no method rates(flows, capacity) of its"),
    ],
)
def test_what_the_text_shows_to_be_no_rule(
    tmp_path: Path, policy: str, text: str, problem: str
) -> None:
    """Of a module nothing is run to see it."""
    file = written(tmp_path, policy, text)
    with pytest.raises(ScenarioError) as caught:
        prepare(load(file))
    (found,) = find_errors(file)

    assert found.key == caught.value.key == "schedule.policy"
    assert policy in caught.value.problem or policy.startswith("mine.py")
    assert problem in found.problem or policy.startswith("mine.py")
    if not policy.startswith("mine.py"):
        assert str(found) == str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import no_such_module", "ModuleNotFoundError"),
        ("x = 1\n1 / 0", "ZeroDivisionError: division by zero (line 2"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        (TAKES, "TypeError"),
        ("Equal = 3", "nothing to call by the name 'Equal'"),
        ("def Equal(): pass", "has no method rates(flows, capacity)"),
        ("from os import abort as Equal", "has no method rates(flows, capacity)"),
        ("from http.server import test as Equal", "has no method rates"),
        ("from json import JSONDecoder as Equal", "has no method rates"),
        ("from json import *\nEqual = print", "has no method rates"),
    ],
)
def test_what_shows_when_a_rule_is_loaded(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        prepare(load(written(tmp_path, text=text)))

    assert caught.value.key == "schedule.policy"
    assert problem in caught.value.problem


@pytest.mark.parametrize(
    "text",
    [
        BASED.format("Equal"),
        f"try:\n  import no_such\nexcept ImportError:\n  pass\n{BASED.format('Equal')}",
        f"if True:\n{BASED.format('Equal')}".replace("\n", "\n "),
        f"{EQUAL}\nMine = Equal",
        f"{EQUAL}\nMine = type('Mine', (Equal,), {{}})",
        f"import json\n{BASED.format('json.JSONDecoder, Equal')}",
        EQUAL.replace("class Equal:", "class Mine:").replace(
            "def rates", "def _rates") + "    rates = _rates\n",
    ],
)  # fmt: skip
def test_a_rule_in_every_way_to_write_one(tmp_path: Path, text: str) -> None:
    file = written(tmp_path, "mine.py:Mine", text)

    assert find_errors(file) == []
    assert prepare(load(file)).simulate().makespan == 38.0


def test_by_job_there_is_no_class(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"schedule\.share: by job there are oes"):
        load(written(tmp_path), {"schedule.share": "job"})
    with pytest.raises(ScenarioError, match=r"schedule\.source: is for classes"):
        load("golden", {"schedule.source": EQUAL})


SWALLOWS = """try:
   all(iter(lambda: 1, 0))
  except BaseException: pass
  while True: pass"""
BODY = "class Mine:\n def rates(self, flows, capacity):\n  {}\n  return []\n"


@pytest.mark.parametrize(
    ("text", "failing"),
    [
        (BODY.format("while True: pass"), "fails"),
        (BODY.format("import time; time.sleep(60)"), "fails"),
        (BODY.format("import itertools; return itertools.count()"), "fails"),
        (BODY.format(SWALLOWS), "fails"),
        ("while True: pass", "cannot be loaded"),
    ],
    ids=["busy", "asleep", "endless answer", "swallows errors", "at import"],
)  # fmt: skip
def test_what_never_returns_is_ended(
    text: str, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_rules, "DEADLINE", 0.2)
    experiment = prepare(load("golden", {"expect": None}))
    began = time.monotonic()
    with pytest.raises(DataError, match=rf"{failing}: no answer within 0.2 s"):
        simulate(
            experiment.problem,
            experiment.realization,
            register_program("mine.py:Mine", text),
        )

    assert time.monotonic() - began < 30.0


def test_a_timer_of_the_program_goes_on_after_an_answer() -> None:
    import signal

    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    timer = signal.setitimer(signal.ITIMER_REAL, 30.0)
    try:
        prepare(load("golden", {"expect": None, "schedule.policy": SEBF})).simulate()
        left, _ = signal.setitimer(signal.ITIMER_REAL, 0.0)
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)
    assert 0.0 < left < 30.0
    assert rung == []


def test_beside_the_main_thread_it_is_refused() -> None:
    """No signal ends what never returns there."""
    own = prepare(load("golden", {"expect": None, "schedule.policy": SEBF}))
    found: list[BaseException] = []

    def ask() -> None:
        try:
            own.simulate()
        except DataError as error:
            found.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert "main thread" in str(found[0])


def test_every_command_takes_a_class(tmp_path: Path) -> None:
    base = prepare(load(written(tmp_path)))
    compared = compare_variants(
        base, policies=["oes", str(tmp_path / "mine.py:Equal"), SEBF]
    )
    made = {one.policy: one.makespan for one in compared}
    assert [name.partition("@")[0] for name in made] == [
        "mine.py:Equal", "oes", "sebf.py:Sebf",
    ]  # fmt: skip
    assert made["oes"] == made[base.policy] == 38.0
    found = emu.explain(base)
    assert found.to_json()["makespan"] == 38.0


def test_its_text_is_a_key_of_the_schema() -> None:
    section = json_schema()["$defs"]["ScheduleSection"]["properties"]
    words, classes = section["policy"]["anyOf"]

    assert "sebf_madd" in words["enum"]
    assert classes["pattern"].endswith("$")
    assert "source" in section


@pytest.fixture
def with_package(tmp_path: Path) -> dict[str, str]:
    """Return the environment of processes that have a package with a rule."""
    info = tmp_path / "site" / "emu_equal-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: emu_equal\nVersion: 1\n"
    )
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nequal = emu_equal:Equal\n")
    (info.parent / "emu_equal.py").write_text(EQUAL)
    return {**os.environ, "PYTHONPATH": str(info.parent)}


@pytest.fixture
def installed(tmp_path: Path, with_package: dict[str, str]) -> Callable[..., str]:
    """Return a function that runs a command in a process that has the package."""

    def run(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "emu", *words],
            cwd=tmp_path, env=with_package, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stderr

    return run


def test_a_package_brings_a_rule(
    installed: Callable[..., str], tmp_path: Path, with_package: dict[str, str]
) -> None:
    chosen = ["--set", "schedule.policy=equal", "--set", "expect=null"]
    policies, schema, simulated, slip = carry_out(
        ["policies", "--json", "-"],
        ["schema"],
        ["simulate", "golden", *chosen, "--json", "-"],
        ["simulate", "golden", "--set", "schedule.policy=equall"],
        folder=tmp_path,
        environment=with_package,
    )
    assert json.loads(policies.stdout)["equal"]["theorem1"] is False
    assert '"equal"' in schema.stdout
    found = json.loads(simulated.stdout)
    assert found["policy"] == "equal"
    assert found["makespan"] == 38.0
    assert slip.code == 2
    assert "did you mean 'equal'?" in slip.stderr
    points = next((tmp_path / "site").glob("*/entry_points.txt"))
    points.write_text(f"[{GROUP}]\nequal = emu_equal:Nothing\n")
    assert "cannot be loaded" in installed("simulate", "golden", *chosen, code=2)
    points.write_text(f"[{GROUP}]\noes = emu_equal:Equal\n")
    clash = installed("simulate", "golden", code=1)
    assert "which emu_equal brings: has the name of a policy of emu" in clash


def test_rules_are_listed_beside_one_that_cannot_be_loaded(
    tmp_path: Path, with_package: dict[str, str]
) -> None:
    points = next((tmp_path / "site").glob("*/entry_points.txt"))
    rules = "broken = emu_equal:Nothing\nequal = emu_equal:Equal\n"
    points.write_text(f"[{GROUP}]\n{rules}")

    (listed,) = carry_out(["policies"], folder=tmp_path, environment=with_package)

    assert listed.code == DataError.exit_code
    assert listed.stdout.startswith("oes ")
    assert "\nequal " in listed.stdout
    assert "emu: broken: cannot be loaded" in listed.stderr


def test_an_error_of_an_installed_rule_has_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "class Mine:\n def rates(self, flows, capacity):\n  return [flows.none]\n"
    (tmp_path / "lines_of_a_rule.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    chosen = {"expect": None, "schedule.policy": "lines_of_a_rule:Mine"}
    with pytest.raises(DataError, match=r"fails: .* \(line 3 of lines_of_a_rule\)"):
        prepare(load("golden", chosen)).simulate()


def test_a_rule_in_a_file_that_is_called_as_a_module_has_its_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module of the standard library raises it, which line 4 calls."""
    text = "import statistics\nclass Mean:\n def rates(self, flows, capacity):\n"
    text += "  return statistics.mean([])\n"
    written(tmp_path, "statistics.py:Mean", text)
    (tmp_path / "mine.py").rename(tmp_path / "statistics.py")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"fails: .* \(line 4 of statistics\.py\)"):
        prepare(load(Path("own.json"))).simulate()


@pytest.mark.parametrize(
    "answer",
    [
        "[random.random() / 100 for _ in flows]",
        "[time.perf_counter() % 1 / 100 for _ in flows]",
        "[next(numbers) / 1e9 for _ in flows]",
    ],
)
def test_a_rule_whose_answers_do_not_follow_from_the_question_is_refused(
    tmp_path: Path, answer: str
) -> None:
    lines = [
        "import itertools, random, time",
        "numbers = itertools.count()",
        "class Mine:",
        " def rates(self, flows, capacity):",
        f"  return {answer}",
    ]
    file = written(tmp_path, "mine.py:Mine", "\n".join(lines))
    with pytest.raises(DataError, match="other rates when it is asked again"):
        prepare(load(file)).simulate()


# Of a module without a package, which the text of a rule is.
@pytest.mark.filterwarnings("ignore::ImportWarning")
@pytest.mark.parametrize(
    ("statement", "looks_beside"),
    [
        ("from .helper import first", True),
        ("from . import helper", True),
        ("import no_such_helper", True),
        ("import no_such_helper.part", True),
        ("import json.nope", False),
        ("from json import nope", False),
        ("raise ImportError('needs libfoo 2, found 1')", False),
        ("raise ModuleNotFoundError('needs libfoo')", False),
    ],
)
def test_files_beside_a_rule_are_named_where_an_import_may_mean_one(
    statement: str, *, looks_beside: bool
) -> None:
    with pytest.raises(ImportError) as caught:
        import_program("mine.py:Equal", f"{statement}\n{EQUAL}")

    assert ("files beside it" in str(caught.value)) == looks_beside
