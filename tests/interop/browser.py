# SPDX-License-Identifier: MIT
"""Headless Chromium for tests: a page's document once it had its time, or a page that reports."""
import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time

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


def high_pipe():
    """A pipe of descriptors that are neither 3 nor 4."""
    low = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in low]
    for end in low:
        os.close(end)
    return high


class Tab:
    """A page of a size given, on Chromium's debugging pipe: what it evaluates, and a picture."""

    def __init__(self, tmp_path, width, height):
        to_browser, self.orders = high_pipe()
        self.answers, from_browser = high_pipe()
        # The browser reads descriptor 3 and writes 4; bash moves them there.
        command = [CHROMIUM, *CHROMIUM_OPTIONS, f"--user-data-dir={tmp_path}/tab-{width}",
                   "--remote-debugging-pipe"]
        self.log = open(tmp_path / f"tab-{width}.log", "wb")
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "bash", *command],
            pass_fds=(to_browser, from_browser), stdout=self.log, stderr=self.log)
        os.close(to_browser)
        os.close(from_browser)
        self.unread, self.count, self.session = b"", 0, None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target,
                                flatten=True)["sessionId"]
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1, mobile=width < 500)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(60)
        for descriptor in (self.orders, self.answers):
            os.close(descriptor)
        self.log.close()

    def ask(self, method, **params):
        self.count += 1
        order = {"id": self.count, "method": method, "params": params}
        if self.session:
            order["sessionId"] = self.session
        os.write(self.orders, json.dumps(order).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                return answer["result"]

    def read(self):
        while b"\0" not in self.unread:
            assert select.select([self.answers], [], [], 120)[0], "Chromium does not answer"
            part = os.read(self.answers, 1 << 20)
            assert part, f"Chromium has ended, see {self.log.name}"
            self.unread += part
        message, _, self.unread = self.unread.partition(b"\0")
        return json.loads(message)

    def open(self, url):
        self.ask("Page.navigate", url=url)

    def evaluate(self, script):
        result = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, script):
        ends = time.monotonic() + 60
        while not (value := self.evaluate(script)):
            assert time.monotonic() < ends, script
            time.sleep(0.1)
        return value

    def picture(self, path):
        """The whole page."""
        data = self.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))
