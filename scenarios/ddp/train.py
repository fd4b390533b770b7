"""A perceptron under DistributedDataParallel: nothing here knows of emu.

With --trace FOLDER every rank leaves a trace of torch.profiler there.
"""

import argparse
import contextlib
import os
from pathlib import Path

import torch
from torch import distributed, nn, profiler

#: Steps before the first one that is traced, of which the last two warm up.
UNTRACED = 4


def trace_steps(folder: str, steps: int) -> profiler.profile | contextlib.nullcontext:
    """Return the profiler of a rank; without a folder, nothing that does anything."""
    if not folder:
        return contextlib.nullcontext()
    file = Path(folder) / f"rank{os.environ['RANK']}.json.gz"
    return profiler.profile(
        activities=[profiler.ProfilerActivity.CPU],
        schedule=profiler.schedule(wait=2, warmup=2, active=steps - UNTRACED - 1),
        record_shapes=True,  # sizes of what is exchanged
        on_trace_ready=lambda profile: profile.export_chrome_trace(str(file)),
    )


def main() -> None:
    """Train on random numbers; print a line when a step begins."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--trace", default="")
    given = parser.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    torch.manual_seed(int(os.environ["RANK"]))
    layers = [nn.Linear(given.width, given.width), nn.ReLU(), nn.Linear(given.width, 1)]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    with trace_steps(given.trace, given.steps) as trace:
        for step in range(given.steps):
            print(f"step {step}", flush=True)
            optimiser.zero_grad()
            loss = model(torch.randn(given.batch, given.width)).square().mean()
            loss.backward()
            optimiser.step()
            if trace is not None:
                trace.step()
    distributed.barrier()  # who leaves early takes others' connections along
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
