"""An asynchronous parameter server by send and receive: rank 0 serves the others.

A worker that is ready first is served first: what it reads depends on the clocks.
"""

import argparse

import torch
from torch import distributed, nn

FEATURES = 256
CLASSES = 16


def make_model() -> nn.Module:
    """Return the model, with the same weights everywhere."""
    torch.manual_seed(0)
    layers = [nn.Linear(FEATURES, 512), nn.ReLU(), nn.Linear(512, CLASSES)]
    return nn.Sequential(*layers)


def serve(model: nn.Module, steps: int) -> None:
    """Take gradients of whoever comes, and answer with the newest weights."""
    weights = nn.utils.parameters_to_vector(model.parameters()).detach()
    gradient = torch.empty_like(weights)
    for step in range(steps * (distributed.get_world_size() - 1)):
        worker = distributed.recv(gradient)
        weights -= 0.01 * gradient
        distributed.send(weights, worker)
        print(f"step {step} by {worker}", flush=True)


def work(model: nn.Module, steps: int) -> None:
    """Compute gradients on random numbers."""
    weights = nn.utils.parameters_to_vector(model.parameters()).detach()
    torch.manual_seed(distributed.get_rank())
    for step in range(steps):
        nn.utils.vector_to_parameters(weights, model.parameters())
        rows = torch.randn(64 * distributed.get_rank(), FEATURES)  # unequal work
        scores = model(rows)
        loss = nn.functional.cross_entropy(scores, rows[:, :CLASSES].argmax(1))
        model.zero_grad()
        loss.backward()
        gradients = [weight.grad for weight in model.parameters()]
        distributed.send(nn.utils.parameters_to_vector(gradients), 0)
        distributed.recv(weights, 0)
        print(f"step {step} loss {loss.item():.6f}", flush=True)


def main() -> None:
    """Serve as rank 0, work as any other."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    given = parser.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    model = make_model()
    if distributed.get_rank() == 0:
        serve(model, given.steps)
    else:
        work(model, given.steps)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
