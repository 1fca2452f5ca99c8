# SPDX-License-Identifier: MIT
"""Rows of HTTP: /auth and POST /v1/take against nginx, which counts the same keys."""
import sys
import urllib.error
import urllib.request

from machinery import cpu_us, duel, wrk

AUTH_SCRIPT = """
wrk.headers["X-Key"] = "key"
local n = 0
request = function()
    n = (n * 1103515245 + 12345) %% 2147483648
    wrk.headers["X-Key"] = "key:" .. (n %% 10000)
    return wrk.format("GET", "%s")
end
"""
TAKE_SCRIPT = """
local n = 0
wrk.headers["Content-Type"] = "application/json"
request = function()
    n = (n * 1103515245 + 12345) % 2147483648
    local body = '{"quota":"gcra 1000000/1s","key":"key:' .. (n % 10000) .. '"}'
    return wrk.format("POST", "/v1/take", nil, body)
end
"""
RULES = """
domain: bench
descriptors:
  - key: x-key
    rate_limit: {requests_per_unit: 1000000, unit: second, algorithm: gcra, name: bench}
"""
CONFIG = """
http_domain: bench
http_descriptors: ["header:X-Key"]
"""


def status_of(url, key):
    try:
        request = urllib.request.Request(url, headers={"X-Key": key})
        return urllib.request.urlopen(request, timeout=10).status
    except urllib.error.HTTPError as error:
        return error.code


def check_nginx(nginx):
    """A `return` would answer before limit_req is evaluated; empty_gif does not."""
    once = [status_of(f"http://127.0.0.1:{nginx.ports[0]}/once", key) for key in "aab"]
    if once != [200, 503, 200]:
        sys.exit(f"nginx does not evaluate limit_req by key: {once}")


def rows(servers, turns, seconds):
    (servers.scratch / "rules.yaml").write_text(RULES)
    (servers.scratch / "stint.yaml").write_text(CONFIG)
    for name, text in (("auth", AUTH_SCRIPT % "/auth"), ("root", AUTH_SCRIPT % "/"),
                       ("take", TAKE_SCRIPT)):
        (servers.scratch / f"{name}.lua").write_text(text)
    stint = servers.stint("--config", servers.scratch / "stint.yaml", "--rules",
                          servers.scratch / "rules.yaml")
    nginx = servers.nginx()

    def ask(server, port, path, script):
        return cpu_us(server, lambda: wrk(f"http://127.0.0.1:{port}{path}", seconds,
                                          servers.scratch / f"{script}.lua"))[0]

    check = urllib.request.Request(f"http://127.0.0.1:{stint.ports[1]}/auth",
                                   headers={"X-Key": "check"})
    fields = urllib.request.urlopen(check).headers
    if "RateLimit" not in fields or "RateLimit-Policy" not in fields:
        sys.exit(f"/auth answers without its fields: {fields}")
    check_nginx(nginx)
    found = [
        duel("HTTP /auth with its fields", "nginx limit_req, empty_gif", turns,
             lambda: ask(stint, stint.ports[1], "/auth", "auth"),
             lambda: ask(nginx, nginx.ports[0], "/", "root"), "<= 1.0"),
        duel("POST /v1/take", "nginx limit_req, empty_gif", turns,
             lambda: ask(stint, stint.ports[1], "/v1/take", "take"),
             lambda: ask(nginx, nginx.ports[0], "/", "root"), "<= 1.05"),
    ]
    servers.stop_all()
    return found
