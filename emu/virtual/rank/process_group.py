"""The process group that takes the place of gloo's in a rank of a virtual cluster.

Who makes a call leaves its values for the others, and says so; when the call is over
it takes theirs. A call that is not modelled raises.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from emu.virtual.rank.brought_values import BroughtValues, room_of_marks
from emu.virtual.rank.layouts import (
    Bytes,
    NotModelled,
    as_real,
    check_alike,
    fill,
    fill_rows,
    join,
    join_whole,
)
from emu.virtual.rank.monitored_barrier import MonitoredBarriers
from emu.virtual.rank.rank_end import RankEnd, Result, VirtualWork
from emu.virtual.rank.sums import REDUCTIONS, check_reduction, reduce_by_ring
from emu.virtual.rank.tensor_rules import TensorRules, check_shapes

#: Timeout of a group that states none, by which no virtual wait ends.
_DEFAULT = timedelta(minutes=30)
#: Takes what members brought to a call.
_Take: TypeAlias = Callable[[BroughtValues], None]
#: Copies bytes into tensors.
_Put: TypeAlias = Callable[[Sequence[Tensor], Bytes], None]


def _operation(options: Any) -> str:
    """Return the name of a reduction: ``SUM``.

    Raises NotModelled for one that gloo has not.
    """
    operation = getattr(options, "reduceOp", dist.ReduceOp.SUM)
    for name in REDUCTIONS:
        if operation == getattr(dist.ReduceOp, name):
            return name
    raise NotModelled(f"gloo has no reduction {operation}")


def _as_list(tensors: Any) -> list[Tensor]:
    """Return tensors of a call that takes one, or a list."""
    return tensors if isinstance(tensors, list) else [tensors]


def _describe(content: Tensor, **stated: Any) -> dict[str, Any]:
    """Return the figures of a call, by what a member brings and what else it states."""
    dtype = str(content.dtype)
    return {
        "size": content.nbytes,
        "element": content.element_size(),
        "dtype": dtype.removeprefix("torch."),
        **stated,
    }


#: Its declared types have overloads that the methods of C++ have not.
_ProcessGroup: Any = dist.ProcessGroup


class VirtualProcessGroup(_ProcessGroup):  # type: ignore[misc]
    """A group of ranks whose calls take virtual time."""

    _made: ClassVar[Counter[str]] = Counter()
    """Groups by name so far: names come back when all groups were destroyed."""
    _device_types: ClassVar[list[torch.device]] = [torch.device("cpu")]

    def __init__(self, options: Any, end: RankEnd, backend: str) -> None:
        member: int = options.group_rank
        size: int = options.group_size
        super().__init__(member, size)
        ranks = [*options.global_ranks_in_group]
        if not ranks:
            ranks = [*range(size)]
        self._name = self._next_name(options.group_id, ranks)
        self._rules = TensorRules(size, is_gloo=backend == "gloo")
        self._member = member
        self._members = size
        self._end = end
        self._deposits = end.deposits
        self._timeout: timedelta | None = None
        if options.timeout != _DEFAULT:
            self._timeout = options.timeout
        self._group_name = ""
        self._slot = 0
        self._ranks = ranks
        self._barriers = MonitoredBarriers(self, end, member, size)
        end.say("join", self._name, ranks, backend)

    @classmethod
    def _next_name(cls, group_id: str, ranks: Sequence[int]) -> str:
        """Return a name that the members of a group alone have, and all of them alike.

        Their own count says which of all groups it is that torch called so: another
        group of that name may have had other members.
        """
        label = group_id.replace("/", "-")
        members = str(ranks).encode()
        checksum = zlib.crc32(members)
        name = f"{label}.{checksum:08x}"
        number = cls._made[name]
        cls._made[name] += 1
        return f"{name}.{number}"

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """Return a name: by gloo's own DDP would look for its devices."""
        return "emu"

    # C++ asks a backend for its name, and there is none: these are its methods' names.
    def setGroupName(self, name: str) -> None:  # noqa: N802
        """Set the name by which operators find the group."""
        self._group_name = name

    def getGroupName(self) -> str:  # noqa: N802
        """Return the name by which operators find the group."""
        return self._group_name

    @property
    def group_name(self) -> str:
        """Name by which operators find the group."""
        return self._group_name

    def _get_backend(self, _: torch.device) -> Any:
        return self

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    def _post(
        self,
        call: str,
        figures: dict[str, Any],
        outputs: Sequence[Tensor],
        take: _Take,
        gives: Tensor | None = None,
    ) -> VirtualWork:
        """Begin a collective: leave what this member gives, and say so.

        ``take`` fills the outputs at its end, by what the members brought.
        """
        if "dtype" in figures:
            self._rules.check_type(figures["dtype"])
        with self._end.clock:
            slot = self._slot
            self._slot += 1
            place = None
            if gives is not None:
                marks = 0
                room = 0
                if "operation" in figures and self._member == 0:
                    # The first member's deposit has room for marks, and the sum.
                    marks = room_of_marks(self._members)
                    room = gives.nbytes
                place = self._deposits.leave(gives, marks, room)

            def take_all(places: Result) -> None:
                brought = BroughtValues(self._deposits, self._ranks, places)
                take(brought)

            work = VirtualWork(self._end, call, outputs, take_all)
            self._begin(work, slot, figures, place)
        return work

    def _begin(
        self,
        work: VirtualWork,
        slot: int,
        figures: dict[str, Any],
        place: int | None,
    ) -> None:
        if self._timeout is not None:
            work.timeout = self._timeout.total_seconds()
        self._end.post(work, self._name, figures, slot, place)

    def _sum(
        self,
        call: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        keep: Callable[[Bytes], None] | None,
        opts: Any,
        *,
        by_rows: bool = False,
        **stated: Any,
    ) -> VirtualWork:
        """Reduce tensors over all members; who keeps something of it gets the bytes."""
        values = join(inputs, by_rows=by_rows)
        operation = _operation(opts)
        check_reduction(values.dtype, operation)
        content = as_real(values)

        def take(brought: BroughtValues) -> None:
            if keep is not None:
                total = brought.sum(content, operation)
                keep(total)

        figures = _describe(content, operation=operation, **stated)
        return self._post(call, figures, outputs, take, gives=content)

    def allreduce(self, tensors: Any, opts: Any = None, *_: Any) -> VirtualWork:
        """Reduce tensors over all members, in place."""
        outputs = _as_list(tensors)
        keep = partial(fill, outputs)
        return self._sum("allreduce", outputs, outputs, keep, opts)

    def allreduce_coalesced(self, outputs: Any, opts: Any = None) -> VirtualWork:
        """Do the same for several tensors at once."""
        keep = partial(fill_rows, outputs)
        return self._sum("allreduce", outputs, outputs, keep, opts, by_rows=True)

    def reduce(self, tensors: Any, opts: Any = None, *_: Any) -> VirtualWork:
        """Reduce a tensor over all members; the root alone has the outcome."""
        root = opts.rootRank
        keep = None
        if self._member == root:
            keep = partial(fill, tensors)
        return self._sum("reduce", tensors, tensors, keep, opts, root=root)

    def reduce_scatter_single(
        self,
        output: Any,
        given: Any,
        opts: Any = None,
    ) -> VirtualWork:
        """Give every member its part of what is reduced over all."""
        self._rules.check_parts("reduce_scatter", given, output)
        # Of a tensor with gaps a clone has none, and its values in the same order.
        whole = given if given.is_contiguous() else given.clone()

        def keep(total: Bytes) -> None:
            if whole.is_contiguous():
                count = output.nbytes
                start = self._member * count
                fill_rows([output], total[start : start + count])
                return
            sums = torch.empty_like(whole)
            fill([sums], total)
            elements = sums.reshape(-1)
            part = elements.chunk(self._members)[self._member]
            output.detach().copy_(part.view(output.shape))

        return self._sum("reduce_scatter", [whole], [output], keep, opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self,
        outputs: Any,
        inputs: Any,
        opts: Any = None,
    ) -> VirtualWork:
        """Do the same for a list of one tensor, as functional collectives have it."""
        if len(outputs) != 1:
            raise NotModelled("coalesced reduce_scatter of several tensors")
        return self.reduce_scatter_single(outputs[0], inputs[0], opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _collect(
        self,
        call: str,
        content: Tensor,
        rows: Iterable[tuple[int, Sequence[Tensor]]],
        gives: Tensor | None,
        start: int = 0,
        put: _Put = fill_rows,
        **stated: Any,
    ) -> VirtualWork:
        """Fill rows of tensors, each with what a member brought.

        Parameters
        ----------
        content
            Of the type and size of what comes.
        rows
            Members and their rows.
        gives
            What this member brings.
        start
            Where its part begins in what a member brought.
        put
            Copies bytes into tensors.
        """
        received = [*rows]

        def take(brought: BroughtValues) -> None:
            for member, row in received:
                values = brought.view(member, content.nbytes, start)
                put(row, values)

        outputs: list[Tensor] = []
        for _, row in received:
            outputs.extend(row)
        figures = _describe(content, **stated)
        return self._post(call, figures, outputs, take, gives)

    def broadcast(self, tensors: Any, opts: Any = None, *_: Any) -> VirtualWork:
        """Give all members the root's tensor."""
        root = 0 if opts is None else opts.rootRank
        outputs = _as_list(tensors)
        content = as_real(join(outputs))
        is_root = self._member == root

        def take(brought: BroughtValues) -> None:
            if not is_root:
                values = brought.view(root, content.nbytes)
                fill(outputs, values)

        figures = _describe(content, root=root)
        gives = content if is_root else None
        return self._post("broadcast", figures, outputs, take, gives)

    def allgather(self, outputs: Any, inputs: Any, *_: Any) -> VirtualWork:
        """Give every member the tensors of all."""
        (row,) = outputs
        rows = [[output] for output in row]
        return self.allgather_coalesced(rows, inputs)

    def allgather_coalesced(self, outputs: Any, inputs: Any, *_: Any) -> VirtualWork:
        """Give every member several tensors of all."""
        self._rules.check_count("allgather", outputs)
        for row in outputs:
            if len(row) != len(inputs):
                raise RuntimeError(
                    f"allgather: invalid output size: (expected length {len(inputs)}, "
                    f"got {len(row)})"
                )
        for column, given in zip(zip(*outputs, strict=True), inputs, strict=True):
            self._rules.check_each("allgather", column, given)
        content = join(inputs, by_rows=True)
        rows = enumerate(outputs)
        return self._collect("allgather", content, rows, content)

    def all_gather_single(self, output: Any, given: Any, *_: Any) -> VirtualWork:
        """Give every member the tensors of all, one behind the other."""
        return self.all_gather_single_coalesced([output], [given])

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self,
        outputs: Any,
        inputs: Any,
        *_: Any,
    ) -> VirtualWork:
        """Do the same for several tensors, with one message each."""
        rows = [self._part(output) for output in outputs]
        by_member = [*zip(*rows, strict=True)]
        return self.allgather_coalesced(by_member, inputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _part(self, output: Tensor) -> Sequence[Tensor]:
        """Return parts of a tensor for what comes of each member."""
        # Of one that does not lie by rows there is no view of all elements.
        if not self._rules.is_gloo and output.is_contiguous():
            output = output.view(-1)
        return output.chunk(self._members)

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> VirtualWork:
        """Give the root the tensors of all."""
        content = join(inputs, by_rows=True)
        row = outputs[0] if outputs else []
        if row:
            self._rules.check_count("gather", row)
            check_shapes("gather", row, inputs[0])
        rows = enumerate([output] for output in row)
        root = opts.rootRank
        return self._collect("gather", content, rows, content, root=root)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> VirtualWork:
        """Give every member a tensor of the root."""
        root = opts.rootRank
        content = join(outputs)
        if inputs:
            self._rules.check_count("scatter", inputs[0])
            check_shapes("scatter", inputs[0], outputs[0])
        gives = join(inputs[0]) if inputs else None
        start = self._member * content.nbytes
        rows = [(root, outputs)]
        return self._collect("scatter", content, rows, gives, start, fill, root=root)

    def reduce_scatter(
        self,
        outputs: Any,
        inputs: Any,
        opts: Any = None,
    ) -> VirtualWork:
        """Give every member the sum of what all bring for it, of a size of its own."""
        (given,) = inputs
        (output,) = outputs
        self._rules.check_count("reduce_scatter", given)
        self._rules.check_each("reduce_scatter", [output], given[self._member])
        check_alike([*given, output])
        values = join(given)
        operation = _operation(opts)
        check_reduction(values.dtype, operation)
        content = as_real(values)
        sizes = [part.nbytes for part in given]
        figures = _describe(content, operation=operation, parts=tuple(sizes))

        def take(brought: BroughtValues) -> None:
            # Each member's tensor goes round a ring of its own.
            start = sum(sizes[: self._member])
            parts = brought.views(output.nbytes, start)
            total = reduce_by_ring(parts, as_real(output), operation)
            fill(outputs, total)

        return self._post("reduce_scatter_list", figures, outputs, take, gives=content)

    def all_to_all_single(
        self,
        output: Any,
        given: Any,
        output_rows: Any,
        given_rows: Any,
        *_: Any,
    ) -> VirtualWork:
        """Give every member a part of every other's tensor, as rows are split."""
        if not given.is_contiguous():
            raise ValueError("Tensors must be contiguous")
        content = join([given])
        gives = self._split(given, given_rows)
        takes = self._split(output, output_rows)
        return self._exchange([output], content, gives, takes, fill)

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: Any, inputs: Any, *_: Any) -> VirtualWork:
        """Give every member one of the tensors that each has; all of one size."""
        for tensors in (outputs, inputs):
            self._rules.check_count("alltoall", tensors)
            self._rules.check_each("alltoall", tensors, inputs[0])
        content = join(inputs, by_rows=True)
        bytes_of_each = [inputs[0].nbytes] * self._members
        return self._exchange(outputs, content, bytes_of_each, bytes_of_each, fill_rows)

    def _split(self, tensor: Tensor, rows: Sequence[int]) -> list[int]:
        """Return the bytes for every member: as rows are split, or even."""
        size = tensor.nbytes
        row_count = tensor.size(0)
        members = self._members
        if not rows:
            if row_count % members:
                problem = f"{row_count} rows are no multiple of {members}"
                raise ValueError(problem)
            part_size = size // members
            return [part_size] * members

        if sum(rows) != row_count:
            raise ValueError(f"splits {rows} are not the {row_count} rows there are")
        row_size = size // max(row_count, 1)
        return [count * row_size for count in rows]

    def _exchange(
        self,
        outputs: Sequence[Tensor],
        content: Tensor,
        gives: list[int],
        takes: list[int],
        put: _Put,
    ) -> VirtualWork:
        # Where each member's bytes begin goes ahead of them.
        head_size = (self._members + 1) * 8
        ends = torch.tensor([0, *gives]).cumsum(0)
        starts = ends + head_size
        head = starts.view(torch.uint8)
        values = content.detach().view(-1)
        body = values.view(torch.uint8)
        place_in_head = self._member * 8

        def take(brought: BroughtValues) -> None:
            parts = []
            for member, count in enumerate(takes):
                word = brought.view(member, 8, place_in_head)
                (start,) = word.view(np.int64)
                part = brought.view(member, count, int(start))
                parts.append(part)
            received = np.concatenate(parts)
            put(outputs, received)

        description = _describe(content)
        figures = {
            "given": tuple(gives),
            "taken": tuple(takes),
            "dtype": description["dtype"],
        }
        given = torch.cat([head, body])
        return self._post("alltoall", figures, outputs, take, gives=given)

    def barrier(self, *_: Any, **__: Any) -> VirtualWork:
        """Wait for all members."""
        return self._post("barrier", {}, [], lambda _: None)

    def monitored_barrier(
        self,
        timeout: timedelta | None = None,
        *,
        wait_all_ranks: bool = False,
    ) -> None:
        """Wait for all members, who report to the first.

        Raises RuntimeError after a timeout, in which the first member names who did not
        come, or all of them.
        """
        limit = timeout
        if limit is None:
            limit = self._timeout or _DEFAULT
        self._barriers.pass_one(limit, names_all=wait_all_ranks)

    def send(
        self,
        tensors: Any,
        receiver: int,
        tag: int = 0,
    ) -> VirtualWork:
        """Send a tensor to a member."""
        with self._end.clock:
            content = join_whole(tensors)
            place = self._deposits.leave(content)
            work = VirtualWork(self._end, "send", tensors, lambda _: None)
            figures = _describe(content, peer=receiver, tag=tag)
            self._begin(work, tag, figures, place)
        return work

    def recv(
        self,
        tensors: Any,
        sender: int,
        tag: int = 0,
    ) -> VirtualWork:
        """Receive a tensor from a member."""
        return self._receive("recv", tensors, sender, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> VirtualWork:
        """Receive a tensor from whoever sends first."""
        return self._receive("recv_anysource", tensors, None, tag)

    def _receive(
        self,
        call: str,
        tensors: Sequence[Tensor],
        source: int | None,
        tag: int,
    ) -> VirtualWork:
        def take(result: Result) -> None:
            sender, place, size = result
            work.source = sender
            byte_count = sum(tensor.nbytes for tensor in tensors)
            if size != byte_count:
                raise RuntimeError(
                    f"member {sender} sent {size} bytes with tag {tag}, {byte_count} "
                    "were expected"
                )
            rank = self._ranks[sender]
            values = self._deposits.view(rank, place, size)
            fill(tensors, values)

        with self._end.clock:
            content = join_whole(tensors)
            work = VirtualWork(self._end, call, tensors, take)
            figures = _describe(content, peer=source, tag=tag)
            self._begin(work, tag, figures, None)
        return work

    def shutdown(self) -> None:
        """End the group: nothing of it is left to close."""

    def abort(self) -> None:
        """End the group: nothing of it is left to close."""
