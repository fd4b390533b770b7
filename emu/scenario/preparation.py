"""What preparing a scenario would fail with, found without doing all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.errors import DataError, PlacementError
from emu.graph_data.sources import find_source
from emu.placement import place
from emu.placement.place import SEARCHES
from emu.scenario.custom_section import CustomJobSection
from emu.scenario.profile_file import read_profile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emu.scenario.document import Trail
    from emu.scenario.scenario import Scenario


def preparation_errors(scenario: Scenario) -> Iterator[tuple[Trail, str]]:
    """Yield what is wrong beyond the file: data, profile, and room for the tasks.

    Call it on a scenario without `consistency_errors`.
    """
    for position, (_, alone) in enumerate(scenario.parts()):
        for trail, problem in preparation_errors(alone):
            yield ("jobs", position, *trail), problem
    if scenario.jobs:
        return
    job, cluster = scenario.to_job(train_vertices=1), scenario.to_cluster()
    if scenario.profile is not None:
        try:
            read_profile(scenario.profile).profile(job)
        except DataError as error:
            yield ("profile",), str(error)
    if not isinstance(scenario.job, CustomJobSection):
        stated = job.settings["dataset"]
        try:
            find_source(
                stated["name"],
                scale=stated["scale"],
                seed=stated["seed"],
                root=stated["root"],
            )
        except DataError as error:
            yield ("job", "dataset"), str(error)
    policy = scenario.placement.policy
    # A search finds a placement where IFS does.
    policy = "ifs" if policy in SEARCHES else policy
    try:
        place(policy, job, cluster, seed=scenario.seed, tasks=scenario.placement.tasks)
    except PlacementError as error:
        yield (*error.key.split("."),), str(error)
