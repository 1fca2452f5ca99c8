# SPDX-License-Identifier: MIT
"""More different rates than a table has entries for: CL.THROTTLE goes on, and rules find theirs."""
import random
import time

import pytest

from measure import MIB, metric, own_memory
from server import Resp, Server

HOUR_S = 3600
RULES = """
domain: edge
descriptors:
  - key: user
    rate_limit: {name: per_user, unit: hour, requests_per_unit: 5}
"""
# Windows and a token bucket, none of which any request has asked for.
NEW_RULES = RULES + "".join(f"""
  - key: new{i}
    rate_limit: {{unit: day, requests_per_unit: {90000 + i}}}
""" for i in range(100)) + """
  - key: bucket
    rate_limit: {unit: day, requests_per_unit: 77777, algorithm: gcra}
"""


class Cell:
    """CL.THROTTLE of redis-cell: one theoretical arrival time per key, whatever the rate."""

    def __init__(self):
        self.arrivals = {}

    def decide(self, key, burst, interval_s, quantity, now_s):
        """(slack, arrival): the command is limited where the slack is negative."""
        arrival = max(self.arrivals.get(key, 0), now_s) + quantity * interval_s
        return now_s + burst * interval_s - arrival, arrival


@pytest.mark.parametrize("quotas", [64, 0])
def test_thousands_of_rates_are_those_of_redis_cell(quotas):
    random.seed(66)
    model, answers = Cell(), []
    with Server("--quotas", quotas) as server, server.connect() as client:
        for _ in range(5000):
            key = f"k{random.randrange(200)}"
            burst, count = random.randint(1, 1000), random.randint(1, 1000)
            period, quantity = random.randint(10, 300_000), random.randint(0, 12)
            now_s = time.monotonic()
            answer = client.throttle(key, burst, count, period, quantity)
            assert isinstance(answer, list), answer
            slack, arrival = model.decide(key, burst, period / count, quantity, now_s)
            if abs(slack) > 1:  # s: further from the border than a command takes
                assert answer[0] == (slack < 0), (burst, count, period, quantity)
            if answer[0] == 0 and quantity > 0:
                model.arrivals[key] = arrival
            answers.append(answer[0])
    assert 500 < sum(answers) < 4500


def told(client, *words):
    answer = client.ask(*words)
    return answer if isinstance(answer, RuntimeError) else dict(zip(answer[::2], answer[1::2]))


def flood(client, commands):
    """How many are answered by an error that says FULL."""
    full = 0
    for at in range(0, len(commands), 500):
        some = commands[at:at + 500]
        client.sock.sendall(b"".join(Resp.encode(*words) for words in some))
        full += sum("FULL" in str(client.read()) for _ in some)
    return full


def test_a_client_of_50000_rates_locks_nobody_out():
    throttles = [("CL.THROTTLE", "evil", 1 + i % 7, 1 + i, HOUR_S) for i in range(25000)]
    specs = [("STINT.TAKE", "QUOTA", f"{kind} {i + 1}/1h", "evil")
             for i in range(8500) for kind in ("fixed_window", "window", "sliding_counter")]
    with Server("--watch", "0", "--workers", 1, rules=RULES) as server, \
            server.connect() as honest, server.connect() as hostile:
        assert told(honest, "STINT.TAKE", "QUOTA", "window 7/1d", "mine")["remaining"] == 6
        assert honest.throttle("mine", 9, 1, HOUR_S)[:3] == [0, 9, 8]
        before = own_memory(server.pid)
        assert flood(hostile, throttles) == 0
        assert flood(hostile, specs) < len(specs)
        assert flood(hostile, specs[-500:]) == 500, "the entries are used up"
        grown = own_memory(server.pid) - before
        # What was in use goes on, and so does every rate of CL.THROTTLE.
        assert told(honest, "STINT.TAKE", "QUOTA", "window 7/1d", "mine")["remaining"] == 5
        assert honest.throttle("mine", 9, 1, HOUR_S)[:3] == [0, 9, 7]
        assert honest.throttle("other", 123, 457, HOUR_S)[:3] == [0, 123, 122]
        assert told(honest, "STINT.TAKE", "QUOTA", "gcra 4321/1d", "other")["remaining"] == 4320
        refused = told(honest, "STINT.TAKE", "QUOTA", "window 4321/1d", "other")
        assert "FULL" in str(refused) and "quotas" in str(refused)
        refused = told(honest, "STINT.RESERVE", "QUOTA", "gcra 4322/1d", "other", "COST", 1,
                       "LIFETIME", 1000)
        assert "FULL" in str(refused)
        # A reload finds room for rules that no one has asked for before.
        server.write_rules(NEW_RULES)
        status, answer = server.post("/v1/reload", {})
        assert status == 200, answer
        take = ("STINT.TAKE", "DOMAIN", "edge", "DESCRIPTOR", 1)
        assert told(honest, *take, "new7", "x")["limit"] == 90007
        assert told(honest, *take, "bucket", "x")["remaining"] == 77776
        assert told(honest, *take, "user", "x")["remaining"] == 4
        used, room = (metric(server.http, f"stint_table_quotas{end}") for end in ("", "_max"))
    assert used < room and room * 3 // 4 <= used
    # Entries in the table and in the process; a build with sanitizers keeps freed memory, too.
    assert grown < 40 * MIB, f"{grown} bytes more"
