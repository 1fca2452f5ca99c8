# SPDX-License-Identifier: MIT
"""tools/check_abi.sh: what it says of each kind of difference, with stubs for libabigail."""

import pytest

from stubs import SOURCE, run, stub, tree  # noqa: F401 (a fixture)

KEPT = "tests/abi/libstint.abi"


def prepare(tree, code, now="<abi-corpus architecture='one'>"):  # noqa: F811
    (tree / "tests/abi").mkdir(parents=True)
    (tree / "build-abi").mkdir()
    (tree / KEPT).write_text("<abi-corpus architecture='one'>\n")
    stub(tree, "meson", "mkdir -p $2; touch $2/build.ninja")
    stub(tree, "ninja", "echo $4 >asked")
    stub(tree, "abidw", f'echo "{now}"')
    # 4 of all symbols, and 0 without those that were added: there is only more.
    stub(tree, "abidiff", f'[ $1 = --no-added-syms ] && exit {code & 8}; exit {code}')


@pytest.mark.parametrize("code,words", [
    (0, ""),
    (1, "abidiff failed"),
    (4, "libstint.so has additions"),
    (12, "or raise\nstint_abi in meson.build"),
])
def test_each_difference_has_its_message(tree, code, words):  # noqa: F811
    prepare(tree, code)
    got, told = run(tree, "tools/check_abi.sh")
    assert (got != 0) == (code != 0) and (words in told if words else not told), told
    assert (tree / "asked").read_text().startswith("src/libstint.so.")


def test_another_architecture_is_not_compared(tree):  # noqa: F811
    prepare(tree, 12, "<abi-corpus architecture='two'>")
    assert run(tree, "tools/check_abi.sh")[0] == 0


def test_update_replaces_the_description(tree):  # noqa: F811
    prepare(tree, 12, "<abi-corpus architecture='two'>")
    assert run(tree, "tools/check_abi.sh", "--update") == (0, "")
    assert "two" in (tree / KEPT).read_text()


def test_the_description_names_every_public_function():
    text = (SOURCE / KEPT).read_text()
    for name in ("stint_take", "stint_table_open", "stint_quota_parse", "stint_pool_next"):
        assert f"<elf-symbol name='{name}'" in text
    assert "retry_after_ns" in text
