#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Three servers on a Redis Cluster of six, asked through all three, while a master is killed.

Shows the most that each key was granted in any window, by what callers saw and by the times that
the store told, what callers were told in the meantime, and how long it was until the keys of the
lost master were granted again. Exit code 1 where a bound is passed: N in any window; for keys of
the master that was killed, N before and N after, since a replica may lack what had not reached it.
"""
import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path, help="a build folder with stint in it")
    parser.add_argument("--seconds", type=float, default=12, help="half of them before the kill")
    parser.add_argument("--rate", type=int, default=6000, help="requests per second, of all")
    parser.add_argument("--keys", type=int, default=24)
    parser.add_argument("--limit", type=int, default=100, help="units per window")
    parser.add_argument("--window", type=float, default=1, help="seconds")
    parser.add_argument("--json", type=Path, help="where to write the figures, too; - for stdout")
    return parser.parse_args()


def slots_of(cluster, keys):
    """{key: slot}, by the names that the cluster has."""
    names = {name for node in cluster.running() for name in node.cli("KEYS", "*").split()}
    return {key: cluster.slot_of(name) for key in keys for name in names if f"{key}}}" in name}


class Demo:
    def __init__(self, arguments, crowd_module, judge, fleet_module, servers_module):
        self.told, self.crowds, self.judge = arguments, crowd_module, judge
        self.fleets, self.servers = fleet_module, servers_module
        self.keys = [f"user-{number:02}" for number in range(arguments.keys)]
        self.window_ns = int(arguments.window * judge.S)
        self.found = {}

    def say(self, text=""):
        print(text, file=sys.stderr if str(self.told.json) == "-" else sys.stdout, flush=True)

    def run(self):
        rules = self.fleets.fleet_rules(self.told.limit, f"{self.told.window:g}",
                                        on_store_error="deny")
        with contextlib.ExitStack() as stack:
            self.say("a Redis Cluster of three masters and three replicas ...")
            cluster = stack.enter_context(self.servers.Cluster())
            fleet = stack.enter_context(self.fleets.Fleet(3, cluster.url, rules=rules))
            for number, (host, port) in enumerate(fleet.frontends):
                self.say(f"  stint {number} at {host}:{port}")
            requests = self.crowds.by_rule("fleet", "user", self.keys)
            crowd = stack.enter_context(fleet.crowd(requests, connections=8, rate=self.told.rate))
            self.fleets.wait_until_served(crowd, 3)
            self.drive(cluster, fleet, crowd)
        return self.judged(crowd.seen)

    def drive(self, cluster, fleet, crowd):
        """Load, a kill in the middle, load."""
        self.began_ns = time.time_ns()
        self.say(f"asked through all three for {self.told.seconds:g} s, {len(self.keys)} keys of "
                 f"{self.told.limit} per {self.told.window:g} s each")
        time.sleep(self.told.seconds / 2)
        slots = slots_of(cluster, self.keys)
        victim = cluster.owner(next(iter(slots.values())))
        self.struck = {key for key, slot in slots.items() if cluster.owner(slot) is victim}
        self.say(f"killing the master at port {victim.port}, which has {len(self.struck)} of the "
                 "keys ...")
        self.killed_ns = time.time_ns()
        victim.kill()
        cluster.wait_for_promotion(slots[next(iter(self.struck))], victim)
        self.promoted_ns = time.time_ns()
        self.fleets.until(lambda: self.served_again(crowd) == self.struck,
                          "all keys of the lost master are granted again", 30)
        time.sleep(max(2 * self.told.window,
                       self.told.seconds / 2 - (time.time_ns() - self.killed_ns) / 1e9))
        self.ended_ns = time.time_ns()
        self.errors = sum(self.metric(server.http, "stint_store_errors_total")
                          for server in fleet.servers)

    def served_again(self, crowd):
        return {one.key for one in crowd.snapshot() if one.key in self.struck and
                one.sent_ns > self.promoted_ns and one.outcome == "allow"}

    # ---- what came of it ----

    def judged(self, seen):
        seen = self.crowds.between(seen, self.began_ns)
        granted = self.judge.by_key(self.crowds.admissions(seen))
        keys, faults = [], []
        for key in self.keys:
            own = granted[key]
            is_struck = key in self.struck
            bound = self.told.limit * (2 if is_struck else 1)
            by_callers = self.judge.most_in_any_window(own, self.window_ns).units
            by_store = self.judge.most_by_server_time(own, self.window_ns).units
            faults += self.judge.excess(own, bound, self.window_ns)
            if is_struck:  # each of its masters alone
                before = [one for one in own if one.sent_ns < self.killed_ns]
                after = [one for one in own if one.sent_ns >= self.killed_ns]
                for part in (before, after):
                    faults += self.judge.excess(part, self.told.limit, self.window_ns)
            keys.append({"key": key, "lost_its_master": is_struck, "granted": len(own),
                         "most_by_callers": by_callers, "most_by_store": by_store,
                         "bound": bound})
        self.found = {
            "limit": self.told.limit, "window_s": self.told.window, "keys": keys, "faults": faults,
            "promoted_after_s": (self.promoted_ns - self.killed_ns) / 1e9,
            "granted_after_s": self.granted_after_s(seen),
            "store_errors": self.errors,
            "told": {name: self.told_in(seen, *span) for name, span in {
                "before": (self.began_ns, self.killed_ns),
                "meanwhile": (self.killed_ns, self.promoted_ns),
                "after": (self.promoted_ns, self.ended_ns)}.items()},
            "errors": dict(self.crowds.errors(seen)),
            "wait_ms": {str(share): round(self.crowds.waits_ms(seen, share), 2)
                        for share in (0.5, 0.99, 1)},
        }
        return self.found

    def granted_after_s(self, seen):
        """From the kill until the last of the lost master's keys was granted again."""
        first = {}
        for one in seen:
            if one.key in self.struck and one.outcome == "allow" and one.sent_ns > self.killed_ns:
                first.setdefault(one.key, one.answered_ns)
        return (max(first.values()) - self.killed_ns) / 1e9 if first else None

    def told_in(self, seen, begin, end):
        part = self.crowds.between(seen, begin, end)
        struck = Counter(one.outcome for one in part if one.key in self.struck)
        others = Counter(one.outcome for one in part if one.key not in self.struck)
        return {"seconds": (end - begin) / 1e9, "per_second": len(part) / ((end - begin) / 1e9),
                "keys_of_the_lost": dict(struck), "other_keys": dict(others)}

    def show(self):
        found = self.found
        self.say(f"\nmost granted in any {found['window_s']:g} s, of {found['limit']}:\n"
                 "key       by callers  by the store's times  bound  granted in all")
        for one in found["keys"]:
            note = "  lost its master" if one["lost_its_master"] else ""
            self.say(f"{one['key']:<8}  {one['most_by_callers']:>10}  {one['most_by_store']:>20}  "
                     f"{one['bound']:>5}  {one['granted']:>14}{note}")
        self.say("\nwhat callers were told, requests per second of all three servers:\n"
                 "            for   requests/s  keys of the lost master        other keys")
        for name, part in found["told"].items():
            self.say(f"{name:<9} {part['seconds']:>5.1f} s  {part['per_second']:>8.0f}    "
                     f"{words(part['keys_of_the_lost']):<29}  {words(part['other_keys'])}")
        for sentence, count in found["errors"].items():
            self.say(f"error, {count} times: {sentence}")
        self.say(f"\nthe cluster had another master after {found['promoted_after_s']:.2f} s; the "
                 f"last of its keys was granted after {found['granted_after_s']:.2f} s\n"
                 f"asks of the store that failed, denied as on_store_error says: "
                 f"{found['store_errors']:.0f}\n"
                 f"waits: median {found['wait_ms']['0.5']} ms, 99 % {found['wait_ms']['0.99']} ms, "
                 f"longest {found['wait_ms']['1']} ms")
        for fault in found["faults"]:
            self.say(f"PASSED: {fault}")
        self.say("\nno bound was passed" if not found["faults"] else "\nA BOUND WAS PASSED")


def words(counts):
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


def main():
    arguments = options()
    os.environ["STINT_BIN"] = str(arguments.build.resolve() / "src/cmd/stint")
    os.environ.setdefault("STINT_BUILD", str(arguments.build.resolve()))
    sys.path.insert(0, str(ROOT / "tests/interop"))
    import admissions  # noqa: E402  (its folder is named just above, as is the program it runs)
    import crowd
    import fleet
    import measure
    import store_servers
    # ^C reaches all of the group; servers of ours are to end in their order, after the load.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    demo = Demo(arguments, crowd, admissions, fleet, store_servers)
    demo.metric = measure.metric
    try:
        found = demo.run()
    except KeyboardInterrupt:
        demo.say("\nstopped; all that was started has ended")
        return 130
    demo.show()
    if arguments.json:
        text = json.dumps(found, indent=1) + "\n"
        if str(arguments.json) == "-":
            print(text, end="")
        else:
            arguments.json.write_text(text)
    return 1 if found["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
