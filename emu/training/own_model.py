"""A model of the user's own: a torch module, called with a mini-batch's blocks.

Its program is text in the job's settings, so that every host, audit and evaluation
builds the same module. Whatever it draws from torch, numpy or ``random`` follows from
the job's seed, the worker and the iteration.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import random  # noqa: TID251 - of the program, whose generator is given a seed
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from emu.array_types import Array
from emu.errors import DataError
from emu.graph_data import BatchPlan, Dataset, open_for, sample_batch
from emu.host.foreign_code import (
    INSTALL_TORCH,
    OWN,
    ask_to_run,
    code_runs,
    import_library,
    import_program,
    line_of,
)
from emu.host.stream_key import stream_key
from emu.names import printable
from emu.training.layers import (
    JobSettings,
    MiniBatch,
    Tensor,
    add_gradients,
    as_tensor,
)

Edges = Sequence[tuple[Array, Array]]

#: Held by who runs a program: its output and its generators are of the process.
_ALONE = threading.RLock()
# streams of the job's seed
_BUILT = 6
_CALLED = 7

#: Arguments offered to a constructor, by the names that examples of dgl and PyTorch
#: Geometric use: the length of features, the number of classes, that of layers.
_OFFERED = (
    {
        "in_feats", "in_feat", "in_size", "in_dim", "in_channels", "in_features",
        "input_size", "input_dim", "num_features", "num_node_features", "nfeat",
    },
    {
        "num_classes", "n_classes", "classes", "out_size", "out_dim", "out_channels",
        "out_feats", "out_features", "output_size", "output_dim", "num_labels",
        "nclass",
    },
    {"num_layers", "n_layers", "layers"},
)  # fmt: skip


class Adjacency(NamedTuple):
    """One block as PyTorch Geometric's ``NeighborSampler`` gave it.

    The methods are those of dgl's blocks that count, so that a model on torch alone
    runs on either.
    """

    edge_index: Tensor
    """int64, shape (2, edges): positions among the sources and the destinations."""
    e_id: None
    """Ids of the edges, which they do not have."""
    size: tuple[int, int]
    """Number of sources and destinations; destinations are the first of the sources."""

    def edges(self) -> tuple[Tensor, Tensor]:
        """Return the ends of every edge."""
        sources, destinations = self.edge_index
        return sources, destinations

    def num_src_nodes(self) -> int:
        """Return the number of sources."""
        return self.size[0]

    def num_dst_nodes(self) -> int:
        """Return the number of destinations."""
        return self.size[1]

    def number_of_src_nodes(self) -> int:
        """Return the number of sources."""
        return self.size[0]

    def number_of_dst_nodes(self) -> int:
        """Return the number of destinations."""
        return self.size[1]


class OwnModel:
    """A module that a program of a job states, its parameters in one flat vector.

    They are those that need a gradient, in the module's order, in the job's precision.

    Raises DataError when the program cannot be imported, or does not build a module;
    every method raises it when the program fails or returns another shape.
    """

    def __init__(
        self,
        settings: JobSettings,
        dataset: Dataset,
    ) -> None:
        import torch

        torch.set_num_threads(1)
        model = settings["model"]
        self._program: str = model["program"]
        self._seed: int = settings["seed"]
        self._classes = dataset.classes
        self._dtype = getattr(torch, settings["precision"])

        sizes = (
            dataset.feature_length,
            dataset.classes,
            model["layers"],
        )
        arguments = dict[str, int]()
        for names, size in zip(_OFFERED, sizes, strict=True):
            # Each size under all its names: a program is given those that it takes.
            arguments |= dict.fromkeys(names, size)
        with self._running("does not build a model", _BUILT):
            module = _build_module(model, arguments)
            self._module = module.to(self._dtype)
            parameters = module.parameters()
            self._parameters = [part for part in parameters if part.requires_grad]
            if not self._parameters:
                raise DataError("the model has no parameters", path=self._program)
            self._empty = [torch.zeros_like(part) for part in self._parameters]
        signature = inspect.signature(module.forward)
        self._names = list(signature.parameters)

    @contextlib.contextmanager
    def _running(
        self,
        failing: str,
        *stream: int,
    ) -> Iterator[None]:
        """Give the program its random numbers, and name it in its errors."""
        import torch

        key = int(stream_key(self._seed, *stream))
        # Standard output is emu's own: a program that prints must not mix with it.
        quiet = contextlib.redirect_stdout(sys.stderr)
        with _ALONE, torch.random.fork_rng([]), quiet:
            numpy_state = np.random.get_state()  # noqa: NPY002 - programs'
            python_state = random.getstate()
            torch.manual_seed(key)
            np.random.seed(key % 2**32)  # noqa: NPY002 - as above
            random.seed(key)
            try:
                yield
            except DataError:
                raise
            # A program may call sys.exit: that must not end emu without a word.
            except (Exception, SystemExit) as error:
                text = printable(f"{type(error).__name__}: {error}", limit=300)
                file = self._program.rpartition(":")[0]
                problem = f"{failing}: {text}{line_of(error, file)}"
                raise DataError(problem, path=self._program) from error
            finally:
                np.random.set_state(numpy_state)  # noqa: NPY002 - as above
                random.setstate(python_state)

    @property
    def parameters(self) -> Array:
        """The parameters, flat: a copy."""
        return self._flat(self._parameters)

    @property
    def buffers(self) -> dict[str, Array]:
        """Copies of the module's tensors that are no parameters, by name."""
        buffers = self._module.named_buffers()
        return {name: buffer.numpy().copy() for name, buffer in buffers}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every part of the flat vector, by its name in the module."""
        parameters = self._module.named_parameters()
        shapes = {}
        for name, part in parameters:
            if part.requires_grad:
                shapes[name] = tuple(part.shape)
        return shapes

    @staticmethod
    def _flat(parts: Sequence[Tensor]) -> Array:
        from torch.nn.utils import parameters_to_vector

        flat = parameters_to_vector(parts)
        return np.asarray(flat.detach().numpy())

    def load(self, flat: Array) -> None:
        """Copy a flat parameter vector into the module.

        Raises ValueError when its length is not the model's.
        """
        from torch.nn.utils import vector_to_parameters

        size = sum(p.numel() for p in self._parameters)
        if len(flat) != size:
            raise ValueError(f"{len(flat)} parameters for a model of {size}")
        # Parameters become views of this copy; the caller's vector goes on changing.
        copy = as_tensor(flat.copy())
        vector_to_parameters(copy, self._parameters)

    def gradient(
        self,
        batches: Sequence[MiniBatch],
        worker: int = 0,
        iteration: int = 0,
    ) -> tuple[Array, float, float]:
        """Return the gradient of the mean loss over the seeds of all ``batches``.

        With loss and accuracy, as `GraphModel.gradient`. What the model draws (dropout)
        follows from worker and iteration.
        """
        self._module.train()
        # A parameter that takes no part has no gradient then: its zeros stand for it.
        self._module.zero_grad(set_to_none=True)

        def scores_of(batch: MiniBatch) -> Tensor:
            features = as_tensor(batch.features)
            return self.scores(batch.sizes, batch.edges, features)

        with self._running("fails in training", _CALLED, worker, iteration):
            loss, accuracy = add_gradients(scores_of, batches)

        gradients = []
        parts = zip(self._parameters, self._empty, strict=True)
        for parameter, zeros in parts:
            gradient = parameter.grad
            if gradient is None:
                gradient = zeros
            gradients.append(gradient)
        return self._flat(gradients), loss, accuracy

    def scores(
        self,
        sizes: Sequence[int],
        edges: Edges,
        features: Tensor,
    ) -> Tensor:
        """Return one score per class for the last block's destinations.

        Sizes and edges are as in `SampledBatch`.
        """
        blocks = self._blocks(sizes, edges)
        inputs = features.to(self._dtype)
        # PyTorch Geometric's examples call forward(x, adjs), dgl's forward(blocks, x).
        second = self._names[1:2]
        if second in (["adjs"], ["blocks"], ["mfgs"]):
            scores = self._module(inputs, blocks)
        else:
            scores = self._module(blocks, inputs)

        shape = (sizes[-1], self._classes)
        score_shape = getattr(scores, "shape", None)
        if score_shape != shape or scores.dtype != self._dtype:
            answer = type(scores).__name__
            if score_shape is not None:
                answer = f"shape {tuple(score_shape)}"
            raise DataError(
                f"returns {answer} {getattr(scores, 'dtype', '')}, one score per seed "
                f"and class is needed: shape {shape} {self._dtype}",
                path=self._program,
            )
        return scores

    def _blocks(self, sizes: Sequence[int], edges: Edges) -> list[Any]:
        """Return the blocks as the program's examples have them, input side first."""
        import torch

        # Who names them adjs wants PyTorch Geometric's, even where dgl is installed.
        dgl = None if "adjs" in self._names else _dgl()
        blocks: list[Any] = []
        layers = zip(edges, pairwise(sizes), strict=True)
        for (source, destination), size in layers:
            ends = (as_tensor(source), as_tensor(destination))
            if dgl is None:
                edge_index = torch.stack(ends).long()
                blocks.append(Adjacency(edge_index, e_id=None, size=size))
            else:
                outer, inner = size
                block = dgl.create_block(
                    ends,
                    num_src_nodes=outer,
                    num_dst_nodes=inner,
                )
                blocks.append(block)
        return blocks

    def predict(
        self,
        sizes: Sequence[int],
        edges: Edges,
        features: Tensor,
    ) -> Tensor:
        """Return the class of each of the last block's destinations, not training."""
        import torch

        # Dropout is off then: an accuracy draws nothing.
        self._module.eval()
        with torch.no_grad(), self._running("fails in evaluation", _CALLED):
            scores = self.scores(sizes, edges, features)
            return scores.argmax(1)


def _dgl() -> Any:
    """Return dgl, None where it is not installed or does not load."""
    os.environ.setdefault("DGLBACKEND", "pytorch")  # else it warns and writes a file
    try:
        return importlib.import_module("dgl")
    except (ImportError, OSError):
        return None


def _build_module(model: JobSettings, offered: Mapping[str, Any]) -> Any:
    """Return the module of a program, built with its arguments and what it takes."""
    import torch

    program: str = model["program"]
    _dgl()  # its choice of a backend, before the program imports it
    factory = _factory(program, model["source"])
    args = model.get("args") or {}

    takes = inspect.signature(factory).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    unknown = [name for name in args if name not in takes]
    if unknown and not takes_any:
        names = ", ".join(takes) or "no arguments"
        problem = f"takes no {unknown[0]!r}, it takes {names}: see job.model.args"
        raise DataError(problem, path=program)

    known = {name: offered[name] for name in takes if name in offered}
    arguments = known | args
    missing = []
    for name, parameter in takes.items():
        is_named = parameter.kind in {
            parameter.POSITIONAL_OR_KEYWORD,
            parameter.KEYWORD_ONLY,
        }
        is_needed = is_named and parameter.default is parameter.empty
        if is_needed and name not in arguments:
            missing.append(name)
    if missing:
        problem = (
            f"needs {', '.join(missing)}: write for example job.model.args: "
            f"{{{missing[0]}: 64}}, or name a function that builds it"
        )
        raise DataError(problem, path=program)

    module = factory(**arguments)
    if not isinstance(module, torch.nn.Module):
        problem = f"returns {type(module).__name__}, a torch.nn.Module is needed"
        raise DataError(problem, path=program)
    return module


def _ask_to_run(program: str) -> None:
    ask_to_run(program.rpartition(":")[0], f"model {program}")


def _factory(program: str, source: str) -> Callable[..., Any]:
    """Return what builds a program's model: a class of modules, or its own function.

    Whatever else its text has imported, or computed, is not called.
    """
    import torch

    _ask_to_run(program)
    target = import_program(program, source)
    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        return target
    is_function = inspect.isfunction(target)
    if is_function and target.__module__.startswith(OWN):
        return target

    name = getattr(target, "__name__", type(target).__name__)
    problem = "is neither a class of torch.nn.Module nor a function of this file"
    raise DataError(f"{problem}: it is {name}", path=program)


_SEEDS = 32  # of the mini-batch that faults are looked for on
_TIMED = 3  # mini-batches whose median time counts
_ENOUGH = 4.0  # seconds after which no further one is measured

#: Settings of a job that the figures depend on.
_KEYS = (
    "dataset",
    "fanouts",
    "batch_size",
    "samplers_per_worker",
    "precision",
)
_MODEL_KEYS = ("program", "source", "args", "layers")


@dataclass(frozen=True)
class ModelFigures:
    """Measurements of a model, for one worker's mini-batches of an iteration."""

    parameters: int
    """Numbers that are trained."""
    flops: float
    """Operations of matrix products, forward and backward; none of work along edges."""
    seconds: float
    """CPU time of forward and backward on this computer, one thread."""


_known: dict[str, ModelFigures] = {}


def try_out(settings: JobSettings) -> ModelFigures:
    """Build the model of a program, look for faults, and measure it.

    Takes seconds the first time; the figures are kept while the process lives, so that
    variations of a scenario are compared with equal times.

    Raises CodeWithheld where nothing of others may run; DataError when torch or the
    data set is missing; as `OwnModel`; when the model draws random numbers that no seed
    decides, or keeps values from call to call.
    """
    causes = [settings.get(name) for name in _KEYS]
    causes += [settings["model"][name] for name in _MODEL_KEYS]
    key = json.dumps(causes, sort_keys=True)
    if key not in _known:
        program = settings["model"]["program"]
        if not code_runs():
            _ask_to_run(program)  # before torch is imported, which takes 1.5 s
        import_library("torch", program, INSTALL_TORCH)
        dataset = open_for(settings)
        _check(settings, dataset)
        _known[key] = _measure(settings, dataset)
    return _known[key]


def _measure(settings: JobSettings, dataset: Dataset) -> ModelFigures:
    from torch.utils.flop_counter import FlopCounterMode

    plan = BatchPlan.from_settings(settings)
    model = OwnModel(settings, dataset)
    samplers = range(settings["samplers_per_worker"])
    seconds: list[float] = []
    flops = 0.0

    for iteration in range(_TIMED + 1):
        batches = []
        for sampler in samplers:
            batch = MiniBatch.draw(dataset, plan, sampler, iteration)
            batches.append(batch)
        if iteration == 0:  # the first call loads libraries: its time is no measure
            with FlopCounterMode(display=False) as counter:
                model.gradient(batches)
            flops = float(counter.get_total_flops())
            continue

        began = time.thread_time()
        model.gradient(batches)
        # CPU time of this thread: other processes on the computer do not count.
        seconds.append(time.thread_time() - began)
        if sum(seconds) > _ENOUGH:
            break

    return ModelFigures(
        parameters=len(model.parameters),
        flops=flops,
        # The median: one slow call, as of a collection of garbage, does not move it.
        seconds=float(np.median(seconds)),
    )


def _check(settings: JobSettings, dataset: Dataset) -> None:
    program = settings["model"]["program"]
    first = OwnModel(settings, dataset)
    second = OwnModel(settings, dataset)
    is_equal = partial(np.array_equal, equal_nan=True)
    if not is_equal(first.parameters, second.parameters):
        raise DataError(
            "draws random numbers unseeded while it is built: draw from torch, numpy's "
            "np.random or random, which emu seeds, or give your generator a seed",
            path=program,
        )

    batch = _small_batch(settings, dataset)
    before = first.buffers
    gradients = []
    for model in (first, first, second):
        gradient, _, _ = model.gradient([batch])
        gradients.append(gradient)
    for name, value in first.buffers.items():
        if not is_equal(before[name], value):
            raise DataError(
                f"changes its buffer {name} in training, which no gradient carries to "
                "other workers: batch norm takes track_running_stats=False, and "
                "torch.nn.LayerNorm needs none",
                path=program,
            )

    # Of the same module once more, and of another one.
    gradient, again, elsewhere = gradients
    is_repeated = is_equal(gradient, again)
    if not is_repeated or not is_equal(gradient, elsewhere):
        raise DataError(
            "draws random numbers unseeded, or keeps values from call to call: two "
            "calls with the same blocks and seed had other gradients; draw from torch, "
            "np.random or random, which emu seeds per worker and iteration",
            path=program,
        )


def _small_batch(settings: JobSettings, dataset: Dataset) -> MiniBatch:
    """Return a mini-batch of some seeds, one of them without a neighbour if any is.

    An accuracy is of the whole graph, so that a model must bear such a vertex.
    """
    structure = dataset.structure
    plan = BatchPlan.from_settings(settings)
    train = plan.walk(dataset)
    plan = replace(plan, batch_size=min(plan.batch_size, _SEEDS))

    seeds = plan.seeds(train, 0, 0)
    degrees = np.diff(structure.indptr)
    lonely = np.flatnonzero(degrees == 0)[:1]
    is_other = ~np.isin(seeds, lonely)
    seeds = np.concatenate([seeds[is_other], lonely])
    batch = sample_batch(
        structure,
        seeds,
        fanouts=plan.fanouts,
        stream=plan.stream(0, 0),
    )
    rows = dataset.gather(batch.vertices)
    labels = np.maximum(dataset.labels[batch.seeds], 0)  # -1 where it has none
    return MiniBatch.of(batch, rows, labels)
