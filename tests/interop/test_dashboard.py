# SPDX-License-Identifier: MIT
"""The page at / in a real browser, `stint top` in a terminal, and both behind tokens.

Headless Chromium loads the page from a server that is being asked, and tells what it shows and
whom it asked for anything.
"""
import base64
import hashlib
import json
import os
import pty
import re
import signal
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.request
import zlib
from collections import namedtuple

import pytest

from browser import Tab, chromium, needs_chromium
from program import STINT
from server import Server

RULES = """
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 5}
  - key: plan
    rate_limit: {unit: hour, requests_per_unit: 1000000}
"""
# Leaves a name that would be a mark-up, a control, or both, if it were not shown as text.
ODD_KEY = "<img src=x onerror=alert(1)>\x1b[31m"


def take(server, key, value, token=None):
    body = {"domain": "shop", "descriptors": [{"entries": [{"key": key, "value": value}]}]}
    request = urllib.request.Request(server.url("/v1/take"), json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        urllib.request.urlopen(request, timeout=20).close()
    except urllib.error.HTTPError as answer:
        assert answer.code == 429, answer.read()


class Load:
    """Asks all the time that the `with` lasts."""

    def __init__(self, server):
        self.server, self.ends = server, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.ends.is_set():
            for user in ("ann", "ann", "bob", ODD_KEY):
                take(self.server, "user", user)
            take(self.server, "plan", "free")
            time.sleep(0.005)

    def __enter__(self):
        self.thread.start()
        time.sleep(2.5)  # a rate needs two of the server's seconds
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join()


# The page's document, what the browser's console says of it, and the events of its net.
Visit = namedtuple("Visit", "home document complaints events")


def visit(tmp_path, home, path=""):
    """The page once it had time to ask a few times."""
    net_log = tmp_path / "net.json"
    done = chromium(tmp_path, "--enable-logging=stderr", f"--log-net-log={net_log}", "--dump-dom",
                    home + path)
    said = [line for line in done.stderr.decode().splitlines() if "CONSOLE" in line]
    return Visit(home, done.stdout.decode(), said, json.loads(net_log.read_text())["events"])


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Of a server that is asked."""
    with Server(rules=RULES) as server, Load(server):
        return visit(tmp_path_factory.mktemp("page"), server.url(""), "/")


def shown(document, name):
    return re.search(rf'id="{name}"[^>]*>([^<]*)<', document)[1]


def png_line(method, packed, above, step):
    """Each byte is told by its difference to a guess from those left, above, and left above."""
    line, line_above = bytearray(step) + packed, bytes(step) + above
    if method == 2:
        line[step:] = bytes((byte + up) & 255 for byte, up in zip(packed, above))
    for i in range(step, len(line) if method in (1, 3, 4) else 0):
        left, up = line[i - step], line_above[i]
        if method == 1:
            guess = left
        elif method == 3:
            guess = (left + up) // 2
        else:
            corner = line_above[i - step]
            a, b, c = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
            guess = left if a <= b and a <= c else up if b <= c else corner
        line[i] = (line[i] + guess) & 255
    return line[step:]


def png_rows(path):
    """Rows of (r, g, b) of a screenshot."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed = 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        chunk = data[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, _, depth, colour = struct.unpack(">IIBB", chunk[:10])
            assert depth == 8 and colour in (2, 6)
            step = 3 if colour == 2 else 4
        packed += chunk if kind == b"IDAT" else b""
        at += 12 + size
    raw, stride, before = zlib.decompress(packed), width * step, bytearray(width * step)
    for start in range(0, len(raw), stride + 1):
        before = png_line(raw[start], raw[start + 1:start + 1 + stride], before, step)
        line = before
        yield [tuple(line[i:i + 3]) for i in range(0, stride, step)]


@needs_chromium
def test_the_page_shows_what_the_server_does(page):
    document = page.document
    assert shown(document, "state") == "live"
    assert float(shown(document, "rate")) > 1
    assert float(shown(document, "denied")) > 0
    assert re.fullmatch(r"[\d.]+ (ns|µs|ms)", shown(document, "p50"))
    assert shown(document, "rules") == "2"
    rules = document[document.index("rule-rows"):document.index("denied-rows")]
    assert "shop: user" in rules and "shop: plan" in rules
    denied = document[document.index('"denied-rows"'):document.index('"asked-rows"')]
    assert denied.index(">ann<") < denied.index(">bob<")
    assert "free" not in denied


@needs_chromium
def test_the_browser_has_nothing_to_complain_of(page, tmp_path):
    """Nor has it of the policy; of a page that its policy refuses a script, it has."""
    assert page.complaints == []
    refused = ("data:text/html,<meta http-equiv=Content-Security-Policy "
               "content=\"script-src 'none'\"><script>1</script>")
    said = visit(tmp_path, refused).complaints
    assert any("Content Security Policy" in line for line in said)


@needs_chromium
def test_names_of_keys_are_text_and_nothing_else(page):
    assert "&lt;img src=x onerror=alert(1)&gt;\\u001b[31m" in page.document
    assert "<img" not in page.document and "\x1b" not in page.document


@needs_chromium
def test_nobody_but_the_server_is_asked(page):
    asked = [event["params"] for event in page.events
             if "url" in event.get("params", {}) and "initiator" in event["params"]]
    from_page = [params["url"] for params in asked if params["initiator"] == page.home]
    assert any(url.endswith("/v1/stats") for url in from_page)
    assert all(url.startswith(page.home + "/") or url.startswith("data:") for url in from_page)


@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_is_light_or_dark_as_its_reader_is(tmp_path, dark):
    picture = tmp_path / "page.png"
    theme = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else []
    with Server(rules=RULES) as server, Load(server):
        chromium(tmp_path, f"--screenshot={picture}", *theme, server.url())
    counts = {}
    for row in png_rows(picture):
        for pixel in row:
            counts[pixel] = counts.get(pixel, 0) + 1
    ground = max(counts, key=counts.get)
    assert (sum(ground) < 200) == dark, ground
    # Both series of the charts are drawn, in the colours of the theme.
    allowed, denied = ((0x62, 0xa8, 0xf2), (0xf7, 0x9a, 0x55)) if dark else \
        ((0x1f, 0x6f, 0xc4), (0xc8, 0x50, 0x0a))
    assert counts.get(allowed, 0) > 300 and counts.get(denied, 0) > 300


# Two names that differ at their ends only.
LONG = "remote_address_of_a_client_of_the_login_page"
LONG_RULES = RULES + "".join(f"""\
  - key: {LONG}_each_{unit}
    rate_limit: {{unit: {unit}, requests_per_unit: 5}}
""" for unit in ("minute", "hour"))
LONG_KEY = "tenant-0001-of-the-organisation/region-of-the-north/user-4711"
# What a reader cannot see: a text outside of the window, in no space, or cut at an edge of its box.
UNSEEN = """(() => {
    const faults = [], width = innerWidth;
    const wide = document.documentElement.scrollWidth;
    if (wide > width) faults.push(`the page is ${wide} wide, the window ${width}`);
    for (const box of document.querySelectorAll(".scroll"))
        if (box.scrollWidth > box.clientWidth) faults.push(`${box.ariaLabel} scrolls sideways`);
    const texts = "h1, h2, b, .card span, #about, tbody th, tbody td, .buttons button";
    for (const box of document.querySelectorAll(texts)) {
        const place = box.getBoundingClientRect();
        if (box.textContent === "") continue;
        if (place.width < 1 || place.height < 1 || place.left < 0 || place.right > width)
            faults.push(`${box.textContent} is at ${place.left} to ${place.right}`);
        if (getComputedStyle(box).display !== "inline" && box.scrollWidth > box.clientWidth + 1)
            faults.push(`${box.textContent} is cut`);
    }
    const chart = view.charts.perRule, pen = chart.ctx;
    pen.font = Chart.helpers.toFont(chart.scales.y.options.ticks.font, Chart.defaults.font).string;
    for (const label of chart.data.labels)
        if (pen.measureText(label).width > chart.scales.y.width) faults.push(`${label} is cut`);
    return faults;
})()"""
ROWS = """[...document.querySelectorAll("#%s tr")].map(
    (row) => [...row.cells].map((cell) => cell.textContent))"""


@needs_chromium
@pytest.mark.parametrize("width", [390, 725, 768, 1280])
def test_the_page_is_whole_in_a_window_of_any_width(tmp_path, width):
    with Server(rules=LONG_RULES) as server, Load(server), Tab(tmp_path, width, 844) as tab:
        for _ in range(7):
            take(server, f"{LONG}_each_minute", LONG_KEY)
            take(server, f"{LONG}_each_hour", "ann")
        tab.open(server.url(""))
        tab.wait_for("document.querySelectorAll('#rule-rows tr').length === 4 && "
                     "Number(document.getElementById('rate').textContent) > 0")
        tab.picture(tmp_path / "page.png")  # for the reader of a failure
        assert tab.evaluate(UNSEEN) == []
        rules = {row[0]: row[1:] for row in tab.evaluate(ROWS % "rule-rows")}
        keys = [row[0] for row in tab.evaluate(ROWS % "asked-rows")]
        labels = tab.evaluate("view.charts.perRule.data.labels")
    assert rules[f"shop: {LONG}_each_minute"][2:4] == ["5", "2"]
    assert rules[f"shop: {LONG}_each_hour"][2:4] == ["5", "2"]
    assert LONG_KEY in keys
    assert len(set(labels)) == 4
    assert {label.split("_")[-1] for label in labels} >= {"minute", "hour"}


def test_keys_of_a_sample_are_said_to_be_about_so_many():
    def table_line(server):
        url = f"http://127.0.0.1:{server.http}"
        told = subprocess.run([STINT, "top", "--once", "--interval", "100ms", "--server", url],
                              capture_output=True, timeout=20, check=True).stdout.decode()
        return re.search(r"table (.*?) of ", told)[1]

    small = ["--keys", 3000, "--keys16", 3000, "--keys-wide", 0, "--wide-size", 0]
    with Server(*small, rules=RULES) as server:
        assert table_line(server) == "0"
        for user in range(7):
            take(server, "user", str(user))
        assert table_line(server) == "7"
    with Server(rules=RULES) as server:
        assert table_line(server).startswith("fewer than ")
        with server.connect() as client:
            client.sock.sendall(b"".join(client.encode("CL.THROTTLE", f"key{i}", 15, 30, 3600)
                                         for i in range(50000)))
            for _ in range(50000):
                client.read()
        assert table_line(server).startswith("about ")


def test_the_policy_names_all_that_runs():
    """Without a browser: each element's text has its hash in the policy, and nothing is linked."""
    with Server(rules=RULES) as server:
        with urllib.request.urlopen(server.url(), timeout=20) as answer:
            page, policy = answer.read().decode(), answer.headers["Content-Security-Policy"]
    parts = re.findall(r"<(script|style)>(.*?)</\1>", page, re.S)
    assert [kind for kind, _ in parts] == ["style", "script", "script"]
    for _, text in parts:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    markup = re.sub(r"<(script|style)>.*?</\1>", "", page, flags=re.S)
    assert not re.search(r"""(src|href|action)\s*=\s*["']?(https?:)?//""", markup)
    assert not re.search(r"""\son\w+\s*=|style\s*=""", markup)


# ---- stint top ----


def top(server, *options, code=0, env=None):
    done = subprocess.run([STINT, "top", "--server", server.url(""), *options], timeout=60,
                          capture_output=True, env={**os.environ, **(env or {})})
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode() if code == 0 else done.stderr.decode()


def test_top_once_shows_rates_rules_and_keys():
    with Server(rules=RULES) as server, Load(server):
        text = top(server, "--once")
    lines = text.splitlines()
    assert lines[0].startswith("stint ") and "2 rules" in lines[0]
    rates = re.match(r"allowed ([\d.]+)/s   denied ([\d.]+)/s", lines[1])
    assert float(rates[1]) > 0 and float(rates[2]) > 0
    rule = re.search(r"^ +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)  shop: user$", text, re.M)
    assert float(rule[2]) > 0 and float(rule[3]) == 15
    assert text.index("  ann ") < text.index("  bob ")
    assert "\x1b" not in text  # neither its own, as this is no terminal, nor a key's


def test_top_json_has_what_the_server_said():
    with Server(rules=RULES) as server:
        for _ in range(7):
            take(server, "user", "ann")
        look = json.loads(top(server, "--once", "--json", "--order", "asked", "--keys", "1"))
    (rule,) = [rule for rule in look["stats"]["rules"] if rule["rule"] == "user"]
    assert (rule["allow"], rule["deny"]) == (5, 2)
    (key,) = look["keys"]
    assert key["key"] == "ann" and 6.9 < key["asked"] <= 7


def test_top_in_a_terminal_fits_it_and_leaves_it_as_it_was():
    with Server(rules=RULES) as server, Load(server):
        child, terminal = pty.fork()
        if child == 0:
            os.environ["TERM"] = "xterm"
            os.execv(STINT, [STINT, "top", "--server", server.url(""), "--interval", "200ms"])
        import fcntl
        import termios
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 9, 50, 0, 0))
        said, ends = b"", time.monotonic() + 20
        while said.count(b"\x1b[H") < 4 and time.monotonic() < ends:
            said += os.read(terminal, 65536)
        os.kill(child, signal.SIGINT)
        try:
            while chunk := os.read(terminal, 65536):
                said += chunk
        except OSError:
            pass  # the terminal is gone with its program
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        os.close(terminal)
    text = said.decode()
    assert text.startswith("\x1b[?1049h") and text.rstrip().endswith("\x1b[?1049l")
    frame = text.split("\x1b[H")[3].split("\x1b[J")[0]
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frame).splitlines()
    assert 4 <= len(lines) <= 8
    assert max(map(len, lines)) <= 50


def test_top_says_why_it_cannot():
    with Server(rules=RULES) as server:
        url = server.url("")
        said = top(server, "--once", "--keys", "0", code=2)
        assert "--keys" in said
    done = subprocess.run([STINT, "top", "--once", "--server", url], timeout=60,
                          capture_output=True, check=False)
    assert done.returncode == 1 and done.stdout == b"" and len(done.stderr.splitlines()) == 1


# ---- tokens ----


def token(*args, stdin=b"", code=0):
    done = subprocess.run([STINT, "token", *args], input=stdin, timeout=30, capture_output=True)
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode(), done.stderr.decode()


def test_a_new_token_opens_what_its_role_may(tmp_path):
    tokens, lines, secrets = tmp_path / "tokens", "", {}
    for name, role in (("shop", "ask"), ("ops", "metrics")):
        line, said = token("new", name, "--role", role)
        assert re.fullmatch(rf"{name} {role} sha256:[0-9a-f]{{64}}\n", line)
        secrets[name] = said.splitlines()[-1]
        assert secrets[name] not in line and len(secrets[name]) >= 43
        lines += line
    tokens.write_text(lines)
    tokens.chmod(0o600)
    with Server("--tokens", tokens, rules=RULES) as server:
        for _ in range(7):
            take(server, "user", "ann", secrets["shop"])
        (tmp_path / "ops").write_text(secrets["ops"] + "\n")
        (tmp_path / "shop").write_text(secrets["shop"] + "\n")
        assert "ann" in top(server, "--once", "--token-file", str(tmp_path / "ops"))
        said = top(server, "--once", "--token-file", str(tmp_path / "shop"), code=1)
        assert "metrics" in said and secrets["shop"] not in said
        assert secrets["shop"] not in server.log


def test_a_hash_is_that_of_the_secret():
    secret = b"0123456789abcdef0123456789abcdef"
    expected = "sha256:" + hashlib.sha256(secret).hexdigest() + "\n"
    assert token("hash", stdin=secret)[0] == expected
    assert token("hash", stdin=secret + b"\n")[0] == expected
    assert token("hash", stdin=secret + b"\r\n")[0] == expected
    assert token("hash", "me", "--role", "administer,ask", stdin=secret)[0] == \
        "me ask,administer " + expected


@pytest.mark.parametrize("args, stdin, code, said", [
    ((), b"", 2, "expected `new NAME`"),
    (("new",), b"", 2, "NAME"),
    (("new", "two words"), b"", 2, "no name of a token"),
    (("new", "a", "b"), b"", 2, "found 'b'"),
    (("new", "a", "--role", "root"), b"", 2, "ask, administer or metrics"),
    (("nwe", "a"), b"", 2, "new"),
    (("hash",), b"short\n", 1, "at least 32 bytes"),
    (("hash",), b"0123456789abcdef0123456789abcdef\nmore", 1, "one line"),
    pytest.param(("hash",), b"x" * 5000, 1, "at most 4096", id="long"),
])
def test_wrong_words_are_answered_with_what_was_expected(args, stdin, code, said):
    assert said in token(*args, stdin=stdin, code=code)[1]
