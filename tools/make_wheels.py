#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: tools/make_wheels.py FOLDER

Builds the source archive and the wheels of the Python package into FOLDER/dist, and tries them: for
glibc and musl, on x86-64 and aarch64, one wheel for every Python that the package supports. The
compiler is zig, from PyPI; tools/wheels.txt pins it. It writes to FOLDER alone.

Each wheel is at most 1 MB, has the platform tag that auditwheel finds, uses of Python the stable
interface alone, and of the C library only what the oldest one of its tag has. The smoke test runs
here and, in an emulator, with Debian's Python for aarch64. For musl there is no Python in Debian or
on PyPI: each symbol is looked up in musl's C library. Needed are apt, python3-dev, python3-venv and
qemu-user.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
PACKAGE = SOURCE / "bindings/python"
SMOKE = PACKAGE / "tests/smoke.py"
PYTHON = "/usr/bin/python3"
SIZE_MAX = 1_000_000
# Platform tag of a wheel: the target as zig names it, and Debian's name of the processor.
TARGETS = {
    "manylinux_2_17_x86_64": ("x86_64-linux-gnu.2.17", "amd64"),
    "manylinux_2_17_aarch64": ("aarch64-linux-gnu.2.17", "arm64"),
    "musllinux_1_2_x86_64": ("x86_64-linux-musl", "amd64"),
    "musllinux_1_2_aarch64": ("aarch64-linux-musl", "arm64"),
}
ARM_PYTHON = ["python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6",
              "libexpat1", "zlib1g", "libssl3", "libffi8", "libbz2-1.0", "liblzma5", "libuuid1"]
# What musl's loader provides beside its exports, and symbols that are weak and may be missing.
OF_THE_LINKER = {"_GLOBAL_OFFSET_TABLE_", "__cxa_finalize", "_ITM_registerTMCloneTable",
                 "_ITM_deregisterTMCloneTable", "__gmon_start__"}


def run(*command, **environment):
    done = subprocess.run([str(word) for word in command], env={**os.environ, **environment},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{done.stdout[-3000:]}\nmake_wheels: {command[0]} failed, for the reason above")
    return done.stdout


def tools(folder):
    """The virtual environment with what tools/wheels.txt pins."""
    venv, pins = folder / "venv", SOURCE / "tools/wheels.txt"
    mark = venv / "wheels.txt"
    if not mark.exists() or mark.read_text() != pins.read_text():
        run(PYTHON, "-m", "venv", "--clear", venv)
        run(venv / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", pins)
        shutil.copy(pins, mark)
    return venv / "bin"


def headers(folder):
    """Debian's Python.h includes the pyconfig.h of the target's folder, from the system's include
    folder, which zig does not read. On both processors it has the same sizes of types."""
    links = folder / "include"
    links.mkdir(exist_ok=True)
    for processor in ("x86_64", "aarch64"):
        link = links / f"{processor}-linux-gnu"
        link.unlink(missing_ok=True)
        link.symlink_to(f"/usr/include/{sysconfig.get_config_var('MULTIARCH')}")
    return links


def compiler(folder, bin_, tag, target):
    """A command for CC. zig calls musl's library libc.so, which could be any; on systems with musl,
    and for auditwheel, it is libc.musl-PROCESSOR.so.1. The last argument is the file to write."""
    processor = target.partition("-")[0]
    rename = (f'"{bin_}/patchelf" --replace-needed libc.so libc.musl-{processor}.so.1 "$file"'
              if "musl" in tag else ":")
    script = folder / f"cc-{tag}"
    script.write_text(f'#!/bin/sh -e\n"{bin_}/python" -m ziglang cc -target {target} "$@"\n'
                      f'for file; do :; done\n{rename}\n')
    script.chmod(0o755)
    return str(script)


def backend(action, source, dist, **environment):
    """build_sdist or build_wheel, of build_backend.py in a folder; the path of what it made."""
    script = f"import build_backend; print(build_backend.{action}({str(dist)!r}))"
    output = run(PYTHON, "-B", "-c", f"import sys; sys.path.insert(0, {str(source)!r}); {script}",
                 **environment)
    return dist / output.splitlines()[-1]


def build(folder, bin_):
    """The source archive, and the wheels made of it."""
    dist = folder / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    archive = backend("build_sdist", PACKAGE, dist)
    unpacked = folder / "source"
    shutil.rmtree(unpacked, ignore_errors=True)
    shutil.unpack_archive(archive, unpacked)
    (source,) = unpacked.iterdir()
    wheels = {}
    for tag, (target, _) in TARGETS.items():
        wheels[tag] = backend("build_wheel", source, dist, STINT_WHEEL_PLATFORM=tag,
                              CC=compiler(folder, bin_, tag, target),
                              CFLAGS=f"-I{headers(folder)}", LDFLAGS="-s",
                              ZIG_GLOBAL_CACHE_DIR=str(folder / "zig"))
    return archive, wheels


def judge(wheel, tag, bin_):
    size = wheel.stat().st_size
    if size > SIZE_MAX:
        sys.exit(f"make_wheels: {wheel.name} has {size} bytes; at most {SIZE_MAX} are allowed")
    shown = " ".join(run(bin_ / "auditwheel", "show", wheel).split())
    found = re.search(r'platform tag: "(\w+)"', shown)
    if not found or found[1] != tag:
        sys.exit(f"make_wheels: {wheel.name} is named {tag}; auditwheel says: {shown}")
    run(bin_ / "abi3audit", "--strict", wheel)
    return f"{size // 1000} kB; auditwheel and abi3audit agree"


# ---- Trying them --------------------------------------------------------------------------------


def debian(folder, processor, packages):
    """Debian packages of another processor, unpacked in a folder and installed nowhere. apt keeps
    its lists in the folder, too."""
    root = folder / f"debian-{processor}"
    mark, wanted = root / "packages.txt", "\n".join(packages)
    if mark.exists() and mark.read_text() == wanted:
        return root
    state = folder / f"apt-{processor}"
    shutil.rmtree(root, ignore_errors=True)
    for part in ("lists/partial", "cache/archives/partial"):
        (state / part).mkdir(parents=True, exist_ok=True)
    config = state / "apt.conf"
    config.write_text(f'APT::Architecture "{processor}";\n'
                      f'APT::Architectures {{ "{processor}"; }};\n'
                      f'Dir::State::Lists "{state}/lists";\nDir::State::status "/dev/null";\n'
                      f'Dir::Cache "{state}/cache";\nAcquire::Languages "none";\n'
                      f'Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";\n')
    run("apt-get", "-q", "update", APT_CONFIG=str(config))
    for package in packages:
        run("sh", "-c", 'cd "$1" && apt-get -q download "$2"', "sh", state, package,
            APT_CONFIG=str(config))
    for archive in state.glob("*.deb"):
        run("dpkg-deb", "-x", archive, root)
    mark.write_text(wanted)
    return root


def unpacked(wheel, folder):
    target = folder / "unpacked" / wheel.stem
    shutil.rmtree(target, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def try_here(artifact, folder):
    """In a new virtual environment. The source archive is compiled on the way."""
    venv = folder / "try"
    run(PYTHON, "-m", "venv", "--clear", venv)
    run(venv / "bin/pip", "install", "--quiet", "--no-index", "--disable-pip-version-check",
        artifact)
    return run(venv / "bin/python", "-I", SMOKE).strip()


def try_emulated(wheel, folder):
    root = debian(folder, "arm64", ARM_PYTHON)
    return run("qemu-aarch64", "-L", root, root / "usr/bin/python3.11", SMOKE,
               PYTHONPATH=str(unpacked(wheel, folder)), PYTHONDONTWRITEBYTECODE="1").strip()


def symbols(file, *, defined):
    """Names of the dynamic symbols that a shared object defines, or needs."""
    names = set()
    for line in run("readelf", "--wide", "--dyn-syms", file).splitlines():
        words = line.split()
        if len(words) >= 8 and words[0].rstrip(":").isdigit():
            is_defined = words[6] != "UND"
            if is_defined == defined and (defined or words[4] != "WEAK"):
                names.add(words[7].split("@")[0])
    return names


def try_symbols(wheel, folder, processor):
    """Every symbol is Python's or musl's, and no other library is needed."""
    (module,) = unpacked(wheel, folder).rglob("*.so")
    (libc,) = debian(folder, processor, ["musl"]).glob("lib/ld-musl-*.so.1")
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "--dynamic", module)))
    wanted = symbols(module, defined=False) - OF_THE_LINKER
    unknown = {name for name in wanted - symbols(libc, defined=True) if not name.startswith("Py")
               and not name.startswith("_Py")}
    if any(not name.startswith("libc.musl-") for name in needed) or unknown:
        sys.exit(f"make_wheels: {wheel.name} needs {sorted(needed)} and {sorted(unknown)}, which "
                 "musl does not have")
    if processor == "amd64":  # the loader resolves all of them, but Python's
        loaded = subprocess.run([libc, "--list", module], capture_output=True, text=True,
                                check=False)
        missing = re.findall(r"relocating .*?: (\w+): symbol not found", loaded.stderr)
        wrong = [name for name in missing if not name.startswith(("Py", "_Py"))]
        if wrong or not missing:
            sys.exit(f"make_wheels: musl's loader says:\n{loaded.stdout}{loaded.stderr}")
    own = sum(not name.startswith(("Py", "_Py")) for name in wanted)
    return f"{own} symbols are in Debian's musl for {processor}, the others are Python's"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    bin_ = tools(folder)
    archive, wheels = build(folder, bin_)
    print(f"{archive.name}: {try_here(archive, folder)}", flush=True)
    for tag, wheel in wheels.items():
        _, processor = TARGETS[tag]
        print(f"{wheel.name}: {judge(wheel, tag, bin_)}", flush=True)
        if "musl" in tag:
            tried = try_symbols(wheel, folder, processor)
        else:
            tried = (try_emulated if processor == "arm64" else try_here)(wheel, folder)
        print(f"    {tried}", flush=True)
    print(f"{folder / 'dist'} has {1 + len(wheels)} files")


if __name__ == "__main__":
    main()
