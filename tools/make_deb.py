#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: tools/make_deb.py FOLDER

Builds the Debian packages of packaging/deb in FOLDER, from a copy of the source, and checks them
with lintian: an error or a warning of it is an error here. The packages have the time of the
commit, so that two builds of one commit are the same to the byte.
"""

import email.utils
import re
import shutil
import sys
from pathlib import Path

import release


def changelog():
    control = (release.SOURCE / "packaging/deb/control").read_text()
    maintainer = re.search(r"^Maintainer: (.*)", control, re.M)[1]
    date = email.utils.formatdate(release.epoch())
    return (f"stint ({release.version()}-1) stable; urgency=medium\n\n"
            "  * See NEWS.md, which is the changelog of this package.\n\n"
            f" -- {maintainer}  {date}\n")


def main(folder):
    source = folder / "source"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*stint*_*"):
        old.unlink()
    release.copy_source(source)
    shutil.copytree(release.SOURCE / "packaging/deb", source / "debian")
    (source / "debian/changelog").write_text(changelog())
    release.run("dpkg-buildpackage", "--build=binary", "--no-sign", cwd=source)
    (changes,) = folder.glob("*.changes")
    # They are the project's own packages: no upload to Debian closes a bug.
    release.run("lintian", "--fail-on", "error,warning", "--suppress-tags",
                "initial-upload-closes-no-bugs", changes)
    for package in sorted(folder.glob("*.deb")):
        print(f"{package}  {package.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
