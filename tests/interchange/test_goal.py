"""GOAL schedules: by hand, a published pattern, and what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import emu
from emu.errors import DataError
from emu.interchange.workload_formats import read_workload

pytestmark = pytest.mark.usefixtures("read_here")


def makespan(text: str, path: Path, latency: str = "") -> float:
    """Return the seconds that a schedule takes on NICs of 1 B per ns."""
    path.write_text(text, encoding="utf-8")
    content = read_workload(path).scenario("goal", "8 Gbit/s", latency)
    return emu.simulate(emu.place(emu.loads(json.dumps(content)))).makespan


BY_HAND = """\
/* a broadcast over two
   hops */
num_ranks 3

rank 0 {
a: calc 5000 cpu 0
b: calc 3000 cpu 0   // after a, on the same cpu
c: calc 2000 cpu 1 nic 0
s: send 1000b to 1 tag 7
s requires c
t: send 4000b to 1 tag 7
t irequires c
}
rank 1 {
r: recv 4000b from 0 tag 7
q: recv 1000b from 0 tag 7
f: send 500b to 2
f requires q
}
rank 2 {
recv 500b from 1
}
"""


def test_a_schedule_by_hand(tmp_path: Path) -> None:
    """Messages of one tag meet in the order of the file: s has 1,000 B, r 4,000."""
    with pytest.raises(DataError, match="from rank 0 to 1 with tag 7 2 sends"):
        makespan(BY_HAND, tmp_path / "one.goal")
    text = BY_HAND.replace("s: send 1000b to 1 tag 7", "s: send 1000b to 1 tag 8")
    text = text.replace("q: recv 1000b from 0 tag 7", "q: recv 1000b from 0 tag 8")
    # t begins at once and has the port to itself for 2 us, then beside s: s has its
    # 1,000 B at 4 us, f is there at 4.5 us; a and b take 8 us one after the other.
    assert makespan(text, tmp_path / "two.goal") == pytest.approx(8e-6)
    # The start of t is that of c, and c waits for b, as is stated later: 8 and 5 us.
    late = text.replace("t irequires c", "t irequires c\nc requires b")
    assert makespan(late, tmp_path / "late.goal") == pytest.approx(13e-6)
    less = text.replace("calc 5000", "calc 50").replace("calc 3000", "calc 30")
    # f is there at 4.5, t at 5 us: 2,000 B alone, 1,000 beside s, 1,000 alone.
    assert makespan(less, tmp_path / "less.goal") == pytest.approx(5e-6)


def test_a_calc_has_no_use_for_a_tag(tmp_path: Path) -> None:
    path = tmp_path / "tags.goal"
    calcs = "a: calc 50 cpu 0\nb: calc 30 tag 7\nc: calc 20 cpu 1 tag 8\n"
    path.write_text(f"num_ranks 1\nrank 0 {{\n{calcs}}}\n")
    assert read_workload(path).left_out["tag of a calc"] == 2


def test_what_starts_with_others_waits_for_all_that_these_wait_for(
    tmp_path: Path,
) -> None:
    """Operations that start with each other in a ring wait together for a and b."""
    path = tmp_path / "ring.goal"
    path.write_text(
        "num_ranks 1\nrank 0 {\na: calc 3000 cpu 0\nb: calc 7000 cpu 1\n"
        "c: calc 10 cpu 2\nd: calc 20 cpu 3\ne: calc 30 cpu 4\n"
        "c irequires d\nd irequires e\ne irequires c\n"
        "d requires a\ne requires b\n}\n"
    )
    read = read_workload(path)

    flows = {(flow["from"], flow["to"]) for flow in read.flows}
    assert flows == {(f"r0.{first}", f"r0.{then}") for first in "ab" for then in "cde"}
    assert makespan(path.read_text(), path) == pytest.approx(7.03e-6)


@given(rounds=st.integers(1, 4), micros=st.integers(0, 20))
def test_dissemination_takes_a_latency_per_round(
    tmp_path_factory: pytest.TempPathFactory, rounds: int, micros: int
) -> None:
    """As LogGOPSim ships it: in round k each sends a byte to 2 ** k further on."""
    size, lines = 2**rounds, [f"num_ranks {2**rounds}"]
    for rank in range(size):
        lines.append(f"rank {rank} {{")
        for k in range(rounds):
            lines.append(f"s{k}: send 1b to {(rank + 2**k) % size} tag 0")
            lines.append(f"r{k}: recv 1b from {(rank - 2**k) % size} tag 0")
            lines += [f"s{k} requires r{k - 1}"] * (k > 0)
        lines.append("}")
    path = tmp_path_factory.mktemp("goal") / "dissemination.goal"
    found = makespan("\n".join(lines), path, f"{micros} us")
    assert found == pytest.approx(rounds * (1e-9 + micros * 1e-6))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rank 2 {\nrecv 500b from 1\n}", "", "3 ranks, rank 2 is missing"),
        ("recv 500b", "recv 500", "line 21: recv 500 from 1 is no calc"),
        ("500b from 1", "500b from -1", "line 21: op. takes any source or tag"),
        ("tag 7\ns", "tag -1\ns", "line 9: s takes any source or tag"),
        ("f requires q", "f requires z", "line 18: rank 1 has no operation z"),
        ("b: calc", "a: calc", "line 7: a is there twice in rank 0"),
        ("to 2", "to 3", "line 17: f is with rank 3 of 3"),
        ("rank 2 {", "rank 1 {", "line 20: rank 1 is one too many"),
        ("recv 500b from 1", "", "1 sends and 0 receives differ in number or size"),
        ("f requires q", "f requires q\nq requires f", "in a circle"),
    ],
)
def test_what_is_wrong_is_named(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    text = BY_HAND.replace("1000b", "4000b")  # so that all of tag 7 agree
    assert text.count(old) == 1
    with pytest.raises(DataError, match=message):
        makespan(text.replace(old, new), tmp_path / "wrong.goal")
