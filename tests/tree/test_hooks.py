# SPDX-License-Identifier: MIT
"""The hooks of git that `make hooks` installs, in a repository of the test's own."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(os.environ["STINT_SOURCE"])
GOOD_C = "/* SPDX-License-Identifier: MIT */\nint main(void)\n{\n    return 0;\n}\n"
# Of the repository alone, also where a hook runs this test.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
ENVIRONMENT |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


@pytest.fixture
def repository(tmp_path):
    """With the hooks, the format and a rule: a file `wrong` breaks it."""
    (tmp_path / "tests/tree").mkdir(parents=True)
    shutil.copytree(SOURCE / "tools/hooks", tmp_path / "tools/hooks")
    for name in ("Makefile", ".clang-format", "tests/tree/test_words.py"):
        shutil.copy(SOURCE / name, tmp_path / name)
    (tmp_path / "tests/tree/test_files.py").write_text(
        "from pathlib import Path\ndef test(): assert not Path('wrong').exists()\n")
    git(tmp_path, "init", "-q")
    subprocess.run(["make", "-s", "hooks"], cwd=tmp_path, env=ENVIRONMENT, check=True)
    git(tmp_path, "add", ".")
    return tmp_path


def git(folder, *words, fails=False):
    """What it said."""
    who = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
    done = subprocess.run(["git", *who, *words], cwd=folder, env=ENVIRONMENT, capture_output=True,
                          text=True, check=False)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_commit_that_keeps_the_rules_passes(repository):
    (repository / "good.c").write_text(GOOD_C)
    git(repository, "add", ".")
    git(repository, "commit", "-m", "cmd/serve, docs: a rule is kept", "-m", "The reason.")


@pytest.mark.parametrize("message,words", [
    ("A rule is kept", "area: what changes"),
    ("rules: A rule is kept", "area: what changes"),
    ("rules: a rule is kept.", "area: what changes"),
    ("rules: " + "long " * 20 + "line", "at most 100"),
    ("rules: a rule is kept\nand another", "second line"),
    ("rules: nobody waits", "'nobody' is not a word"),
])
def test_a_message_is_refused_with_the_reason(repository, message, words):
    assert words in git(repository, "commit", "-m", message, fails=True)


def test_a_merge_and_a_fixup_are_left_alone(repository):
    git(repository, "commit", "-m", "rules: a rule is kept")
    for message in ("Merge branch 'rules'", "fixup! rules: a rule is kept"):
        git(repository, "commit", "--allow-empty", "-m", message)


@pytest.mark.skipif(shutil.which("clang-format") is None, reason="no clang-format here")
def test_only_the_files_of_the_commit_are_looked_at(repository):
    (repository / "bad.c").write_text(GOOD_C.replace("    return", "  return"))
    git(repository, "commit", "-m", "rules: bad.c is not in it")
    git(repository, "add", ".")
    told = git(repository, "commit", "-m", "rules: bad.c is in it", fails=True)
    assert "bad.c:3" in told and "clang-format -i FILE" in told


def test_the_rules_of_the_tree_are_run(repository):
    (repository / "wrong").write_text("")
    told = git(repository, "commit", "-m", "rules: a rule is broken", fails=True)
    assert "test_files.py" in told
