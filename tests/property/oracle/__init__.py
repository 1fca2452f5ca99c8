# SPDX-License-Identifier: MIT
"""Exact models of every algorithm's law, in integers and fractions, written from the law alone."""

from .terms import Answer, Model, Terms
from .buckets import Buckets
from .concurrency import Concurrency
from .exact_log import ExactLog, UseLog
from .fixed_window import FixedWindow
from .gcra import Gcra, RationalGcra
from .sliding_counter import SlidingCounter
from .window import Window

MODELS = {
    "window": Window, "buckets": Buckets, "log": ExactLog, "gcra": Gcra,
    "fixed_window": FixedWindow, "sliding_counter": SlidingCounter, "concurrency": Concurrency,
}


def model_of(terms):
    return MODELS[terms.algorithm](terms)


__all__ = ["Answer", "Buckets", "Concurrency", "ExactLog", "FixedWindow", "Gcra", "MODELS",
           "Model", "RationalGcra", "SlidingCounter", "Terms", "UseLog", "Window", "model_of"]
