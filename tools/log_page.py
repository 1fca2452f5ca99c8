#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: log_page.py > docs/log.md

Writes the page of log events from the sources: the table of kinds in src/net/log/log.h, and the
fields with which each kind is written. tests/tree/test_log_page.py compares it with the page.
"""
import re
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
HEAD = """\
<!-- SPDX-License-Identifier: MIT -->
# Log events

Each event that `stint serve` writes to its [log](serving.md#log), and the fields that its lines may
have. `tools/log_page.py` writes this page from the sources.

With `--log-format json` each line is one JSON object:

```text
{"time":"2026-03-14T09:26:53.589Z","level":"info","event":"stopped","message":"stopped","pid":42}
```

- `time` is UTC with milliseconds, `level` one of debug, info, warn and error. `event` identifies
  the kind of line: filter by it, not by `message`, which is for readers and may change.
- After these four come the fields below, in this order. Those marked *number* are JSON numbers, the
  others strings. A field that would make a line longer than 2 KiB is left out.
- `suppressed` (*number*) comes before them where lines of this event were held back.
- Bytes of peers and files cannot end or forge a line. Quotes, control characters and characters
  that are not shown are escaped; bytes that are not UTF-8 are `\\ufffd`.
- A server that cannot start, or that an error ends, writes the reason as its last line: in JSON as
  `failed`, in text as `stint: REASON`, without time and level. An error in the options or the
  config file is always text, since these set the format.

| event | level | fields | message |
|---|---|---|---|
"""
ROW = re.compile(r'X\((\w+), (\w+), "(\w+)",([^)]*)\)')
FIELD = re.compile(r'LOG_(TEXT|NUMBER)\("(\w+)"')


def kinds():
    """{NAME: (level, event, message)}, in the order of the table."""
    text = (SOURCE / "src/net/log/log.h").read_text().replace("\\\n", "")
    return {name: (level.lower(), event, "".join(re.findall(r'"(.*?)"', message)))
            for name, level, event, message in ROW.findall(text)}


def call(text, at):
    """The arguments of a call, from its parenthesis on."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return text[at:i]
    raise ValueError(text[at:at + 80])


def fields():
    """{NAME: {field: type}} of all calls. log_write() gets the fields that its function makes."""
    found = {}
    for path in sorted((SOURCE / "src").rglob("*.c")):
        for function in path.read_text().split("\n}\n"):
            for match in re.finditer(r"\b(log_line|log_write|make_line)(?=\()", function):
                arguments = call(function, match.end())
                made = function if match[1] == "log_write" else arguments
                for name in re.findall(r"\bLOG_([A-Z_]+)\b", arguments):
                    found.setdefault(name, {}).update(
                        (field, kind) for kind, field in FIELD.findall(made))
    return found


def page():
    used, rows = fields(), []
    for name, (level, event, message) in kinds().items():
        shown = ", ".join(f"`{field}`" + (" *number*" if kind == "NUMBER" else "")
                          for field, kind in used[name].items())
        rows.append(f"| `{event}` | {level} | {shown} | {message} |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(page())
