"""Commands as a user calls them: output, JSON, exit codes."""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from emu.cli import app

GOLDEN = str(Path(__file__).parents[2] / "scenarios" / "golden.yaml")
TESTBED = str(Path(__file__).parents[2] / "scenarios" / "testbed_products.yaml")


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def _json(*arguments: str) -> Any:
    result = _run(*arguments, "--json", "-")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("iterations", "makespan"), [(1, 17.0), (2, 27.0), (3, 38.0), (10, 115.0)]
)
def test_the_golden_run_takes_what_was_worked_out_by_hand(
    iterations: int, makespan: float
) -> None:
    result = _json(
        "simulate", GOLDEN, "--set", f"job.iterations={iterations}",
        "--set", f"expect.makespan={makespan} s",
    )  # fmt: skip

    assert result["makespan"] == makespan


def test_simulate_prints_tables_of_at_most_100_columns() -> None:
    result = _run("simulate", GOLDEN)

    assert result.exit_code == 0
    assert (
        "golden: makespan 38 s, 3 iterations, credit window unlimited, rates by oes"
        in (result.stdout)
    )
    assert "whatever the schedule (m0 in): within" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_simulate_says_how_far_from_the_best_a_schedule_can_be() -> None:
    result = _json(
        "simulate", GOLDEN, "--set", "job.iterations=1", "--set", "expect=null"
    )

    assert result["gap"] == result["makespan"] / result["bound"] - 1
    assert 0 <= result["gap"] < 1
    assert result["theorem1"]["kept"] is True
    assert result["theorem1"]["certificate"] >= result["makespan"]


def test_simulate_writes_a_result_that_can_be_read_back(tmp_path: Path) -> None:
    from emu.runs.result import read_result
    from emu.scenario import load

    target = tmp_path / "result.json"
    result = _run("simulate", GOLDEN, "--json", str(target))
    scenario, schedule = read_result(target)

    assert result.exit_code == 0
    assert scenario == load(GOLDEN)
    assert schedule.makespan == 38
    assert schedule.to_json()["flows"] == json.loads(target.read_text())["flows"]


def test_a_missed_expectation_is_exit_code_6() -> None:
    result = _run("simulate", GOLDEN, "--set", "job.iterations=10")

    assert result.exit_code == 6
    assert result.stderr == (
        "not checked in a simulation, emu run does: expect.makespan_error\n"
        "emu: simulated makespan is 115 s, expected 38 s\n"
    )


def test_a_bad_scenario_is_exit_code_2_and_one_line() -> None:
    result = _run("simulate", GOLDEN, "--set", "job.itertions=10")

    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("emu: --set job.itertions=10: job.itertions: unkno")
    assert result.stderr.count("\n") == 1


def test_bad_data_is_exit_code_3(tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text("{")
    result = _run("simulate", GOLDEN, "--set", f"profile={profile}")

    assert result.exit_code == 3
    assert "is not JSON" in result.stderr


def test_an_infeasible_placement_is_exit_code_4_and_names_the_shortfall() -> None:
    result = _run(
        "place", TESTBED, "--set", "job.workers=9", "--set", "placement.policy=ifs"
    )

    assert result.exit_code == 4
    assert f"{TESTBED}:10: cluster.machines: " in result.stderr
    assert "cpu" in result.stderr
    assert "14" in result.stderr  # 46 needed, 32 there


def test_an_unwritable_target_is_exit_code_3(tmp_path: Path) -> None:
    result = _run("simulate", GOLDEN, "--json", str(tmp_path / "no" / "out.json"))

    assert result.exit_code == 3
    assert "cannot be written" in result.stderr


def test_interruption_is_exit_code_130_and_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from emu.cli import predict_commands

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(predict_commands, "prepare", interrupted)
    result = _run("simulate", GOLDEN)

    assert result.exit_code == 130
    assert result.stderr == "emu: interrupted\n"


def test_validate_prints_every_error_of_every_file(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(
        Path(GOLDEN).read_text().replace("10 B/s", "10").replace("time: 3 s", "time: 3")
    )
    result = _run("validate", GOLDEN, str(bad), str(tmp_path / "missing.yaml"))

    assert result.exit_code == 2
    assert result.stdout == f"{GOLDEN}: good\n"
    lines = result.stderr.splitlines()
    assert len(lines) == 3
    assert "cluster.machines[0].nic: a bare number (10)" in lines[0]
    assert "job.tasks[4].time: a bare number (3)" in lines[1]
    assert "cannot be read" in lines[2]


def test_validate_as_json(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(Path(GOLDEN).read_text() + "sed: 1\n")
    result = _run("validate", str(bad), "--json", "-")

    [error] = json.loads(result.stdout)[str(bad)]
    assert (error["key"], error["file"]) == ("sed", str(bad))
    assert error["line"] == len(bad.read_text().splitlines())


def test_schema_is_json() -> None:
    schema = json.loads(_run("schema").stdout)

    assert schema["$defs"]["Scenario"]["title"] == "Scenario"
    assert "LabFile" in schema["$defs"]


def test_place_prints_the_load_on_every_resource() -> None:
    result = _run("place", TESTBED, "--set", "placement.policy=distdgl")

    assert result.exit_code == 0
    assert "8/8" in result.stdout
    assert "41 GB/48 GB" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_a_resource_without_limit_has_no_capacity_in_json() -> None:
    placed = _json("place", GOLDEN, "--set", "job.tasks[0].demands={cpu: 1}")

    used = {load["machine"]: load["used"] for load in placed["loads"]}
    assert used == {"m0": 1.0, "m1": 0.0}
    assert [load["capacity"] for load in placed["loads"]] == [None, None]


def test_distdgl_separates_two_of_the_twelve_pairs() -> None:
    """As the paper says of its testbed."""
    tasks = _json("place", TESTBED, "--set", "placement.policy=distdgl")["tasks"]
    apart = [s for s in range(12) if tasks[f"s{s}"] != tasks[f"w{s // 2}"]]

    assert len(apart) == 2


def test_compare_shows_every_pair_of_policy_and_placement() -> None:
    rows = _json(
        "compare", GOLDEN, "--policies", "oes,maxmin", "--placements", "explicit,ifs"
    )

    assert [(row["placement"], row["policy"]) for row in rows] == [
        ("explicit", "oes"),
        ("explicit", "maxmin"),
        ("ifs", "oes"),
        ("ifs", "maxmin"),
    ]
    assert rows[0]["makespan"] == 38
    assert rows[2]["moved"] <= rows[0]["moved"]


def test_compare_takes_the_same_seeds_for_everybody() -> None:
    """Nothing in this job is drawn: all seeds change alike."""
    rows = _json("compare", GOLDEN, "--policies", "oes,fifo", "--seeds", "5")

    assert [row["seeds"] for row in rows] == [5, 5]
    assert [row["half"] for row in rows] == [0.0, 0.0]
    change = rows[1]["makespan"] / rows[0]["makespan"] - 1
    assert change != 0
    assert (rows[1]["change"], rows[1]["change_half"]) == (pytest.approx(change), 0.0)


def test_compare_refuses_an_unknown_policy() -> None:
    result = _run("compare", GOLDEN, "--policies", "oes,mxmin")

    assert result.exit_code == 2
    assert "found 'mxmin', did you mean 'maxmin'?" in result.stderr


def _changed(result: Path, **changes: float) -> None:
    content = json.loads(result.read_text())
    content["tasks"][-1] |= changes
    result.write_text(json.dumps(content))


def test_audit_finds_nothing_in_a_simulation(tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    _run("simulate", GOLDEN, "--json", str(target))
    result = _run("audit", str(target))

    assert result.exit_code == 0
    assert "keeps (5)-(15)" in result.stdout
    assert _run("audit", str(tmp_path)).exit_code == 0  # as a run directory


def test_audit_names_a_task_that_starts_too_early(tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    _run("simulate", GOLDEN, "--json", str(target))
    _changed(target, start=1.0)
    result = _run("audit", str(target))

    assert result.exit_code == 6
    assert "(10)" in result.stdout
    assert "ps0" in result.stdout
    report = json.loads(_run("audit", str(target), "--json", "-").stdout)
    assert report["violations"]
    lenient = _run("audit", str(target), "--tolerance", "60 s")
    assert lenient.exit_code == 0


def test_audit_refuses_half_a_result(tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    _run("simulate", GOLDEN, "--json", str(target))
    target.write_text(target.read_text()[:-100])

    assert _run("audit", str(target)).exit_code == 3
    assert _run("audit", str(tmp_path / "nothing")).exit_code == 3
    assert _run("audit", str(target), "--tolerance", "5").exit_code == 2


@pytest.mark.slow
def test_a_figure_without_its_libraries_says_what_installs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("emu.report.plot")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    result = _run("report", str(tmp_path), "--as", "svg")

    assert result.exit_code == 3
    wanted = "emu: this needs matplotlib: pip install 'dgtp-emulator[figures]'\n"
    assert result.stderr == wanted
    assert gc.isenabled()


def test_the_console_script_answers() -> None:
    code = "from emu.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "simulate", GOLDEN, "--set", "job.iterations=x"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert done.stderr.startswith("emu: --set job.iterations=x: job.iterations: found")


#: A range in which one system is the faster: two values are asked for.
WIDTHS = ["--key", "job.model.hidden", "--range", "16,32", "--set", "job.iterations=4"]


@pytest.mark.parametrize(
    "words",
    [
        ["place", "golden"],
        ["explain", "golden"],
        ["compare", "golden", "--policies", "oes,fifo"],
        ["crossover", "p3_products", *WIDTHS],
        ["trials", "golden", "--count", "1"],
    ],
    ids=lambda words: words[0],
)
def test_keys_of_json_are_those_that_are_documented(words: list[str]) -> None:
    document = Path(__file__).parents[2] / "docs" / "results.md"
    text = document.read_text(encoding="utf-8")
    (row,) = re.findall(rf"(?m)^`{words[0]}`[^|]* \| (.*)$", text)
    documented = set(re.findall(r"`(\w+)`", row))

    content = _json(*words)
    if isinstance(content, list):
        content = content[0]
    assert set(content) <= documented


def test_keys_of_a_simulation_are_those_of_a_run_or_named_beside_them() -> None:
    document = Path(__file__).parents[2] / "docs" / "results.md"
    text = document.read_text(encoding="utf-8")
    _, _, of_a_run = text.partition("## Keys of result.json\n")
    of_a_run, _, _ = of_a_run.partition("\n## ")
    (line,) = re.findall(r"(?m)^`emu simulate FILE --json OUT` (.*)$", text)
    rows = re.findall(r"(?m)^(`\w.*?) \| ", of_a_run)
    documented = set(re.findall(r"`(\w+)`", " ".join([line, *rows])))

    content = _json("simulate", "golden")

    assert set(content) <= documented
