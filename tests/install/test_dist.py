# SPDX-License-Identifier: MIT
"""What `make dist` writes: the source of one commit, its checksums, and the release notes."""
import os
import shutil
import subprocess
import tarfile

import packages
import pytest

SOURCE = packages.SOURCE

pytestmark = pytest.mark.skipif(not (SOURCE / ".git").exists(), reason="not in a clone")


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, timeout=120, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module", name="folder")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist") / "dist"
    run(SOURCE / "tools/make_dist.py", folder)
    return folder


@pytest.fixture(scope="module", name="unpacked")
def source(folder, tmp_path_factory):
    (archive,) = folder.glob("*.tar.gz")
    place = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(archive) as tar:
        tar.extractall(place)
    return place / archive.name.removesuffix(".tar.gz")


def test_the_archive_has_the_files_of_the_commit(unpacked):
    listed = run("git", "ls-tree", "-r", "--name-only", "-z", "HEAD", cwd=SOURCE).split("\0")[:-1]
    there = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*")
             if not path.is_dir() or path.is_symlink()}
    assert there == set(listed)


def test_two_archives_of_a_commit_are_the_same(folder, tmp_path):
    run(SOURCE / "tools/make_dist.py", tmp_path / "again")
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_the_checksums_are_those_that_sha256sum_checks(folder):
    assert run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=folder).count(": OK") == 2


def test_a_package_of_the_archive_has_the_time_of_the_commit(unpacked):
    script = "import make_deb; print(make_deb.changelog())"
    env = {**os.environ, "PYTHONPATH": "tools", "SOURCE_DATE_EPOCH": ""}
    inside = run("/usr/bin/python3", "-c", script, cwd=unpacked, env=env)
    assert inside == run("/usr/bin/python3", "-c", script, cwd=SOURCE, env=env)


def test_the_archive_builds_the_library(unpacked, tmp_path):
    run("meson", "setup", tmp_path / "build", unpacked, "-Dprogram=false", "-Dtests=false",
        "-Doptimization=0", "-Ddebug=false")
    run("ninja", "-C", tmp_path / "build", "src/libstint.a")
    assert (tmp_path / "build/src/libstint.a").exists()


def test_a_signature_of_the_checksums_is_one_that_users_can_check(folder, tmp_path):
    """The commands of docs/releasing.md, with a key made here."""
    folder = shutil.copytree(folder, tmp_path / "copy")
    env = {**os.environ, "GNUPGHOME": str(tmp_path)}
    tmp_path.chmod(0o700)
    run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", "releases@stint.example",
        "ed25519", "sign", env=env)
    run("gpg", "--armor", "--detach-sign", "SHA256SUMS", cwd=folder, env=env)
    run("gpg", "--verify", "SHA256SUMS.asc", "SHA256SUMS", cwd=folder, env=env)
    (folder / "SHA256SUMS").write_text("other")
    assert subprocess.run(["gpg", "--verify", "SHA256SUMS.asc", "SHA256SUMS"], cwd=folder, env=env,
                          capture_output=True, check=False).returncode == 1
    run("gpgconf", "--kill", "all", env=env)
