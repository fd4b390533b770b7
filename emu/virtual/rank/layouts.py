"""Tensors as calls take them: values as they lie in memory, or by rows.

gloo copies to and from memory in some calls, so that of a transposed matrix it takes
columns, and elements in others. Some of its calls refuse what does not lie by rows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from emu.errors import EmulatorError

Bytes: TypeAlias = NDArray[np.uint8]


class NotModelled(EmulatorError):
    """A call whose messages are not known."""


def flat(tensor: Tensor) -> Tensor:
    """Return a tensor whose values lie in memory without gaps, not copied.

    gloo takes them as they lie, too: of a transposed matrix by its columns.

    Raises ValueError where other values lie between them.
    """
    # Each of torch's operations would take longer than a small call should.
    if tensor.is_contiguous():
        return tensor

    count = tensor.numel()
    extent = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        extent += (size - 1) * stride
    if count and extent != count:
        raise ValueError("gloo takes tensors alone that are dense in memory")
    values = tensor.detach()
    return values.as_strided((count,), (1,))


def fill(outputs: Sequence[Tensor], content: Bytes) -> None:
    """Copy bytes into tensors, one after the other."""
    # Its attribute ctypes takes longer than to copy what a small call has.
    place, _ = content.__array_interface__["data"]
    for output in outputs:
        size = output.nbytes
        address = flat(output).data_ptr()
        ctypes.memmove(address, place, size)
        place += size


def fill_rows(outputs: Sequence[Tensor], content: Bytes) -> None:
    """Copy bytes of values into tensors by their rows, however these lie in memory."""
    if all(output.is_contiguous() for output in outputs):
        fill(outputs, content)
        return
    rows = [output.detach().contiguous() for output in outputs]
    fill(rows, content)
    for output, row in zip(outputs, rows, strict=True):
        output.detach().copy_(row)


def join(tensors: Sequence[Tensor], *, by_rows: bool = False) -> Tensor:
    """Return the elements of tensors of one type without gaps, not copied if of one.

    They are as in memory, or ``by_rows``. Raises NotModelled when a tensor is sparse or
    not on the CPU, and RuntimeError for tensors of several types.
    """
    for tensor in tensors:
        if not tensor.is_cpu:
            problem = (
                f"a tensor is on {tensor.device}: a virtual cluster has CPUs alone"
            )
            raise NotModelled(problem)
        if tensor.layout is not torch.strided:
            raise NotModelled("sums of sparse tensors are not modelled")
    if by_rows:
        rows = [tensor.contiguous() for tensor in tensors]
    else:
        rows = [flat(tensor) for tensor in tensors]
    if len(rows) == 1:
        return rows[0]
    dtypes = {row.dtype for row in rows}
    if len(dtypes) > 1:
        raise RuntimeError("tensors of a call must all have the same type")
    elements = [row.view(-1) for row in rows]
    return torch.cat(elements)


def as_real(tensor: Tensor) -> Tensor:
    """Return a tensor, of complex numbers one of their real and imaginary parts."""
    if tensor.is_complex():
        return torch.view_as_real(tensor)
    return tensor


def join_whole(tensors: Sequence[Tensor]) -> Tensor:
    """Return the elements of tensors that lie by rows; RuntimeError of others."""
    content = join(tensors, by_rows=True)
    if not all(tensor.is_contiguous() for tensor in tensors):
        raise RuntimeError("input tensor has to be contiguous")
    return content


def check_alike(tensors: Sequence[Tensor]) -> None:
    """Raise NotModelled where tensors do not lie alike: gloo mixes up their values."""
    layouts = {tensor.stride() for tensor in tensors}
    are_by_rows = all(tensor.is_contiguous() for tensor in tensors)
    if len(layouts) > 1 and not are_by_rows:
        raise NotModelled("sums of tensors that lie in memory by rows and otherwise")
