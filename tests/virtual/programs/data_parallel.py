"""Ways to train data-parallel in torch: a digest of the weights after some steps."""

import hashlib
import sys
import warnings
from typing import Any

import torch
import torch.distributed
from torch import nn
from torch.distributed import fsdp
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer

dist: Any = torch.distributed
warnings.filterwarnings("ignore")
torch.set_num_threads(1)
dist.init_process_group("gloo")
RANK = dist.get_rank()
PowerSGD: Any = powerSGD_hook.PowerSGDState
DDP = nn.parallel.DistributedDataParallel


def say(name: str, tensors: Any) -> None:
    """Print a digest of tensors."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    sys.stdout.write(f"{RANK} {name} {digest.hexdigest()[:16]}\n")
    sys.stdout.flush()


def build() -> nn.Module:
    """Return the same model everywhere."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 65), nn.ReLU(), nn.Linear(65, 8))


def train(model: nn.Module, optimiser: Any = None, steps: int = 4) -> None:
    """Train on numbers that differ from rank to rank."""
    optimiser = optimiser or torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(RANK)
    for _ in range(steps):
        optimiser.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimiser.step()


def train_with_hooks() -> None:
    """Train with gradients that travel as hooks have it."""
    model: Any = DDP(build())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    train(model)
    say("fp16", model.parameters())
    model = DDP(build())
    model.register_comm_hook(
        PowerSGD(None, 1, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook
    )
    train(model, steps=5)
    say("power", model.parameters())


def train_with_options() -> None:
    """Train with buckets, static graphs, uneven inputs and sharded optimisers."""
    model = DDP(build(), find_unused_parameters=True, bucket_cap_mb=0.01)
    train(model)
    say("unused", model.parameters())
    model = DDP(build(), static_graph=True, gradient_as_bucket_view=True)
    train(model)
    say("static", model.parameters())
    model = DDP(build())
    with Join([model]):
        train(model, steps=2 + RANK)
    say("join", model.parameters())
    model = DDP(build())
    options: Any = {"optimizer_class": torch.optim.Adam, "lr": 0.01}
    train(model, ZeroRedundancyOptimizer(model.parameters(), **options))
    say("zero", model.parameters())


def train_sharded() -> None:
    """Train with parameters in shards."""
    model: Any = build()
    fsdp.fully_shard(model[0])
    fsdp.fully_shard(model)
    train(model)
    say("fully_shard", [weight.full_tensor() for weight in model.parameters()])
    model = fsdp.FullyShardedDataParallel(build(), device_id=torch.device("cpu"))
    train(model)
    say("fsdp", model.parameters())


train_with_hooks()
train_with_options()
train_sharded()
dist.barrier()
