"""A perceptron under DistributedDataParallel: nothing here knows of emu."""

import argparse
import os

import torch
from torch import distributed, nn


def main() -> None:
    """Train on random numbers; print a line when a step begins."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--batch", type=int, default=64)
    given = parser.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    torch.manual_seed(int(os.environ["RANK"]))
    layers = [nn.Linear(given.width, given.width), nn.ReLU(), nn.Linear(given.width, 1)]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(given.steps):
        print(f"step {step}", flush=True)
        optimiser.zero_grad()
        loss = model(torch.randn(given.batch, given.width)).square().mean()
        loss.backward()
        optimiser.step()
    distributed.barrier()  # who leaves early takes others' connections along
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
