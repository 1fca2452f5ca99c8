# SPDX-License-Identifier: MIT
"""Real servers of Redis for tests: on free ports of loopback, waited for, stopped by their pids."""
import shutil
import subprocess
import tempfile
import time

from server import free_port

STARTS_S = 20


class Redis:
    """redis-server with the settings that are given, as `name=value`; _ stands for -.

    `program` may be redis-sentinel. Leaving the `with` stops it.
    """

    def __init__(self, *lines, program="redis-server", tls=None, wait=True, **settings):
        self.folder = tempfile.mkdtemp(prefix="stint-redis-")
        self.port = free_port()
        self.socket = f"{self.folder}/socket"
        config = {"bind": "127.0.0.1", "dir": self.folder, "save": '""', "unixsocket": self.socket,
                  "tls-port" if tls else "port": self.port}
        if program == "redis-sentinel":
            del config["save"], config["unixsocket"]
        if tls:
            config |= {"port": 0, "tls-cert-file": tls.cert, "tls-key-file": tls.key,
                       "tls-ca-cert-file": tls.ca}
        config |= {name.replace("_", "-"): value for name, value in settings.items()}
        self.tls = tls
        self.path = f"{self.folder}/redis.conf"
        with open(self.path, "w", encoding="utf-8") as out:
            out.writelines(f"{name} {value}\n" for name, value in config.items())
            out.writelines(line + "\n" for line in lines)
        self.process = subprocess.Popen([program, self.path], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)
        if wait:
            self.wait()

    def wait(self):
        ends = time.monotonic() + STARTS_S
        while time.monotonic() < ends:
            assert self.process.poll() is None, self.process.stdout.read().decode()
            answer = self.cli("PING", check=False)
            if any(word in answer for word in ("PONG", "NOAUTH", "NOPERM")):
                return
            time.sleep(0.02)
        raise AssertionError("no redis-server")

    def cli(self, *words, check=True):
        command = ["redis-cli", "-p", str(self.port)]
        if self.tls:
            command += ["--tls", "--cert", self.tls.cert, "--key", self.tls.key,
                        "--cacert", self.tls.ca]
        done = subprocess.run([*command, *map(str, words)], capture_output=True, text=True,
                              timeout=60)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return (done.stdout + done.stderr).strip()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(STARTS_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
