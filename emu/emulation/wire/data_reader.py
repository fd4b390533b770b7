"""Data frames of one connection, received where they shall stay.

The core splits the bytes and takes plain headers (frames.c). What is not plain it
leaves to this module, which accepts it or has the words to refuse it.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from emu.array_types import Array
from emu.emulation.wire.decoding import (
    check_length,
    check_prefix,
    decode_fields,
    truncation,
)
from emu.emulation.wire.frame_layout import (
    CHECKSUM,
    DATA_KINDS,
    DTYPES,
    PREFIX_BYTES,
    DataHeader,
    Fields,
    Frame,
    Kind,
    TensorSpec,
    WireLimits,
)
from emu.errors import (
    FrameTooLarge,
    MalformedFrame,
    NodeMisbehaved,
    RunError,
    WireError,
)
from emu.prediction.core import ffi, lib, pointer

MAX_TENSORS = 1024
MAX_DIMENSIONS = 16
MAX_INTEGER = 1 << 62
_KEYS = {"edge", "iteration", "shaped", "tensors"}
_TYPES = {name.encode(): dtype for name, dtype in DTYPES.items()}
#: Bytes of the window through which bodies pass that are not kept: what the kernel
#: wakes a reader for (`AT_ONCE` in receiving.c), few enough to stay in the cache.
_WINDOW = 1 << 18
#: Name, type and shape.
_Tensor: TypeAlias = tuple[str, np.dtype[Any], tuple[int, ...]]


class Sink(Protocol):
    """Expected content of the bodies of an edge, which are compared and not kept."""

    core: Any
    """Its `Expected` of the core."""

    def finish(self, sizes: Mapping[str, int], /) -> None:
        """Judge the body, which came as it left; ``sizes``: bytes of each tensor.

        Raises NodeMisbehaved when it is not what its sender has to send.
        """


@functools.cache
def _window() -> NDArray[np.uint8]:
    """Return the window of this process.

    One for all connections: what has come into it is taken before anything else is.
    """
    return np.empty(_WINDOW, np.uint8)


class DataReader:
    """Turns a stream of bytes into data frames.

    Where the receiver has a descriptor of its own, `take` receives as well. Otherwise
    fill the memory of `get_buffer`, and say with `on_bytes` how much of it was filled,
    before `take`.

    Parameters
    ----------
    allocate
        Called with the length of a body that passed every check, never of an empty one;
        returns writable memory of exactly that length.
    limits
        Lengths beyond which a frame is refused.
    find_sink
        Called where a body begins; returns what it is compared with, None where it is
        to be kept.
    memory
        `PayloadMemory` of the core in which what is not kept counts as well, if any.
    receiver
        Further fields of the core's `Receiver`.
    """

    def __init__(
        self,
        allocate: Callable[[int], memoryview],
        *,
        limits: WireLimits | None = None,
        find_sink: Callable[[], Sink | None] = lambda: None,
        memory: Any = ffi.NULL,
        **receiver: Any,
    ) -> None:
        self._allocate = allocate
        self._find_sink = find_sink
        self._limits = limits or WireLimits()
        room = max(lib.HEADS, self._limits.header)
        self._heads = np.empty(room, np.uint8)  # pages that are not used take no memory
        fields = {
            "fd": -1,
            "least": 1,
            "heads": pointer(self._heads),
            "room": room,
            "header_limit": self._limits.header,
            "body_limit": self._limits.body,
            "rate": math.inf,
            "noted": math.nan,
            "burst": -1.0,
            "memory": memory,
            "window": pointer(_window()),
            "window_room": _WINDOW,
        }
        self.core = ffi.new("Receiver *", fields | receiver)
        """Its `Receiver` of the core."""
        self.ended = False
        """True where it received the end of the stream."""
        self._error: WireError | NodeMisbehaved | None = None
        self._judged: DataHeader | None = None  # of a header that is not plain
        self._body = memoryview(b"")
        self._sink: Sink | None = None

    @property
    def receives(self) -> bool:
        """True where `take` receives as well."""
        return bool(self.core.fd >= 0)

    @property
    def inside(self) -> bool:
        """True where a frame has begun and not ended."""
        core = self.core
        return bool(core.part != lib.AT_PREFIX or core.end > core.begin)

    def get_buffer(self) -> memoryview:
        """Return the memory that the next bytes belong in, never empty.

        Raises WireError if the connection has already proved unusable.
        """
        if self._error is not None:
            raise self._error
        span = lib.next_room(self.core)
        return memoryview(ffi.buffer(span.start, span.size))

    def on_bytes(self, count: int, wall: float = 0.0) -> None:
        """Note that so many bytes were filled in, the last of which came at ``wall``.

        Raises ValueError beyond the room.
        """
        if not lib.on_bytes(self.core, count, wall):
            room = lib.next_room(self.core).size
            raise ValueError(f"{count} bytes received where {room} were offered")

    def take(self) -> Frame | None:
        """Return the next frame that has come, None when there is no whole one.

        Raises FrameTooLarge when a length is beyond its limit, and nothing was
        allocated for it; MalformedFrame when the bytes are not a frame of ours, or
        contradict each other; NodeMisbehaved when the peer says hello again; OSError
        when it receives itself and cannot; RunError when there is no room for a body
        that is not kept.
        """
        if self._error is not None:
            raise self._error
        try:
            return self._take()
        except (WireError, NodeMisbehaved) as error:
            self._error = error
            raise

    def _take(self) -> Frame | None:
        core = self.core
        while True:
            outcome = lib.receive(core)
            if outcome == lib.ARRIVED:
                return self._take_frame()
            if outcome == lib.HEADED:
                self._begin_body()
            elif outcome == lib.ODD_HEADER:
                self._judged = self._judge_header()
                core.edge = self._judged.edge
                core.iteration = self._judged.iteration
                core.shaped = self._judged.shaped
                self._begin_body()
            elif outcome == lib.NO_ROOM:
                raise no_room(core.memory, core.length)
            elif outcome == lib.ODD_PREFIX:
                self._refuse_prefix()
            elif outcome == lib.FAILED:
                raise OSError(core.error, os.strerror(core.error))
            else:
                self.ended = outcome == lib.ENDED
                return None

    def lend(self, sink: Sink) -> Any:
        """Return its `Receiver`, for who calls the core itself from now on.

        Bodies are compared with ``sink``; `take` returns what was held back for it.
        """
        self._sink = sink
        self.core.expected = sink.core
        return self.core

    def end(self) -> None:
        """Note the end of the stream; raises TruncatedFrame if that is in a frame."""
        core = self.core
        if self._error is not None or not self.inside:
            return
        part = ("prefix", "header", "body", "body")[core.part]
        length = (PREFIX_BYTES, core.header, core.length, core.length)[core.part]
        count = core.filled if core.part == lib.IN_BODY else core.end - core.begin
        raise truncation(part, count, length)

    def _refuse_prefix(self) -> None:
        begin = self.core.begin
        prefix = self._heads[begin : begin + PREFIX_BYTES].data
        kind, header, body = check_prefix(prefix, DATA_KINDS)
        if kind == Kind.HELLO:
            raise NodeMisbehaved("a second hello on one connection")
        check_length(header, self._limits.header, "header")
        check_length(body, self._limits.body, "body")
        if not header:
            raise MalformedFrame("the header is empty")
        raise MalformedFrame("the header has no checksum")

    def _judge_header(self) -> DataHeader:
        core = self.core
        begin = core.begin - core.header + CHECKSUM.size
        packed = self._heads[begin : core.begin].data
        header = decode_header(decode_fields(packed), limit=self._limits.body)
        if header.body_bytes != core.length:
            raise MalformedFrame(
                f"the tensors take {header.body_bytes} bytes, the body has "
                f"{core.length}"
            )
        return header

    def _begin_body(self) -> None:
        core = self.core
        length = core.length
        self._sink = self._find_sink()
        if self._sink is not None:
            core.expected = self._sink.core  # from now on the core lets it pass
            return

        body = self._allocate(length) if length else memoryview(bytearray(0))
        # No fault of the peer's, so no WireError.
        if body.nbytes != length or body.readonly:
            raise ValueError(f"the allocator returned no writable {length} bytes")
        self._body = body
        lib.give_body(core, ffi.from_buffer("uint8_t[]", body), length)

    def _take_frame(self) -> Frame:
        core = self.core
        if core.checksum != core.stated:
            raise MalformedFrame("a frame was altered on its way")

        arrays: dict[str, Array] = {}
        if self._sink is None:
            arrays = _arrays_in(self._body, self._tensors())
            sizes = {name: array.nbytes for name, array in arrays.items()}
        elif self._judged is None and lib.has_bytes_alone(core):
            # As below, without a look at the tensor: 2.3 us a frame for 4.0.
            sizes = {"bytes": core.length}
        else:
            sizes = _sizes_of(self._tensors())
        self._body = memoryview(b"")
        self._judged = None
        return Frame(
            edge=core.edge,
            iteration=core.iteration,
            shaped=core.shaped,
            arrays=arrays,
            sizes=sizes,
            volume=core.length,
            overhead=PREFIX_BYTES + core.header,
        )

    def _tensors(self) -> Iterator[_Tensor]:
        judged = self._judged
        return _plain_tensors(self.core) if judged is None else _judged_tensors(judged)


def no_room(memory: Any, size: int) -> RunError:
    """Return what it means that so many bytes have no room in a `PayloadMemory`."""
    return RunError(
        f"{size} bytes arrive while {memory.in_use} of at most {memory.limit} "
        "bytes of receive memory are in use: a smaller job.credit_window or a higher "
        "limit (emulation.memory_limit) is needed"
    )


def _plain_tensors(core: Any) -> Iterator[_Tensor]:
    for place in range(core.tensors):
        tensor = core.tensor[place]
        name = ffi.unpack(tensor.name, tensor.size).decode()
        shape = ffi.unpack(tensor.shape, tensor.dimensions)
        yield name, _TYPES[ffi.unpack(tensor.type, 2)], tuple(shape)


def _judged_tensors(header: DataHeader) -> Iterator[_Tensor]:
    for spec in header.tensors:
        yield spec.name, DTYPES[spec.dtype], spec.shape


def _arrays_in(
    body: memoryview,
    tensors: Iterable[_Tensor],
) -> dict[str, Array]:
    arrays = {}
    offset = 0
    for name, dtype, shape in tensors:
        array: Array = np.ndarray(shape, dtype, buffer=body, offset=offset)
        arrays[name] = array
        offset += array.nbytes
    return arrays


def _sizes_of(tensors: Iterable[_Tensor]) -> dict[str, int]:
    return {name: dtype.itemsize * math.prod(shape) for name, dtype, shape in tensors}


def decode_header(fields: Fields, *, limit: int) -> DataHeader:
    """Return the data header that a peer's map describes; no tensor is over the limit.

    Raises MalformedFrame if a key is missing, unknown or has an impossible value.
    """
    if set(fields) != _KEYS:
        raise MalformedFrame(f"the header has the keys {sorted(fields)}")
    is_shaped = fields["shaped"]
    tensors = fields["tensors"]
    if not isinstance(is_shaped, bool):
        raise MalformedFrame(f"shaped is {is_shaped!r}")

    if not isinstance(tensors, list) or len(tensors) > MAX_TENSORS:
        raise MalformedFrame(f"tensors is no list of at most {MAX_TENSORS}")
    specs = tuple(_decode_spec(description, limit) for description in tensors)
    if len({spec.name for spec in specs}) != len(specs):
        raise MalformedFrame("two tensors have one name")
    sizes = [DTYPES[spec.dtype].itemsize for spec in specs]
    if sizes != sorted(sizes, reverse=True):
        raise MalformedFrame("the tensors are not in the order of falling item size")

    return DataHeader(
        edge=_integer(fields, "edge"),
        iteration=_integer(fields, "iteration"),
        shaped=is_shaped,
        tensors=specs,
    )


def _decode_spec(described: Any, limit: int) -> TensorSpec:
    if not isinstance(described, list) or len(described) != 3:
        raise MalformedFrame(f"a tensor is described by {described!r}"[:200])
    name, dtype, shape = described
    if not isinstance(name, str) or not isinstance(dtype, str) or dtype not in DTYPES:
        raise MalformedFrame(f"tensor {name!r} of dtype {dtype!r}"[:200])
    if (
        not isinstance(shape, list)
        or len(shape) > MAX_DIMENSIONS
        or not all(type(extent) is int and extent >= 0 for extent in shape)
    ):
        raise MalformedFrame(f"tensor {name!r} has shape {shape!r}"[:200])

    # Zeros count as ones: numpy refuses (0, 2**62) although it holds nothing.
    most_items = math.prod(max(extent, 1) for extent in shape)
    largest = most_items * DTYPES[dtype].itemsize
    if largest > limit:
        raise FrameTooLarge(f"tensor {name!r}: {largest} bytes, at most {limit}"[:200])
    return TensorSpec(name, dtype, tuple(shape))


def _integer(fields: Fields, key: str) -> int:
    value = fields[key]
    if type(value) is not int or not 0 <= value <= MAX_INTEGER:
        raise MalformedFrame(f"{key} is {value!r}"[:200])
    return value
