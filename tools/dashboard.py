# SPDX-License-Identifier: MIT
"""usage: dashboard.py PAGE STYLE SCRIPT CHARTS OUTPUT POLICY: the dashboard as one HTML file.

Style and scripts are put into the page, and its Content-Security-Policy, the second file, names
them by their hashes: nothing else runs in it, and it asks nobody but the server that it came from.
"""

import base64
import hashlib
import re
import sys
from pathlib import Path


def hash_of(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def main(page, style, script, charts, output, policy):
    page, style, script, charts = (Path(p).read_text() for p in (page, style, script, charts))
    # The map of the minified library would be fetched from elsewhere by developers' tools.
    charts = re.sub(r"^//# sourceMappingURL=.*\n?", "", charts, flags=re.M)
    parts = {"STYLE": style, "SCRIPT": script, "CHARTS": charts}
    for name, text in parts.items():
        if re.search(r"</(script|style)", text, re.I):
            sys.exit(f"dashboard: {name} would end its element early")
    Path(policy).write_text(
        f"default-src 'none'; script-src {hash_of(charts)} {hash_of(script)}; "
        f"style-src {hash_of(style)}; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
    Path(output).write_text(re.sub(r"@([A-Z]+)@", lambda m: parts[m.group(1)], page))


if __name__ == "__main__":
    if len(sys.argv) != 7:
        sys.exit(__doc__)
    main(*sys.argv[1:])
