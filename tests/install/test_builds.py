# SPDX-License-Identifier: MIT
"""Programs of users find stint with CMake, and build it as a subproject of Meson."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from test_install import SOURCE, WORDS, output, stage  # noqa: F401 (a fixture)

# language of the project -> its example
EXAMPLES = {"C": "embed.c", "CXX": "embed.cc"}
CMAKE = """\
cmake_minimum_required(VERSION 3.16)
project(app {language})
find_package(stint {version} REQUIRED)
find_package(stint REQUIRED)
add_executable(app {source})
target_link_libraries(app PRIVATE stint::{target})
"""
MESON = """\
project('app', 'c', default_options: ['c_std=c17'])
executable('app', '{source}', dependencies: dependency('stint'))
"""


def version_of(prefix):
    (text,) = [path.read_text() for path in prefix.rglob("stint.pc")]
    return re.search(r"(?m)^Version: (.*)$", text)[1]


def prefix_of(stage):
    """Not the one that it was configured for: the files name each other by relative paths."""
    _, libdir = stage
    return next(path for path in libdir.parents if (path / "include/stint.h").exists())


def configure(stage, tmp_path, *, language="C", target="stint", version="", check=True):
    (tmp_path / "CMakeLists.txt").write_text(CMAKE.format(
        language=language, target=target, version=version,
        source=SOURCE / "examples" / EXAMPLES[language]))
    return subprocess.run(
        ["cmake", "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja",
         f"-DCMAKE_PREFIX_PATH={prefix_of(stage)}"],
        capture_output=True, text=True, check=check)


@pytest.mark.parametrize("target", ["stint", "stint_static"])
@pytest.mark.parametrize("language", EXAMPLES)
def test_cmake_finds_both_libraries(stage, tmp_path, language, target):  # noqa: F811
    configure(stage, tmp_path, language=language, target=target)
    output("cmake", "--build", str(tmp_path / "build"))
    program = str(tmp_path / "build/app")
    needed = "libstint.so.0" in output("readelf", "-d", program)
    assert needed == (target == "stint")
    assert re.fullmatch(WORDS[EXAMPLES[language]], output(program))


def neighbours(version):
    """(what find_package wants, whether this version is it)"""
    major, minor, patch = map(int, version.split("."))
    series = f"{major}.{minor}"
    return [(version, True), (f"{version} EXACT", True), (series, True),
            (f"{series}.{patch + 1}", False), (f"{major}.{minor + 1}", False),
            (f"{major + 1}", False), (f"{major}.{minor}...{major}.{minor + 3}", True),
            (f"0.0.1...<{version}", False), (f"0.0.1...{version}", True),
            (f"{series}.{patch + 1} EXACT", False)]


def test_cmake_is_given_no_other_version(stage, tmp_path):  # noqa: F811
    for n, (wanted, is_it) in enumerate(neighbours(version_of(stage[0]))):
        folder = tmp_path / str(n)
        folder.mkdir()
        done = configure(stage, folder, version=wanted, check=False)
        assert (done.returncode == 0) == is_it, f"{wanted}: {done.stderr}"
        assert is_it or "stint" in done.stderr


def test_a_subproject_of_meson_needs_libc_alone(tmp_path):
    """With no packages to find: the library is built, and nothing else."""
    (tmp_path / "meson.build").write_text(MESON.format(source="embed.c"))
    (tmp_path / "embed.c").write_text((SOURCE / "examples/embed.c").read_text())
    (tmp_path / "subprojects").mkdir()
    (tmp_path / "subprojects/stint").symlink_to(SOURCE)
    build = tmp_path / "build"
    nothing = dict(os.environ, PKG_CONFIG_LIBDIR=str(tmp_path), PKG_CONFIG_PATH="")
    output("meson", "setup", "-Doptimization=0", "-Ddebug=false", str(build), str(tmp_path),
           env=nothing)
    output("ninja", "-C", str(build), "app", env=nothing)
    assert re.fullmatch(WORDS["embed.c"], output(str(build / "app")))
    assert not (build / "subprojects/stint/src/cmd").exists()
    output("meson", "install", "-C", str(build), "--no-rebuild", "--skip-subprojects",
           "--destdir", str(tmp_path / "stage"), env=nothing)
