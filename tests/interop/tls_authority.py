# SPDX-License-Identifier: MIT
"""An authority for certificates of tests."""
import os
import subprocess

import pytest


EC = ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
RSA = ["rsa:2048"]


def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True, timeout=60)


class Authority:
    """Signs certificates that are good for a day."""

    def __init__(self, folder, name, key=EC):
        self.folder, self.name = folder, name
        self.certificate, self.key = folder / f"{name}.pem", folder / f"{name}.key"
        openssl("req", "-x509", "-newkey", *key, "-nodes", "-keyout", self.key, "-out",
                self.certificate, "-days", 1, "-subj", f"/CN={name}")

    def sign(self, name, to=None, names="DNS:localhost,IP:127.0.0.1", key=EC):
        """(certificate, key) of `name`, as files."""
        stem = to or name
        certificate, key_file = self.folder / f"{stem}.pem", self.folder / f"{stem}.key"
        request, extension = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extension.write_text(f"subjectAltName={names}\n")
        openssl("req", "-newkey", *key, "-nodes", "-keyout", f"{key_file}.new", "-out", request,
                "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key,
                "-CAcreateserial", "-days", 1, "-extfile", extension, "-out", f"{certificate}.new")
        os.rename(f"{key_file}.new", key_file)
        os.rename(f"{certificate}.new", certificate)
        return certificate, key_file


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"), "authority")
