# SPDX-License-Identifier: MIT
"""What `make run` prints where packages are missing or Meson fails, on systems made of stubs."""

import re

import pytest

from stubs import SOURCE, run, stub, tree  # noqa: F401 (a fixture)


def debian(tree, missing, uid):
    stub(tree, "dpkg-query", f'case $4 in {missing}) exit 1 ;; esac; echo "install ok installed"')
    stub(tree, "id", f"echo {uid}")


LINE = "apt-get update && apt-get install --no-install-recommends libuv1-dev libhiredis-dev\n"


def test_nothing_is_said_where_all_is_there(tree):  # noqa: F811
    debian(tree, "none", 1000)
    assert run(tree, "tools/setup.sh", "run") == (0, "")


def test_without_root_and_sudo_the_line_is_printed(tree):  # noqa: F811
    debian(tree, "libuv1-dev|libhiredis-dev", 1000)
    code, told = run(tree, "make", "release")
    assert code != 0 and LINE in told and "as root" in told
    assert "Meson" not in told  # make stops there


def test_packages_are_installed_by_sudo(tree):  # noqa: F811
    debian(tree, "libuv1-dev|libhiredis-dev", 1000)
    stub(tree, "sudo", '[ "$2" = DEBIAN_FRONTEND=noninteractive ] && echo "$@" >>asked')
    code, told = run(tree, "tools/setup.sh", "run")
    assert code == 0, told
    assert (tree / "asked").read_text().endswith("libuv1-dev libhiredis-dev\n")


def test_where_sudo_fails_the_line_is_printed(tree):  # noqa: F811
    debian(tree, "libuv1-dev|libhiredis-dev", 1000)
    stub(tree, "sudo", "exit 1")
    code, told = run(tree, "tools/setup.sh", "run")
    assert code != 0 and LINE in told


@pytest.mark.parametrize("system,line", [
    ("ID=fedora", r"dnf install gcc .*'pkgconfig\(libuv\)'"),
    ('ID=rocky\nID_LIKE="rhel centos fedora"', r"dnf install gcc .*'pkgconfig\(libuv\)'"),
    ('ID=opensuse-leap\nID_LIKE="suse opensuse"', r"zypper install gcc .*'pkgconfig\(libuv\)'"),
    ("ID=arch", r"pacman -S --needed gcc .* libuv .*hiredis"),
    ("ID=alpine", r"apk add gcc .*meson.*\n.*-Dprogram=false"),
    ("ID=other", r"the equivalents of: gcc libc6-dev .*libuv1-dev"),
])
def test_other_systems_get_their_line(tree, system, line):  # noqa: F811
    (tree / "os-release").write_text(system + "\n")
    code, told = run(tree, "tools/setup.sh", "run", OS_RELEASE=str(tree / "os-release"))
    assert code == 0  # what is missing is found by Meson
    assert re.search(line, told), told


def pkg_config_names():
    """Those that the build of the program asks for."""
    text = "".join((SOURCE / name / "meson.build").read_text() for name in ("src", "src/cmd"))
    return set(re.findall(r"(?<!_)dependency\('([^']+)'", text)) - {"threads"} | {"libcurl"}


def test_the_names_for_other_systems_are_those_of_the_build(tree):  # noqa: F811
    (tree / "os-release").write_text("ID=fedora\n")
    _, told = run(tree, "tools/setup.sh", "run", OS_RELEASE=str(tree / "os-release"))
    assert set(re.findall(r"pkgconfig\((.*?)\)", told)) == pkg_config_names()


def test_a_failure_of_meson_is_shown(tree):  # noqa: F811
    debian(tree, "none", 0)
    stub(tree, "meson", "mkdir -p $2/meson-private; touch $2/meson-private/coredata.dat\n"
         "echo 'ERROR: Dependency \"libuv\" not found'; exit 1")
    stub(tree, "ninja", "echo ninja >>asked")
    code, told = run(tree, "make", "release")
    assert code != 0 and 'Dependency "libuv" not found' in told
    assert not (tree / "asked").exists()
    # As Meson does where it believes that the folder is configured.
    stub(tree, "meson", "[ ! -e $2/meson-private/coredata.dat ] || exit 0\n"
         "mkdir -p $2; touch $2/build.ninja; echo 'many lines'")
    assert run(tree, "make", "release") == (0, "")
    assert (tree / "build-release/build.ninja").exists() and (tree / "asked").exists()


@pytest.mark.parametrize("is_debian,has_dpkg_dev,option", [
    (True, False, "--libdir=lib/some-multiarch "), (True, True, ""), (False, False, ""),
])
def test_libraries_go_where_a_debian_looks(tree, is_debian, has_dpkg_dev, option):  # noqa: F811
    """Meson asks dpkg-architecture for that folder, which is not in a fresh Debian."""
    stub(tree, "gcc", "[ $1 = -print-multiarch ] && echo some-multiarch")
    stub(tree, "meson", 'echo "$@" >>asked')
    if has_dpkg_dev:
        stub(tree, "dpkg-architecture", "echo other-multiarch")
    debian_version = tree / "debian_version"
    if is_debian:
        debian_version.write_text("12.0\n")
    code, told = run(tree, "tools/configure.sh", "folder", "-Dtests=false",
                     DEBIAN=str(debian_version))
    assert code == 0, told
    assert (tree / "asked").read_text() == f"setup folder {option}-Dtests=false\n"
