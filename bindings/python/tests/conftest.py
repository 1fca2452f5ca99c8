# SPDX-License-Identifier: MIT
from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import stint
from stint.testing import Clock

settings.register_profile("stint", derandomize=True, deadline=None, database=None)
settings.load_profile("stint")


@pytest.fixture
def clock() -> Clock:
    """A virtual clock, at 2023-11-14 22:13:20 UTC when its time is 0."""
    return Clock(epoch_ns=1_700_000_000 * 10**9)


@pytest.fixture
def table(clock: Clock) -> Iterator[stint.Table]:
    """A small table under the virtual clock."""
    with stint.Table(keys=1000, clock=clock) as made:
        yield made


@pytest.fixture
def shm() -> Iterator[Path]:
    """A folder in shared memory."""
    folder = Path(tempfile.mkdtemp(prefix="stint-test-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)
