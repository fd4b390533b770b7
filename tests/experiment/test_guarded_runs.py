"""Runs that agree with their simulation and are false all the same: guards say so."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from emu.emulation.coordinator import run as coordinator_run
from emu.emulation.coordinator import scheduler_driver
from emu.experiment import run_experiment
from emu.prediction.core import lib
from emu.prediction.scheduling import Scheduler
from emu.prediction.simulation import simulate
from emu.problem import Cluster, Machine, Problem, Schedule
from emu.problem.links import Links
from emu.runs.run_directory import RunDirectory
from emu.scenario import load, prepare
from tests import draws

pytestmark = [pytest.mark.emulation, pytest.mark.timeout(180)]
GOLDEN = Path(__file__).parents[2] / "scenarios" / "golden.yaml"
#: 38 emulated seconds in 1.9 wall seconds.
OPTIONS = ["emulation.time_scale=0.05", "expect=null", "emulation.byte_scale=10000"]


def _result(tmp_path: Path) -> dict[str, Any]:
    experiment = prepare(load(GOLDEN, OPTIONS))
    settings = run_experiment.emulation_settings(experiment.scenario)
    directory = RunDirectory.create("golden", tmp_path)
    return run_experiment.carry_out(experiment, settings, directory).content


def _faster(problem: Problem) -> Problem:
    machines = tuple(
        Machine(m.name, 1.5 * m.bandwidth_in, 1.5 * m.bandwidth_out, m.resources)
        for m in problem.cluster.machines
    )
    return Problem(Cluster(machines), problem.job, problem.placement)


def test_ports_of_one_and_a_half_times_their_capacity_are_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler and the simulator both hand out 15 of 10 B/s, and agree."""

    def planted(problem: Problem, *arguments: Any, **options: Any) -> Schedule:
        return simulate(_faster(problem), *arguments, **options)

    monkeypatch.setattr(run_experiment, "simulate", planted)
    monkeypatch.setattr(
        coordinator_run,
        "Scheduler",
        lambda problem, *arguments, **options: Scheduler(
            _faster(problem), *arguments, **options
        ),
    )
    result = _result(tmp_path)
    guards = result["verdict"]["guards"]

    # Of one run: 28.67 over 38 s, whatever a busy host adds to its makespan.
    assert result["replayed_makespan"] < 0.9 * result["predicted_makespan"]
    assert result["verdict"]["trust"] == "untrusted"
    assert {found["guard"] for found in guards} >= {"link bytes"}
    assert all(found["at"] < 6 for found in guards if found["guard"] == "link bytes")


def test_links_read_at_one_and_a_half_times_what_is_stated_are_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake in the one place from which scheduler, simulator and bounds read."""
    honest = vars(Links)["capacities"].func
    planted = cached_property(lambda links: 1.5 * honest(links))
    planted.__set_name__(Links, "capacities")
    monkeypatch.setattr(Links, "capacities", planted)

    result = _result(tmp_path)

    assert result["predicted_makespan"] == pytest.approx(28.67, rel=0.001)
    assert result["verdict"]["trust"] == "untrusted"
    assert "link bytes" in {found["guard"] for found in result["verdict"]["guards"]}


class PlantedCore:
    """The core, but for what it publishes in a turn."""

    def __init__(self, publish: Callable[[Any], bool]) -> None:
        self.draw_consequences = publish

    def __getattr__(self, name: str) -> Any:
        return getattr(lib, name)


def plant(monkeypatch: pytest.MonkeyPatch, publish: Callable[[Any], bool]) -> None:
    """Have runs publish so, by the coordinator: turns of the core leave it to that."""
    monkeypatch.setattr(scheduler_driver, "lib", PlantedCore(publish))
    monkeypatch.setattr(scheduler_driver.SchedulerDriver, "settles_alone", True)


def test_a_board_of_3_percent_less_on_one_edge_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows as lateness below 1 % alone, which is trusted."""

    def lessen(turn: Any) -> bool:
        news = turn.desk.news
        rows = [row for row in range(news.count) if news.edge[row] == 5]
        decided = [news.rate[row] for row in rows]
        for row in rows:
            news.rate[row] *= 0.97
        has_room = lib.draw_consequences(turn)
        for row, rate in zip(rows, decided, strict=True):
            news.rate[row] = rate
        return bool(has_room)

    plant(monkeypatch, lessen)
    verdict = _result(tmp_path)["verdict"]

    (said,) = [one["sentence"] for one in verdict["guards"] if one["guard"] == "rates"]
    assert "senders of s1->w0 found" in said
    assert verdict["cause"] == "guards"


@pytest.mark.parametrize(
    "edge", [draws.rarely(5), 7], ids=["s1->w0, more come", "ps0->w0, the last"]
)
def test_a_rate_that_never_came_to_a_board_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: int
) -> None:
    """Whatever the makespan is: the flow goes on at its rate of before for a while.

    One that stood still would do so until the run is given up.
    """
    lost = list[int]()

    def lose(turn: Any) -> bool:
        news = turn.desk.news
        boards = turn.boards
        is_alone = news.count == 1 and news.edge[0] == edge
        if is_alone and not lost:
            found = boards.board[0][edge]
            if found.iteration == news.iteration[0] == 1 and found.rate > 0:
                lost.append(edge)
                boards.count = 0
        has_room = lib.draw_consequences(turn)
        boards.count = 1
        return bool(has_room)

    plant(monkeypatch, lose)
    verdict = _result(tmp_path)["verdict"]

    assert lost == [edge]
    assert (verdict["trust"], verdict["cause"]) == ("untrusted", "guards")
    (said,) = [one["sentence"] for one in verdict["guards"] if one["guard"] == "rates"]
    assert "1 rates that the coordinator decided never came to the rate board" in said
