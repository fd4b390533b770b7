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
    def join(*_: object) -> SimpleNamespace:
        return SimpleNamespace(is_whole=True, stays=False, serve_next=lambda *_: None)

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

        other.is_whole = False
        assert serve("s", "v") is not other
        assert company.news == "a process of the run before has gone"
