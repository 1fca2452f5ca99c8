#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Teams share a model behind Envoy until their budgets of tokens for the month are used up.

Starts stint, Envoy and a model of its own on free ports, sends calls and shows their answers. The
clock of stint is virtual, so that the month can end. Exit code 1 where a budget was not kept: a
call was refused with tokens left, or passed with none left, or the tokens charged are not the
tokens used.
"""
import concurrent.futures
import contextlib
import http.client
import json
import os
import sys
import tempfile
import threading
from datetime import datetime, timezone
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUDGET, AT_ONCE = 20_000, 8
ROUTE = "httproute/llm/chat/rule/0/match/0/*"


def recipe(ports):
    """envoy.yaml with other ports."""
    text = (HERE / "envoy.yaml").read_text()
    for port, other in ports.items():
        assert text.count(f"port_value: {port}}}") == 1
        text = text.replace(f"port_value: {port}}}", f"port_value: {other}}}")
    return text


class Gateway:
    """Envoy before a model, with stint beside it."""

    def __init__(self, stack, *options):
        import model  # here and in tests/interop, which main() names
        from proxies import Proxy, find_envoy
        from server import Server, free_port
        provider = model.serve(0)
        threading.Thread(target=provider.serve_forever, daemon=True).start()
        stack.callback(provider.server_close)
        stack.callback(provider.shutdown)
        self.stint = stack.enter_context(
            Server("--compat", "envoyproxy", "--clock", "virtual", "--rules", HERE / "rules",
                   *options))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = free_port()
        (folder / "envoy.yaml").write_text(recipe({
            10080: port, 8081: self.stint.port("grpc"), 9000: provider.server_address[1]}))
        self.envoy = stack.enter_context(Proxy(
            [find_envoy(), "-c", folder / "envoy.yaml", "--log-level", "warn", "--concurrency", "1",
             "--disable-hot-restart"], port, folder / "envoy.log"))

    def call(self, team, tokens, **more):
        """(status, the tokens that the answer says it has used, its header fields)"""
        request = {"model": "small", "max_completion_tokens": tokens - 2,
                   "messages": [{"role": "user", "content": "two words"}], **more}
        link = http.client.HTTPConnection("127.0.0.1", self.envoy.port, timeout=30)
        with contextlib.closing(link):
            link.request("POST", "/v1/chat/completions", json.dumps(request), {"X-Team-Id": team})
            answer = link.getresponse()
            body = answer.read().decode()
        used = int(body.rpartition('"total_tokens": ')[2].partition("}")[0]) if body else 0
        return answer.status, used, answer.headers

    def left(self, domain, *entries):
        body = {"domain": domain, "cost": 0, "descriptors": [
            {"entries": [{"key": key, "value": value} for key, value in entries]}]}
        return self.stint.post("/v1/peek", body)[1]["remaining"]

    def left_of(self, team):
        return self.left("llm/team-budget", (ROUTE, ROUTE), ("rule-0-match-0", team))

    def left_of_model(self, name):
        return self.left("ai-gateway-quota", ("backend_name", "llm/provider"),
                         ("model_name_override", name))

    def set_clock(self, *date):
        """A virtual clock begins in 1970, and quotas are good for 8 years of it: this is 1971."""
        seconds = int(datetime(*date, tzinfo=timezone.utc).timestamp())
        status, answer = self.stint.post("/v1/clock", {"set": str(seconds * 10**9)})
        assert status == 200, answer


class Demo:
    def __init__(self, gateway, until):
        self.gateway, self.until, self.errors, self.calls_max = gateway, until, [], 10

    def expect(self, holds, text):
        if not holds:
            self.errors.append(text)
            print(f"ERROR: {text}")

    def charged(self, read, expected, what):
        """Envoy reports tokens when the stream is done, after the client has the answer."""
        try:
            self.until(lambda: read() == expected, what)
        except AssertionError:
            self.expect(False, f"{what}: {read()} tokens left, expected {expected}")

    def use_up(self, team, tokens, **more):
        """Calls until one is refused."""
        left = self.gateway.left_of(team)
        for number in range(1, self.calls_max + 1):
            status, used, fields = self.gateway.call(team, tokens, **more)
            self.expect((status == 200) == (left > 0), f"{team}: {status} with {left} tokens left")
            if status != 200:
                print(f"{team:<7}call {number}: {status}, the budget is used up; it is free again "
                      f"in {fields['x-ratelimit-reset']} s")
                return
            self.expect(used == tokens, f"{team}: used {used} instead of {tokens}")
            left = max(0, left - used)
            self.charged(lambda: self.gateway.left_of(team), left, f"{team} after call {number}")
            print(f"{team:<7}call {number}: {status}, {used:,} tokens, {left:,} left")
        self.expect(False, f"{team}: still not refused")

    def at_once(self, team, tokens):
        """Calls side by side when little is left. All that are checked before one is done pass."""
        self.gateway.call(team, BUDGET - 1_000)
        self.charged(lambda: self.gateway.left_of(team), 1_000, f"{team} before calls at once")
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            calls = [pool.submit(self.gateway.call, team, tokens) for _ in range(AT_ONCE)]
            passed = sum(call.result()[0] == 200 for call in calls)
        print(f"{team:<7}1,000 left, {AT_ONCE} calls at once: {passed} passed with "
              f"{passed * tokens:,} tokens")
        self.charged(lambda: self.gateway.left_of(team), 0, f"{team} after calls at once")
        status = self.gateway.call(team, tokens)[0]
        self.expect(passed >= 1 and status == 429, f"{team}: {status} after calls at once")

    def run(self):
        gateway = self.gateway
        print(f"each team has {BUDGET:,} tokens for each calendar month\n\n31 January, 12:00")
        gateway.set_clock(1971, 1, 31, 12)
        self.use_up("red", 6_500)
        self.use_up("blue", 9_000, stream=True)
        self.at_once("green", 2_000)
        print("\n31 January, 23:59:59")
        gateway.set_clock(1971, 1, 31, 23, 59, 59)
        status = gateway.call("red", 10)[0]
        self.expect(status == 429, f"red: {status} in the last second of the month")
        print(f"red    {status}")
        print("\n1 February, 00:00")
        gateway.set_clock(1971, 2, 1)
        self.use_up("red", 12_000, model="large")
        # All teams share the large model; the check of a used-up quota of it never denies, since
        # AI Gateway sets quota_mode: the gateway sends the request to another provider.
        self.charged(lambda: gateway.left_of_model("large"), 30_000 - 24_000, "the large model")
        print(f"the large model has {gateway.left_of_model('large'):,} of 30,000 left today")


def main():
    build = Path(sys.argv[1] if len(sys.argv) > 1 else "build-release").resolve()
    os.environ["STINT_BIN"] = str(build / "src/cmd/stint")
    os.environ.setdefault("STINT_BUILD", str(build))
    sys.path[:0] = [str(HERE), str(ROOT / "tests/interop")]
    from redis_server import until  # its folder is named just above
    with contextlib.ExitStack() as stack:
        demo = Demo(Gateway(stack), until)
        demo.run()
    print("\nevery budget was kept" if not demo.errors else f"\n{len(demo.errors)} errors")
    return 1 if demo.errors else 0


if __name__ == "__main__":
    sys.exit(main())
