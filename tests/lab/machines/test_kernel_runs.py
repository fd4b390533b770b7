"""Runs on kernel NICs: a network that does not know what the simulator expects."""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.emulation.coordinator.membership import Membership
from emu.emulation.coordinator.peers import JoinedAgent
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.wire.messages import Message
from emu.errors import RunError, ScenarioError
from emu.experiment.recompute import audit_whole
from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.experiment.witness import PacketNetwork, third_witness
from emu.lab import kernel_network
from emu.lab.machines.lab import LabMachine
from emu.prediction.packets import Control, Shares, missing_ns3
from emu.runs.audit_inputs import read_to_audit
from emu.runs.run_directory import RunDirectory
from emu.scenario import load, prepare
from emu.trust.guards.traffic import LINK_BYTES
from tests import draws
from tests.emulation.coordinator.emulated import Acts
from tests.integration.scenarios import GOLDEN, attempts, carried_out, written
from tests.integration.test_setup import DGCL
from tests.leftovers import Leftovers

pytestmark = [
    pytest.mark.emulation,
    pytest.mark.netns,
    pytest.mark.usefixtures("_a_lab_can_be_had"),
]

FALLS = Path(__file__).parents[3] / "tools" / "mutation" / "events.yaml"
KERNEL = ["emulation.network=kernel", "schedule.policy=maxmin"]


def run(folder: Path, *overrides: str) -> dict[str, Any]:
    """Return the result of the golden scenario on kernel NICs."""
    stated = [*KERNEL, "job.iterations=1", *overrides]
    return carried_out(GOLDEN, folder, *stated).result


@pytest.mark.parametrize(
    ("sharing", "policy"),
    [("fair", "maxmin"), draws.rarely("tcp", "maxmin"), ("assigned", "oes")],
)
def test_the_kernel_takes_about_as_long_as_was_predicted(
    sharing: str, policy: str, tmp_path: Path, leftovers: Leftovers
) -> None:
    stated = [f"emulation.sharing={sharing}", f"schedule.policy={policy}"]
    result = run(tmp_path, *stated)
    leftovers.note()

    assert (result["network"], result["sharing"]) == ("kernel", sharing)
    assert abs(result["makespan_error"]) < 0.05
    assert ("early_wall_seconds" in result["transport"]) == (sharing == "assigned")
    assert result["transport"]["segments"] > 100
    assert result["verdict"]["guards"] == []


@pytest.mark.untimed
@pytest.mark.skipif(bool(missing_ns3()), reason=missing_ns3() or "none")
@pytest.mark.parametrize(
    "sharing", [draws.rarely(one) if one == Shares.TCP else one for one in Shares]
)
def test_packets_have_the_queues_the_tcp_and_the_time_scale_of_the_nics(
    sharing: Shares, tmp_path: Path, leftovers: Leftovers
) -> None:
    own = f"emulation.sharing={sharing}", "emulation.time_scale=0.1", "expect=null"
    stated = [*KERNEL, "job.iterations=1", *own]
    outcome = carried_out(GOLDEN, tmp_path, *stated).outcome
    leftovers.note()

    network = PacketNetwork.of(outcome.experiment.scenario, None, None)
    seen = third_witness(outcome, network)

    assert network == (sharing, Control.RENO)
    assert seen["time_scale"] == 0.1
    assert seen["makespans"]["packets"] == pytest.approx(17.0, rel=0.1)
    assert seen["pairs"][1]["error"] == outcome.content["prediction"]["error"]


def test_auto_gives_a_run_the_time_that_kernel_nics_cost(
    tmp_path: Path, leftovers: Leftovers
) -> None:
    auto = "emulation.time_scale=auto", "emulation.max_error=0.02", "expect=null"
    sets = [word for one in (*KERNEL, *auto) for word in ("--set", one)]
    done = CliRunner().invoke(app, ["run", str(GOLDEN), "--runs", str(tmp_path), *sets])
    leftovers.note()

    assert done.exit_code == 0, done.output
    assert "by what kernel NICs cost" in done.output
    (run,) = tmp_path.iterdir()
    subject = read_to_audit(run)
    report, _ = audit_whole(subject, subject.tolerance, 1e-6)
    assert [one.sentence for one in report.violations] == []
    chosen = json.loads((run / "result.json").read_text())["auto_scale"]
    assert chosen["predicted"].keys() == chosen["actual"].keys()


@pytest.mark.untimed
@pytest.mark.parametrize("sharing", [draws.rarely("fair"), "assigned"])
def test_rates_reach_the_boards_of_machines_without_their_agents(
    sharing: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    leftovers: Leftovers,
) -> None:
    """Every agent woke up for every rate then, and senders waited for the cores."""
    sent: list[str] = []
    lines: dict[RateBoard, set[int]] = defaultdict(set)
    send, publish = Membership.send_to_agent, RateBoard.publish

    def noting(self: Membership, agent: JoinedAgent, message: Message) -> None:
        sent.append(type(message).__name__)
        send(self, agent, message)

    def put(self: RateBoard, edges: Any, *columns: Any) -> None:
        lines[self] |= {*edges.tolist()}
        publish(self, edges, *columns)

    monkeypatch.setattr(Membership, "send_to_agent", noting)
    monkeypatch.setattr(RateBoard, "publish", put)
    stated = [*KERNEL, "job.iterations=1", f"emulation.sharing={sharing}"]
    outcome = carried_out(GOLDEN, tmp_path, *stated).outcome
    leftovers.note()

    assert {*sent} == {"Launch"}
    problem = outcome.experiment.problem
    place = problem.placement.machine_of
    found = [{place[problem.job.edges[e].source] for e in of} for of in lines.values()]
    assert all(len(machines) <= 1 for machines in found)
    assert {m for machines in found for m in machines} == {
        place[edge.source]
        for edge, hops in zip(problem.job.edges, problem.hops, strict=True)
        if hops
    }


def test_nics_that_are_not_what_the_scenario_says_show_in_the_makespan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leftovers: Leftovers
) -> None:
    """NICs a third slower than stated: no code of the scheduler can hide it."""

    def slower(name: str, out: float, into: float) -> LabMachine:
        return LabMachine(name, out / 1.5, into / 1.5)

    monkeypatch.setattr(kernel_network, "LabMachine", slower)

    result = run(tmp_path, "emulation.time_scale=0.1")
    leftovers.note()

    assert result["makespan_error"] > 0.25


@pytest.mark.untimed
def test_a_setup_crosses_the_same_nics(tmp_path: Path, leftovers: Leftovers) -> None:
    document = DGCL | {
        "cluster": {"machines": [{"name": "m", "count": 3, "nic": "40 Mbit/s"}]},
        "schedule": {"policy": "maxmin"},
        "emulation": {"setup": True, "network": "kernel"},
    }
    one = carried_out(written(document, tmp_path), tmp_path)
    leftovers.note()

    setup, inner = one.result["setup"], one.path / "setup"
    assert setup["measured"]["bytes"] == setup["bytes"] > 0
    content = json.loads((inner / "result.json").read_text())
    assert (content["network"], content["verdict"]["guards"]) == ("kernel", [])


@pytest.mark.untimed
def test_a_policy_that_kernel_nics_do_not_carry_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"schedule\.policy: is fifo"):
        run(tmp_path, "schedule.policy=fifo")


@pytest.mark.untimed
def test_a_nic_that_no_kernel_carries_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"emulation\.time_scale: .*no NIC"):
        run(tmp_path, "emulation.byte_scale=1")


def test_a_nic_falls_to_a_fifth_while_its_run_goes_on(
    tmp_path: Path, leftovers: Leftovers
) -> None:
    """A NIC that stayed what it was would end the run 40 % too early.

    Its queue keeps what windows of before may send: a shorter one lost 324 segments.
    """
    stated = [*KERNEL, "job.iterations=6", "emulation.byte_scale=62500"]

    def once() -> float:
        result = carried_out(FALLS, tmp_path, *stated).result
        assert result["transport"]["retransmitted"] < 100
        guards = [finding["guard"] for finding in result["verdict"]["guards"]]
        # On a busy host the NIC falls late, and carries more than it should have.
        if guards == [LINK_BYTES]:
            return math.inf
        assert guards == []
        return abs(float(result["makespan_error"]))

    found = attempts(once, 0.15)
    leftovers.note()

    assert found[-1] < 0.15
    unchanged = load(FALLS, [*stated, "events=null"])
    assert prepare(unchanged).simulate().makespan == pytest.approx(12.7)


@pytest.mark.untimed
def test_a_nic_that_no_kernel_carries_later_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="time_scale: 4000 B/s is no NIC"):
        carried_out(FALLS, tmp_path, *KERNEL, "events[0].nic=0.01 B/s")


@pytest.mark.untimed
@pytest.mark.parametrize("who", ["agent", "machine"])
@pytest.mark.parametrize("after", [0.0, 0.1, 0.4])
def test_a_machine_that_is_killed_before_it_joins_is_named_at_once(
    tmp_path: Path, leftovers: Leftovers, who: str, after: float
) -> None:
    killed: list[float] = []

    def agents() -> list[psutil.Process]:
        return [
            process
            for process in leftovers.note()
            if "emu.emulation.launch" in (command := process.cmdline())
            and "m1" in command
        ]

    def kill() -> None:
        time.sleep(after)
        until = time.monotonic() + 5.0  # forked, it may not be the agent yet
        while not (found := agents()):
            assert time.monotonic() < until, "no agent of m1"
            time.sleep(0.005)
        process = found[0].parent() if who == "machine" else found[0]
        assert process is not None
        process.kill()
        killed.append(time.monotonic())

    experiment = prepare(load(GOLDEN, [*KERNEL, "job.iterations=1", "expect=null"]))
    with pytest.raises(RunError, match="m1"):
        carry_out(
            experiment,
            emulation_settings(experiment.scenario),
            RunDirectory.create("golden", tmp_path),
            Acts("listening", kill, experiment.problem),
        )
    assert time.monotonic() - killed[0] < 10.0  # the deadline is 30 s
