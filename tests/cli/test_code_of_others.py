"""Code of others runs where it is asked for, and nowhere else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

import emu
from emu.cli import app
from emu.cli.app import COMMANDS
from emu.errors import DataError
from emu.scenario.own_rules import register_program
from tests.scenario.test_own_models import TEXT
from tests.scenario.test_own_rules import EQUAL
from tests.training.programs import TORCH

pytestmark = [pytest.mark.emulation, pytest.mark.untimed]

RULE = """\
name: ruled
cluster: {machines: [{name: m, count: 2, nic: 10 MB/s}]}
job:
  system: custom
  iterations: 2
  tasks: [{name: a, time: 10 ms}, {name: b, time: 10 ms}]
  flows: [{from: a, to: b, volume: 100 kB}]
placement: {policy: explicit, tasks: {a: m0, b: m1}}
schedule: {policy: mine.py:Equal}
"""
MODEL = TEXT.replace("1 s", "10 ms") + "emulation: {compute: padded}\n"
#: What only reads; of a run ``{run}``, of its scenario ``{file}``.
READS = [
    ["report", "{run}"],
    ["report", "{run}", "--as", "trace"],
    ["report", "{run}", "--as", "csv"],
    *(["report", "{run}", "--as", "svg", "--figure", figure] for figure in
      ("gantt", "loss", "progress")),
    ["explain", "{run}"],
    ["explain", "{run}", "--no-improvements"],
    ["audit", "{run}"],
    ["audit", "{run}/result.json"],
    ["audit", "{run}", "--policy"],
    ["audit", "{run}", "--training"],
    ["audit", "{run}", "--scenario", "{file}"],
    ["evaluate", "{run}"],
    ["compare", "{run}", "{run}"],
    ["compare", "{run}", "{run}", "--out", "x.svg"],
    ["fit", "{run}", "-o", "x.yaml"],
    ["exec", "{run}", "m0", "--", "true"],
    ["validate", "{file}"],
    ["validate", "{run}/manifest.json", "{run}/scenario.txt"],
    ["import", "{file}", "-o", "x", "--feature-length", "3"],
    ["what", "{file}"], ["data"], ["schema"], ["docs"], ["policies"], ["placements"],
    ["init", "golden", "--out", "x.yaml"],
]  # fmt: skip
CARRIES_OUT = [
    ["simulate", "{file}"],
    ["place", "{file}"],
    ["explain", "{file}"],
    ["compare", "{file}", "--policies", "oes"],
    ["sweep", "{file}", "--vary", "seed=1", "--out", "swept"],
    ["run", "{file}"],
    ["trials", "{file}", "--count", "1"],
]


class Done(NamedTuple):
    """A command that has been carried out."""

    ran: bool
    """True where code of others ran."""
    said: str
    code: int


class Recorded(NamedTuple):
    """A scenario with code of others, and its run."""

    folder: Path
    """The folder of ``own.yaml``, its code and ``runs``."""
    done: Done
    """The command that ran it."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Recorded]]:
    """Return a scenario of each kind that has run."""
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        for kind, text, name, code in (
            ("rule", RULE, "mine.py", EQUAL),
            ("model", MODEL, "nets/net.py", TORCH),
        ):
            folder = tmp_path_factory.mktemp(kind)
            (folder / "nets").mkdir()
            ran = f"import pathlib\npathlib.Path({str(folder / 'ran')!r}).touch()\n"
            (folder / name).write_text(ran + code)
            (folder / "own.yaml").write_text(text)
            made[kind] = Recorded(folder, run_until_sound(folder))
        yield made


def run_until_sound(folder: Path) -> Done:
    """Run it as often as a busy host holds bytes up, which an audit finds."""
    done = run_anew(folder)
    for _ in range(3):
        (run,) = (folder / "runs").iterdir()
        if emu.audit(emu.load_run(run)).passed:
            break
        done = run_anew(folder)
    return done


def run_anew(folder: Path) -> Done:
    """Run it by the command, in place of what ran before."""
    mark, runs = folder / "ran", folder / "runs"
    mark.unlink(missing_ok=True)
    register_program.cache_clear()  # a rule is loaded once per process
    shutil.rmtree(runs, ignore_errors=True)
    command = ["run", str(folder / "own.yaml"), "--runs", str(runs)]
    done = CliRunner().invoke(app, command)
    return Done(mark.exists(), done.output, done.exit_code)


@pytest.fixture
def walk(
    recorded: dict[str, Recorded], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, list[str]], Done]:
    """Return a function that carries a command out on copies of a kind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("emu.training.own_model._known", {})
    monkeypatch.setattr("emu.prediction.scheduling.policies._own", {})

    def call(kind: str, words: list[str]) -> Done:
        folder = recorded[kind].folder
        mark = folder / "ran"
        mark.unlink(missing_ok=True)
        register_program.cache_clear()  # a rule is loaded once per process
        (run,) = (folder / "runs").iterdir()
        shutil.copytree(run, tmp_path / "a_run", dirs_exist_ok=True)
        places = {"run": tmp_path / "a_run", "file": folder / "own.yaml"}
        done = CliRunner().invoke(app, [word.format(**places) for word in words])
        assert done.exception is None or isinstance(done.exception, SystemExit)
        return Done(mark.exists(), done.output, done.exit_code)

    return call


@pytest.mark.parametrize("kind", ["rule", "model"])
@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_what_reads_runs_nothing(
    walk: Callable[[str, list[str]], Done], kind: str, words: list[str]
) -> None:
    ran, said, _ = walk(kind, words)
    assert not ran, said


@pytest.mark.parametrize("kind", ["rule", "model"])
@pytest.mark.parametrize("words", CARRIES_OUT, ids=" ".join)
def test_what_carries_a_scenario_out_says_so(
    recorded: dict[str, Recorded],
    walk: Callable[[str, list[str]], Done],
    kind: str,
    words: list[str],
) -> None:
    is_run = words[0] == "run"
    ran, said, code = recorded[kind].done if is_run else walk(kind, words)
    name = {"rule": "mine.py: rule mine.py:Equal", "model": "net.py: model "}[kind]

    assert (ran, code) == (True, 0), said
    assert said.count("emu: runs code of ") == 1
    assert name in said.replace("\n", "")


@pytest.mark.parametrize(
    ("kind", "words", "left"),
    [
        ("rule", ["report", "{run}", "--explain"], "left out, --run-code adds it"),
        ("rule", ["explain", "{run}"], "what would help is left out"),
        ("rule", ["audit", "{run}"], "problem and results are not computed again"),
        ("rule", ["audit", "{run}", "--policy"], "is code of others"),
        ("model", ["audit", "{run}"], "accuracy is not computed again"),
        ("model", ["evaluate", "{run}"], "is code of others"),
    ],
)
def test_what_is_left_out_is_said_and_runs_when_asked(
    walk: Callable[[str, list[str]], Done],
    kind: str,
    words: list[str],
    left: str,
) -> None:
    without, asked = walk(kind, words), walk(kind, [*words, "--run-code"])

    assert not without[0]
    assert left in " ".join(without[1].split())
    assert without[1].count("left out, --run-code adds it") == 1
    assert (asked[0], asked[2]) == (True, 0), asked[1]
    assert left not in " ".join(asked[1].split())
    assert "emu: runs code of " in asked[1]


def test_every_command_is_walked() -> None:
    walked = {words[0] for words in [*READS, *CARRIES_OUT]}
    asked_for = {"agent", "lab", "profile", "crossover", "contest", "clean", "advise"}
    asked_for |= {"share", "import-workload", "reproduce", "virtual"}  # data alone

    assert walked | asked_for == {*COMMANDS}
    assert {n for n, c in COMMANDS.items() if c.runs_code} <= asked_for | {
        words[0] for words in CARRIES_OUT
    } | {"policies", "placements", "fit", "exec"}  # fmt: skip


def test_scripts_ask_as_well(
    recorded: dict[str, Recorded], walk: Callable[[str, list[str]], Done]
) -> None:
    walk("rule", ["data"])
    mark = recorded["rule"].folder / "ran"
    run = emu.load_run(Path("a_run"))
    (note,) = [n for n in emu.explain(run).notes if "left out" in n]
    assert "--run-code" in note
    assert run.explain().simulated is run.simulated
    assert emu.audit(run).passed
    assert not mark.exists()
    assert emu.explain(run, run_code=True).improvements
    assert mark.exists()


@pytest.mark.parametrize(
    "policy", ["os:abort", "http.server:test", "antigravity:webbrowser", "a:b"]
)
def test_a_manifest_calls_nothing(
    walk: Callable[[str, list[str]], Done], policy: str
) -> None:
    walk("rule", ["data"])
    path = Path("a_run/manifest.json")
    content = json.loads(path.read_text())
    content["scenario"]["schedule"] = {"policy": policy}
    for option in ([], ["--run-code"]):
        path.write_text(json.dumps(content))
        for command in ("explain", "report", "audit"):
            done = CliRunner().invoke(app, [command, "a_run", *option])
            assert isinstance(done.exception, SystemExit | None)
            assert f"emu: runs code of {policy.partition(':')[0]}:" not in done.output
    with pytest.raises(DataError, match=r"text|function|No module|nothing to call"):
        emu.explain(emu.load_run(path.parent), run_code=True)


@pytest.mark.parametrize("kind", ["rule", "model"])
def test_a_run_that_was_moved_is_audited_by_the_text_that_it_noted(
    recorded: dict[str, Recorded],
    walk: Callable[[str, list[str]], Done],
    tmp_path: Path,
    kind: str,
) -> None:
    """Its files have gone, or say something else by now."""
    away = tmp_path / "away"
    folder = recorded[kind].folder
    files = [folder / "mine.py", folder / "nets"]
    for where in (file for file in files if file.exists()):
        shutil.move(where, away)
        try:
            ran, said, code = walk(kind, ["audit", "{run}", "--run-code"])
            assert (ran, code) == (True, 0), said
            where.mkdir() if where.name == "nets" else where.write_text("raise")
            ran, said, code = walk(kind, ["audit", "{run}", "--run-code"])
            assert (ran, code) == (True, 0), said
        finally:
            shutil.rmtree(where, ignore_errors=True)
            where.unlink(missing_ok=True)
            shutil.move(away, where)
