"""Graphs: sources, imports, partitions, the prepared cache, deterministic sampling.

Decides which vertices a batch holds, as a function of seed, sampler and iteration. It
must not know sockets, schedules, training; torch and dgl only to read their files.
Start at ``dataset.py``, then ``sampling.py``; ``readers/`` has one file per format.
"""

from emu.graph_data.batches import ALL_NEIGHBOURS, BatchPlan
from emu.graph_data.caches import (
    CachePlan,
    SamplerCache,
    batch_counts,
    choose_rows,
    count_job,
    count_samples,
)
from emu.graph_data.dataset import (
    Dataset,
    open_columns,
    open_dataset,
    open_for,
    partition,
)
from emu.graph_data.sampling import (
    GrowingBatch,
    SampledBatch,
    Structure,
    relabel,
    sample_batch,
    sample_neighbours,
)
from emu.graph_data.whole_graph import (
    Adjacency,
    Aggregation,
    Part,
    WholeGraph,
    open_layers,
    open_parts,
    open_whole_graph,
    replicate_parts,
    split_graph,
)

__all__ = [
    "ALL_NEIGHBOURS",
    "Adjacency",
    "Aggregation",
    "BatchPlan",
    "CachePlan",
    "Dataset",
    "GrowingBatch",
    "Part",
    "SampledBatch",
    "SamplerCache",
    "Structure",
    "WholeGraph",
    "batch_counts",
    "choose_rows",
    "count_job",
    "count_samples",
    "open_columns",
    "open_dataset",
    "open_for",
    "open_layers",
    "open_parts",
    "open_whole_graph",
    "partition",
    "relabel",
    "replicate_parts",
    "sample_batch",
    "sample_neighbours",
    "split_graph",
]
