"""Members of a run stay for the next one where it orders the same of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emu.emulation.coordinator import company as company_module
from emu.emulation.coordinator.company import Company


def test_members_serve_the_next_run_of_the_same_orders_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = []

    def join(*_: object) -> SimpleNamespace:
        async def dismiss() -> None:
            gone.append(members)

        members = SimpleNamespace(
            is_whole=True, stays=True, serve_next=lambda *_: None, dismiss=dismiss
        )
        return members

    monkeypatch.setattr(company_module, "Membership", join)
    nothing: Any = None
    with Company() as company:

        def serve(*orders: Any) -> Any:
            return company.members(nothing, Path(), nothing, orders)

        first = serve("s", "w")
        assert serve("s", "w") is first
        assert company.news == ""

        other = serve("s", "v")
        assert other is not first
        assert company.news == "its processes are others"
        company.run(company.dismiss_former(), lambda: "")
        assert gone == [first]

        other.is_whole = False
        latest = serve("s", "v")
        assert latest is not other
        assert company.news == "a process of the run before has gone"
    assert gone == [first, other, latest]
