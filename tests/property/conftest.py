# SPDX-License-Identifier: MIT
"""Profiles: the same examples every time by default, many more with STINT_HYPOTHESIS=long."""

import os
import sys

from hypothesis import HealthCheck, settings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}
settings.register_profile("ci", derandomize=True, max_examples=50, **COMMON)
settings.register_profile("long", max_examples=5000, print_blob=True, **COMMON)
settings.load_profile(os.environ.get("STINT_HYPOTHESIS", "ci"))
