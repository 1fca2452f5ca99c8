# SPDX-License-Identifier: MIT
"""Builds peers at their pinned versions outside of the tree, each once."""
import hashlib
import os
import re
import shutil
import subprocess
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
TABLES = ("peers.toml", "servers.toml")
BUILD_S_MAX = 900
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Peer:
    """One entry of a table; README.md says what stands in it."""
    name: str
    version: str
    url: str
    fastest: str = ""
    needs: list = field(default_factory=list)
    build: list = field(default_factory=list)
    run: list = field(default_factory=list)
    missing: str | None = None
    folder: str = ""  # of bench/peers, if several peers are built together
    forms: dict = field(default_factory=dict)
    only: dict = field(default_factory=dict)  # rows of forms that are not in all rows
    share: float = 1.0
    threads: int = 2
    out: Path | None = None
    built_s: float = 0

    @property
    def tree(self):
        return HERE / (self.folder or self.name)

    def filled(self, text):
        return text.replace("{tree}", str(self.tree)).replace("{out}", str(self.out)) \
            .replace("{version}", self.version)

    def forms_of(self, row):
        return [form for form in self.forms if row in self.only.get(form, [row])]

    @property
    def command(self):
        return [self.filled(word) for word in self.run]


def tables():
    """Every peer of every table that is there."""
    peers = []
    for name in TABLES:
        if (HERE / name).exists():
            peers += [Peer(**entry) for entry in tomllib.loads((HERE / name).read_text())["peer"]]
    return peers


def cache():
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "stint" / "peers"


def fingerprint(peer):
    """Of all that decides what is built. Lock files have the versions of peers built together."""
    version = "" if peer.folder else peer.version
    digest = hashlib.sha256(repr((peer.build, version)).encode())
    for path in sorted(peer.tree.rglob("*")) if peer.tree.is_dir() else []:
        if path.is_file():
            digest.update(path.relative_to(peer.tree).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def last_line(text):
    lines = [line.strip() for line in COLOURS.sub("", text).splitlines()]
    wrong = [line for line in lines if re.match(r"(?i)(.*\berror\b)", line)]
    return ((wrong or [line for line in lines if line] or ["no output"])[-1])[:200]


def run_commands(peer):
    """Why it could not be built, or None."""
    with open(peer.out / "build.log", "w+") as log:
        for command in map(peer.filled, peer.build):
            try:
                done = subprocess.run(["sh", "-ec", command], cwd=peer.out, stdout=log,
                                      stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                      timeout=BUILD_S_MAX, check=False)
            except subprocess.TimeoutExpired:
                return f"not built after {BUILD_S_MAX // 60} minutes"
            if done.returncode != 0:
                log.seek(0)
                return f"cannot be built here: {last_line(log.read())}"
    return None


def make(peer, say):
    """Sets `out`, and `missing` where it cannot be had."""
    name = peer.folder or f"{peer.name}-{peer.version}".replace(" ", "-")
    peer.out = cache() / f"{name}-{fingerprint(peer)}"
    if peer.missing:
        return
    absent = [need for need in peer.needs if shutil.which(need) is None]
    if absent:
        peer.missing = f"needs {', '.join(absent)}, which this machine does not have"
        return
    done = peer.out / "built"
    if done.exists():
        return
    shutil.rmtree(peer.out, ignore_errors=True)
    peer.out.mkdir(parents=True)
    if peer.build:
        say(f"building {peer.folder or peer.name + ' ' + peer.version}")
    started = time.monotonic()
    peer.missing = run_commands(peer)
    peer.built_s = time.monotonic() - started
    if peer.missing is None:
        done.write_text(f"{peer.built_s:.0f} s\n")


def make_all(say):
    """Dict of name to peer; those that could not be had have a reason in `missing`."""
    peers = {peer.name: peer for peer in tables()}
    for peer in peers.values():
        make(peer, say)
        if peer.missing:
            say(f"{peer.name} {peer.version}: not measured: {peer.missing}")
    return peers


def shown(peer):
    """What the page says of a peer."""
    return {name: getattr(peer, name) for name in
            ("name", "version", "url", "build", "run", "fastest", "missing", "built_s")}


VERSION = {"go": ["go", "version"], "nginx": ["nginx", "-v"]}


def tool_versions(peers):
    """Of the programs that peers need: the first line that they print, if they print one."""
    found = {}
    for need in sorted({need for peer in peers.values() for need in peer.needs}):
        if shutil.which(need):
            done = subprocess.run(VERSION.get(need, [need, "--version"]), capture_output=True,
                                  text=True, check=False)
            lines = COLOURS.sub("", done.stdout or done.stderr).splitlines()
            found[need] = lines[0].strip() if lines else ""
    return found
