# SPDX-License-Identifier: MIT
"""The Debian packages of this source, built once for each build folder."""
import fcntl
import hashlib
import os
import subprocess
from pathlib import Path

SOURCE = Path(os.environ["STINT_SOURCE"])
FOLDER = Path(os.environ["STINT_BUILD"]) / "packages"
# What the packages are made of.
PARTS = ["NEWS.md", "contrib", "docs/man", "examples", "include", "lua", "meson.build",
         "meson_options.txt", "packaging/deb", "plots", "src", "tools"]


def digest():
    files = [file for part in PARTS for file in [SOURCE / part, *(SOURCE / part).rglob("*")]]
    total = hashlib.sha256()
    for file in sorted(file for file in files if file.is_file() and file.suffix != ".pyc"):
        total.update(f"{file}\0".encode() + file.read_bytes())
    return total.hexdigest()


def built():
    """The folder with the packages. Where several tests want it, the first builds."""
    FOLDER.mkdir(exist_ok=True)
    mark, wanted = FOLDER / "built", digest()
    with open(FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not mark.exists() or mark.read_text() != wanted:
            path = os.pathsep.join(["/usr/lib/ccache", os.environ["PATH"]])
            done = subprocess.run([SOURCE / "tools/make_deb.py", FOLDER / "deb"],
                                  env={**os.environ, "PATH": path}, capture_output=True,
                                  text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            mark.write_text(wanted)
    return FOLDER / "deb"


def version():
    """Of the package: the project's, with Debian's revision."""
    return one("stint").name.split("_")[1]


def one(name):
    """The file of one package."""
    (path,) = built().glob(f"{name}_*.deb")
    return path
