"""Every call of torch.distributed that gloo has: what each rank holds afterwards."""

import hashlib
import itertools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed

#: Names of calls that go away in later versions are used here, too.
dist: Any = torch.distributed
warnings.filterwarnings("ignore")
torch.set_num_threads(1)
dist.init_process_group("gloo")
RANK = dist.get_rank()
SIZE = dist.get_world_size()
NEXT = (RANK + 1) % SIZE
BEFORE = (RANK - 1) % SIZE


def draw(
    *shape: int, dtype: torch.dtype = torch.float32, seed: int = 0
) -> torch.Tensor:
    """Return numbers that differ from rank to rank, whose sums round."""
    generator = torch.Generator().manual_seed(100 * RANK + seed)
    numbers = torch.randn(*shape, generator=generator, dtype=torch.float64) * 100
    return numbers.to(dtype)


def draw_complex(count: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Return such numbers, real and imaginary."""
    pairs = draw(count, 2, dtype=torch.float64, seed=seed)
    return torch.view_as_complex(pairs).to(dtype)


def say(name: str, tensors: Any) -> None:
    """Print a digest of tensors."""
    if isinstance(tensors, torch.Tensor):
        tensors = [tensors]
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    tell(f"{name} {digest.hexdigest()[:16]}")


def tell(text: str) -> None:
    """Print a line in one piece: ranks of torchrun share its output."""
    sys.stdout.write(f"{RANK} {text}\n")
    sys.stdout.flush()


def reductions() -> None:
    """Reduce by every operation, type and size."""
    for count in (1, 3, 5, 1000, 300_001):
        tensor = draw(count)
        dist.all_reduce(tensor)
        say(f"sum of {count}", tensor)
    for operation in ("SUM", "PRODUCT", "MIN", "MAX", "AVG"):
        tensor = draw(77)
        dist.all_reduce(tensor, getattr(dist.ReduceOp, operation))
        say(operation, tensor)
    for operation in ("BAND", "BOR", "BXOR"):
        tensor = draw(77, dtype=torch.int64)
        dist.all_reduce(tensor, getattr(dist.ReduceOp, operation))
        say(operation, tensor)
    for dtype in (
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.int32,
        torch.uint8,
    ):
        tensor = draw(1001, dtype=dtype)
        dist.all_reduce(tensor)
        say(f"sum of {dtype}", tensor)
    tensors = [draw(5), draw(2, 3, seed=1)]
    dist.all_reduce_coalesced(tensors)
    say("coalesced", tensors)
    transposed = draw(6, 4).t()
    dist.all_reduce(transposed)
    say("transposed", transposed)
    tensor = draw(5001)
    dist.reduce(tensor, SIZE - 1)
    if RANK == SIZE - 1:  # of the others it is not said what they hold
        say("reduce", tensor)
    output = torch.empty(1001)
    dist.reduce_scatter_tensor(output, draw(1001 * SIZE))
    say("reduce_scatter_tensor", output)
    dist.reduce_scatter(output, [draw(1001, seed=part) for part in range(SIZE)])
    say("reduce_scatter", output)
    output = torch.empty(1001 + 300 * RANK)
    parts = [draw(1001 + 300 * part, seed=part) for part in range(SIZE)]
    dist.reduce_scatter(output, parts)
    say("reduce_scatter of several sizes", output)


def sums_of_complex_numbers() -> None:
    """Reduce complex numbers by the operations that gloo has of them."""
    for dtype, operation in itertools.product(
        (torch.complex64, torch.complex128), (dist.ReduceOp.SUM, dist.ReduceOp.AVG)
    ):
        name = f"{operation} of {dtype}"
        tensor = draw_complex(1001, dtype)
        dist.reduce(tensor, SIZE - 1, operation)
        if RANK == SIZE - 1:
            say(f"reduce {name}", tensor)
        output = torch.empty(101, dtype=dtype)
        dist.reduce_scatter_tensor(output, draw_complex(101 * SIZE, dtype), operation)
        say(f"reduce_scatter_tensor {name}", output)
        parts = [draw_complex(101, dtype, seed=part) for part in range(SIZE)]
        dist.reduce_scatter(output, parts, operation)
        say(f"reduce_scatter {name}", output)
    given = draw_complex(6, torch.complex64).view(2, 3).t()
    dist.reduce(given, SIZE - 1)
    if RANK == SIZE - 1:
        say("reduce complex transposed", given)
    output = torch.zeros((), dtype=torch.complex64)
    dist.reduce_scatter(output, [*draw_complex(SIZE, torch.complex64)])
    say("reduce_scatter complex words", output)
    # As DDP calls them, by which no complex tensor is made one of pairs before.
    group = dist.group.WORLD
    for call in (group.broadcast, group.allreduce):
        tensor = draw_complex(77, torch.complex64)
        call([tensor]).wait()
        say(f"complex {call.__name__}", tensor)


def refusals() -> None:
    """Make calls that no rank begins: of wrong lists, shapes, types and operations."""

    def shape(*sizes: int) -> list[torch.Tensor]:
        return [torch.zeros(*sizes) for _ in range(SIZE)]

    short = torch.ones(3, dtype=torch.int16)
    wider = torch.ones(SIZE, dtype=torch.int32)
    pair = torch.ones(3, dtype=torch.complex64)
    grown = [draw(part + 1) for part in range(SIZE)]
    stacked = torch.zeros(SIZE, 2)
    refused: dict[str, Callable[[], Any]] = {
        "gathered into a short list": lambda: dist.all_gather(shape(2)[1:], draw(2)),
        "gathered transposed": lambda: dist.all_gather(shape(3, 2), draw(2, 3)),
        "gathered stacked": lambda: dist.all_gather_into_tensor(stacked, draw(2)),
        "gathered in another order": lambda: dist.all_gather_coalesced(
            [[torch.zeros(3), torch.zeros(2)] for _ in range(SIZE)], [draw(2), draw(3)]
        ),
        "gathered more than came": lambda: dist.all_gather_coalesced(
            [shape(2)[:3] for _ in range(SIZE)], [draw(2), draw(2)]
        ),
        "gathered less than came": lambda: dist.all_gather_coalesced(
            [shape(2)[:1] for _ in range(SIZE)], [draw(2), draw(2)]
        ),
        "gathered nothing": lambda: dist.all_gather_coalesced([], []),
        "gathered integers": lambda: dist.all_gather_into_tensor(wider, draw(1)),
        "gathered a word": lambda: dist.all_gather_into_tensor(draw(SIZE), draw(1)[0]),
        "scattered integers": lambda: dist.reduce_scatter_tensor(draw(1), wider),
        "exchanged nothing": lambda: dist.all_to_all([], []),
        "summed several types": lambda: dist.group.WORLD.allreduce_coalesced(
            [draw(2), draw(3, dtype=torch.float64)]
        ),
        "gathered pairs": lambda: dist.group.WORLD.allgather(
            [[pair] * SIZE], [pair]
        ).wait(),
        "joined bits of pairs": lambda: dist.reduce(pair, 0, dist.ReduceOp.BOR),
        "multiplied pairs": lambda: dist.reduce(pair, 0, dist.ReduceOp.PRODUCT),
        "scattered rows": lambda: dist.reduce_scatter_tensor(draw(2), draw(SIZE, 2)),
        "scattered transposed": lambda: dist.reduce_scatter(draw(3, 2), shape(2, 3)),
        "scattered a short list": lambda: dist.reduce_scatter(draw(2), shape(2)[1:]),
        "exchanged sizes": lambda: dist.all_to_all(grown, grown),
        "exchanged transposed": lambda: dist.all_to_all(shape(3, 2), shape(2, 3)),
        "summed short numbers": lambda: dist.all_reduce(short),
        "moved short numbers": lambda: dist.broadcast(short, 0),
        "joined bits": lambda: dist.all_reduce(draw(20_000), dist.ReduceOp.BAND),
        "took a mean of integers": lambda: dist.all_reduce(
            torch.ones(3, dtype=torch.int8), dist.ReduceOp.AVG
        ),
    }
    for name, refuse in refused.items():
        try:
            refuse()
        except RuntimeError:
            tell(f"refused: {name}")
        else:
            tell(f"done: {name}")


def movements() -> None:
    """Move tensors without a sum, some of them empty."""
    tensor = draw(10, dtype=torch.float16)
    dist.broadcast(tensor, 2)
    say("broadcast", tensor)
    outputs = [torch.empty(11) for _ in range(SIZE)]
    dist.all_gather(outputs, draw(11))
    say("all_gather", outputs)
    output = torch.empty(SIZE * 4, 3)
    dist.all_gather_into_tensor(output, draw(4, 3))
    say("all_gather_into_tensor", output)
    output = torch.empty(0, 3)
    dist.all_gather_into_tensor(output, draw(0, 3))
    say("all_gather_into_tensor of no rows", output)
    outputs = [torch.empty(()) for _ in range(SIZE)]
    dist.all_gather(outputs, draw(1)[0])
    say("all_gather of words", outputs)
    dist.reduce_scatter_tensor(torch.empty(0, 3), torch.empty(0, 3))
    rows = [[torch.empty(2), torch.empty(3)] for _ in range(SIZE)]
    dist.all_gather_coalesced(rows, [draw(2), draw(3, seed=1)])
    say("all_gather_coalesced", [tensor for row in rows for tensor in row])
    outputs = [torch.empty(7) for _ in range(SIZE)] if RANK == 1 else []
    dist.gather(draw(7), outputs or None, dst=1)
    say("gather", outputs)
    output = torch.empty(3)
    parts = [draw(3, seed=part) for part in range(SIZE)] if RANK == 2 else None
    dist.scatter(output, parts, src=2)
    say("scatter", output)
    output = torch.empty(2 * SIZE, 5)
    dist.all_to_all_single(output, draw(2 * SIZE, 5))
    say("all_to_all_single", output)
    given = [RANK + place for place in range(SIZE)]
    taken = [RANK + place for place in range(SIZE)]
    output = torch.empty(sum(taken), 3)
    dist.all_to_all_single(output, draw(sum(given), 3), taken, given)
    say("uneven", output)
    outputs = [torch.empty(4) for _ in range(SIZE)]
    dist.all_to_all(outputs, [draw(4, seed=part) for part in range(SIZE)])
    say("all_to_all", outputs)


def layouts() -> None:
    """Move and sum tensors whose values do not lie by rows, or have gaps between."""

    def lay(kind: str, *shape: int, seed: int = 0) -> torch.Tensor:
        if kind == "transposed":
            return draw(*reversed(shape), seed=seed).t()
        if kind == "gaps":
            return draw(*shape[:-1], 2 * shape[-1], seed=seed)[..., ::2]
        return draw(*shape, seed=seed)

    kinds = ("rows", "transposed", "gaps")
    for given, taken in itertools.product(kinds, kinds):
        name = f"{given} to {taken}"
        outputs = [lay(taken, 2, 3) for _ in range(SIZE)]
        dist.all_gather(outputs, lay(given, 2, 3))
        say(f"all_gather {name}", outputs)
        output = lay(taken, 2 * SIZE, 3)
        dist.all_gather_into_tensor(output, lay(given, 2, 3))
        say(f"all_gather_into_tensor {name}", output)
        outputs = [lay(taken, 2, 3) for _ in range(SIZE)] if RANK == 1 else []
        dist.gather(lay(given, 2, 3), outputs or None, dst=1)
        say(f"gather {name}", outputs)
        outputs = [lay(taken, 2, 3) for _ in range(SIZE)]
        dist.all_to_all(outputs, [lay(given, 2, 3, seed=n) for n in range(SIZE)])
        say(f"all_to_all {name}", outputs)
        output = lay(taken, 2, 3)
        dist.reduce_scatter_tensor(output, lay(given, 2 * SIZE, 3))
        say(f"reduce_scatter_tensor {name}", output)
    for kind in kinds:
        tensors = [lay(kind, 2, 3), lay(kind, 3, 2, seed=1)]
        dist.all_reduce_coalesced(tensors)
        say(f"coalesced {kind}", tensors)
    for call in (dist.all_reduce, dist.broadcast):
        tensor = lay("transposed", 2, 3)
        call(tensor, *[2] * (call is dist.broadcast))
        say(f"{call.__name__} transposed", tensor)
    output = lay("transposed", 2, 3)
    parts = [lay("transposed", 2, 3, seed=part) for part in range(SIZE)]
    dist.reduce_scatter(output, parts)
    say("reduce_scatter transposed", output)
    dist.scatter(output, parts if RANK == 2 else None, src=2)
    say("scatter transposed", output)
    refused: list[Callable[[], Any]] = [
        lambda: dist.all_to_all_single(draw(SIZE, 2), lay("transposed", SIZE, 2)),
        lambda: dist.isend(lay("transposed", 2, 3), NEXT),
        lambda: dist.irecv(lay("gaps", 2, 3), BEFORE),
    ]
    for refuse in refused:
        try:
            refuse()
        except (RuntimeError, ValueError) as error:
            tell(f"refused: {type(error).__name__} {error}")


def messages() -> None:
    """Send and receive."""
    if RANK == 0:
        for work in (dist.isend(draw(9), 1), dist.isend(draw(9, seed=1), 1, tag=5)):
            work.wait()
    elif RANK == 1:
        later = torch.empty(9)
        first = torch.empty(9)
        dist.recv(later, 0, tag=5)
        dist.recv(first, 0)
        say("tags", [first, later])
    received = torch.empty(6)
    works = [dist.isend(draw(6), NEXT), dist.irecv(received, BEFORE)]
    for work in works:
        work.wait()
    say("isend", received)
    received = torch.empty(6)
    operations = [
        dist.P2POp(dist.irecv, received, BEFORE),
        dist.P2POp(dist.isend, draw(6), NEXT),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    say("batch", received)
    if RANK == 0:
        total = torch.zeros(4)
        sources = set()
        for _ in range(1, SIZE):
            received = torch.empty(4)
            sources.add(dist.recv(received))
            total += received.round()
        say(f"from any of {sorted(sources)}", total)
    else:
        dist.send(draw(4), 0)


def groups_and_futures() -> None:
    """Use groups, futures, objects and the store."""
    even = dist.new_group([0, 2])
    odd = dist.new_group([1, 3] if SIZE > 3 else [1])
    tensor = draw(50)
    dist.all_reduce(tensor, group=even if RANK % 2 == 0 else odd)
    say("group", tensor)
    works = [dist.all_reduce(draw(100, seed=n), async_op=True) for n in range(5)]
    say("futures", [work.get_future().wait()[0] for work in works])
    tensor = draw(100)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    say("then", future.then(lambda done: done.value()[0] * 2).wait())
    futures = [
        dist.all_reduce(draw(9, seed=n), async_op=True).get_future() for n in (1, 2)
    ]
    together = torch.futures.collect_all(futures).wait()
    say("collect_all", [done.value()[0] for done in together])
    found: list[Any] = [None] * SIZE
    dist.all_gather_object(found, {"rank": RANK})
    tell(f"objects {found}")
    given = [f"of {RANK}", None]
    dist.broadcast_object_list(given, src=1)
    tell(f"object list {given}")
    store = dist.distributed_c10d._get_default_store()
    store.add("sum", RANK)
    dist.barrier()
    tell(f"store {store.add('sum', 0)}")
    store.set(f"of {RANK}", "mine")
    tell(f"deleted {[store.delete_key(f'of {RANK}') for _ in range(2)]}")
    tell(f"keys {store.num_keys() > 0}")
    dist.monitored_barrier()
    work = dist.all_reduce(torch.ones(3), async_op=True)
    while not work.is_completed():
        pass
    tell("polled")


PARTS: dict[str, Callable[[], None]] = {
    "reductions": reductions,
    "complex": sums_of_complex_numbers,
    "movements": movements,
    "layouts": layouts,
    "refusals": refusals,
    "messages": messages,
    "groups": groups_and_futures,
}
for _name in sys.argv[1:] or PARTS:
    PARTS[_name]()
dist.barrier()
dist.destroy_process_group()
tell("ended")
