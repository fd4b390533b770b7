"""A process that was forked for a test is what it would be by itself."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from emu.runs.run_directory import RunDirectory
from emu.scenario.scenario_file import load_lab
from emu.virtual.launch import nodes_of_command, plan_ranks
from emu.virtual.run_virtual import Settings, run_virtual
from tests.warm.client import WarmServer, started
from tests.warm.commands import AGENT, RANKS, module_of

#: Of a rank: itself, and the process that forks ranks, its parent.
PROGRAM = """
import json, os, resource, signal, sys
import torch.distributed as dist
dist.init_process_group("gloo")
parent = os.getppid()
signals = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE
umask = os.umask(0)
with open(f"/proc/{parent}/stat") as stat:
    grandparent = int(stat.read().rpartition(")")[2].split()[1])
with open(f"/proc/{parent}/cmdline") as line:
    command = line.read().rstrip("\\0").split("\\0")
found = {
    "folder": os.getcwd(),
    "path": sys.path,
    "arguments": sys.argv,
    "environment": dict(os.environ),
    "limit": resource.getrlimit(resource.RLIMIT_NOFILE),
    "cores": sorted(os.sched_getaffinity(0)),
    "signals": [str(signal.getsignal(each)).partition(" at ")[0] for each in signals],
    "leads": [os.getsid(0) == parent, os.getpgid(0) == parent],
    "descriptors": sorted(os.listdir("/proc/self/fd"))[:3],
    "parent": grandparent,
    "command": command[:4],
    "umask": umask,
}
print(json.dumps(found), flush=True)
"""


def said_by_rank(folder: Path) -> dict[str, Any]:
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    cluster = folder / "cluster.yaml"
    cluster.write_text("cluster: {machines: [{name: m, nic: 1 Gbit/s}]}\n")
    file = load_lab(cluster)
    nodes = nodes_of_command([str(folder / "program.py")], file.cluster.names, 1)
    directory = RunDirectory.create("run", folder)
    settings = Settings(at_once=1, charge=1e-3)
    run_virtual(file, plan_ranks(nodes), directory, settings, lambda *_: None)
    text = (directory.path / "rank0.log").read_text().replace(str(folder), "FOLDER")
    return dict(json.loads(text.splitlines()[-1]))


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_it_has_all_that_a_process_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_server: WarmServer | None
) -> None:
    pytest.importorskip("torch", reason="ranks need torch")
    if warm_server is None:
        pytest.skip("nothing is forked here")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMU_OF_THIS_TEST", "a value")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"), prepend=os.pathsep)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[0] // 2, limits[1]))
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        forked = said_by_rank(tmp_path / "forked")
        warm_server.is_cold = True
        alone = said_by_rank(tmp_path / "alone")
    finally:
        signal.signal(signal.SIGHUP, handler)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    for found in (forked, alone):
        # Between a test and its process is nobody.
        assert found["parent"] == os.getpid()
        assert found["environment"]["EMU_OF_THIS_TEST"] == "a value"
        assert found["limit"][0] == limits[0] // 2
    assert forked == alone


def test_what_an_interpreter_reads_as_it_starts_asks_for_one(
    warm_server: WarmServer | None,
) -> None:
    if warm_server is None:
        pytest.skip("nothing is forked here")
    command = [sys.executable, "-P", "-m", AGENT, "127.0.0.1:9"]

    assert warm_server.fits(command, os.environ)
    assert not warm_server.fits(command, {**os.environ, "PYTHONUTF8": "0"})
    assert not warm_server.fits([*command[:3], "emu"], os.environ)
    others = {
        **os.environ,
        "PYTHONPATH": os.environ.get("PYTHONPATH", "") + ":/of_others",
    }
    assert warm_server.fits(command, others) == ("PYTHONPATH" not in os.environ)
    assert module_of([sys.executable, "-P", "-m", RANKS, "plan"]) == RANKS
    assert module_of([sys.executable, "-m", RANKS]) == ""
    assert started() == []
