# SPDX-License-Identifier: MIT
"""Fixtures of more than one file."""
import signal

import pytest

from redis_server import Redis
from tls_authority import authority  # noqa: F401 (a fixture)

# In the background of a shell it is ignored: then the programs that are started ignore it, too.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def redis():
    with Redis() as server:
        yield server
