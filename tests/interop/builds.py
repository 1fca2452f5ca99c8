# SPDX-License-Identifier: MIT
"""Programs of other languages that tests run: built once, from pinned sources, in the build folder.
Envoy Gateway, which takes minutes to compile, is kept in the user's cache.

A registry that cannot be reached is an error.
"""
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from program import SOURCE

sys.path.insert(0, str(SOURCE / "tools"))
from python_package import PACKAGE, PARTS, digest  # noqa: E402

INTEROP = SOURCE / "tests/interop"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stint"
ENVOY_GATEWAY, ENVOY_GATEWAY_VERSION = "github.com/envoyproxy/gateway", "v1.9.1"


def needs(*programs):
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def make(folder, command, needed, seconds=300):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, \
        f"{command[0]} failed; it needs {needed}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}"


def made(name, mark, make_in, root=None):
    """The folder that make_in() fills, made anew when the mark is another."""
    folder = (root or Path(os.environ["STINT_BUILD"]) / "tests/made") / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # files of tests run side by side
        done = folder / "built.sha256"
        if not done.exists() or done.read_text() != mark:
            shutil.rmtree(folder, ignore_errors=True)
            make_in(folder)
            done.write_text(mark)
    return folder


def built(source, make_in):
    """The folder of what make_in() makes from the files of source, made anew when those change."""
    files = sorted(path for path in source.iterdir() if path.is_file())
    mark = "".join(hashlib.sha256(path.read_bytes()).hexdigest() + "\n" for path in files)

    def make_of_copy(folder):
        shutil.copytree(source, folder)
        make_in(folder)

    return made("-".join(source.relative_to(SOURCE).parts), mark, make_of_copy)


def go_program(source, name, package="."):
    """-mod=readonly: what go.sum does not name is not used."""
    needs("go")
    return built(source, lambda to: make(
        to, ["go", "build", "-mod=readonly", "-o", name, package], "the modules of go.mod")) / name


def install_envoy_gateway(folder):
    folder.mkdir()
    make(folder, ["env", f"GOBIN={folder}", "CGO_ENABLED=0", "go", "install", "-trimpath",
                  "-ldflags=-s -w", f"{ENVOY_GATEWAY}/cmd/envoy-gateway@{ENVOY_GATEWAY_VERSION}"],
         "Go 1.26.7 and the modules of Envoy Gateway", seconds=3000)


def envoy_gateway():
    needs("go")
    return made("envoy-gateway", ENVOY_GATEWAY_VERSION, install_envoy_gateway, CACHE) / \
        "envoy-gateway"


def envoy_gateway_source():
    """Go keeps it as it was published."""
    needs("go")
    told = subprocess.run(
        ["go", "mod", "download", "-json", f"{ENVOY_GATEWAY}@{ENVOY_GATEWAY_VERSION}"],
        capture_output=True, timeout=300, check=True)
    return Path(json.loads(told.stdout)["Dir"])


def npm_folder(source):
    """The files of source beside the packages that its lock file pins."""
    needs("npm", "node")
    return built(source, lambda to: make(
        to, ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
        "the packages of package-lock.json"))


def make_venv(folder):
    make(folder, ["/usr/bin/python3", "-m", "venv", "."], "python3-venv")
    make(folder, ["bin/pip", "install", "--quiet", "--no-deps", "--require-hashes",
                  "--disable-pip-version-check", "-r", "requirements.txt"],
         "the packages of requirements.txt")


def venv(source):
    """A virtual environment of Python, with what requirements.txt in source pins."""
    return built(source, make_venv)


def unpack_wheel(folder):
    """Neither pip nor PyPI is needed: the package has a build backend of its own."""
    folder.mkdir()
    script = f"import build_backend; build_backend.build_wheel({str(folder)!r})"
    make(PACKAGE, [sys.executable, "-B", "-c", script], "gcc and python3-dev")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)


def python_package():
    """The folder of the Python package `stint`, for PYTHONPATH."""
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        pytest.skip("python3-dev is not installed")
    return made("python-package", digest(PARTS), unpack_wheel)
