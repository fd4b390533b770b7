"""A run over several hosts: agents in network namespaces of their own.

The coordinator sits in another, and everything goes by address: clocks are compared,
fluid lines travel as messages, no shared memory of another host is opened.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from emu.emulation.coordinator import RunSettings, emulate
from emu.emulation.launch.launcher import ExternalLauncher
from emu.emulation.shaping import Processes
from emu.errors import NodeLost
from emu.prediction.analysis.critical_path import critical_path
from emu.trust.guards.traffic import clocks
from emu.trust.lateness import clock_uncertainty
from tests import draws
from tests.emulation.coordinator.emulated import Acts, golden
from tests.emulation.coordinator.hosts import ip, namespaces
from tests.leftovers import Leftovers
from tests.trust.guards.reported import reported

pytestmark = [
    pytest.mark.emulation,
    pytest.mark.netns,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        shutil.which("ip") is None or os.geteuid() != 0,
        reason="network namespaces need root and the ip command",
    ),
]
ROOT = Path(__file__).parents[3]
TOKEN = "for-this-test"  # noqa: S105


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Two namespaces, each with a veth to a bridge of the host's own namespace."""
    with namespaces_or_skip(2) as names:
        yield names


@contextlib.contextmanager
def namespaces_or_skip(count: int) -> Iterator[list[str]]:
    """Yield `namespaces`, where they can be made."""
    with contextlib.ExitStack() as stack:
        try:
            names = stack.enter_context(namespaces(count))
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no bridge can be made here: {error.stderr.strip()}")
        yield names


class Joined:
    """Agents in their namespaces, started when the coordinator listens.

    The clock of the last one is ``ahead`` by some seconds, where that is not 0.
    """

    def __init__(
        self, names: list[str], leftovers: Leftovers, log: Path, ahead: int = 0
    ) -> None:
        self.names, self.leftovers, self.log = names, leftovers, log
        shift = ["unshare", "--time", f"--monotonic={ahead}", "--fork", "--kill-child"]
        self.shifts = {names[-1]: shift} if ahead else {}
        self.agents: list[subprocess.Popen[bytes]] = []

    def start(self, host: str, port: int) -> None:
        """Start an agent in each namespace."""
        for name in self.names:
            command = ["ip", "netns", "exec", name, *self.shifts.get(name, [])]
            command += [sys.executable, "-m", "emu.emulation.launch"]
            with self.log.open("ab") as output:
                agent = subprocess.Popen(
                    [*command, f"{host}:{port}", f"--name={name}"],
                    stdout=output,
                    stderr=output,
                    cwd=ROOT,
                    env={**os.environ, "EMU_TOKEN": TOKEN},
                )
            self.agents.append(agent)

    def codes(self) -> list[int]:
        """Wait for the agents and return their exit statuses."""
        self.leftovers.note()
        return [agent.wait(10) for agent in self.agents]


class JoinsAndActs(Acts):
    """Starts the agents, then acts as told."""

    joined_by: Joined

    @override
    def listening(self, host: str, port: int, token: str) -> None:
        assert token == TOKEN
        self.joined_by.start(host, port)


def observer(joined: Joined, moment: str, action: Any, problem: Any) -> JoinsAndActs:
    watching = JoinsAndActs(moment, action, problem)
    watching.joined_by = joined
    return watching


def settings(
    host: str, time_scale: float, processes: Processes = "task"
) -> RunSettings:
    return RunSettings(
        processes=processes,
        time_scale=time_scale,
        byte_scale=20_000.0,
        launcher=ExternalLauncher(2),
        listen=host,
        token=TOKEN,
        heartbeat_timeout=3.0,
    )


@pytest.mark.parametrize("processes", ["task", draws.rarely("machine")])
def test_two_agents_run_the_golden_job(
    hosts: list[str], tmp_path: Path, leftovers: Leftovers, processes: Processes
) -> None:
    problem, realization = golden(3)
    apart, names = list[float](), set[str]()

    def look() -> None:
        names.update(process.name() for process in leftovers.note())

    while not apart or (apart[-1] > 0.03 and len(apart) < 3):
        agents = Joined(hosts[1:], leftovers, tmp_path / "agents.log")
        run = emulate(
            problem,
            "oes",
            settings(hosts[0], 0.05, processes),
            realization,
            log=tmp_path / "agent.log",
            observer=observer(agents, "began", look, problem),
        )
        assert agents.codes() == [0, 0]
        assert len({host["pid"] for host in run.hosts}) == 2
        apart.append(abs(run.schedule.makespan / 38.0 - 1))
        print(f"makespan {run.schedule.makespan:.3f} of 38")  # noqa: T201

    assert apart[-1] < 0.03
    of_machines = {"emu:g0", "emu:g1"} if processes == "machine" else set[str]()
    of_tasks = {f"emu:{name}" for name in problem.job.processes}
    assert {name for name in names if name.startswith("emu:")} == (
        of_machines or of_tasks
    )


def test_clocks_of_two_hosts_become_one_time_line(
    hosts: list[str], tmp_path: Path, leftovers: Leftovers
) -> None:
    """The second host's clock is 3 s ahead; the job takes 1.9 s of wall time."""
    problem, realization = golden(3)
    agents = Joined(hosts[1:], leftovers, tmp_path / "agents.log", ahead=3)
    run = emulate(
        problem,
        "oes",
        settings(hosts[0], 0.05),
        realization,
        log=tmp_path / "agent.log",
        observer=observer(agents, "began", leftovers.note, problem),
    )
    agents.codes()
    same, shifted = (host["clock"] for host in run.hosts)
    evidence = reported(run.schedule, statistics=run.statistics, time_scale=0.05)
    print(shifted, run.schedule.makespan)  # noqa: T201

    assert run.schedule.makespan == pytest.approx(38.0, rel=0.1)
    assert same["readings"] == same["uncertainty"] == 0
    assert shifted["readings"] > 0
    assert abs(shifted["offset"] + 3.0) <= shifted["uncertainty"] < 0.5
    assert not list(clocks(evidence))
    doubt = clock_uncertainty(critical_path(run.schedule), problem, run.hosts)
    assert doubt >= shifted["uncertainty"]


@pytest.mark.untimed
def test_cut_host_is_noticed_and_ends_itself(
    hosts: list[str], tmp_path: Path, leftovers: Leftovers
) -> None:
    problem, realization = golden(3)
    agents = Joined(hosts[1:], leftovers, tmp_path / "agents.log")

    def cut() -> None:
        leftovers.note()
        ip(f"link set {hosts[2]} down")  # no FIN, no RST: silence

    watching = observer(agents, "task g0 0", cut, problem)
    with pytest.raises(
        NodeLost, match=r"agent emu\d+h\d at 10.* silent for 3 s.*iteration"
    ):
        emulate(
            problem,
            "oes",
            settings(hosts[0], 1.0),
            realization,
            log=tmp_path / "agent.log",
            observer=watching,
        )
    print(f"noticed after {time.monotonic() - watching.at:.1f} s")  # noqa: T201

    assert time.monotonic() - watching.at < 15
    assert sorted(agents.codes())[1] == 5  # the one that was cut off: a lost run
    with contextlib.suppress(ProcessLookupError):
        os.kill(agents.agents[0].pid, signal.SIGKILL)


@pytest.mark.untimed
def test_killed_agent_of_another_host(
    hosts: list[str], tmp_path: Path, leftovers: Leftovers
) -> None:
    problem, realization = golden(3)
    agents = Joined(hosts[1:], leftovers, tmp_path / "agents.log")

    def kill() -> None:
        leftovers.note()
        agents.agents[1].kill()

    watching = observer(agents, "task g0 0", kill, problem)
    with pytest.raises(NodeLost, match=r"agent emu\d+h\d at 10.* is gone.*iteration"):
        emulate(
            problem,
            "oes",
            settings(hosts[0], 1.0),
            realization,
            log=tmp_path / "agent.log",
            observer=watching,
        )
    taken = time.monotonic() - watching.at
    print(f"ended after {taken:.2f} s")  # noqa: T201

    assert taken < 10
    assert agents.codes()[1] == -signal.SIGKILL
