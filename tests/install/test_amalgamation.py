# SPDX-License-Identifier: MIT
"""stint.c + stint.h stand alone, and decide alike on every machine and with every fallback."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(os.environ["STINT_SOURCE"])
BUILD = Path(os.environ["STINT_BUILD"])
FILES = BUILD / "amalgamation"
RUNNER = SOURCE / "tests/vectors/run_vectors.c"

WARNINGS = ["-std=c17", "-Wall", "-Wextra", "-Werror"]
# The headers that are common to the architectures of one Debian are found last of all.
I386 = ["gcc", "-m32", "-idirafter", "/usr/include/x86_64-linux-gnu"]
AARCH64 = ["aarch64-linux-gnu-gcc"]
QEMU = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]

# name -> compiler with its flags, what runs the result
NATIVE = {
    "gcc": (["gcc"], []),
    "clang": (["clang"], []),
    "undefined behaviour traps": (["gcc", "-O1", "-fsanitize=undefined", "-fno-sanitize-recover"],
                                  []),
    "no 16-byte swap": (["gcc", "-DSTINT_NO_CAS16"], []),
    "no 128-bit integers": (["gcc", "-DSTINT_NO_INT128"], []),
    "not Linux": (["gcc", "-DSTINT_PORTABLE"], []),
    "neither": (["clang", "-DSTINT_NO_CAS16", "-DSTINT_NO_INT128"], []),
}
FOREIGN = {
    "i386": (I386, []),
    "i386 -O0": ([*I386, "-O0"], []),
    "aarch64": (AARCH64, QEMU),
    "aarch64, no 16-byte swap": ([*AARCH64, "-DSTINT_NO_CAS16"], QEMU),
}
MACHINES = {**NATIVE, **(FOREIGN if platform.machine() == "x86_64" else {})}

# What is decided is compared, not how fast: one of each compiler and machine is optimised more.
LEVEL = {"gcc": ["-O2"], "clang": ["-O2"], "i386": ["-O2"], "aarch64": ["-O2"], "i386 -O0": []}


def run(*command, **options):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False,
                          **options)


def good(*command, **options):
    result = run(*command, **options)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


@pytest.mark.parametrize("machine", MACHINES)
def test_it_compiles_alone_and_passes_the_vectors(machine, tmp_path):
    compiler, runner = MACHINES[machine]
    # Away from the tree: nothing but the two files can be found.
    for name in ("stint.c", "stint.h"):
        (tmp_path / name).write_text((FILES / name).read_text())
    good(*compiler, *WARNINGS, *LEVEL.get(machine, ["-O1"]), "-c", "stint.c", "-o", "stint.o",
         cwd=tmp_path)
    good(*compiler, *WARNINGS, "-I", tmp_path, RUNNER, "stint.o", "-o", "vectors", cwd=tmp_path)

    vectors = sorted((SOURCE / "tests/vectors").glob("*.jsonl"))
    assert vectors
    for path in vectors:
        good(*runner, tmp_path / "vectors", path)


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """stint.o, and portable.o for another system."""
    folder = tmp_path_factory.mktemp("objects")
    for name, options in (("stint.o", []), ("portable.o", ["-DSTINT_PORTABLE"])):
        good("gcc", *WARNINGS, *options, "-c", FILES / "stint.c", "-o", folder / name)
    return folder


def test_a_wrong_vector_is_noticed(objects, tmp_path):
    """The runner must be able to fail: one expectation at a time is changed."""
    good("gcc", *WARNINGS, "-I", FILES, RUNNER, objects / "stint.o", "-o", tmp_path / "vectors")
    for path in sorted((SOURCE / "tests/vectors").glob("*.jsonl")):
        text = path.read_text()
        swapped = text.replace('"allow"', '"deny"', 1)
        if swapped == text:
            swapped = text.replace('"deny"', '"allow"', 1)
        assert swapped != text, f"{path.name} expects nothing"
        wrong = tmp_path / path.name
        wrong.write_text(swapped)
        assert run(tmp_path / "vectors", wrong).returncode not in (0, -6, -11), path.name


@pytest.mark.parametrize("options", [".memory = STINT_MEMORY_SHARED", '.path = "table.stint"'])
def test_elsewhere_than_on_linux_a_table_stays_within_one_process(options, objects, tmp_path):
    (tmp_path / "open.c").write_text(f"""
#include <stdio.h>
#include <stint.h>
int main(void)
{{
    struct stint_table_options options = {{{options}}};
    struct stint_error error;
    struct stint_table *table;
    int code = stint_table_open(&table, &options, &error);
    puts(code < 0 ? error.message : "opened");
    return 0;
}}
""")
    for library, answer in (("portable.o", "need Linux"), ("stint.o", "opened")):
        good("gcc", *WARNINGS, "-I", FILES, "open.c", objects / library, "-o", "open",
             cwd=tmp_path)
        assert answer in good(tmp_path / "open", cwd=tmp_path)


def test_its_internal_names_keep_apart(objects):
    names = [line.split()[-1] for line in good("nm", "-g", "--defined-only",
                                               objects / "stint.o").splitlines()]
    assert len(names) > 40
    assert all(name.startswith("stint_") for name in names)


def test_every_source_is_in_it_once():
    text = (FILES / "stint.c").read_text()
    layers = {folder: [str(path.relative_to(SOURCE))
                       for path in (SOURCE / "src" / folder).rglob("*.c")]
              for folder in ("base", "algorithm", "table", "limiter")}
    assert all(layers.values()), layers
    assert (sorted(re.findall(r"/\* ---- (\S+\.c) ---- \*/", text))
            == sorted(sum(layers.values(), [])))
    assert re.findall(r'#\s*include "([^"]+)"', text) == ["stint.h"]


def amalgamate(root, *sources):
    (root / "include").mkdir(parents=True, exist_ok=True)
    (root / "include/stint.h").write_text('#define STINT_VERSION "0"\n')
    for name, text in sources:
        path = root / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return run(sys.executable, SOURCE / "tools/amalgamate.py", "--source-root", root, "--output",
               root, *(root / "src" / name for name, _ in sources if name.endswith(".c")))


TWICE = {
    "functions with attributes": (
        "static __attribute__((noinline)) int twice(void)\n{\n    return 1;\n}\n"
        "int a(void)\n{\n    return twice();\n}\n",
        "__attribute__((noinline)) static int twice(void)\n{\n    return 2;\n}\n"
        "int b(void)\n{\n    return twice();\n}\n"),
    "functions": ("static int twice(void)\n{\n    return 1;\n}\n"
                  "int a(void)\n{\n    return twice();\n}\n",
                  "static int twice(void)\n{\n    return 2;\n}\n"
                  "int b(void)\n{\n    return twice();\n}\n"),
    # Two tentative definitions are one object to the compiler, without a word.
    "tentative objects": ("static int twice;\nint a(void)\n{\n    return ++twice;\n}\n",
                          "static int twice;\nint b(void)\n{\n    return ++twice + 1;\n}\n"),
    "macros": ("#define TWICE 1\nint a(void)\n{\n    return TWICE;\n}\n",
               "#define TWICE 2\nint b(void)\n{\n    return TWICE;\n}\n"),
    "a macro and a name": ("#define twice 1\nint a(void)\n{\n    return twice;\n}\n",
                           "int b(void)\n{\n    int twice = 2;\n    return twice;\n}\n"),
    "static and external": ("static int twice(void)\n{\n    return 1;\n}\n"
                            "int a(void)\n{\n    return twice();\n}\n",
                            "int twice(void)\n{\n    return 2;\n}\n"
                            "int b(void)\n{\n    return twice();\n}\n"),
    "a member": ('#include "base/x.h"\nstatic int twice(void)\n{\n    return 1;\n}\n'
                 'int a(void)\n{\n'
                 '    struct x x = {.twice = twice()};\n    return x.twice;\n}\n',
                 'struct y {\n    int twice;\n};\nstatic int twice(void)\n{\n    return 2;\n}\n'
                 'int b(void)\n{\n'
                 '    struct y x = {.twice = twice()}, *p = &x;\n    return p->twice;\n}\n'),
}


@pytest.mark.parametrize("case", TWICE)
def test_what_is_private_to_a_file_stays_so(case, tmp_path):
    a, b = TWICE[case]
    header = "#ifndef X_H\n#define X_H\nstruct x {\n    int twice;\n};\n#endif\n"
    result = amalgamate(tmp_path, ("base/x.h", header), ("base/a.c", a), ("core/b.c", b))
    assert result.returncode == 0, result.stderr
    (tmp_path / "main.c").write_text('#include "stint.c"\nint main(void)\n{\n'
                                     "    return a() == 1 && b() == 2 ? 0 : 1;\n}\n")
    good("gcc", "-std=c17", "-Wall", "-Werror", tmp_path / "main.c", "-o", tmp_path / "main")
    good(tmp_path / "main")


@pytest.mark.parametrize(
    "header, text",
    [
        ("static inline int twice(void)\n{\n    return 1;\n}\n", "static int twice(void)\n{\n}\n"),
        ("#define twice 1\n", "#define twice 2\n"),
        ("int b_twice(void), b_own_twice(void);\nstatic int twice;\n",
         "static int twice(void)\n{\n}\n"),
    ],
    ids=["inline", "macro", "no free name"],
)
def test_what_cannot_be_kept_apart_is_refused(tmp_path, header, text):
    header = f"#ifndef X_H\n#define X_H\n{header}#endif\n"
    result = amalgamate(tmp_path, ("base/x.h", header), ("base/a.c", '#include "base/x.h"\n'),
                        ("core/b.c", text))
    assert result.returncode != 0
    assert "twice" in result.stderr
    assert not (tmp_path / "stint.c").exists()


def test_a_header_under_a_condition_is_refused(tmp_path):
    result = amalgamate(tmp_path, ("base/x.h", "int x;\n"),
                        ("base/a.c", '#if A\n#include "base/x.h"\n#endif\n'))
    assert result.returncode != 0 and "condition" in result.stderr
