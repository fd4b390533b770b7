"""What ``emu warm`` has compiled is not compiled again."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.placement import etp
from emu.scheduling import event_batch


@pytest.mark.timeout(300)  # nothing may be compiled yet
def test_warm_compiles_the_searches_and_the_scheduler() -> None:
    done = CliRunner().invoke(app, ["warm"])

    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1].startswith("compiled, in ")
    assert etp.walk.signatures  # type: ignore[attr-defined]
    assert event_batch.pass_instants.signatures  # type: ignore[attr-defined]
