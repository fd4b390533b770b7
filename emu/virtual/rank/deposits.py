"""Values of calls, as files in memory that the ranks of a run share.

A deposit is what one member brings to one call, in parts: one for each member that
takes another piece, or one for all.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor


def flat(tensor: Tensor) -> Tensor:
    """Return a tensor's values as they lie in memory, not copied, shape (elements,).

    gloo takes them so, too: of a transposed matrix by its columns.

    Raises ValueError where other values lie between them.
    """
    values = tensor.detach()
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    extent = 1 + sum((size - 1) * stride for size, stride in steps)
    if tensor.numel() and extent != tensor.numel():
        raise ValueError("gloo takes tensors alone that are dense in memory")
    return values.as_strided((tensor.numel(),), (1,))


def bytes_of(tensor: Tensor) -> Tensor:
    """Return the bytes of a tensor as they lie in memory, uint8, shape (bytes,)."""
    return flat(tensor).view(torch.uint8)


class Deposits:
    """Files of one rank and those it reads of others.

    Parameters
    ----------
    folder
        Where they lie.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def leave(self, name: str, content: Tensor) -> None:
        """Leave the bytes of a tensor under a name."""
        path = self._folder / name
        with path.open("wb", buffering=0) as file:
            # A file in memory takes all that there is room for, in one go.
            values = bytes_of(content).numpy()
            written = file.write(values.data)
        if written != content.nbytes:
            raise OSError(f"no room for {content.numel()} values in {self._folder}")

    def read(self, name: str, start: int = 0, count: int = -1) -> Tensor:
        """Return ``count`` bytes of a deposit from a place on, or the rest."""
        path = self._folder / name
        if count < 0:
            count = path.stat().st_size - start
        content = torch.empty(count, dtype=torch.uint8)
        if count:
            with path.open("rb", buffering=0) as file:
                file.seek(start)
                file.readinto(content.numpy().data)
        return content

    def take(self, name: str) -> Tensor:
        """Return the bytes of a deposit that is for this rank alone, and remove it."""
        content = self.read(name)
        (self._folder / name).unlink()
        return content

    def read_or_make(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        """Return a value that the first who asks makes for all."""
        path = self._folder / name
        lock = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                return self.read(name)
            content = make()
            self.leave(name, content)
            return bytes_of(content)
        finally:
            os.close(lock)


def fill(outputs: Sequence[Tensor], content: Tensor) -> None:
    """Copy bytes into tensors, one after the other."""
    start = 0
    for output in outputs:
        end = start + output.nbytes
        bytes_of(output).copy_(content[start:end])
        start = end
