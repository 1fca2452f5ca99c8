# SPDX-License-Identifier: MIT
"""usage: messages.py PROTOC_C FOLDER OUTPUT FILE…: C code for the .proto files of a folder.

protobuf-c has a string end at its first NUL, and ours have a length: in the code, a `string` is
`bytes`, which is the same on the wire. Services have no code, and all packages are called pb, as
names would else be longer than lines. A file a/b.proto becomes b.pb-c.c and b.pb-c.h, as Meson has
all that it makes in one folder. Files of v1alpha are those of v1 and have no code of their own.

All are also described, with string as what it is, in OUTPUT/messages.bin: a FileDescriptorSet, of
which server reflection answers.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path


def entry(match):
    """A map is a list of messages of key and value, of which the key could not be bytes."""
    indent, kind, name, number = match.groups()
    message = f"{name.capitalize()}Entry"
    return (
        f"{indent}message {message} {{ bytes key = 1; {kind} value = 2; }}\n"
        f"{indent}repeated {message} {name} = {number};"
    )


def for_code(text):
    text = re.sub(r"^( *)map<string, (\w+)> (\w+) = (\d+);", entry, text, flags=re.M)
    text = re.sub(r"^service \w+ \{.*?^\}\n", "", text, flags=re.M | re.S)
    text = re.sub(r"^( *(?:repeated )?)string ", r"\1bytes ", text, flags=re.M)
    text = re.sub(r"^package [\w.]+;", "package pb;", text, flags=re.M)
    text = re.sub(r"\b(?:[a-z]\w*\.)+([A-Z])", r"\1", text)
    return re.sub(r'^import "(?:\w+/)*(\w+\.proto)";', r'import "\1";', text, flags=re.M)


def main(protoc, folder, output, *names):
    coded = [name for name in names if "v1alpha" not in name]
    with tempfile.TemporaryDirectory() as flat:
        for name in coded:
            text = for_code((Path(folder) / name).read_text())
            (Path(flat) / Path(name).name).write_text(text)
        files = [Path(name).name for name in coded]
        subprocess.run([protoc, f"-I{flat}", f"--c_out={output}", *files], check=True)
    subprocess.run(
        [protoc, f"-I{folder}", f"--descriptor_set_out={output}/messages.bin", *names],
        check=True,
    )


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
