"""Models, their flat parameters, optimisers, the one-process reference, evaluation.

torch is imported inside functions: parameter servers and timed workers run
without them.
"""

from emu.training.blocks import make_blocks
from emu.training.evaluation import evaluate
from emu.training.graph_model import GraphModel
from emu.training.mini_batch import MiniBatch
from emu.training.optimizers import make_optimizer, mean_gradient
from emu.training.own_model import Adjacency, OwnModel
from emu.training.parameters import (
    build_model,
    initial_parameters,
    parameter_shapes,
    split_parts,
)
from emu.training.reference import reference_training
from emu.training.trial import ModelFigures, try_out
from emu.training.whole_graph import PartModel

__all__ = [
    "Adjacency",
    "GraphModel",
    "MiniBatch",
    "ModelFigures",
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
