# SPDX-License-Identifier: MIT
"""usage: make_scripts.py FOLDER NAME: prints one Lua script made of the files of lua/.
       make_scripts.py FOLDER OUTPUT.c: all of them, for backend/script/lua_script.h.

NAME is an algorithm or `counter` (its file between single_begin and single_end; before that of
window also window_take, before fixed_window and sliding_counter what both share), `list` (all
algorithms), an algorithm or `list` with `_once` behind it (the same within once_begin and once_end,
for requests with an id), lease_ALGORITHM (between lease_begin and lease_end; `_once` likewise),
`pool` (algorithms between pool_begin and pool_end), or `rolling_window` (buckets in a frame of its
own). Lines that are only a comment are left out.
"""

import hashlib
import sys
from pathlib import Path

ALGORITHMS = (
    "window", "buckets", "log", "gcra", "fixed_window", "sliding_counter", "concurrency"
)
LEASED = ALGORITHMS[:-1]  # places of concurrency have holders of their own
COUNTED = ("fixed_window", "sliding_counter")  # have a part in common
SINGLE = (*ALGORITHMS, "counter")  # a counter stands alone, and takes no id
EXTERN = ("list", "list_once", "pool")
NAMES = (
    *SINGLE, "list", *(f"{name}_once" for name in (*ALGORITHMS, "list")), "rolling_window",
    "pool", *(f"lease_{algorithm}{once}" for algorithm in LEASED for once in ("", "_once")),
)


def with_common(algorithms):
    first = next((i for i, name in enumerate(algorithms) if name in COUNTED), None)
    return [*algorithms] if first is None else [*algorithms[:first], "counted", *algorithms[first:]]


def parts_of(name):
    if name.endswith("_once"):
        begin, *algorithms, end = parts_of(name.removesuffix("_once"))
        return [begin, "once_begin", *algorithms, end, "once_end"]
    if name == "list":
        return ["list_begin", *with_common(ALGORITHMS), "least", "list_end"]
    if name == "pool":
        return ["pool_begin", *with_common(LEASED), "least", "pool_state", "pool_end"]
    if name == "rolling_window":
        return ["rolling_window_begin", "buckets", "rolling_window_end"]
    if name == "window":
        return ["single_begin", "window_take", name, "single_end"]
    if name in SINGLE:
        return ["single_begin", *with_common([name]), "single_end"]
    if name.startswith("lease_") and name[6:] in LEASED:
        return ["lease_begin", *with_common([name[6:]]), "lease_end"]
    raise ValueError(f"no script is called {name!r}")


def script(folder, name):
    """The text that Redis is given."""
    lines = []
    for part in parts_of(name):
        text = (Path(folder) / f"{part}.lua").read_text(encoding="utf-8")
        if part in ("single_end", "lease_end"):
            text = text.replace("ALGORITHM", name.removeprefix("lease_").removesuffix("_once"))
        elif part.startswith("once"):
            move, now, each = (
                ("move_list", 2, "6 * #KEYS") if name == "list_once" else ("move_one", 3, "0")
            )
            places = "true" if name == "concurrency_once" else "false"
            for word, value in (("MOVE", move), ("NOW", str(now)), ("EACH", each),
                                ("PLACES", places)):
                text = text.replace(word, value)
        lines += [line.strip() for line in text.splitlines()]
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("--"))


def in_c(folder, name):
    data = script(folder, name).encode()
    rows = (data[at : at + 16] for at in range(0, len(data), 16))
    lines = "".join("    " + "".join(f"{byte}," for byte in row) + "\n" for row in rows)
    return (
        f"\nstatic const uint8_t {name}_text[] = {{\n{lines}}};\n"
        f"{'' if name in EXTERN else 'static '}const struct lua_script lua_script_{name} = {{\n"
        f'    .name = "{name}",\n'
        f'    .sha1 = "{hashlib.sha1(data).hexdigest()}",\n'
        f"    .text = {{{name}_text, sizeof({name}_text)}},\n}};\n"
    )


def main(folder, what):
    if not what.endswith(".c"):
        print(script(folder, what), end="")
        return
    scripts = "".join(in_c(folder, name) for name in NAMES)
    rows = "".join(f"    &lua_script_{name},\n" for name in NAMES)
    scripts += f"\nconst struct lua_script *const lua_scripts[] = {{\n{rows}    NULL,\n}};\n"
    rows = "".join(
        f"    [STINT_{algorithm.upper()}] = {{"
        + ", ".join(f"&lua_script_{kind}" for kind in (
            algorithm, f"{algorithm}_once", f"lease_{algorithm}", f"lease_{algorithm}_once",
        ) if kind in NAMES) + "},\n"
        for algorithm in SINGLE
    )
    scripts += f"\nconst struct lua_script *const lua_scripts_one[][4] = {{\n{rows}}};\n"
    head = (
        '/* Made of lua/ when the program was built. */\n#include "backend/script/lua_script.h"\n'
        "#include \"stint.h\"\n\n#include <stddef.h>\n"
    )
    Path(what).write_text(head + scripts, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
