"""Scenarios as tests: what passes, what fails and why, and what is left behind."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

PASSING = """
import pytest

@pytest.mark.emu("golden", sets={"job.iterations": 1, "emulation.time_scale": 0.1,
                 "expect": None}, makespan_error="50 %", trust="untrusted")
def test_good(emu_run):
    assert emu_run.makespan > 1
"""
FAILING = """
@pytest.mark.emu("golden", sets={"job.iterations": 1, "emulation.time_scale": 0.1,
                 "expect": None}, gap="1000 % ..", trust="untrusted")
def test_bad():
    raise AssertionError("never reached")
"""


@pytest.mark.emulation
@pytest.mark.untimed
def test_a_failed_test_shows_its_error_budget_and_keeps_its_run(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(PASSING + FAILING)
    done = pytester.runpytest_subprocess("-p", "emu.pytest_plugin", "-p", "no:randomly")

    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(
        [
            "*the gap is *, expected at least 1000 %",
            "*makespan error*",
            "*run directory*",
        ]
    )
    assert "never reached" not in done.stdout.str()
    (kept,) = (pytester.path / "runs").iterdir()
    assert (kept / "report.html").exists()


@pytest.mark.parametrize(
    ("marker", "problem"),
    [
        ("'golden', makespann=3", "*unknown key 'makespann'*"),
        ("'nowhere.yaml'", "*nowhere.yaml*"),
        ("", "*write @pytest.mark.emu('scenario.yaml')*"),
    ],
)
def test_a_wrong_marker_is_told(
    marker: str, problem: str, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        f"import pytest\n@pytest.mark.emu({marker})\ndef test_bad(emu_run): pass"
    )
    done = pytester.runpytest_subprocess("-p", "emu.pytest_plugin")

    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines([problem])


def test_the_plugin_imports_nothing_heavy() -> None:
    """It is loaded in every session of an environment that has emu."""
    from tests.test_exports import HEAVY, loaded_by

    assert not loaded_by("import emu.pytest_plugin") & (HEAVY - {"asyncio"})


def test_relative_scenarios_stand_beside_the_test(
    pytester: pytest.Pytester,
) -> None:
    pytester.mkdir("inner")
    (pytester.path / "inner" / "own.yaml").write_text("cluster: nonsense")
    (pytester.path / "inner" / "test_own.py").write_text(
        "import pytest\n@pytest.mark.emu('own.yaml')\ndef test_bad(emu_run): pass"
    )
    done = pytester.runpytest_subprocess("-p", "emu.pytest_plugin", "inner")

    done.stdout.fnmatch_lines(["*own.yaml:1: cluster*"])
