# SPDX-License-Identifier: MIT
"""`stint rules explain` and `stint replay --rules`: what rules do to a request, or to a log."""
import json

import pytest

from program import SAMPLE, replay_json, stint

RULES = """\
domain: api
descriptors:
  - key: ip
    rate_limit: {unit: minute, requests_per_unit: 3}
    shadow: {unit: minute, requests_per_unit: 1}
    descriptors:
      - key: path
        value: /login
        rate_limit: {unit: minute, requests_per_unit: 1}
        ban: {after: 2, for: 10m}
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 100, name: base}
  - key: plan
    value: gold
    rate_limit: {unit: hour, requests_per_unit: 1000, replaces: [{name: base}]}
  - key: shut
    rate_limit: {unit: hour, requests_per_unit: 0}
  - key: quiet
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
"""


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return path


def explain(rules, *words, code=0):
    return json.loads(stint("rules", "explain", "--rules", rules, "--json", *words, code=code)[0])


def test_explain_says_which_rules_match(rules):
    said = explain(rules, "api", "ip=192.0.2.1", ",", "user=7", ",", "plan=gold", ",", "nobody=1")
    assert said["outcome"] == "allow"
    ip, user, plan, nobody = said["descriptors"]
    assert (ip["rule"]["path"], ip["rule"]["line"], ip["remaining"]) == ("ip", 3, 2)
    assert ip["shadow"] == {"quota": "window 1/1m resolution=24", "over": False,
                            "retry_after_ns": 0}
    assert user["replaced"] and user["quota"] is None
    assert plan["rule"]["path"] == "plan=gold" and plan["remaining"] == 999
    assert nobody["rule"] is None and nobody["outcome"] == "allow"


def test_explain_says_who_would_deny(rules):
    said = explain(rules, "api", "ip=192.0.2.1", ",", "shut=1", code=3)
    assert said["outcome"] == "never" and said["binding"] == 1
    assert said["retry_after_ns"] is None
    assert [d["over"] for d in said["descriptors"]] == [False, True]
    out, _ = stint("rules", "explain", "--rules", rules, "--cost", "4", "api", "ip=192.0.2.1",
                   code=3)
    assert "denied by 1: never fits" in out


def test_explain_charges_nothing(rules, tmp_path):
    """A replay uses the quotas up; the table that it leaves is looked at, and stays as it is."""
    state = tmp_path / "table"
    replay_json("--rules", rules, "--domain", "api", "--descriptors", "ip=key", "--state", state,
                "--keys", "100", given="0 a\n1 a\n2 a\n")
    before = state.read_bytes()
    for _ in range(3):
        said = explain(rules, "--state", state, "api", "ip=a", code=3)
        assert said["descriptors"][0]["remaining"] == 0
        assert 55 < said["retry_after_ns"] / 1e9 < 65
        assert explain(rules, "--state", state, "api", "ip=b")["descriptors"][0]["remaining"] == 2
    assert state.read_bytes() == before


def test_explain_refuses_what_it_cannot_mean(rules, tmp_path):
    for words in (["api"], [], ["api", ","], ["api", "ip=1", ","], ["api", "=1"]):
        stint("rules", "explain", "--rules", rules, *words, code=2)
    stint("rules", "explain", "api", "ip=1", code=2)
    _, said = stint("rules", "explain", "--rules", rules, "--state", tmp_path / "no", "api", "a=1",
                    code=1)
    assert str(tmp_path / "no") in said
    rules.write_text(RULES.replace("requests_per_unit: 3", "requests_per_unit: x"))
    _, said = stint("rules", "explain", "--rules", rules, "api", "ip=1", code=1)
    assert "rules.yaml:4:" in said


def replay_rules(rules, descriptors, *words, **given):
    said = replay_json("--rules", rules, "--domain", "api", "--descriptors", descriptors, *words,
                       **given)
    return said, {rule["rule"]: rule for rule in said["rules"]}


def test_replay_counts_by_rule(rules):
    said, by_rule = replay_rules(rules, "ip=key;user=key;nobody=key", given="0 a\n1 a\n2 a\n3 a\n"
                                 "4 b\n")
    assert (said["allowed"], said["denied"]) == (4, 1)
    ip, user = by_rule["ip"], by_rule["user"]
    assert (ip["events"], ip["over"], ip["denied"], ip["candidate_over"]) == (5, 1, 1, 3)
    assert (ip["most_admitted"], ip["most_admitted_key"]) == (3, "a")
    assert (user["events"], user["denied"], user["most_admitted"]) == (5, 0, 3)
    assert user["allowed_units"] == 4


def test_replay_knows_shadow_mode_replaced_and_bans(rules):
    _, by_rule = replay_rules(rules, "quiet=key;user=key;plan=key",
                              given="0 gold\n1 gold\n2 silver\n")
    assert (by_rule["quiet"]["over"], by_rule["quiet"]["denied"]) == (1, 0)
    assert by_rule["user"]["replaced"] == 2
    log = [f'192.0.2.1 - - [14/Mar/2026:09:{m:02}:00 +0000] "GET /login HTTP/1.1" 200 1'
           for m in (0, 0, 0, 5, 11)]
    said, by_rule = replay_rules(rules, "ip,path", "--format", "combined", given="\n".join(log))
    # Allowed, denied twice, and so banned for ten minutes.
    assert (said["allowed"], said["denied"]) == (2, 3)
    assert by_rule["ip.path=/login"]["banned"] == 2


def test_rules_decide_as_the_same_quota_does(rules):
    """One rule with one column is one quota with that key: decision by decision."""
    words = ("--format", "combined", "--sort", SAMPLE)
    said, by_rule = replay_rules(rules, "ip", *words)
    plain = replay_json("--quota", "window 3/1m", *words)
    assert said["denied"] == plain["denied"] > 0
    assert said["denied_most"] == plain["denied_most"]
    assert by_rule["ip"]["most_admitted"] == plain["quotas"][0]["most_admitted"]


def test_columns_keep_their_bytes(rules):
    """A plus or a backslash in a column belongs to its value."""
    lines = [json.dumps({"time": i, "a": a, "b": b}) for i, (a, b) in enumerate(
        [("x+y", "z"), ("x", "y+z"), ("x\\", "+"), ("x\\+", "")] * 2)]
    _, by_rule = replay_rules(rules, "quiet=a;user=b", "--format", "jsonl",
                              given="\n".join(lines))
    # Four values of `a`, each twice: over the second time, and never for another's sake.
    assert by_rule["quiet"]["over"] == 4


def test_replay_refuses_what_it_cannot_mean(rules):
    words = ("--rules", rules)
    for more in ([], ["--domain", "api"], ["--domain", "api", "--descriptors", "ip", "--quota",
                                           "1/1s"],
                 ["--domain", "api", "--descriptors", "ip=key", "--plot", "-"]):
        stint("replay", *words, *more, code=2)
    for descriptors, part in (("", "found ''"), ("ip,,path", "found ''"), (";", "found ''"),
                              ("user, ip= ", "found 'ip='"), ("=key", "found '=key'"),
                              (";".join(33 * ["ip"]), "at most 32"),
                              (",".join(33 * ["ip"]), "at most 32 entries"),
                              (",".join("abcdefghi"), "at most 8 different columns")):
        _, said = stint("replay", *words, "--domain", "api", "--descriptors", descriptors, code=2)
        assert "--descriptors" in said and part in said, descriptors
    _, said = stint("replay", *words, "--domain", "api", "--descriptors", "ip,path", given="0 a\n",
                    code=1)
    assert "a trace, which has one column, key; 'ip+path'" in said
    _, said = stint("replay", *words, "--domain", "nope", "--descriptors", "ip=key", code=1)
    assert "nope" in said
