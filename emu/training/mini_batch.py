"""A mini-batch as a worker receives it: features, blocks, labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emu.training.blocks import Block
from emu.training.layers import as_tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from emu.graph_data import SampledBatch
    from emu.training.layers import Tensor


@dataclass(frozen=True, eq=False)
class MiniBatch:
    """Sample from which a model learns in one step of one sampler."""

    features: NDArray[Any]
    """Rows of S_0, float32 or float64, shape (#S_0, feature_length)."""
    labels: NDArray[np.int32]
    """int32, shape (#S_L,)."""
    sizes: tuple[int, ...]
    edges: tuple[tuple[NDArray[np.int32], NDArray[np.int32]], ...]
    """As in `SampledBatch`."""

    @classmethod
    def of(
        cls, batch: SampledBatch, features: NDArray[Any], labels: NDArray[np.int32]
    ) -> MiniBatch:
        """Join a sampled batch with its rows and labels."""
        return cls(features, labels, batch.sizes, batch.edges)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that travel, exactly d of the edge sampler -> worker."""
        named: dict[str, NDArray[Any]] = {
            "features": self.features,
            "labels": self.labels,
        }
        for number, (source, destination) in enumerate(self.edges):
            named[f"source_{number}"] = source
            named[f"destination_{number}"] = destination
        return named

    @classmethod
    def from_tensors(cls, named: Mapping[str, NDArray[Any]], layers: int) -> MiniBatch:
        """Rebuild a mini-batch from what `tensors` returned.

        The sizes need not travel: S_L has a label each, and a block's sources are its
        destinations and the other starting points of edges (see `SampledBatch`).

        Raises
        ------
        ValueError
            When a tensor is missing or they contradict each other.
        """
        missing = {"features", "labels"} - named.keys()
        edges = tuple(
            (named[f"source_{number}"], named[f"destination_{number}"])
            for number in range(layers)
            if f"source_{number}" in named and f"destination_{number}" in named
        )
        if missing or len(edges) < layers:
            raise ValueError(f"a mini-batch of {layers} blocks is not {sorted(named)}")
        sizes = [len(named["labels"])]
        for source, destination in reversed(edges):
            sizes.append(max(sizes[-1], int(source.max(initial=-1)) + 1))
            Block(source, destination, outer=sizes[-1], inner=sizes[-2])
        if len(named["features"]) != sizes[-1]:
            raise ValueError(
                f"{len(named['features'])} feature rows for {sizes[-1]} input vertices"
            )
        return cls(named["features"], named["labels"], tuple(sizes[::-1]), edges)


def add_gradients(
    scores_of: Callable[[MiniBatch], Tensor], batches: Sequence[MiniBatch]
) -> tuple[float, float]:
    """Add the gradients of the mean loss over the seeds of all ``batches``.

    Returns
    -------
    loss, accuracy
        Mean cross-entropy; share of the seeds whose label scores highest.
    """
    from torch.nn import functional

    seeds = sum(len(batch.labels) for batch in batches)
    loss, correct = 0.0, 0
    for batch in batches:
        scores = scores_of(batch)
        labels = as_tensor(batch.labels).long()
        share = functional.cross_entropy(scores, labels, reduction="sum") / seeds
        share.backward()  # type: ignore[no-untyped-call] # adds to the gradients of the batches before
        loss += share.item()
        correct += int((scores.argmax(1) == labels).sum())
    return loss, correct / seeds
