"""The doctor shows what was measured; measuring itself is tested elsewhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from emu.calibration import HostProfile
from emu.cli import app, doctor_commands

if TYPE_CHECKING:
    import pytest

HOST = HostProfile(
    "h", "then", 2, 24e9, 5e9, 2e-10, 6e-5, 5e-5, (3e-5, 1e-4), (1e-4, 5e-4),
    (6e-5, 3e-4), (8e-5, 4e-4), 0.015, 12e6, {"root": "no"},
)  # fmt: skip


def test_every_figure_is_shown_with_its_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_commands, "measure_host", lambda: HOST)

    shown = CliRunner().invoke(app, ["doctor"]).stdout
    found = json.loads(CliRunner().invoke(app, ["doctor", "--json", "-"]).stdout)

    for words in ("h, measured then", "40 Gbit/s", "200 ms", "60 us", "100 us", "root"):
        assert words in shown
    assert found["finish_error"] == [1e-4, 5e-4]
    assert (found["cores"], found["available"]) == (2, {"root": "no"})
