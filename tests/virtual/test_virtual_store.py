"""The store of ranks as prefixes of torch before it ask for keys."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="ranks need torch")


@pytest.fixture
def asked() -> list[tuple[Any, ...]]:
    """Return what the keeper of the store is asked."""
    return []


@pytest.fixture
def store(asked: list[tuple[Any, ...]]) -> Any:
    """Return a store of ranks: a prefix does not keep what Python knows of it."""
    from emu.virtual.rank.virtual_store import VirtualStore

    def answer(*question: Any) -> int:
        asked.append(question)
        return 1

    end: Any = SimpleNamespace(ask_store=answer)
    return VirtualStore(end, timedelta(minutes=30))


@pytest.fixture
def prefix(store: Any) -> Any:
    """Return torch's prefix before a store of ranks, as groups have it."""
    return torch.distributed.PrefixStore("group", store)


def test_a_prefix_deletes_and_counts_keys(prefix: Any, asked: list[Any]) -> None:
    assert prefix.delete_key("mine")
    assert prefix.num_keys() == 1
    assert [request for request, *_ in asked] == ["delete_key", "num_keys"]
    assert [*asked[0][1]] == ["group/mine"]


def test_a_prefix_sets_how_long_keys_are_waited_for(
    prefix: Any, asked: list[Any]
) -> None:
    assert prefix.timeout == timedelta(minutes=30)
    prefix.set_timeout(timedelta(seconds=7))
    prefix.wait(["mine"])
    prefix.wait(["mine"], timedelta(seconds=2))

    assert [seconds for *_, seconds in asked] == [7.0, 2.0]


def test_a_copy_of_a_prefix_asks_the_same_store(prefix: Any, asked: list[Any]) -> None:
    prefix.clone().set("mine", "value")
    assert [*asked[0][1]] == ["group/mine"]
