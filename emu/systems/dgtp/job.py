"""The DGTP job: graph stores, samplers, workers and parameter servers, or all-reduce.

Names g0.., s0.., w0.., ps0..; sampler i serves worker i // samplers_per_worker. One
store per machine, pinned there.

One-shot sampling: every store sends each sampler the features it owns of the batch.
Multi-round sampling (DistDGL): the process of a sampler asks the stores hop by hop,
tasks ``s0.hop1`` .. ``s0.hopL``, ``s0.fetch``, then ``s0`` assembles; the process of a
store answers in ``g0.hop1`` .. ``g0.hopL`` and sends features in ``g0``.

Without parameter servers every worker holds and steps the parameters, and gradients are
summed by an all-reduce: tasks ``w0.ring0`` .. and ``w0.got0`` .. of the worker's
process.
"""

from __future__ import annotations

from emu.problem.workloads.all_reduce import ALL_REDUCE, RECEIVE, STEP

#: What ``nodes`` runs for each kind (workers without servers: ``replica``); ``emu``
#: never imports it.
PROGRAMS = {
    "graph_store": "emu_nodes.dgtp.programs:GraphStore",
    "graph_store_hop": "emu_nodes.dgtp.programs:GraphStoreHop",
    "sampler": "emu_nodes.dgtp.programs:Sampler",
    "sampler_hop": "emu_nodes.dgtp.programs:SamplerHop",
    "sampler_fetch": "emu_nodes.dgtp.programs:SamplerFetch",
    "worker": "emu_nodes.dgtp.programs:Worker",
    "replica": "emu_nodes.dgtp.programs:Replica",
    "parameter_server": "emu_nodes.dgtp.programs:ParameterServer",
    ALL_REDUCE: STEP,
    "all_reduce_receive": RECEIVE,
}

#: Content of its flows, for tables and sentences.
CARRIES = {
    ("graph_store", "sampler"): "features",
    ("sampler", "worker"): "mini-batches",
    ("worker", "parameter_server"): "gradients",
    ("parameter_server", "worker"): "parameters",
}
