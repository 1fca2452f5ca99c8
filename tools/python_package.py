#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: tools/python_package.py BUILD [ARGUMENT...]

Runs pytest with these arguments (default: all tests of the Python package) in a virtual environment
in the folder BUILD: with what bindings/python/tests/requirements.txt pins, from PyPI, and with the
Python package itself, from a wheel. Each is installed again only when its files changed.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
PACKAGE = SOURCE / "bindings/python"
REQUIREMENTS = PACKAGE / "tests/requirements.txt"
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
# What a wheel is made of.
PARTS = [PACKAGE / "pyproject.toml", PACKAGE / "build_backend.py", PACKAGE / "README.md",
         PACKAGE / "src", SOURCE / "src", SOURCE / "include", SOURCE / "amalgamation",
         SOURCE / "tools/amalgamate.py"]
SUFFIXES = {".c", ".h", ".py", ".pyi", ".toml", ".md", ".build", ".txt"}


def digest(paths):
    files = sorted(file for path in paths for file in (path.rglob("*") if path.is_dir() else [path])
                   if file.suffix in SUFFIXES and file.is_file())
    total = hashlib.sha256()
    for file in files:
        total.update(f"{file.relative_to(SOURCE)}\0".encode() + file.read_bytes())
    return total.hexdigest()


def run(needs, *command, **environment):
    done = subprocess.run([str(word) for word in command], env={**os.environ, **environment},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        lines = done.stdout.splitlines()
        sys.exit("\n".join([*lines[-30:], f"python_package: {needs}; the reason is above"]))


def install_requirements(folder):
    shutil.rmtree(folder, ignore_errors=True)
    run("no virtual environment could be made; install python3-venv", PYTHON, "-m", "venv", folder)
    run(f"pip cannot install {REQUIREMENTS.relative_to(SOURCE)}; these tests need PyPI",
        folder / "bin/pip", "install", "--quiet", "--retries=2", "--disable-pip-version-check",
        "--no-compile", "-r", REQUIREMENTS)


def install_package(folder):
    """From a wheel, as users do: what the wheel lacks, the tests lack."""
    wheels = folder / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    compiler = os.environ.get("CC") or "cc"
    if shutil.which("ccache") and "ccache" not in compiler:
        compiler = f"ccache {compiler}"
    run("the wheel does not build; it needs a C compiler and python3-dev",
        folder / "bin/pip", "wheel", "--quiet", "--no-index", "--no-deps",
        "--disable-pip-version-check", "--wheel-dir", wheels, PACKAGE, CC=compiler)
    run("the wheel cannot be installed", folder / "bin/pip", "install", "--quiet", "--no-index",
        "--no-deps", "--force-reinstall", "--disable-pip-version-check", *wheels.glob("*.whl"))


def up_to_date(mark, value):
    return mark.exists() and mark.read_text() == value


def environment(build):
    """The folder of the virtual environment, with everything in it."""
    folder = build / "python-package"
    build.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # files of tests run side by side
        for paths, install, name in (([REQUIREMENTS], install_requirements, "requirements"),
                                     (PARTS, install_package, "package")):
            mark, value = folder / f"{name}.sha256", digest(paths)
            if not up_to_date(mark, value):
                mark.unlink(missing_ok=True)
                install(folder)
                mark.write_text(value)
    return folder


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build, arguments = Path(sys.argv[1]).resolve(), sys.argv[2:]
    folder = environment(build)
    path = f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    words = ["-q", "-rs", "-p", "no:cacheprovider", *(arguments or [str(PACKAGE / "tests")])]
    os.chdir(PACKAGE / "tests")  # not where a package `stint` could hide the installed one
    # Modules are compiled when they are first imported, most of them never, and not beside sources.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.execve(folder / "bin/python", ["python", "-m", "pytest", *words],
              {"STINT_SOURCE": str(SOURCE), "STINT_BUILD": str(build), **os.environ,
               "PYTHONPYCACHEPREFIX": str(folder / "pycache"), "PATH": path,
               "VIRTUAL_ENV": str(folder)})


if __name__ == "__main__":
    main()
