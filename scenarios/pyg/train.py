"""GraphSAGE on sampled neighbours, rows from a server: nothing here knows of emu."""

import argparse
import os
import socket
import time

import numpy as np
import torch
from torch import distributed, nn
from torch_geometric.nn import SAGEConv

VERTICES, COLUMNS, DEGREE = 20_000, 100, 15


class Rows:
    """Feature rows of the server, over one connection."""

    def __init__(self, host: str) -> None:
        while True:
            try:
                self.socket = socket.create_connection((host, 8000))
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answers = self.socket.makefile("rb")

    def get(self, ids: np.ndarray) -> torch.Tensor:
        """Return the rows of vertices, float32, (ids, COLUMNS)."""
        self.socket.sendall(np.int64(len(ids)).tobytes() + ids.tobytes())
        data = bytearray(self.answers.read(4 * COLUMNS * len(ids)))
        return torch.frombuffer(data, dtype=torch.float32).view(-1, COLUMNS)


class Model(nn.Module):
    """Two layers of GraphSAGE."""

    def __init__(self, hidden: int = 256, classes: int = 10) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [SAGEConv(COLUMNS, hidden), SAGEConv(hidden, hidden)]
        )
        self.out = nn.Linear(hidden, classes)

    def forward(self, rows: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Return a row per vertex."""
        for layer in self.layers:
            rows = layer(rows, edges).relu()
        return self.out(rows)


def sample(
    neighbours: np.ndarray, seeds: np.ndarray, rng: np.random.Generator, fanout: int
) -> tuple[np.ndarray, torch.Tensor]:
    """Return the vertices of two hops, and edges (from, to) between their places."""
    sources, targets, frontier = [], [], seeds
    for _ in range(2):
        chosen = rng.choice(DEGREE, fanout, replace=False)
        sources.append(neighbours[frontier][:, chosen].ravel())
        targets.append(np.repeat(frontier, fanout))
        frontier = np.unique(sources[-1])
    ends = np.concatenate([*sources, *targets])
    vertices, places = np.unique(ends, return_inverse=True)
    return vertices, torch.from_numpy(places.reshape(2, -1))


def main() -> None:
    """Train on a random graph; print a line when a step begins."""
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=64)
    given = parser.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rng = np.random.default_rng(int(os.environ["RANK"]))
    neighbours = np.random.default_rng(0).integers(VERTICES, size=(VERTICES, DEGREE))
    rows, model = Rows(given.server), nn.parallel.DistributedDataParallel(Model())
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(given.steps):
        print(f"step {step}", flush=True)
        seeds = rng.choice(VERTICES, given.seeds, replace=False)
        vertices, edges = sample(neighbours, seeds, rng, fanout=5)
        optimiser.zero_grad()
        found = model(rows.get(vertices), edges)
        loss = found[np.searchsorted(vertices, seeds)].square().mean()
        loss.backward()
        optimiser.step()
    distributed.barrier()  # who leaves early takes others' connections along
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
