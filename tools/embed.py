# SPDX-License-Identifier: MIT
"""usage: embed.py FILE NAME OUTPUT: a C file with the bytes of FILE as `NAME` and `NAME_len`.

A NUL that is not counted stands behind them.
"""

import sys
from pathlib import Path


def main(source, name, output):
    data = Path(source).read_bytes()
    rows = (data[at : at + 16] for at in range(0, len(data), 16))
    lines = "".join("    " + "".join(f"{byte}," for byte in row) + "\n" for row in rows)
    Path(output).write_text(
        f"/* Made of {Path(source).name} when the program was built. */\n"
        "#include <stddef.h>\n"
        f"extern const unsigned char {name}[];\nextern const size_t {name}_len;\n"
        f"const unsigned char {name}[] = {{\n{lines}    0,\n}};\n"
        f"const size_t {name}_len = {len(data)};\n"
    )


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
