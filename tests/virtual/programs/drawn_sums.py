"""Sums of drawn tensors by torch's own gloo, in forked processes: one line a rank.

    python drawn_sums.py FOLDER CASES

``CASES``: JSON, a list of [ranks, elements, type, operation, seed].
"""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed

#: Names that torch does not export are used here, too.
dist: Any = torch.distributed


def draw(count: int, dtype: str, seed: int, rank: int) -> torch.Tensor:
    """Return the numbers that a rank brings."""
    rng = np.random.default_rng([seed, rank])
    return torch.tensor(rng.normal(size=count) * 100).to(getattr(torch, dtype))


def digest_of(tensor: torch.Tensor) -> str:
    """Return a digest of the bits of a tensor."""
    return hashlib.sha256(tensor.view(torch.uint8).numpy().tobytes()).hexdigest()


def run_rank(folder: Path, rank: int, case: tuple[int, int, str, str, int]) -> None:
    """Sum what the ranks of a case bring; write the digest of what this one has."""
    ranks, count, dtype, operation, seed = case
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    tensor = draw(count, dtype, seed, rank)
    dist.all_reduce(tensor, getattr(dist.ReduceOp, operation))
    (folder / f"rank{rank}").write_text(digest_of(tensor))
    dist.barrier()


def main() -> None:
    """Run all cases, one after the other."""
    for number, case in enumerate(json.loads(sys.argv[2])):
        folder = Path(sys.argv[1]) / f"case{number}"
        folder.mkdir()
        children = []
        for rank in range(case[0]):
            child = os.fork()
            if child == 0:
                torch.set_num_threads(1)
                run_rank(folder, rank, case)
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)


if __name__ == "__main__":
    main()
