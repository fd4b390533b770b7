"""A file of which something was changed is read rightly, said, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tools.attacks import slow_graph_reader as slow
from tools.attacks.graph_mutations import KINDS, compare, judge
from tools.attacks.slow_graph_reader import Layout, NoGraphError, SlowGraph


@pytest.mark.dear
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 10**9))
def test_no_change_goes_unnoticed(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    change, outcome = judge(seed, tmp_path_factory.mktemp("drawn"))

    assert not outcome.startswith("wrong"), f"{change}: {outcome}"


@pytest.mark.usefixtures("read_here")
def test_drawn_files_are_read_and_refused(tmp_path: Path) -> None:
    """Both happen often enough that the test above can fail."""
    outcomes = [judge(seed, tmp_path)[1] for seed in range(40)]

    assert len(KINDS) >= 5
    assert outcomes.count("right") >= 10
    assert outcomes.count("refused") >= 8


EDGES = Layout(",", ("end", "end", ""), has_header=True)


def test_the_slow_reader_by_hand() -> None:
    graph = slow.read_edges("source,target,w\n7,8,1\n8,9,2\n9,9,1\n", EDGES)
    beside = Layout(",", ("id", "feature", "label", "part"), has_header=False)
    slow.add_table(graph, "9,0.5,a,train\n7,1,,test\n", beside)

    assert graph.edges == {frozenset("78"), frozenset("89")}
    assert graph.vertices == {"7", "8", "9"}
    assert graph.features == {"9": [0.5], "7": [1.0]}
    assert graph.classes == {"9": "a"}
    assert graph.parts == {"train": {"9"}, "test": {"7"}}
    with pytest.raises(NoGraphError):
        slow.read_edges("source,target,w\n7,8\n", EDGES)


def test_graphs_that_differ_are_told_apart() -> None:
    one = SlowGraph(edges={frozenset("ab")}, vertices={"a", "b"})
    more = SlowGraph(edges={frozenset("ab")}, vertices={"a", "b", "c"})

    assert compare(one, one) == ""
    assert compare(more, one).startswith("vertices")
    assert slow.same_classes({"a": "x", "b": "y"}, {"a": 1, "b": 0})
    assert not slow.same_classes({"a": "x", "b": "y"}, {"a": 1, "b": 1})
