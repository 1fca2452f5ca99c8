# SPDX-License-Identifier: MIT
"""Pictures: that they are drawn, say what they show, are the same again, and that whatever goes
wrong on the way is told. What the numbers in them are is for tests/unit/sim/test_history.c."""

import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from program import SOURCE, STINT

DOC = SOURCE / "docs/pictures.md"
PICTURES = SOURCE / "docs/pictures"
PLOTS = SOURCE / "plots"
ARRIVALS = PICTURES / "arrivals.trace"
SVG = "{http://www.w3.org/2000/svg}"
PNG = b"\x89PNG\r\n\x1a\n"


def replay(*arguments, stdin="", env=None, cwd=None):
    done = subprocess.run([STINT, "replay", *map(str, arguments)], input=stdin.encode(),
                          capture_output=True, env=env, cwd=cwd, timeout=60, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def drawn(*arguments, stdin=""):
    """What a replay prints that goes well."""
    code, out, err = replay(*arguments, stdin=stdin)
    assert (code, err) == (0, "")
    return out


def words(path):
    """All text of an SVG."""
    root = ElementTree.parse(path).getroot()
    assert root.tag == SVG + "svg"
    return ["".join(text.itertext()).strip() for text in root.iter(SVG + "text")]


def with_path(*folders):
    return dict(os.environ, PATH=os.pathsep.join(map(str, folders)))


@pytest.fixture
def instead(tmp_path):
    """A folder with a gnuplot of our own, which a shell runs."""
    def make(script):
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "gnuplot").write_text("#!/bin/sh\n" + script)
        (folder / "gnuplot").chmod(0o755)
        return with_path(folder, os.environ["PATH"])
    return make


# ---- What is drawn ------------------------------------------------------------------------------


def test_a_picture_says_what_it_shows(tmp_path):
    out = drawn("--quota", "buckets 500/10m time_slack=1m count_slack=50", "--plot",
                tmp_path / "a.svg", ARRIVALS)
    assert "keys denied most" in out  # the summary is printed all the same
    told = words(tmp_path / "a.svg")
    assert "buckets 500/10m time_slack=1m count_slack=50" in told
    denied = re.search(r"in ([\d,]+) events\n\n", out).group(1)
    assert any(re.match(rf"1235 units used by key worker-7; {denied} requests denied, \d+ although",
                        word) for word in told)
    for label in ("time, min", "units, in the order of use", "units free", "used", "returned",
                  "bucket in use", "bucket cooling", "held too long", "free exactly",
                  "free, as the limiter believes", "denied: no units were free"):
        assert label in told, label


def test_a_png_and_letters(tmp_path):
    drawn("--quota", "500/10m", "--plot", tmp_path / "a.PNG", ARRIVALS)
    assert (tmp_path / "a.PNG").read_bytes().startswith(PNG)
    out = drawn("--quota", "500/10m", "--plot", "-", ARRIVALS)
    picture = out[out.index("lines  1,030"):].splitlines()[1:]
    assert len(picture) >= 28 and max(map(len, picture)) <= 100
    assert "window 500/10m resolution=24" in out and "* used, # returned" in out
    assert sum("*" in line for line in picture) > 5 and "time, min" in out


def test_the_same_again(tmp_path):
    for name in ("a.svg", "b.svg"):
        drawn("--quota", "500/10m", "--plot", tmp_path / name, ARRIVALS)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


TRACE = "".join(f"{t} {key}\n" for t in range(9) for key in ("seldom", "often", "often", "steady"))


def test_which_key(tmp_path):
    """The key denied most; without denials the one allowed most; or the one that is asked for."""
    picture = tmp_path / "a.svg"
    for quota, chosen, key in (("12/1m", (), "often"), ("100/1m", (), "often"),
                               ("12/1m", ("--plot-key", "steady"), "steady")):
        drawn("--quota", quota, "--plot", picture, *chosen, stdin=TRACE)
        assert any(f" by key {key};" in word for word in words(picture)), key
    code, _, err = replay("--quota", "1/1m", "--plot", picture, "--plot-key", "none", stdin=TRACE)
    assert (code, err) == (1, "stint: --plot: no event has the key 'none'\n")
    code, _, err = replay("--quota", "1/1m", "--plot", picture)
    assert (code, err) == (1, "stint: --plot: there are no events to draw\n")


def test_which_quota(tmp_path):
    """Of several, the one that denied the key most; what another denied is told apart."""
    drawn("--quota", "100/1h", "--quota", "log 3/5s", "--plot", tmp_path / "a.svg", stdin=TRACE)
    assert "log 3/5s" in words(tmp_path / "a.svg")
    trace = TRACE + "".join(f"{9 + t / 100} often\n" for t in range(40))
    drawn("--quota", "log 2/5s", "--quota", "gcra 1/1s burst=4", "--plot", tmp_path / "b.svg",
          stdin=trace)
    assert "log 2/5s" in words(tmp_path / "b.svg")
    drawn("--quota", "log 5/1h", "--quota", "log 1/100ms", "--plot", tmp_path / "c.svg",
          stdin=trace)
    assert "denied by another quota" in words(tmp_path / "c.svg")


def test_the_time_of_a_log(tmp_path):
    lines = "".join(f'192.0.2.1 - - [14/Mar/2026:09:20:{s:02d} +0000] "GET / HTTP/1.1" 200 1\n'
                    for s in range(30))
    drawn("--format", "combined", "--quota", "log 5/10s", "--plot", tmp_path / "a.svg", stdin=lines)
    assert "time since 2026-03-14 09:20:00 UTC, s" in words(tmp_path / "a.svg")


@pytest.mark.parametrize("period,unit", [
    ("1us", "ns"), ("4us", "us"), ("3ms", "ms"), ("1m", "s"), ("30m", "min"), ("12h", "h"),
    ("40d", "d")])
def test_units_of_time(period, unit, tmp_path):
    drawn("--quota", f"log 1/{period}", "--plot", tmp_path / "a.svg", stdin="0 k\n")
    assert f"time, {unit}" in words(tmp_path / "a.svg")


def test_steps_of_an_axis():
    """Tics are round numbers, never so many that their numbers run into each other."""
    lengths = [1, 8, 15001, 20000] + [4 * 1.7 ** n for n in range(60)]
    program = ("format = 'text'; output = ''; n = 0\n" + (PLOTS / "common.gp").read_text()
               + "".join(f"print step({length!r})\n" for length in lengths))
    told = subprocess.run(["gnuplot", "-d"], input=program.encode(), capture_output=True,
                          check=True).stderr
    steps = [float(step) for step in told.split()]
    assert steps[:4] == [1, 2, 2000, 5000]
    for length, step in zip(lengths[4:], steps[4:], strict=True):
        assert 4 <= length / step <= 10
        assert f"{step:.0e}"[0] in "125"


SPECS = ["gcra 10/1m burst=3", "fixed_window 10/1m", "fixed_window 100/1mo align=calendar",
         "sliding_counter 10/1m", "concurrency 5 lease=10s", "window 10/1m resolution=12",
         "buckets 10/1m count_slack=3", "window 0/1s", "log 1/1us", "window 4000000000/1d"]


@pytest.mark.parametrize("spec", SPECS)
def test_every_algorithm(spec, tmp_path):
    trace = "".join(f"{t * t / 7:.3f} k {t % 4}\n" for t in range(60))
    drawn("--quota", spec, "--plot", tmp_path / "a.svg", stdin=trace)
    assert "units free" in words(tmp_path / "a.svg")
    assert "time, " in drawn("--quota", spec, "--plot", "-", stdin=trace)


HOSTILE = ["';system('touch pwned');#", "`touch pwned`", "\"`touch pwned`\"", "@data", "$data",
           "$12",
           "a'b\\'c", "x\\ny", "<text>&amp;</svg>", "{/Bold=80_x^y}", "END_OF_DATA", "%s%d%n",
           "\x1b[31mred", "ключ-é-€-😀", "k" * 3000]


@pytest.mark.parametrize("key", HOSTILE)
def test_a_key_is_nothing_but_letters(key, tmp_path):
    """Keys are made by strangers: gnuplot is a language that starts programs."""
    lines = "".join(json.dumps({"time": t, "key": key}) + "\n" for t in range(3))
    code, _, err = replay("--quota", "2/1m", "--format", "jsonl", "--plot", "a.svg", cwd=tmp_path,
                          stdin=lines)
    assert (code, err) == (0, "")
    assert os.listdir(tmp_path) == ["a.svg"]
    (told,) = [word for word in words(tmp_path / "a.svg") if " units used by key " in word]
    shown = key.replace("\x1b", "?")
    shown = shown if len(shown) <= 40 else shown[:39] + "…"
    assert f" by key {shown}; " in told


def test_names_of_rows_are_nothing_but_letters(tmp_path):
    keys = ["it's", "`ls>pwned`", "50%s", "@data", "';system('ls>pwned')#", "é€"]
    words_of = ["--state", "s", "--keys", ",".join(keys), "--quota", "4/1m", "--now", "1"]
    for verb in (["next"], ["status", "--plot", "a.svg"]):
        done = subprocess.run([STINT, "pool", verb[0], *words_of, *verb[1:]], cwd=tmp_path,
                              capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    assert sorted(os.listdir(tmp_path)) == ["a.svg", "s"]
    assert set(keys) <= set(words(tmp_path / "a.svg"))


# ---- The data -----------------------------------------------------------------------------------


def test_the_data_are_those_of_an_exact_count(tmp_path, instead):
    """Used and returned units, counted here from the decisions that --decisions prints."""
    assert replay("--quota", "log 500/10m", "--plot", tmp_path / "a.svg", ARRIVALS,
                  env=instead("cat\n"))[0] == 0
    data = (tmp_path / "a.svg").read_text().split("END_OF_DATA\n")[1]
    rows = [list(map(float, line.split())) for line in data.split("\n\n")[0].splitlines()[1:]]
    grants = []
    for line in drawn("--quota", "log 500/10m", "--decisions", ARRIVALS).splitlines():
        fields = line.split("\t")
        grants.append((int(fields[0]), int(fields[4])))
    assert len(rows) > 500 and rows[0][0] == 0
    checked = 0
    for i, (at, used, returned, believed, free, free_believed) in enumerate(rows):
        if i + 1 < len(rows) and rows[i + 1][0] == at:
            continue  # what held until then
        exactly = sum(units for time, units in grants if time <= at)
        back = sum(units for time, units in grants if time + 600 <= at)
        assert (used, returned, free) == (exactly, back, 500 - exactly + back)
        assert (believed, free_believed) == (returned, free)
        checked += 1
    assert checked > 300


@pytest.mark.parametrize("name", ["a.svg", "-"])
def test_without_gnuplot(name, tmp_path):
    code, _, err = replay("--quota", "500/10m", "--plot", name, ARRIVALS, cwd=tmp_path,
                          env=with_path(tmp_path / "nowhere"))
    assert code == 1 and os.listdir(tmp_path) == []
    assert err == ("stint: --plot needs gnuplot, which is not installed; Debian's package is "
                   "gnuplot-nox\n")


def test_a_name_that_is_not_utf8(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff `x` $1.svg"
    subprocess.run([STINT, "replay", "--quota", "500/10m", "--plot", path, ARRIVALS], check=True)
    assert os.path.getsize(path) > 10000


# ---- What goes wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize("script,told", [
    ("echo 'line 7: it hurts' >&2\nexit 1\n",
     "gnuplot: line 7: it hurts\nstint: gnuplot failed with exit status 1; {} is not drawn"),
    ("kill -9 $$\n", "gnuplot was ended by signal 9; {} is not drawn"),
    ("exit 0\n", "gnuplot has drawn nothing; {} is not written"),
])
def test_a_gnuplot_that_fails(script, told, tmp_path, instead):
    """What it says is shown, and a picture that was there before stays."""
    picture = tmp_path / "a.svg"
    picture.write_text("before")
    code, _, err = replay("--quota", "1/1s", "--plot", picture, ARRIVALS, env=instead(script))
    assert (code, err) == (1, "stint: " + told.format(picture) + "\n")
    assert picture.read_text() == "before"


def test_a_gnuplot_that_does_not_read(tmp_path, instead):
    """A script that nobody reads to its end blocks nobody."""
    trace = "".join(f"{t} k\n" for t in range(20000))
    code, _, err = replay("--quota", "10/1m", "--plot", tmp_path / "a.svg", stdin=trace,
                          env=instead("echo '<svg/>'\n"))
    assert (code, err) == (0, "")
    assert (tmp_path / "a.svg").read_text() == "<svg/>\n"


@pytest.mark.parametrize("options,told", [
    (["--plot", "a.jpg"], "--plot cannot be 'a.jpg'; expected a name that ends with .svg or .png"),
    (["--plot", ".svg"], "--plot cannot be '.svg'"),
    (["--plot", ""], "--plot cannot be ''"),
    (["--plot", "a\n.svg"], "control characters"),
    (["--plot", "a.svg", "--plot", "b.svg"], "expected one --plot, found 'b.svg' too"),
    (["--plot-key", "k"], "expected --plot too"),
    (["--plot", "a.svg", "--verb", "peek"], "peek takes nothing"),
    (["--plot", "a.svg", "--state", "t"], "--state"),
    (["--plot", "-", "--json"], "--json would mix"),
    (["--plot", "-", "--decisions"], "--decisions would mix"),
    (["--plto", "a.svg"], "did you mean '--plot'?"),
])
def test_wrong_usage(options, told, tmp_path):
    code, out, err = replay("--quota", "1/1s", *options, ARRIVALS, cwd=tmp_path)
    assert (code, out) == (2, "") and told in err
    assert os.listdir(tmp_path) == []


def test_a_file_that_cannot_be_written(tmp_path):
    """That is told before the work is done, not after."""
    (tmp_path / "a.svg").mkdir()
    for path, why in ((tmp_path / "none/a.svg", "No such file or directory"),
                      (tmp_path / "a.svg", "Is a directory")):
        code, out, err = replay("--quota", "1/1s", "--plot", path, ARRIVALS)
        assert (code, out, err) == (1, "", f"stint: cannot write {path}: {why}\n")
    with open("/dev/full", "w", encoding="utf8") as full:
        done = subprocess.run([STINT, "replay", "--quota", "1/1s", "--plot", "-", ARRIVALS],
                              stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1 and "cannot write to standard output" in done.stderr


# ---- The page on pictures -----------------------------------------------------------------------


def test_the_arrivals_are_what_the_page_says():
    told = [(t, 5) for t in range(40)] + [(t, 1) for t in range(60, 600, 6)]
    told += [(t, 3) for t in range(600, 1500)]
    assert ARRIVALS.read_text() == "".join(f"{t} worker-7 {cost}\n" for t, cost in told)


def produced_by(path):
    return re.search(r"Produced by (GNUPLOT [^<]*?)\s*<", path.read_text()).group(1)


def test_the_pictures_of_the_page(tmp_path):
    """Its commands make them again, to the byte where gnuplot is the same."""
    commands = "".join(re.findall(r"(?ms)^```sh\n(.*?)^```$", DOC.read_text()))
    (tmp_path / "docs/pictures").mkdir(parents=True)
    shutil.copy(ARRIVALS, tmp_path / "docs/pictures")
    (tmp_path / "examples").mkdir()
    shutil.copy(SOURCE / "examples/sample.log", tmp_path / "examples")
    subprocess.run(["sh", "-e", "-c", commands], cwd=tmp_path, check=True, capture_output=True,
                   env=with_path(Path(STINT).parent, os.environ["PATH"]))
    named = set(re.findall(r"\(pictures/([\w-]+\.svg)\)", DOC.read_text()))
    kept = {path.name for path in PICTURES.glob("*.svg")}
    assert named == {name for name in kept if not name.startswith("peers-")} and len(named) == 7
    for name in sorted(named):
        again = tmp_path / "docs/pictures" / name
        told = words(PICTURES / name)
        labels = {"compare.svg": {"units asked for", "most in any window, % of the limit"},
                  "plan.svg": {"keys denied at least once", "requests denied"}}
        assert labels.get(name, {"time, min", "units free"}) <= set(told)
        assert words(again) == told
        if produced_by(again) == produced_by(PICTURES / name):
            assert again.read_bytes() == (PICTURES / name).read_bytes(), name
        else:
            print(f"{name}: made by another gnuplot, its text alone is compared", file=sys.stderr)
