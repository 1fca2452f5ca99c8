# SPDX-License-Identifier: MIT
"""What clients say makes no series: /metrics has those of the rules, however many keys there are.

Quotas are of a day, so that real time gives nothing back meanwhile.
"""
import http.client
import signal

from measure import metrics
from server import Resp, Server

RULES = """
domain: edge
descriptors:
  - key: user
    rate_limit: {name: per_user, unit: day, requests_per_unit: 5}
  - key: path
    detailed_metric: true
    rate_limit: {unit: day, requests_per_unit: 5}
"""
STRANGE = 1500


def questions(n):
    """Words that nobody has said before, wherever a client may put some."""
    key = f"stranger-{n}"
    return [("CL.THROTTLE", key, 4, 1, 3600),
            ("STINT.TAKE", "QUOTA", f"gcra {n % 20 + 1}/1h", key),
            ("STINT.TAKE", "DOMAIN", "edge", "DESCRIPTOR", 1, "user", key),
            ("STINT.TAKE", "DOMAIN", key, "DESCRIPTOR", 1, "user", "x"),
            ("STINT.TAKE", "DOMAIN", "edge", "DESCRIPTOR", 1, key, "x"),
            ("STINT.TAKE", "QUOTA", key, "x"),
            ("STINT.POOL", "NEXT", key),
            ("CLIENT", "SETNAME", key),
            (key, "x")]


def ask_all(client, numbers):
    for number in numbers:
        asked = questions(number)
        client.sock.sendall(b"".join(Resp.encode(*words) for words in asked))
        for _ in asked:
            client.read()


def ask_http(port, numbers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    for number in numbers:
        for method, path in (("GET", f"/strange-{number}"), ("POST", f"/v1/strange-{number}"),
                             (f"STRANGE{number}", "/auth")):
            connection.request(method, path, headers={"User-Agent": f"agent-{number}"})
            answer = connection.getresponse()
            answer.read()
            assert 400 <= answer.status < 500 or answer.status == 501, (method, path, answer.status)


def test_strangers_make_no_series():
    with Server("--workers", 1, rules=RULES) as server, server.connect() as client:
        ask_all(client, range(20))
        ask_http(server.http, range(20))
        before = metrics(server.http).keys()
        ask_all(client, range(20, STRANGE))
        ask_http(server.http, range(20, STRANGE // 10))
        more = metrics(server.http).keys() - before
        assert not more, sorted(more)[:10]


def test_values_that_a_rule_tells_apart_have_an_end():
    with Server("--workers", 1, rules=RULES) as server, server.connect() as client:
        n = 5000
        for at in range(0, n, 500):
            client.sock.sendall(b"".join(
                Resp.encode("STINT.TAKE", "DOMAIN", "edge", "DESCRIPTOR", 1, "path", f"/{number}")
                for number in range(at, at + 500)))
            for _ in range(500):
                assert client.read()[1] == "allow"
        told = {labels: value for (name, labels), value in metrics(server.http).items()
                if name == "stint_detailed_decisions_total" and 'outcome="allow"' in labels}
        assert 100 < len(told) < n / 2, len(told)
        assert sum(told.values()) == n
        other = [value for labels, value in told.items() if 'value="other"' in labels]
        assert len(other) == 1 and other[0] == n - (len(told) - 1)


def rules_of(turn):
    return "domain: edge\ndescriptors:\n" + "".join(
        f"  - {{key: turn{turn}_{i}, rate_limit: {{unit: day, requests_per_unit: 5}}}}\n"
        for i in range(300))


def test_rules_that_are_gone_and_were_never_asked_are_not_told():
    with Server("--workers", 1, "--watch", "0", rules=rules_of(0)) as server:
        for turn in range(1, 11):
            server.write_rules(rules_of(turn))
            server.tell(signal.SIGHUP)
            server.wait_for("info reloaded", times=turn)
        rules = {labels.split('rule="')[1].split('"')[0] for name, labels in metrics(server.http)
                 if name == "stint_decisions_total" and 'domain="edge"' in labels}
        assert rules == {f"turn10_{i}" for i in range(300)}
