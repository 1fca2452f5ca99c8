# SPDX-License-Identifier: MIT
"""docs/migrate-from-envoyproxy-ratelimit.md, followed from top to bottom, and what it points to."""
import os
import re
import subprocess

import grpc

from program import SOURCE
from rls_messages import OK, OVER_LIMIT, ask_with, descriptor, request
from server import Server, free_port
from test_compat import clean
from transcript import blocks, follow

GUIDE = (SOURCE / "docs/migrate-from-envoyproxy-ratelimit.md").read_text()


def test_the_guide_from_top_to_bottom(tmp_path):
    """In one shell and an empty folder, on ports of this test."""
    assert len(blocks(GUIDE)) > 9
    follow(GUIDE, tmp_path, ("8080", "8081", "6070"), clean())
    log = (tmp_path / "stint.log").read_text()
    assert "stopped" in log and "reload_failed" in log


def test_its_rules_over_grpc(tmp_path):
    """The same file by the protocol that Envoy speaks."""
    rules = re.search(r"<<'YAML'\n(.*?)^YAML$", GUIDE, re.M | re.S)[1]

    def codes(ask, *descriptors, times=1):
        return [ask(request("edge", *descriptors), timeout=20).code for _ in range(times)]

    with Server(rules=rules) as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.port('grpc')}") as channel:
            ask = ask_with(channel)
            address = descriptor(("remote_address", "192.0.2.7"))
            partner = descriptor(("partner", "acme"))
            login = descriptor(("tenant", "gold"), ("path", "/login/now"))
            assert codes(ask, address, times=4) == [OK, OK, OK, OVER_LIMIT]
            assert codes(ask, address, partner, times=6) == [OK] * 5 + [OVER_LIMIT]
            assert codes(ask, login, times=3) == [OK, OK, OVER_LIMIT]
            assert codes(ask, descriptor(("tenant", "gold"), ("path", "/"))) == [OK]
            assert codes(ask, descriptor(("method", "DELETE")), times=3) == [OK] * 3


def test_the_tests_that_it_names_exist():
    named = re.findall(r"`(tests/[\w/]+\.(?:py|c))::(\w+)`", GUIDE)
    assert len(named) > 10
    for path, name in named:
        text = (SOURCE / path).read_text()
        assert re.search(rf"\b{name}\(|TEST\({name}\)", text), f"{path}::{name}"
