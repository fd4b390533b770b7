"""``emu fit``: programs of a lab that know nothing of emu, as a scenario."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import emu
from emu.cli import app
from emu.errors import DataError
from emu.lab.fit_run import Fit, fit_run
from tests.lab.test_output_lines import lab_of
from tests.lab.test_prediction import SEEN

ITERATIONS = 8
ANSWER, SUM = 20_000, 10_000
#: A server that answers after 5 ms; workers that ask the other machine's, and exchange
#: halves of what they have to sum, as in a ring of two.
PROGRAM = f"""
import os, socket, sys, time

role, rank, other = sys.argv[1], int(sys.argv[2]), sys.argv[3]

def connect(port):
    while True:
        try:
            return socket.create_connection((other, port))
        except ConnectionRefusedError:
            time.sleep(0.01)

def receive(connection, size):
    while size:
        size -= len(connection.recv(size))

if role == "server":
    asked, _ = socket.create_server(("", 7000)).accept()
    for _ in range({ITERATIONS}):
        receive(asked, 100)
        time.sleep(0.005)
        asked.sendall(bytes({ANSWER}))
else:
    listening = socket.create_server(("", 7001))
    to, server = connect(7001), connect(7000)
    back, _ = listening.accept()
    for _ in range({ITERATIONS}):
        time.sleep(0.02)
        server.sendall(bytes(100))
        receive(server, {ANSWER})
        for _ in range(2):
            to.sendall(bytes({SUM} // 2))
            receive(back, {SUM} // 2)
time.sleep(0.7)  # its ports are looked at every half second
"""
LAB = """
cluster:
  machines: [{{name: a, nic: 20 Mbit/s}}, {{name: b, nic: 20 Mbit/s}}]
lab:
  programs:
    - {{name: server, on: [a], run: "{run} server 0 {{address of b}}"}}
    - {{name: server, on: [b], run: "{run} server 1 {{address of a}}"}}
    - {{name: worker, on: [a], run: "{run} worker 0 {{address of b}}"}}
    - {{name: worker, on: [b], run: "{run} worker 1 {{address of a}}"}}
"""


def invoke(*arguments: object) -> tuple[int, str]:
    found = CliRunner().invoke(app, [str(each) for each in arguments])
    return found.exit_code, found.output


@pytest.mark.netns
@pytest.mark.usefixtures("_a_lab_can_be_had")
def test_what_crossed_becomes_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    lab = LAB.format(run=f"exec python {tmp_path}/program.py")
    (tmp_path / "lab.yaml").write_text(lab)
    code, output = invoke("lab", tmp_path / "lab.yaml", "--runs", tmp_path / "runs")
    assert code == 0, output
    (run,) = (tmp_path / "runs").iterdir()
    fitted = tmp_path / "fitted.yaml"

    code, output = invoke(
        "fit", run, "-o", fitted, "--force", "--json", tmp_path / "fit.json"
    )

    assert code == 0, output
    told = json.loads((tmp_path / "fit.json").read_text())
    assert (told["first"], told["iterations"]) == (1, ITERATIONS - 1)
    # Bursts of the NICs let some milliseconds of it go at once.
    assert told["measured"] > 0.02 + 0.005 + 0.7 * (ANSWER + SUM) / 2.5e6
    assert told["simulated"] == pytest.approx(told["measured"], rel=0.2)
    mean = tmp_path / "mean.yaml"
    code, output = invoke("fit", run, "-o", mean, "--force", "--template", "distdgl")
    assert code == 0, output
    often = emu.simulate(emu.load(mean, {"job.iterations": 70})).makespan
    assert often / 70 == pytest.approx(told["measured"], rel=0.2)
    code, output = invoke("fit", run, "-o", mean, "--force", "--template", "allreduce")
    assert (code, "template allreduce has none" in output) == (3, True)
    scenario = emu.load(fitted, {"cluster.machines[0].nic": "1 Mbit/s"})
    slow = emu.simulate(scenario).makespan / told["iterations"]
    assert slow > (ANSWER + SUM) / 1.25e5  # both leave, or both enter, the slow NIC
    _is_judged(tmp_path, fitted)


def _is_judged(folder: Path, fitted: Path) -> None:
    """Run the lab again at another NIC, beside what its fit says of it."""
    stated = [
        "cluster.machines[0].nic=4 Mbit/s",
        f"lab.prediction.scenario={fitted.name}",
        "lab.prediction.max_difference=40%",  # this host may be busy
        "lab.expect.prediction=differs",
    ]
    sets = [word for one in stated for word in ("--set", one)]
    runs = folder / "again"
    code, output = invoke("lab", folder / "lab.yaml", *sets, "--runs", runs)

    assert code == 6, output
    assert "prediction is agrees, expected differs" in output
    (run,) = runs.iterdir()
    verdict = json.loads((run / "lab.json").read_text())["prediction"]
    assert (verdict["outcome"], verdict["threshold"]) == ("agrees", 0.4)
    for said in (output, (run / "report.html").read_text()):
        assert "agrees" in said
        assert "the run is off by" in said


#: A server over HTTP, and clients that ask it, think, and say when they begin.
HTTP = f"""
import http.client, http.server, sys, time

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        time.sleep(0.005)
        self.send_response(200)
        self.send_header("Content-Length", "{ANSWER}")
        self.end_headers()
        self.wfile.write(bytes({ANSWER}))

if len(sys.argv) == 1:
    http.server.ThreadingHTTPServer(("", 7000), Handler).serve_forever()
while True:
    try:
        server = http.client.HTTPConnection(sys.argv[1], 7000)
        server.connect()
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
for turn in range({ITERATIONS}):
    print("turn", turn, flush=True)
    server.request("GET", "/")
    server.getresponse().read()
    time.sleep(float(sys.argv[2]))
time.sleep(0.7)
"""
HTTP_LAB = """
cluster:
  machines:
    - {{name: a, nic: 20 Mbit/s}}
    - {{name: b, nic: 20 Mbit/s}}
    - {{name: c, nic: 20 Mbit/s}}
lab:
  programs:
    - {{name: server, on: [a], run: "{run}"}}
    - {{name: client, on: [b, c], run: "{run} {{address of a}} 0.05"}}
  until: client
"""


@pytest.mark.nightly
@pytest.mark.netns
@pytest.mark.usefixtures("_a_lab_can_be_had")
def test_iterations_are_what_a_program_prints_or_what_repeats(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(HTTP)
    file, runs = tmp_path / "lab.yaml", tmp_path / "runs"
    file.write_text(HTTP_LAB.format(run=f"exec python {tmp_path}/program.py"))
    code, output = invoke("lab", file, "--runs", runs)
    assert code == 0, output
    (run,) = runs.iterdir()

    for name, mark in (("mark.json", ("--mark", "turn ")), ("period.json", ())):
        result = tmp_path / f"{name}.json"
        words = *mark, "--json", result
        code, output = invoke("fit", run, "-o", tmp_path / name, "--force", *words)
        assert code == 0, output
        found = json.loads(result.read_text())
        assert ITERATIONS - 2 <= found["iterations"] <= ITERATIONS
        assert found["simulated"] == pytest.approx(found["measured"], rel=0.2)

    code, output = invoke(
        "fit", run, "-o", tmp_path / "no.json", "--force", "--mark", "epoch"
    )
    assert (code, "no program printed a line with 'epoch'" in output) == (3, True)
    stated = ["scenario=mark.json", "mark='turn '", "max_difference=50%"]
    sets = [word for one in stated for word in ("--set", f"lab.prediction.{one}")]
    sets += ["--set", "cluster.machines[0].nic=5 Mbit/s"]
    code, output = invoke("lab", file, *sets, "--runs", tmp_path / "again")
    assert code == 0, output
    (run,) = (tmp_path / "again").iterdir()
    verdict = json.loads((run / "lab.json").read_text())["prediction"]
    assert verdict["outcome"] == "agrees", verdict


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (None, "there is no such run directory"),
        ([], "is no run of a lab"),
        (["lab.json"], "has no traffic.npz: the lab ran with capture: false"),
        (["traffic.npz"], "is damaged"),
    ],
)
def test_a_run_that_is_none_of_a_lab_is_said(
    tmp_path: Path, files: list[str] | None, said: str
) -> None:
    run = tmp_path / "run"
    for name in files or []:
        run.mkdir(exist_ok=True)
        (run / name).write_text("{}")
    if files is not None:
        run.mkdir(exist_ok=True)

    with pytest.raises(DataError, match=said):
        fit_run(run)


@pytest.mark.parametrize(
    ("waited", "early", "refused"),
    [(0.04, 0.0, False), (0.12, 0.0, True), (0.0, 0.09, True)],
)
def test_a_lab_whose_programs_waited_for_cores_is_not_fitted(
    monkeypatch: pytest.MonkeyPatch, waited: float, early: float, *, refused: bool
) -> None:
    """Waits would become computing: fits were 15 % off, and looked right."""
    trust = "degraded" if refused else "trusted"
    content = {"trust": trust, "waited_share": waited, "early_share": early}
    programs: list[Any] = []
    content |= {"events": [], "programs": programs}
    monkeypatch.setattr("emu.lab.fit_run.read_lab", lambda _: content)
    monkeypatch.setattr("emu.lab.fit_run.read_traffic", lambda _: SEEN)

    if not refused:
        assert fit_run(Path("run")).iterations > 3
        return
    said = r"waits for cores.* (12|9) % .*cpu: N of every machine and lab.time_scale"
    with pytest.raises(DataError, match=said):
        fit_run(Path("run"))
    assert fit_run(Path("run"), force=True).iterations > 3


def test_a_mark_that_no_program_printed_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = lab_of(tmp_path / "run", {"worker": ("turn 0\nturn 1\n", [0.1, 0.2])})
    monkeypatch.setattr("emu.lab.fit_run.read_traffic", lambda _: SEEN)

    code, output = invoke("fit", run, "-o", tmp_path / "fitted.json", "--mark", "epoch")

    assert code == 3, output
    assert "no program printed a line with 'epoch'" in output


def test_a_fit_too_long_for_yaml_is_written_as_json() -> None:
    document = {"name": "long", "job": "x" * 300_000}
    fit = Fit(document, 8, 1, 0.5, 0.5, 0.5, 0.5)

    with pytest.raises(DataError, match=r"at most 300,000 are read: name it .json"):
        fit.text("fitted.yaml")
    assert json.loads(fit.text("fitted.json")) == document
