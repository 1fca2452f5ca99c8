#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Joins the library's sources into stint.c beside a copy of stint.h.

Sources come in the order of the layers. Each internal header stands once, where it is first
needed; the public header stays a file of its own. What was private to a file stays so: a `static`
name that another file has too gets its file's name as a prefix (two tentative objects would
otherwise quietly become one), and a macro ends with its file. Names shared by files get a prefix
that keeps them apart from the program around them. What this cannot keep apart is refused.
"""

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

LOCAL_INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')
SYSTEM_INCLUDE = re.compile(r"\s*#\s*include\s+<([^>]+)>")
FEATURE_MACRO = re.compile(r"\s*#\s*define\s+(_GNU_SOURCE|_POSIX_C_SOURCE|_DEFAULT_SOURCE)\b")
DEFINE = re.compile(r"^\s*#\s*define\s+(\w+)", re.M)
UNDEF = re.compile(r"^\s*#\s*undef\s+(\w+)", re.M)
CONDITION = re.compile(r"\s*#\s*(if|ifdef|ifndef)\b")
CONDITION_END = re.compile(r"\s*#\s*endif\b")
NO_NAMES = re.compile(r"/\*.*?\*/|__attribute__\(\(.*?\)\)\s*", re.S)
# A definition or declaration at the left margin: `… name(`, `… name =`, `… name;`, `… name[`.
NAMED = re.compile(
    r"^(?!typedef\b|extern\b|_Static_assert\b)[A-Za-z_]\w*\b[^;{}()=#]*?\b(\w+)\s*[(=;\[]", re.M
)
TAG_ALONE = re.compile(r"(struct|union|enum)\s+\w+\s*;")
# Where an identifier is no function or object: comments, literals, names of headers, members.
NOT_CODE = (r"""^(?:struct|union) \w+ \{.*?^\}|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
            r"""|^\s*\#\s*include[^\n]*""")


class Refused(Exception):
    pass


class Source:
    """One file of ours: its text, and what it names."""

    def __init__(self, path, root):
        self.path = path
        self.shown = path.relative_to(root).as_posix()
        self.is_header = path.suffix == ".h"
        self.text = path.read_text()
        self.static, self.shared = set(), set()
        for match in NAMED.finditer(NO_NAMES.sub("", self.text)):
            if not TAG_ALONE.match(match.group()):
                kind = self.static if re.search(r"\bstatic\b", match.group()) else self.shared
                kind.add(match.group(1))
        self.macros = set(DEFINE.findall(self.text)) - set(UNDEF.findall(self.text))
        self.macros = {m for m in self.macros if not FEATURE_MACRO.match(f"#define {m}")}

    def rename(self, names):
        """Gives names others (a dict, old to new); members (.x, ->x) keep theirs."""
        if names:
            any_of = "|".join(sorted(names))
            pattern = re.compile(rf"{NOT_CODE}|(?<![.\w])(?<!->)({any_of})\b", re.S | re.M)
            self.text = pattern.sub(lambda m: names.get(m.group(1), m.group()), self.text)


class Amalgamation:
    def __init__(self, root, paths):
        self.root = root
        self.headers = {}  # name in an include -> Source
        self.sources = [Source(path, root) for path in paths]
        for source in self.sources:
            self.find_headers(source)
        self.all = [*self.headers.values(), *self.sources]
        self.private = {n for s in self.all for n in s.shared if not n.startswith("stint_")}
        self.part_names()
        self.out = []
        self.inlined = set()
        self.system = set()

    def find_headers(self, source):
        for number, line in enumerate(source.text.splitlines(), 1):
            match = LOCAL_INCLUDE.match(line)
            if not match or match.group(1) == "stint.h" or match.group(1) in self.headers:
                continue
            path = self.root / "src" / match.group(1)
            if not path.is_file():
                raise Refused(f'{source.shown}:{number}: no such header: "{match.group(1)}"')
            self.headers[match.group(1)] = Source(path, self.root)
            self.find_headers(self.headers[match.group(1)])

    def part_names(self):
        """Renames the statics of .c files that meet another of the same name."""
        owners = Counter(name for source in self.all for name in source.static)
        owners.update(self.private)
        words = Counter(w for s in self.all for w in set(re.findall(r"\w+", s.text)))
        refused = []
        for source in self.all:
            new_names = {}
            for name in sorted(name for name in source.static if owners[name] > 1):
                stem = source.path.stem
                free = [new for new in (f"{stem}_{name}", f"{stem}_own_{name}") if not words[new]]
                if source.is_header or not free:
                    refused.append(f"{source.shown}: `{name}` is defined elsewhere too")
                else:
                    new_names[name] = free[0]
                    words[free[0]] += 1
            source.rename(new_names)
        macros = Counter(name for header in self.headers.values() for name in header.macros)
        for source in self.all:
            for name in sorted(source.macros):
                if macros[name] > (1 if source.is_header else 0):
                    refused.append(f"{source.shown}: `{name}` is a macro of another file too")
        if refused:
            raise Refused("names that clash:\n" + "\n".join(refused))

    def add(self, source):
        depth = -1 if source.is_header else 0  # a header's guard is no condition
        self.out.append(f"\n/* ---- {source.shown} ---- */\n")
        for number, line in enumerate(source.text.splitlines(), 1):
            if "SPDX-License-Identifier" in line or FEATURE_MACRO.match(line):
                continue
            depth += bool(CONDITION.match(line)) - bool(CONDITION_END.match(line))
            if local := LOCAL_INCLUDE.match(line):
                if depth > 0:
                    raise Refused(f"{source.shown}:{number}: a local include under a condition")
                if local.group(1) != "stint.h" and local.group(1) not in self.inlined:
                    self.inlined.add(local.group(1))
                    self.add(self.headers[local.group(1)])
                continue
            if (system := SYSTEM_INCLUDE.match(line)) and depth <= 0:
                if system.group(1) in self.system:
                    continue
                self.system.add(system.group(1))
            self.out.append(line)
        if not source.is_header:
            self.out += [f"#undef {name}" for name in sorted(source.macros)]

    def write(self, version):
        for source in self.sources:
            self.add(source)
        prefixed = "\n".join(f"#define {n} stint_private_{n}" for n in sorted(self.private))
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
{prefixed}
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
    version = re.search(r'STINT_VERSION "([^"]+)"', header.read_text()).group(1)
    try:
        amalgamation = Amalgamation(root, [path.resolve() for path in args.sources])
        text = amalgamation.write(version)
    except Refused as reason:
        sys.exit(f"amalgamate: {reason}")
    (args.output / "stint.c").write_text(text)
    (args.output / "stint.h").write_text(header.read_text())
    if args.depfile:
        paths = [source.path for source in amalgamation.all] + [header]
        needs = " ".join(str(path).replace(" ", "\\ ") for path in paths)
        args.depfile.write_text(f"{args.output / 'stint.c'}: {needs}\n")


if __name__ == "__main__":
    main()
