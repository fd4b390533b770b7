"""Models, their flat parameters, optimisers, the one-process reference, evaluation.

torch is imported inside functions: parameter servers and timed workers run
without them.
"""

from emu.training.blocks import make_blocks
from emu.training.column_split import ColumnSplit, ForwardPass
from emu.training.evaluation import evaluate
from emu.training.graph_model import GraphModel
from emu.training.mini_batch import MiniBatch
from emu.training.optimizers import make_optimizer, mean_gradient
from emu.training.parameters import initial_parameters
from emu.training.reference import reference_training

__all__ = [
    "ColumnSplit",
    "ForwardPass",
    "GraphModel",
    "MiniBatch",
    "evaluate",
    "initial_parameters",
    "make_blocks",
    "make_optimizer",
    "mean_gradient",
    "reference_training",
]
