#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: tools/make_deb.py [--arch ARCH] FOLDER

Builds the Debian packages of packaging/deb in FOLDER, from a copy of the source, and checks them
with lintian: an error or a warning of it is an error here. The packages have the time of the
commit, so that two builds of one commit are the same to the byte.

With ARCH they are compiled for another processor, without man pages, which the program would have
to run for. Compiler and libraries are in FOLDER/root, a Debian that mmdebstrap makes; this takes
root's rights and minutes.
"""

import argparse
import email.utils
import re
import shutil
from pathlib import Path

import release


def changelog():
    control = (release.SOURCE / "packaging/deb/control").read_text()
    maintainer = re.search(r"^Maintainer: (.*)", control, re.M)[1]
    date = email.utils.formatdate(release.epoch())
    return (f"stint ({release.version()}-1) stable; urgency=medium\n\n"
            "  * See NEWS.md, which is the changelog of this package.\n\n"
            f" -- {maintainer}  {date}\n")


def copy_source(folder):
    release.copy_source(folder)
    shutil.copytree(release.SOURCE / "packaging/deb", folder / "debian")
    (folder / "debian/changelog").write_text(changelog())


def build(folder):
    copy_source(folder / "source")
    release.run("dpkg-buildpackage", "--build=binary", "--no-sign", cwd=folder / "source")
    (changes,) = folder.glob("*.changes")
    # They are the project's own packages: no upload to Debian closes a bug.
    release.run("lintian", "--fail-on", "error,warning", "--suppress-tags",
                "initial-upload-closes-no-bugs", changes)


def make_root(root, arch):
    """A Debian with a compiler for `arch` and its libraries, those of the image among them."""
    control = release.SOURCE / "packaging/deb/control"
    own = release.run("dpkg", "--print-architecture").strip()
    install = ("apt-get -q -y --no-install-recommends --build-profiles nodoc "
               f"--host-architecture {arch} build-dep /source")
    release.make_debian(
        root, control.read_text(), f"--architectures={own},{arch}",
        f"--include=ca-certificates,crossbuild-essential-{arch},libcurl3-gnutls:{arch}",
        '--customize-hook=mkdir --parents "$1/source/debian"',
        f'--customize-hook=cp "{control}" "$1/source/debian"',
        f'--customize-hook=chroot "$1" {install}')


def cross_build(folder, arch):
    root = folder / "root"
    make_root(root, arch)
    copy_source(root / "source")
    command = (f'mount -t proc proc "$1/proc"; exec chroot "$1" env --chdir=/source '
               f"dpkg-buildpackage --host-arch={arch} --build-profiles=nodoc --build=binary "
               "--no-sign")
    release.run("unshare", "--mount", "sh", "-euc", command, "sh", root)
    for path in root.glob("*stint*_*"):
        path.rename(folder / path.name)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--arch")
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*stint*_*"):
        old.unlink()
    if args.arch:
        cross_build(folder, args.arch)
    else:
        build(folder)
    for package in sorted(folder.glob("*.deb")):
        print(f"{package}  {package.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
