"""``emu run --witness ns3``: refused before the run, or three makespans after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import emu.prediction.packets as room
from emu.cli import app
from emu.errors import SchedulingError
from emu.experiment import witness
from emu.experiment.recompute import audit_whole
from emu.prediction.packets import Control, Shares, missing_ns3, simulate_packets
from emu.problem import Cluster, Machine, Problem, Realization
from emu.runs.audit_inputs import read_to_audit
from tests import draws
from tests.prediction.packets.test_ns3 import senders

needs_ns3 = pytest.mark.skipif(bool(missing_ns3()), reason=missing_ns3() or "none")
QUICK = ["emulation.time_scale=0.05", "job.iterations=2", "expect=null"]


def ran(folder: Path, changes: list[str], *options: str) -> Any:
    """Return what the command came to, and printed."""
    sets = [word for change in changes for word in ("--set", change)]
    where = ["--runs", str(folder / "runs"), "--json", str(folder / "out.json")]
    return CliRunner().invoke(app, ["run", "golden", *sets, *where, *options])


def audited(run: Path) -> tuple[list[str], tuple[str, ...]]:
    """Return what an audit of a run finds, and what it cannot compare."""
    subject = read_to_audit(run)
    report, silent = audit_whole(subject, subject.tolerance, 1e-6)
    return [one.sentence for one in report.violations], silent


@needs_ns3
@pytest.mark.emulation
@pytest.mark.untimed
def test_a_run_over_sockets_and_an_audit_of_its_witness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = ran(tmp_path, QUICK, "--witness", "ns3", "--congestion-control", "reno")

    assert done.exit_code == 0, done.output
    (run,) = (tmp_path / "runs").iterdir()
    result = json.loads((run / "result.json").read_text())
    assert json.loads((tmp_path / "out.json").read_text()) == result
    seen = result["witness"]
    assert (seen["sharing"], seen["congestion_control"]) == ("fair", "reno")
    lengths = seen["makespans"]
    assert lengths["fluid"] == result["predicted_makespan"] == 27.0
    assert lengths["measured"] == result["makespan"]
    assert lengths["packets"] == pytest.approx(27.0, rel=0.02)
    assert "over packets" in (run / "report.html").read_text()
    assert audited(run)[0] == []

    seen["makespans"]["packets"] = lengths["fluid"]
    (run / "result.json").write_text(json.dumps(result))
    assert "witness.makespans.packets" in " ".join(audited(run)[0])
    del result["witness"]
    (run / "result.json").write_text(json.dumps(result))
    assert "witness is missing" in " ".join(audited(run)[0])
    monkeypatch.setattr(room, "_libraries", lambda: iter(()))
    assert "no packets are sent again: ns3: ns-3 is not" in " ".join(audited(run)[1])


@needs_ns3
@pytest.mark.emulation
@pytest.mark.untimed
def test_packets_that_fail_leave_the_run_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise SchedulingError("ns-3 3.37 did not end the job: broken")

    monkeypatch.setattr(witness, "simulate_packets", fails)
    done = ran(tmp_path, QUICK, "--witness", "ns3")

    assert done.exit_code != 0
    assert "did not end the job" in done.output
    (run,) = (tmp_path / "runs").iterdir()
    assert "witness" not in json.loads((run / "result.json").read_text())
    assert audited(run)[0] == []


@needs_ns3
@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        (["events=[{at: 5 s, machine: m1, nic: 5 B/s}]"], [], "capacities that change"),
        (["events=[{at: 5 s, pause: m1, for: 1 s}]"], [], "slow or paused"),
        ([], ["--dry-run"], "follows a run"),
    ],
)
def test_what_packets_cannot_carry_is_refused_before_the_run(
    changes: list[str], options: list[str], said: str, tmp_path: Path
) -> None:
    done = ran(tmp_path, [*QUICK, *changes], "--witness", "ns3", *options)

    assert done.exit_code == 2
    assert said in done.output
    assert not (tmp_path / "runs").exists() or not [*(tmp_path / "runs").iterdir()]


def test_without_ns3_one_line_comes_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_libraries", lambda: iter(()))
    done = ran(tmp_path, QUICK, "--witness", "ns3")

    assert done.exit_code == 3
    assert "--witness ns3: ns-3 is not installed: pip install ns3" in done.output
    assert not (tmp_path / "runs").exists()


def test_options_of_packets_without_packets_are_refused(tmp_path: Path) -> None:
    done = ran(tmp_path, QUICK, "--sharing", "tcp")

    assert done.exit_code == 2
    assert "are of packets: add --witness ns3" in done.output


@pytest.mark.nightly
@needs_ns3
@pytest.mark.parametrize("seed", draws.some(range(6), few=1))
def test_a_time_scale_is_slower_nics_and_longer_tasks(seed: int) -> None:
    """TCP's own times stay: scaled by hand it comes to the same, and unscaled not."""
    draw, scale = np.random.default_rng([33, seed]), 4.0
    problem, realization = senders(5, 40_000.0, iterations=3)
    times = draw.uniform(0.0, 0.05, realization.times.shape)
    how: Any = {"sharing": Shares.TCP, "control": Control.RENO}

    run = simulate_packets(
        problem, Realization(times, realization.volumes), **how, time_scale=scale
    )

    slow = tuple(
        Machine(m.name, 1e6 / scale, 1e6 / scale) for m in problem.cluster.machines
    )
    again = simulate_packets(
        Problem(Cluster(slow), problem.job, problem.placement),
        Realization(scale * times, realization.volumes),
        **how,
    )
    assert run.dropped == again.dropped
    assert run.schedule.makespan == pytest.approx(again.schedule.makespan / scale)
