# SPDX-License-Identifier: MIT
"""rules check and rules show, as whoever keeps the files uses them; and what docs/rules.md says."""
import json
import os
import re
import subprocess

import pytest

from program import SOURCE, STINT, stint
from server import Server

GUIDE = SOURCE / "docs/rules.md"
EXAMPLES = SOURCE / "examples/rules"

GOOD = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 5}}]\n"
BAD = "domain: e\ndescriptors:\n- key: k\n  rate_limt: {}\n"


def show(*args, **given):
    return json.loads(stint("rules", "show", "--json", *args, **given)[0])


# ---- check --------------------------------------------------------------------------------------

def test_the_examples_are_without_fault():
    out, err = stint("rules", "check", EXAMPLES)
    assert re.fullmatch(r"\d+ rules in 1 domain, 1 file: no fault\n", out) and err == ""


def test_each_fault_has_its_file_line_and_column(tmp_path):
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text(BAD)
    out, err = stint("rules", "check", tmp_path, code=1)
    assert err == ""
    assert out == (f"{tmp_path}/b.yaml:4:3: unknown key \"rate_limt\" in an entry; did you mean "
                   "\"rate_limit\"?\n1 fault in 2 files\n")


def test_faults_as_json(tmp_path):
    path = tmp_path / "b.yaml"
    path.write_text(BAD)
    faults = json.loads(stint("rules", "check", "--json", path, code=1)[0])
    assert faults == [{"file": str(path), "line": 4, "column": 3, "message":
                       "unknown key \"rate_limt\" in an entry; did you mean \"rate_limit\"?"}]
    path.write_text(GOOD)
    assert json.loads(stint("rules", "check", "--json", path)[0]) == []


def test_what_loads_and_is_perhaps_not_meant_is_warned_of():
    odd = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day}}]\n"
    sentence = "rate_limit has no requests_per_unit, which means 0: it denies always"
    assert stint("rules", "check", "-", given=odd)[0] == (
        f"-:2:36: warning: {sentence}\n1 rule in 1 domain, 1 file: no fault, 1 warning\n")
    assert json.loads(stint("rules", "check", "--json", "-", given=odd)[0]) == [
        {"file": "-", "line": 2, "column": 36, "message": sentence, "warning": True}]


def test_standard_input_is_a_file_like_others():
    assert stint("rules", "check", "-", given=GOOD)[0] == "1 rule in 1 domain, 1 file: no fault\n"
    out, _ = stint("rules", "check", "-", given=BAD, code=1)
    assert out.startswith("-:4:3: ")


def test_what_stands_in_a_file_does_not_steer_the_terminal(tmp_path):
    path = tmp_path / "a\x1b[31m.yaml"
    path.write_text("domain: \"\\e[2Jd\\n\"\n\"\\e[1m\": x\n")
    out, _ = stint("rules", "check", path, code=1)
    assert "\x1b" not in out and out.count("\n") == 2
    path.write_text("domain: \"\\e[2Jd\"\ndescriptors: [{key: \"\\e[1m\", rate_limit: "
                    "{name: \"\\a\", unlimited: on}}]\n")
    out, _ = stint("rules", "show", path)
    assert "\x1b" not in out and "\x07" not in out


# ---- Paths --------------------------------------------------------------------------------------

def test_a_folder_is_read_in_the_order_of_names(tmp_path):
    for name in ("b.yml", "a.yaml", "c.yaml", "10.yaml"):
        (tmp_path / name).write_text(f"domain: {name}\n")
    (tmp_path / "notes.txt").write_text("no rules")
    (tmp_path / ".hidden.yaml").write_text("no: rules")
    (tmp_path / "more.yaml").mkdir()
    (tmp_path / "more.yaml" / "x.yaml").write_text("no: rules")
    out, _ = stint("rules", "show", tmp_path)
    assert re.findall(r"^domain (.*)$", out, re.M) == ["10.yaml", "a.yaml", "b.yml", "c.yaml"]


def test_a_mounted_config_map_is_read_once(tmp_path):
    """As Kubernetes lays it out: a folder with a date, a link ..data to it, a link to each file."""
    data = tmp_path / "..2024_01_01_00_00_00.123"
    data.mkdir()
    (data / "edge.yaml").write_text(GOOD)
    (tmp_path / "..data").symlink_to(data.name)
    (tmp_path / "edge.yaml").symlink_to("..data/edge.yaml")
    assert [rule["file"] for rule in show(tmp_path)] == [f"{tmp_path}/edge.yaml"]


def test_what_lifts_all_limits_is_refused(tmp_path):
    """A folder that was swapped for an empty one, or files without a limit, unless that is said."""
    def check(said, *paths):
        out, err = stint("rules", "check", *paths, code=1)
        assert out == "" and said in err and "--rules-may-be-empty" in err
        return stint("rules", "check", "--rules-may-be-empty", *paths)[0]

    assert check("found none", tmp_path) == "0 rules in 0 domains, 0 files: no fault\n"
    (tmp_path / ".edge.yaml").write_text(GOOD)
    (tmp_path / "edge.yaml.off").write_text(GOOD)
    (tmp_path / "folder.yaml").mkdir()
    check("found none", tmp_path)
    (tmp_path / "bare.yaml").write_text("domain: bare\n")
    check("found no limit", tmp_path)
    (tmp_path / "bare.yaml").write_text("domain: bare\ndescriptors: []\n")
    check("found no limit", tmp_path)
    (tmp_path / "edge.yaml").write_text(GOOD)
    assert "no fault" in stint("rules", "check", tmp_path)[0]
    check("found none", tmp_path, tmp_path / "folder.yaml")  # one of two folders is empty
    for text in ("", "---\n", "# limits: none\n"):
        (tmp_path / "edge.yaml").write_text(text)
        assert "found nothing" in stint("rules", "check", tmp_path, code=1)[0]


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    missing = tmp_path / "missing.yaml"
    for command in ("check", "show"):
        out, err = stint("rules", command, missing, code=1)
        assert out == "" and err == (
            f"stint: cannot read {missing}: No such file or directory; check the path and its "
            "folder\n")
    (tmp_path / "dangling.yaml").symlink_to("nowhere")
    assert "dangling.yaml" in stint("rules", "check", tmp_path, code=1)[1]


def test_a_file_has_an_end(tmp_path):
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate((16 << 20) + 1)
    _, err = stint("rules", "check", path, code=1)
    assert err == f"stint: {path}: expected a file of at most 16777216 bytes\n"
    stint("rules", "check", "/dev/zero", code=1)


def test_a_domain_in_two_files_is_a_fault_unless_it_may_be(tmp_path):
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text(GOOD.replace("k,", "l,"))
    out, _ = stint("rules", "check", tmp_path, code=1)
    assert f"\"d\" is there already, in line 1 of {tmp_path}/a.yaml" in out
    assert len(show("--merge-domains", tmp_path)) == 2


# ---- show ---------------------------------------------------------------------------------------

def test_metadata_is_shown():
    rules = ("domain: d\ndescriptors:\n- key: k\n"
             "  metadata: {tier: gold, to: [1, {a: \"\\x7f\"}]}\n"
             "  rate_limit: {unlimited: true}\n")
    assert show("-", given=rules)[0]["metadata"] == {"tier": "gold", "to": [1, {"a": "\x7f"}]}
    assert ('  tells   {"tier":"gold","to":[1,{"a":"\\u007f"}]}\n'
            in stint("rules", "show", "-", given=rules)[0])


def test_a_rule_is_shown_with_all_that_belongs_to_it():
    rules = {rule["path"]: rule for rule in show(EXAMPLES)}
    address, login = rules["remote_address"], rules["path=/login.remote_address"]
    assert address["limit"] == {"spec": "window 100/1m resolution=24", "max_in_any_window": 100,
                                "strict": True, "when_full": None}
    assert address["shadow"]["spec"] == "gcra 60/1m burst=20"
    assert not address["shadow"]["strict"]
    assert address["shadow"]["max_in_any_window"] == 79
    assert login["ban"] == {"after": 10, "factor": 2, "within_ns": 600 * 10**9,
                            "for_ns": 900 * 10**9, "max_ns": 86400 * 10**9}
    assert login["metadata"] is None and address["metadata"] is None
    assert login["name"] == "login" and login["requests_per_unit"] == 5
    assert rules["remote_address=192.0.2.10"]["limit"] is None
    assert rules["path=/download/*"]["share_threshold"]
    assert rules["account"]["limit"]["spec"] == "fixed_window 1000000/1mo align=calendar"
    assert rules["account"]["on_store_error"] == "allow"
    lines = (EXAMPLES / "edge.yaml").read_text().splitlines()
    for rule in rules.values():
        key = re.split("[=.]", rule["path"].split(".")[-1] if rule["path"].startswith("path=/login")
                       else rule["path"])[0]
        assert lines[rule["line"] - 1].strip().startswith("- key: "), key
        assert rule["column"] == lines[rule["line"] - 1].index("key") + 1


SHARED = ("""domain: my shop
store_tag: first
descriptors:
  - key: ip
    rate_limit: {unit: minute, requests_per_unit: 300, store: fast, lease: strict,
                 on_store_error: local, local_for: 10m}
    shadow: {unit: minute, requests_per_unit: 50}
  - key: plain
    rate_limit: {unit: minute, requests_per_unit: 100}
""")


def test_a_store_is_shown_with_what_holds_while_it_is_away():
    out, _ = stint("rules", "show", "-", given=SHARED)
    assert ("""
  store   fast, as my%20shop/ip, tagged by the first value
          local while it does not answer: this node's share for 10m, used at first, then deny
  lease   strict, at most 3 units for 3s
""") in out
    assert out.count("  store   ") == 1
    address, plain = show("--store", "default", "--store", "fast", "-", given=SHARED)
    assert address["store"] == "fast" and address["store_rule"] == "my%20shop/ip"
    assert address["store_shadow_rule"] == "my%20shop/ip@@shadow"
    assert address["local"] == {"start": "full", "for_ns": 600 * 10**9, "then": "deny"}
    assert address["lease"] == {"kind": "strict", "units": 3, "term_ns": 3 * 10**9}
    assert plain["store"] == "default" and plain["store_tag"] == "first"
    assert plain["local"] is None and plain["lease"] is None
    assert show("-", given=SHARED)[1]["store"] is None


def test_stores_that_rules_may_name_are_told():
    out, _ = stint("rules", "check", "--store", "default", "-", given=SHARED, code=1)
    assert out == ('-:5:63: store: there is no store "fast"; expected default, none\n'
                   "1 fault in 1 file\n")
    assert stint("rules", "check", "-", given=SHARED)[0].endswith("no fault\n")


def test_explain_says_that_a_store_was_not_asked(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(SHARED)
    words = ("--rules", path, "my shop", "ip=1")
    assert "   store   fast, which was not asked\n" in stint("rules", "explain", *words)[0]
    (told,) = json.loads(stint("rules", "explain", "--json", *words)[0])["descriptors"]
    assert told["rule"]["store"] == "fast"


def test_the_text_says_the_worst_case():
    out, _ = stint("rules", "show", EXAMPLES)
    assert "  limit   window 100/1m resolution=24\n          At most 100 units in any 1m." in out
    assert "3000000 in 31 days around a February" in out
    assert "after 10 denials within 10m, for 15m, each time 2 times as long, at most 1d" in out


def test_a_spec_that_is_shown_is_understood():
    for rule in show(EXAMPLES):
        if rule["limit"]:
            stint("explain", rule["limit"]["spec"])


def test_faults_leave_nothing_to_show():
    out, err = stint("rules", "show", "-", given=BAD, code=1)
    assert out == "" and err.startswith("-:4:3: unknown key")


def test_the_law_of_limits_that_name_none():
    (rule,) = show("--default-algorithm", "token_bucket", "-", given=GOOD)
    assert rule["limit"]["spec"] == "gcra 5/1d"


@pytest.mark.parametrize("arguments,told", [
    ((), "expected a subcommand; `stint help rules` lists them all"),
    (("chek",), "there is no command 'rules chek'; did you mean 'check'?"),
    (("check",), "expected the PATH of a file of rules"),
    (("check", "--jsn", "-"), "has no option '--jsn'; did you mean '--json'?"),
    (("show", "--default-algorithm=windw", "-"), "there is no 'windw'; did you mean 'window'?"),
    (("show", "--default-algorithm=concurrency", "-"), "concurrency is not per time"),
])
def test_bad_usage(arguments, told):
    assert told in stint("rules", *arguments, code=2)[1]


def test_help():
    out, _ = stint("help", "rules")
    assert re.findall(r"^  (\w+) ", out, re.M)[:2] == ["check", "show"]
    assert "Usage: stint rules check" in stint("help", "rules", "check")[0]
    assert "Usage: stint rules show" in stint("rules", "show", "--help")[0]


def test_explain_says_why_a_wait_may_be_longer_than_the_period(tmp_path):
    rules, state = tmp_path / "rules.yaml", tmp_path / "state"
    rules.write_text("domain: a\ndescriptors:\n  - key: user\n"
                     "    rate_limit: {unit: minute, requests_per_unit: 3}\n")
    with Server("--state", state, "--rules", rules) as server:
        stint("take", "--server", server.url(""), "--cost", 3, "--domain", "a", "user=ann")
        out = stint("rules", "explain", "--rules", rules, "--state", state, "a", "user=ann",
                    code=3)[0]
    assert "   slack   Used units return after at most 1m" in out and "Retry-After can be 6" in out
    assert "slack" not in stint("rules", "explain", "--rules", rules, "a", "user=ann")[0]


def test_explain_of_a_table_takes_no_name_in_a_folder_of_all(tmp_path):
    """A folder in the place of a file could not be replaced."""
    state, rules = tmp_path / "state", tmp_path / "rules.yaml"
    rules.write_text("domain: a\ndescriptors:\n  - {key: user, rate_limit: {unit: minute, "
                     "requests_per_unit: 3}}\n")
    stint("replay", "--quota", "5/1s", "--state", state, given="1 a\n")
    done = subprocess.run(["sh", "-c", 'mkdir "$TMPDIR/stint-explain-$$"; exec "$0" "$@"', STINT,
                           "rules", "explain", "--rules", rules, "--state", state, "a", "user=b"],
                          env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True,
                          timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert {path.name.rstrip("0123456789") for path in tmp_path.iterdir()} == \
        {"state", "rules.yaml", "stint-explain-"}


# ---- The guide ----------------------------------------------------------------------------------

def guide_blocks():
    """Each file of rules in the guide, with the text that the guide has below it, if any."""
    found = re.findall(r"^```yaml\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", GUIDE.read_text(),
                       re.M | re.S)
    return [pytest.param(*block, id=block[0].splitlines()[0]) for block in found]


@pytest.mark.parametrize("file,told", guide_blocks())
def test_a_file_of_the_guide(file, told):
    """Loads, or has the faults that the guide shows."""
    out, _ = stint("rules", "check", "-", given=file, code=1 if told else 0)
    assert out == told or not told


def keys_of_schema():
    schema = (SOURCE / "src/rules/yaml/schema.h").read_text()
    keys = set(re.findall(r'KEY\(\w+, "(\w+)"\)', schema))
    assert len(keys) > 30
    return keys


def test_the_guide_names_every_key():
    for key in keys_of_schema():
        assert f"`{key}`" in GUIDE.read_text(), key


def test_the_guide_names_no_key_that_there_is_not():
    keys = keys_of_schema()
    for row in re.findall(r"^\| (`.*?`) \|", GUIDE.read_text(), re.M):
        assert set(re.findall(r"`(\w+)`", row)) <= keys, row
