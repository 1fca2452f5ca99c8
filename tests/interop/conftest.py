# SPDX-License-Identifier: MIT
"""Fixtures of more than one file."""
import pytest

from redis_server import Redis
from tls_authority import authority  # noqa: F401 (a fixture)


@pytest.fixture
def redis():
    with Redis() as server:
        yield server
