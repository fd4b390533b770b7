"""Models, their flat parameters, optimisers, the one-process reference, evaluation.

Decides how a gradient is computed. It must not know schedules and sockets; torch is
imported inside functions, as parameter servers and timed workers run without it.
Start at ``reference.py``.
"""

from emu.training.graph_model import (
    GraphModel,
    build_model,
    initial_parameters,
    parameter_shapes,
    split_parts,
)
from emu.training.layers import MiniBatch, make_blocks
from emu.training.optimizers import make_optimizer, mean_gradient
from emu.training.own_model import OwnModel, try_out
from emu.training.reference import Inference, evaluate, reference_training
from emu.training.whole_graph import PartModel

__all__ = [
    "GraphModel",
    "Inference",
    "MiniBatch",
    "OwnModel",
    "PartModel",
    "build_model",
    "evaluate",
    "initial_parameters",
    "make_blocks",
    "make_optimizer",
    "mean_gradient",
    "parameter_shapes",
    "reference_training",
    "split_parts",
    "try_out",
]
