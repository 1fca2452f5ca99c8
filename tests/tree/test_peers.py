# SPDX-License-Identifier: MIT
"""The peers of `make bench-peers`: what is counted in a window, and that each version is fixed."""

import json
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from test_files import SOURCE

sys.path[:0] = [str(SOURCE / "bench"), str(SOURCE / "bench/peers")]
import build  # noqa: E402
import page  # noqa: E402
import result  # noqa: E402
import strictness  # noqa: E402
import run  # noqa: E402
import turns  # noqa: E402

PEERS = build.tables()
# Any of these in a command of `build`, or a lock file that it uses, fixes what is built.
LOCKED = re.compile(r"--locked|-mod=readonly|@?\{version\}|pom\.xml|npm ci|requirements\.txt|javac")


@pytest.mark.parametrize("batches,most", [
    ([], 0),
    ([(0.0, 0.1, 5)], 5),
    ([(0.0, 0.1, 5), (0.8, 0.9, 6)], 11),
    ([(0.0, 0.1, 5), (0.9, 1.0, 6)], 6),       # the first may have been a whole window earlier
    ([(0.0, 0.1, 5), (0.9, 0.99, 6), (1.05, 1.06, 7)], 13),
    ([(0.0, 1.5, 50), (1.6, 1.7, 3)], 3),      # a late reply counts for nothing
])
def test_the_most_in_any_window(batches, most):
    assert strictness.most_in_any_window(batches, 1.0) == most


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_each_peer_is_fixed_or_says_why_not(peer):
    assert peer.url.startswith("https://")
    if peer.missing:
        assert not peer.build
        return
    assert peer.run and peer.fastest
    assert re.search(r"\d", peer.version) or peer.version == "of Debian"
    assert bool(peer.build) == (peer.version != "of Debian")
    fetching = [line for line in peer.build if not re.match(r"rm |cp |python3 -m venv", line)]
    assert all(LOCKED.search(line) for line in fetching), peer.build


def test_versions_of_the_table_are_those_of_the_lock_files():
    peers = {peer.name: peer.version for peer in PEERS}
    cargo = (SOURCE / "bench/peers/rust/Cargo.lock").read_text()
    for name in ("governor", "throttlecrab", "limitador"):
        assert f'name = "{name}"\nversion = "{peers[name]}"' in cargo
    sums = (SOURCE / "bench/peers/go/go.sum").read_text()
    for name, module in (("golang.org/x/time/rate", "golang.org/x/time"),
                         ("sethvargo/go-limiter", "github.com/sethvargo/go-limiter"),
                         ("ulule/limiter", "github.com/ulule/limiter/v3")):
        assert f"{module} v{peers[name]} h1:" in sums
    lock = json.loads((SOURCE / "bench/peers/rate-limiter-flexible/package-lock.json").read_text())
    module = lock["packages"]["node_modules/rate-limiter-flexible"]
    assert module["version"] == peers["rate-limiter-flexible"] and module["integrity"]
    assert f"<version>{peers['bucket4j']}<" in (SOURCE / "bench/peers/bucket4j/pom.xml").read_text()
    pinned = (SOURCE / "bench/peers/limits/requirements.txt").read_text().splitlines()
    assert f"limits=={peers['limits']}" in pinned and all("==" in line for line in pinned)


def test_ratios_are_of_the_same_turn():
    one = result.of("row", "peer", "form", "ns", [10.0, 30.0, 20.0], [10.0, 10.0, 10.0])
    assert (one["value"], one["ratio"]) == (20.0, 2.0)


def test_a_peer_that_cannot_be_had_leaves_the_others(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    common = {"version": "1", "url": ""}
    lacks = build.Peer(name="lacks", needs=["no-such-compiler"], **common)
    fails = build.Peer(name="fails", build=["echo error: no network >&2; false"], **common)
    works = build.Peer(name="works", build=["echo {version} >made"], **common)
    monkeypatch.setattr(build, "tables", lambda: [lacks, fails, works])
    peers = build.make_all(lambda text: None)
    assert "no-such-compiler" in peers["lacks"].missing
    assert peers["fails"].missing.endswith("error: no network")
    assert peers["works"].missing is None and (works.out / "made").read_text() == "1\n"
    (works.out / "made").unlink()
    assert build.make_all(lambda text: None)["works"].missing is None
    assert not (works.out / "made").exists()  # built once


def test_the_page_names_what_stint_loses(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "picture", lambda *words: False)
    rows = [result.of("keyed-uniform-1", "stint", "gcra", "ns", [100.0], [100.0]),
            result.of("keyed-uniform-1", "stint", "window", "ns", [200.0], [100.0]),
            result.of("keyed-uniform-1", "stint", "gcra, 32 keys in a call", "ns", [10.0], [100.0]),
            result.of("keyed-uniform-1", "quick", "form", "ns", [50.0], [100.0], bound="client"),
            result.most("stint", "gcra", 100, {"edge": 199}),
            result.most("stint", "window", 100, {"edge": 100}),
            result.most("quick", "form", 100, {"edge": 199})]
    where = SimpleNamespace(cpu="", cores=2, memory_gb=1, kernel="6.18.44-own-7", libc="",
                            compiler="", optimization="", transparent_huge_pages="",
                            load_average=0.0, date="2026-01-01", commit="", tools={})
    results = {"machine": vars(where), "quick": False, "turns": 1, "building_s": 0, "seconds": 0,
               "peers": [], "rows": rows}
    readme = tmp_path / "README.md"
    readme.write_text("a\n<!-- peers -->\nold\n<!-- /peers -->\nb\n")
    page.write(results, tmp_path, readme)
    text = (tmp_path / "peers.md").read_text()
    assert "- quick (form), Libraries: a million keys, uniform, 1 thread: 0.50" in text
    assert "| quick | form | 199 | **199** |" in text
    short = readme.read_text()
    assert "old" not in short and short.startswith("a\n") and short.endswith("\nb\n")
    # A speed is beside the algorithm that it is of, and so is what it admits.
    title = "keyed take, 1 M keys, uniform"
    assert f"| {title} | `gcra` | 100 ns | quick, form: 50 ns, **0.50**" in short
    assert "| | `window` | 200 ns | quick, form: 50 ns, **0.25**" in short
    assert "| most in any window, of a limit of 100 | `gcra` | 199 | 199 to 199 |" in short
    assert "| | `window` | 100 | 199 to 199 |" in short
    assert "10 ns" not in short and "\n⚑ is bound by the client" in short
    assert "Linux 6.18," in short and "Linux 6.18," in text


def test_results_that_are_kept_are_of_a_commit(tmp_path, monkeypatch):
    def git(*words):
        subprocess.run(["git", "-C", tmp_path, *words], check=True, capture_output=True)

    monkeypatch.setattr(run, "ROOT", tmp_path)
    file = tmp_path / "file"
    file.write_text("measured")
    git("init", "-q")
    git("add", "file")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first")
    kept = tmp_path / "docs/bench/new.json"
    run.check_kept(kept)
    file.write_text("changed")
    run.check_kept(tmp_path / "build/results.json")
    with pytest.raises(SystemExit, match="differs from its commit"):
        run.check_kept(kept)


def test_what_turns_show():
    """Ratios are of equal turns, so what slows down both in one turn is not seen."""
    assert turns.middle([8, 1, 7, 2, 6, 3, 5, 4]) == (4.5, 3, 6)
    assert turns.middle([3.0]) == (3.0, 3.0, 3.0)
    values, baselines = [2, 40, 6, 8], [1, 10, 2, 4]
    row = turns.compared(values, baselines)
    assert (row["value"], row["baseline_value"]) == (7, 3)
    assert (row["ratio"], row["ratio_q1"], row["ratio_q3"]) == (2.5, 2, 3)
    row = turns.compared(values, baselines, inverted=True)
    assert (row["ratio_q1"], row["ratio"], row["ratio_q3"]) == (1 / 3, pytest.approx(5 / 12), 0.5)
