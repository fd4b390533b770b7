"""``emu reproduce`` from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from emu.cli import app, reproduce_commands


def test_a_figure_comes_as_text_json_and_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    target = tmp_path / "rows.json"
    words = ["reproduce", "dgcl", "table-3", "--json", str(target), "--out", str(page)]
    result = CliRunner().invoke(app, words)

    assert result.exit_code == 0
    joined = " ".join(result.stdout.split())
    assert "2 paper 5.12 GB/s here 4.78 GB/s ratio 0.934" in joined
    stated = [row["stated"] for row in json.loads(target.read_text())]
    assert stated == [9.5, 5.12, 3.34]
    assert page.read_text().count("<svg viewBox") == 1


@pytest.mark.parametrize("option", ["--write", "--out"])
def test_what_cannot_be_written_is_refused_before_minutes_of_work(
    option: str, tmp_path: Path
) -> None:
    file = tmp_path / "nowhere" / "page"
    with patch.object(reproduce_commands, "reproduce") as found:
        result = CliRunner().invoke(app, ["reproduce", "p3", option, str(file)])

    assert result.exit_code == 3
    assert str(file) in result.stderr
    found.assert_not_called()


def test_what_cannot_be_is_one_line(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    for words, problem in (
        (["p3", "figure-99"], "p3 has no figure 'figure-99', did you mean 'figure-9'?"),
        (
            ["p4"],
            "no paper 'p4', known: dgtp, p3, dgcl, dorylus, pipegcn, ",
        ),
        (["p3", "16", "--write", str(document)], "whole papers, name no FIGURE"),
    ):
        result = CliRunner().invoke(app, ["reproduce", *words])

        assert result.exit_code != 0
        assert problem in " ".join(result.output.split())
