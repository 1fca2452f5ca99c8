# SPDX-License-Identifier: MIT
"""Wide states, a `log 500/10m` among them, in a server that was given no setting for them."""
import pytest

from program import stint
from server import Server

SPECS = ["log 500/10m", "buckets 500/10m time_slack=1m count_slack=50"]
TAKEN = [(500, "allow"), (1, "deny")]  # all of it, then one more
FIELDS = {
    SPECS[0]: "algorithm: log, period: 10m, requests_per_unit: 500",
    SPECS[1]: "algorithm: buckets, period: 10m, requests_per_unit: 500, time_slack: 1m, "
              "count_slack: 50",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    config = tmp_path_factory.mktemp("config") / "stint.yaml"
    pools = "".join(f"  - name: pool{i}\n    quotas: ['{spec}']\n    keys: [one]\n"
                    for i, spec in enumerate(SPECS))
    config.write_text("pools:\n" + pools)
    rules = "domain: d\ndescriptors:\n" + "".join(
        f"  - key: k{i}\n    rate_limit: {{{FIELDS[spec]}}}\n" for i, spec in enumerate(SPECS))
    with Server("--config", config, rules=rules) as running:
        yield running


@pytest.mark.parametrize("spec", SPECS)
def test_in_a_command(server, spec):
    with server.connect() as client:
        for cost, outcome in TAKEN:
            answer = client.ask("STINT.TAKE", "QUOTA", spec, "k", "COST", cost)
            assert answer[:2] == ["outcome", outcome]


@pytest.mark.parametrize("spec", SPECS)
def test_in_json(server, spec):
    for cost, outcome in TAKEN:
        answer = server.post("/v1/take", {"quota": spec, "key": "json", "cost": cost})[1]
        assert answer["outcome"] == outcome


@pytest.mark.parametrize("i, spec", enumerate(SPECS))
def test_in_a_rule(server, i, spec):
    with server.connect() as client:
        for cost, outcome in TAKEN:
            answer = client.ask("STINT.TAKE", "DOMAIN", "d", "DESCRIPTOR", 1, f"k{i}", "v", "COST",
                                cost)
            assert answer[:2] == ["outcome", outcome]
    assert "made for at most" not in server.log


@pytest.mark.parametrize("i, spec", enumerate(SPECS))
def test_in_a_pool(server, i, spec):
    for cost, name in ((500, "one"), (1, None)):
        answer = server.post(f"/v1/pools/pool{i}/next", {"cost": cost})[1]
        assert answer.get("key") == name, answer


@pytest.mark.parametrize("spec", SPECS)
def test_in_a_pool_of_the_command(tmp_path, spec):
    keys = tmp_path / "keys"
    keys.write_text("one\n")
    out = stint("pool", "next", "--quota", spec, "--keys", keys, code=None)
    assert "made for at most" not in "".join(out)
