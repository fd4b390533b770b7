"""``emu lab``: programs that know nothing of emu, to their end."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import DataError
from emu.lab.fit_run import fit_run
from emu.lab.machines import cpu_groups
from emu.lab.machines.cpu_groups import Hierarchy
from emu.lab.setup import find_lab_errors, open_lab
from emu.prediction.analysis.traffic import PART, RECEIVE, SEND
from emu.runs.array_files import read_traffic
from emu.scenario.scenario_file import load_lab

pytestmark = [pytest.mark.netns, pytest.mark.usefixtures("_a_lab_can_be_had")]

CLUSTER = """
cluster:
  machines:
    - {name: fast, nic: 100 Mbit/s}
    - {name: slow, nic: 20 Mbit/s}
"""
PROGRAMS = """
events: [{at: 1 ms, machine: slow, nic: 5 Mbit/s}]
lab:
  programs:
    - {name: server, on: [fast], run: "sleep 600"}
    - {name: client, run: "echo $MASTER_ADDR {rank} {address of slow}"}
  until: client
"""


def invoke(folder: Path, text: str, *arguments: str) -> tuple[int, str, Path]:
    """Return exit code, output and run directory of ``emu lab``."""
    (folder / "lab.yaml").write_text(text)
    command = ["lab", str(folder / "lab.yaml"), "--runs", str(folder / "runs")]
    found = CliRunner().invoke(app, [*command, *arguments])
    return found.exit_code, found.output, next((folder / "runs").iterdir())


def test_a_lab_that_is_refused_leaves_no_directory(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(CLUSTER)
    names = ["lab", str(tmp_path / "lab.yaml"), "--runs", str(tmp_path / "runs")]
    edit = ["--set", "lab.congestion_control=nonsense"]
    found = CliRunner().invoke(app, [*names, *edit, "--", "hostname"])

    assert (found.exit_code, list((tmp_path / "runs").iterdir())) == (2, [])


@pytest.mark.untimed
def test_a_command_runs_on_every_machine(tmp_path: Path) -> None:
    cluster = CLUSTER.replace("name: slow,", "name: slow, memory: 4 GB, speed: 2.0,")
    code, output, runs = invoke(tmp_path, cluster, "--", "sh", "-c", "hostname; nproc")

    assert code == 0, output
    assert "changes nothing in a lab: memory, speed of machines" in output
    assert (runs / "command-slow.log").read_text().startswith("slow\n")
    with np.load(runs / "traffic.npz") as traffic:
        assert (traffic["packets"].size, traffic["messages"].size) == (0, 0)
        assert traffic["machines"].tolist() == ["fast", "slow"]
    assert (runs / "hosts.txt").read_text() == "10.77.0.1\n10.77.0.2\n"


@pytest.mark.untimed
def test_programs_run_until_those_that_decide_have_ended(tmp_path: Path) -> None:
    code, output, runs = invoke(tmp_path, CLUSTER + PROGRAMS)

    assert code == 0, output
    said = (runs / "client-slow.log").read_text()
    assert said == "10.77.0.1 1 10.77.0.2\n"
    lab = json.loads((runs / "lab.json").read_text())
    ends = {run["program"]: (run["code"], run["stopped"]) for run in lab["programs"]}
    assert ends == {"server": (-15, True), "client": (0, False)}
    assert [event["nic_in"] for event in lab["events"]] == [5e6 / 8]
    page = (runs / "report.html").read_text()
    assert "the picture is" in output
    assert "signal 15, asked to at the end" in page
    with pytest.raises(DataError, match="NICs changed while it ran"):
        fit_run(runs)


@pytest.mark.untimed
def test_what_a_program_prints_fills_a_file_and_nothing_else(tmp_path: Path) -> None:
    script = "yes | head -c 5000000; trap '' TERM; setsid sleep 600 & :"
    code, output, runs = invoke(tmp_path, CLUSTER, "--", "sh", "-c", script)

    assert code == 0, output
    assert (runs / "command-fast.log").stat().st_size == 5_000_000


@pytest.mark.untimed
def test_the_first_failure_is_named_and_passed_on(tmp_path: Path) -> None:
    script = "test $(hostname) = slow && exit 7; exec sleep 600"
    code, output, _ = invoke(tmp_path, CLUSTER, "--", "sh", "-c", script)

    assert code == 7
    assert "command failed first, on slow, with exit code 7" in output


TOOL = """
lab:
  programs:
    - {name: tool, run: "test {rank} = 1 || cp /bin/true /dev/shm/it; /dev/shm/it"}
"""


@pytest.mark.untimed
@pytest.mark.parametrize(
    ("text", "command", "said"),
    [
        (TOOL, [], "tool failed first, on slow, with exit code 127"),
        ("", ["--", "no-such-tool"], "no-such-tool: not found"),
    ],
)
def test_a_command_that_a_machine_lacks_is_named(
    text: str, command: list[str], said: str, tmp_path: Path
) -> None:
    code, output, _ = invoke(tmp_path, CLUSTER + text, *command)

    assert code == 127
    assert said in output
    assert "not found" in output.splitlines()[-1]


STUBBORN = """
lab:
  programs:
    - {name: server, on: [fast], run: "trap '' TERM; sleep 600"}
    - {name: client, on: [slow], run: "sleep 0.2"}
  until: client
"""


@pytest.mark.untimed
def test_a_program_that_ignores_its_end_is_killed_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emu.lab.run.GRACE", 0.3)
    code, output, runs = invoke(tmp_path, CLUSTER + STUBBORN)

    assert code == 0, output
    assert "server on fast ran on for 0.3 s after SIGTERM: it is killed" in output
    server, client = json.loads((runs / "lab.json").read_text())["programs"]
    assert (server["code"], server["stopped"]) == (-9, True)
    assert server["end"] >= client["end"] + 0.3


DILATED = """
cluster:
  machines:
    - {name: fast, nic: 100 Mbit/s}
    - {name: slow, nic: 20 Mbit/s, cpu: 0.5}
events: [{at: 0.3 s, machine: slow, nic: 5 Mbit/s}]
lab: {time_scale: 4}
"""
COMPUTES = """
import os, time
print(open("/proc/self/cgroup").read().count("/emu-lab-"), os.environ["EMU_TIME_SCALE"])
end = time.thread_time() + 0.3
while time.thread_time() < end: pass
"""


def test_a_dilated_lab_is_told_in_emulated_seconds(tmp_path: Path) -> None:
    """0.3 s of CPU are 0.3 s at one core, and 0.6 at half of one; or more, by load."""
    command, began = ["--", sys.executable, "-c", COMPUTES], time.monotonic()
    code, output, runs = invoke(tmp_path, DILATED, *command)

    assert code == 0, output
    assert (runs / "command-slow.log").read_text() == "1 4\n"
    lab = json.loads((runs / "lab.json").read_text())
    ends = {run["machine"]: run["end"] - run["start"] for run in lab["programs"]}
    assert ends["fast"] > 0.28
    assert 0.56 < ends["slow"] <= lab["wall_seconds"] / 4
    assert lab["wall_seconds"] <= time.monotonic() - began
    assert (lab["time_scale"], lab["cpu"]) == (4.0, {"fast": 1.0, "slow": 0.5})
    assert lab["nics"]["slow"] == {"out": 2.5e6, "in": 2.5e6}
    (event,) = lab["events"]
    assert (event["nic_in"], event["time"] >= 0.3) == (5e6 / 8, True)
    assert "time scale 4: took" in output
    assert "4 wall seconds to a second" in (runs / "report.html").read_text()
    assert not [*Hierarchy.find().folder.glob(f"emu-lab-{os.getpid()}-*")]


@pytest.mark.untimed
@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"cpu": "0"}, "cluster.machines[1].cpu: a machine without a core"),
        ({"cpu": "0.009"}, "cluster.machines[1].cpu: 0.009 cores at time scale 1 are"),
        ({"time_scale": "200"}, "lab.time_scale: 1 cores at time scale 200 are 5 ms"),
        ({"time_scale": "0.5"}, "lab.time_scale: found 0.5, write 1"),
        ({"cpu": "4000"}, "lab.time_scale: is 1, at which machines of 4001 cores need"),
        ({"cpu": "0", "time_scale": "auto"}, "cluster.machines[1].cpu: a machine"),
        ({"time_scale": "3000"}, "machines[0].nic: at time scale 3000, 4166.67 B/s"),
    ],
)
def test_what_no_core_can_be_shared_for_is_named(
    stated: dict[str, str], said: str, tmp_path: Path
) -> None:
    cpu = f", cpu: {stated['cpu']}" if "cpu" in stated else ""
    text = CLUSTER.replace("20 Mbit/s", f"20 Mbit/s{cpu}")
    scale = f"time_scale: {stated['time_scale']}" if "time_scale" in stated else ""
    (tmp_path / "lab.yaml").write_text(f"{text}lab: {{{scale}}}\n")

    first = find_lab_errors(tmp_path / "lab.yaml")[0]

    assert said in str(first)
    assert str(first).startswith(f"{tmp_path / 'lab.yaml'}:")


@pytest.mark.untimed
def test_a_host_without_quotas_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lab.yaml").write_text(f"{CLUSTER}lab: {{time_scale: 4}}\n")
    monkeypatch.setattr(cpu_groups, "_list_mounts", lambda *_: iter(()))

    (error,) = find_lab_errors(tmp_path / "lab.yaml")

    assert "lab.time_scale: needs quotas of CPU time, and this computer" in str(error)


@pytest.mark.untimed
def test_the_scale_is_chosen_for_the_cores_of_all_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hierarchy, "cores", lambda _: 2.0)
    text = """
cluster: {machines: [{count: 16, nic: 100 Mbit/s, cpu: 0.75}]}
lab: {time_scale: auto}
"""
    (tmp_path / "lab.yaml").write_text(text)
    lab = open_lab(load_lab(tmp_path / "lab.yaml"))

    assert lab.time_scale == pytest.approx(12.0)
    assert [m.cpu for m in lab.machines] == [0.75] * 16


@pytest.mark.untimed
def test_ssh_runs_a_command_on_the_machine_that_it_names(tmp_path: Path) -> None:
    ask = (
        "echo hi | ssh -o BatchMode=yes root@slow 'read it; echo $it; hostname; exit 7'"
    )
    words = (
        f"{ask}; echo $?; ssh nobody true; echo $?; cd /; ssh 10.77.0.2 'pwd; hostname'"
    )
    text = f"lab: {{programs: [{{name: one, 'on': [fast], run: {json.dumps(words)}}}]}}"

    code, output, run = invoke(tmp_path, f"{CLUSTER}{text}\n")

    assert code == 0, output
    said = (run / "one-fast.log").read_text().splitlines()
    assert said[:3] == ["hi", "slow", "7"]
    assert said[3:] == ["ssh: 'nobody' is no machine of this lab", "1", "/", "slow"]


#: Sends 300 kB in pieces to whoever connects, which reads them and answers.
EXCHANGE = """
import os, socket, time
if os.environ['RANK'] == '0':
    connection, _ = socket.create_server(('', 7000)).accept()
    for _ in range(3):
        connection.sendall(bytes(100_000))
        connection.recv(10)
else:
    while True:
        try:
            connection = socket.create_connection(('10.77.0.1', 7000))
            break
        except OSError:
            time.sleep(0.05)
    for _ in range(3):
        left = 100_000
        while left:
            left -= len(connection.recv(left))
        time.sleep(0.05)
        connection.sendall(b'y')
"""


@pytest.mark.untimed
@pytest.mark.parametrize("noted", [True, False])
def test_socket_calls_are_noted_with_their_bytes(tmp_path: Path, noted: bool) -> None:  # noqa: FBT001 -- of a parameter
    program = tmp_path / "exchange.py"
    program.write_text(EXCHANGE)
    text = CLUSTER + f"lab: {{calls: {str(noted).lower()}}}\n"
    code, output, runs = invoke(tmp_path, text, "--", sys.executable, str(program))

    assert code == 0, output
    traffic = read_traffic(runs)
    calls = traffic.calls
    for machine, sent in ((0, 300_000), (1, 3)):
        is_send = np.isin(calls["kind"], (SEND, PART)) & (calls["machine"] == machine)
        is_read = (calls["kind"] == RECEIVE) & (calls["machine"] == 1 - machine)
        assert calls["bytes"][is_send].sum() == sent * noted
        assert calls["bytes"][is_read].sum() == sent * noted
    # Who slept for 50 ms is waited for.
    waits = calls[(calls["machine"] == 0) & (calls["kind"] == RECEIVE)]
    assert (waits["end"] - waits["begin"] > 0.03).sum() == 3 * noted


@pytest.mark.untimed
def test_programs_that_take_no_library_are_named(tmp_path: Path) -> None:
    code, output, _ = invoke(tmp_path, CLUSTER, "--", "env", "-i", "/bin/true")

    assert code == 0, output
    assert "socket calls of command are not noted" in " ".join(output.split())
