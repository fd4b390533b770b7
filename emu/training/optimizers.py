"""Optimiser steps on a shard of the flat parameters.

Both are elementwise, so that shards stepped by several servers equal one step of the
whole vector, bit by bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


class Optimizer(Protocol):
    """Changes parameters in place, given their gradient."""

    def step(self, gradient: NDArray[Any]) -> None:
        """Apply one step."""
        ...


class Sgd:
    """Plain gradient descent.

    Parameters
    ----------
    parameters
        Changed in place by `step`.
    """

    def __init__(self, parameters: NDArray[Any], lr: float) -> None:
        self._parameters, self._lr = parameters, lr

    def step(self, gradient: NDArray[Any]) -> None:
        """Subtract lr times the gradient."""
        self._parameters -= self._lr * gradient


class Adam:
    """Adam (Kingma, Ba, ICLR 2015, Algorithm 1) with the paper's constants.

    Parameters
    ----------
    parameters
        Changed in place by `step`.
    """

    def __init__(self, parameters: NDArray[Any], lr: float) -> None:
        self._parameters, self._lr = parameters, lr
        self._first = np.zeros_like(parameters)
        self._second = np.zeros_like(parameters)
        self._steps = 0

    def step(self, gradient: NDArray[Any]) -> None:
        """Move along the bias-corrected first moment, scaled by the second."""
        decay, decay_square, epsilon = 0.9, 0.999, 1e-8
        self._steps += 1
        self._first += (1 - decay) * (gradient - self._first)
        self._second += (1 - decay_square) * (gradient * gradient - self._second)
        rate = self._lr / (1 - decay**self._steps)
        scale = np.sqrt(self._second / (1 - decay_square**self._steps))
        self._parameters -= rate * self._first / (scale + epsilon)


def make_optimizer(settings: Mapping[str, Any], parameters: NDArray[Any]) -> Optimizer:
    """Return the optimiser of ``Job.settings`` for a shard.

    Raises
    ------
    ValueError
        When its name is neither adam nor sgd.
    """
    name, lr = settings["optimizer"]["name"], settings["optimizer"]["lr"]
    if name == "adam":
        return Adam(parameters, lr)
    if name == "sgd":
        return Sgd(parameters, lr)
    raise ValueError(f"optimizer {name} is neither adam nor sgd")


def mean_gradient(gradients: list[NDArray[Any]]) -> NDArray[Any]:
    """Return the mean over workers, summed in the order given.

    Raises
    ------
    ValueError
        When there is none.
    """
    if not gradients:
        raise ValueError("no worker, no gradient")
    total = gradients[0].copy()
    for gradient in gradients[1:]:
        total += gradient
    total /= len(gradients)
    return total
