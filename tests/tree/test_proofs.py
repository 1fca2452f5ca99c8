# SPDX-License-Identifier: MIT
"""The models of tests/proof stand for the code, and each step they can leave out is a step run."""

import re

import pytest

from test_files import SOURCE

MODELS = sorted((SOURCE / "tests/proof").glob("*/*.pml"))
MODELLED = re.compile(r"\* Models (.*?)\. Left out", re.S)
FILE = re.compile(r"((?:\w+(?:,| and)? )+)\((\w+\.[ch])\)")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.stem)
def test_functions_that_are_modelled_are_there(model):
    text = re.sub(r"\s*\n \*\s*", " ", MODELLED.search(model.read_text()).group(1))
    cited = FILE.findall(text)
    assert len(cited) >= 3, text
    for names, file in cited:
        code = "".join(path.read_text() for path in (SOURCE / "src/table").rglob(file))
        for name in re.findall(r"\w+", names):
            if name != "and":
                assert re.search(rf"\b{name}\(", code), f"{name} is not in {file}"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.stem)
def test_every_step_left_out_is_searched(model):
    known = set(re.findall(r"\bLEAVE_OUT_[A-Z_]+", model.read_text()))
    steps = (model.parent / "steps").read_text()
    searched = set(re.findall(rf" fails {model.name} .*?-D(LEAVE_OUT_[A-Z_]+)", steps))
    assert known and searched == known
