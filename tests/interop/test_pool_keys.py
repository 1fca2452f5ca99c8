# SPDX-License-Identifier: MIT
"""The file of keys: what is read, what is changed, and what is never told."""
import collections
import json
import re
import stat
import subprocess

import pytest

from pool import Pool
from program import STINT, stint

SECRETS = ["plain-Zq8vX2", "two words #=%s \\n'\"", "trailing-Ywq77  ", "caf\u00e9-\x01\x7f-p0Lk"]


@pytest.fixture
def keys_file(tmp_path):
    path = tmp_path / "keys"
    path.touch(mode=0o600)
    path.write_bytes("# ours\n\n".encode() + b"".join(
        f"{name} {secret}\n".encode() for name, secret in zip("abcd", SECRETS)))
    return path


def test_a_secret_is_printed_where_it_is_asked_for(tmp_path, keys_file):
    pool = Pool(tmp_path, f"@{keys_file}", "log 3/10m")
    assert [pool.run("next", "--secret")[0] for _ in range(4)] == [f"{s}\n" for s in SECRETS]
    assert [pool.run("next", "--both")[0] for _ in range(4)] == [
        f"{name} {secret}\n" for name, secret in zip("abcd", SECRETS)]
    assert [pool.next() for _ in range(4)] == list("abcd")


def test_no_secret_is_anywhere_else(tmp_path, keys_file):
    """Not in the state, not in any output, be it text, JSON or an error; by its bytes."""
    pool = Pool(tmp_path, f"@{keys_file}", "log 9/10m")
    told = []
    def tell(verb, *words, code=0):
        for form in ([], ["--json"], ["--verbose"]):
            told.extend(pool.run(verb, *words, *form, code=code))
    tell("next")
    tell("status")
    tell("report", "a", "--status", "429", "--retry-after", "60")
    tell("report", "b", "out")
    tell("give-back", "c")
    tell("report", "nobody", "ok", code=1)
    told.extend(pool.run("next", "--json", "--secret", code=2))
    keys_file.chmod(0o644)
    told.extend(pool.run("status"))
    assert "chmod 600" in told[-1]
    pool.run("next", "--secret")
    told.extend(pool.run("remove", "d", "--verbose"))
    for damage in (b"a " + SECRETS[0].encode() + b"\n", b"x\x01" + SECRETS[0].encode() + b"\n"):
        with keys_file.open("ab") as file:
            file.write(damage)
        told.extend(pool.run("status", code=1))
    told.append(stint("table", pool.state)[0])
    text = "".join(told).encode() + pool.state.read_bytes()
    for secret in SECRETS:
        for part in re.findall(rb"[\w-]{6,}", secret.encode()):
            assert part not in text, part


def test_what_is_wrong_with_a_file_is_told_with_its_line(tmp_path, keys_file):
    pool = Pool(tmp_path, f"@{keys_file}")
    with keys_file.open("a") as file:
        file.write("e\nb again\n")
    assert pool.run("next", code=1)[1] == (
        f"stint: {keys_file}: 'b' is on line 4 and again on line 8\n")
    keys_file.write_text("a one\nb\n")
    assert pool.run("next", "--secret", code=1)[1] == (
        f"stint: {keys_file}, line 2: 'b' has no secret\n")
    assert pool.next() == "a"  # nothing was taken before
    keys_file.write_text("# none\n")
    assert "holds no key" in pool.run("next", code=1)[1]
    assert "No such file" in Pool(tmp_path, f"@{tmp_path}/none").run("next", code=1)[1]


def test_keys_out_of_a_pipe(tmp_path):
    """So that secrets need not lie in a file."""
    pool = Pool(tmp_path, "@/dev/stdin")
    assert pool.run("next", "--secret", given="a one\nb two\n")[0] == "one\n"
    assert "is no file that could be changed" in pool.run("add", "c", given="a\n", code=1)[1]


def test_add_and_remove_change_the_file(tmp_path, keys_file):
    """Its other lines, its mode and links to it stay; the pool goes on at once."""
    link = tmp_path / "link"
    link.symlink_to(keys_file)
    keys_file.chmod(0o640)
    before = keys_file.read_bytes()
    pool = Pool(tmp_path, f"@{link}", "log 1/10m")
    assert [pool.run("next")[0] for _ in range(2)] == ["a\n", "b\n"]
    pool.run("add", "e", "--secret", given="new secret \nanother line")
    pool.run("add", "f")
    assert keys_file.read_bytes() == before + b"e new secret \nf\n"
    assert link.is_symlink() and stat.S_IMODE(keys_file.stat().st_mode) == 0o640
    assert {pool.run("next")[0] for _ in range(4)} == {"c\n", "d\n", "e\n", "f\n"}
    assert pool.run("next", code=3)[0] == "600.000\n"
    told = json.loads(pool.run("remove", "c", "--json")[0])
    assert told == {"key": "c", "keys": 5}
    assert keys_file.read_bytes() == before.replace(
        f"c {SECRETS[2]}\n".encode(), b"") + b"e new secret \nf\n"
    # What it used stays, also when it comes again.
    pool.run("add", "c")
    assert pool.status()["c"]["standing"] == "used up"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keys", "link", "pool.stint"]


def uses_over_forty_minutes(pool, change):
    """name -> seconds at which it was given; two are asked for every 20 s. `change` is at 40 s."""
    uses = collections.defaultdict(list)
    for pool.now in range(0, 2400, 20):
        if pool.now == 40:
            change()
        for _ in range(2):
            out = pool.run("next", code=None)[0].rstrip("\n")
            if out.isalpha() and out != "never":
                uses[out].append(pool.now)
    return uses


def most_in_any_window(times, period):
    return max(sum(begin <= time < begin + period for time in times) for begin in times)


@pytest.mark.parametrize("quota", ["window 3/10m", "log 3/10m"])
@pytest.mark.parametrize("verb,name", [("add", "e"), ("remove", "a")])
def test_a_pool_in_use_goes_on_when_it_is_told(tmp_path, keys_file, quota, verb, name):
    """Also where all keys are counted together, which a change ends: something is given at once,
    and no key passes its quota."""
    pool = Pool(tmp_path, f"@{keys_file}", quota)
    uses = uses_over_forty_minutes(pool, lambda: pool.run(verb, name))
    keys = set("abcde") if verb == "add" else set("bcd")
    assert any(40 in times for times in uses.values())
    assert all(most_in_any_window(times, 600) <= 3 for times in uses.values())
    assert {key for key, times in uses.items() if max(times) >= 40} == keys
    assert all(len(uses[key]) >= 6 for key in keys)


def test_a_key_that_the_pool_cannot_hold_is_not_added(tmp_path, keys_file):
    pool = Pool(tmp_path, f"@{keys_file}", "3/10m")
    pool.next()
    before = keys_file.read_bytes()
    err = pool.run("add", "e", "--quota-for", "e=log 600/10m", code=1)[1]
    assert "the key 'e': " in err
    assert keys_file.read_bytes() == before


@pytest.mark.parametrize("keys", ["c,a,b", "b", "a,b,c", "c,d"])
def test_a_list_that_is_changed_by_hand_lets_no_key_pass_its_quota(tmp_path, keys):
    """At worst nothing is given for a period; then all keys are in use."""
    pool = Pool(tmp_path, "a,b", "window 3/10m")

    def change():
        pool.keys = keys
    uses = uses_over_forty_minutes(pool, change)
    assert all(most_in_any_window(times, 600) <= 3 for times in uses.values())
    assert all(len(uses[name]) >= 6 for name in keys.split(","))


def test_a_key_that_is_out_comes_back_by_being_removed_and_added(tmp_path, keys_file):
    pool = Pool(tmp_path, f"@{keys_file}")
    pool.run("report", "b", "out")
    pool.run("remove", "b")
    pool.run("add", "b")
    assert pool.standings()["b"] == "free"


@pytest.mark.parametrize("verb,words,given,sentence", [
    ("add", ["a"], "", "holds a key 'a' already"),
    ("add", ["#x"], "", "would be a comment"),
    ("add", ["x y"], "", "byte 2 of a name is a blank"),
    ("add", [""], "", "is empty"),
    ("add", ["x" * 256], "", "at most 255"),
    ("add", ["x", "--secret"], "", "expected the secret"),
    ("add", ["x", "--secret"], "\n", "expected the secret"),
    ("add", ["x", "--secret"], " blank\n", "begins with a blank"),
    ("add", ["x", "--secret"], "s" * 70000, "longer than"),
    ("remove", ["x"], "", "holds no key 'x'"),
], ids=lambda value: str(value)[:20])
def test_changes_that_cannot_be(tmp_path, keys_file, verb, words, given, sentence):
    pool = Pool(tmp_path, f"@{keys_file}")
    before = keys_file.read_bytes()
    assert sentence in pool.run(verb, *words, given=given, code=1)[1]
    assert keys_file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("keys")] == ["keys"]


def test_the_last_key_stays(tmp_path, keys_file):
    keys_file.write_text("a\n# b\n")
    assert "is the last key" in Pool(tmp_path, f"@{keys_file}").run("remove", "a", code=1)[1]
    assert keys_file.read_text() == "a\n# b\n"


def test_changes_at_once_all_count(tmp_path, keys_file):
    """Twelve adders and two removers, at the same time: no change is lost."""
    pool = Pool(tmp_path, f"@{keys_file}")
    pool.next()
    changes = [["add", f"n{i}"] for i in range(12)] + [["remove", "a"], ["remove", "c"]]
    running = [subprocess.Popen([STINT, "pool", change[0], *map(str, pool.arguments()), change[1]],
                                stdin=subprocess.DEVNULL) for change in changes]
    assert [process.wait(60) for process in running] == [0] * len(changes)
    names = [line.split()[0] for line in keys_file.read_text().splitlines()[2:]]
    assert sorted(names) == sorted(["b", "d"] + [f"n{i}" for i in range(12)])
