# SPDX-License-Identifier: MIT
"""Rows of limiters in the process that asks: programs that follow the protocol of README.md.

The programs of a row are all up at once, and each turn measures one after the other; those whose
turn it is not are stopped, so that collectors and timers of one are not another's time.
"""
import json
import os
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import build
import result
import strictness as patterns

KEYS, QUICK_KEYS = 1_000_000, 20_000
SEQUENCE_LENGTH = 1 << 22
OPERATIONS, QUICK_OPERATIONS = 1_000_000, 50_000
SHORT = 10  # takes of one limiter for one of many keys: Java counts its time in steps of 10 ms
MEMORY_TURNS = 2
AT_ONCE = 5  # asked how strict they are: they mostly wait
LIMIT, WINDOW_S = 100, 1.0
BASELINE = "gcra"
BASELINES = {"upkeep": "gcra-upkeep"}  # of forms with a time that a thread advances


@dataclass(frozen=True)
class Row:
    name: str
    row: str
    spread: str = ""
    threads: int = 1
    limit: int = 100
    period_ms: int = 60_000


ROWS = [
    Row("keyed-uniform-1", "keyed", "uniform"),
    Row("keyed-zipf-1", "keyed", "zipf"),
    Row("keyed-uniform-2", "keyed", "uniform", threads=2),
    Row("keyed-zipf-2", "keyed", "zipf", threads=2),
    Row("one-granted", "one", limit=100_000_000, period_ms=1000),
    Row("one-denied", "one"),
]
MEMORY = Row("memory-key", "memory", period_ms=3_600_000)  # states outlive the turn
ASK = Row("strictness", "ask", limit=LIMIT, period_ms=int(1000 * WINDOW_S))


def stint(context):
    return build.Peer(
        name="stint", version="this tree", url="", run=[str(context.build / "bench/peer_stint")],
        forms={"gcra": "gcra, 8 bytes", "window": "window, 16 bytes",
               "gcra-asked": "gcra, 8 bytes, the clock read before the take",
               "gcra-upkeep": "gcra, 8 bytes, a time of 1 ms",
               "gcra-batch": "gcra, 32 keys in a call", "window-batch": "window, 32 keys in a call",
               "log": "log"},
        only={"gcra-asked": ["keyed"], "gcra-upkeep": ["keyed", "one"], "gcra-batch": ["keyed"],
              "window-batch": ["keyed"], "log": ["ask"]},
        fastest="stint.c compiled with the program, link-time optimisation; a table in memory "
                "with huge pages where there are any; a take reads the clock itself; callers that "
                "have many keys at once pass them in one call, and those that decide without pause "
                "pass a time that a thread of their own advances")


class Program:
    """A peer in one form that prepares one row."""

    def __init__(self, context, peer, form, row):
        self.peer, self.form = peer, form
        self.keys = QUICK_KEYS if context.quick else KEYS
        operations = int((QUICK_OPERATIONS if context.quick else OPERATIONS) * peer.share *
                         (SHORT if row.row == "one" else 1))
        sequence = context.sequences.get(row.spread, "-")
        words = [form, row.row, self.keys, sequence, row.threads, operations, row.limit,
                 row.period_ms]
        self.errors = open(context.scratch / f"{os.path.basename(peer.name)}-{form}.log", "w+")
        self.process = subprocess.Popen([*peer.command, *map(str, words)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, bufsize=1)

    @property
    def title(self):
        return self.peer.forms[self.form]

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise RuntimeError(f"{self.peer.name} {self.form} ended: {self.errors.read()[-800:]}")
        return json.loads(line)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        return self.answer()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def turn(self):
        self.process.send_signal(signal.SIGCONT)
        answer = self.ask("turn")
        self.pause()
        return answer

    def resident(self):
        """Bytes of its own; pages of the program and of libraries belong to others too."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return sum(int(re.search(rf"{name}:\s+(\d+)", status)[1]) * 1024
                   for name in ("RssAnon", "RssShmem"))

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def had(context):
    """stint, and the peers of peers.toml that could be built."""
    return [stint(context)] + [peer for peer in context.peers.values()
                               if peer.forms and not peer.missing]


def asked(context, row):
    return [(peer, form) for peer in had(context) if peer.threads >= row.threads
            for form in peer.forms_of(row.row)]


def prepare(context, row):
    """Programs that are ready, and paused."""
    programs = [Program(context, peer, form, row) for peer, form in asked(context, row)]
    for program in programs:
        program.answer()
        program.pause()
    return programs


def speed(context, row):
    context.say(f"{row.name}: preparing")
    programs = prepare(context, row)
    try:
        turns = [[program.turn() for program in programs] for _ in range(context.turns + 1)][1:]
    finally:
        for program in programs:
            program.end()

    def values(at):
        return [turn[at]["cpu_s"] / turn[at]["operations"] * 1e9 for turn in turns]

    def baseline(program):
        form = BASELINES.get(program.form, BASELINE)
        return next(i for i, p in enumerate(programs) if (p.peer.name, p.form) == ("stint", form))

    results = []
    for at, program in enumerate(programs):
        mine = [turn[at] for turn in turns]
        operations = sum(turn["operations"] for turn in mine)
        rates = [turn["operations"] / turn["wall_s"] for turn in mine]
        results.append(result.of(
            row.name, program.peer.name, program.title, "ns", values(at),
            values(baseline(program)), granted=sum(turn["granted"] for turn in mine) / operations,
            per_second=result.middle(rates)[0]))
    return results


def memory(context):
    """One program after the other: nothing here is a time."""
    results, baseline = [], None
    for peer, form in asked(context, MEMORY):
        context.say(f"memory: {peer.name}, {peer.forms[form]}")
        program = Program(context, peer, form, MEMORY)
        try:
            program.answer()
            values = []
            for _ in range(MEMORY_TURNS):
                before = program.resident()
                answer = program.ask("turn")
                size = answer.get("heap_bytes", program.resident() - before)
                values.append(size / answer["keys"])
        finally:
            program.end()
        baseline = baseline or values
        results.append(result.of(MEMORY.name, peer.name, program.title, "B", values, baseline,
                                 note="heap" if "heap_bytes" in answer else ""))
    return results


def strictness(context):
    def attack(peer, form):
        program = Program(context, peer, form, ASK)
        try:
            program.answer()
            found = patterns.attack(
                lambda key, n: program.ask(f"ask {key} {n}")["granted"], LIMIT, WINDOW_S,
                context.seeds)
        finally:
            program.end()
        return result.most(peer.name, program.title, LIMIT, found)

    context.say("strictness: libraries")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda chosen: attack(*chosen), asked(context, ASK)))


def make_sequences(context):
    """The indices of all rows, as files."""
    keys = QUICK_KEYS if context.quick else KEYS
    for spread in ("uniform", "zipf"):
        path = context.scratch / f"{spread}.seq"
        subprocess.run([context.build / "bench/peer_sequence", spread, str(keys),
                        str(SEQUENCE_LENGTH), path], check=True)
        context.sequences[spread] = path


def rows(context):
    make_sequences(context)
    return [one for row in ROWS for one in speed(context, row)] + memory(context)
