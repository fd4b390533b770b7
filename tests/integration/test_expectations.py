"""One miss per key of ``expect`` and place: none passes, and what is met does."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import emu
from emu.cli import app
from emu.cli.repeat_runs import judge
from emu.errors import ExpectationMissed
from emu.runs.recorded_run import load_run
from emu.scenario import load
from tests import draws
from tests.integration.scenarios import tiny_training, written

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Place = Callable[[Path, dict[str, Any]], bool]

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.emulation, pytest.mark.untimed]

#: Key -> what no run of the scenario meets, and what each does.
SIMULATED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "makespan": ({"makespan": "1 ms"}, {"makespan": "1 ms .. 1 h"}),
    "a range": ({"makespan": ".. 1 ms"}, {"makespan": "1 ms .."}),
    "tolerance": (
        {"makespan": "1 h", "tolerance": "10 %"},
        {"makespan": "1 h", "tolerance": "100 %"},
    ),
    "gap": ({"gap": "100000 % .."}, {"gap": "100000 %"}),
    "bytes": ({"bytes": "1 B"}, {"bytes": "1 B .. 1 TB"}),
}
OF_RUNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "makespan_error": ({"makespan_error": 0}, {"makespan_error": "100000 %"}),
    "replay_error": ({"replay_error": 0}, {"replay_error": "100000 %"}),
    "accuracy": ({"accuracy": 1}, {"accuracy": 0}),
    "loss": ({"loss": 1e-9}, {"loss": "1e-9 .. 1e9"}),
}


def sets(expect: dict[str, Any]) -> list[str]:
    return [
        part
        for key, value in expect.items()
        for part in ("--set", f"expect.{key}={value}")
    ]


def passes(*arguments: str | Path) -> bool:
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code in {0, 6}, done.output
    return done.exit_code == 0


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a scenario and its sweep over sockets, of one point."""
    folder = tmp_path_factory.mktemp("swept")
    document = tiny_training(2)
    document["emulation"]["time_scale"] = 0.5
    # With its sampler beside it a worker waits for no flow, and a replay is the run.
    document["placement"] = {"policy": "round_robin"}
    file = written(document, folder)
    assert passes("sweep", file, "--vary", "seed=7", "--emulate", "--out", folder)
    return folder


def simulated(folder: Path, expect: dict[str, Any]) -> bool:
    return passes("simulate", folder / "tiny.yaml", *sets(expect))


def compared(folder: Path, expect: dict[str, Any]) -> bool:
    varied = ["--policies", "oes,maxmin"]
    return passes("compare", folder / "tiny.yaml", *varied, *sets(expect))


def compared_as_systems(folder: Path, expect: dict[str, Any]) -> bool:
    varied = ["--systems", "data_parallel,dgtp"]
    return passes("compare", folder / "tiny.yaml", *varied, *sets(expect))


def swept_in_simulation(folder: Path, expect: dict[str, Any]) -> bool:
    varied, out = "schedule.policy=maxmin,fifo", folder / "simulated"
    file, stated = folder / "tiny.yaml", sets(expect)
    return passes("sweep", file, "--vary", varied, "--out", out, *stated)


def swept_over_sockets(folder: Path, expect: dict[str, Any]) -> bool:
    """Only judge: the point is finished, and kept whatever is expected of it."""
    file, varied = folder / "tiny.yaml", ["--vary", "seed=7", "--emulate"]
    return passes("sweep", file, *varied, "--out", folder, *sets(expect))


def run(folder: Path, expect: dict[str, Any]) -> bool:
    scenario = load(folder / "tiny.yaml", {f"expect.{k}": v for k, v in expect.items()})
    (path,) = (folder / "runs").iterdir()
    try:
        judge(scenario, load_run(path).result, strict=False)
    except ExpectationMissed:
        return False
    return True


@pytest.mark.parametrize(
    ("place", "key"),
    draws.grid(
        [simulated, compared, compared_as_systems, swept_in_simulation], SIMULATED
    ),
)
def test_a_simulation_misses_and_meets(place: Place, key: str, swept: Path) -> None:
    missed, met = SIMULATED[key]

    assert not place(swept, missed)
    assert place(swept, met)


@pytest.mark.parametrize(
    ("place", "key"), draws.grid([run, swept_over_sockets], [*SIMULATED, *OF_RUNS])
)
def test_a_run_misses_and_meets(place: Place, key: str, swept: Path) -> None:
    missed, met = {**SIMULATED, **OF_RUNS}[key]

    assert not place(swept, missed)
    assert place(swept, met)


@pytest.mark.parametrize("command", ["simulate", "compare", "sweep"])
def test_what_only_runs_tell_is_named(command: str, swept: Path) -> None:
    more = ["--vary", "seed=7", "--out", swept / "named"] if command == "sweep" else []
    stated = sets(dict.fromkeys(OF_RUNS, 0.5))
    done = CliRunner().invoke(
        app, [command, str(swept / "tiny.yaml"), *map(str, more), *stated]
    )

    assert done.exit_code == 0, done.output
    named = ", ".join(f"expect.{key}" for key in OF_RUNS)
    assert done.stderr.endswith(f"in a simulation, emu run does: {named}\n")


#: Stands in for the sockets of a test: a run is the recorded one, with the next cause.
REPLAY = """
import json, shutil
from pathlib import Path
import emu

causes = dict(enumerate(map(iter, {causes!r})))

def run(scenario, runs=None, count=iter(range(1000))):
    here = Path({path!r}).with_name(f"again-{{next(count)}}")
    shutil.copytree({path!r}, here)
    file = here / "result.json"
    result = json.loads(file.read_text())
    cause = next(causes[scenario.seed])
    verdict = {{"trust": "untrusted" if cause else "trusted", "cause": cause}}
    verdict |= {{"on_time_makespan": result["predicted_makespan"]}}
    result["verdict"] |= verdict | {{"reasons": [f"by {{cause}}"]}}
    file.write_text(json.dumps(result))
    return emu.load_run(here)

emu.run = run
"""


def marked(
    pytester: pytest.Pytester,
    swept: Path,
    cases: list[tuple[str, list[str | None]]],
    *options: str,
) -> tuple[pytest.RunResult, list[str]]:
    """Run a test per marker and causes of its verdicts in turn; return their outcomes.

    What the host alone made of a run is then that it was late.
    """
    (recorded,) = (swept / "runs").iterdir()
    copy = pytester.mkdir("recorded") / "run"
    shutil.copytree(recorded, copy)
    shutil.copy(swept / "tiny.yaml", pytester.path)
    causes = [causes for _, causes in cases]
    pytester.makeconftest(REPLAY.format(path=str(copy), causes=causes))
    tests = [
        f"@pytest.mark.emu('tiny.yaml', sets={{'seed': {number}}}, {marker})\n"
        f"def test_{number}(emu_run): pass\n"
        for number, (marker, _) in enumerate(cases)
    ]
    pytester.makepyfile(test_them="import pytest\n" + "\n".join(tests))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        patch.setattr(emu, "run", emu.run)  # restored behind what REPLAY has set
        plugin = ["-p", "emu.pytest_plugin", "-v", "-rs"]
        done = pytester.runpytest_inprocess(*plugin, *options)
    found = re.findall(r"^test_them.py::test_\d+ (\w+)", str(done.stdout), re.MULTILINE)
    assert len([*copy.parent.glob("again-*")]) == found.count("FAILED")
    return done, found


def test_a_marker_misses_and_meets(pytester: pytest.Pytester, swept: Path) -> None:
    both = [*SIMULATED.values(), *OF_RUNS.values()]
    cases: list[tuple[str, list[str | None]]] = [
        (f"**{expect!r}", [None]) for pair in both for expect in pair
    ]
    _, found = marked(pytester, swept, cases)

    assert found == ["FAILED", "PASSED"] * len(both)


def test_a_busy_host_gets_two_more_tries(
    pytester: pytest.Pytester, swept: Path
) -> None:
    """Guards, chance and what is missed on time as well fail at once."""
    missed = "makespan='1 ms .. 2 ms', trust='untrusted'"
    cases: list[tuple[str, list[str | None], str]] = [
        ("", [None], "PASSED"),
        ("", ["host", None], "PASSED"),
        ("", ["host", "host", None], "PASSED"),
        ("", ["host", "host", "host"], "SKIPPED"),
        ("trust='untrusted'", ["host"], "PASSED"),
        ("", ["guards"], "FAILED"),
        ("", ["host", "guards"], "FAILED"),
        ("", ["chance"], "FAILED"),
        ("", ["unexplained"], "FAILED"),
        (missed, ["host"], "FAILED"),
    ]
    done, found = marked(pytester, swept, [(marker, c) for marker, c, _ in cases])

    assert found == [outcome for *_, outcome in cases]
    done.stdout.fnmatch_lines(
        [
            "emu: 1 of 10 marked tests inconclusive*",
            "SKIPPED*inconclusive: the host was too busy: by host",
        ]
    )


@pytest.mark.parametrize(("cause", "tries"), [("guards", 1), ("host", 3)])
def test_a_guard_of_a_run_of_the_tests_own_is_not_tried_again(
    pytester: pytest.Pytester, cause: str, tries: int
) -> None:
    """A test that calls ``emu.run`` itself, on a host that others keep busy."""
    pytester.makepyfile(
        f"""
        import json
        import pytest
        from pathlib import Path
        from emu import pytest_plugin

        @pytest.mark.emu_retry
        def test_it(tmp_path, monkeypatch):
            others = pytest_plugin._OtherPrograms
            monkeypatch.setattr(others, "busy", lambda _: "others were busy")
            with Path({str(pytester.path / "tries")!r}).open("a") as tries:
                tries.write("once more\\n")
            (tmp_path / "run").mkdir()
            result = {{"verdict": {{"cause": {cause!r}}}}}
            (tmp_path / "run" / "result.json").write_text(json.dumps(result))
            assert False
        """
    )
    done = pytester.runpytest("-p", "emu.pytest_plugin")
    outcomes = {"guards": {"failed": 1}, "host": {"skipped": 1}}[cause]
    done.assert_outcomes(**outcomes)
    lines = (pytester.path / "tries").read_text().splitlines()
    assert len(lines) == tries


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--emu-strict"], 1),
        (["--emu-inconclusive", "20 %"], 1),
        (["--emu-inconclusive", "25 %"], 0),
    ],
)
def test_inconclusive_tests_may_fail_a_session(
    options: list[str], code: int, pytester: pytest.Pytester, swept: Path
) -> None:
    cases: list[tuple[str, list[str | None]]] = [("", ["host"] * 3)]
    cases += [("", [None])] * 3
    done, found = marked(pytester, swept, cases, *options)

    strict = "--emu-strict" in options
    assert found == ["FAILED" if strict else "SKIPPED", *["PASSED"] * 3]
    assert done.ret == code


def test_a_finished_sweep_says_what_each_point_misses(swept: Path) -> None:
    record = [
        json.loads(line) for line in (swept / "points.jsonl").read_text().splitlines()
    ]

    assert record[0]["figures"].keys() >= {"gap", "bytes", "loss", "test_accuracy"}
