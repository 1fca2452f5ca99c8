# SPDX-License-Identifier: MIT
"""One redis-server for the tests of a file, on a socket in a folder of its own."""

import os
import sys

import pytest
from hypothesis import HealthCheck, settings

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in (HERE, os.path.join(HERE, "..", "property"), os.path.join(HERE, "..", "..", "tools")):
    sys.path.insert(0, os.path.abspath(folder))

COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}
settings.register_profile("ci", derandomize=True, max_examples=100, **COMMON)
settings.register_profile("long", max_examples=5000, print_blob=True, **COMMON)
settings.load_profile(os.environ.get("STINT_HYPOTHESIS", "ci"))


@pytest.fixture(scope="module")
def server():
    from store import RedisServer

    with RedisServer() as running:
        yield running


@pytest.fixture
def redis(server):
    """A connection to the server, whose keys are gone."""
    with server.connect() as client:
        client.flushall()
        yield client
