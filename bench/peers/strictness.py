# SPDX-License-Identifier: MIT
"""The most that a limiter admits in any window, found from outside in real time.

Requests are sent in batches. All grants of a batch lie between the time before it was sent and the
time after its reply. Batches that lie in one window as a whole are counted; those that only touch
it are not. So the figure is never more than what was admitted, by however much a reply was late:
a limiter that is strict shows no more than its limit. It can be less, by what a batch granted that
began or ended outside.
"""
import random
import time

SEEDS = (1, 2, 3)
# How long before and after an edge requests are sent. Windows that start with the first request of
# a key end as much later than those of the wall clock as that request was after the edge.
BEFORE_EDGE_S = 0.030
FIRST_USE_S = 0.004
AFTER_EDGE_S = 0.012


def most_in_any_window(batches, window_s):
    """`batches`: (sent, replied, granted) in order of time, none overlapping another. The most that
    was granted in any half-open window."""
    most = total = first = 0
    for _, replied, granted in batches:
        total += granted
        while first < len(batches) and batches[first][0] <= replied - window_s:
            total -= batches[first][2]
            first += 1
        most = max(most, total)
    return most


class Asker:
    """Asks for one key, and keeps what was granted when."""

    def __init__(self, ask, key):
        self.ask, self.key, self.batches = ask, key, []

    def burst(self, n):
        sent = time.monotonic()
        granted = self.ask(self.key, n)
        self.batches.append((sent, time.monotonic(), granted))

    def steady(self, seconds, every_s, n=1):
        """A late batch delays no other."""
        start = time.monotonic()
        for count in range(int(seconds / every_s)):
            sleep_until(start + count * every_s)
            self.burst(n)


def sleep_until(when):
    time.sleep(max(0.0, when - time.monotonic()))


def edge(asker, limit, window_s, seed):
    """A burst just before a window of the wall clock, or of the key's first use, ends, and one just
    after. `seed` only shifts them: an edge may be where neither clock has it."""
    shift = (seed - 1) * 0.4 * window_s
    now = time.time()
    start = time.monotonic() + (window_s - (now - shift) % window_s)
    sleep_until(start + FIRST_USE_S)
    asker.burst(1)
    sleep_until(start + window_s - BEFORE_EDGE_S)
    asker.burst(2 * limit)
    sleep_until(start + window_s + FIRST_USE_S + AFTER_EDGE_S)
    asker.burst(2 * limit)


def burst_then_steady(asker, limit, window_s, seed):
    """What a bucket holds, then what refills: asked for at twice the rate, so that none is late."""
    del seed
    asker.burst(2 * limit)
    asker.steady(1.2 * window_s, window_s / limit / 2)


def saturate(asker, limit, window_s, seed):
    """Far more than the limit at all times but for pauses, from random phases on."""
    chance = random.Random(seed)
    end = time.monotonic() + 4 * window_s
    while time.monotonic() < end:
        time.sleep(chance.uniform(0, 1.1) * window_s)
        asker.steady(chance.uniform(0.1, 1.2) * window_s, window_s / 150,
                     chance.choice([1, 2, limit]))


PATTERNS = {"edge": edge, "burst, then steady": burst_then_steady, "saturated": saturate}


def attack(ask, limit=100, window_s=1.0, seeds=SEEDS):
    """The most that `ask(key, n) -> granted` admitted of `limit` in any window, by pattern."""
    found = {}
    for name, pattern in PATTERNS.items():
        most = 0
        for seed in seeds:
            asker = Asker(ask, f"{name[:4]}{seed}".replace(",", ""))
            pattern(asker, limit, window_s, seed)
            most = max(most, most_in_any_window(asker.batches, window_s))
        found[name] = most
    return found
