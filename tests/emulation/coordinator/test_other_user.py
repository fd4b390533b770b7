"""Another user of the host: no way into a run, nothing secret to be read of it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from typing_extensions import override

from emu.emulation.coordinator import Observer
from emu.emulation.network.authentication import derive_key
from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.runs.run_directory import RunDirectory
from emu.scenario import load, prepare
from tests import draws
from tests.leftovers import Leftovers

pytestmark = [
    pytest.mark.emulation,
    pytest.mark.untimed,
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0,
        reason="only root can become another user",
    ),
]
ROOT = Path(__file__).parents[3]


class OtherUser(Observer):
    """Starts one when the run listens, and tells it what there is when it runs."""

    def __init__(self, leftovers: Leftovers, folders: list[Path]) -> None:
        self.leftovers, self.folders = leftovers, folders
        self.token, self.control = "", 0
        self.sockets: set[str] = set()

    @override
    def listening(self, host: str, port: int, token: str) -> None:
        self.token, self.control = token, port
        self.intruder = subprocess.Popen(
            [sys.executable, "-m", "tests.emulation.coordinator.other_user"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        assert self.intruder.stdout is not None
        assert self.intruder.stdout.readline() == "ready\n"

    @override
    def began(self, seconds: float) -> None:
        family = [p for p in self.leftovers.note() if p.pid != self.intruder.pid]
        self.sockets = {
            str(each.laddr) for p in family for each in p.net_connections("unix")
        }
        told: dict[str, Any] = {
            "control": self.control,
            "data": sorted(set().union(*map(listens_at, family))),
            "pids": [os.getpid(), *(process.pid for process in family)],
            "folders": [*map(str, self.folders), "/dev/shm"],  # noqa: S108
        }
        assert self.intruder.stdin is not None
        self.intruder.stdin.write(json.dumps(told) + "\n")
        self.intruder.stdin.flush()
        self.told = told


def listens_at(process: psutil.Process) -> set[int]:
    return {
        each.laddr.port
        for each in process.net_connections("tcp")
        if each.status == "LISTEN"
    }


def test_other_user_gets_nowhere_and_reads_no_secret(
    tmp_path: Path, leftovers: Leftovers
) -> None:
    # Open folders, as those of a user with the usual umask are: pytest's own are not.
    above = [p for p in tmp_path.parents if "pytest-of-" in str(p)]
    for folder in (Path(os.environ["TMPDIR"]), tmp_path, *above):
        folder.chmod(0o755)
    experiment = prepare(load("golden", ["emulation.time_scale=0.05", "expect=null"]))
    directory = RunDirectory.create("golden", tmp_path / "runs")
    other = OtherUser(leftovers, [directory.path, Path(os.environ["TMPDIR"])])
    settings = emulation_settings(experiment.scenario)
    outcome = carry_out(experiment, settings, directory, other)
    out, err = other.intruder.communicate(timeout=20)
    assert other.intruder.returncode == 0, err
    found = json.loads(out)
    log = (directory.path / "agent.log").read_text()

    # It came as far as anybody may; ports that answer are those of a run that runs.
    assert len(other.told["data"]) == 6  # of every process
    assert str(directory.path / "manifest.json") in found["readable"]
    assert found["reached"] == []
    assert len(found["answers"]) == 3 * (2 + 6)
    for attempt, answer in found["answers"].items():
        assert answer.startswith("NodeMisbehaved: "), attempt
        assert "token" in answer or "edge" in answer, attempt
    assert other.sockets <= {""}
    assert log.count("refused a connection from 127.0.0.1:") == len(found["answers"])
    assert log.count("another run's") == 6

    secrets = [other.token.encode()]
    keys = [derive_key(other.token, "edge", number) for number in range(8)]
    keys += [derive_key(other.token, "process", name) for name in ("g0", "s0", "w0")]
    secrets += [form for key in keys for form in (key, key.hex().encode())]
    read = {path: base64.b64decode(each) for path, each in found["readable"].items()}
    read |= {str(p): p.read_bytes() for p in directory.path.iterdir()}
    leaks = {p for p, text in read.items() for each in secrets if each in text}
    assert leaks == set()
    # All 300 B of each iteration, without the parameters that nobody waits for.
    scale = experiment.scenario.emulation.stated_byte_scale
    assert outcome.content["transport"]["payload_bytes"] == 890 * scale


class Crowd(Observer):
    """Another user with many idle connections to every port of a run."""

    def __init__(self, leftovers: Leftovers, moment: str, count: int) -> None:
        self.leftovers, self.moment, self.count = leftovers, moment, count

    def _come(self, *ports: int) -> None:
        self.crowd = subprocess.Popen(
            [sys.executable, "-m", "tests.emulation.coordinator.crowd", str(self.count)]
            + [str(port) for port in ports],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    @override
    def listening(self, host: str, port: int, token: str) -> None:
        self.control = port
        if self.moment == "listening":
            self._come(port)

    @override
    def on_join(self, processes: int) -> None:
        """Come to the data ports before anybody has connected there."""
        if self.moment == "joined":
            family = self.leftovers.note()
            self._come(self.control, *set().union(*map(listens_at, family)))


@pytest.mark.parametrize(
    ("moment", "count"), [draws.rarely("listening", 2000), ("joined", 600)]
)
def test_idle_connections_of_another_user_keep_nobody_out(
    tmp_path: Path, leftovers: Leftovers, moment: str, count: int
) -> None:
    # Long enough for all to come while it lasts: 4,200 take 0.5 s, more on a busy host.
    experiment = prepare(load("golden", ["emulation.time_scale=0.2", "expect=null"]))
    crowd = Crowd(leftovers, moment, count)
    try:
        outcome = carry_out(
            experiment,
            emulation_settings(experiment.scenario),
            RunDirectory.create("golden", tmp_path),
            crowd,
        )
    finally:
        out, _ = crowd.crowd.communicate(timeout=20)
    assert outcome.content["makespan"] > 0
    assert int(out) == count * (1 if moment == "listening" else 7)
