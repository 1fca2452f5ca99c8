# SPDX-License-Identifier: MIT
"""What packages, images and archives of the source have in common: version, commit, time."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent


def run(*command, **options):
    """Output of a command; ends the program with the end of the output if the command fails."""
    environment = {**os.environ, **{name: str(value) for name, value in options.items()
                                    if name.isupper()}}
    options = {name: value for name, value in options.items() if not name.isupper()}
    done = subprocess.run([str(word) for word in command], env=environment, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode != 0:
        sys.exit(f"{done.stdout[-6000:]}\n{Path(sys.argv[0]).stem}: {command[0]} failed with code "
                 f"{done.returncode}, for the reason above")
    return done.stdout


def version():
    """The one of meson.build."""
    return re.search(r"^    version: '([^']+)'", (SOURCE / "meson.build").read_text(), re.M)[1]


def git(*words):
    """Output of git, or None outside of a clone."""
    done = subprocess.run(["git", "--git-dir", SOURCE / ".git", "--work-tree", SOURCE, *words],
                          cwd=SOURCE, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def commit():
    """The commit in full, or "" outside of a clone."""
    return (git("rev-parse", "HEAD") or "").strip()


def epoch():
    """The time, in seconds, that all artefacts have: SOURCE_DATE_EPOCH, or that of the commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct")
    return int(given or (SOURCE / "NEWS.md").stat().st_mtime)


def copy_source(folder):
    """The files that git has or would add to a commit; outside of a clone, all but build*."""
    shutil.rmtree(folder, ignore_errors=True)
    listing = git("ls-files", "-co", "--exclude-standard", "-z")
    if listing is None:
        shutil.copytree(SOURCE, folder, symlinks=True, ignore=shutil.ignore_patterns("build*"))
        return
    for name in listing.split("\0")[:-1]:
        path = SOURCE / name
        if path.is_file() or path.is_symlink():
            copy = folder / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy, follow_symlinks=False)
