"""Changes of torch in a rank, so that a program meets a virtual cluster."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.optim.optimizer import register_optimizer_step_post_hook

from emu.virtual.rank.layouts import NotModelled
from emu.virtual.rank.process_group import VirtualProcessGroup
from emu.virtual.rank.rank_end import RankEnd
from emu.virtual.rank.virtual_store import VirtualStore

#: Backends of programs that a virtual group stands for.
_TAKEN = {"gloo", "nccl", "mpi"}
#: Seconds that torch gives a store.
_STORE_TIMEOUT = timedelta(minutes=5)
#: Calls of a process group that carry or split, of which some are not modelled.
_CALLS = (
    "all_gather_single", "all_gather_single_coalesced", "all_to_all_single",
    "allgather", "allgather_coalesced", "allgather_into_tensor_coalesced", "allreduce",
    "allreduce_coalesced", "alltoall", "alltoall_base", "barrier", "broadcast",
    "gather", "merge_remote_group", "monitored_barrier", "recv", "recv_anysource",
    "reduce", "reduce_scatter", "reduce_scatter_single",
    "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced", "scatter",
    "send", "split_group", "_start_coalescing", "_end_coalescing",
)  # fmt: skip


def install(end: RankEnd) -> None:
    """Have this process meet the virtual cluster wherever it would meet gloo."""
    _take_over_groups(end)
    _take_over_stores(end)
    _take_over_waits(end)
    _refuse_others()


def mark_steps(end: RankEnd) -> None:
    """Tell when the first optimizer that takes a step has taken each of its steps."""
    first: list[int] = []

    def tell(optimizer: Any, *_: Any) -> None:
        first.append(id(optimizer))
        del first[1:]
        if first[0] == id(optimizer):
            end.say("mark")

    register_optimizer_step_post_hook(tell)


def _take_over_groups(end: RankEnd) -> None:
    for name in _CALLS:
        if name not in vars(VirtualProcessGroup):
            setattr(VirtualProcessGroup, name, _refusal(name))

    register: Any = dist.Backend.register_backend
    for backend in sorted(_TAKEN):

        def create(
            options: Any,
            _: Any = None,
            *,
            backend: str = backend,
        ) -> VirtualProcessGroup:
            return VirtualProcessGroup(options, end, backend)

        # Names of backends are made into attributes: any that torch has not.
        name = f"emu_{backend}"
        register(name, create, extended_api=True, devices=["cpu"])

    config: Any = distributed_c10d.BackendConfig
    map_of_torch = config.get_device_backend_map

    def name_backend(self: Any) -> dict[str, str]:
        backends = set(map_of_torch(self).values())
        taken = backends & _TAKEN
        if not taken:
            names = ", ".join(sorted(backends))
            raise NotModelled(
                f"backend {names} is not modelled: gloo, nccl and mpi are"
            )
        # Of several, which are of one device each, gloo takes tensors of the CPU.
        backend = "gloo"
        if len(taken) == 1:
            (backend,) = taken
        # torch asserts that the name gloo is a ProcessGroupGloo: it is told another.
        return {"cpu": f"emu_{backend}"}

    _have_no_version_of_nccl()
    config.get_device_backend_map = name_backend
    for backend in _TAKEN:
        available = f"is_{backend}_available"
        for module in (dist, distributed_c10d):
            setattr(module, available, lambda: True)


def _have_no_version_of_nccl() -> None:
    """Give the version of NCCL as none, where torch has no NCCL.

    It asks for that when a call of a group of nccl raises: the error would be lost.
    """
    if not hasattr(torch._C, "_nccl_version"):  # noqa: SLF001
        nccl: Any = torch.cuda.nccl
        nccl.version = tuple


def _refusal(name: str, advice: str = "emu lab runs it on kernel NICs") -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        raise NotModelled(f"{name} is not modelled: {advice}")

    return refuse


def _take_over_stores(end: RankEnd) -> None:
    # Kept: what C++ holds of a store is not its methods in Python.
    stores: list[VirtualStore] = []

    def make_store(
        *_: Any,
        timeout: timedelta = _STORE_TIMEOUT,
        **__: Any,
    ) -> VirtualStore:
        store = VirtualStore(end, timeout)
        stores.append(store)
        return store

    # The package has a function of the same name.
    rendezvous: Any = importlib.import_module("torch.distributed.rendezvous")
    for module in (dist, rendezvous):
        for name in ("TCPStore", "FileStore"):
            setattr(module, name, make_store)

    def meet(_: str, **__: Any) -> Iterator[tuple[VirtualStore, int, int]]:
        rank = int(os.environ["RANK"])
        ranks = int(os.environ["WORLD_SIZE"])
        yield make_store(), rank, ranks

    rendezvous._rendezvous_handlers["env"] = meet  # noqa: SLF001


def _take_over_waits(end: RankEnd) -> None:
    """Have waits for futures in Python let others run.

    Who waits for one that follows from several calls waits for their ends one by one.
    """
    # Of the class in C++: what follows from a future is of that one.
    future: Any = torch._C.Future  # noqa: SLF001
    wait = future.wait
    is_done = future.done

    def wait_virtually(self: Any) -> Any:
        while not is_done(self) and end.wait_for_any():
            pass
        return wait(self)

    def look(self: Any) -> bool:
        if not is_done(self):
            end.sleep(0.0)
        return bool(is_done(self))

    future.wait = wait_virtually
    future.done = look


def _refuse_others() -> None:
    """Refuse what would go on outside of the virtual cluster."""
    # Messages over sockets of their own.
    rpc: Any = torch.distributed.rpc
    rpc.init_rpc = _refusal("torch.distributed.rpc")
    # Processes that nobody has told of the cluster.
    processes: Any = torch.multiprocessing
    advice = "write a program that is one rank, and torchrun before it"
    processes.spawn = _refusal("torch.multiprocessing.spawn", advice)
    # Every way to a GPU comes by the first; without one the second fails before it.
    gpu: Any = torch.cuda
    advice = "a virtual cluster has CPUs alone, whose tensors nccl takes"
    gpu._lazy_init = gpu.set_device = _refusal("a GPU", advice)  # noqa: SLF001
