#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Keeps a real server under mixed load for minutes, and says whether it held.

Two workers with --state, RESP and HTTP; clients that ask as they should, and clients that do all
that is wrong (soak_clients.py). Every few seconds the rules are read anew, now and then with a
fault in them; in the first half another process takes over again and again, in the second one
process must show that it neither grows nor loses descriptors.

Exit code 0 if nothing was found; 1 with each fault on a line of its own.
"""
import argparse
import os
import re
import signal
import statistics
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "interop"), str(ROOT / "tools")]

SECONDS_MIN = 120
SAMPLE_S = 5
RELOAD_S = 3
HANDOVERS = 4
HANDOVERS_END = 0.35  # of the whole; then the idle ones have time to come back
DRAIN_S = 8
BAD_RULES_EVERY = 5
FAULTS_SHOWN = 20

MIB = 1 << 20
# What one process may grow by in the second half. A sanitizer's allocator keeps what is freed.
GROWTH_MAX = 2 * MIB
GROWTH_MAX_SANITIZED = 48 * MIB
DESCRIPTORS_GROWTH_MAX = 40  # of some 1,100: clients come and go while it is counted
DESCRIPTORS_AT_REST_MAX = 8  # more than at the start, once all clients have gone

BAD_RULE = "  - kay: x\n"
LINE = re.compile(r"\d{4}-\d\d-\d\dT\S+Z (\w+) (\w+): ")
# Of the lines that warn or tell an error. As root if it is run as root: containers do; without a
# sandbox if it is built with sanitizers.
EXPECTED = {"reload_failed", "drain_late", "runs_as_root", "sandbox_lacks"}


class Soak:
    def __init__(self, server_class, options, ports, rules):
        self.server_class, self.options, self.ports, self.rules = (
            server_class, options, ports, rules)
        self.is_over = threading.Event()
        self.lock = threading.Lock()
        self.faults, self.samples, self.leaving = [], [], []
        self.began = time.monotonic()
        self.handed_over_at = self.began - 3600
        self.generation = self.bad_reloads = self.handovers = 0
        self.write_rules()
        self.server = server_class(*options)
        self.lines_seen = {}

    def fault(self, text):
        with self.lock:
            self.faults.append(text)
            is_shown = len(self.faults) <= FAULTS_SHOWN
        if is_shown:
            print(f"FAULT {text}", flush=True)

    # ---- reading rules anew ----

    def write_rules(self, fault=""):
        from soak_clients import RULES
        extra = (f"  - key: extra{self.generation}\n"
                 "    rate_limit: {unit: day, requests_per_unit: 1}\n")
        new = self.rules.with_suffix(".new")
        new.write_text(RULES + extra + fault)
        new.rename(self.rules)

    def get(self, path, data=None):
        url = f"http://127.0.0.1:{self.ports['http']}{path}"
        try:
            with urllib.request.urlopen(url, data, timeout=15) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as answer:
            return answer.code, answer.read().decode()

    def reload(self):
        """By signal, by being asked, or by the change of the file alone."""
        self.generation += 1
        is_bad = self.generation % BAD_RULES_EVERY == 0
        self.write_rules(BAD_RULE if is_bad else "")
        if is_bad:
            self.bad_reloads += 1
            status, text = self.get("/v1/reload", b"")
            if status == 200:
                self.fault(f"bad rules were taken: {text}")
            self.expect_rules(self.generation - 1)
            return
        if self.generation % 3 == 0:
            self.server.tell(signal.SIGHUP)
        elif self.generation % 3 == 1:
            status, text = self.get("/v1/reload", b"")
            if status != 200:
                self.fault(f"POST /v1/reload: {status} {text}")
        self.expect_rules(self.generation)

    def expect_rules(self, generation):
        ends = time.monotonic() + 10
        while f"extra{generation}" not in self.get("/rlconfig")[1]:
            if time.monotonic() > ends:
                self.fault(f"the rules of generation {generation} are not in force")
                return
            time.sleep(0.1)

    # ---- another process ----

    def fail_to_hand_over(self):
        """A successor that cannot begin changes nothing for those who are served."""
        self.write_rules(BAD_RULE)
        successor = self.server_class(*self.options, "--replace", wait=False)
        if (code := successor.wait()) != 1 or "kay" not in successor.log:
            self.fault(f"a successor with bad rules ended with {code}: {successor.log}")

    def hand_over(self):
        if self.handovers % 2 == 1:
            self.fail_to_hand_over()
        self.write_rules()
        older = self.server
        self.server = self.server_class(*self.options, "--replace")
        self.handed_over_at = time.monotonic()
        self.leaving.append((older, time.monotonic()))
        self.handovers += 1

    def look_at_leaving(self):
        for older, since in list(self.leaving):
            if older.process.poll() is not None:
                self.leaving.remove((older, since))
                self.look_at_end(older)
            elif time.monotonic() - since > 2 * DRAIN_S + 15:
                self.fault(f"{older.pid} has handed over and does not end")
                older.kill()

    def look_at_end(self, server):
        code = server.wait()
        self.look_at_log(server)
        if code != 0:
            self.fault(f"{server.pid} ended with {code}")

    def kill_all(self):
        """Nothing is left to run where the soak itself breaks off."""
        for server in [self.server, *(older for older, _ in self.leaving)]:
            if server.process.poll() is None:
                server.kill()

    # ---- what is looked at ----

    def look_at_log(self, server):
        seen = self.lines_seen.get(server.pid, 0)
        lines = server.log.splitlines()
        self.lines_seen[server.pid] = len(lines)
        for line in lines[seen:]:
            found = LINE.match(line)
            if found is None:
                self.fault(f"{server.pid} said: {line}")
            elif found[1] in ("warn", "error") and found[2] not in EXPECTED:
                self.fault(f"{server.pid} logged: {line}")

    def look(self):
        """Everything that is found while the load goes on."""
        from measure import descriptors, own_memory, status
        if self.server.process.poll() is not None:
            self.fault(f"{self.server.pid} ended by itself with {self.server.process.returncode}")
            self.is_over.set()
            return
        self.look_at_log(self.server)
        self.look_at_leaving()
        for text in self.ledger.check():
            self.fault(text)
        pid = self.server.pid
        sample = (time.monotonic() - self.began, pid, own_memory(pid), descriptors(pid))
        self.samples.append(sample)
        print(f"{sample[0]:6.0f} s  pid {pid}  {sample[2] / MIB:7.2f} MiB of its own  "
              f"{status(pid, 'VmRSS') / MIB:7.2f} MiB in all  {sample[3]:5} descriptors  "
              f"{sum(self.ledger.asked.values()):8} checked  {len(self.faults)} faults", flush=True)

    def judge_growth(self, half_s, most):
        """Of the process that served in the second half, once the idle ones have all come back."""
        first_s = max(half_s, self.handed_over_at - self.began + 2 * DRAIN_S + 20)
        rows = [row for row in self.samples if row[0] >= first_s and row[1] == self.server.pid]
        if len(rows) < 3:
            self.fault("too short: fewer than three samples of one process")
            return
        times = [row[0] for row in rows]
        span = times[-1] - times[0]
        memory = statistics.linear_regression(times, [row[2] for row in rows]).slope * span
        files = statistics.linear_regression(times, [row[3] for row in rows]).slope * span
        print(f"second half: memory {memory / MIB:+.2f} MiB (at most {most / MIB:.0f}), "
              f"descriptors {files:+.1f} (at most {DESCRIPTORS_GROWTH_MAX})")
        if memory > most:
            self.fault(f"memory grew by {memory / MIB:.2f} MiB in {span:.0f} s")
        if files > DESCRIPTORS_GROWTH_MAX:
            self.fault(f"{files:.0f} descriptors more after {span:.0f} s")

    # ---- the whole ----

    def run(self, seconds, growth_max):
        from measure import descriptors
        from soak_clients import ALL, Ledger
        self.ledger = Ledger()
        at_rest = descriptors(self.server.pid)
        clients = [kind(self, number) for kind, times in ALL for number in range(times)]
        self.began = time.monotonic()
        for client in clients:
            client.start()
        self.load(seconds)
        self.is_over.set()
        for client in clients:
            client.join(130)
            if client.is_alive():
                self.fault(f"{client.name} hangs")
            client.leave()
        for text in self.ledger.check() + self.ledger.check_use(time.monotonic() - self.began):
            self.fault(text)
        self.judge_growth(seconds / 2, growth_max)
        self.end(at_rest)
        turns = ", ".join(f"{client.name} {client.turns}" for client in clients)
        print(f"turns: {turns}\n"
              f"{self.generation} reloads ({self.bad_reloads} with bad rules), "
              f"{self.handovers} handovers; the longest of "
              f"{sum(self.ledger.asked.values())} checked requests took "
              f"{self.ledger.longest_ns / 1e6:.0f} ms")

    def load(self, seconds):
        next_sample = next_reload = 0.0
        handover_s = seconds * HANDOVERS_END / HANDOVERS
        while (now := time.monotonic() - self.began) < seconds and not self.is_over.is_set():
            if now >= next_sample:
                next_sample = now + SAMPLE_S
                self.look()
            if now >= next_reload:
                next_reload = now + RELOAD_S
                self.reload()
            if self.handovers < HANDOVERS and now >= (self.handovers + 1) * handover_s:
                self.hand_over()
            time.sleep(0.1)

    def end(self, at_rest):
        """With no client left nothing may be left of them; then the server goes."""
        from measure import descriptors
        if self.server.process.poll() is None:
            ends = time.monotonic() + 15
            while (left := descriptors(self.server.pid)) > at_rest + DESCRIPTORS_AT_REST_MAX:
                if time.monotonic() > ends:
                    self.fault(f"{left} descriptors without a client: {at_rest} at the start")
                    break
                time.sleep(0.2)
            self.server.tell(signal.SIGTERM)
        self.look_at_end(self.server)
        ends = time.monotonic() + 2 * DRAIN_S + 20
        while self.leaving and time.monotonic() < ends:
            self.look_at_leaving()
            time.sleep(0.2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path, help="the build folder")
    parser.add_argument("seconds", type=int, nargs="?", default=600)
    args = parser.parse_args()
    if args.seconds < SECONDS_MIN:
        parser.error(f"growth shows in {SECONDS_MIN} seconds or more, not in {args.seconds}")
    program = args.build.resolve() / "src" / "cmd" / "stint"
    is_sanitized = b"__asan_init" in program.read_bytes()
    os.environ["STINT_BIN"] = str(program)
    os.environ.setdefault("ASAN_OPTIONS", "quarantine_size_mb=8:malloc_context_size=12")
    from server import Server, free_port

    with tempfile.TemporaryDirectory(prefix="stint-soak-") as folder:
        rules = Path(folder) / "rules.yaml"
        ports = {"resp": free_port(), "http": free_port()}
        options = ["--state", f"{folder}/state", "--rules", rules, "--workers", 2,
                   "--resp", f"127.0.0.1:{ports['resp']}", "--http", f"127.0.0.1:{ports['http']}",
                   "--keys-wide", 2048, "--wide-size", 2048, "--drain-time", f"{DRAIN_S}s",
                   "--request-time", "3s", "--http-request-time", "3s", "--write-time", "3s",
                   "--http-answer-time", "3s", "--http-domain", "soak",
                   "--http-descriptors", "constant:frontend=auth"]
        soak = Soak(Server, options, ports, rules)
        try:
            soak.run(args.seconds, GROWTH_MAX_SANITIZED if is_sanitized else GROWTH_MAX)
        finally:
            soak.kill_all()
    if soak.faults:
        print(f"FAILED: {len(soak.faults)} faults in {args.seconds} s")
        sys.exit(1)
    print(f"HELD: {args.seconds} s under load, nothing found")


if __name__ == "__main__":
    main()
