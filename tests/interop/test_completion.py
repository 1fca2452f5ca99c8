# SPDX-License-Identifier: MIT
"""Completion in real shells: bash and zsh in a terminal, which gets a Tab, and fish."""
import os
import pty
import select
import subprocess
import time
from pathlib import Path

import pytest

from program import STINT, stint

COMPLETION = Path(__file__).resolve().parents[2] / "contrib/completion"
SECONDS_MAX = 60

# Each shell writes its candidates into the file OUT, one a line, and a last line `end`.
BASH = """
. /usr/share/bash-completion/bash_completion; . {completion}/stint.bash
recorded() {{ _stint "$@"; printf '%s\\n' "${{COMPREPLY[@]}}" end > OUT.new; mv OUT.new OUT; }}
complete -F recorded stint
"""
# compadd() is asked which of its words match, without their descriptions.
ZSH = """
fpath=({completion} $fpath); autoload -Uz compinit; compinit -u -D
compadd() {{ local -a hits; builtin compadd -O hits "$@"; print -rl -- $hits >> OUT.new
    builtin compadd "$@"; }}
recorded() {{ _main_complete; print end >> OUT.new; mv OUT.new OUT }}
zle -C recorded complete-word recorded; bindkey '^I' recorded
"""


def candidates_at_tab(argv, setup, line, folder):
    """What the shell offers when Tab is pressed behind the line."""
    out = folder / "OUT"
    out.unlink(missing_ok=True)
    (folder / "setup").write_text(setup.format(completion=COMPLETION))
    shell, terminal = pty.fork()
    if shell == 0:
        os.chdir(folder)
        os.environ.update(PATH=f"{Path(STINT).parent}:{os.environ['PATH']}", TERM="dumb")
        os.execvp(argv[0], argv)
    deadline = time.monotonic() + SECONDS_MAX
    seen = b""
    try:
        os.write(terminal, b". ./setup; echo re''ady\n")
        typed = False
        while not out.exists():
            assert time.monotonic() < deadline, seen
            if select.select([terminal], [], [], 0.05)[0]:
                seen += os.read(terminal, 65536)
            if not typed and b"ready" in seen:
                os.write(terminal, line.encode() + b"\t")
                typed = True
    finally:
        os.kill(shell, 9)
        os.waitpid(shell, 0)
        os.close(terminal)
    *words, end = out.read_text().splitlines()
    assert end == "end"
    return {word.strip() for word in words} - {""}


def in_bash(line, folder):
    return candidates_at_tab(["bash", "--norc", "--noprofile", "-i"], BASH, line, folder)


def in_zsh(line, folder):
    return candidates_at_tab(["zsh", "-f", "-i"], ZSH, line, folder)


def in_fish(line, folder):
    script = f"source {COMPLETION}/stint.fish; complete -C '{line}'"
    done = subprocess.run(["fish", "--no-config", "-c", script], cwd=folder, text=True,
                          env={**os.environ, "PATH": f"{Path(STINT).parent}:{os.environ['PATH']}"},
                          capture_output=True, timeout=SECONDS_MAX, check=True)
    # The whole word; other shells replace what is behind the equals sign.
    return {row.split("\t")[0].removeprefix("--log-format=").removeprefix("--tokens=")
            for row in done.stdout.splitlines()}


LINES = [
    ("stint re", {"replay", "reset"}),
    ("stint rules ", {"check", "show", "explain"}),
    ("stint help pool g", {"give-back"}),
    ("stint replay --st", {"--state", "--store", "--store-timeout", "--strict"}),
    ("stint pool next --order ", {"round_robin", "fill_first", "least_used"}),
    ("stint serve --log-format=", {"text", "json"}),
    ("stint explain sl", {"sliding_counter"}),
    ("stint serve --tokens some", {"some.tokens"}),
    ("stint serve --tokens=some", {"some.tokens"}),
    ("stint table some", {"some.tokens"}),
]


@pytest.mark.parametrize("shell", [in_bash, in_zsh, in_fish])
@pytest.mark.parametrize("line,expected", LINES, ids=[line for line, _ in LINES])
def test_a_tab(shell, line, expected, tmp_path):
    (tmp_path / "some.tokens").write_text("")
    assert shell(line, tmp_path) == expected


@pytest.mark.parametrize("line,expected", [
    (["take", "--quota", "1/1s", "--wa"], ["--wait"]), (["peek", "--wa"], []),
    (["--", "--wa"], []), (["take", "--", "--wa"], []), (["frobnicate", ""], []),
    (["pool", "next", "--wait", "--pro"], ["--probe"]),  # a value that may be missing
    (["explain", "--rules", "x", "--do"], []), (["token", ""], ["new", "hash"]),
    (["store", "script", "rolling"], ["rolling_window"]), (["help", "--js"], ["--json"]),
])
def test_candidates(line, expected):
    rows = stint("help", "--complete", *line)[0].splitlines()
    assert [row.split("\t")[0] for row in rows] == expected
