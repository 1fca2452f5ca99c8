# SPDX-License-Identifier: MIT
"""Fixtures of more than one file."""
import signal

import pytest

from redis_server import Redis
from tls_authority import authority  # noqa: F401 (a fixture)

# In the background of a shell, or under nohup, they are ignored: then the programs that are started
# ignore them, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def redis():
    with Redis() as server:
        yield server
