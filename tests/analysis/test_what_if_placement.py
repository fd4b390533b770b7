"""Searches of a report are as long as one may wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from emu.analysis import what_if as replacing
from emu.analysis.what_if import Change
from emu.errors import PlacementError
from emu.testing import two_machine_example

if TYPE_CHECKING:
    from emu.placement import SearchOptions


@pytest.mark.parametrize(
    ("policy", "flows", "candidates"),
    [
        ("oes", 10**9, replacing.CANDIDATES),
        ("oes", 800, 50),
        ("mrtf", 800, 5),
        ("oes", 1, 1),
    ],
)
def test_a_search_simulates_so_many_flows_but_one_candidate_at_least(
    monkeypatch: pytest.MonkeyPatch, policy: str, flows: int, candidates: int
) -> None:
    problem, realization = two_machine_example(2)
    assert len(problem.job.edges) * problem.job.iterations == 16
    asked: list[SearchOptions] = []

    def search(*_: Any, options: SearchOptions) -> None:
        asked.append(options)
        raise PlacementError("only the options are of interest")

    monkeypatch.setattr(replacing, "search", search)
    monkeypatch.setattr(replacing, "FLOWS", flows)
    base = Change("none", "as it is", problem, realization, policy)
    list(replacing.placement_changes(base))

    assert {one.transfers for one in asked} == {candidates}
    assert {one.iterations for one in asked} == {2}
