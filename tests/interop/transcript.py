# SPDX-License-Identifier: MIT
"""A page of docs/ as a transcript: its commands are run, and what they print is what it shows."""
import os
import re
import subprocess
from pathlib import Path

from program import STINT
from server import free_port

END = "---- end of block ----"


def blocks(page):
    """(commands, what they print) of each block, in order."""
    return re.findall(r"^```sh\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", page, re.M | re.S)


def at_free_ports(text, ports):
    """The text with a free port for each of these; at once, since one may have another's digits."""
    assert all(port in text for port in ports)
    free = {port: str(free_port()) for port in ports}
    return re.sub("|".join(ports), lambda port: free[port[0]], text) if ports else text


def follow(page, folder, ports, env, programs=()):
    """From top to bottom in one shell and an empty folder; each port becomes a free one."""
    found = blocks(at_free_ports(page, ports))
    script = "".join(f"{commands}\necho '{END}'\n" for commands, _ in found)
    # What the page leaves behind ends with the shell, however it ends.
    script = "trap 'kill $(jobs -p) 2> jobs.log' EXIT\n" + script
    path = [str(Path(each).parent) for each in (STINT, *programs)]
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, timeout=120,
                          env={**env, "PATH": ":".join([*path, os.environ["PATH"]])}, check=False)
    printed = done.stdout.decode().split(f"{END}\n")
    assert len(printed) == len(found) + 1, done.stderr
    for (commands, told), answer in zip(found, printed):
        assert answer.rstrip("\n") == told.rstrip("\n"), \
            f"{commands}\n{answer}\n{done.stderr.decode()}"
