# SPDX-License-Identifier: MIT
"""Real servers of Redis for tests: on free ports of loopback, waited for, stopped by their pids."""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from server import free_port

STARTS_S = 20
KEPT = pathlib.Path(os.environ.get("STINT_BUILD", tempfile.gettempdir())) / "tests" / "store-logs"


def until(condition, what, seconds=STARTS_S, pause_s=0.02):
    """Waits in real time, as other processes do; what condition() gave in the end."""
    ends = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < ends, f"not in {seconds} s: {what}"
        time.sleep(pause_s)
    return found


class Process:
    """A server that runs until the `with` is left, with a folder and a log of its own.

    The log of one that was left by a failure is kept in KEPT, and its end is shown.
    """

    def __init__(self, command, name, folder, prefix=()):
        self.command, self.name, self.folder = [*prefix, *map(str, command)], name, folder
        self.log_path = f"{folder}/log"
        self.is_paused = False
        self.start()

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=subprocess.STDOUT,
                                            cwd=self.folder)

    @property
    def pid(self):
        return self.process.pid

    @property
    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def is_running(self):
        return self.process.poll() is None

    def pause(self):
        """It stays where it is: its sockets take bytes, and nothing answers. A thread may still
        answer until all of them have stopped."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
        self.is_paused = True

    def resume(self):
        self.process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.is_paused = False

    def end(self):
        """As it ends when it is told to; else killed."""
        if self.is_paused:
            self.resume()
        if self.is_running():
            self.process.terminate()
            try:
                self.process.wait(STARTS_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def keep_log(self):
        KEPT.mkdir(parents=True, exist_ok=True)
        kept = KEPT / f"{self.name}-{self.pid}.log"
        shutil.copy(self.log_path, kept)
        print(f"---- {self.name}, all of it in {kept} ----\n{self.log[-1500:]}")

    def stop(self):
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            self.keep_log()
        self.stop()


class Tls:
    """A certificate of that name, which the authority has signed: test_serve_tls.py has it."""

    def __init__(self, authority, name):
        self.ca = str(authority.certificate)
        self.cert, self.key = map(str, authority.sign(name))


class Redis(Process):
    """redis-server with the settings that are given, as `name=value`; _ stands for -.

    `program` may be redis-sentinel, `port` one that the caller found; `prefix` runs it elsewhere.
    `acl` are (name, password, what he may) of the only users; tests and servers are the first.
    """

    def __init__(self, *lines, program="redis-server", tls=None, wait=True, port=None,
                 host="127.0.0.1", prefix=(), acl=(), **settings):
        folder = tempfile.mkdtemp(prefix="stint-redis-")
        lines = [*lines, *self._acl_lines(program, acl)]
        self.auth = ["--user", acl[0][0], "--pass", acl[0][1], "--no-auth-warning"] if acl else []
        self.host, self.port, self.prefix = host, port or free_port(), list(prefix)
        self.socket = f"{folder}/socket"
        config = {"bind": host, "dir": folder, "save": '""', "unixsocket": self.socket,
                  "tls-port" if tls else "port": self.port}
        if program == "redis-sentinel":
            del config["save"], config["unixsocket"]
        if tls:
            config |= {"port": 0, "tls-cert-file": tls.cert, "tls-key-file": tls.key,
                       "tls-ca-cert-file": tls.ca, "tls-replication": "yes"}
        config |= {name.replace("_", "-"): value for name, value in settings.items()}
        self.tls = tls
        self.path = f"{folder}/redis.conf"
        with open(self.path, "w", encoding="utf-8") as out:
            out.writelines(f"{name} {value}\n" for name, value in config.items())
            out.writelines(line + "\n" for line in lines)
        super().__init__([program, self.path], f"{program}-{self.port}", folder, prefix)
        if wait:
            self.wait()

    @staticmethod
    def _acl_lines(program, acl):
        if not acl:
            return []
        is_sentinel = program == "redis-sentinel"
        names = ("sentinel sentinel-user", "sentinel sentinel-pass") if is_sentinel else \
            ("masteruser", "masterauth")
        return ["user default off", *(f"user {name} on >{word} {may}" for name, word, may in acl),
                *(f"{name} {value}" for name, value in zip(names, acl[0]))]

    def wait(self):
        ends = time.monotonic() + STARTS_S
        while time.monotonic() < ends:
            assert self.is_running(), self.log
            answer = self.cli("PING", check=False)
            if any(word in answer for word in ("PONG", "NOAUTH", "NOPERM")):
                return
            time.sleep(0.02)
        raise AssertionError("no redis-server")

    def cli(self, *words, check=True):
        command = [*self.prefix, "redis-cli", "-h", self.host, "-p", str(self.port), *self.auth]
        if self.tls:
            command += ["--tls", "--cert", self.tls.cert, "--key", self.tls.key,
                        "--cacert", self.tls.ca]
        done = subprocess.run([*command, *map(str, words)], capture_output=True, text=True,
                              timeout=60)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return (done.stdout + done.stderr).strip()

    def info(self, name):
        """One figure of INFO ALL, as text; "" where there is none, or a failover ended the call:
        sentinel kills the clients of a server that it promotes."""
        for line in self.cli("INFO", "ALL", check=False).splitlines():
            if line.startswith(name + ":"):
                return line.partition(":")[2].strip()
        return ""

    def restart(self, is_killed=False):
        """The same server anew, from what its disk has."""
        if is_killed:
            self.kill()
        else:
            self.end()
        self.start()
        self.wait()

    @property
    def url(self):
        return f"redis://{self.host}:{self.port}"
