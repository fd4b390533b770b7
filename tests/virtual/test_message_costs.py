"""CPU of messages: what is counted, measured and kept."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emu.virtual import message_costs
from emu.virtual.message_costs import costs_of_host

pytest.importorskip("torch", reason="ranks need torch")


def test_an_all_reduce_of_two_ranks_by_hand() -> None:
    """4 kB in four segments: four messages each way, of which each has half sent twice.

    A rank sends 4 kB and takes 4 kB in eight messages of three frames.
    """
    from emu.virtual.rank.measure_messages import count

    assert count(1000) == (8000 + 24 * 48, 24)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_costs_are_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version of torch has other costs.

    What is asked for once more is answered as the first time, in place of 3 s of CPU.
    """
    answers: list[Any] = []
    run = subprocess.run

    def measure_once(command: list[str], **options: Any) -> Any:
        answer = answers[0] if answers else run(command, **options)
        answers.append(answer)
        return answer

    process = SimpleNamespace(run=measure_once)
    monkeypatch.setattr(message_costs, "subprocess", process)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    costs = costs_of_host()
    assert costs.per_byte > 0
    assert costs.per_frame > 0

    path = tmp_path / "emu" / "virtual" / "message_costs.json"
    kept = replace(costs, per_byte=1.0)
    path.write_text(json.dumps(asdict(kept)))
    assert costs_of_host() == kept
    assert len(answers) == 1

    path.write_text(json.dumps(asdict(replace(kept, torch="1.0"))))
    assert costs_of_host().per_byte == costs.per_byte < 1.0
    assert len(answers) == 2
