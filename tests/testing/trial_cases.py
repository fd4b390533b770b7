"""Small jobs of every system, to be tried in virtual time."""

from __future__ import annotations

from functools import cache

from emu.scenario import Experiment, prepare
from emu.scenario.scenario_file import loads

_SAMPLED = """
cluster: {machines: [{name: m, count: 3, nic: 400 Mbit/s}]}
job:
  dataset: {name: products-like, scale: 0.0005}
  model: {hidden: 4, layers: 2}
  fanouts: [2, 2]
  batch_size: 4
  iterations: 3
"""
DGTP = (
    _SAMPLED
    + """
  system: dgtp
  partitioner: hash
  workers: 2
  samplers_per_worker: 1
  times: {graph_store: 20 ms, sampler: 20 ms, worker: 40 ms, parameter_server: 10 ms}
placement: {policy: round_robin}
"""
)
CASES = {
    "dgtp": DGTP,
    "ring": DGTP.replace("workers: 2", "workers: 2\n  sync: ring").replace(
        ", parameter_server: 10 ms", ""
    ),
    "p3": _SAMPLED
    + """
  system: p3
  structure: hashed
  times: {sampler: 10 ms, sampler_hop: 2 ms, graph_store_hop: 2 ms,
    model_forward: 30 ms, data_forward: 20 ms, data_backward: 20 ms,
    model_backward: 30 ms}
""",
    "data_parallel": _SAMPLED
    + """
  system: data_parallel
  partitioner: hash
  times: {sampler: 10 ms, worker: 40 ms}
""",
    "dgcl": """
cluster: {topology: dgx1}
job:
  system: dgcl
  machines: [d0, d1, d2, d5]
  dataset: {name: products-like, scale: 0.0005}
  partitioner: hash
  model: {kind: gcn, hidden: 4, layers: 2}
  epochs: 2
  cache_features: false
  times: {forward: 10 ms, backward: 20 ms}
""",
    "disturbed": """
cluster: {machines: [{name: m, count: 2, nic: 10 B/s}, {name: sink, nic: 10 B/s}]}
events:
  - {at: 3 s, cut: sink, for: 4 s}
  - {at: 8 s, pause: sink, for: 1.5 s}
  - {at: 10 s, slow: m0, by: 3, direction: out, for: 5 s}
  - {at: 10 s, slow: sink, by: 4, for: 10 s}
job:
  system: custom
  iterations: 4
  tasks: [{name: g0, time: 0.2 s, pin: m0}, {name: g1, time: 0.2 s, pin: m1},
    {name: w0, time: 0.5 s, pin: sink}]
  flows: [{from: g0, to: w0, volume: 10 B}, {from: g1, to: w0, volume: 10 B}]
emulation: {time_scale: 0.05, byte_scale: 20000}
""",
    "dorylus": """
cluster: {machines: [{name: g, count: 2, nic: 400 Mbit/s}, {name: ps, nic: 400 Mbit/s}]}
job:
  system: dorylus
  dataset: {name: products-like, scale: 0.0005}
  partitioner: hash
  model: {hidden: 4}
  parameter_servers: [ps]
  intervals: 2
  lambdas: 2
  mode: pipe
  epochs: 2
  times: {gather: 10 ms, apply: 20 ms, scatter: 4 ms}
""",
}
CASES["dorylus-dying"] = CASES["dorylus"] + "  dying_lambdas: {share: 20 %}\n"


@cache
def experiment(name: str) -> Experiment:
    """Return a job, made ready."""
    return prepare(loads(f"name: {name}\n{CASES[name]}\nseed: 7\n"))
