# SPDX-License-Identifier: MIT
"""The recipes of contrib/, in the proxies that they are for, in front of a real application.

Each proxy lets exactly as many requests through as the rule says, and answers the next one with 429
and stint's fields. Files are those that users copy; only addresses are replaced.
"""
import pytest

import proxies
from proxies import OPTIONS, PROXIES, TRAEFIK, Application, application  # noqa: F401 (a fixture)
from server import Server

LIMIT = 5
RULES = f"""\
domain: web
descriptors:
  - key: remote_address
    rate_limit: {{unit: hour, requests_per_unit: {LIMIT}, name: per-address}}
  - key: path
    value: /login
    rate_limit: {{unit: hour, requests_per_unit: 2, name: logins}}
"""


@pytest.mark.parametrize("proxy", PROXIES)
def test_429_comes_at_exactly_the_limit(proxy, application, tmp_path):
    with Server(*OPTIONS, rules=RULES) as server, \
            proxy(tmp_path, [server.http], application) as front:
        for left in range(LIMIT - 1, -1, -1):
            status, fields, text = front.ask(f"/page/{left}?q=1")
            assert (status, text) == (200, f"/page/{left}?q=1")
            assert fields["RateLimit-Policy"] == f'"per-address";q={LIMIT};w=3600'
            assert fields["RateLimit"].split(";")[:2] == ['"per-address"', f"r={left}"]
        status, fields, _ = front.ask("/page")
        assert status == 429
        assert fields["RateLimit-Policy"] == f'"per-address";q={LIMIT};w=3600'
        assert fields["RateLimit"].split(";")[:2] == ['"per-address"', "r=0"]
        assert 3600 <= int(fields["Retry-After"]) <= 3600 * 25 / 24 + 1
        # What is refused never reaches the application.
        assert len(Application.served) == LIMIT


@pytest.mark.parametrize("proxy", PROXIES)
def test_a_client_cannot_speak_for_others(proxy, application, tmp_path):
    """The fields that tell of a client are the proxy's: what a client writes there is no evidence.
    """
    lies = [{"X-Forwarded-For": "203.0.113.7"}, {"Forwarded": "for=203.0.113.8"},
            {"X-Original-URI": "/other"}, {"X-Forwarded-Uri": "/other"},
            {"X-Forwarded-For": "203.0.113.9", "Forwarded": "for=1.2.3.4"}]
    with Server(*OPTIONS, rules=RULES) as server, \
            proxy(tmp_path, [server.http], application) as front:
        assert [front.ask("/x", headers=lie)[0] for lie in lies] == [200] * LIMIT
        assert front.ask("/x", headers=lies[0])[0] == 429


@pytest.mark.parametrize("proxy", PROXIES)
def test_visitors_who_follow_a_link_from_another_site_are_asked_about(proxy, application, tmp_path):
    """Proxies pass on what browsers say of a page, and Host; neither is the proxy's own."""
    fields = {"Origin": "https://other.example", "Sec-Fetch-Site": "cross-site"}
    if proxy is not proxies.caddy:  # Caddy answers for the host of its configuration alone
        fields["Host"] = "www.example.com"
    with Server(*OPTIONS, rules=RULES) as server, \
            proxy(tmp_path, [server.http], application) as front:
        status, told, text = front.ask("/x", headers=fields)
        assert (status, text) == (200, "/x")
        assert told["RateLimit"].split(";")[:2] == ['"per-address"', f"r={LIMIT - 1}"]


@pytest.mark.parametrize("proxy", PROXIES)
def test_a_path_has_one_limit_however_it_is_spelt(proxy, application, tmp_path):
    with Server(*OPTIONS, rules=RULES) as server, \
            proxy(tmp_path, [server.http], application) as front:
        assert front.ask("/login")[0] == 200
        assert front.ask("//%6Cogin?again")[0] == 200
        status, fields, _ = front.ask("/login", "POST", b"user=1")
        assert status == 429
        assert '"logins";r=0' in fields["RateLimit"]
        assert front.ask("/else")[0] == 200


@pytest.mark.parametrize("proxy", PROXIES)
def test_the_application_s_own_answers_go_through(proxy, application, tmp_path):
    with Server(*OPTIONS, rules=RULES) as server, \
            proxy(tmp_path, [server.http], application) as front:
        assert front.ask("/forbidden")[::2] == (403, "/forbidden")
        assert front.ask("/big", "POST", b"x" * 300000)[::2] == (200, "/big")
        assert Application.served == [("GET", "/forbidden", 0), ("POST", "/big", 300000)]
