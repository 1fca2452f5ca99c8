# SPDX-License-Identifier: MIT
"""Headless Chromium for tests: a page's document once it had its time, or a page that reports."""
import contextlib
import shutil
import subprocess

import pytest

CHROMIUM = shutil.which("chromium")
CHROMIUM_OPTIONS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run", "--hide-scrollbars", "--window-size=1000,900",
]
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed here")


def chromium(tmp_path, *options):
    """Where its virtual time stands still, as it may on a busy machine, it is begun anew."""
    for number in range(3):
        try:
            return subprocess.run(
                [CHROMIUM, *CHROMIUM_OPTIONS, f"--user-data-dir={tmp_path}/profile-{number}",
                 "--virtual-time-budget=4000", *options], capture_output=True, timeout=60,
                check=True)
        except subprocess.TimeoutExpired as hung:
            print(hung)
    raise AssertionError("Chromium has not ended, three times")


@contextlib.contextmanager
def open_page(tmp_path, url, *options):
    """The page stays open while the `with` lasts."""
    with open(tmp_path / "chromium.log", "wb") as log:
        process = subprocess.Popen(
            [CHROMIUM, *CHROMIUM_OPTIONS, f"--user-data-dir={tmp_path}/profile", *options, url],
            stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(20)
