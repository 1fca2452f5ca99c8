# SPDX-License-Identifier: MIT
"""Wheels and source archives: what is in them, and that they are built without a network."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import stint
from support import ROOT

PACKAGE = ROOT / "bindings/python"
BACKEND = "import build_backend; build_backend.build_wheel({!r})"


def run_backend(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BACKEND.format(str(folder))], cwd=PACKAGE,
                          env={**os.environ, **environment}, text=True, capture_output=True,
                          check=False)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source archive of this checkout."""
    folder = tmp_path_factory.mktemp("archive")
    code = f"import build_backend; print(build_backend.build_sdist({str(folder)!r}))"
    name = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE, text=True, check=True,
                          stdout=subprocess.PIPE).stdout.strip()
    return folder / name


@pytest.fixture(scope="module")
def wheel(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """A wheel that pip builds from the archive, with its isolation and without any index."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--no-index", "--no-cache-dir", "-w",
                    folder, archive], check=True,
                   env={**os.environ, "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull})
    (path,) = folder.iterdir()
    assert path.stat().st_size < 2**20
    with zipfile.ZipFile(path) as opened:
        yield opened


def test_a_source_archive_builds_by_itself(archive: Path) -> None:
    root = f"stint_limiter-{stint.__version__}"
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
        tops = {name.partition("/")[0] for name in tar.getnames()}
    assert archive.name == f"{root}.tar.gz" and tops == {root}
    assert {"PKG-INFO", "pyproject.toml", "build_backend.py", "README.md", "LICENSE",
            "engine/stint.c", "engine/stint.h"} <= names
    sources = (PACKAGE / "src").rglob("*")
    assert {path.relative_to(PACKAGE).as_posix() for path in sources
            if path.suffix in (".py", ".pyi", ".typed", ".c", ".h", ".map")} <= names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


def test_a_wheel_has_what_it_records(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    info = f"stint_limiter-{stint.__version__}.dist-info"
    sources = {path.relative_to(PACKAGE / "src").as_posix()
               for path in (PACKAGE / "src/stint").rglob("*")
               if path.suffix in (".py", ".pyi", ".typed")}
    assert names == {*sources, "stint/_core.abi3.so", f"{info}/METADATA", f"{info}/WHEEL",
                     f"{info}/RECORD", f"{info}/licenses/LICENSE"}
    rows = list(csv.reader(io.StringIO(wheel.read(f"{info}/RECORD").decode())))
    assert [row[0] for row in rows] == wheel.namelist()
    for name, digest, size in rows[:-1]:
        data = wheel.read(name)
        hashed = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert (digest, int(size)) == (f"sha256={hashed}", len(data))
    assert f"Version: {stint.__version__}\n" in wheel.read(f"{info}/METADATA").decode()


def test_a_wheel_works(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path)
    code = ("import stint; table = stint.Table(keys=16);"
            "limiter = stint.Limiter(table, '1/1h');"
            "print(stint.__file__, limiter.take('key').outcome, limiter.take('key').outcome)")
    shown = subprocess.run([sys.executable, "-c", code], text=True, check=True, cwd=tmp_path,
                           stdout=subprocess.PIPE,
                           env={**os.environ, "PYTHONPATH": str(tmp_path)}).stdout.split()
    assert shown == [str(tmp_path / "stint/__init__.py"), "allow", "deny"]


def test_the_extension_exports_its_entry_alone(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    module = wheel.extract("stint/_core.abi3.so", tmp_path)
    shown = subprocess.run(["nm", "-D", "--defined-only", module], text=True, check=True,
                           stdout=subprocess.PIPE).stdout
    assert [line.split()[-1] for line in shown.splitlines()] == ["PyInit__core"]


def test_a_platform_of_a_cross_build(tmp_path: Path) -> None:
    """The compiler has arguments; a script stands for one of another platform."""
    compiler = tmp_path / "cross cc"
    compiler.write_text('#!/bin/sh\nfor last; do :; done\necho "$@" >"$0.log"; echo ELF >"$last"\n')
    compiler.chmod(0o755)
    made = tmp_path / "made"
    made.mkdir()
    done = run_backend(made, CC=f"'{compiler}' -target aarch64-linux-musl", CFLAGS="-DX='a b'",
                       LDFLAGS="-s", STINT_WHEEL_PLATFORM="musllinux-1.2-aarch64")
    assert done.returncode == 0, done.stderr
    (path,) = made.iterdir()
    assert path.name == (f"stint_limiter-{stint.__version__}-cp310-abi3-"
                         "musllinux_1_2_aarch64.whl")
    arguments = Path(f"{compiler}.log").read_text()
    assert arguments.startswith("-target aarch64-linux-musl ") and "-DX=a b" in arguments
    assert " -s " in arguments and "-DPy_LIMITED_API=0x030A0000" in arguments


@pytest.mark.parametrize(("compiler", "words"), [
    ("/nonexistent/cc", ["/nonexistent/cc: No such file or directory", "apt-get install gcc"]),
    ("sh -c 'echo stint.c:1: what is this >&2; exit 3'",
     ["stint.c:1: what is this", "status 3", "apt-get install gcc"]),
])
def test_a_compiler_that_fails(tmp_path: Path, compiler: str, words: list[str]) -> None:
    done = run_backend(tmp_path, CC=compiler)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert all(word in done.stderr for word in words)
    assert not list(tmp_path.iterdir())


def test_import_is_light() -> None:
    """A worker of a web application imports it at each start."""
    code = ("import sys; before = set(sys.modules); import stint;"
            "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))")
    shown = subprocess.run([sys.executable, "-I", "-c", code], text=True, check=True,
                           stdout=subprocess.PIPE).stdout.split()
    assert set(shown) == {"__future__", "stint"}


def test_the_example_of_the_readme(shm: Path) -> None:
    text = (PACKAGE / "README.md").read_text()
    code = text.partition("```python\n")[2].partition("```")[0]
    names: dict[str, object] = {}
    exec(code.replace("/dev/shm/app.stint", str(shm / "app.stint")), names)
    assert isinstance(names["decision"], stint.Decision) and names["decision"].remaining == 99
    assert stint.testing.Clock().now() == 0.0
