# SPDX-License-Identifier: MIT
"""The servers and measurements of tests/interop serve here, too."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "interop"))

from tls_authority import authority  # noqa: E402, F401 (its folder is named just above)
