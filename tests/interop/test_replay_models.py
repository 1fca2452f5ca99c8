# SPDX-License-Identifier: MIT
"""`stint replay` over whole logs, against counts made here without the engine."""
import collections
import datetime
import fractions
import pathlib
import random
import re

import pytest

from program import ACCESS, HOUR, NS, SAMPLE, replay_decisions, replay_json

LOG_LINE = re.compile(rb'^(\S+) \S+ .*?\[(.{26})\] "(?:[^"\\]|\\.)*" \d{3} (?:\d+|-)')


def log_events(path):
    """(seconds since 1970, address) of every line, by other means than the program's."""
    events = []
    for line in path.read_bytes().splitlines():
        host, date = LOG_LINE.match(line).groups()
        at = datetime.datetime.strptime(date.decode(), "%d/%b/%Y:%H:%M:%S %z")
        host = host.decode()
        events.append((int(at.timestamp()), host[7:] if host.startswith("::ffff:") else host))
    return events


def as_decided(events, in_order):
    """The events with the times at which they are decided, in nanoseconds."""
    if in_order:
        events = sorted(events, key=lambda event: event[0])
    latest, decided = 0, []
    for at_s, key in events:
        latest = max(latest, at_s * NS)
        decided.append((latest, key))
    return decided


class ExactLog:
    """Remembers every use: at most `limit` in any (t-W, t]."""

    def __init__(self, limit, period_ns):
        self.limit, self.period_ns = limit, period_ns
        self.uses = collections.defaultdict(collections.deque)

    def take(self, key, now_ns):
        uses = self.uses[key]
        while uses and uses[0] + self.period_ns <= now_ns:
            uses.popleft()
        if len(uses) >= self.limit:
            return False
        uses.append(now_ns)
        return True


class TokenBucket:
    """Continuous refill in exact fractions; T in 1/32 ns rounded up, as the law says."""

    def __init__(self, burst, limit, period_ns):
        self.interval_ns = fractions.Fraction(-(-period_ns * 32 // limit), 32)
        self.burst = burst
        self.free_at = {}

    def take(self, key, now_ns):
        arrival = max(self.free_at.get(key, 0), now_ns) + self.interval_ns
        if arrival > now_ns + self.burst * self.interval_ns:
            return False
        self.free_at[key] = arrival
        return True


def most_in_any_window(uses, period_ns):
    """Two pointers over sorted times."""
    most = first = 0
    for last, at_ns in enumerate(uses):
        while uses[first] + period_ns <= at_ns:
            first += 1
        most = max(most, last - first + 1)
    return most


LOGS = [SAMPLE] + ([ACCESS] if ACCESS.exists() else [])
log_and_order = pytest.mark.parametrize(
    "path,in_order", [(path, order) for path in LOGS for order in (False, True)],
    ids=lambda value: value.name if isinstance(value, pathlib.Path) else
    "sorted" if value else "as_it_is")


def replay_log(spec, path, in_order):
    options = [] if in_order else ["--no-sort"]
    return replay_decisions("--quota", spec, "--format", "combined", *options, path)


@log_and_order
@pytest.mark.parametrize("limit,spec,model", [
    (100, "log 100/1h", lambda: ExactLog(100, HOUR)),
    (20, "log 20/5m", lambda: ExactLog(20, 300 * NS)),
    (10, "gcra 10/30s burst=15", lambda: TokenBucket(15, 10, 30 * NS)),
    (25, "gcra 25/1h", lambda: TokenBucket(25, 25, HOUR)),
])
def test_replay_decides_as_an_independent_model(path, in_order, limit, spec, model):
    """Every single decision over a whole log is the one that a model in fractions takes."""
    events = as_decided(log_events(path), in_order)
    lines = replay_log(spec, path, in_order)
    assert len(lines) == len(events)
    oracle, denied = model(), 0
    for (now_ns, key), fields in zip(events, lines):
        allowed = oracle.take(key, now_ns)
        assert fields[1] == key
        assert fields[3] == ("allow" if allowed else "deny")
        assert fields[4] == ("1" if allowed else "0")
        denied += not allowed
    assert denied > 0, "a log that is never limited shows nothing"


@log_and_order
@pytest.mark.parametrize("limit,period_ns,spec", [(100, HOUR, "100/1h"), (20, 300 * NS, "20/5m")])
def test_replay_of_the_window_is_strict_and_its_denials_are_justified(
        path, in_order, limit, period_ns, spec):
    """Never over N in any window, and a denial only where U_{W+O} + c > N - q + 1."""
    events = as_decided(log_events(path), in_order)
    lines = replay_log(spec, path, in_order)
    bunch, slot_ns = -(-limit // 24), -(-period_ns // 24)
    admitted = collections.defaultdict(list)
    for (now_ns, key), fields in zip(events, lines):
        if fields[3] == "allow":
            admitted[key].append(now_ns)
        else:
            used = sum(now_ns - at_ns < period_ns + slot_ns for at_ns in admitted[key])
            assert used + 1 > limit - bunch + 1
    assert max(most_in_any_window(uses, period_ns) for uses in admitted.values()) <= limit
    assert any(fields[3] == "deny" for fields in lines)


@log_and_order
def test_the_summary_agrees_with_a_count_of_the_decisions(path, in_order):
    """Events, keys, denials, the keys denied most and the exact count, recounted here."""
    options = [] if in_order else ["--no-sort"]
    told = replay_json("--quota", "100/1h", "--format", "combined", *options, path)
    lines = replay_log("100/1h", path, in_order)
    events = as_decided(log_events(path), in_order)
    denied, admitted = collections.Counter(), collections.defaultdict(list)
    for (now_ns, key), fields in zip(events, lines):
        if fields[3] == "allow":
            admitted[key].append(now_ns)
        else:
            denied[key] += 1
    assert told["events"] == len(events)
    assert told["keys"] == len({key for _, key in events})
    assert told["allowed"] == sum(map(len, admitted.values()))
    assert told["denied"] == sum(denied.values())
    assert told["malformed"] == 0
    assert [entry["denied_units"] for entry in told["denied_most"]] == sorted(
        denied.values(), reverse=True)[:10]
    assert all(denied[entry["key"]] == entry["denied_units"] for entry in told["denied_most"])
    quota = told["quotas"][0]
    assert quota["most_admitted"] == max(
        most_in_any_window(uses, HOUR) for uses in admitted.values())
    assert quota["most_admitted"] == most_in_any_window(
        admitted[quota["most_admitted_key"]], HOUR)


def test_the_exact_count_of_weighted_costs():
    """The most in any window, by an own count, for random costs and several quotas."""
    rng = random.Random(7)
    at_ns, trace = 0, []
    for _ in range(3000):
        at_ns += rng.choice([0, 0, 1, 999_999, 30_000_000, 700_000_000])
        trace.append((at_ns, rng.choice("abc"), rng.randrange(0, 6)))
    text = "".join(f"{at // NS}.{at % NS:09} {key} {cost}\n" for at, key, cost in trace)
    quotas = [("gcra 10/1s burst=40", NS), ("window 60/7s", 7 * NS)]
    specs = [word for spec, _ in quotas for word in ("--quota", spec)]
    told = replay_json(*specs, given=text)
    lines = replay_decisions(*specs, given=text)
    for (spec, period_ns), quota in zip(quotas, told["quotas"]):
        most = 0
        for key in "abc":
            runs = [(at, int(fields[4])) for (at, k, _), fields in zip(trace, lines) if k == key]
            first = units = 0
            for at, granted in runs:
                units += granted
                while runs[first][0] + period_ns <= at:
                    units -= runs[first][1]
                    first += 1
                most = max(most, units)
        assert quota["most_admitted"] == most
        assert 0 < most <= quota["max_in_any_window"]
