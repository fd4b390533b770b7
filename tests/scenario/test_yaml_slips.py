"""Slips of those who write YAML: the error names the line, and what should be there.

Slips are planted in every line of scenarios: whatever line they hit, what is proposed
must make YAML of the file again, and mostly the file that it was.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import ScenarioError
from emu.scenario.document import parse_document
from emu.scenario.scenario_file import loads
from emu.scenario.yaml_slips import _braces
from tests import draws

SCENARIOS = Path(__file__).parents[2] / "scenarios"
FILES = [SCENARIOS / "demo.yaml"]
TEXTS = [
    *(re.sub(r"(?m)^\s*#.*\n", "", file.read_text()) for file in FILES),
    """cluster:
  machines:
    - {name: m0, nic: 10 B/s}
    - name: m1
      nic: 10 B/s
job:
  system: custom
  iterations: 3
  tasks: [{name: a, time: 1 s}, {name: b, time: [1 s, 2 s, 1 s]}]
""",
]
#: Slip -> pattern of a line that allows it, and the line with it.
SLIPS: dict[str, tuple[str, Callable[[str], str]]] = {
    "tab": (r" +\S", lambda line: re.sub(r"^( +)", "\t", line)),
    "two tabs": (r" {4}", lambda line: re.sub(r"^ {4}", "\t\t", line)),
    "tab after colon": (r".*\w: \w", lambda line: re.sub(r": ", ":\t", line, count=1)),
    "no space": (r"\s*(- )?\w+: \w", lambda line: line.replace(": ", ":", 1)),
    "no colon": (r"\s*(- )?\w+: \w", lambda line: line.replace(":", "", 1)),
    "no colon at the end": (r"\s*\w+:$", lambda line: line[:-1]),
    "equals": (r"\s*(- )?\w+: \w", lambda line: line.replace(":", " =", 1)),
    "no dash space": (r"\s*- \S", lambda line: line.replace("- ", "-", 1)),
    "no closing": (r".*[}\]]", lambda line: re.sub(r"[}\]](?!.*[}\]])", "", line)),
    "no opening": (r".*[{\[]", lambda line: re.sub(r"[{\[]", "", line, count=1)),
    "two closings": (
        r".*[}\]]",
        lambda line: re.sub(r"([}\]])", r"\1\1", line, count=1),
    ),
    "wrong closing": (r".*\}$", lambda line: line[:-1] + "]"),
    "deeper": (r" +\S", lambda line: "  " + line),
    "one deeper": (r" *\S", lambda line: " " + line),
    "one less deep": (r" +\S", lambda line: line[1:]),
    "open quote": (r"\s*(- )?\w+: \w", lambda line: line.replace(": ", ': "', 1)),
    "open single quote": (
        r"\s*(- )?\w+: \w",
        lambda line: line.replace(": ", ": '", 1),
    ),
    "at": (r"\s*(- )?\w+: \w", lambda line: line.replace(": ", ": @", 1)),
    "colon in text": (
        r"\s*(- )?\w+: \w+$",
        lambda line: line.replace(": ", ": a: ", 1),
    ),
    "no comma": (
        r".*\w, \w+: ",
        lambda line: re.sub(r", (?=\w+: )", " ", line, count=1),
    ),
}


def planted(text: str, slip: str, at: int) -> tuple[str, int] | None:
    """Return ``text`` with a slip in the first line from ``at`` on that allows it."""
    pattern, change = SLIPS[slip]
    lines = text.splitlines()
    for number in [*range(at, len(lines)), *range(at)]:
        if re.match(pattern, lines[number]):
            lines[number] = change(lines[number])
            return "\n".join(lines) + "\n", number
    return None


def proposed(error: ScenarioError) -> str | None:
    found = re.search(r"write (['\"])(.*)\1$", error.problem)
    return None if found is None else found[2].replace("\\t", "\t")


@given(st.sampled_from(TEXTS), st.sampled_from(sorted(SLIPS)), st.integers(0, 80))
def test_what_is_proposed_makes_yaml_of_it(text: str, slip: str, at: int) -> None:
    made = planted(text, slip, at % len(text.splitlines()))
    if made is None:
        return
    try:
        parse_document(made[0], "drawn.yaml")
    except ScenarioError as error:
        mended = proposed(error)
        if mended is None:
            return  # counted below
        lines = made[0].splitlines()
        lines[error.line - 1] = mended
        assert "is not YAML" not in problem_of("\n".join(lines))


def problem_of(text: str) -> str:
    try:
        parse_document(text, "mended.yaml")
    except ScenarioError as error:
        return error.problem
    return ""


def outcomes(slip: str) -> Counter[str]:
    """Return how a slip in every line of every text came out."""
    found: Counter[str] = Counter()
    for text in TEXTS:
        done: set[int] = set()
        for at in range(len(text.splitlines())):
            made = planted(text, slip, at)
            if made is None or made[1] in done:
                continue
            done.add(made[1])
            try:
                parse_document(made[0], "drawn.yaml")
                found["is YAML"] += 1
                continue
            except ScenarioError as error:
                mended, line = proposed(error), error.line
            original = text.splitlines()[made[1]]
            if mended is None:
                found["nothing proposed"] += 1
            elif (line - 1, mended) == (made[1], original.rstrip()):
                found["as it was"] += 1
            else:
                found["otherwise"] += 1
    return found


#: Slip -> share of the files that are no YAML with it, of which the line as it was is
#: proposed. A quote that is not closed may have been meant, and so may an indentation.
AS_IT_WAS = {
    "open quote": 0.0,
    "open single quote": 0.0,
    "at": 0.0,
    "colon in text": 0.0,
    "no comma": 0.8,
    "deeper": 0.8,
    "one deeper": 0.8,
    "one less deep": 0.7,
    "two tabs": 0.7,
    "tab": 0.7,
    "no opening": 0.7,
    "no closing": 0.7,
}


@pytest.mark.parametrize("slip", draws.rarely_but(2, SLIPS))
def test_most_slips_are_recognized(slip: str) -> None:
    found = outcomes(slip)
    broken = found.total() - found["is YAML"]

    assert found["nothing proposed"] <= 0.1 * broken, found
    assert found["as it was"] >= AS_IT_WAS.get(slip, 0.9) * broken, found


@pytest.mark.parametrize(
    ("before", "after", "line", "problem"),
    [
        ("iterations: 3", "iterations: 3\n  iterations: 4", 9,
         '"iterations" is there twice, in line 8 as well: keep one of them'),
        ("{name: a, ", "{name:a, ", 9, "found 'name:a', write 'name: a' with a space"),
        ("system: custom\n", "system: custom\n---\n", 8, "found another document"),
        ("time: 1 s}, ", "time:1 s}, ", 9, "found 'time:1 s', write 'time: 1 s'"),
        # Below the first key of an item, and not below the dash.
        ("      nic", "     nic", 5, "write '      nic: 10 B/s'"),
        ("job:\n", "placement:\n\tpolicy: ifs\njob:\n", 7, "write '  policy: ifs'"),
    ],
)  # fmt: skip
def test_other_slips(before: str, after: str, line: int, problem: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(TEXTS[-1].replace(before, after))

    assert caught.value.line == line
    assert problem in caught.value.problem


@pytest.mark.parametrize("comment", ["", "  # one more"])
@pytest.mark.parametrize(
    "sound",
    ["a: [{x: 1}, {y: 2}]", "- {name: a, on: [b, c]}", "on: [a, b]", "a: {b: {c: 1}}"],
)
@pytest.mark.parametrize("closing", ["}", "]"])
def test_the_last_bracket_of_a_kind_that_is_one_too_many_is_left_out(
    sound: str, closing: str, comment: str
) -> None:
    """And nothing else of its line, before or behind it; a sound line is left."""
    assert {*_braces([sound + comment], 0)} <= {sound + comment}
    head, found, tail = sound.rpartition(closing)
    if found:
        line = f"{head}{closing}{closing}{tail}{comment}"
        assert sound + comment in [*_braces([line], 0)]


def test_a_bracket_that_closes_another_is_exchanged_and_its_line_goes_on() -> None:
    proposals = [*_braces(["- {on: {b: 1], cpu: 2}  # few"], 0)]
    assert "- {on: {b: 1}, cpu: 2}  # few" in proposals


def test_an_item_of_several_keys_without_braces_gets_both() -> None:
    assert [*_braces(["  - name: a, time: 1 s  # one"], 0)] == [
        "  - {name: a, time: 1 s}  # one"
    ]
    assert [*_braces(["  - name: a  # one"], 0)] == []


def test_a_bracket_that_was_not_opened_leaves_what_stands_behind_the_line() -> None:
    """It was to open before the first key, or before its value."""
    proposals = [*_braces(["  a: 1, b: 2}  # two"], 0)]
    assert "  {a: 1, b: 2}  # two" in proposals
    assert "  a: {1, b: 2}  # two" in proposals
    assert "  a: 1, b: 2  # two" in proposals


@pytest.mark.parametrize("written", ["policy ifs", "policy:ifs", "policy = ifs"])
def test_the_only_entry_of_a_mapping_without_a_colon(written: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(f"{TEXTS[-1]}placement:\n  {written}\n")

    assert str(caught.value).endswith(f"found {written!r}, write 'policy: ifs'")


def test_long_files_are_not_tried() -> None:
    tasks = "".join(f"    - {{name: t{i}, time: 1 s}}\n" for i in range(2000))
    text = TEXTS[-1].replace("  tasks: [", f"  tasks:\n{tasks}  flows: [{{")
    with pytest.raises(ScenarioError, match="is not YAML"):
        loads(text)


WORDS = r"(\s*(?:- )?\w+: |.*?[{,] *\w+: )([\w.]+)(?= *(?:$|[,}\]]))"


@given(st.sampled_from(TEXTS), st.sampled_from("&#"), st.integers(0, 80))
def test_what_yaml_reads_as_nothing_is_an_error(text: str, mark: str, at: int) -> None:
    lines = text.splitlines()
    places = [i for i, line in enumerate(lines) if re.match(WORDS, line)]
    if mark == "#":  # it would end a flow mapping
        places = [i for i in places if not re.search(r"[{\[]", lines[i])]
    place = places[at % len(places)]
    lines[place] = re.sub(WORDS, rf"\1{mark}\2", lines[place], count=1)
    with pytest.raises(ScenarioError, match="reads as nothing, write") as caught:
        parse_document("\n".join(lines), "drawn.yaml")

    assert caught.value.line == place + 1


@pytest.mark.parametrize(
    "value", ["null", "~", "Null", "", "# none yet", "&x null", "  # &x"]
)
def test_nothing_may_be_written_as_such(value: str) -> None:
    read = parse_document(f"expect: {value}\nname: a\n", "drawn.yaml")

    assert read.data == {"expect": None, "name": "a"}


def test_what_is_read_again_shares_nothing() -> None:
    one, other = (parse_document("a: {b: [1]}\n", file) for file in ("x", "y"))

    one.data["a"]["b"].append(2)
    one.lines.clear()

    assert other.data == {"a": {"b": [1]}}
    assert other.where(("a", "b")) == ("y", 1)


@pytest.mark.parametrize("text", ["{nic: , cpu: 8}", "{nic: }", "{nic}", "[&x , 2]"])
def test_no_value_in_braces_is_an_error(text: str) -> None:
    with pytest.raises(ScenarioError, match=r"found no value|reads as nothing"):
        parse_document(f"a:\n  b: {text}\n", "drawn.yaml")


@pytest.mark.parametrize("text", ["&ifs", "#ifs", "&ifs # best"])
def test_an_override_that_yaml_reads_as_nothing_is_an_error(text: str) -> None:
    with pytest.raises(ScenarioError, match=r"reads .* as nothing"):
        loads(TEXTS[1], overrides=[f"placement.policy={text}"])
