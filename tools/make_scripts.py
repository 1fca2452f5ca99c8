# SPDX-License-Identifier: MIT
"""usage: make_scripts.py FOLDER NAME [OUTPUT]: one Lua script out of the files of lua/.

NAME is an algorithm (its law between single_begin and single_end), `list` (all of them) or
`rolling_window` (the law of buckets in a frame of its own). Lines that are only a comment are left
out. Without OUTPUT the script is printed.
"""

import sys
from pathlib import Path

ALGORITHMS = (
    "window", "buckets", "log", "gcra", "fixed_window", "sliding_counter", "concurrency"
)


def parts_of(name):
    if name == "list":
        return ["list_begin", *ALGORITHMS, "list_end"]
    if name == "rolling_window":
        return ["rolling_window_begin", "buckets", "rolling_window_end"]
    if name in ALGORITHMS:
        return ["single_begin", name, "single_end"]
    raise ValueError(f"no script is called {name!r}")


def script(folder, name):
    """The text that Redis is given."""
    lines = []
    for part in parts_of(name):
        text = (Path(folder) / f"{part}.lua").read_text(encoding="utf-8")
        if part == "single_end":
            text = text.replace("LAW", name)
        lines += [line.strip() for line in text.splitlines()]
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("--"))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    made = script(*sys.argv[1:3])
    if len(sys.argv) == 4:
        Path(sys.argv[3]).write_text(made, encoding="utf-8")
    else:
        print(made, end="")
