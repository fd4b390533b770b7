"""The report of a study: the tables, what was chosen, and why the paper differs."""

from __future__ import annotations

CHOICES = """\
## What was chosen where the paper is silent

- **Demands.** The testbed's, in logical cores, two to a core of a simulated machine.
  Read alike, the jobs need 81 and 181 of 80 and 160 cores on average: few draws hold a
  placement, none has room for a second one, and moving one task at a time (ETP) ends
  where it begins (`--demands logical` shows it: DGTP then loses to DistDGL).
- **Machines.** Whole numbers, uniform; drawn again until IFS finds a placement; the
  draws of every cluster are in `searches.csv` and `manifest.json`.
- **Volumes.** Samples of synthetic graphs of the published shape and density; counts
  are enlarged to the published size (`tools/paper_figures/traffic.py`).
- **Times.** The paper's profile is not published: 20, 15 and 60 ms for store, sampler
  and worker at 850,000 sampled edges, in proportion to the edges; server 5 ms.
- **Peak-to-mean ratio.** Largest transfer of a store to a sampler over the mean, in one
  profile; scaled by raising every transfer to one power, the sum unchanged.
- **Training time.** 20 iterations simulated, in proportion to all epochs. Whole runs
  take less per iteration, by 0.2 to 3.4 % (985 iterations on three clusters, two
  placements, OES and max-min).
- **ETP.** 10,000 candidates, beta 0.1 per 0.01 % of the first placement's makespan;
  placements are searched once per cluster, at 1000 seeds per sampler.
- **MRTF and OMCoflow** are work-conserving or literal readings of one sentence each;
  see `emu/scheduling/policies.py`.
"""

REASONS = """\
## Where the paper is not reproduced, and why

- **MRTF, 67 and 55 %.** No policy that keeps a NIC busy can lose that much here: the
  busiest NIC has to carry its bytes under every policy, and DGTP itself needs only
  slightly more than that (see the gaps). Serving the shortest first costs what arrives
  late, not throughput. `MRTF exclusive` (one flow per port, others wait) is the
  harshest reading and is drawn beside it: on products DGTP saves 18 % on it. To lose
  67 %, NICs must be idle for two thirds of the time.
- **OMCoflow, 33 and 37 %.** The literal reading leaves idle what its weights do not
  use. On products that costs 12 % on average and 29 % on the worst cluster: the sign
  is the paper's, the size is not.
- **The gain grows with the batch size.** Not seen: volumes and times grow almost in
  proportion to the batch, so all contenders slow down alike.
- **The gain is stable over the peak-to-mean ratio.** It keeps its sign and shrinks:
  the larger the peaks, the more of the time they decide, wherever tasks stand.
- **DistDGL.** The gain is larger than the paper's. Its placement alone costs 17 %
  (products) and 20 % (papers100M) in the median, under the same rates; the rest are its
  FIFO queues, one message at a time per outgoing port, which the paper names and we
  read strictly. How much of a queue its testbed really had is not published.
"""
