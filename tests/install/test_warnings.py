# SPDX-License-Identifier: MIT
"""stint.h and the amalgamation compile without a warning, whatever their users switch on."""

import os
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(os.environ["STINT_SOURCE"])
FILES = Path(os.environ["STINT_BUILD"]) / "amalgamation"

COMMON = """-Werror -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wcast-qual
    -Wcast-align -Wundef -Wvla -Wformat=2 -Wredundant-decls -Wdouble-promotion -Wfloat-equal
    -Wwrite-strings""".split()
C = ["-Wstrict-prototypes", "-Wmissing-prototypes", "-Wold-style-definition"]
C_HEADER = ["-Wc++-compat", "-Wdeclaration-after-statement"]
CPP = ["-Wold-style-cast", "-Wzero-as-null-pointer-constant", "-Woverloaded-virtual"]
GCC = ["-Wlogical-op", "-Wduplicated-cond", "-Wduplicated-branches"]
# Everything that clang knows, but for what speaks against C99 and C++11 themselves, of gaps that a
# struct has by its fields' order, of macros that not each configuration uses, of a function that
# assertions alone call, of a cast between an enum and an int, and of the order of an atomic swap.
EVERYTHING = """-Werror -Weverything -Wno-unknown-warning-option -Wno-c++98-compat
    -Wno-c++98-compat-pedantic -Wno-declaration-after-statement -Wno-padded -Wno-unused-macros
    -Wno-used-but-marked-unused -Wno-bad-function-cast -Wno-atomic-implicit-seq-cst
    -Wno-unsafe-buffer-usage -Wno-switch-default -Wno-pre-c11-compat""".split()

HEADER = {
    "c": ("#include <stint.h>\nint main(void)\n{\n    return stint_version() == NULL;\n}\n",
          ("c11", "gnu11", "c17"), {"gcc": COMMON + C + C_HEADER + GCC,
                                   "clang -Weverything": EVERYTHING}),
    "cc": ("#include <stint.h>\nint main() { return stint_version() == nullptr; }\n",
           ("c++11", "c++14", "c++17", "c++20"), {"g++": COMMON + CPP + GCC + ["-Wuseless-cast"],
                                                 "clang++ -Weverything": EVERYTHING}),
}
# name -> standard, and what a user defines or optimises; each compiles lines that the others do not
AMALGAMATION = {
    "C11": ["-std=c11", "-O1"],  # some warnings of gcc need its optimiser
    "C17": ["-std=c17", "-fsyntax-only"],
    "without assertions": ["-std=c11", "-DNDEBUG", "-fsyntax-only"],
    "no 128-bit integers": ["-std=c11", "-DSTINT_NO_INT128", "-DSTINT_NO_CAS16", "-fsyntax-only"],
}


def compile_silently(compiler, *words):
    done = subprocess.run([compiler.split()[0], *map(str, words)], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("language, compiler, standard", [
    (language, compiler, standard) for language, (_, standards, compilers) in HEADER.items()
    for compiler in compilers for standard in standards])
def test_the_header(language, compiler, standard, tmp_path):
    text, _, compilers = HEADER[language]
    unit = tmp_path / f"unit.{language}"
    unit.write_text(text)
    compile_silently(compiler, *compilers[compiler], f"-std={standard}", "-fsyntax-only", "-I",
                     SOURCE / "include", unit)


@pytest.mark.parametrize("kind", AMALGAMATION)
@pytest.mark.parametrize("compiler, warnings", [("gcc", COMMON + C + GCC),
                                                ("clang -Weverything", EVERYTHING)],
                         ids=["gcc", "clang -Weverything"])
def test_the_amalgamation(compiler, warnings, kind, tmp_path):
    # The warnings of clang come from its front end.
    front_end = ["-fsyntax-only"] if compiler != "gcc" else []
    compile_silently(compiler, *warnings, *AMALGAMATION[kind], *front_end, "-c", FILES / "stint.c",
                     "-o", tmp_path / "stint.o")


@pytest.mark.parametrize("options", [["-O3"], ["-O2", "-DNDEBUG"]], ids=" ".join)
def test_a_program_that_is_compiled_whole(options, tmp_path):
    """docs/embedding.md: the compiler then sees the program's variables in the library."""
    compile_silently("gcc", "-std=c17", *options, "-flto=auto", "-Wall", "-Wextra", "-Werror",
                     "-I", FILES, SOURCE / "examples/embed.c", FILES / "stint.c", "-o",
                     tmp_path / "embed")


@pytest.mark.parametrize("text", [
    "unsigned __int128 wide(void);",
    "int hidden; int f(int hidden); int f(int hidden) { return hidden; }",
], ids=["no ISO C", "a hidden name"])
def test_what_was_there_once_is_noticed(text, tmp_path):
    unit = tmp_path / "unit.c"
    unit.write_text(text + "\n")
    with pytest.raises(AssertionError, match="Werror"):
        compile_silently("gcc", *COMMON, "-fsyntax-only", unit)
