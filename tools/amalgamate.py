#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Joins the library's sources into stint.c beside a copy of stint.h.

Sources come in the order of the layers. Each internal header stands once, where it is first
needed; the public header stays a file of its own. In one translation unit two `static` functions,
objects or macros of the same name would clash, or worse, quietly become one: that is refused.
Internal functions get a prefix, so that they cannot meet those of the program around them.
"""

import argparse
import re
import sys
from pathlib import Path

LOCAL_INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')
SYSTEM_INCLUDE = re.compile(r"\s*#\s*include\s+<([^>]+)>")
FEATURE_MACRO = re.compile(r"\s*#\s*define\s+(_GNU_SOURCE|_POSIX_C_SOURCE|_DEFAULT_SOURCE)\b")
DEFINE = re.compile(r"^\s*#\s*define\s+(\w+)", re.M)
UNDEF = re.compile(r"^\s*#\s*undef\s+(\w+)", re.M)
CONDITION = re.compile(r"\s*#\s*(if|ifdef|ifndef)\b")
CONDITION_END = re.compile(r"\s*#\s*endif\b")
# Definitions at the left margin: `static … name(` / `name =` / `name;` / `name[`.
DEFINED = re.compile(
    r"^(?!typedef\b|extern\b|_Static_assert\b)[a-z_]\w*\b[^;{}()=#\n]*?\b(\w+)\s*[(=;\[]", re.M
)
TAG_ALONE = re.compile(r"(struct|union|enum)\s+\w+\s*;")
COMMENT = re.compile(r"/\*.*?\*/", re.S)


class Clash(Exception):
    pass


def without_comments(text):
    """The same text with comments blanked, line for line."""
    return COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def defined_names(text):
    """(name, is_static) of the functions and objects that a file has at its left margin."""
    for match in DEFINED.finditer(without_comments(text)):
        head = match.group(0)
        if not TAG_ALONE.match(head):
            yield match.group(1), head.startswith("static")


class Amalgamation:
    def __init__(self, source_root):
        self.roots = [source_root / "src", source_root / "include"]
        self.root = source_root
        self.out = []
        self.seen = set()  # local headers already inlined
        self.system = set()  # system headers already included, outside any condition
        self.statics = {}  # name -> file that owns it
        self.private = set()  # internal names with external linkage
        self.used = []
        self.clashes = []  # all are told at once

    def find(self, name, includer):
        for root in self.roots:
            if (root / name).is_file():
                return root / name
        raise Clash(f'{includer}: no such header "{name}"')

    def claim(self, name, path):
        owner = self.statics.setdefault(name, path)
        if owner != path:
            self.clashes.append(f"{path} and {owner} both define `{name}`: rename one of them")

    def take_names(self, path, text):
        for name, is_static in defined_names(text):
            if is_static:
                self.claim(name, path)
            elif not name.startswith("stint_"):
                self.private.add(name)
        undone = set(UNDEF.findall(text))
        for name in set(DEFINE.findall(text)) - undone:
            if not FEATURE_MACRO.match(f"#define {name}"):
                self.claim(name, path)

    def add(self, path):
        self.used.append(path)
        text = path.read_text()
        shown = path.relative_to(self.root)
        self.take_names(shown, text)
        guard = path.suffix == ".h"
        depth = -1 if guard else 0
        self.out.append(f"\n/* ---- {shown} ---- */\n")
        for number, line in enumerate(text.splitlines(), 1):
            if "SPDX-License-Identifier" in line or FEATURE_MACRO.match(line):
                continue
            if CONDITION.match(line):
                depth += 1
            elif CONDITION_END.match(line):
                depth -= 1
            local = LOCAL_INCLUDE.match(line)
            system = SYSTEM_INCLUDE.match(line)
            if local:
                if local.group(1) == "stint.h":
                    continue
                if depth > 0:
                    raise Clash(f"{shown}:{number}: a local include under a condition")
                header = self.find(local.group(1), f"{shown}:{number}")
                if header not in self.seen:
                    self.seen.add(header)
                    self.add(header)
                continue
            if system and depth <= 0:
                if system.group(1) in self.system:
                    continue
                self.system.add(system.group(1))
            self.out.append(line)

    def text(self, version):
        for name in sorted(self.private & self.statics.keys()):
            self.clashes.append(f"`{name}` is static in {self.statics[name]}, external elsewhere")
        if self.clashes:
            raise Clash("\n".join(["names that clash", *self.clashes]))
        renames = "\n".join(f"#define {name} stint_private_{name}" for name in sorted(self.private))
        body = re.sub(r"\n{3,}", "\n\n", "\n".join(self.out))
        return f"""\
/* SPDX-License-Identifier: MIT */
/*
 * stint {version}, the whole library in one file: made by tools/amalgamate.py, not to be edited.
 * Compile it as C17 beside stint.h: cc -std=c17 -O2 -c stint.c
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* the clock, shared memory and huge pages are beyond ISO C */
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64 /* a table may pass 2 GiB, on 32-bit machines too */
#endif
#include "stint.h"

#if defined(__GNUC__)
/* Headers bring small inline functions of which a single file needs only some. */
#pragma GCC diagnostic ignored "-Wunused-function"
#endif

/* Internal names get a prefix, to stay apart from those of the program around them. */
{renames}
{body}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source-root", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True, help="a directory")
    parser.add_argument("--depfile", type=Path)
    parser.add_argument("sources", type=Path, nargs="+")
    args = parser.parse_args()

    root = args.source_root.resolve()
    header = root / "include/stint.h"
    amalgamation = Amalgamation(root)
    try:
        for source in args.sources:
            amalgamation.add(source.resolve())
        version = re.search(r'STINT_VERSION "([^"]+)"', header.read_text()).group(1)
        text = amalgamation.text(version)
    except Clash as clash:
        sys.exit(f"amalgamate: {clash}")
    (args.output / "stint.c").write_text(text)
    (args.output / "stint.h").write_text(header.read_text())
    if args.depfile:
        needs = " ".join(str(path).replace(" ", "\\ ") for path in amalgamation.used + [header])
        args.depfile.write_text(f"{args.output / 'stint.c'}: {needs}\n")


if __name__ == "__main__":
    main()
