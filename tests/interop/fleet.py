# SPDX-License-Identifier: MIT
"""Several `stint serve` on one store, asked by a crowd; and what may be claimed of what it saw."""
import contextlib
import time
import urllib.error
import urllib.request

from admissions import S, by_key, excess, most_in_any_window, strangers
from crowd import Crowd, admissions, between, by_rule, errors, outcomes, waits_ms, within
from program import STINT
from redis_server import until
from server import Server

LIMIT, WINDOW_S = 50, 2
WINDOW = WINDOW_S * S
KEYS = [f"user-{number}" for number in range(20)]

# What a request may take while the store does not answer: its timeout, 50 ms by default, the
# connection's, 250 ms, and what two cores make of it that are shared with the rest of the tests:
# dozens of processes, any of which may have to wait for its turn. The most that was seen is far
# below; what is looked for are waits without end, of seconds and more.
WAITS_MAX_MS = 4000
# Of nearly all of them: here the timeout itself would show, were it ten times as long.
WAITS_MOST_MS = 500
# After the store is back: breakers probe every 5 s at the latest, connections every 2 s. A probe
# for which a busy machine takes longer than the timeout has failed, so there is time for several.
RECOVERS_S = 30
# Where no store fails and so no error may come: on a busy machine the timeout may pass by itself.
PATIENT = ("--store-timeout", "20s")


def fleet_rules(limit=LIMIT, window_s=WINDOW_S, domain_keys="", **options):
    """One rule for each value of `user`, of so much; `options` are of its rate_limit."""
    lines = "".join(f"      {name}: {value}\n" for name, value in options.items())
    return (f"domain: fleet\n{domain_keys}descriptors:\n  - key: user\n    rate_limit:\n"
            f"      requests_per_unit: {limit}\n      period: {window_s}s\n{lines}")


class Fleet:
    """`count` servers of the same rules on one store; each has one worker, if not told otherwise.

    `machines`: of network.py, one for each server to run on.
    """

    def __init__(self, count, store, *options, rules=None, workers=1, machines=None, env=None):
        self.count, self.machines, self.env = count, machines, env
        self.options = ["--workers", workers, *(["--store", store] if store else []), *options]
        self.rules = fleet_rules() if rules is None else rules
        self.servers, self.frontends = [], []

    def start(self, place):
        more = {"env": self.env, "rules": self.rules}
        if self.machines is None:
            server = Server(*self.options, **more)
        else:
            machine = self.machines[place]
            address = machine.client_address
            server = Server(*self.options, "--insecure", "--resp", f"{address}:0", "--http",
                            f"{address}:0", command=(*machine.prefix, STINT, "serve"), **more)
        self.servers.append(self.stack.enter_context(server))
        self.frontends.append(tuple(server.frontends["resp"][0].rsplit(":", 1)))
        return server

    def __enter__(self):
        with contextlib.ExitStack() as self.stack:
            for place in range(self.count):
                self.start(place)
            self.frontends = [(host, int(port)) for host, port in self.frontends]
            self.stack = self.stack.pop_all()
        return self

    def __exit__(self, *fault):
        if fault[0] is not None:
            for server in self.servers:
                print(f"---- stint {server.pid} ----\n{server.log[-1500:]}")
        return self.stack.__exit__(*fault)

    def replace(self, place):
        """kill -9 of that server; another takes its ports."""
        old = self.servers[place]
        old.kill()
        address = ":".join(map(str, self.frontends[place]))
        self.servers[place] = self.stack.enter_context(Server(
            *self.options, "--resp", address, rules=self.rules, env=self.env))

    def crowd(self, requests=None, **options):
        return Crowd(self.frontends, requests or by_rule("fleet", "user", KEYS), **options)

    def readiness(self, server):
        """(status, text) of /readyz."""
        try:
            with urllib.request.urlopen(f"http://{server.frontends['http'][0]}/readyz",
                                        timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()


# ---- What may be claimed ----


def wait_until_served(crowd, frontends, seconds=RECOVERS_S, since_ns=None):
    """Until a take that was sent after this moment has been granted by each server; the seconds."""
    began = since_ns or time.time_ns()

    def all_have():
        return len({one.frontend for one in crowd.snapshot() if one.sent_ns >= began and
                    one.outcome == "allow"}) == frontends
    until(all_have, f"all {frontends} servers grant again; now {errors(crowd.snapshot()[-200:])}",
          seconds, 0.05)
    return (time.time_ns() - began) / S


def wait_until_calm(crowd, seconds=RECOVERS_S):
    """Until nobody has been told an error for half a second."""
    def is_calm():
        since = time.time_ns() - S // 2
        late = [one for one in crowd.snapshot()[-5000:] if one.answered_ns >= since]
        return late and not {"error", "lost"} & set(outcomes(late))
    until(is_calm, f"no errors any more; now {errors(crowd.snapshot()[-200:])}", seconds, 0.1)


def by_store(seen):
    """Those that a store has granted. What a server grants by itself has an instant of its own
    clock, which began with the machine."""
    return [one for one in seen if one.at_ns is not None and not strangers([one])]


def wait_until_only_by_store(crowd, frontends, seconds=RECOVERS_S):
    """Until each server grants again, and nothing in a whole window but what the store grants."""
    def is_so():
        since = time.time_ns() - WINDOW
        late = [one for one in crowd.snapshot()
                if one.answered_ns >= since and one.outcome == "allow"]
        return len(by_store(late)) == len(late) and \
            {one.frontend for one in late} == set(range(frontends))
    until(is_so, "nothing is granted but by the store", seconds, 0.1)


def wait_for_answers(crowd, since_ns, more_than=100):
    """Until so many takes that were sent after that moment are answered; the time then."""
    until(lambda: len(within(crowd.snapshot(), since_ns)) > more_than,
          f"more than {more_than} answers", pause_s=0.05)
    return time.time_ns()


def wait_until_granted(crowd, units, keys=len(KEYS), since_ns=0, window_ns=WINDOW):
    """Until so many units of each of the keys were granted in one window."""
    def least():
        found = by_key(admissions(between(crowd.snapshot(), since_ns)))
        worst = [most_in_any_window(own, window_ns).units for own in found.values()]
        return min(worst) if len(worst) == keys else 0
    until(lambda: least() >= units, f"{units} units of each of {keys} keys in one window",
          pause_s=0.5)


def check_bound(seen, limit=LIMIT, window_ns=WINDOW, tells=True):
    """No key was granted more than that; and not next to nothing, which would prove nothing."""
    granted = admissions(seen)
    faults = excess(granted, limit, window_ns)
    assert not faults, "\n".join(faults)
    assert len(granted) >= 100, outcomes(seen)
    if tells:
        assert not strangers(granted), strangers(granted)[0]


def check_waits(seen, most_ms=WAITS_MAX_MS):
    """Everybody was answered, and soon."""
    outstayed = [one for one in seen if one.answered_ns - one.sent_ns > most_ms * 1e6]
    assert not outstayed, outstayed[:3]
    assert waits_ms(seen, 0.95) <= WAITS_MOST_MS, [waits_ms(seen, s) for s in (0.5, 0.95, 1)]
    assert outcomes(seen)["lost"] == 0, "a server has closed connections"
