# SPDX-License-Identifier: MIT
"""What packages, images and archives of the source have in common: version, commit, time."""

import functools
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent


def run(*command, cwd=None, may_fail=False, text=True):
    """Output of a command. If it fails, "" where it may; else the program ends with its output."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, text=text, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode == 0:
        return done.stdout
    if may_fail:
        return ""
    output = "".join(part if text else part.decode(errors="replace")
                     for part in (done.stdout, done.stderr))
    sys.exit(f"{output[-6000:]}\n{Path(sys.argv[0]).stem}: {command[0]} failed with code "
             f"{done.returncode}, for the reason above")


@functools.cache
def version():
    """The one of meson.build."""
    return re.search(r"^    version: '([^']+)'", (SOURCE / "meson.build").read_text(), re.M)[1]


def git(*words):
    """Output of git, or "" outside of a clone of this source."""
    return run("git", "--git-dir", SOURCE / ".git", "--work-tree", SOURCE, *words, cwd=SOURCE,
               may_fail=True)


def codename():
    """The release of Debian that runs here."""
    text = Path("/etc/os-release").read_text()
    return re.search(r"^VERSION_CODENAME=(\S+)", text, re.M)[1]


def make_debian(folder, made_of, *options):
    """A Debian of the release that runs here, unless the one in the folder was made of the same.

    In a mount namespace of its own: mmdebstrap mounts the machine's /dev/shm in the folder. When
    it is killed, the mount ends with it. Else removing the folder would empty /dev/shm.
    """
    mark = folder.with_suffix(".made-of")
    if mark.exists() and mark.read_text() == made_of:
        return
    mark.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    run("unshare", "--mount", "mmdebstrap", "--quiet", "--variant=apt", *options, codename(),
        folder)
    mark.write_text(made_of)


@functools.cache
def commit():
    """In full, or "" outside of a clone."""
    return git("rev-parse", "HEAD").strip()


@functools.cache
def epoch():
    """The time, in seconds, that all artefacts have: SOURCE_DATE_EPOCH, or that of the commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct")
    return int(given or (SOURCE / "NEWS.md").stat().st_mtime)


def copy_source(folder):
    """The files that git has or would add to a commit; outside of a clone, all but build*."""
    shutil.rmtree(folder, ignore_errors=True)
    listing = git("ls-files", "-co", "--exclude-standard", "-z")
    if not listing:
        shutil.copytree(SOURCE, folder, symlinks=True, ignore=shutil.ignore_patterns("build*"))
        return
    for name in listing.split("\0")[:-1]:
        path = SOURCE / name
        if path.is_file() or path.is_symlink():
            copy = folder / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy, follow_symlinks=False)


def created():
    """That time, as images and lists of packages write it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch()))
