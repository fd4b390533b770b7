"""Fetches of feature rows by samplers that ask for them by number.

Volumes, node programs and training read the same settings of a job, so that none of
them can send, or learn from, other rows than the others.

Must not know: systems, data sets, arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Value of ``sampling`` in ``Job.settings``: samplers have the whole structure, draw
#: their mini-batches, and ask every owner for the rows that they lack.
ASKED = "asked"
#: Key of ``Job.settings``: type of feature numbers, as stored and as sent.
FEATURE_TYPE = "feature_type"


def feature_type(settings: Mapping[str, Any]) -> str:
    """Return the type of a number of a feature, by default that of the parameters."""
    name: str = settings.get(FEATURE_TYPE, settings["precision"])
    return name
