"""What the progress line says of how agents join."""

from __future__ import annotations

import io

import pytest

from emu.cli.watching import ProgressLine
from emu.report import terminal
from emu.testing import two_machine_example


@pytest.mark.parametrize("given", [True, False])
def test_token_of_the_environment_is_not_printed(
    monkeypatch: pytest.MonkeyPatch,
    given: bool,  # noqa: FBT001 -- a parameter of the test
) -> None:
    monkeypatch.delenv("EMU_TOKEN", raising=False)
    if given:
        monkeypatch.setenv("EMU_TOKEN", "of-this-run")
    text = io.StringIO()
    line = ProgressLine(two_machine_example(1)[0].job, terminal(text), agents=2)
    line.listening("::1", 7001, "of-this-run")

    assert ("of-this-run" in text.getvalue()) != given
    assert "emu agent [::1]:7001" in text.getvalue()


@pytest.mark.parametrize(
    ("host", "said"), [("127.0.0.1", "--listen HOST:PORT"), ("10.0.0.7", "each host")]
)
def test_an_address_that_other_hosts_cannot_reach_is_said(host: str, said: str) -> None:
    text = io.StringIO()
    line = ProgressLine(two_machine_example(1)[0].job, terminal(text), agents=2)
    line.listening(host, 7001, "of-this-run")

    assert said in text.getvalue()
