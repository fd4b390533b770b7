"""Graphs: sources, imports, partitions, the prepared cache, deterministic sampling.

Decides which vertices a batch holds, as a function of seed, sampler and iteration. It
must not know sockets, schedules, training; torch and dgl only to read their files.
Start at ``dataset.py``, then ``sampling.py``; ``readers/`` has a file per kind of file.
"""

from emu.graph_data.batches import ALL_NEIGHBOURS, BatchPlan
from emu.graph_data.caches import (
    CachePlan,
    SamplerCache,
    choose_rows,
    count_job,
    count_remote_rows,
    count_samples,
)
from emu.graph_data.dataset import Dataset, open_columns
from emu.graph_data.opened import open_for
from emu.graph_data.sampling import (
    GrowingBatch,
    SampledBatch,
    relabel,
    sample_batch,
    sample_neighbours,
)
from emu.graph_data.whole_graph import (
    Adjacency,
    Part,
    WholeGraph,
    open_layers,
    open_parts,
)

__all__ = [
    "ALL_NEIGHBOURS",
    "Adjacency",
    "BatchPlan",
    "CachePlan",
    "Dataset",
    "GrowingBatch",
    "Part",
    "SampledBatch",
    "SamplerCache",
    "WholeGraph",
    "choose_rows",
    "count_job",
    "count_remote_rows",
    "count_samples",
    "open_columns",
    "open_for",
    "open_layers",
    "open_parts",
    "relabel",
    "sample_batch",
    "sample_neighbours",
]
