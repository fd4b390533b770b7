"""Garbage is looked for as usual again, whatever happens meanwhile."""

from __future__ import annotations

import gc

import pytest

from emu.scenario.scenario_file import collected_seldom


def test_the_threshold_is_raised_and_comes_back() -> None:
    before = gc.get_threshold()

    with collected_seldom():
        assert gc.get_threshold()[0] > before[0]
    with pytest.raises(ValueError, match="no number"), collected_seldom():
        int("no number")

    assert gc.get_threshold() == before
