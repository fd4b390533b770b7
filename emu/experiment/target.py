"""Accuracy to which systems are compared, however they count their steps."""

from __future__ import annotations

from dataclasses import dataclass

from emu.errors import ScenarioError
from emu.graph_data import open_for
from emu.prediction.analysis.throughput import seeds_per_iteration
from emu.scenario import Scenario, load
from emu.units import RATIO

#: Passes over the training set in which a target has to be reached.
WITHIN = 100


@dataclass(frozen=True)
class Target:
    """Accuracy that a training has to reach, as ``until`` of a scenario means it."""

    accuracy: float
    split: str = "valid"
    within: int = WITHIN
    """Passes over the training set that are tried at most."""

    @classmethod
    def parse(cls, text: str, within: int = WITHIN) -> Target:
        """Return the target of ``accuracy=0.88``, ``accuracy=88 %,split=test``.

        Raises ScenarioError when it is not written so.
        """
        option = f"--to {text}"
        pairs = (part.partition("=") for part in text.split(","))
        words = {key.strip(): value.strip() for key, _, value in pairs}
        splits = ("train", "valid", "test")
        split = words.get("split", "valid")
        if words.keys() - {"accuracy", "split"} or split not in splits:
            problem = f"write accuracy=0.88, and split={'|'.join(splits)} after a comma"
            raise ScenarioError(problem, file=option)
        try:
            accuracy = RATIO.parse(words.get("accuracy", ""))
        except ValueError as error:
            raise ScenarioError(str(error), file=option) from error
        if not 0 < accuracy <= 1:
            problem = f"found {accuracy:g}, write a share above 0, at most 1"
            raise ScenarioError(problem, file=option)
        return cls(accuracy, split, within)

    def end(self, scenario: Scenario) -> Scenario:
        """Return a scenario that trains until it is reached, at most so many passes.

        Looks are as many training vertices apart as there are, in every system.

        Raises DataError when the data set is missing or damaged.
        """
        settings = scenario.to_job(train_vertices=1, pins=False).settings
        until = {"accuracy": RATIO.exact(self.accuracy), "split": self.split}
        edit: dict[str, object] = {"until": until, "job.epochs": self.within}
        if seeds := seeds_per_iteration(settings):
            steps = -(-open_for(settings).train_count // seeds)
            edit |= {"job.iterations": self.within * steps, "job.epochs": None}
        return load(scenario, edit)
