"""Rules of backends on the tensors of a call: no rank begins it with others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

#: Types of gloo's collectives, which refuse others; messages of two ranks take all.
_GLOO_TYPES = {
    *("bfloat16", "bool", "float16", "float32", "float64", "int32", "int64", "int8"),
    "uint8",
}


@dataclass(frozen=True)
class TensorRules:
    """Rules of a backend on the tensors that members of a group bring and take.

    gloo compares their shapes. NCCL, where it joins tensors or parts one, counts
    elements: torch documents stacks of tensors there, beside rows one after the other.
    """

    members: int
    is_gloo: bool

    def check_type(self, dtype: str) -> None:
        """Raise RuntimeError for a type that the backend does not move."""
        if self.is_gloo and dtype not in _GLOO_TYPES:
            raise RuntimeError(f"Invalid scalar type: gloo has no {dtype}")

    def check_count(self, call: str, tensors: Sequence[Tensor]) -> None:
        """Raise RuntimeError where members have not a tensor each."""
        if len(tensors) != self.members:
            raise RuntimeError(
                f"{call}: invalid tensor list (expected length {self.members}, "
                f"got {len(tensors)})"
            )

    def check_each(
        self,
        call: str,
        tensors: Sequence[Tensor],
        expected: Tensor,
    ) -> None:
        """Raise RuntimeError where tensors do not fit one: in type, and shape or count.

        Parameters
        ----------
        call
            As errors name it.
        expected
            What comes, or is brought.
        """
        check_types(call, tensors, expected)
        for number, tensor in enumerate(tensors):
            fits = tensor.numel() == expected.numel()
            if self.is_gloo:
                fits = tensor.shape == expected.shape
            if not fits:
                raise _wrong_size(call, number, tensor, expected)

    def check_parts(self, call: str, whole: Tensor, part: Tensor) -> None:
        """Raise RuntimeError where a tensor has not a part for each member.

        Those of gloo are rows of it: of nothing without rows there is a part.
        """
        check_types(call, [whole], part)
        fits = whole.numel() == part.numel() * self.members
        if self.is_gloo:
            rows = [count * self.members for count in part.shape[:1]]
            shape = [*rows, *part.shape[1:]]
            fits = bool(rows) and shape == [*whole.shape]
        if not fits:
            raise RuntimeError(
                f"{call}: of {tuple(whole.shape)} each of {self.members} members is to "
                f"have a part, found {tuple(part.shape)}"
            )


def check_types(call: str, tensors: Sequence[Tensor], expected: Tensor) -> None:
    """Raise RuntimeError where tensors are of other types than one."""
    for number, tensor in enumerate(tensors):
        if tensor.dtype != expected.dtype:
            raise RuntimeError(
                f"{call}: invalid tensor type at index {number} "
                f"(expected {expected.dtype}, got {tensor.dtype})"
            )


def check_shapes(call: str, tensors: Sequence[Tensor], expected: Tensor) -> None:
    """Raise RuntimeError where tensors are of other types or shapes than one."""
    check_types(call, tensors, expected)
    for number, tensor in enumerate(tensors):
        if tensor.shape != expected.shape:
            raise _wrong_size(call, number, tensor, expected)


def _wrong_size(
    call: str,
    number: int,
    tensor: Tensor,
    expected: Tensor,
) -> RuntimeError:
    return RuntimeError(
        f"{call}: invalid tensor size at index {number} "
        f"(expected {tuple(expected.shape)}, got {tuple(tensor.shape)})"
    )
