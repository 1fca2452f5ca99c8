# SPDX-License-Identifier: MIT
"""What a server takes up, as /proc and its own metrics tell."""
import os
import re
import time
import urllib.request

KIB = 1024
MIB = 1024 * KIB
SERIES = re.compile(r"^(\w+)(\{[^}]*\})? (\S+)$", re.M)


def until(condition, seconds=20):
    """Whether it comes true in that time."""
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            return False
        time.sleep(0.02)
    return True


def status(pid, name):
    """A line of /proc/PID/status that is in kB, in bytes."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * KIB
    raise KeyError(name)


def own_memory(pid):
    """Bytes that the process has to itself: without the state file and the program's own."""
    return status(pid, "RssAnon")


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def cpu_s(pid):
    """Seconds of processor time so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def metrics(port):
    """{(name, labels): value} of /metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    return {(name, labels): float(value) for name, labels, value in SERIES.findall(text)}


def metric(port, name, **labels):
    """The sum of all series of that name that have these labels."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    return sum(value for (known, shown), value in metrics(port).items()
               if known == name and all(label in shown for label in wanted))
