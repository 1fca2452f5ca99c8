# SPDX-License-Identifier: MIT
"""A folder of src/ sees itself and the folders below it, and nothing else of ours or the system's.

Each rule is tried on the build itself: the flags are those that the compiler got.
"""

import itertools
import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(os.environ["STINT_SOURCE"])
BUILD = Path(os.environ["STINT_BUILD"])

ENGINE = ["base", "algorithm", "table", "limiter"]  # libstint
BELOW = {
    "base": [],
    "algorithm": ENGINE[:1],
    "table": ENGINE[:2],
    "limiter": ENGINE[:3],
    "sim": ENGINE,
    "rules": ENGINE,
    "decide": [*ENGINE, "rules"],
    "backend": [*ENGINE, "rules", "decide"],
    "proto": [*ENGINE, "rules", "decide"],
    "service": [*ENGINE, "rules", "decide", "proto"],
    "frontend": [*ENGINE, "rules", "decide", "proto", "service"],
    "rpc": [*ENGINE, "rules", "decide", "backend", "proto"],
    "xds": [*ENGINE, "rules", "decide", "backend", "proto", "rpc"],
    "net": [*ENGINE, "rules", "decide", "backend", "proto", "service", "frontend", "rpc", "xds"],
    "cmd": [*ENGINE, "sim", "rules", "decide", "backend", "proto", "service", "frontend", "rpc",
            "xds", "net"],
}

# System headers, by folder; a path prefix that is longer adds to it.
LANGUAGE = {"assert.h", "limits.h", "stdalign.h", "stdbool.h", "stddef.h", "stdint.h", "string.h"}
SYSTEM = {
    "src/base/": LANGUAGE | {"stdarg.h", "stdio.h"},  # vsnprintf, into memory
    "src/base/byte_queue": {"stdlib.h"},
    "src/base/err": {"errno.h"},  # its numbers; errno is given
    "src/algorithm/": {"assert.h", "stdbool.h", "stddef.h", "stdint.h", "string.h"},
    "src/table/": LANGUAGE | {"stdatomic.h", "stdlib.h", "errno.h"},
    "src/table/clock": {"sys/stat.h"},
    "src/table/counter": {"cpuid.h", "sys/prctl.h"},
    "src/table/region/region": {"sys/stat.h", "fcntl.h", "unistd.h", "stdio.h"},
    "src/table/region/system": {"sys/mman.h", "sys/random.h", "fcntl.h", "time.h", "unistd.h"},
    "src/table/region/snapshot": {"fcntl.h", "stdio.h", "unistd.h"},
    # Whether the owner of a wide state still lives, and a pause while it does.
    "src/table/region/owner": {
        "fcntl.h", "sched.h", "signal.h", "stdio.h", "sys/types.h", "unistd.h",
    },
    "src/limiter/": LANGUAGE | {"stdlib.h", "arpa/inet.h", "sys/socket.h"},
    "src/limiter/pool": {"sched.h"},  # while a list of keys changes
    # snprintf; text for gnuplot is made with it.
    "src/sim/": LANGUAGE | {"stdarg.h", "inttypes.h", "stdlib.h", "stdio.h", "math.h", "jansson.h"},
    # math.h: isfinite, a macro; the numbers of metadata are texts again at once.
    "src/rules/": LANGUAGE | {"stdarg.h", "stdatomic.h", "stdlib.h", "stdio.h", "inttypes.h",
                              "math.h", "yaml.h"},
    "src/rules/yaml/": {"errno.h", "strings.h"},  # strtoull(), strncasecmp()
    "src/decide/": LANGUAGE | {"stdlib.h", "inttypes.h"},
    "src/backend/": LANGUAGE | {"stdlib.h", "stdatomic.h", "inttypes.h"},
    "src/backend/redis/": {"hiredis/read.h"},
    "src/backend/wire/": {"hiredis/read.h"},
    "src/backend/script/": {"stdio.h"},  # snprintf
    "src/backend/memcached/memcached_state": {"endian.h"},
    "src/proto/": LANGUAGE | {"stdarg.h", "stdlib.h", "stdio.h", "inttypes.h", "jansson.h"},
    "src/proto/http/http_origin": {"arpa/inet.h"},  # inet_pton
    "src/proto/http/http_browser": {"arpa/inet.h"},
    "src/proto/http/": {"strings.h"},
    "src/proto/http/http_reader": {"llhttp/llhttp.h"},
    "src/proto/grpc/": {"zlib.h"},
    "src/service/": LANGUAGE | {"stdarg.h", "stdlib.h", "stdio.h", "inttypes.h", "jansson.h",
                                "stdatomic.h", "pthread.h", "gnutls/gnutls.h", "gnutls/crypto.h"},
    "src/service/access/": {"strings.h"},
    "src/service/expiries": {"search.h"},  # tsearch
    "src/service/traces": {"time.h"},  # clock_gettime
    "src/frontend/": LANGUAGE | {"stdlib.h", "stdio.h", "inttypes.h", "jansson.h", "stdatomic.h"},
    "src/frontend/grpc/": {"nghttp2/nghttp2.h", "gnutls/gnutls.h", "strings.h"},
    "src/frontend/resp/": {"fnmatch.h"},
    # time.h: gmtime_r, of a time that is given
    "src/rpc/": LANGUAGE | {"stdarg.h", "stdlib.h", "stdio.h", "nghttp2/nghttp2.h"},
    "src/xds/": LANGUAGE | {"stdarg.h", "stdlib.h", "stdio.h"},
    "src/frontend/http/": {"llhttp/llhttp.h", "strings.h", "time.h"},
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def sources(folder, suffixes=(".c", ".h")):
    return sorted(p for p in (SOURCE / folder).rglob("*") if p.suffix in suffixes)


def all_sources():
    return [path for folder in BELOW for path in sources(f"src/{folder}")]


def includes(path, mark):
    return [name for kind, name in INCLUDE.findall(path.read_text()) if kind == mark]


@pytest.fixture(scope="module")
def flags():
    """folder -> the compiler with the include path that the folder's files are compiled with."""
    found = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        parts = Path(os.path.normpath(Path(entry["directory"], entry["file"])))
        # Tests compile some sources once more, on their own terms.
        if SOURCE / "src" not in parts.parents or entry["output"].startswith("tests/"):
            continue
        folder = parts.relative_to(SOURCE / "src").parts[0]
        words = shlex.split(entry["command"])
        # Each target also has a folder of its own, for generated headers: ours have none.
        paths = [w for w in words if w.startswith(("-I", "-isystem/")) and not w.endswith(".p")]
        # Two words where Meson has found ccache.
        compiler = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
        command = [*compiler, "-std=c17", *paths]
        # A folder whose files differ in their include path has a hole in one of them.
        assert found.setdefault(folder, command) == command, entry["file"]
    return found


def compiles(command, text):
    result = subprocess.run(
        [*command, "-fsyntax-only", "-x", "c", "-"],
        input=text, text=True, cwd=BUILD, capture_output=True, check=False,
    )
    return result.returncode == 0


def test_every_folder_is_a_layer():
    assert {p.name for p in (SOURCE / "src").iterdir() if p.is_dir()} == BELOW.keys()


def names_of(folder):
    return [path.relative_to(SOURCE / "src") for path in sources(f"src/{folder}", (".h",))]


@pytest.mark.parametrize("folder", BELOW)
def test_a_folder_sees_itself_and_those_below(folder, flags):
    """Each of its headers compiles alone, and beside them all those that it may include."""
    # These two fit the system's names of sockets and threads in, as their sources ask for them.
    command = [*flags[folder], *(["-D_GNU_SOURCE"] if folder in ("net", "cmd") else [])]
    for name in names_of(folder):
        assert compiles(command, f'#include "{name}"\n'), f"{folder}: {name}"
    below = [f'#if !__has_include("{name}")\n#error "{name}"\n#endif\n'
             for other in BELOW[folder] for name in names_of(other)]
    assert compiles(command, "".join(below) + '#include "stint.h"\n'), folder


@pytest.mark.parametrize("folder", BELOW)
def test_a_folder_sees_no_other(folder, flags):
    """The compiler finds none of their headers, also not by the ways around an include root."""
    asked = [
        f'#if __has_include("{spelling}")\n#error "{spelling}"\n#endif\n'
        for other in BELOW.keys() - {folder, *BELOW[folder]}
        for name in names_of(other)
        for spelling in (name, name.name, f"src/{name}", f"{other}/{name}")
    ]
    assert compiles(flags[folder], "".join(asked)), folder
    # And what it does find is told that way.
    assert not compiles(flags[folder], '#if __has_include("stint.h")\n#error found\n#endif\n')


def test_includes_name_folder_and_file():
    for path in all_sources():
        for name in includes(path, '"'):
            assert ".." not in name, f"{path}: {name}"
            known = name == "stint.h" or re.fullmatch(r"[a-z]+/([a-z]+/)?[a-z0-9_]+\.h", name)
            # What protobuf-c makes of src/proto/grpc/messages/ has names of its own.
            known = known or re.fullmatch(r"[a-z]+\.pb-c\.h", name)
            assert known, f"{path}: {name}"


def test_system_headers_stay_in_their_folders():
    wrong = []
    for path in all_sources():
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith(("src/net/", "src/cmd/")):
            continue
        allowed = set().union(*(some for prefix, some in SYSTEM.items() if name.startswith(prefix)))
        wrong += [f"{name}: <{header}>" for header in includes(path, "<") if header not in allowed]
    assert not wrong, "\n".join(wrong)


def names(library, *which):
    """Symbols that nm lists of one of our libraries."""
    output = subprocess.run(
        ["nm", *which, BUILD / "src" / library], check=True, capture_output=True, text=True
    ).stdout
    return {line.split()[-1] for line in output.splitlines() if len(line.split()) >= 2}


def test_algorithm_calls_nothing_of_the_system():
    """Undefined names of the library: memory functions, assert, the compiler's helpers, ours."""
    needed = names("libalgorithm.a", "--undefined-only")
    ours = names("libalgorithm.a", "--defined-only") | names("libbase.a", "--defined-only")
    assert needed, "nm showed nothing"
    helpers = re.compile(
        r"mem(cpy|move|set|cmp|chr)|__assert_fail"
        r"|__u?(div|mod|divmod|mul|lshr|ashl|ashr)[dt]i[34]|__(clz|ctz|popcount)di2"
        r"|_GLOBAL_OFFSET_TABLE_|__stack_chk_fail"
    )
    foreign = {name for name in needed - ours if not helpers.fullmatch(name)}
    assert not foreign, f"algorithm calls {sorted(foreign)}"


@pytest.mark.parametrize(
    "folder", ["base", "limiter", "rules", "decide", "proto", "backend", "sim"])
def test_only_table_and_the_program_ask_the_system(folder):
    """Text may be written to memory with snprintf; files, clocks and threads are for others."""
    asks = re.compile(
        r"_*(f?open(64)?|f?close|f?read|f?write|v?f?printf(_chk)?|puts|fputs|putchar|getline"
        r"|mmap(64)?|time|clock|clock_gettime|gettimeofday|nanosleep|fork|pthread_create|getenv"
        r"|std(in|out|err))"
    )
    found = {name for name in names(f"lib{folder}.a", "--undefined-only") if asks.fullmatch(name)}
    assert not found, f"{folder} calls {sorted(found)}"
