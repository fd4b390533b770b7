"""Shapes, types and lists that groups of gloo and of nccl take, or refuse."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.virtual.test_run_virtual import HEAD, run

torch = pytest.importorskip("torch", reason="ranks need torch")

#: Ranks bring 0, 1, 2 and so on, the second 10 more.
CALLS = """
import sys
size = dist.get_world_size()
rank = dist.get_rank()

def draw(*shape):
    return torch.arange(torch.Size(shape).numel()).reshape(shape) + 10.0 * rank

def tell(name, make, *tensors):
    output, *given = tensors
    try:
        make(output, *given)
        outputs = output if isinstance(output, list) else [output]
        values = torch.cat([tensor.reshape(-1) for tensor in outputs]).tolist()
    except RuntimeError as error:
        message = str(error).partition("\\n")[0]
        values = f"refused: {message}"
    sys.stdout.write(f"= {name}: {values}\\n")
    sys.stdout.flush()

gather = dist.all_gather_into_tensor
scatter = dist.reduce_scatter_tensor
zeros = torch.zeros
word = torch.tensor(1.0 + rank)
mean = dist.ReduceOp.AVG
tell("gathered", gather, zeros(size * 2), draw(2))
tell("gathered rows", gather, zeros(size * 2, 1), draw(2, 1))
tell("gathered transposed", gather, zeros(1, size * 2).t(), draw(2, 1))
tell("gathered nothing", gather, zeros(0), zeros(0))
tell("gathered no rows", gather, zeros(0, 3), zeros(0, 3))
tell("gathered stacked", gather, zeros(size, 2), draw(2))
tell("gathered stacked rows", gather, zeros(size, 2, 1), draw(2, 1))
tell("gathered flat", gather, zeros(size * 2), draw(2, 1))
tell("gathered words", gather, zeros(size), word)
tell("gathered a list reshaped", dist.all_gather, [*zeros(size, 2, 1)], draw(2))
tell("gathered a part", gather, zeros(size * 2 - 1), draw(2))
tell("gathered words of others", gather, zeros(size * 2, dtype=torch.int32), draw(2))
tell("gathered a short list", dist.all_gather, [zeros(2)], draw(2))
tell("summed", scatter, zeros(2), draw(size * 2))
tell("summed rows", scatter, zeros(2, 1), draw(size * 2, 1))
tell("summed nothing", scatter, zeros(0), zeros(0))
tell("summed no rows", scatter, zeros(0, 3), zeros(0, 3))
tell("summed stacked", scatter, zeros(2), draw(size, 2))
tell("summed stacked transposed", scatter, zeros(2), draw(2, size).t())
tell("summed flat", scatter, zeros(2, 1), draw(size * 2))
tell("summed words", scatter, zeros(()), draw(size))
tell("summed a word", scatter, zeros(()), word)
tell("summed a list reshaped", dist.reduce_scatter, zeros(2, 1), [*draw(size, 2)])
tell("summed a part", scatter, zeros(2), draw(size * 2 - 1))
tell("summed words of others", scatter, zeros(2, dtype=torch.float64), draw(size * 2))
tell("took a mean of integers", dist.all_reduce, zeros(2, dtype=torch.int8), mean)
"""
GATHERED = ([0.0, 1.0, 10.0, 11.0],) * 2
SUMMED = ([10.0, 12.0], [14.0, 16.0])
NOTHING: tuple[list[float], ...] = ([], [])
#: What each of two ranks holds, of forms that both backends take.
TAKEN = {
    "gathered": GATHERED,
    "gathered rows": GATHERED,
    "gathered transposed": GATHERED,
    "gathered nothing": NOTHING,
    "gathered no rows": NOTHING,
    "summed": SUMMED,
    "summed rows": SUMMED,
    "summed nothing": NOTHING,
    "summed no rows": NOTHING,
}
#: The same of forms that torch documents, or NCCL counts: gloo refuses all of them.
TAKEN_BY_NCCL = {
    "gathered stacked": GATHERED,
    "gathered stacked rows": GATHERED,
    "gathered flat": GATHERED,
    "gathered words": ([1.0, 2.0],) * 2,
    "gathered a list reshaped": GATHERED,
    "summed stacked": SUMMED,
    "summed stacked transposed": ([10.0, 14.0], [12.0, 16.0]),
    "summed flat": SUMMED,
    "summed words": ([10.0], [12.0]),
    "summed a list reshaped": SUMMED,
}
#: Words of the refusals of the others.
REFUSED = {
    "gathered a part": "invalid tensor size at index 1 (expected (2,), got (1,))",
    "gathered words of others": "invalid tensor type at index 0 (expected torch.f",
    "gathered a short list": "invalid tensor list (expected length 2, got 1)",
    "summed a part": "of (3,) each of 2 members is to have a part, found (2,)",
    "summed a word": "of () each of 2 members is to have a part, found ()",
    "summed words of others": "invalid tensor type at index 0 (expected torch.float64",
    "took a mean of integers": "result type Float can't be cast to",
}


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("backend", "algorithms"), [("gloo", ()), ("nccl", ()), ("nccl", ("ring",))]
)
def test_a_group_takes_the_forms_of_its_backend(
    tmp_path: Path, backend: str, algorithms: tuple[str, ...]
) -> None:
    """And says of others what is wrong, also where torch asks for NCCL's version."""
    text = HEAD.replace("gloo", backend) + CALLS
    options: dict[str, Any] = {"ranks": 2, "algorithms": algorithms}
    _, directory = run(tmp_path, text, **options)

    taken = TAKEN if backend == "gloo" else TAKEN | TAKEN_BY_NCCL
    for rank in range(2):
        log = directory / f"rank{rank}.log"
        # Torch warns between them of names that go away.
        lines = re.findall("^= (.*?): (.*)$", log.read_text(), re.MULTILINE)
        found = dict(lines)
        for name, values in taken.items():
            assert found.pop(name) == str(values[rank]), name
        for name, words in REFUSED.items():
            assert words in found.pop(name), name
        assert backend == "gloo" or not found
        assert all(outcome.startswith("refused: ") for outcome in found.values())
