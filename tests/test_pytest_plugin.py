"""Scenarios as tests: what passes, what fails and why, and what is left behind."""

from __future__ import annotations

from fnmatch import fnmatch
from xml.etree import ElementTree as ET

import pytest

from tests import draws

pytest_plugins = ["pytester"]


#: Plugins that a session within a session has twice.
WITHOUT = ("-p", "no:randomly", "-p", "no:asyncio", "-p", "no:xdist")


def session(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """Run a session in this process, in which emu and its agents are imported.

    The guide on CI is walked with one that a shell starts.
    """
    return pytester.runpytest_inprocess(*WITHOUT, *options)


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
    done = session(pytester)

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


def bracketed(pattern: str) -> str:
    return pattern.replace("?", "[?]")


@pytest.mark.parametrize(
    ("marker", "problem"),
    [
        (
            "'golden', makespann='3 s'",
            "unknown key 'makespann', did you mean 'makespan'?",
        ),
        ("'golden', trsut='trusted'", "unknown key 'trsut', did you mean 'trust'?"),
        ("'golden', set={}", "unknown key 'set', did you mean 'sets'?"),
        ("'golden', trust='trustd'", "trust is 'trustd', did you mean 'trusted'?"),
        ("'golden', trust=True", "trust is True, known: trusted, degraded, untrusted"),
        ("'goldne'", "no scenario 'goldne', did you mean 'golden'?"),
        ("'onw.yaml'", "no scenario 'onw.yaml', did you mean 'own.yaml'?"),
        ("scenario='nowhere.yaml'", "no scenario 'nowhere.yaml', *"),
        ("'golden', sets='x=1'", "sets is 'x=1', write for example *"),
        ("'golden', sets={'job.itertions': 3}", "*, did you mean 'iterations'?"),
        ("'golden', sets={'emulation.timescale': 3}", "*, did you mean 'time_scale'?"),
        ("'golden', makespan_error=5", "*found 5 for a share, write 5 % (or 500 %)"),
        ("'golden', gap='fast'", "*found 'fast' for a share, write a number *"),
        ("'golden', accuracy=0.5", "*a custom job trains nothing, remove this key"),
        ("'golden', 'demo'", "*write @pytest.mark.emu('scenario.yaml')"),
        ("", "*write @pytest.mark.emu('scenario.yaml')"),
    ],
)
def test_a_wrong_marker_is_one_line(
    marker: str, problem: str, pytester: pytest.Pytester
) -> None:
    pytester.makefile(".yaml", own="cluster: nonsense")
    pytester.makepyfile(
        f"import pytest\n@pytest.mark.emu({marker})\ndef test_bad(emu_run): pass"
    )
    done = pytester.inline_run(*WITHOUT)

    (failed,) = done.getfailures()
    assert (failed.when, str(failed.longrepr).count("\n")) == ("setup", 0)
    assert fnmatch(str(failed.longrepr), f"@pytest.mark.emu: {bracketed(problem)}")


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
    done = session(pytester, "inner")

    done.stdout.fnmatch_lines(["*own.yaml:1: cluster*"])


MIXED = """
import pytest

@pytest.mark.emu("golden", sets={{"job.iterations": 1, "emulation.time_scale": 0.1,
                 "expect": None}}, trust="untrusted", gap="{gap}")
def test_it(emu_run):
    assert {holds}
"""


@pytest.mark.emulation
@pytest.mark.untimed
@pytest.mark.parametrize(
    ("gap", "holds", "said", "github"),
    [
        draws.rarely("1000 %", True, "", ""),
        draws.rarely("1000 % ..", True, "the gap is ", "true"),
        ("1000 %", "1 > 2, 'a,b: 50%'", "a,b: 50%25", "true"),
    ],
)
def test_junit_and_github_learn_of_the_run(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    gap: str,
    holds: object,
    said: str,
    github: str,
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", github)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    pytester.makepyfile(test_own=MIXED.format(gap=gap, holds=holds))
    done = session(pytester, "--junitxml", "j.xml")
    (case,) = ET.parse(pytester.path / "j.xml").iter("testcase")  # noqa: S314
    told = {one.get("name"): one.get("value") or "" for one in case.iter("property")}
    notes = [line for line in done.outlines if line.startswith("::")]

    assert float(told.pop("emu_makespan")) > 1
    assert told.pop("emu_verdict") in {"trusted", "degraded", "untrusted"}
    kept = [str(path) for path in (pytester.path / "runs").glob("*")]
    assert [*told.values()] == kept
    assert len(kept) == len(notes) * (github == "true") + bool(said) * (not github)
    for note in notes:
        assert note.startswith("::error file=test_own.py,line=")
        assert said in note
        assert kept[0] in note


def test_what_keeps_a_scenario_from_starting_is_a_line(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch is not there, say."""
    monkeypatch.setattr("emu.experiment.dry_run.is_installed", lambda _: False)
    pytester.makepyfile(
        "import pytest\n@pytest.mark.emu('own_model')\ndef test_it(emu_run): pass"
    )
    (failed,) = pytester.inline_run(*WITHOUT).getfailures()

    assert str(failed.longrepr).count("\n") == 0
    assert "torch is not installed on this host: pip install" in str(failed.longrepr)
