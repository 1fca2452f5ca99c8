# SPDX-License-Identifier: MIT
"""docs/envoy-gateway.md, followed from top to bottom as far as a machine without a cluster can."""
import yaml

from builds import INTEROP, go_program
from program import SOURCE
from test_compat import clean
from transcript import blocks, follow

PAGE = (SOURCE / "docs/envoy-gateway.md").read_text()


def test_the_page_from_top_to_bottom(tmp_path):
    assert len(blocks(PAGE)) == 5
    env = {**clean(), "RECORDED": str(INTEROP / "xds/recorded")}
    follow(PAGE, tmp_path, ("18001", "19001", "8080", "8081", "6070"), env,
           [go_program(INTEROP / "xds", "control-plane")])
    log = (tmp_path / "stint.log").read_text()
    assert log.count("xds_accepted") == 2 and "stopped" in log


def test_what_was_recorded_is_of_these_policies():
    """gateway.yaml is as the messages are: every route and every limit of it is in them."""
    sent = (INTEROP / "xds/recorded/limits.bin").read_bytes()
    made = list(yaml.safe_load_all((INTEROP / "xds/gateway.yaml").read_text()))
    routes = [each["metadata"]["name"] for each in made if each["kind"] == "HTTPRoute"]
    policies = [each for each in made if each["kind"] == "BackendTrafficPolicy"]
    rules = [rule for each in policies for rule in each["spec"]["rateLimit"]["global"]["rules"]]
    assert all(f"httproute/default/{name}/".encode() in sent for name in routes)
    # Each rule is a chain of descriptors with one policy, field 3 of a descriptor's end.
    assert len(rules) == 6 and sent.count(b"\x1a\x04\x08") + sent.count(b"\x1a\x05\x08") == 6
