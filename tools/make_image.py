#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: tools/make_image.py [--root ROOT] [--unpack FILES] FOLDER PACKAGE

Makes a container image of the Debian package stint: an OCI layout in FOLDER/oci, the same as one
file for `docker load` and skopeo, and a list of its packages (SPDX). The image has two layers: the
libraries that the program needs with the certificates of CAs, and the program. It has no shell.

ROOT is a Debian that has the libraries installed, for the processor of the package (default: this
one). FILES is a folder that gets the files of the image. Names, times and owners of files do not
depend on where and when the image is made: the same package and the same libraries give the same
bytes.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
from pathlib import Path

import release
import sbom
from sbom import Package

USER = 65534
# Loaded by name when a command sends requests to a server.
LOADED = ["libcurl-gnutls.so.4"]
# Parts of these are compiled into the program.
COMPILED_IN = ["libjs-chart.js", "node-llhttp"]
TRIPLETS = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
SIZE_MAX = 30_000_000
MEDIA = "application/vnd.oci.image"
ACCOUNTS = {
    "etc/group": f"root:x:0:\nnogroup:x:{USER}:\n",
    "etc/passwd": ("root:x:0:0:root:/root:/usr/sbin/nologin\n"
                   f"nobody:x:{USER}:{USER}:nobody:/nonexistent:/usr/sbin/nologin\n"),
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
# As on any Debian, all programs and libraries are below /usr.
LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "sbin": "usr/sbin"}


class Layer:
    """Files of an image; `data` is the tar archive of them, in the order of their names."""

    def __init__(self, time):
        self.time, self.entries = time, {}

    def add(self, name, content=b"", *, mode=0o644, kind=tarfile.REGTYPE, target="", owner=0):
        """A file, and the folders above it."""
        for parent in reversed(Path(name).parents[:-1]):
            if str(parent) not in self.entries:
                self.add(str(parent), mode=0o755, kind=tarfile.DIRTYPE)
        info = tarfile.TarInfo(name)
        info.mode, info.type, info.linkname = mode, kind, target
        info.uid = info.gid = owner
        info.size, info.mtime = len(content), self.time
        self.entries[name] = (info, content)

    def add_link(self, name, target):
        self.add(name, mode=0o777, kind=tarfile.SYMTYPE, target=target)

    def files(self):
        return {name: content for name, (info, content) in self.entries.items() if info.isreg()}

    @property
    def data(self):
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for _, (info, content) in sorted(self.entries.items()):
                tar.addfile(info, io.BytesIO(content))
        return archive.getvalue()


# ---- What the program needs ----------------------------------------------------------------------


def below_usr(root, path):
    """A path of the root without the links of LINKS, and without the root."""
    return os.path.join(os.path.realpath(path.parent), path.name).removeprefix(
        os.path.realpath(root).rstrip("/")).lstrip("/")


def find_library(root, triplet, name):
    """A library by its name, or by its path as the loader is."""
    for path in (root / name.lstrip("/"), root / "usr/lib" / triplet / name):
        if path.exists():
            return path
    raise SystemExit(f"make_image: {name} is not in {root}; install its package there")


def libraries(root, triplet, program):
    """The shared libraries of a program and those that they need, with their loader."""
    found = {name: find_library(root, triplet, name) for name in LOADED}
    left = [program, *found.values()]
    while left:
        dynamic = release.run("readelf", "--wide", "--dynamic", "--program-headers", left.pop())
        names = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
        names += re.findall(r"program interpreter: (.*)\]", dynamic)
        for name in names:
            if name not in found:
                found[name] = find_library(root, triplet, name)
                left.append(found[name])
    return sorted(found.values())


def add_library(layer, root, path):
    """The file under its own name and, where it differs, the name that programs look for."""
    name, real = below_usr(root, path), Path(os.path.realpath(path))
    file = below_usr(root, real)
    layer.add(file, real.read_bytes(), mode=0o755)
    if name != file:
        layer.add_link(name, os.path.relpath(file, os.path.dirname(name)))
    return file


def add_package(layer, package):
    """Its license and, where scanners look for it, what dpkg knows of it."""
    layer.add(f"usr/share/doc/{package.name}/copyright", package.copyright())
    layer.add(f"var/lib/dpkg/status.d/{package.name}", package.record.encode())


def base_layer(root, triplet, program):
    """(layer, packages): what changes with Debian's updates only, so it has no time of its own."""
    layer, packages = Layer(0), {}

    def add_owner(path, *files):
        package = Package.that_owns(root, path)
        packages.setdefault(package.name, package).files.update(files)

    for name, target in LINKS.items():
        layer.add_link(name, target)
    layer.add("usr/sbin", mode=0o755, kind=tarfile.DIRTYPE)
    layer.add("tmp", mode=0o1777, kind=tarfile.DIRTYPE)
    for name, text in ACCOUNTS.items():
        layer.add(name, text.encode())
    for path in libraries(root, triplet, program):
        add_owner(path, add_library(layer, root, path))
    layer.add("usr/lib/os-release", (root / "usr/lib/os-release").read_bytes())
    layer.add_link("etc/os-release", "../usr/lib/os-release")
    add_owner(root / "usr/lib/os-release", "usr/lib/os-release")
    # Of the package alone: the system's own list may have certificates of its administrator.
    authorities = sorted((root / "usr/share/ca-certificates/mozilla").glob("*.crt"))
    layer.add("etc/ssl/certs/ca-certificates.crt",
              b"".join(path.read_bytes() for path in authorities))
    add_owner(authorities[0], "etc/ssl/certs/ca-certificates.crt")
    for package in packages.values():
        add_package(layer, package)
    return layer, list(packages.values())


def program_layer(package, program):
    layer = Layer(release.epoch())
    layer.add("usr/bin/stint", program, mode=0o755)
    layer.add_link("usr/bin/ratelimit", "stint") # what deployments of envoyproxy/ratelimit start
    layer.add("var/lib/stint", mode=0o755, kind=tarfile.DIRTYPE, owner=USER)
    package.files.add("usr/bin/stint")
    add_package(layer, package)
    return layer


# ---- The layout ----------------------------------------------------------------------------------


def json_bytes(value):
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"


class Layout:
    def __init__(self, folder):
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "blobs/sha256").mkdir(parents=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}\n')

    def add(self, kind, content):
        digest = hashlib.sha256(content).hexdigest()
        (self.folder / "blobs/sha256" / digest).write_bytes(content)
        return {"mediaType": f"{MEDIA}.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    def blob(self, descriptor):
        return f"blobs/sha256/{descriptor['digest'].partition(':')[2]}"


def image_config(architecture, layers):
    return {
        "architecture": architecture, "os": "linux", "created": release.created(),
        "config": {
            "User": f"{USER}:{USER}", "WorkingDir": "/",
            "Entrypoint": ["/bin/stint"], "Cmd": ["serve"],
            "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
            "ExposedPorts": {"7379/tcp": {}, "8080/tcp": {}, "8081/tcp": {}},
            "Labels": labels(),
        },
        "rootfs": {"type": "layers", "diff_ids": [
            f"sha256:{hashlib.sha256(layer.data).hexdigest()}" for layer in layers]},
        "history": [{"created": release.created(), "created_by": f"tools/make_image.py: {what}"}
                    for what in ("libraries and certificates of Debian", "stint")],
    }


def labels():
    texts = {
        "title": "stint", "description": "A strict rate limiter", "vendor": "The stint authors",
        "licenses": "MIT", "version": release.version(), "revision": release.commit(),
        "created": release.created(),
    }
    return {f"org.opencontainers.image.{name}": text for name, text in texts.items() if text}


def write_layout(folder, architecture, layers):
    """The layout as a folder, and as one file that `docker load` reads, too."""
    layout, name = Layout(folder / "oci"), release.version()
    config = layout.add("config.v1+json", json_bytes(image_config(architecture, layers)))
    blobs = [layout.add("layer.v1.tar+gzip", gzip.compress(layer.data, 9, mtime=0))
             for layer in layers]
    manifest = layout.add("manifest.v1+json", json_bytes({
        "schemaVersion": 2, "mediaType": f"{MEDIA}.manifest.v1+json", "config": config,
        "layers": blobs, "annotations": labels()}))
    manifest.update(platform={"architecture": architecture, "os": "linux"}, annotations={
        "io.containerd.image.name": f"docker.io/library/stint:{name}",
        "org.opencontainers.image.ref.name": name})
    (folder / "oci/index.json").write_bytes(json_bytes(
        {"schemaVersion": 2, "mediaType": f"{MEDIA}.index.v1+json", "manifests": [manifest]}))
    (folder / "oci/manifest.json").write_bytes(json_bytes([{
        "Config": layout.blob(config), "RepoTags": [f"stint:{name}"],
        "Layers": [layout.blob(blob) for blob in blobs]}]))
    archive = Layer(release.epoch())
    for path in (folder / "oci").rglob("*"):
        if path.is_file():
            archive.add(str(path.relative_to(folder / "oci")), path.read_bytes())
    return archive.data, sum(blob["size"] for blob in blobs)


def make(root, folder, path):
    """Writes into the folder the image of the package in the file `path`; returns its layers."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    own = Package.of_file(path)
    if own.architecture not in TRIPLETS:
        raise SystemExit(f"make_image: {path} is for {own.architecture}; images are made for "
                         f"{' and '.join(TRIPLETS)}")
    with tarfile.open(fileobj=io.BytesIO(release.run(
            "dpkg-deb", "--fsys-tarfile", path, text=False))) as tar:
        program = tar.extractfile("./usr/bin/stint").read()
        own.license = tar.extractfile("./usr/share/doc/stint/copyright").read()
    (folder / "stint").write_bytes(program)
    base, packages = base_layer(root, TRIPLETS[own.architecture], folder / "stint")
    top = program_layer(own, program)
    (folder / "stint").unlink()
    compiled_in = [Package.installed(root, name) for name in COMPILED_IN]
    name = f"stint-{own.version.partition('-')[0]}-{own.architecture}"
    contents = {**base.files(), **top.files()}
    document = json_bytes(sbom.document(name, own, packages, compiled_in, contents))
    top.add("usr/share/doc/stint/sbom.spdx.json", document)
    (folder / f"{name}.spdx.json").write_bytes(document)
    archive, size = write_layout(folder, own.architecture, [base, top])
    (folder / f"{name}.tar").write_bytes(archive)
    unpacked = sum(map(len, [*base.files().values(), *top.files().values()]))
    if unpacked > SIZE_MAX:
        raise SystemExit(f"make_image: the files of the image have {unpacked} bytes; at most "
                         f"{SIZE_MAX} are allowed")
    print(f"{folder / name}.tar  {size / 1e6:.1f} MB, unpacked {unpacked / 1e6:.1f} MB, "
          f"{len(packages) + 1} packages")
    return [base, top]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[2])
    parser.add_argument("--root", type=Path, default=Path("/"))
    parser.add_argument("--unpack", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("package", type=Path)
    args = parser.parse_args()
    layers = make(args.root, args.folder.resolve(), args.package)
    for layer in layers if args.unpack else []:
        with tarfile.open(fileobj=io.BytesIO(layer.data)) as tar:
            tar.extractall(args.unpack)


if __name__ == "__main__":
    main()
