"""Seconds of a look at the accuracy of a training, by its rates."""

from __future__ import annotations

from itertools import pairwise

from emu.errors import ScenarioError
from emu.graph_data import open_for
from emu.problem.fields.quantities import DEFAULT_DEVICE
from emu.problem.workloads.operations import count_layer
from emu.scenario import Experiment
from emu.scenario.virtual_training import Curve
from emu.systems.training_section import TrainingSection, feature_bytes
from emu.training.layers import JobSettings


def look_seconds(experiment: Experiment) -> float:
    """Return the seconds of one look at all vertices, 0 of systems of whole graphs.

    These have the scores of all vertices from their last epoch. Others collect every
    row and take a forward pass over the whole graph, shared evenly by the machines that
    train; what these would exchange is not counted. Training waits for it. Raises
    ScenarioError where no rates are stated; DataError as `open_for`.
    """
    section = experiment.scenario.job
    job = experiment.problem.job
    if not isinstance(section, TrainingSection):
        return 0.0
    rates = section.operation_rates
    if rates is None:
        problem = "looks are counted by rates of operations: write job.rates"
        raise ScenarioError(problem, key="job.times")

    counts = _count_look(job.settings)
    places = experiment.problem.machine_of_task
    trains = {"worker", "model_forward"}
    machines = {places[task.name] for task in job.tasks if task.kind in trains}
    devices = experiment.scenario.build_context().devices
    seconds = []
    for machine in machines:
        device = devices.get(machine, DEFAULT_DEVICE)
        rate_of = rates.on(device)
        if section.place_on(machine) == "device":
            rate_of["collect"] = rate_of["collect_device"]
        terms = [rate_of[operation] * counts[operation] for operation in counts]
        whole_look = sum(terms)
        seconds.append(whole_look / len(machines))
    return max(seconds)


def _count_look(settings: JobSettings) -> dict[str, float]:
    """Return the operations of a look at all vertices, by name."""
    dataset = open_for(settings)
    model = settings["model"]
    vertices = dataset.vertices
    row_bytes = float(feature_bytes(settings) * dataset.feature_length)
    counts = {"collect": row_bytes * vertices}

    kind = model.get("kind", "sage")
    inner_layers = model["layers"] - 1
    hidden = [model["hidden"]] * inner_layers
    widths = [dataset.feature_length, *hidden, dataset.classes]
    for ends in pairwise(widths):
        layer = count_layer(
            kind,
            widths=ends,
            edges=dataset.edges,
            inputs=vertices,
            outputs=vertices,
        )
        for name, amount in layer.forward.items():
            before = counts.get(name, 0.0)
            counts[name] = before + float(amount)
    return counts


def delay_looks(curve: Curve, pause: float) -> Curve:
    """Return a curve whose looks take so many seconds each: they show at their end."""
    delayed_looks = []
    for number, (seconds, accuracy) in enumerate(curve, 1):
        shown = seconds + pause * number
        delayed_looks.append((shown, accuracy))
    return tuple(delayed_looks)
