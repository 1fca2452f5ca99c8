# SPDX-License-Identifier: MIT
"""Builds wheels and source archives of the Python package, with a C compiler and nothing else.

A build backend as PEP 517 and PEP 660 describe it, of the standard library alone. In a checkout the
library's sources are joined by tools/amalgamate.py; a source archive carries the result.

Environment variables:
    CC, CFLAGS, LDFLAGS     the compiler, also with arguments (`zig cc -target aarch64-linux-musl`),
                            and flags that are added to those below
    STINT_WHEEL_PLATFORM    platform tag of the wheel (`manylinux_2_17_x86_64`), for cross builds
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
ENGINE = HERE / "engine"  # stint.c and stint.h, in a source archive
LAYERS = ("base", "algorithm", "table", "limiter")  # those of libstint

NAME = "stint-limiter"
FILE_NAME = "stint_limiter"
# The oldest Python whose stable interface has METH_FASTCALL and PyUnicode_AsUTF8AndSize().
PYTHON = (3, 10)
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

PACKAGED = (".py", ".pyi", ".typed")

FLAGS = ("-std=c17 -O2 -DNDEBUG -fPIC -fvisibility=hidden -Wall -Wextra"
         " -fno-tree-slp-vectorize -ffp-contract=off").split()
COMPILER_NEEDED = (
    "stint is built from C: it needs a C17 compiler and the headers of Python. Install them:\n"
    "  Debian, Ubuntu   apt-get install gcc libc6-dev python3-dev\n"
    "  Fedora           dnf install gcc python3-devel\n"
    "  Alpine           apk add gcc musl-dev python3-dev\n"
    "CC names another compiler, CFLAGS adds flags.")

METADATA = """\
Metadata-Version: 2.4
Name: {name}
Version: {version}
Summary: Strict rate limits, exact across processes, in shared memory
Keywords: rate limit,rate limiter,throttle,quota,token bucket,sliding window
License-Expression: MIT
License-File: LICENSE
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Classifier: Programming Language :: Python :: 3
Classifier: Programming Language :: Python :: Implementation :: CPython
Classifier: Typing :: Typed
Requires-Python: >={python}
Description-Content-Type: text/markdown

{readme}"""


class BuildError(SystemExit):
    """Ends the build; the message is its last output."""


def get_requires_for_build_wheel(config_settings=None):
    return []


get_requires_for_build_sdist = get_requires_for_build_wheel
get_requires_for_build_editable = get_requires_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory() as build:
        module = compile_module(Path(build))
        source = HERE / "src"
        files = {path.relative_to(source).as_posix(): path
                 for path in sorted((source / "stint").rglob("*")) if path.suffix in PACKAGED}
        files[f"stint/{module.name}"] = module
        return write_wheel(Path(wheel_directory), files)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory() as build:
        module = compile_module(Path(build))
        # Replaced, not written in place: processes may have it mapped.
        target = HERE / "src/stint" / module.name
        staged = target.with_name(f".{module.name}.{os.getpid()}")
        staged.write_bytes(module.read_bytes())
        staged.chmod(0o755)
        staged.replace(target)
    return write_wheel(Path(wheel_directory), {f"{FILE_NAME}.pth": f"{HERE / 'src'}\n".encode()})


def build_sdist(sdist_directory, config_settings=None):
    root = f"{FILE_NAME}-{version()}"
    with tempfile.TemporaryDirectory() as build:
        engine = join_engine(Path(build))
        files = {"PKG-INFO": metadata().encode(), "LICENSE": license_file(),
                 "engine/stint.c": engine / "stint.c", "engine/stint.h": engine / "stint.h"}
        for name in ("pyproject.toml", "build_backend.py", "README.md"):
            files[name] = HERE / name
        for path in sorted((HERE / "src").rglob("*")):
            if path.suffix in (*PACKAGED, ".c", ".h", ".map"):
                files[path.relative_to(HERE).as_posix()] = path
        archive = Path(sdist_directory) / f"{root}.tar.gz"
        with tarfile.open(archive, "w:gz", format=tarfile.PAX_FORMAT) as tar:
            for name, source in files.items():
                data = contents(source)
                info = tarfile.TarInfo(f"{root}/{name}")
                info.size, info.mode = len(data), 0o644
                info.mtime = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))
                tar.addfile(info, io.BytesIO(data))
    return archive.name


def contents(source):
    return source if isinstance(source, bytes) else source.read_bytes()


def license_file():
    here = HERE / "LICENSE"
    return here if here.is_file() else CHECKOUT / "LICENSE"


def version():
    """Of a checkout, the version of the project; of a source archive, that of its engine."""
    path, pattern = CHECKOUT / "meson.build", r"^    version: '(.*?)'"
    if ENGINE.is_dir():
        path, pattern = ENGINE / "stint.h", r'STINT_VERSION "(.*?)"'
    return re.search(pattern, path.read_text(encoding="utf-8"), re.M).group(1)


def metadata():
    return METADATA.format(name=NAME, version=version(), python=".".join(map(str, PYTHON)),
                           readme=(HERE / "README.md").read_text(encoding="utf-8"))


def tag():
    platform = os.environ.get("STINT_WHEEL_PLATFORM") or sysconfig.get_platform()
    platform = re.sub(r"[-.]", "_", platform)
    if FREE_THREADED:  # it has no stable interface: the wheel is for this version alone
        python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        return f"{python}-{python}t-{platform}"
    return f"cp{PYTHON[0]}{PYTHON[1]}-abi3-{platform}"


def write_wheel(directory, files):
    info = f"{FILE_NAME}-{version()}.dist-info"
    files = {
        **files,
        f"{info}/licenses/LICENSE": license_file(),
        f"{info}/METADATA": metadata().encode(),
        f"{info}/WHEEL": (f"Wheel-Version: 1.0\nGenerator: stint build_backend\n"
                          f"Root-Is-Purelib: false\nTag: {tag()}\n").encode(),
    }
    wheel = directory / f"{FILE_NAME}-{version()}-{tag()}.whl"
    record = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        def write(name, data):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            archive.writestr(entry, data)

        for name, source in files.items():
            data = contents(source)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}\n")
            write(name, data)
        write(f"{info}/RECORD", "".join([*record, f"{info}/RECORD,,\n"]).encode())
    return wheel.name


def join_engine(build):
    """The folder of stint.c and stint.h."""
    if ENGINE.is_dir():
        return ENGINE
    amalgamate = CHECKOUT / "tools/amalgamate.py"
    if not amalgamate.is_file():
        raise BuildError(f"neither {ENGINE} nor {amalgamate} is there: build from a checkout of "
                         "the project or from a source archive")
    sources = []
    for layer in LAYERS:
        folder = CHECKOUT / "src" / layer
        names = re.findall(r"'([\w/]+\.c)'", (folder / "meson.build").read_text(encoding="utf-8"))
        sources += [folder / name for name in names]
    subprocess.run([sys.executable, amalgamate, "--source-root", CHECKOUT, "--output", build,
                    *sources], check=True)
    return build


def compile_module(build):
    """Compiles the extension into a folder; returns its path."""
    include = sysconfig.get_path("include")
    if not os.path.exists(os.path.join(include, "Python.h")):
        raise BuildError(f"{include}/Python.h is missing.\n{COMPILER_NEEDED}")
    suffix = sysconfig.get_config_var("EXT_SUFFIX") if FREE_THREADED else ".abi3.so"
    module = build / f"_core{suffix}"
    flags = [*FLAGS, *shlex.split(os.environ.get("CFLAGS", ""))]
    if not FREE_THREADED:
        flags.append(f"-DPy_LIMITED_API=0x03{PYTHON[1]:02X}0000")
    core = HERE / "src/core"
    if sys.platform == "darwin":
        link = ["-bundle", "-undefined", "dynamic_lookup"]
    else:
        link = ["-shared", f"-Wl,--version-script={core / 'exports.map'}", "-Wl,-z,relro",
                "-Wl,-z,now"]
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    command = [*shlex.split(compiler), *flags, f"-I{join_engine(build)}", f"-I{include}",
               *map(str, sorted(core.glob("*.c"))), *link,
               *shlex.split(os.environ.get("LDFLAGS", "")), "-o", str(module)]
    try:
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
    except OSError as error:
        raise BuildError(f"{command[0]}: {error.strerror}.\n{COMPILER_NEEDED}") from None
    if done.returncode != 0:
        raise BuildError(f"{shlex.join(command)}\n{done.stderr}\nThe compiler failed with status "
                         f"{done.returncode}.\n{COMPILER_NEEDED}")
    sys.stderr.write(done.stderr)
    return module
