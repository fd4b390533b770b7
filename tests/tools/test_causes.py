"""The plants of `tools/study causes`: each still has a text to change."""

from __future__ import annotations

import pytest

from tools.studies.causes import PLANTS, ROOT, Plant

CHANGES = [pytest.param(plant, id=name) for name, plant in PLANTS.items() if plant.file]


@pytest.mark.parametrize("plant", CHANGES)
def test_the_text_that_a_plant_changes_stands_once(plant: Plant) -> None:
    source = (ROOT / plant.file).read_text()

    assert source.count(plant.old) == 1
    assert plant.new not in source
