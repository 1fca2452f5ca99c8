# SPDX-License-Identifier: MIT
"""What one row says of one peer: its turns, their median and middle half, and ratios to stint.

A result is a dict, as it stands in the JSON file:
    row         one of the rows of page.py, as "keyed-uniform-1"
    peer, form  the peer and its configuration; stint's own are results like others
    unit        of the values, as "ns" or "B"
    values      turn by turn
    value, q1, q3               their median and middle half
    ratio, ratio_q1, ratio_q3   to stint, in the same turns; None where there is nothing to compare
    and what else the row has: granted (a share, 0 to 1), bound ("client": the load was slower than
    what it measured), note, per_second (a median)
"""
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from turns import middle  # noqa: E402  (its folder is named just above)


def of(row, peer, form, unit, values, stint_values=None, **more):
    """A result. `stint_values` are stint's values of the same turns."""
    value, q1, q3 = middle(values)
    result = {"row": row, "peer": peer, "form": form, "unit": unit, "values": values,
              "value": value, "q1": q1, "q3": q3,
              "ratio": None, "ratio_q1": None, "ratio_q3": None, **more}
    if stint_values:
        ratios = [mine / its for mine, its in zip(values, stint_values, strict=True) if its > 0]
        if ratios:
            result["ratio"], result["ratio_q1"], result["ratio_q3"] = middle(ratios)
    return result


def most(peer, form, limit, found, note=""):
    """A result of strictness: `found` is what strictness.attack() returned."""
    return {"row": "strictness", "peer": peer, "form": form, "unit": "units", "limit": limit,
            "value": max(found.values()), "patterns": found, "note": note}
