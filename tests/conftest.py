"""Settings that every test shares."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.leftovers import leftovers

__all__ = ["leftovers"]

# deadline=None: the machines that run this are shared and noisy.
settings.register_profile(
    "dev", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=100,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("nightly", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
