"""What a verdict is made of, from runs and replays that are only figures."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.emulation.wire.frame_layout import FRAME_ROWS, ROWS
from emu.errors import ScenarioError
from emu.experiment import run_experiment
from emu.experiment.run_experiment import obstacle_to_staying, setup_figures
from emu.problem import Outages

MODULE = "emu.experiment.run_experiment"


def part(length: float, *, seconds: float = 0.0, recovery: float = 0.0) -> Any:
    """Return what stands for a schedule of so many seconds, and deaths before it."""
    return SimpleNamespace(length=length, outages=Outages(seconds, recovery))


def prepared_of(*, by_kernel: bool = False, compute: str = "timed") -> Any:
    emulation = SimpleNamespace(max_error=0.01)
    job = SimpleNamespace(processes="abc")
    return SimpleNamespace(
        by_kernel=by_kernel,
        policy="oes",
        emulation=emulation,
        settings=SimpleNamespace(time_scale=4.0, compute=compute, byte_scale=2.0),
        problem=SimpleNamespace(job=job, following=lambda schedule: schedule),
        experiment=SimpleNamespace(expected="expected", scenario=None),
    )


@pytest.mark.parametrize(
    ("share", "emulated", "loss"),
    [(0.03, 104.0, 0.03), (0.5, 104.0, 0.04), (0.5, 98.0, 0.02), (0.5, 100.0, 0.0)],
)
def test_a_delay_counts_for_what_a_run_is_off_at_most(
    share: float, emulated: float, loss: float
) -> None:
    """The replay takes 100 s; a run may be shorter."""
    assert run_experiment._loss_of(share, part(emulated), part(100.0)) == loss
    assert run_experiment._loss_of(share, part(0.0), part(0.0)) == 0.0


@pytest.mark.parametrize("by_kernel", [False, True])
def test_what_deaths_took_beyond_what_was_foreseen_is_a_cause(
    by_kernel: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """First bytes are asked for where the kernel shares NICs."""
    asked = []

    def budget(schedule: Any, replayed: Any, *, rows: Any, first: Any) -> Any:
        asked.append((schedule, replayed, rows, first))
        return {"x": 1.0}

    monkeypatch.setattr(f"{MODULE}._keep_binding_rates", lambda _, of: of)
    monkeypatch.setattr(f"{MODULE}.error_budget.error_budget", budget)
    monkeypatch.setattr(f"{MODULE}.error_budget.send_rows", lambda logs: [*logs])
    sent = np.zeros(2, FRAME_ROWS)
    sent["edge"], sent["iteration"], sent["first"] = (3, 1), (0, 2), (1.5, 2.5)
    sent["last"] = 9.0
    run: Any = SimpleNamespace(
        schedule=part(9.0, seconds=7.0),
        statistics={"a": {"flows": b"1"}, "b": {"flows": b"2"}},
        sent=sent,
    )
    prepared = prepared_of(by_kernel=by_kernel)
    same = run_experiment._budget_of(prepared, run, part(8.0, seconds=7.0))
    assert same == {"x": 1.0}
    later = run_experiment._budget_of(prepared, run, part(8.0, seconds=4.5))
    assert later == {"x": 1.0, "attempts that ended": 2.5}
    first = {(3, 0): 1.5, (1, 2): 2.5} if by_kernel else {}
    assert asked[0][2:] == ([b"1", b"2"], first)


def test_waits_for_a_core_are_a_share_of_the_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def seconds(_: Any, waits: Any, scale: float, chain: Any, *, works: bool) -> float:
        asked.append((waits, scale, chain, works))
        return 2.0

    monkeypatch.setattr(f"{MODULE}.lateness.seconds_of_waits", seconds)
    hosts = {"a": 0.25, "b": 3.0}
    statistics = {
        name: {"host_metrics": {"waited": waited}} for name, waited in hosts.items()
    }
    run: Any = SimpleNamespace(schedule=part(30.0), statistics=statistics)
    for compute, works in (("timed", False), ("real", True), ("padded", True)):
        prepared = prepared_of(compute=compute)
        share = run_experiment._share_of_waits(prepared, run, part(8.0), "chain")  # type: ignore[arg-type]
        assert share == 0.25
        assert asked[-1] == (hosts, 4.0, "chain", works)


@pytest.mark.parametrize(
    ("by_kernel", "compute", "emulated", "outages"),
    [
        (False, "timed", 9.0, 5.0),
        (True, "timed", 8.0, 3.0),
        (False, "real", 9.0, 3.0),
        (True, "real", 8.0, 3.0),
    ],
)
def test_a_host_moves_no_end_that_a_kernel_or_real_work_may_have_moved(
    by_kernel: bool,  # noqa: FBT001
    compute: str,
    emulated: float,
    outages: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run took 9 s after 5 s of deaths, and its replay 8 s after 3 s."""
    asked: dict[str, Any] = {}
    after = []

    def effect(*_: Any, **keys: Any) -> Any:
        asked.update(keys)
        return SimpleNamespace(after=lambda *outages: after.append(outages))

    monkeypatch.setattr(f"{MODULE}.lateness.host_effect", effect)
    monkeypatch.setattr(f"{MODULE}.lateness.clock_uncertainty", lambda *_: 2.0)
    run: Any = SimpleNamespace(
        schedule=part(9.0, seconds=5.0),
        hosts=[],
        realization="measured",
        perturbed="perturbed",
        late_work="late",
    )
    prepared = prepared_of(by_kernel=by_kernel, compute=compute)
    replayed = part(8.0, seconds=3.0)
    run_experiment._effect_of(prepared, run, replayed, None)  # type: ignore[arg-type]
    assert (asked["emulated"], asked["simulated"]) == (emulated, 8.0)
    assert (asked["measured"], asked["perturbed"]) == ("measured", "perturbed")
    # Two wall seconds, of which four are an emulated one.
    assert (asked["late"], asked["clocks"]) == ("late", 0.5)
    ((subject, simulated),) = after
    assert (subject.seconds, simulated.seconds) == (outages, 3.0)


@pytest.mark.parametrize("compute", ["real", "padded"])
def test_measured_work_may_not_undercut_its_cpu_time(
    compute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is twice as fast needs half of the CPU time."""
    for name in ("has_one_clock", "burst_of", "log_of_sends", "real_volumes"):
        monkeypatch.setattr(f"{MODULE}.{name}", lambda *_: None)
    monkeypatch.setattr(f"{MODULE}.list_windows", lambda _: None)
    monkeypatch.setattr(f"{MODULE}.margins", lambda *_: {})
    monkeypatch.setattr(f"{MODULE}.Evidence", lambda **keys: keys)
    prepared = prepared_of(compute=compute)
    prepared.problem.speeds = np.array([2.0, 0.5])
    prepared.experiment.realization = SimpleNamespace(times="stated")
    arrays = dict.fromkeys(ROWS)
    run: Any = SimpleNamespace(
        **arrays,
        cpu=np.array([[4.0, 6.0], [1.0, 3.0]]),
        schedule=None,
        arrivals="arrivals",
        began="began",
        board=None,
        hosts=[],
        statistics={},
        late_work="late",
    )
    found: Any = run_experiment.evidence(prepared, run)
    if compute == "real":
        assert found["times"].tolist() == [[2.0, 3.0], [2.0, 6.0]]
    else:
        assert found["times"] == "stated"
    assert (found["notified"], found["began"]) == ("arrivals", "began")
    assert found["late"] == "late"


def test_processes_stay_where_nothing_of_a_run_stays_in_them() -> None:
    def obstacle(network: str, kills: Any, allow: Any) -> str:
        emulation = SimpleNamespace(network=network)
        scenario = SimpleNamespace(emulation=emulation)
        experiment: Any = SimpleNamespace(scenario=scenario, kills=kills)
        settings: Any = SimpleNamespace(allow=allow)
        return obstacle_to_staying(experiment, settings)

    assert obstacle("shaped", (), ()) == ""
    assert obstacle("kernel", (), ()).startswith("kernel NICs")
    assert obstacle("shaped", (1,), ()).startswith("its deaths")
    assert obstacle("shaped", (), ("a.py:A", "b.py:B")).startswith("a.py:A may keep")


def test_a_setup_that_ran_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: dict[str, Any] = {}
    monkeypatch.setattr(f"{MODULE}.setup_rows", lambda _: rows.copy())
    experiment: Any = None
    assert setup_figures(experiment, tmp_path) == {}
    rows["bytes"] = 9
    assert setup_figures(experiment, tmp_path) == {"setup": {"bytes": 9}}
    content = {
        "makespan": 3.0,
        "makespan_error": 0.5,
        "payloads": {"weights": 4, "rows": 6},
        "verdict": {"trust": "degraded"},
    }
    (tmp_path / "setup").mkdir()
    (tmp_path / "setup" / "result.json").write_text(json.dumps(content))
    measured = {"seconds": 3.0, "error": 0.5, "bytes": 10, "trust": "degraded"}
    found = setup_figures(experiment, tmp_path)
    assert found == {"setup": {"bytes": 9, "measured": measured}}


def test_this_host_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine m0 is carried by this host, and other by another."""
    monkeypatch.setattr(f"{MODULE}.is_here", lambda name: name != "other")
    events = [SimpleNamespace(kill=name) for name in (None, "other", "m0")]
    trails = []

    def error(trail: Any, problem: str) -> ScenarioError:
        trails.append(trail)
        return ScenarioError(problem)

    emulation = SimpleNamespace(hosts={"m0": "here", "m1": "other"})
    scenario: Any = SimpleNamespace(
        emulation=emulation, events=events, origin=SimpleNamespace(error=error)
    )
    run_experiment._check_coordinator(scenario)
    events.append(SimpleNamespace(kill="here"))
    with pytest.raises(ScenarioError, match="here is this host"):
        run_experiment._check_coordinator(scenario)
    assert trails == [("events", 3, "kill")]
