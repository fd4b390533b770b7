"""Optimiser steps on a shard of the flat parameters.

Both are elementwise, so that shards stepped by several servers equal one step of the
whole vector, bit by bit.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from typing_extensions import override

from emu.array_types import Array
from emu.training.layers import JobSettings

#: Shape and type of an array.
Form: TypeAlias = tuple[object, object]


def _forms(arrays: Mapping[str, Array]) -> dict[str, Form]:
    forms: dict[str, Form] = {}
    for name, array in arrays.items():
        forms[name] = (array.shape, array.dtype)
    return forms


class Optimizer(ABC):
    """Changes parameters in place, given their gradient."""

    #: Names of arrays of the size of the parameters, at first 0, that steps change.
    moments: tuple[str, ...] = ()

    def __init__(self, parameters: Array, lr: float, half_life: float) -> None:
        self._parameters = parameters
        self._lr = lr
        self._half_life = half_life
        self._steps = 0
        self._arrays = {"parameters": parameters}
        for name in self.moments:
            self._arrays[name] = np.zeros_like(parameters)

    @abstractmethod
    def step(self, gradient: Array) -> None:
        """Apply one step."""

    def state(self) -> dict[str, Array]:
        """Return copies of the parameters, the number of steps, and any moments."""
        copies = {name: array.copy() for name, array in self._arrays.items()}
        steps = np.array([self._steps], np.int64)
        return {**copies, "steps": steps}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Go on from what `state` returned; parameters change in place.

        Raises ValueError when it is of another optimiser, or of other parameters.
        """
        template = self.state()
        if _forms(template) != _forms(state):
            found_names = ", ".join(sorted(state))
            names = ", ".join(sorted(template))
            raise ValueError(
                f"state of {found_names} is not that of an optimiser of "
                f"{len(self._parameters)} parameters with {names}"
            )

        for name, array in self._arrays.items():
            # Into the arrays that others hold, as views of the parameters.
            array[:] = state[name]
        self._steps = int(state["steps"][0])

    def _next_rate(self) -> float:
        steps_before = self._steps
        self._steps += 1
        half_lives = steps_before / self._half_life  # the first step is not slower
        slowdown = 0.5**half_lives
        return float(self._lr * slowdown)


class Sgd(Optimizer):
    """Plain gradient descent."""

    @override
    def step(self, gradient: Array) -> None:
        """Subtract the learning rate times the gradient."""
        rate = self._next_rate()
        self._parameters -= rate * gradient


class Adam(Optimizer):
    """Adam (Kingma, Ba, ICLR 2015, Algorithm 1) with the paper's constants."""

    moments = "first", "second"

    @override
    def step(self, gradient: Array) -> None:
        """Move along the bias-corrected first moment, scaled by the second."""
        decay = 0.9
        decay_square = 0.999
        epsilon = 1e-8
        rate = self._next_rate()

        first = self._arrays["first"]
        second = self._arrays["second"]
        # In place, as `restore` and copies of the state expect.
        square = gradient * gradient
        first += (1 - decay) * (gradient - first)
        second += (1 - decay_square) * (square - second)

        # Both began at 0 and lean towards it.
        rate /= 1 - decay**self._steps
        square_rise = 1 - decay_square**self._steps
        scale = np.sqrt(second / square_rise)
        self._parameters -= rate * first / (scale + epsilon)


def make_optimizer(settings: JobSettings, parameters: Array) -> Optimizer:
    """Return the optimiser of ``Job.settings`` for a shard.

    Raises ValueError when its name is neither adam nor sgd.
    """
    section = settings["optimizer"]
    name = section["name"]
    kind = {"adam": Adam, "sgd": Sgd}.get(name)
    if kind is None:
        raise ValueError(f"optimizer {name} is neither adam nor sgd")

    half_life = section.get("half_life") or math.inf
    return kind(parameters, section["lr"], half_life)


def mean_gradient(gradients: list[Array]) -> Array:
    """Return the mean over workers, summed in the order given.

    Raises ValueError when there is none.
    """
    if not gradients:
        raise ValueError("no worker, no gradient")

    # A copy: the caller's gradient must not change. The order decides the rounding.
    total = gradients[0].copy()
    for gradient in gradients[1:]:
        total += gradient
    total /= len(gradients)
    return total
