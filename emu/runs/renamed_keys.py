"""Keys of result.json that had another name in earlier versions, read by their new one.

They were renamed once, when makespan error and replay error got names of their own.
"""

from __future__ import annotations

from typing import Any

#: Old key to new one: of the file, of its ``verdict``, and of its ``transport``.
RENAMED = {
    "fidelity": "replay_error",
    "prediction_error": "makespan_error",
    "simulated_makespan": "replayed_makespan",
}
_OF_VERDICT = {"punctual_makespan": "on_time_makespan"}
#: Here ``late_flows`` meant another thing, where ``too_late_flows`` stands beside it.
_OF_TRANSPORT = {"late_flows": "flows_past_fluid", "too_late_flows": "late_flows"}
_OF_EXPECT = {"fidelity": "replay_error", "prediction": "makespan_error"}


def with_new_keys(content: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a result by today's keys, and ``old is new`` of every key that had one.

    Parameters
    ----------
    content
        Content of result.json, of any version.
    """
    renamed, found = _renamed(content, RENAMED, "")
    parts = [("verdict", _OF_VERDICT)]
    if "too_late_flows" in _mapping(content, "transport"):
        parts.append(("transport", _OF_TRANSPORT))
    for part, keys in parts:
        if _mapping(content, part):
            renamed[part], more = _renamed(content[part], keys, f"{part}.")
            found += more
    scenario = _mapping(content, "scenario")
    if expect := _mapping(scenario, "expect"):
        expect, more = _renamed(expect, _OF_EXPECT, "expect.")
        renamed["scenario"] = {**scenario, "expect": expect}
        found += more
    return renamed, found


def _mapping(content: dict[str, Any], key: str) -> dict[str, Any]:
    part = content.get(key)
    return part if isinstance(part, dict) else {}


def _renamed(
    content: dict[str, Any], keys: dict[str, str], prefix: str
) -> tuple[dict[str, Any], list[str]]:
    old = [key for key in content if key in keys]
    renamed = {keys.get(key, key): value for key, value in content.items()}
    return renamed, [f"{prefix}{key} is {prefix}{keys[key]}" for key in old]
