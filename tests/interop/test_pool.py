# SPDX-License-Identifier: MIT
"""pool, as shell scripts use it: which key, or when, and what the far side said."""
import json
import shutil
import stat

import pytest

from pool import Pool
from program import NS, stint

HOUR_DATE = "Thu, 01 Jan 1970 01:00:00 GMT"  # virtual time begins in 1970
GRAIN_NS = 1 << 16  # a cooldown is never too short, and at most so much too long


def is_length(ns, expected_s):
    return 0 <= ns - expected_s * NS < GRAIN_NS


def rounded_up(expected_s):
    """What next prints for a cooldown of so many seconds."""
    return (f"{expected_s:.3f}", f"{expected_s + 0.001:.3f}")


# ---- next ---------------------------------------------------------------------------------------

def test_next_takes_turns_and_then_says_when(tmp_path):
    """Each name alone on a line, each key as often as its quota says; then the wait and exit 3."""
    pool = Pool(tmp_path)
    assert [pool.next() for _ in range(6)] == ["a", "b", "c", "a", "b", "c"]
    assert pool.wait() == "600.000"
    pool.now = 17.25
    assert pool.wait() == "582.750"


def test_the_wait_is_exact_and_never_too_short(tmp_path):
    """In three decimals, rounded up; none is free a nanosecond before it, one is free at it."""
    pool = Pool(tmp_path, "a", "log 1/10s")
    assert pool.next() == "a"
    pool.now = "0.000000001"
    assert pool.wait() == "10.000"
    pool.now = "0.999000000"
    assert pool.wait() == "9.001"
    pool.now = "0.999000001"
    assert pool.wait() == "9.001"
    pool.now = "9.999999999"
    assert pool.wait() == "0.001"
    pool.now = 10
    assert pool.next() == "a"


def test_next_as_json(tmp_path):
    pool = Pool(tmp_path, "a", "log 2/10s")
    pool.now = "1.5"
    told = json.loads(pool.run("next", "--json")[0])
    assert told == {"key": "a", "probe": False, "cost": 1, "granted_at": "1.500000000", "limit": 2,
                    "remaining": 1, "wait_ns": 0}
    told = json.loads(pool.run("next", "--json", "--cost", 2, code=3)[0])
    assert told["key"] is None and told["granted_at"] is None and told["wait_ns"] == 10 * NS


def test_costs_several_quotas_and_quotas_of_single_keys(tmp_path):
    """All quotas of a key must allow the whole cost; --quota-for stands in place of --quota."""
    pool = Pool(tmp_path, "a,b=c", ["log 4/10s", "log 6/100s"], "--quota-for", "b=c=log 1/5s")
    assert pool.next("--cost", 4) == "a"
    assert pool.next() == "b=c"
    assert pool.wait() == "5.000"
    assert pool.wait("--cost", 4) == "100.000"
    pool.now = 10
    assert pool.wait("--cost", 3) == "90.000"
    assert {pool.next(), pool.next()} == {"a", "b=c"}
    assert pool.run("next", "--cost", 5, code=2)[1] == (
        "stint: --cost 5 can never fit: no key gives more than 4 at once\n")


def test_orders_and_weights(tmp_path):
    def names(count, *options):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        pool = Pool(folder, "b,a,c", "log 4/10m", *options)
        return "".join(pool.next() for _ in range(count))
    assert names(12, "--order", "fill_first") == "bbbbaaaacccc"
    assert sorted(names(6, "--order", "least_used")) == list("aabbcc")
    assert sorted(names(8, "--weight", "c=2")) == list("aabbcccc")
    assert sorted(names(8, "--order", "least_used", "--weight", "c=2")) == list("aabbcccc")


def test_pools_of_other_names_are_others(tmp_path):
    pool = Pool(tmp_path, "a", "log 1/10s")
    other = Pool(tmp_path, "a", "log 1/10s", "--pool", "other")
    assert pool.next() == "a" and other.next() == "a"
    assert pool.wait() == other.wait() == "10.000"


def test_a_file_belongs_to_one_kind_of_clock(tmp_path):
    pool = Pool(tmp_path)
    pool.next()
    real = ["--state", pool.state, "--keys", "a,b,c", "--quota", "log 2/10m"]
    assert "was made under a virtual clock" in stint("pool", "next", *real, code=1)[1]
    assert "say --now" in stint("pool", "status", *real, code=1)[1]
    pool.state.unlink()
    assert stint("pool", "next", *real)[0] == "a\n"
    for verb in ("next", "status"):
        err = pool.run(verb, code=1)[1]
        assert "was made under a real clock" in err and "leave --now out" in err


def test_time_does_not_go_back(tmp_path):
    pool = Pool(tmp_path, "a", "log 1/10s")
    pool.now = 100
    assert pool.next() == "a"
    pool.now = 3
    assert pool.wait() == "10.000"


def test_the_file_is_small_and_has_the_room_that_was_asked_for(tmp_path):
    pool = Pool(tmp_path)
    pool.next()
    assert pool.state.stat().st_size < 200_000
    assert stat.S_IMODE(pool.state.stat().st_mode) & 0o077 == 0
    big = Pool(tmp_path, "a,b,c", "2/10m", "--room", "20000")
    big.state = tmp_path / "big.stint"
    big.next()
    assert big.state.stat().st_size > 10 * pool.state.stat().st_size


def test_more_keys_than_a_new_file_has_room_for_by_default(tmp_path):
    """A pool of thousands works as one of three does."""
    pool = Pool(tmp_path, ",".join(f"k{i}" for i in range(3000)), "log 1/10m")
    drawn = {pool.next("--cost", 1) for _ in range(20)}
    assert len(drawn) == 20
    assert sum(key["remaining"] == 0 for key in pool.status().values()) == 20


# ---- report -------------------------------------------------------------------------------------

def test_a_time_benches_the_key_for_so_long(tmp_path):
    """429 and 503 with Retry-After, in seconds or as a date, and the word for it."""
    pool = Pool(tmp_path, "a,b", "log 9/1d")
    pool.run("report", "a", "--status", 429, "--retry-after", 90)
    assert is_length(pool.status()["a"]["returns_after_ns"], 90)
    assert [pool.next() for _ in range(3)] == ["b"] * 3
    pool.run("report", "b", "--status", 503, "--retry-after", HOUR_DATE)
    assert pool.wait() in rounded_up(90)
    pool.now = "89.999999999"
    assert pool.wait() == "0.001"
    pool.now = "90.000065535"
    assert pool.next() == "a"
    assert is_length(pool.status()["b"]["returns_after_ns"] + 65535, 3600 - 90)
    pool.run("report", "b", "ok")
    pool.run("report", "a", "cool", "1m30s")
    assert pool.standings() == {"a": "cooling", "b": "free"}
    assert is_length(pool.status()["a"]["returns_after_ns"], 90)


def test_without_a_time_the_key_backs_off_twice_as_long_each_time(tmp_path):
    pool = Pool(tmp_path, "a", "log 99/1d")
    for seconds in (1, 2, 4, 8, 16):
        pool.run("report", "a", "--status", 429)
        assert pool.standings() == {"a": "backing off"}
        wait = pool.wait()
        assert wait in rounded_up(seconds)
        # Another one while it cools changes nothing, and neither does asking.
        pool.run("report", "a", "back-off")
        assert pool.wait() == wait
        pool.now += seconds + 1
        assert pool.next() == "a"
    pool.run("report", "a", "--status", 200)
    pool.run("report", "a", "back-off")
    assert pool.wait() in rounded_up(1)


@pytest.mark.parametrize("when", ["0", "", "Thu, 01 Jan 1970 00:00:10 GMT"])
def test_a_time_that_says_nothing_is_none(tmp_path, when):
    """0, empty, or a date that is over: a 429 so backs off, a 503 so says nothing of the key."""
    pool = Pool(tmp_path, "a")
    pool.now = 10
    pool.run("report", "a", "--status", 503, "--retry-after", when)
    assert pool.standings() == {"a": "free"}
    pool.run("report", "a", "--status", 429, "--retry-after", when)
    assert pool.standings() == {"a": "backing off"}


def test_a_key_that_is_refused_is_out_until_it_is_reported_ok(tmp_path):
    pool = Pool(tmp_path, "a,b", "log 9/10s")
    pool.run("report", "a", "--status", 401)
    pool.run("report", "b", "--status", 403)
    assert pool.standings() == {"a": "out", "b": "out"}
    assert pool.wait() == "never"
    assert json.loads(pool.run("next", "--json", code=3)[0])["wait_ns"] is None
    pool.now = 10_000_000
    assert pool.wait() == "never"
    out = json.loads(pool.run("report", "a", "ok", "--json")[0])
    assert out == {"key": "a", "reported": "ok", "cooldown_ns": None, "standing": "free",
                   "returns_after_ns": 0}
    assert pool.next() == "a"
    assert pool.standings() == {"a": "free", "b": "out"}


@pytest.mark.parametrize("status", ["000", "100", "302", "404", "500", "503"])
def test_other_answers_say_nothing_of_the_key(tmp_path, status):
    pool = Pool(tmp_path, "a")
    pool.next()
    before = pool.run("status", "--json")
    assert pool.run("report", "a", "--status", status, "--verbose") == (
        "", f"stint: status {status} has no meaning for the key 'a': nothing is changed\n")
    assert json.loads(pool.run("report", "a", "--status", status, "--json")[0])["reported"] is None
    assert pool.run("status", "--json") == before


def test_only_the_nearest_to_recover_is_probed(tmp_path):
    """--probe gives one where all are cooling, says so, and prolongs nothing."""
    pool = Pool(tmp_path, "a,b,c", "log 9/1d")
    for name, seconds in (("a", 50), ("b", 20), ("c", 70)):
        pool.run("report", name, "cool", f"{seconds}s")
    before = pool.status()
    assert pool.wait() in rounded_up(20)
    told = json.loads(pool.run("next", "--probe", "--json")[0])
    assert told["key"] == "b" and told["probe"] is True
    assert "nearest to recover" in pool.run("next", "--probe", "--verbose")[1]
    after = pool.status()
    assert [key["returns_after_ns"] for key in after.values()] == [
        key["returns_after_ns"] for key in before.values()]
    assert after["b"]["remaining"] == 7
    assert pool.wait() in rounded_up(20)
    pool.now = 21
    assert json.loads(pool.run("next", "--probe", "--json")[0])["probe"] is False


# ---- give-back ----------------------------------------------------------------------------------

def test_what_was_not_used_comes_back(tmp_path):
    pool = Pool(tmp_path, "a", "log 2/10s")
    first = json.loads(pool.run("next", "--json")[0])
    pool.now = 4
    second = json.loads(pool.run("next", "--json")[0])
    assert pool.wait() == "6.000"
    assert pool.run("give-back", "a", "--granted-at", second["granted_at"])[0] == "1\n"
    assert pool.next() == "a"
    assert pool.wait() == "6.000"
    told = json.loads(pool.run("give-back", "a", "--granted-at", first["granted_at"], "--json")[0])
    assert told == {"key": "a", "cost": 1, "given_back": 1}
    assert pool.next() == "a"
    pool.now = 30
    # Long over: there is nothing to give back.
    assert pool.run("give-back", "a", "--granted-at", first["granted_at"], "--cost", 2)[0] == "0\n"
    assert pool.run("give-back", "a", "--granted-at", 31, code=1)[1] == (
        "stint: --granted-at is later than now: it belongs to another FILE\n")
    assert "holds no key 'x'" in pool.run("give-back", "x", code=1)[1]


def test_without_a_time_a_use_counts_as_granted_just_now(tmp_path):
    pool = Pool(tmp_path, "a", "log 2/10s")
    pool.next("--cost", 2)
    assert pool.run("give-back", "a", "--cost", 2)[0] == "2\n"
    assert pool.next("--cost", 2) == "a"


# ---- status -------------------------------------------------------------------------------------

def test_status_is_a_table(tmp_path):
    pool = Pool(tmp_path, "alpha,b,c,d,e", "log 1/10m")
    assert pool.next() == "alpha"
    pool.run("report", "b", "cool", "90s")
    pool.run("report", "c", "back-off")
    pool.run("report", "d", "out")
    pool.now = "0.25"
    assert pool.run("status")[0] == """\
key    standing     remaining of limit   returns in
alpha  used up              0 of 1         600 s
b      cooling              1 of 1         90 s
c      backing off          1 of 1         1 s
d      out                  1 of 1         never
e      free                 1 of 1         -
1 of 5 free
"""
    keys = pool.status()
    assert keys["alpha"]["returns_after_ns"] == keys["alpha"]["reset_after_ns"] == 599_750_000_000
    assert keys["d"]["returns_after_ns"] is None and keys["c"]["failures"] == 1
    assert list(keys) == ["alpha", "b", "c", "d", "e"]


def test_status_makes_no_file(tmp_path):
    pool = Pool(tmp_path)
    for verb in (["status"], ["give-back", "a"]):
        assert "cannot open" in pool.run(*verb, code=1)[1]
    assert not pool.state.exists()


@pytest.mark.skipif(shutil.which("gnuplot") is None, reason="gnuplot is not installed")
def test_status_as_a_picture(tmp_path):
    pool = Pool(tmp_path, "alpha,beta", "log 4/10m")
    pool.next()
    pool.run("report", "beta", "out")
    picture = tmp_path / "pool.svg"
    out = pool.run("status", "--plot", picture)[0]
    assert out == pool.run("status")[0]
    assert "alpha" in picture.read_text() and "beta" in picture.read_text()
    drawn = pool.run("status", "--plot", "-")[0]
    assert "alpha" in drawn and "standing" not in drawn


# ---- Usage --------------------------------------------------------------------------------------

POOL = ["--state", "S", "--keys", "abc,b", "--quota", "5/1s"]


@pytest.mark.parametrize("words,sentence", [
    ([], "expected a subcommand; `stint help pool` lists them all"),
    (["nxt"], "there is no command 'pool nxt'; did you mean 'next'?"),
    (["next"], "expected --state"),
    (["next", "--state", "S"], "expected --keys"),
    (["next", "--state", "S", "--keys", "@", "--quota", "1/1s"], "name of the FILE is empty"),
    (["next", "--state", "S", "--keys", "a"], "expected --quota"),
    (["next", "--state", "S", "--keys", "a,b", "--quota-for", "b=1/1s"], "no quota for 'a'"),
    (["next", "--state", "S", "--keys", "a,a", "--quota", "1/1s"], "'a' is key 1 and again key 2"),
    (["next", *POOL, "--quota", "x"], "'x' is no quota"),
    (["next", *POOL, *["--quota", "1/1s"] * 4], "at most 4 quotas"),
    (["next", *POOL, "--quota", "concurrency 3 lease=1s"], "concurrency"),
    (["next", *POOL, "--quota-for", "b=0/x"], "is no quota"),
    (["next", *POOL, "--quota-for", "c=1/1s"], "name of no key"),
    (["next", *POOL, "--weight", "abc"], "is not NAME=VALUE"),
    (["next", *POOL, "--weight", "b=0"], "a number from 1 to 1000"),
    (["next", *POOL, "--weight", "b=-1"], "a number from 1 to 1000"),
    (["next", *POOL, "--order", "random"], "round_robin"),
    (["next", *POOL, "--cost", "0"], "--cost must be"),
    (["next", *POOL, "--cost", "6"], "can never fit"),
    (["next", *POOL, "--now", "soon"], "is no time"),
    (["next", *POOL, "--now", "1", "--wait"], "--wait waits in real time"),
    (["next", *POOL, "--wait", "30s"], "like --wait=30s"),
    (["next", *POOL, "--wait=x"], "must be a length of time"),
    (["next", *POOL, "--secret"], "a list has only names"),
    (["next", *POOL, "--secret", "--json"], "never has a secret"),
    (["next", *POOL, "--status", "200"], "has no option '--status'"),
    (["next", *POOL, "-v"], "did you mean '--verbose'?"),
    (["report", *POOL], "expected the NAME of a key"),
    (["report", *POOL, "b"], "expected --status CODE, or one of"),
    (["report", *POOL, "b", "cool"], "expected for how long"),
    (["report", *POOL, "b", "cool", "0s"], "ok ends one"),
    (["report", *POOL, "b", "cool", "long"], "must be a length of time"),
    (["report", *POOL, "b", "fine"], "expected ok, cool, back-off or out"),
    (["report", *POOL, "b", "ok", "5s"], "takes no TIME"),
    (["report", *POOL, "b", "ok", "--status", "200"], "say it twice"),
    (["report", *POOL, "b", "--status", "20"], "three digits"),
    (["report", *POOL, "b", "--status", "2x0"], "three digits"),
    (["report", *POOL, "b", "--retry-after", "9", "ok"], "say its --status too"),
    (["give-back", *POOL], "expected the NAME of a key"),
    (["give-back", *POOL, "b", "--granted-at", "x"], "is no time"),
    (["status", *POOL, "b"], "one argument too many"),
    (["status", *POOL, "--plot", "x.doc"], "--plot cannot be"),
    (["status", *POOL, "--plot", "-", "--json"], "standard output"),
    (["add", *POOL, "c"], "change a list in --keys itself"),
])
def test_wrong_usage_is_told(tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    out, err = stint("pool", *words, code=2)
    assert out == "" and sentence in err, err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words,sentence", [
    (["report", *POOL, "x", "ok"], "--keys holds no key 'x'"),
    (["report", *POOL, "acb", "ok"], "did you mean 'abc'?"),
    (["report", *POOL, "b", "--status", "429", "--retry-after", "soon"], "is no Retry-After"),
])
def test_wrong_input_is_told(tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    out, err = stint("pool", *words, code=1)
    assert out == "" and sentence in err


def test_help():
    out = stint("help", "pool")[0]
    assert out == stint("pool", "--help")[0]
    for verb in ("next", "report", "give-back", "status", "add", "remove"):
        told = stint("pool", verb, "--help")[0]
        assert told == stint("help", "pool", verb)[0]
        assert told.startswith(f"Usage: stint pool {verb} [OPTION...]") and f"\n  {verb}" in out
