# SPDX-License-Identifier: MIT
"""Figures of a comparison in which subject and baseline take turns: of the values and of the ratios
of equal turns the median, and the middle half."""
import statistics


def middle(values):
    """The median, and between what the middle half is."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return statistics.median(ordered), ordered[quarter], ordered[-1 - quarter]


def compared(values, baselines, inverted=False):
    """The figures of a row. The ratio is that to the baseline, or of the baseline to the value."""
    pairs = zip(baselines, values) if inverted else zip(values, baselines)
    ratio, q1, q3 = middle([one / other for one, other in pairs])
    return {"value": statistics.median(values), "baseline_value": statistics.median(baselines),
            "ratio": ratio, "ratio_q1": q1, "ratio_q3": q3, "values": values,
            "baseline_values": baselines}
