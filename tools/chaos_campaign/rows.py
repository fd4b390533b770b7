"""What the rows of a campaign say: what is wrong with one, and all in a table."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tools.chaos_campaign.draw import TASKS

if TYPE_CHECKING:
    from collections.abc import Sequence

_FAILED, _INTERRUPTED = 5, 130


def named(victim: str, message: str) -> bool:
    """Return whether a message names who was to blame."""
    if victim == "command":
        return "interrupted by SIG" in message or "this process" in message
    if victim in TASKS:
        return bool(re.search(rf"\b{victim}\b", message))
    return victim in message or "agent" in message


def complaint(row: dict[str, Any]) -> str:
    """Return what is wrong with a trial, nothing if it is as it should be."""
    wrong = []
    victim, action, code = row["victim"], row["action"], row["code"]
    if row["traceback"]:
        wrong.append("a traceback")
    if row["left"]:
        wrong.append(f"left {', '.join(row['left'])}")
    if row.get("unnoticed"):
        wrong.append(f"not noticed by {', '.join(row['unnoticed'])}")
    allowed = {0, _FAILED}
    if victim == "command":
        allowed |= {
            "kill": {-9},
            "stop": {-9},
            "terminate": {_INTERRUPTED},
            "interrupt": {_INTERRUPTED},
        }.get(action, set())
    if code not in allowed:
        wrong.append(f"exit code {code}")
    elif code == _FAILED and not named(victim, row["message"]):
        wrong.append("the culprit is not named")
    return "; ".join(wrong)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a line per victim and action: trials, ends, seconds, complaints."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        victim = "a task" if row["victim"] in TASKS else row["victim"]
        groups[victim, row["action"]].append(row)
    head = ["victim", "action", "trials", "failed", "named"]
    head += ["median", "most", "left", "wrong"]
    lines = ["{:12} {:11} {:>6} {:>6} {:>6} {:>8} {:>7} {:>5} {:>6}".format(*head)]
    for (victim, action), group in sorted(groups.items()):
        failed = [row for row in group if row["code"] not in (0, -9)]
        blamed = sum(named(row["victim"], row["message"]) for row in failed)
        seconds = [row["seconds"] for row in group]
        lines.append(
            f"{victim:12} {action:11} {len(group):6} {len(failed):6} {blamed:6} "
            f"{statistics.median(seconds):8.2f} {max(seconds):7.2f} "
            f"{sum(bool(row['left']) for row in group):5} "
            f"{sum(bool(row['complaint']) for row in group):6}"
        )
    return "\n".join(lines)
