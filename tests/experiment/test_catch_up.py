"""A sender that stands still while it sends, and what its receiver then sees."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.runs.audit_inputs import read_to_audit
from emu.runs.run_directory import RunDirectory
from emu.scenario import prepare
from emu.trust.guards import examine
from tests import draws
from tests.emulation.coordinator.emulated import Acts, named
from tests.integration.scenarios import custom, flow, read
from tests.leftovers import Leftovers

pytestmark = [pytest.mark.emulation, pytest.mark.timeout(120)]
RATE, PAUSE, VOLUME = 1e6, 0.5, 1.5e6
CHUNK = 16384


def _stalled(
    tmp_path: Path, leftovers: Leftovers, catch_up: str, time_scale: float
) -> tuple[dict[str, Any], RunDirectory]:
    """Carry out a flow of 1.5 s whose sender is stopped for 0.5 s amid it."""
    document = custom(
        [{"name": name, "time": "0 s"} for name in "ab"],
        [flow("a", "b", "1.5 MB")],
        {"a": "m0", "b": "m1"},
        machine={"nic": "1 MB/s"},
        emulation={"catch_up": catch_up, "time_scale": time_scale, "byte_scale": 1},
    )
    experiment = prepare(read(document))

    def stop() -> None:
        sender = named(leftovers.note(), "a")
        wait = [0.3 * time_scale, (0.3 + PAUSE) * time_scale]
        for after, number in zip(wait, (signal.SIGSTOP, signal.SIGCONT), strict=True):
            threading.Timer(after, sender.send_signal, [number]).start()

    directory = RunDirectory.create("stalled", tmp_path)
    outcome = carry_out(
        experiment,
        emulation_settings(experiment.scenario),
        directory,
        Acts("flow a->b", stop, experiment.problem),
    )
    return outcome.content, directory


@pytest.mark.parametrize(
    ("catch_up", "time_scale"),
    [
        ("unlimited", 1.0),
        ("1 s", 1.0),
        ("0.1 s", 1.0),
        draws.rarely("0.1 s", 2.0),
        ("0 s", 1.0),
    ],
)
def test_a_stopped_sender_catches_up_what_the_scenario_allows(
    tmp_path: Path, leftovers: Leftovers, catch_up: str, time_scale: float
) -> None:
    result, directory = _stalled(tmp_path, leftovers, catch_up, time_scale)
    depth = float(catch_up.split(maxsplit=1)[0]) if catch_up != "unlimited" else PAUSE
    processes = json.loads((directory.path / "processes.json").read_text())
    sent = processes["statistics"]["a"]["sent"][0]
    bursts = processes["statistics"]["b"]["received"]["bursts"]
    ideal = VOLUME / RATE
    late = result["makespan"] - ideal

    # A host that is busy stops it for longer: what was lost is late, no more, no less.
    assert late >= sent["lost_bytes"] / RATE - 0.02
    if depth < PAUSE:
        assert sent["lost_bytes"] >= RATE * (PAUSE - depth) - 2 * CHUNK
        assert bursts[0]["bytes"] <= depth * RATE + 2 * CHUNK
        assert result["verdict"]["trust"] == "untrusted"
        assert result["verdict"]["error"] >= 0.9 * sent["lost_bytes"] / RATE / ideal
    else:
        assert sent["lost_bytes"] == 0
        assert bursts == [] or bursts[0]["bytes"] >= 0.5 * RATE * PAUSE
        assert bool(bursts) == (catch_up != "unlimited")
    assert [each["guard"] for each in result["verdict"]["guards"]] == []
    # The same run, had its scenario allowed less than came.
    file = directory.path / "manifest.json"
    manifest = json.loads(file.read_text())
    assert manifest["emulation"]["catch_up"] == (
        None if catch_up == "unlimited" else depth
    )
    manifest["emulation"]["catch_up"] = 0.0
    file.write_text(json.dumps(manifest))
    evidence = read_to_audit(directory.path).evidence
    assert evidence is not None
    found = [each for each in examine(evidence) if each.guard == "bursts"]
    if catch_up == "0.1 s":  # 0.1 MB is more than may come only on a host that keeps up
        assert len(found) <= len(bursts)
    else:
        assert len(found) == (catch_up == "1 s")
