# SPDX-License-Identifier: MIT
"""Machines that are none: network namespaces on two switches, one for clients and one for the
store, so that a cable between a server and its store can be pulled.

What a pulled cable does no closed port does: nothing comes back, not even a refusal.
"""
import functools
import os
import subprocess


def ip(*words, check=True):
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True, timeout=20)
    assert not check or done.returncode == 0, f"ip {' '.join(map(str, words))}: {done.stderr}"
    return done.returncode == 0


@functools.cache
def why_not():
    """Why there can be no such machines here; None: there can."""
    if os.geteuid() != 0:
        return "network namespaces are made by root alone"
    try:
        with Network(1):
            return None
    except (AssertionError, OSError) as fault:
        return f"network namespaces cannot be used here: {fault}"


class Machine:
    def __init__(self, network, number):
        self.network, self.number = network, number
        self.name = f"{network.name}-{number}"
        self.client_address = network.address(0, number)
        self.store_address = network.address(1, number)

    @property
    def prefix(self):
        """Before a command that is to run there."""
        return ["ip", "netns", "exec", self.name]

    def cut(self):
        """Pulls its cable out of the store's switch."""
        ip("link", "set", self.network.cable(1, self.number), "nomaster")

    def mend(self):
        ip("link", "set", self.network.cable(1, self.number), "master", self.network.switch(1))


class Network:
    """So many machines, numbered from 1; the test itself is on the clients' switch alone."""

    def __init__(self, machines):
        self.name = f"st{os.getpid():x}"
        self.base = os.getpid() % 120 * 2
        self.machines = [Machine(self, number + 1) for number in range(machines)]

    def switch(self, which):
        return f"{self.name}{'cs'[which]}"

    def cable(self, which, number):
        return f"{self.name}{'cs'[which]}{number}"

    def address(self, which, number):
        return f"10.213.{self.base + which}.{number}"

    def _lay(self, machine, which):
        cable, end = self.cable(which, machine.number), f"eth{which}"
        ip("link", "add", cable, "type", "veth", "peer", "name", end, "netns", machine.name)
        ip("link", "set", cable, "master", self.switch(which), "up")
        inside = ("-n", machine.name)
        ip(*inside, "addr", "add", f"{self.address(which, machine.number)}/24", "dev", end)
        ip(*inside, "link", "set", end, "up")

    def __enter__(self):
        try:
            for which in (0, 1):
                ip("link", "add", self.switch(which), "type", "bridge")
                ip("link", "set", self.switch(which), "up")
            ip("addr", "add", f"{self.address(0, 254)}/24", "dev", self.switch(0))
            for machine in self.machines:
                ip("netns", "add", machine.name)
                ip("-n", machine.name, "link", "set", "lo", "up")
                for which in (0, 1):
                    self._lay(machine, which)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for machine in self.machines:
            ip("netns", "del", machine.name, check=False)
            for which in (0, 1):
                ip("link", "del", self.cable(which, machine.number), check=False)
        for which in (0, 1):
            ip("link", "del", self.switch(which), check=False)
