# SPDX-License-Identifier: MIT
"""Debian packages as dpkg knows them, and a list of them in SPDX 2.3."""

import functools
import hashlib
import os
import re
import urllib.parse
from pathlib import Path

import release


class Package:
    """One package: its record in dpkg's database, and those of its files that are used."""

    def __init__(self, record, root=None):
        self.record, self.root, self.files, self.license = record, root, set(), None

    @classmethod
    def of_file(cls, path):
        return cls(release.run("dpkg-deb", "--field", path))

    @classmethod
    def installed(cls, root, name):
        database = f"--admindir={root}/var/lib/dpkg"
        return cls(release.run("dpkg-query", database, "--status", name), root)

    @classmethod
    def that_owns(cls, root, path):
        """dpkg knows a file by the path in its package, which may be through a link to /usr."""
        real = Path(os.path.realpath(path)).relative_to(os.path.realpath(root))
        for known in (f"/{real}", f"/{real}".removeprefix("/usr")):
            if known in owners(root):
                return cls.installed(root, owners(root)[known])
        raise SystemExit(f"sbom: no package of {root} owns /{real}")

    def field(self, name):
        found = re.search(rf"^{name}: (.*)", self.record, re.M)
        return found[1] if found else None

    @property
    def name(self):
        return self.field("Package")

    @property
    def version(self):
        return self.field("Version")

    @property
    def architecture(self):
        return self.field("Architecture")

    def copyright(self):
        return self.license or (self.root / f"usr/share/doc/{self.name}/copyright").read_bytes()


@functools.cache
def owners(root):
    """Path of a file -> package, with its processor where several can be installed."""
    return {line: listing.stem for listing in (root / "var/lib/dpkg/info").glob("*.list")
            for line in listing.read_text().splitlines()}


# ---- SPDX ----------------------------------------------------------------------------------------


def spdx_id(kind, name):
    return f"SPDXRef-{kind}-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def location(package):
    """The package URL, as scanners for known vulnerabilities compare it."""
    if package.name == "stint":
        return f"pkg:generic/stint@{release.version()}"
    version = urllib.parse.quote(package.version, safe="")
    return f"pkg:deb/debian/{package.name}@{version}?arch={package.architecture}"


def package_entry(package, contents):
    entry = {
        "SPDXID": spdx_id("Package", package.name), "name": package.name,
        "versionInfo": package.version, "downloadLocation": "NOASSERTION",
        "licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION",
        "licenseDeclared": "MIT" if package.name == "stint" else "NOASSERTION",
        "filesAnalyzed": bool(package.files),
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                          "referenceLocator": location(package)}],
    }
    if package.files:
        sums = "".join(sorted(hashlib.sha1(contents[file]).hexdigest() for file in package.files))
        entry["packageVerificationCode"] = {
            "packageVerificationCodeValue": hashlib.sha1(sums.encode()).hexdigest()}
    return entry


def file_entry(file, content):
    return {"SPDXID": spdx_id("File", file), "fileName": f"./{file}",
            "licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION",
            "checksums": [
                {"algorithm": name.upper(), "checksumValue": hashlib.new(name, content).hexdigest()}
                for name in ("sha1", "sha256")]}


def relation(subject, kind, other):
    return {"spdxElementId": subject, "relationshipType": kind, "relatedSpdxElement": other}


def document(name, own, needed, compiled_in, contents):
    """SPDX of the package `own`, the packages that it needs and those that it contains parts of.
    `contents` are the bytes of their files."""
    packages = sorted([own, *needed, *compiled_in], key=lambda package: package.name)
    own_id = spdx_id("Package", own.name)
    relations = [relation("SPDXRef-DOCUMENT", "DESCRIBES", own_id)]
    relations += [relation(own_id, "DEPENDS_ON", spdx_id("Package", each.name)) for each in needed]
    relations += [relation(spdx_id("Package", each.name), "STATIC_LINK", own_id)
                  for each in compiled_in]
    relations += [relation(spdx_id("Package", package.name), "CONTAINS", spdx_id("File", file))
                  for package in packages for file in sorted(package.files)]
    digest = hashlib.sha256(repr(sorted(contents.items())).encode()).hexdigest()
    return {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": name, "documentNamespace": f"urn:stint:sbom:{name}:{digest}",
        "creationInfo": {"created": release.created(), "creators": ["Tool: stint-tools-sbom"]},
        "packages": [package_entry(package, contents) for package in packages],
        "files": [file_entry(file, contents[file])
                  for package in packages for file in sorted(package.files)],
        "relationships": relations,
    }
