#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: tools/make_dist.py FOLDER

Writes into FOLDER what a release publishes of the source: the archive of the commit, the release
notes, which are the part of NEWS.md about this version, and SHA256SUMS of both. The same commit
gives the same bytes. docs/releasing.md says what comes before and after.
"""

import gzip
import hashlib
import re
import shutil
import sys
from pathlib import Path

import release


def notes():
    """(title, text) of the version of meson.build in NEWS.md."""
    news = (release.SOURCE / "NEWS.md").read_text()
    found = re.search(rf"^## ({re.escape(release.version())}\b.*)\n+((?:(?!## ).*\n)*)", news, re.M)
    if not found:
        sys.exit(f"make_dist: NEWS.md has no part '## {release.version()}', the version of "
                 "meson.build; write one")
    return found[1], found[2]


def main(folder):
    name = f"stint-{release.version()}"
    if not release.commit():
        sys.exit("make_dist: the archive is made of a commit; run this in a clone")
    title, text = notes()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    archive = release.run("git", "archive", "--format=tar", f"--prefix={name}/", "HEAD",
                          cwd=release.SOURCE, text=False)
    (folder / f"{name}.tar.gz").write_bytes(gzip.compress(archive, 9, mtime=0))
    (folder / f"{name}-notes.md").write_text(f"# stint {title}\n\n{text}")
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
                   for path in sorted(folder.iterdir()))
    (folder / "SHA256SUMS").write_text(sums)
    print(sums, end="")
    if release.git("status", "--porcelain"):
        print("make_dist: changes that are not committed are not in the archive", file=sys.stderr)
    if "not released" in title:
        print(f"make_dist: NEWS.md says '{title}'; a release has its date there", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
