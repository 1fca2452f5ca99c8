# SPDX-License-Identifier: MIT
"""What `meson install` puts down is enough to build and run a program, and no more than stated."""

import os
import re
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(os.environ["STINT_SOURCE"])
BUILD = Path(os.environ["STINT_BUILD"])

# The window's slots are 2.5 s long, and the clock is real: the wait is up to one slot longer.
C_WORDS = """\
203.0.113.9: served, 2 of 3 left
203.0.113.9: served, 1 of 3 left
203.0.113.9: served, 0 of 3 left
203.0.113.9: 429, Retry-After: 6[0-3]
198.51.100.7: served, 2 of 3 left
warning: the disk is nearly full
warning: the disk is nearly full
"""
CC_WORDS = """\
0 s: allow, retry after 0 s
0 s: allow, retry after 0 s
0 s: deny, retry after 5 s
5 s: allow, retry after 0 s
"""
COMPILERS = {"embed.c": ["cc", "-std=c17"], "embed.cc": ["c++", "-std=c++11"]}
WORDS = {"embed.c": C_WORDS, "embed.cc": CC_WORDS}


def output(*command, **options):
    result = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """A staging folder with everything that is installed, and the prefix inside it."""
    root = tmp_path_factory.mktemp("stage")
    output("meson", "install", "-C", str(BUILD), "--no-rebuild", "--destdir", str(root))
    (pc_file,) = root.rglob("stint.pc")
    libdir = pc_file.parent.parent
    return root, libdir


def pkg_config(stage, *args):
    root, libdir = stage
    env = dict(os.environ, PKG_CONFIG_LIBDIR=str(libdir / "pkgconfig"),
               PKG_CONFIG_SYSROOT_DIR=str(root))
    return output("pkg-config", *args, "stint", env=env).split()


def symbols(*nm):
    return {line.split()[-1] for line in output("nm", *nm).splitlines() if len(line.split()) == 3}


def declared():
    """Names of the functions that stint.h declares."""
    text = output("cc", "-std=c17", "-E", "-P", str(SOURCE / "include/stint.h"))
    return set(re.findall(r"\b(stint_\w+)\(", text))


def test_installed_files(stage):
    root, _ = stage
    names = {path.name for path in root.rglob("*") if not path.is_dir()}
    version = pkg_config(stage, "--modversion")[0]
    expected = {"stint.h", "libstint.so", "libstint.so.0", f"libstint.so.{version}", "libstint.a",
                "stint.pc", "stintConfig.cmake", "stintConfigVersion.cmake", "stint",
                "rolling_window.lua"}
    assert expected <= names
    pages = {path.name for path in (root / "usr/local/share/man").rglob("stint*")}
    assert {"stint.1", "stint-spec.7", "stint-pool-next.1"} <= pages  # tests/interop/test_man.py
    assert names - expected - pages == {"_stint", "stint.fish"}
    share = root / "usr/local/share"
    for place in ("bash-completion/completions/stint", "zsh/site-functions/_stint",
                  "fish/vendor_completions.d/stint.fish"):
        assert "help --complete" in (share / place).read_text()
    assert len(list(root.rglob("*.h"))) == 1


def test_the_rolling_window_is_installed_as_the_program_prints_it(stage):
    root, _ = stage
    (program,) = root.rglob("bin/stint")
    (script,) = root.rglob("share/stint/rolling_window.lua")
    assert script.read_text() == output(str(program), "store", "script", "rolling_window")


def test_the_shared_library_has_its_soname(stage):
    _, libdir = stage
    dynamic = output("readelf", "-d", str(libdir / "libstint.so"))
    assert "soname: [libstint.so.0]" in dynamic
    needed = [line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line]
    assert set(needed) <= {"libc.so.6", "ld-linux-x86-64.so.2"}, "libstint depends on libc alone"


def test_only_the_public_names_are_visible(stage):
    _, libdir = stage
    public = declared()
    assert len(public) > 40
    assert symbols("-D", "--defined-only", str(libdir / "libstint.so")) == public
    assert symbols("-g", "--defined-only", str(libdir / "libstint.a")) == public


@pytest.mark.parametrize("linking", ["shared", "static"])
@pytest.mark.parametrize("example", COMPILERS)
def test_examples_build_and_run(stage, tmp_path, example, linking):
    _, libdir = stage
    flags = pkg_config(stage, "--cflags", "--libs", *(["--static"] if linking == "static" else []))
    program = tmp_path / "embed"
    output(*COMPILERS[example], "-Wall", "-Wextra", "-Werror", "-pedantic",
           *(["-static"] if linking == "static" else []),
           str(SOURCE / "examples" / example), *flags, "-o", str(program))
    env = dict(os.environ, LD_LIBRARY_PATH=str(libdir))
    if linking == "static":
        del env["LD_LIBRARY_PATH"]
    assert re.fullmatch(WORDS[example], output(str(program), env=env))


@pytest.mark.parametrize("standard", ["c++11", "c++17", "c++20"])
def test_the_header_is_cpp_safe(standard, tmp_path):
    unit = tmp_path / "header.cc"
    unit.write_text("#include <stint.h>\nint main() { return stint_version() == nullptr; }\n")
    for compiler in ("g++", "clang++"):
        output(compiler, f"-std={standard}", "-Wall", "-Wextra", "-Wold-style-cast", "-Werror",
               "-fsyntax-only", "-I", str(SOURCE / "include"), str(unit))


def test_the_program_runs_from_where_it_was_installed(stage):
    root, _ = stage
    (program,) = (path for path in root.rglob("bin/stint"))
    version = pkg_config(stage, "--modversion")[0]
    assert version in output(str(program), "version")


def test_uninstall_leaves_no_file(tmp_path):
    """As `make uninstall` does it: by the log of the last installation."""
    output("meson", "install", "-C", str(BUILD), "--no-rebuild", "--destdir", str(tmp_path))
    assert [path for path in tmp_path.rglob("*") if path.is_file()]
    output("meson", "--internal", "uninstall", cwd=BUILD)
    assert not [path for path in tmp_path.rglob("*") if not path.is_dir()]
